"""The Docker adapter on a real Docker Engine, with llama.cpp and busybox in containers.

Fixtures from the session's set-up: `real_docker` (`url` of an engine of its own), `llama_image` (pinned
reference), `models_dir` (holds SmolLM2).
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import docker
import psutil
import pytest
from docker.types import DeviceRequest

from anvil_tui.adapters.clock import SystemClock
from anvil_tui.adapters.docker_engine import DockerReader
from anvil_tui.adapters.host_inspect import LinuxHost
from anvil_tui.core.box import Container, GpuGrant
from anvil_tui.core.engine_log import capacity, load_phase, root_cause
from anvil_tui.core.errors import EffectFailed, NotFound, Unreachable
from anvil_tui.core.shape import changed, shape_of, write
from anvil_tui.core.times import epoch_ns
from anvil_tui.ports import LogLine
from tests.support.docker_box import LLAMA, MODEL, Box, free_port
from tests.support.wait import wait_until

pytestmark = pytest.mark.real


@pytest.fixture
def box(real_docker: Any, llama_image: str, models_dir: Path) -> Iterator[Box]:
    made = Box(real_docker.url, llama_image, models_dir)
    yield made
    made.close()


def test_life_of_a_serve(box: Box) -> None:
    spec = box.spec(
        ("-m", MODEL, "--host", "127.0.0.1", "--port", str(free_port()), "-t", "1", "-c", "512", "-np", "2")
    )
    container_id = box.create(spec)
    made = box.reader.inspect(container_id)
    assert (made.status, made.exit_code, made.started_at, made.restart_policy) == ("created", None, None, "no")
    assert made.argv[-len(spec.argv) :] == spec.argv
    assert made.labels == {**made.labels, **spec.labels}
    assert box.image in made.pins
    assert made.image_id == box.reader.image_id(box.image)
    host = box.raw.inspect_container(container_id)["HostConfig"]
    assert (host["Privileged"], host["Init"], host["NetworkMode"]) == (False, True, "host")

    box.control.start(container_id)
    box.control.start(container_id)  # again: nothing happens
    wait_until(lambda: load_phase(LLAMA, box.log(container_id)).word == "ready", "listening")
    running = box.reader.inspect(container_id)
    assert (running.status, running.oom_killed, running.restart_count) == ("running", False, 0)
    assert running.pid
    kv = capacity(LLAMA, box.log(container_id))
    assert kv is not None
    assert (kv.tokens, kv.per_request_tokens) == (512, 256)

    box.control.stop(container_id, 5)
    stopped = box.reader.inspect(container_id)
    assert (stopped.status, stopped.exit_code, stopped.oom_killed) == ("exited", 0, False)
    assert stopped.started_at == running.started_at
    box.control.stop(container_id, 5)
    box.control.start(container_id)
    assert box.reader.inspect(container_id).running, "the retained container can be started again"
    with pytest.raises(EffectFailed, match="running container"):
        box.control.remove(container_id)
    box.control.stop(container_id, 5)
    box.control.remove(container_id)
    box.control.remove(container_id)
    with pytest.raises(NotFound):
        box.reader.inspect(container_id)
    with pytest.raises(NotFound):
        box.control.stop(container_id, 1)


def test_a_file_is_hashed_as_the_container_sees_it(box: Box, models_dir: Path) -> None:
    """Of a mount and of the image itself, without starting anything; a folder is no file."""
    made = box.create(box.spec(("--version",)))
    weights = hashlib.sha256((models_dir / MODEL.rpartition("/")[2]).read_bytes()).hexdigest()
    assert box.reader.sha256(made, MODEL, 60) == weights
    assert len(box.reader.sha256(made, "/usr/bin/llama-server", 60)) == 64, "a link is followed"
    for path, says in (("/no/such/file", "no such file|Could not find"), ("/usr", "is no file")):
        with pytest.raises(NotFound, match=says):
            box.reader.sha256(made, path, 60)
    with pytest.raises(EffectFailed, match="not read within 0 s"):
        box.reader.sha256(made, MODEL, 0)
    size = (models_dir / MODEL.rpartition("/")[2]).stat().st_size
    assert [box.reader.size_of(made, p) for p in (MODEL, "/usr")] == [size, None]
    assert box.reader.size_of(made, "/usr/bin/llama-server"), "a link is followed"
    with pytest.raises(NotFound, match="/no/such/file of container"):
        box.reader.size_of(made, "/no/such/file")


def test_a_container_tells_the_paths_on_its_machine_of_what_it_mounts(box: Box, models_dir: Path) -> None:
    """For the weights of a stopped serve: a bind by its source, whether or not it may be written to."""
    made = box.reader.inspect(box.create(box.spec(("--version",))))
    assert made.mounts == ((str(models_dir), "/models", True),) and made.status == "created"
    assert changed(write(shape_of(made)), box.reader.inspect(made.id)) == ()


def test_create_is_keyed_by_its_labels(box: Box) -> None:
    spec = box.shell("sleep 60")
    container_id = box.create(spec)
    assert box.control.create(spec) == container_id
    other = box.shell("sleep 60", name=spec.name)
    with pytest.raises(EffectFailed, match=f"the name belongs to container {container_id}"):
        box.control.create(other)


def test_same_name_new_id_is_another_container(box: Box) -> None:
    first = box.create(box.shell("sleep 60", name="anvil-same"))
    box.control.remove(first)
    second = box.create(box.shell("sleep 60", name="anvil-same"))
    assert first != second
    acts: tuple[Callable[[], None], ...] = (lambda: box.control.start(first), lambda: box.control.stop(first, 1))
    for act in acts:
        with pytest.raises(NotFound):
            act()
    assert box.reader.inspect(second).status == "created"


def test_list_while_containers_vanish(box: Box) -> None:
    keep = box.started(box.shell("sleep 60"))
    stop = threading.Event()
    failed: list[BaseException] = []

    def churn() -> None:
        try:
            while not stop.is_set():
                box.control.remove(box.create(box.shell("true")))
        except BaseException as error:
            failed.append(error)
            raise

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(60):
            listed = {c.id: c.status for c in box.reader.list()}
            assert listed[keep] == "running"
    finally:
        stop.set()
        thread.join()
    assert failed == []


def test_port_taken_is_named_from_the_log(box: Box) -> None:
    port = free_port()
    first = box.llama(port=port)
    wait_until(lambda: load_phase(LLAMA, box.log(first)).word == "ready", "listening")
    second = box.llama(port=port)
    assert box.ended(second).exit_code == 1
    cause = root_cause(LLAMA, box.log(second))
    assert cause is not None
    assert cause.name == "port_in_use"
    assert box.reader.inspect(first).running


def test_start_that_the_daemon_refuses_leaves_the_container_with_its_cause(box: Box) -> None:
    container_id = box.create(box.shell("true", gpu_uuids=("GPU-00000000-0000-0000-0000-00000000dead",)))
    grant = box.reader.inspect(container_id).gpus
    assert (grant.effective, grant.uuids) == ("uuids", ("GPU-00000000-0000-0000-0000-00000000dead",))
    with pytest.raises(EffectFailed, match=r"^(gpu_support_missing|gpu_unknown): ") as caught:
        box.control.start(container_id)
    left = box.reader.inspect(container_id)
    assert (left.status, left.exit_code) == ("created", None)
    assert left.error
    assert left.error in str(caught.value)


def test_missing_program_and_missing_mount_are_named(box: Box) -> None:
    container_id = box.started(box.spec((), entrypoint=("/usr/bin/none",), mounts=()))
    assert box.ended(container_id).exit_code == 127
    cause = root_cause(LLAMA, box.log(container_id))
    assert cause is not None
    assert cause.name == "entrypoint_missing"
    with pytest.raises(EffectFailed, match="bind source path does not exist: /none/such"):
        box.control.create(box.spec((), mounts=(("/none/such", "/models", True),)))


def test_memory_limit_kills_and_says_so(box: Box) -> None:
    container_id = box.llama("--load-mode", "none", memory_limit_mib=64)
    dead = box.ended(container_id)
    assert (dead.exit_code, dead.oom_killed) == (137, True)
    listed = next(c for c in box.reader.list() if c.id == container_id)
    assert (listed.exit_code, listed.oom_killed) == (137, True)


def test_absent_model_is_a_root_cause(box: Box) -> None:
    container_id = box.started(box.spec(("-m", "/models/absent.gguf", "--port", str(free_port()), "-t", "1")))
    assert box.ended(container_id).exit_code == 1
    cause = root_cause(LLAMA, box.log(container_id))
    assert cause is not None
    assert cause.name == "model_not_loaded"


def test_restart_loop_shows_its_count(box: Box) -> None:
    policy = {"Name": "on-failure", "MaximumRetryCount": 3}
    container_id = box.foreign("exit 3", {"restart_policy": policy})

    def looped() -> Container | None:
        found = next(c for c in box.reader.list() if c.id == container_id)
        return found if (found.restart_count or 0) >= 2 else None

    found = wait_until(looped, "two restarts")
    assert found.restart_policy == "on-failure"
    last = wait_until(lambda: c if (c := box.reader.inspect(container_id)).status == "exited" else None, "gave up")
    assert (last.restart_count, last.exit_code) == (3, 3)


def test_stop_while_loading_ends_at_once_under_an_init(box: Box) -> None:
    container_id = box.llama(cpus=0.05)  # makes the load last for many seconds
    wait_until(lambda: load_phase(LLAMA, box.log(container_id)).word == "weights", "loading")
    started = time.monotonic()
    box.control.stop(container_id, 20)
    assert time.monotonic() - started < 15
    stopped = box.reader.inspect(container_id)
    assert (stopped.status, stopped.oom_killed) == ("exited", False)
    assert stopped.exit_code == 143


def test_deaf_process_is_killed_after_the_grace(box: Box) -> None:
    container_id = box.started(box.shell("trap '' TERM; echo deaf; while true; do sleep 1; done"))
    wait_until(lambda: "deaf" in box.log(container_id), "trap set")
    started = time.monotonic()
    box.control.stop(container_id, 2)
    assert 1.5 < time.monotonic() - started < 12
    stopped = box.reader.inspect(container_id)
    assert (stopped.exit_code, stopped.oom_killed) == (137, False)


def test_paused_container_can_be_stopped(box: Box) -> None:
    container_id = box.started(box.shell("exec sleep 60"))
    box.raw.pause(container_id)
    assert box.reader.inspect(container_id).status == "paused"
    box.control.stop(container_id, 1)
    assert box.reader.inspect(container_id).status == "exited"


def test_the_container_of_real_processes_by_their_control_groups(box: Box, tmp_path: Path) -> None:
    """A container's first process and its children, with the engine's own parent group and with another."""
    pids = str(Path("/proc/self/ns/pid").readlink())
    host = LinuxHost(tmp_path, SystemClock(), driver_pids=pids)
    for parent in (None, "/anvil-test"):
        made = box.foreign("sleep 600 & sleep 600; true", {"init": True, "cgroup_parent": parent})
        first = box.reader.inspect(made).pid
        assert first is not None
        init = psutil.Process(first)
        wait_until(partial(family, init, 4), "init, shell and two of its children")
        inside = [first, *(p.pid for p in init.children(recursive=True))]
        assert host.containers_of((*inside, os.getpid())) == {**dict.fromkeys(inside, made), os.getpid(): ""}
        box.raw.remove_container(made, force=True)
        wait_until(partial(unknown, host, inside), "its processes are gone")


def family(process: psutil.Process, size: int) -> bool:
    return 1 + len(process.children(recursive=True)) >= size


def unknown(host: LinuxHost, pids: list[int]) -> bool:
    return host.containers_of(pids) == {}


ONE = "GPU-aaaa0000-0000-0000-0000-000000000001"
GPU: list[list[str]] = [["gpu"]]


@pytest.mark.parametrize(
    ("host", "grant"),
    [
        ({"device_requests": [DeviceRequest(count=-1, capabilities=GPU)]},
         GpuGrant(("all",), "all", (), "device-request")),
        ({"device_requests": [DeviceRequest(count=-1, capabilities=[["compute"]])]},
         GpuGrant(("all",), "all", (), "device-request")),
        ({"device_requests": [DeviceRequest(count=2, capabilities=GPU)]},
         GpuGrant(("count=2",), "unknown", (), "device-request")),
        ({"device_requests": [DeviceRequest(device_ids=[ONE, "1"], capabilities=GPU)]},
         GpuGrant((ONE, "1"), "unknown", (), "device-request")),
        ({"device_requests": [DeviceRequest(device_ids=[ONE], capabilities=GPU)]},
         GpuGrant((ONE,), "uuids", (ONE,), "device-request")),
        ({"device_requests": [DeviceRequest(driver="cdi", device_ids=[f"nvidia.com/gpu={ONE}"])]},
         GpuGrant((f"nvidia.com/gpu={ONE}",), "uuids", (ONE,), "cdi")),
        ({"devices": ["/dev/nvidia0:/dev/nvidia0:rwm"]},
         GpuGrant(("/dev/nvidia0",), "unknown", (), "device-node")),
        ({"privileged": True}, GpuGrant((), "all", (), "privileged")),
    ],
)  # fmt: skip
def test_grants_as_the_real_engine_shows_them(box: Box, host: dict[str, Any], grant: GpuGrant) -> None:
    """O-07, O-08: created, never started. The image's variable needs the NVIDIA runtime itself."""
    made = box.foreign("true", host, start=False)
    assert box.reader.inspect(made).gpus == grant


