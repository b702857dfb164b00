"""What the Docker adapter makes of answers that a healthy daemon gives seldom."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker
import pytest

from anvil_tui.adapters.docker_engine import RUNNING_S, DockerControl, DockerReader
from anvil_tui.core.errors import EffectFailed, NotFound, Unreachable
from anvil_tui.ports import ContainerSpec
from tests.support.http_stub import Handler, HttpStub, Route, serve

A, B, C = "a1" * 32, "b2" * 32, "c3" * 32
DIGEST = "sha256:" + "a1" * 32
REF = f"registry.local/eng@{DIGEST}"
LABELS = {"anvil.op": "op-1", "anvil.recipe": "r1"}


def row(container_id: str, name: str, state: str = "running", status: str = "Up 2 minutes") -> dict[str, Any]:
    return {
        "Id": container_id,
        "Names": [f"/{name}"],
        "State": state,
        "Status": status,
        "Image": REF,
        "Labels": {},
    }


def inspect(container_id: str, name: str, status: str = "running", **state: Any) -> dict[str, Any]:
    return {
        "Id": container_id,
        "Name": f"/{name}",
        "Image": "sha256:1",
        "Config": {"Tty": False, "Labels": {}},
        "HostConfig": {"LogConfig": {"Type": "json-file"}},
        "State": {"Status": status, "ExitCode": 0, **state},
    }


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[HttpStub]:
    routes: dict[str, Route] = {
        "GET /version": (200, {"ApiVersion": "1.45", "Version": "26.1.5"}),
        "GET /containers/json": (200, []),
        "GET /images/sha256:1/json": (200, {"Id": "sha256:1", "RepoDigests": [REF]}),
        "GET /info": (200, {"DriverStatus": [["Backing Filesystem", "extfs"]]}),
    }
    with serve(routes, unix=tmp_path / "d.sock") as stub:
        yield stub


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"unix://{tmp_path}/d.sock"


def test_vanished_container_is_left_out_and_a_broken_one_is_a_row(daemon: HttpStub, url: str) -> None:
    """O-19, docker/docker-py#1485: 404 is gone, 500 is one unknown row."""
    daemon.routes["GET /containers/json"] = (200, [row(A, "a"), row(B, "b"), row(C, "c")])
    daemon.routes[f"GET /containers/{A}/json"] = (200, inspect(A, "a"))
    daemon.routes[f"GET /containers/{B}/json"] = (404, {"message": "No such container: b2"})
    daemon.routes[f"GET /containers/{C}/json"] = (500, {"message": "layer lock broken"})
    reader = DockerReader(url)
    assert [(c.id, c.status, c.error) for c in reader.list()] == [
        (A, "running", ""),
        (C, "unknown", "layer lock broken"),
    ]
    daemon.routes[f"GET /containers/{C}/json"] = (200, inspect(C, "c"))
    assert [c.status for c in reader.list()] == ["running", "running"], "a broken row is asked again"


