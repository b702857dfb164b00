"""The simulated daemon, asked as a real one is: through docker-py, through our adapter, and raw."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import httpx
import pytest
from docker.types import DeviceRequest

from anvil_tui.adapters.docker_engine import DockerControl, DockerReader
from anvil_tui.core.errors import NotFound, Unreachable
from anvil_tui.core.recipe import Recipe
from anvil_tui.ports import ContainerSpec
from anvil_tui.simbox.workspace import read_recipes
from tests.support.simbox import SimProcess, free_port, until

GLM = "glm53-524k-k5-xgfix"


@pytest.fixture(scope="module")
def sim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimProcess]:
    made = SimProcess(tmp_path_factory.mktemp("sim") / "w")
    yield made
    assert made.end() == ""


@pytest.fixture(autouse=True)
def _clean(sim: SimProcess) -> Iterator[None]:
    yield
    sim.clear()
    client = docker.DockerClient(sim.workspace.containers.url)
    for container in client.containers.list(all=True):
        if container.id not in sim.record.serves:
            container.remove(force=True)
    client.close()


@pytest.fixture
def client(sim: SimProcess) -> Iterator[Any]:
    made = docker.DockerClient(sim.workspace.containers.url)
    yield made
    made.close()


@pytest.fixture(scope="module")
def recipes(sim: SimProcess) -> dict[str, Recipe]:
    return read_recipes(sim.folder)


@pytest.fixture
def image(recipes: dict[str, Recipe]) -> str:
    return recipes[GLM].image.ref


def vllm_words(port: int, name: str = "tiny") -> list[str]:
    return ["m", "--served-model-name", name, "--port", str(port), "--max-model-len", "4096"]


def llama_words(port: int) -> list[str]:
    return [
        "-m",
        "/models/tiny.gguf",
        "--alias",
        "tiny",
        "--port",
        str(port),
        "-c",
        "4096",
        "-np",
        "2",
        "--metrics",
    ]


def health(port: int) -> int | str:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code
    except httpx.TransportError as why:
        return type(why).__name__


def start(client: Any, image: str, words: list[str], **more: Any) -> Any:
    container = client.containers.create(image, words, network_mode="host", **more)
    container.start()
    return container


def exit_state(container: Any) -> tuple[str, int, bool]:
    container.reload()
    state = container.attrs["State"]
    return state["Status"], state["ExitCode"], state["OOMKilled"]


# the daemon itself


def test_version_and_negotiation(sim: SimProcess, client: Any) -> None:
    version = client.version()
    assert client.api._version == version["ApiVersion"] and client.ping() is True
    seen = DockerReader(sim.workspace.containers.url).daemon()
    assert (seen.version, seen.kernel) == (version["Version"], version["KernelVersion"])
    raw = httpx.Client(transport=httpx.HTTPTransport(uds=str(sim.folder / "docker.sock")), base_url="http://d")
    new, old, none = raw.get("/v9.99/info"), raw.get("/v1.1/info"), raw.get("/nonsense")
    assert (new.status_code, old.status_code, none.status_code) == (400, 400, 404)
    assert (
        "too new. Maximum supported API version is" in new.json()["message"] and "too old" in old.json()["message"]
    )
    assert none.json() == {"message": "page not found"}
    assert raw.head("/_ping").headers["Api-Version"] == version["ApiVersion"]
    assert "nvidia" in client.info()["Runtimes"]


def test_create_refusals(client: Any, image: str) -> None:
    client.containers.create(image, name="one")
    with pytest.raises(docker.errors.APIError) as taken:
        client.containers.create(image, name="one")
    assert taken.value.status_code == 409 and "is already in use by container" in str(taken.value)
    with pytest.raises(docker.errors.ImageNotFound, match="No such image"):
        client.containers.create("nobody/none@sha256:" + "0" * 64)
    with pytest.raises(docker.errors.APIError, match="Invalid container name"):
        client.containers.create(image, name="x")
    with pytest.raises(docker.errors.NotFound, match="No such container"):
        client.containers.get("f" * 64)


def test_list_filters_and_names(client: Any, image: str) -> None:
    a = client.containers.create(image, name="serve-a", labels={"anvil.op": "1"})
    client.containers.create(image, name="serve-ab", labels={"anvil.op": "2"})

    def names(**filters: str) -> list[str]:
        return sorted(c.name for c in client.containers.list(all=True, filters=filters))

    assert names(name="serve-a") == ["serve-a", "serve-ab"]  # a substring, as the real daemon matches
    assert names(label="anvil.op=1") == ["serve-a"] and names(id=a.id) == ["serve-a"]
    assert names(status="created") == ["serve-a", "serve-ab"]
    a.rename("serve-c")
    assert client.containers.get("serve-c").id == a.id == client.containers.get(a.id[:12]).id


def test_inspect_has_the_real_shape(sim: SimProcess, client: Any, recipes: dict[str, Recipe]) -> None:
    attrs = client.containers.get(sim.incumbent).attrs
    recipe = recipes[GLM]
    assert attrs["Image"] == recipe.image.ref.partition("@")[2] and attrs["Config"]["Image"] == recipe.image.ref
    (request,) = attrs["HostConfig"]["DeviceRequests"]
    assert sorted(request["DeviceIDs"]) == sorted(sim.workspace.gpus.roles.values())
    assert attrs["Config"]["Labels"]["anvil.recipe-digest"] == recipe.digest()
    assert attrs["Path"] == "vllm" and "--max-model-len" in attrs["Args"]
    state = attrs["State"]
    assert (state["Status"], state["Running"], state["OOMKilled"], state["ExitCode"]) == (
        "running",
        True,
        False,
        0,
    )
    assert state["Pid"] > 4_194_304 and attrs["NetworkSettings"]["Networks"] and attrs["RestartCount"] == 0
    assert client.images.get(recipe.image.ref).attrs["RepoDigests"] == [recipe.image.ref]


def test_pull_by_digest(client: Any, recipes: dict[str, Recipe]) -> None:
    ref = recipes["glm53-exl3-r7"].image.ref
    repository, _, digest = ref.partition("@")
    with pytest.raises(docker.errors.ImageNotFound):
        client.images.get(ref)
    lines = list(client.api.pull(repository, tag=digest, stream=True, decode=True))
    assert any(line.get("progressDetail", {}).get("total") for line in lines)
    assert lines[-1]["status"].startswith("Status: Downloaded newer image") and client.images.get(ref).id == digest
    again = list(client.api.pull(repository, tag=digest, stream=True, decode=True))
    assert "up to date" in again[-1]["status"]
    client.images.remove(ref)
    with pytest.raises(docker.errors.NotFound, match="manifest unknown"):
        client.images.pull("nobody/none", tag="sha256:" + "1" * 64)


def test_events_tell_a_life(client: Any, image: str) -> None:
    since = time.time()
    container = start(client, image, vllm_words(free_port()), name="lived")
    container.kill()
    container.remove()
    actions = [e["Action"] for e in client.events(since=since, until=time.time() + 0.2, decode=True,
                                                  filters={"container": "lived"})]  # fmt: skip
    assert actions == ["create", "start", "kill", "die", "destroy"]


# refusals at start


def refused(container: Any) -> tuple[int, str]:
    with pytest.raises(docker.errors.APIError) as why:
        container.start()
    container.reload()
    state = container.attrs["State"]
    assert (state["Status"], state["ExitCode"]) == ("created", 128) and state["Error"] in str(why.value)
    return int(why.value.status_code or 0), str(why.value)


def test_start_with_a_published_port_that_is_taken(client: Any, image: str) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        taken = client.containers.create(image, ports={"8000/tcp": ("127.0.0.1", held.getsockname()[1])})
        status, text = refused(taken)
    assert status == 500 and "address already in use" in text


def test_start_with_gpus_nobody_can_give(sim: SimProcess, client: Any, image: str) -> None:

    def ask(name: str) -> DeviceRequest:
        return DeviceRequest(driver="nvidia", device_ids=[name], capabilities=[["gpu"]])

    stranger = "GPU-00000000-0000-0000-0000-000000000000"
    status, text = refused(client.containers.create(image, device_requests=[ask(stranger)]))
    assert status == 500 and f"device error: {stranger}: unknown device" in text
    sim.fault("no_gpu_driver")
    status, text = refused(client.containers.create(image, device_requests=[ask("0")]))
    assert status == 500 and 'could not select device driver "nvidia" with capabilities: [[gpu]]' in text
    assert "nvidia" not in client.info()["Runtimes"]


def test_engine_that_finds_its_port_taken_exits(client: Any, image: str) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        container = start(client, image, vllm_words(held.getsockname()[1]))
        assert container.wait()["StatusCode"] == 1
    assert b"address already in use" in container.logs()


def test_engine_that_finds_too_little_memory_says_its_four_numbers(
    sim: SimProcess, client: Any, image: str
) -> None:
    words = [*vllm_words(free_port()), "--gpu-memory-utilization", "0.95"]
    gpus = [
        DeviceRequest(driver="nvidia", device_ids=list(sim.workspace.gpus.roles.values()), capabilities=[["gpu"]])
    ]
    container = start(client, image, words, device_requests=gpus)
    assert container.wait()["StatusCode"] == 1
    text = container.logs().decode()
    assert "Free memory on device cuda:0 (" in text and "/94.97 GiB)" in text and "(0.95, 90.22 GiB)" in text


def test_two_engines_that_each_saw_enough_memory_do_not_share_a_card(
    sim: SimProcess, client: Any, image: str
) -> None:
    """Both look at the card before either has taken anything of it."""
    client.containers.get(sim.incumbent).stop()
    ask = [DeviceRequest(driver="nvidia", device_ids=["0"], capabilities=[["gpu"]])]
    words = [[*vllm_words(free_port()), "--gpu-memory-utilization", "0.6"] for _ in range(2)]
    both = [start(client, image, w, device_requests=ask) for w in words]
    until(lambda: "exited" in [exit_state(c)[0] for c in both], "one has ended")
    loser, winner = sorted(both, key=lambda c: exit_state(c)[0])
    assert exit_state(loser)[1] == 1 and b"memory" in loser.logs()
    assert exit_state(winner)[0] == "running"
    winner.remove(force=True)
    client.containers.get(sim.incumbent).start()


def test_a_restart_policy_starts_it_again_and_counts(sim: SimProcess, client: Any, image: str) -> None:
    words = ["-m", "/models/absent.gguf", *llama_words(free_port())[2:]]
    container = start(client, image, words, restart_policy={"Name": "on-failure", "MaximumRetryCount": 2})

    def given_up() -> bool:
        container.reload()
        return bool(container.attrs["RestartCount"] == 2 and container.attrs["State"]["Status"] == "exited")

    until(given_up, "two restarts, then exited")
    assert exit_state(container)[1] == 1


# stop, signals, exit codes


def test_vllm_stops_with_0_and_stop_is_idempotent(client: Any, image: str) -> None:
    port = free_port()
    container = start(client, image, vllm_words(port))
    until(lambda: health(port) == 200, "ready")
    with pytest.raises(docker.errors.APIError, match="container is running") as why:
        container.remove()
    assert why.value.status_code == 409
    container.stop(timeout=30)
    assert exit_state(container) == ("exited", 0, False)
    container.stop(timeout=30)
    assert health(port) == "ConnectError"
    container.start()
    until(lambda: health(port) == 200, "ready again")


def test_llama_ignores_sigterm_while_it_loads(sim: SimProcess, client: Any, image: str) -> None:
    sim.fault("slow_load", factor=100, next=1)
    port = free_port()
    container = start(client, image, llama_words(port), entrypoint=["llama-server"])
    until(lambda: health(port) == 503, "503 while loading")
    container.stop(timeout=20)
    assert exit_state(container) == ("exited", 137, False)


def test_llama_idle_stops_with_0(client: Any, image: str) -> None:
    port = free_port()
    container = start(client, image, llama_words(port), entrypoint=["llama-server"])
    until(lambda: health(port) == 200, "ready")
    container.stop(timeout=20)
    assert exit_state(container) == ("exited", 0, False)


def test_llama_stopped_while_it_answers_never_ends_by_itself(sim: SimProcess, client: Any, image: str) -> None:
    port = free_port()
    container = start(client, image, llama_words(port), entrypoint=["llama-server"])
    until(lambda: health(port) == 200, "ready")
    sim.fault("slow_drain", container=container.id, seconds=100_000)
    body = {"messages": [{"role": "user", "content": "What is 2 + 2?"}]}
    asking = threading.Thread(target=lambda: _try_post(port, body))
    asking.start()
    until(lambda: "requests_processing 1" in httpx.get(f"http://127.0.0.1:{port}/metrics").text, "a request runs")
    container.kill(signal="SIGTERM")
    assert health(port) == 200
    container.stop(timeout=1)  # a second SIGTERM ends it at once
    assert exit_state(container)[1] == 1
    asking.join(10)


def _try_post(port: int, body: dict[str, Any]) -> int:
    try:
        return httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body, timeout=30).status_code
    except httpx.TransportError:
        return 0


@pytest.mark.parametrize(("init", "code"), [(True, 137), (False, 0)])
def test_sglang_kills_itself_on_sigterm(client: Any, image: str, init: bool, code: int) -> None:
    port = free_port()
    words = ["--model-path", "/m", "--served-model-name", "tiny", "--port", str(port), "--context-length", "4096"]
    container = start(client, image, words, init=init)
    until(lambda: health(port) == 200, "ready")
    container.stop(timeout=60)
    assert exit_state(container) == ("exited", code, False)


# logs


def test_logs_tail_since_streams_and_stamps(client: Any, image: str) -> None:
    port = free_port()
    container = start(client, image, vllm_words(port))
    until(lambda: health(port) == 200, "ready")
    every = container.logs().decode().splitlines()
    assert container.logs(tail=2).decode().splitlines() == every[-2:] and container.logs(tail=0) == b""
    assert container.logs(stdout=True, stderr=False) == b""  # these engines write to stderr
    stamped = container.logs(timestamps=True).decode().splitlines()
    assert [line.partition(" ")[2] for line in stamped] == every and stamped[0][10] == "T"
    assert container.logs(since=int(time.time()) + 5) == b""


def test_follow_ends_with_the_container(client: Any, image: str) -> None:
    port = free_port()
    container = start(client, image, vllm_words(port))
    until(lambda: health(port) == 200, "ready")
    got: list[bytes] = []
    reading = threading.Thread(target=lambda: got.extend(container.logs(stream=True, follow=True)))
    reading.start()
    container.stop(timeout=30)
    reading.join(10)
    assert not reading.is_alive() and b"stopping engine client" in b"".join(got)


def test_a_long_line_comes_in_parts(sim: SimProcess, client: Any, image: str) -> None:
    sim.fault("load_fails", next=1, text="x" * 20_000)
    container = start(client, image, vllm_words(free_port()))
    container.wait()
    parts = list(client.api.logs(container.id, stream=True, follow=False))
    assert [len(p) for p in parts if p.startswith(b"x")] == [16_384, 20_001 - 16_384]
    (line,) = [x for x in DockerReader(sim.workspace.containers.url).logs(container.id) if x.text.startswith("x")]
    assert len(line.text) == 20_000


def test_tty_logs_are_raw(client: Any, image: str) -> None:
    container = start(client, image, vllm_words(free_port()), tty=True)
    until(lambda: b"Application startup complete." in container.logs(), "a log")
    assert container.logs()[:1] == b"("


# our own adapter


def spec(image: str, port: int, **more: Any) -> ContainerSpec:
    return ContainerSpec("anvil-test", image, tuple(vllm_words(port)), labels={"anvil.op": "op-1"}, **more)


def test_the_adapter_makes_and_ends_a_serve(sim: SimProcess, image: str) -> None:
    reader, control = DockerReader(sim.workspace.containers.url), DockerControl(sim.workspace.containers.url)
    port, uuid = free_port(), sim.workspace.gpus.roles["compute-b"]
    made = control.create(spec(image, port, gpu_uuids=(uuid,), stop_grace_s=30))
    assert control.create(spec(image, port)) == made  # the same operation finds what it made
    seen = reader.inspect(made)
    assert (seen.status, seen.gpus.effective, seen.gpus.uuids, seen.exit_code) == (
        "created",
        "uuids",
        (uuid,),
        None,
    )
    assert seen.pins == (image,) and seen.image_id == image.partition("@")[2] == reader.image_id(image)
    control.remove(made)
    made = control.create(spec(image, port))
    control.start(made)
    until(lambda: health(port) == 200, "ready")
    lines = iter(follow := reader.follow(made))
    assert "vLLM API server version" in next(lines).text
    follow.close()
    control.stop(made, 30)
    seen = reader.inspect(made)
    assert (seen.status, seen.exit_code, seen.oom_killed) == ("exited", 0, False)
    control.remove(made)
    control.remove(made)
    with pytest.raises(NotFound):
        reader.inspect(made)


def test_the_adapter_pulls_and_says_what_it_cannot(
    sim: SimProcess, client: Any, recipes: dict[str, Recipe]
) -> None:
    control, reader = DockerControl(sim.workspace.containers.url), DockerReader(sim.workspace.containers.url)
    ref = recipes["glm53-exl3-r7"].image.ref
    said: list[str] = []
    control.pull(ref, said.append)
    assert said and reader.image_id(ref) == ref.partition("@")[2]
    client.images.remove(ref)
    with pytest.raises(NotFound, match="manifest unknown"):
        control.pull("nobody/none@sha256:" + "2" * 64, said.append)


def test_a_daemon_that_is_down_is_unreachable_and_comes_back(sim: SimProcess) -> None:
    reader = DockerReader(sim.workspace.containers.url, 2)
    before = {c.id for c in reader.list()}
    sim.fault("docker_down")
    with pytest.raises(Unreachable):
        reader.list()
    sim.clear()
    after = {c.id: c.status for c in reader.list()}
    assert set(after) == before and after[sim.incumbent] == "running"


def test_sockets_are_private_and_gone_afterwards(tmp_path: Path) -> None:
    made = SimProcess(tmp_path / "w")
    sockets = [Path(made.control), Path(made.workspace.containers.url.removeprefix("unix://"))]
    assert [s.stat().st_mode & 0o777 for s in sockets] == [0o600, 0o600]
    assert (tmp_path / "w/state/secrets/client.key").stat().st_mode & 0o777 == 0o600
    assert made.end() == "" and made.process.returncode == 0
    assert not any(s.exists() for s in sockets)