def test_foreign_privileged_container_has_all_gpus(box: Box) -> None:
    container_id = box.foreign("sleep 60", {"privileged": True}, start=False)
    found = next(c for c in box.reader.list() if c.id == container_id)
    assert (found.gpus.effective, found.gpus.via) == ("all", "privileged")


def test_moved_tag_is_seen_by_image_id(box: Box) -> None:
    repository = f"local/anvil-{uuid.uuid4().hex[:8]}"
    tag = f"{repository}:stable"
    box.raw.tag(box.image, repository, "stable")
    container_id = box.foreign("sleep 60", image=tag)
    found = box.reader.inspect(container_id)
    assert found.image_ref == tag
    assert box.reader.image_id(found.image_ref) == found.image_id
    new = box.raw.commit(container_id, repository, "stable")["Id"]
    try:
        drifted = next(c for c in box.reader.list() if c.id == container_id)
        assert box.reader.image_id(tag) == new
        assert drifted.image_id == found.image_id != new
    finally:
        box.raw.remove_container(container_id, force=True)
        box.raw.remove_image(new, force=True)


def test_pins(box: Box) -> None:
    image_id = box.reader.image_id(box.image)
    assert image_id is not None
    found = box.reader.image_pin(box.image)
    assert found is not None
    assert found[0] == image_id
    repository = box.image.partition("@")[0]
    by_id = box.reader.image_pin(f"{repository}@{image_id}")
    assert by_id is not None
    assert by_id[0] == image_id
    assert by_id[1] in ("config", "manifest", "index")
    assert box.reader.image_pin(f"{repository}@sha256:{'0' * 64}") is None
    assert box.reader.image_id("local/none:1") is None