def test_containers_are_inspected_when_their_row_changes_and_running_ones_now_and_then(
    daemon: HttpStub, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    up, stopped = row(A, "a"), row(B, "b", "exited", "Exited (0) 2 hours ago")
    daemon.routes["GET /containers/json"] = (200, [up, stopped])
    daemon.routes[f"GET /containers/{A}/json"] = (200, inspect(A, "a"))
    daemon.routes[f"GET /containers/{B}/json"] = (200, inspect(B, "b", "exited"))
    now = [100.0]
    monkeypatch.setattr("anvil_tui.adapters.docker_engine.time", SimpleNamespace(monotonic=lambda: now[0]))
    reader = DockerReader(url)

    def asked() -> tuple[int, int]:
        return daemon.count(f"GET /containers/{A}/json"), daemon.count(f"GET /containers/{B}/json")

    first = reader.list()
    assert reader.list() == reader.list() == first and asked() == (1, 1)
    now[0] += RUNNING_S
    assert reader.list() == first and asked() == (2, 1)
    daemon.routes[f"GET /containers/{A}/json"] = (200, inspect(A, "a", RestartCount=1))
    for status, times in (
        ("Up 2 minutes (unhealthy)", 3),
        ("Up 1 second", 4),
        ("Up 1 second", 5),
        ("Up 4 seconds", 6),
        ("Up 6 seconds", 6),
        ("Up 50 seconds", 6),
        ("Up 3 seconds", 7),
        ("Up 50 seconds (unhealthy)", 8),
        ("Up About a minute", 9),
    ):
        up["Status"] = status
        reader.list()
        assert asked() == (times, 1), status
    assert daemon.count("GET /images/sha256:1/json") == 1
    stopped["Names"] = ["/renamed"]
    daemon.routes[f"GET /containers/{B}/json"] = (200, inspect(B, "renamed", "exited"))
    assert [c.name for c in reader.list()] == ["a", "renamed"] and asked() == (9, 2)


def test_list_that_is_no_list_of_objects_is_unreachable(daemon: HttpStub, url: str) -> None:
    daemon.routes["GET /containers/json"] = (200, ["nonsense"])
    with pytest.raises(Unreachable, match="list containers: answered nonsense"):
        DockerReader(url).list()
    daemon.routes["GET /containers/json"] = (200, "<html>")
    with pytest.raises(Unreachable, match="list containers"):
        DockerReader(url).list()


def test_errors_name_endpoint_and_the_daemons_words(daemon: HttpStub, url: str) -> None:
    daemon.routes[f"GET /containers/{A}/json"] = (500, {"message": "boom \x1b[31mred"})
    with pytest.raises(Unreachable, match=r"d\.sock: inspect a1a1a1a1a1a1: boom red \(after") as caught:
        DockerReader(url).inspect(A)
    assert caught.value.endpoint == url
    with pytest.raises(NotFound, match="inspect b2b2"):
        DockerReader(url).inspect(B)


def test_silent_daemon_is_unreachable_within_the_time_out(daemon: HttpStub, url: str) -> None:
    def silent(handler: Handler) -> None:
        handler.rfile.read(1)  # until the client hangs up

    daemon.routes["GET /containers/json"] = silent
    started = time.monotonic()
    with pytest.raises(Unreachable, match="no answer in time"):
        DockerReader(url, timeout_s=1).list()
    assert time.monotonic() - started < 5


def test_daemon_that_comes_back_is_reached_again(tmp_path: Path, url: str) -> None:
    reader = DockerReader(url)
    with pytest.raises(Unreachable, match="no such socket"):
        reader.list()
    routes: dict[str, Route] = {"GET /version": (200, {"ApiVersion": "1.45"}), "GET /containers/json": (200, [])}
    for _ in range(2):
        with serve(routes, unix=tmp_path / "d.sock"):
            assert reader.list() == ()
        with pytest.raises(Unreachable, match="refused"):
            reader.list()
        (tmp_path / "d.sock").unlink()


def test_stop_that_the_daemon_could_not_do_is_a_failure(daemon: HttpStub, url: str) -> None:
    """O-18: still running, with the daemon's words as they are."""
    said = "cannot stop container: f6: tried to kill container, but did not receive an exit event"
    daemon.routes[f"GET /containers/{A}/json"] = (200, inspect(A, "a", Pid=7421))
    daemon.routes[f"POST /containers/{A}/stop"] = (500, {"message": said})
    with pytest.raises(EffectFailed, match=f"still running.*{said}"):
        DockerControl(url).stop(A, 1)
    assert ("t=1") in [query for name, query, *_ in daemon.seen if name.endswith("/stop")]


def test_the_stop_is_waited_for_longer_than_its_grace(
    daemon: HttpStub, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O-18, O-107: an answer that comes when the grace is over is an answer."""
    waits: list[float] = []
    real = docker.APIClient.post

    def post(self: docker.APIClient, where: str, **more: Any) -> Any:
        waits.append(more["timeout"])
        return real(self, where, **more)

    monkeypatch.setattr(docker.APIClient, "post", post)
    daemon.routes[f"GET /containers/{A}/json"] = (200, inspect(A, "a"))
    daemon.routes[f"POST /containers/{A}/stop"] = (500, {"message": "no"})
    with pytest.raises(EffectFailed):
        DockerControl(url, timeout_s=0.5).stop(A, 120)
    [wait] = waits
    assert wait >= 120 + 10, "the daemon itself waits 10 s for the exit event after it has killed"


def test_stop_whose_answer_was_lost_is_judged_by_the_state(daemon: HttpStub, url: str) -> None:
    """O-107: unknown, so it is inspected; not failed."""

    def stop(handler: Handler) -> None:
        daemon.routes[f"GET /containers/{A}/json"] = (200, inspect(A, "a", "exited", ExitCode=137))
        handler.close_connection = True
        handler.connection.close()

    daemon.routes[f"GET /containers/{A}/json"] = (200, inspect(A, "a"))
    daemon.routes[f"POST /containers/{A}/stop"] = stop
    DockerControl(url).stop(A, 1)


@pytest.mark.parametrize("status", ["exited", "created", "dead", "removing"])
def test_stop_of_what_does_not_run_sends_nothing(daemon: HttpStub, url: str, status: str) -> None:
    """O-16 among them."""
    daemon.routes[f"GET /containers/{A}/json"] = (200, inspect(A, "a", status))
    DockerControl(url).stop(A, 1)
    assert daemon.count(f"POST /containers/{A}/stop") == 0


@pytest.mark.parametrize("wrong", ["serve-a", A[:12], A + "0", "../" + A])
def test_control_takes_full_ids_only(daemon: HttpStub, url: str, wrong: str) -> None:
    """O-20: a name may mean another container by now."""
    control = DockerControl(url)
    for act in (control.start, control.remove, lambda i: control.stop(i, 1)):
        with pytest.raises(EffectFailed, match="not a full container id"):
            act(wrong)
    assert daemon.seen == []


def test_name_of_a_stranger_is_told_and_look_alikes_are_not(daemon: HttpStub, url: str) -> None:
    """O-21: the daemon's filter is a substring match; O-16: who holds a name is said before any create call."""
    daemon.routes[f"GET /images/{REF}/json"] = (200, {"Id": "sha256:1", "RepoDigests": [REF]})
    daemon.routes["POST /containers/create"] = (409, {"message": "Conflict. The name is in use"})
    rows = [row(A, "glm-rollback"), row(B, "old-glm")]

    def listing(handler: Handler) -> tuple[int, Any]:
        return 200, [] if "label" in handler.path else rows

    daemon.routes["GET /containers/json"] = listing
    spec = ContainerSpec("glm", REF, (), labels=LABELS)
    with pytest.raises(EffectFailed, match="Conflict"):
        DockerControl(url).create(spec)
    asked = daemon.count("POST /containers/create")
    rows.append(row(C, "glm", "removing", "Removal In Progress"))
    with pytest.raises(EffectFailed, match=rf"the name belongs to container {C} \(removing\)"):
        DockerControl(url).create(spec)
    assert daemon.count("POST /containers/create") == asked == 1


def test_a_removal_waits_for_the_id_and_not_for_the_name(daemon: HttpStub, url: str) -> None:
    """O-21: a name filter would still find the look-alike, or nothing while the id is still there."""
    left = [(200, inspect(A, "glm", "removing"))] * 3

    def look(handler: Handler) -> tuple[int, Any]:
        return left.pop() if left else (404, {"message": f"No such container: {A}"})

    daemon.routes["GET /containers/json"] = (200, [row(B, "glm-rollback")])
    daemon.routes[f"GET /containers/{A}/json"] = look
    daemon.routes[f"DELETE /containers/{A}"] = (
        409,
        {"message": f"removal of container {A} is already in progress"},
    )
    DockerControl(url).remove(A)
    assert left == [] and daemon.count("GET /containers/json") == 0


def test_a_start_that_finds_its_port_taken_is_the_same_a_second_time(daemon: HttpStub, url: str) -> None:
    """O-25: the cause and the endpoint; the container that is left is `created`, and only its id is removed."""
    said = (
        "driver failed programming external connectivity on endpoint serve-a: Bind for 127.0.0.1:8001 failed: "
        "port is already allocated"
    )
    made = {**inspect(A, "glm", "created", ExitCode=128, StartedAt="0001-01-01T00:00:00Z"), "Id": A}
    daemon.routes[f"GET /images/{REF}/json"] = (200, {"Id": "sha256:1", "RepoDigests": [REF]})
    daemon.routes["POST /containers/create"] = (201, {"Id": A})
    daemon.routes[f"POST /containers/{A}/start"] = (500, {"message": said})

    def delete(handler: Handler) -> tuple[int, Any]:
        daemon.routes[f"GET /containers/{A}/json"] = (404, {"message": "gone"})
        return 204, ""

    control, texts = DockerControl(url), []
    for _ in range(2):
        daemon.routes[f"GET /containers/{A}/json"] = (200, made)
        daemon.routes[f"DELETE /containers/{A}"] = delete
        assert control.create(ContainerSpec("glm", REF, (), labels=LABELS)) == A
        with pytest.raises(EffectFailed, match=r"port_in_use: .*127\.0\.0\.1:8001 failed") as failed:
            control.start(A)
        texts.append(str(failed.value))
        left = DockerReader(url).inspect(A)
        assert (left.status, left.exit_code, left.started_at) == ("created", None, None)
        control.remove(A)
    assert texts[0] == texts[1]
    deleted = [name for name, *_ in daemon.seen if name.startswith("DELETE")]
    assert deleted == [f"DELETE /containers/{A}"] * 2


def test_created_container_whose_answer_was_lost_is_found(daemon: HttpStub, url: str) -> None:
    def create(handler: Handler) -> None:
        daemon.routes["GET /containers/json"] = (200, [{**row(C, "glm"), "Labels": LABELS}])
        handler.close_connection = True
        handler.connection.close()

    daemon.routes[f"GET /images/{REF}/json"] = (200, {"Id": "sha256:1", "RepoDigests": [REF]})
    daemon.routes["POST /containers/create"] = create
    assert DockerControl(url).create(ContainerSpec("glm", REF, (), labels=LABELS)) == C
    assert DockerControl(url).create(ContainerSpec("glm", REF, (), labels=LABELS)) == C
    assert daemon.count("POST /containers/create") == 1


def test_create_asks_for_exactly_this(daemon: HttpStub, url: str) -> None:
    gpus = ("GPU-aaaa0000-0000-0000-0000-000000000001", "GPU-aaaa0000-0000-0000-0000-000000000002")
    daemon.routes[f"GET /images/{REF}/json"] = (200, {"Id": "sha256:1", "RepoDigests": [REF]})
    daemon.routes["POST /containers/create"] = (201, {"Id": A})
    spec = ContainerSpec(
        "glm",
        REF,
        ("--port", "1"),
        env={"X": "1", "NVIDIA_VISIBLE_DEVICES": "all"},
        mounts=(("/srv/m", "/models", True), ("cache", "/cache", False)),
        labels=LABELS,
        gpu_uuids=gpus,
        shm_mib=64,
        memory_limit_mib=256,
        cpus=0.5,
        stop_grace_s=7,
    )
    DockerControl(url).create(spec)
    [body] = [body for name, _, body, _ in daemon.seen if name == "POST /containers/create"]
    host = body["HostConfig"]
    assert host["Init"] is True
    assert host.get("Privileged", False) is False
    assert host["RestartPolicy"]["Name"] == "no"
    assert host["NetworkMode"] == "host"
    assert host["DeviceRequests"] == [
        {"Driver": "", "Count": 0, "DeviceIDs": list(gpus), "Capabilities": [["gpu"]], "Options": {}}
    ]
    assert (host["Memory"], host["MemorySwap"], host["ShmSize"]) == (256 * 2**20, 256 * 2**20, 64 * 2**20)
    assert host["NanoCpus"] == 500_000_000
    assert [(m["Type"], m["Source"], m["Target"], m["ReadOnly"]) for m in host["Mounts"]] == [
        ("bind", "/srv/m", "/models", True),
        ("volume", "cache", "/cache", False),
    ]
    assert body["Image"] == REF
    assert body["StopTimeout"] == 7
    assert body["Healthcheck"]["Test"] == ["NONE"]
    assert set(body["Env"]) == {"X=1", f"NVIDIA_VISIBLE_DEVICES={','.join(gpus)}", "CUDA_DEVICE_ORDER=PCI_BUS_ID"}


def test_create_without_gpus_hides_them_from_images_that_ask_for_all(daemon: HttpStub, url: str) -> None:
    daemon.routes[f"GET /images/{REF}/json"] = (200, {"Id": "sha256:1", "RepoDigests": [REF]})
    daemon.routes["POST /containers/create"] = (201, {"Id": A})
    DockerControl(url).create(ContainerSpec("glm", REF, (), labels=LABELS))
    [body] = [body for name, _, body, _ in daemon.seen if name == "POST /containers/create"]
    assert body["Env"] == ["NVIDIA_VISIBLE_DEVICES=void"]
    assert not body["HostConfig"].get("DeviceRequests")


def test_create_refuses_short_gpu_uuids(daemon: HttpStub, url: str) -> None:
    daemon.routes[f"GET /images/{REF}/json"] = (200, {"Id": "sha256:1", "RepoDigests": [REF]})
    with pytest.raises(EffectFailed, match="not full GPU UUIDs: 0, GPU-aaaa"):
        DockerControl(url).create(ContainerSpec("glm", REF, (), labels=LABELS, gpu_uuids=("0", "GPU-aaaa")))
    assert daemon.count("POST /containers/create") == 0


def test_pin_that_matches_nothing_lists_what_is_here(daemon: HttpStub, url: str) -> None:
    """O-23: refused with every digest that is here; nothing is pulled by itself."""
    other = "sha256:" + "d4" * 32
    daemon.routes["GET /images/json"] = (
        200,
        [{"Id": "sha256:c3", "RepoDigests": [f"registry.local/eng@{other}"]}],
    )
    with pytest.raises(EffectFailed, match=f"there are {other}, sha256:c3.*pull it by digest first"):
        DockerControl(url).create(ContainerSpec("glm", REF, (), labels=LABELS))
    assert DockerReader(url).image_pin(REF) is None
    assert daemon.count("POST /images/create") == 0


def test_manifest_pin_in_a_containerd_store(daemon: HttpStub, url: str) -> None:
    """O-23."""
    daemon.routes[f"GET /images/{DIGEST}/json"] = (
        200,
        {"Id": DIGEST, "RepoDigests": ["registry.local/eng@sha256:9"]},
    )
    daemon.routes["GET /info"] = (200, {"DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]})
    assert DockerReader(url).image_pin(REF) == (DIGEST, "manifest")


def test_pull_needs_a_digest_and_an_image_afterwards(daemon: HttpStub, url: str) -> None:
    with pytest.raises(EffectFailed, match="not pinned"):
        DockerControl(url).pull("registry.local/eng:stable", print)
    events = [b'{"status":"Pulling from eng"}\r\n', b'{"error":"manifest unknown"}\r\n']
    daemon.routes["POST /images/create"] = lambda handler: handler.chunks(*events)
    with pytest.raises(EffectFailed, match="manifest unknown"):
        DockerControl(url).pull(REF, print)
    events[1] = b'{"status":"done"}\r\n'
    with pytest.raises(EffectFailed, match="no image here has this digest"):
        DockerControl(url).pull(REF, print)


def test_logs_of_what_is_being_removed_are_a_sentence(daemon: HttpStub, url: str) -> None:
    """O-16: not asked for again and again."""
    daemon.routes[f"GET /containers/{A}/json"] = (200, inspect(A, "a", "dead"))
    daemon.routes[f"GET /containers/{A}/logs"] = (
        409,
        {"message": "can not get logs from container which is dead or marked for removal"},
    )
    for act in (DockerReader(url).logs, DockerReader(url).follow):
        with pytest.raises(NotFound, match=r"logs of a1a1a1a1a1a1 not available \(dead or marked for removal\)"):
            act(A)


@pytest.mark.parametrize("status", [500, 501])
def test_logs_that_no_driver_can_read_are_a_sentence(daemon: HttpStub, url: str, status: int) -> None:
    """O-30."""
    daemon.routes[f"GET /containers/{A}/json"] = (
        200,
        {**inspect(A, "a"), "HostConfig": {"LogConfig": {"Type": "x"}}},
    )
    daemon.routes[f"GET /containers/{A}/logs"] = (
        status,
        {"message": "configured logging driver does not support reading"},
    )
    with pytest.raises(NotFound, match=r"logs of a1a1a1a1a1a1 not available \(driver x\)"):
        DockerReader(url).logs(A)
    daemon.routes[f"GET /containers/{A}/json"] = (
        200,
        {**inspect(A, "a"), "HostConfig": {"LogConfig": {"Type": "none"}}},
    )
    with pytest.raises(NotFound, match=r"not available \(driver none\)"):
        DockerReader(url).follow(A)


def test_follow_resumes_after_its_stamp_and_tells_a_broken_connection(daemon: HttpStub, url: str) -> None:
    stamps = [f"2026-09-02T10:00:00.00000000{n}Z" for n in (1, 2)]
    frames = b"".join(
        b"\x01\0\0\0" + len(p).to_bytes(4, "big") + p for p in (f"{s} line\n".encode() for s in stamps)
    )

    def broken(handler: Handler) -> None:
        handler.chunks(frames, whole=False)

    daemon.routes[f"GET /containers/{A}/json"] = (200, inspect(A, "a"))
    daemon.routes[f"GET /containers/{A}/logs"] = broken
    follow = DockerReader(url).follow(A, since=stamps[0])
    assert next(follow).at == stamps[1]
    with pytest.raises(Unreachable, match="logs of a1a1"):
        next(follow)
    [query] = [query for name, query, *_ in daemon.seen if name.endswith("/logs")]
    assert "since=1788343200.000000001" in query


def frames(*lines: tuple[int, str]) -> bytes:
    return b"".join(bytes([s, 0, 0, 0]) + len(t.encode()).to_bytes(4, "big") + t.encode() for s, t in lines)


def follows(daemon: HttpStub, url: str, *parts: bytes, since: str | None = None) -> Iterator[str]:
    """The lines of a follow that answers these parts and ends well."""
    daemon.routes[f"GET /containers/{A}/json"] = (200, inspect(A, "a"))
    daemon.routes[f"GET /containers/{A}/logs"] = lambda handler: handler.chunks(*parts)
    for line in DockerReader(url).follow(A, since=since):
        yield line.text


def test_a_log_file_that_cannot_be_read_on_is_no_end_of_the_container(daemon: HttpStub, url: str) -> None:
    """O-31: damaged by a power cut, or rotated away; the daemon says so in the stream itself, after good lines."""
    said = "Error grabbing logs: invalid character '\\x00' looking for beginning of value"
    good = "2026-09-02T10:00:00.000000001Z good\n"
    lines = follows(daemon, url, frames((1, good), (3, said)))
    assert next(lines) == "good"
    with pytest.raises(Unreachable, match=r"logs of a1a1.*Error grabbing logs: invalid character"):
        next(lines)
    assert [line.text for line in DockerReader(url).logs(A)] == ["good", said]


def test_lines_of_a_clock_that_was_set_back_are_shown(daemon: HttpStub, url: str) -> None:
    """O-29: the line that was taken already comes again and is left out; an hour earlier is not `already seen`."""
    stamps = [f"2026-09-02T{time}Z" for time in ("10:00:00.5", "10:00:00.5", "10:00:01", "09:00:02", "09:00:03")]
    body = frames(*((1, f"{stamp} {n}\n") for n, stamp in enumerate(stamps)))
    assert list(follows(daemon, url, body, since=stamps[0])) == ["2", "3", "4"]


@pytest.mark.parametrize("driver", ["json-file", "local", "journald"])
@pytest.mark.parametrize("size", [1, 7, 4096])
def test_logs_of_every_readable_driver_at_any_split(daemon: HttpStub, url: str, driver: str, size: int) -> None:
    """O-28, O-29, O-32: micro- and nanoseconds, offsets, parts of a long line, a character in two chunks."""
    body = frames(
        (1, "2026-09-02T10:00:00.000001Z caf\u00e9 " + "A" * 16384),
        (2, "2026-09-02T12:00:00.000000002+02:00 other\n"),
        (1, "2026-09-02T10:00:00Z \u6a21\u578b\n"),
    )
    state = {**inspect(A, "a"), "HostConfig": {"LogConfig": {"Type": driver}}}
    parts = [body[i : i + size] for i in range(0, len(body), size)] if size > 1 else [body[:40], body[40:]]
    want = ["other", "caf\u00e9 " + "A" * 16384 + "\u6a21\u578b"]
    assert list(follows(daemon, url, *parts)) == want
    daemon.routes[f"GET /containers/{A}/json"] = (200, state)
    assert [line.text for line in DockerReader(url).logs(A)] == want


@pytest.mark.parametrize("bad", ["tcp://127.0.0.1:2375", "unix://relative", "", "ssh://"])
def test_other_endpoints_are_refused_with_what_to_write(bad: str) -> None:
    with pytest.raises(Unreachable, match=r"unix:///PATH|ssh://\[USER@\]HOST"):
        DockerReader(bad).list()


def test_a_reader_has_no_control(daemon: HttpStub, url: str) -> None:
    deeds = {"pull", "create", "start", "stop", "remove"}
    assert not deeds & set(dir(DockerReader(url)))
    assert not issubclass(DockerControl, DockerReader)