def test_pull_by_digest(box: Box) -> None:
    lines: list[str] = []
    box.control.pull(box.image, lines.append)
    assert lines
    repository = box.image.partition("@")[0]
    with pytest.raises((NotFound, EffectFailed), match=r"(?i)manifest unknown|not found"):
        box.control.pull(f"{repository}@sha256:{'0' * 64}", lines.append)


def test_tty_and_framed_logs(box: Box) -> None:
    script = "echo out; echo err >&2; printf 'a%%\\rb%%\\n'; printf 'caf\\351\\n'"
    framed = box.foreign(script)
    tty = box.foreign(script, tty=True)
    box.ended(framed)
    box.ended(tty)
    lines = box.reader.logs(framed)
    assert {(line.stream, line.text) for line in lines} == {
        ("stdout", "out"),
        ("stderr", "err"),
        ("stdout", "b%"),
        ("stdout", "caf\ufffd"),
    }
    assert all(epoch_ns(line.at) for line in lines)
    assert [(line.stream, line.text) for line in box.reader.logs(tty)] == [
        ("tty", text) for text in ("out", "err", "b%", "caf\ufffd")
    ]
    assert box.reader.inspect(tty).tty
    assert [line.text for line in box.reader.logs(tty, tail=2)] == ["b%", "caf\ufffd"]


@pytest.mark.parametrize("tty", [False, True])
def test_line_over_the_daemons_buffer_is_one_line(box: Box, tty: bool) -> None:
    script = "head -c 40000 /dev/zero | tr '\\0' A; echo; echo next"
    container_id = box.foreign(script, tty=tty)
    box.ended(container_id)
    assert box.log(container_id) == ["A" * 40000, "next"]


def test_driver_without_reading_is_a_sentence(box: Box) -> None:
    container_id = box.foreign("echo x; sleep 60", {"log_config": docker.types.LogConfig(type="none")})
    with pytest.raises(NotFound, match=r"not available \(driver none\)"):
        box.reader.logs(container_id)
    assert box.reader.inspect(container_id).running
    assert box.reader.inspect(container_id).log_driver == "none"


def test_follow_until_the_end_and_again_from_a_stamp(box: Box) -> None:
    container_id = box.started(box.shell("for i in 1 2 3 4; do echo $i; sleep 0.1; done"))
    lines = list(box.reader.follow(container_id))
    assert [line.text for line in lines] == ["1", "2", "3", "4"]
    again = list(box.reader.follow(container_id, since=lines[1].at))
    assert [line.text for line in again] == ["3", "4"]


def test_follow_of_a_silent_container_is_closed_from_another_thread(box: Box) -> None:
    container_id = box.started(box.shell("echo hello; exec sleep 600"))
    follow = box.reader.follow(container_id)
    got: list[LogLine] = []
    thread = threading.Thread(target=lambda: got.extend(follow))
    thread.start()
    wait_until(lambda: got, "first line")
    follow.close()
    thread.join(5)
    assert not thread.is_alive()
    assert [line.text for line in got] == ["hello"]
    assert box.reader.inspect(container_id).running


def test_reading_is_cheap_for_many_stopped_containers(box: Box) -> None:
    """A second list of N stopped containers costs one call, not N + 1."""
    for _ in range(8):
        box.create(box.shell("true"))
    box.reader.list()
    calls: list[str] = []
    api = box.reader._link.api()
    send = api.send

    def counted(request: Any, **options: Any) -> Any:
        calls.append(request.url)
        return send(request, **options)

    api.send = counted  # type: ignore[method-assign]
    listed = box.reader.list()
    others = [c for c in listed if c.status not in ("created", "exited")]
    assert len(listed) >= 8
    assert len(calls) <= 1 + 2 * len(others)


def test_engine_that_is_gone_is_unreachable(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="no such socket; is the container engine running"):
        DockerReader(f"unix://{tmp_path}/none.sock").list()
