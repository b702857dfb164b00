"""The world's data flow: store, cadences, failures, log follow. Ports in memory, threads real and joined."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from anvil_tui.core.box import Container, Engine, Gateway, Gpu, GpuGrant, GpuSnapshot, Host, KvCapacity
from anvil_tui.core.errors import BadFile, NotFound, Unreachable
from anvil_tui.core.happenings import EVENTS_KEPT
from anvil_tui.core.history import push_gpus
from anvil_tui.core.journal import OperationView, StepView
from anvil_tui.core.reading import Reading
from anvil_tui.core.standing import Check
from anvil_tui.core.world import BoxRecord, Event, Lease, LogView, Phase, RoleRecord, ServeRecord, World
from anvil_tui.ports import LogLine
from anvil_tui.service import log_follow
from anvil_tui.service.log_follow import LogFollow
from anvil_tui.service.loop import BACKOFF, Loop
from anvil_tui.service.probes import Probes, Sources
from anvil_tui.service.store import MOST_WAITING, Store
from tests.support.membox import IMAGE, recipe, workspace
from tests.support.wait import wait_until

A = "a" * 64
RECIPE = recipe("a")
MIB = 1024 * 1024


class Clock:
    def monotonic_s(self) -> float:
        return time.monotonic()

    def utc(self) -> datetime:
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class Lines(Iterator[LogLine]):
    """A log that goes on until it is closed from another thread."""

    def __init__(self, lines: list[LogLine], ends: bool) -> None:
        self._lines, self._ends, self._closed = lines, ends, threading.Event()

    def __next__(self) -> LogLine:
        if self._lines:
            return self._lines.pop(0)
        if not self._ends:
            self._closed.wait(10)
        raise StopIteration

    def close(self) -> None:
        self._closed.set()


class Box:
    """Every port at once. Values are attributes; an exception in one is raised, a callable is called."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {
            "gpus": Reading.known(GpuSnapshot("1", (Gpu(0, "GPU-1", used_bytes=7 * MIB),)), 1.0, "nvml"),
            "host": Reading.known(Host(*(1,) * 8, 0.5, 2), 1.0, "host"),
            "list": (Container(A, "n", "running", "i", IMAGE, started_at="2026-01-01T00:00:00Z"),),
            "engine": Engine("llamacpp", "ready", served=("a",), context_tokens=2048, running=0, progress=5.0),
            "gateway": Gateway({"llm.primary": "primary-a", "llm.secondary": "primary-a"}, (), 0, 1, True),
            "record": BoxRecord(
                1,
                {A: ServeRecord(A, "a", RECIPE.digest(), "i", "primary", "primary-a", 9131, "a", "OP")},
                {"primary": RoleRecord("primary", A)},
            ),
            "stored": {RECIPE.digest(): RECIPE},
            "operations": (),
            "lease": None,
            "recipes": (),
            "image": "i",
            "way_back": ({}, False),
            "log": (LogLine("first", "2026-01-01T00:00:01Z"),),
        }
        self.asked: list[tuple[Any, ...]] = []
        self.closed = False
        self.follow_lines: list[LogLine] = []
        self.follow_ends = False

    def ask(self, name: str, *args: Any) -> Any:
        self.asked.append((name, *args))
        value = self.values[name]
        value = value() if callable(value) else value
        if isinstance(value, Exception):
            raise value
        return value

    # ports, under the names they need

    def read(self, *args: Any) -> Any:
        return self.ask("engine", *args) if args else self.ask("gpus")

    def close(self) -> None:
        self.closed = True

    def list(self) -> Any:
        return self.ask("list")

    def image_id(self, ref: str) -> Any:
        return self.ask("image", ref)

    def logs(self, container_id: str, *, tail: int = 0) -> Any:
        return self.ask("log", container_id, tail)

    def inspect(self, container_id: str) -> Any:
        return (
            self.ask("inspect") if "inspect" in self.values else Container(container_id, "n", "exited", "i", "r")
        )

    def follow(self, container_id: str, *, since: str | None = None) -> Lines:
        self.ask("log", container_id, since)
        return Lines(self.follow_lines, self.follow_ends)

    def snapshot(self) -> Any:
        return self.ask("gateway")

    def sources(self) -> Sources:
        host = type("H", (), {"read": lambda _: self.ask("host")})()
        port: Any = self
        calls = {n: (lambda n=n: self.ask(n)) for n in ("record", "stored", "operations", "lease", "recipes")}
        proofs: Any = lambda world, seconds: self.ask("way_back")  # noqa: E731
        return Sources(port, host, port, port, port, **calls, suites=lambda: ("smoke",), way_back=proofs)


def start_world() -> World:
    settings = workspace()
    return World(settings.model_copy(update={"gpus": settings.gpus.model_copy(update={"interval_s": 0.02})}), True)


class Rig:
    def __init__(self) -> None:
        self.box = Box()
        self.store = Store(start_world(), Clock())
        self.probes = Probes(self.store, self.box.sources(), Clock())

    def until(self, wanted: Callable[[World], bool], seconds: float = 8.0) -> World:
        end = time.monotonic() + seconds
        while not wanted(self.store.world):
            assert time.monotonic() < end, f"not in {seconds} s: {self.store.world}"
            time.sleep(0.005)
        return self.store.world


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr(log_follow, "PUBLISH_S", 0.01)
    monkeypatch.setattr(log_follow, "RETRY_S", 0.02)
    made = Rig()
    yield made
    made.probes.stop()


def test_once_asks_every_source_and_derives(rig: Rig) -> None:
    world = rig.probes.once()
    assert [(s.name, s.phase) for s in world.serves] == [("a", Phase.SERVING)]
    assert {name for name, *_ in rig.box.asked} == set(rig.box.values)
    assert world.suites == ("smoke",) and world.images == {IMAGE: "i"} and world.problems == ()
    assert world.gpu_history == {"GPU-1": (7,)}
    assert ("engine", RECIPE.engine, 9131) in rig.box.asked


def test_a_record_that_cannot_be_read_is_shown_as_its_copy_and_never_as_empty(rig: Rig) -> None:
    """O-89: a look changes no file; the sentence says what is shown."""
    copy = rig.box.values["record"]
    rig.box.values["record"] = BadFile("state/box.json", "is damaged")
    rig.probes._src = replace(rig.probes._src, copy=lambda: copy)
    world = rig.probes.once()
    assert world.record == copy and world.source_errors["record"] == (
        "state/box.json: is damaged; what is shown is the last good copy (generation 1), which may be one save old"
    )
    rig.probes._src = replace(rig.probes._src, copy=lambda: None)
    rig.probes._files()
    assert rig.store.world.record == copy, "what was shown stays"


def test_tags_of_foreign_containers_are_looked_up_and_pins_of_ours(rig: Rig) -> None:
    """O-24: what a tag names now is asked of the daemon, for containers that hold GPUs."""
    grant = GpuGrant(("all",), "all", (), "device-request")
    foreign = Container("f" * 64, "other", "running", "sha256:0e", "registry.local/eng:stable", gpus=grant)
    rig.box.values["list"] = (*rig.box.values["list"], foreign)
    rig.box.values["image"] = "sha256:1f"
    world = rig.probes.once()
    assert {a[1] for a in rig.box.asked if a[0] == "image"} == {IMAGE, "registry.local/eng:stable"}
    assert any(
        "tag_drift: it runs sha256:0e, registry.local/eng:stable names sha256:1f now" in p for p in world.problems
    )


def test_once_waits_for_the_first_line_of_the_gpu_reader(rig: Rig) -> None:
    answers: list[Reading[GpuSnapshot]] = [Reading.unknown("GPU reader starting", "nvml")] * 3
    good = rig.box.values["gpus"]
    rig.box.values["gpus"] = lambda: answers.pop() if answers else good
    assert rig.probes.once().gpus.ok


def test_a_broken_source_is_an_error_with_its_last_value_and_the_rest_goes_on(rig: Rig) -> None:
    rig.probes.once()
    rig.box.values |= {
        "list": Unreachable("unix:///x", "connection refused"),
        "gateway": Unreachable("sock", "no answer"),
        "record": BadFile("state/box.json", "is damaged"),
    }
    world = rig.probes.once()
    assert world.containers.state == "error" and len(world.containers.value or ()) == 1
    assert world.gateway.state == "error" and world.gateway.value is not None
    assert A in world.record.serves and world.serves[0].phase is Phase.LOST
    text = "\n".join(world.problems)
    assert "connection refused" in text and "no answer" in text and "state/box.json: is damaged" in text
    assert world.gpus.ok and world.host.ok
    rig.box.values["record"] = BoxRecord()
    assert "record" not in rig.probes.once().source_errors


def test_a_log_that_no_driver_can_read_leaves_the_serve_ready_and_its_pool_unknown(rig: Rig) -> None:
    """O-30: it is not 0, and it is no fault of the engine."""
    rig.box.values["log"] = NotFound("logs of aaaaaaaaaaaa not available (driver none)")
    world = rig.probes.once()
    engine = world.engines[A].value
    assert (world.serves[0].phase, engine and engine.capacity, world.problems) == (Phase.SERVING, None, ())


def test_capacity_comes_from_the_start_up_log_once_per_start(rig: Rig) -> None:
    line = "llama_context: n_ctx         = 8192"
    rig.box.values["log"] = (
        LogLine("main: loading model"),
        LogLine(line),
        LogLine("llama_context: n_seq_max = 1"),
    )
    for _ in range(3):
        world = rig.probes.once()
    assert sum(a[0] == "log" for a in rig.box.asked) == 1
    capacity = world.engines[A].value.capacity  # type: ignore[union-attr]
    assert capacity is not None and capacity.tokens == 8192 and "log" in capacity.source


@pytest.mark.parametrize(
    ("layers", "select", "says"),
    [
        ("0/33", ("g",), "not_on_gpu: 0 of 33 layers"),
        ("20/33", ("g",), "partly_on_gpu: 20 of 33 layers"),
        ("33/33", ("g",), ""),
        ("0/33", (), ""),
    ],
)
def test_an_engine_that_fell_back_to_the_cpu_is_a_problem(
    rig: Rig, layers: str, select: tuple[str, ...], says: str
) -> None:
    """O-48, ollama/ollama#15918: it answers, so only its start-up log tells."""
    made = recipe("a", gpus={"select": select})
    record = ServeRecord(A, "a", made.digest(), "i", "primary", "primary-a", 9131, "a", "OP")
    known = replace(rig.box.values["engine"], capacity=KvCapacity(2048, "llamacpp /props"))
    rig.box.values |= {
        "engine": known,
        "record": BoxRecord(1, {A: record}, {"primary": RoleRecord("primary", A)}),
        "stored": {made.digest(): made},
        "log": (LogLine(f"load_tensors: offloaded {layers} layers to GPU"),),
    }
    for _ in range(2):
        world = rig.probes.once()
    assert world.serves[0].phase is Phase.SERVING
    found = [p for p in world.problems if "_on_gpu" in p]
    assert len(found) == bool(says) and all(says in p and "a (aaaaaaaaaaaa)" in p for p in found)
    assert sum(a[0] == "log" for a in rig.box.asked) == bool(select)


def test_a_load_shows_where_its_log_is(rig: Rig) -> None:
    rig.box.values["engine"] = Engine("llamacpp", "starting")
    rig.box.values["list"] = (
        replace(rig.box.values["list"][0], started_at=datetime.now(UTC).isoformat()),
    )  # fmt: skip
    rig.box.values["log"] = (LogLine("Loading safetensors checkpoint shards:  78% Completed | 7/9 [01:52<00:32]"),)
    world = rig.probes.once()
    assert (world.serves[0].phase, world.serves[0].why) == (Phase.LOADING, "weights 7/9 (78 %)")


def test_cadences_run_and_stop_within_two_seconds_even_if_a_source_hangs(rig: Rig) -> None:
    hang, entered = threading.Event(), threading.Event()
    gateway = rig.box.values["gateway"]

    def slow() -> Gateway:
        entered.set()
        hang.wait(30)
        return gateway  # type: ignore[no-any-return]

    rig.box.values["gateway"] = slow
    rig.probes.start()
    rig.until(lambda w: A in w.engines and w.host.ok and w.suites == ("smoke",))
    assert entered.wait(5)
    first = len(rig.store.world.gpu_history["GPU-1"])
    rig.box.values["gpus"] = lambda: Reading.known(GpuSnapshot("1", ()), time.monotonic(), "nvml")
    rig.until(lambda w: len(w.gpu_history["GPU-1"]) >= first + 3)
    assert sum(a == ("gateway",) for a in rig.box.asked) == 1
    started = time.monotonic()
    rig.probes.stop()
    assert time.monotonic() - started < 2.0 and rig.box.closed
    hang.set()
    ended = time.monotonic() + 5
    while any(t.name.startswith("probe-") for t in threading.enumerate()):
        assert time.monotonic() < ended
        time.sleep(0.01)


def test_a_stopped_serve_is_not_asked_any_more(rig: Rig) -> None:
    rig.probes.start()
    rig.until(lambda w: A in w.engines)
    rig.box.values["list"] = ()
    rig.probes.poke("containers")
    rig.until(lambda w: A not in w.engines and A not in w.trails)


def test_an_ended_step_has_the_box_read_at_once(rig: Rig) -> None:
    rig.probes.start()
    rig.until(lambda w: w.gateway.ok and w.containers.ok)
    before = sum(a == ("gateway",) for a in rig.box.asked)
    step = StepView("flip", "t", "done")
    rig.box.values["operations"] = (OperationView("OP", "promote", "a", started_at="t", steps=(step,)),)
    rig.box.values["lease"] = Lease("OP", 1, "u", "2026-01-01T00:00:00Z")
    world = rig.until(lambda w: w.lease is not None)
    assert world.operations[0].alive
    rig.until(lambda w: sum(a == ("gateway",) for a in rig.box.asked) > before, 0.9)


def test_weights_are_read_on_at_once_and_an_operation_at_work_is_left_alone(rig: Rig) -> None:
    """The cadence is 30 s: what comes sooner was asked for. With the lease held nobody binds a port of the box."""
    looks, read = iter(range(1, 100)), 0

    def look() -> Any:
        nonlocal read
        read = next(looks)
        return {A: (Check("weights", "ok", f"look {read}"),)}, read < 5

    rig.box.values["way_back"] = look
    rig.probes.start()
    world = rig.until(lambda w: w.proofs.get(A, (Check("weights", "ok"),))[0].why == "look 5")
    assert read == 5 and world.source_errors == {}
    rig.box.values["lease"] = Lease("OP", 1, "u", "2026-01-01T00:00:00Z")
    rig.until(lambda w: w.lease is not None)
    rig.box.values["way_back"] = Unreachable("docker", "asked while an operation works")
    rig.probes.poke("way_back", "host")
    asked = len(rig.box.asked)
    rig.until(lambda w: ("host",) in rig.box.asked[asked:])
    assert rig.store.world.source_errors == {}
    rig.box.values["lease"] = None  # its end has it looked at again
    rig.until(lambda w: "way back" in w.source_errors)
    assert rig.store.world.proofs[A][0].why == "look 5"


def test_a_defect_in_one_probe_is_shown_and_ends_nothing(rig: Rig) -> None:
    rig.box.values["recipes"] = ZeroDivisionError("oh")
    rig.probes.start()
    world = rig.until(lambda w: "probe files" in w.source_errors and w.containers.ok)
    assert "ZeroDivisionError" in world.source_errors["probe files"]
    rig.box.values["recipes"] = ()
    rig.probes.poke("files")
    rig.until(lambda w: "probe files" not in w.source_errors)


def test_the_log_of_one_container_is_followed_and_of_no_other(rig: Rig) -> None:
    rig.box.follow_lines = [LogLine("second", "2026-01-01T00:00:02Z")]
    rig.probes.follow(A)
    world = rig.until(lambda w: bool(w.log and len(w.log.lines) == 2))
    assert world.log == LogView(A, ("first", "second"), 0, "")
    assert ("log", A, "2026-01-01T00:00:01Z") in rig.box.asked
    rig.probes.follow("b" * 64)
    rig.until(lambda w: bool(w.log and w.log.container_id == "b" * 64 and w.log.lines))
    rig.probes.follow(None)
    assert rig.store.world.log is None
    end = time.monotonic() + 5
    while any(t.name.startswith("log-") for t in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_log_that_ends_or_is_missing_says_so(rig: Rig) -> None:
    """O-30: a driver that cannot be read is said and not asked again; nothing else is touched."""
    rig.box.follow_ends = True
    rig.probes.follow(A)
    rig.until(lambda w: bool(w.log and w.log.note == "the container has ended"))
    rig.box.values["log"] = NotFound("logs not available (driver none)")
    rig.probes.follow("b" * 64)
    rig.until(lambda w: bool(w.log and w.log.note == "logs not available (driver none)"))


def test_a_log_that_breaks_off_while_its_container_runs_is_not_its_end(rig: Rig) -> None:
    """derailed/k9s#1019: the daemon closed the stream, as where the file was rotated; it is taken up again."""
    rig.box.follow_ends = True
    rig.box.values["inspect"] = Container(A, "n", "running", "i", IMAGE)
    notes: list[str] = []
    follow = LogFollow(A, rig.box, Clock(), lambda view: notes.append(view.note))  # type: ignore[arg-type]
    follow.start()
    wait_until(lambda: any("broke off while the container runs" in note for note in notes), "it is told")
    asked = sum(a[0] == "log" for a in rig.box.asked)
    rig.box.follow_lines = [LogLine("on", "2026-01-01T00:00:09Z")]
    wait_until(lambda: sum(a[0] == "log" for a in rig.box.asked) > asked, "asked again")
    follow.stop()
    assert follow.join(5) and "the container has ended" not in notes


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        ([(0.0, 0.1), (10.0, 10.2)], ""),
        ([(0.0, 0.1), (10.0, 14.1)], "4 s behind: more lines come than can be read"),
        ([(0.0, 500.0), (600.0, 600.5), (601.0, 601.9)], ""),
        ([(0.0, -3600.0), (10.0, -3585.0)], "5 s behind: more lines come than can be read"),
        ([(0.0, 0.1), (None, 99.0)], ""),
    ],
    ids=["in step", "late", "was silent before", "clocks apart", "no stamp"],
)
def test_how_far_a_follow_is_behind(seen: list[tuple[float | None, float]], says: str) -> None:
    """derailed/k9s#1019: minutes behind without a word is worse than lines that are counted as dropped."""
    behind, notes = log_follow.Behind(), []
    for line_s, now_s in seen:
        stamp = None if line_s is None else datetime.fromtimestamp(line_s + 1e9, UTC).isoformat()
        notes.append(behind.told(stamp, now_s + 1e9))
    assert notes[-1] == says


def test_a_log_whose_container_was_made_again_breaks_off_and_names_both(rig: Rig) -> None:
    """O-20, dialmaster/DockTUI#49: never a line of the new one; its id is offered."""
    [old] = rig.box.values["list"]
    rig.probes._containers()
    rig.box.follow_ends = True
    rig.probes.follow(A)
    rig.until(lambda w: bool(w.log and w.log.note == "the container has ended"))
    fresh = replace(old, id="2222bbbb" + "0" * 56)
    rig.box.values["list"] = (fresh,)
    rig.box.values["inspect"] = NotFound(f"no such container: {A}")
    rig.probes._containers()
    world = rig.until(lambda w: bool(w.log and fresh.id[:12] in w.log.note))
    assert world.log is not None and world.log.container_id == A
    assert world.log.note == (
        f"{old.name} is now {fresh.id[:12]}; this is the log of {A[:12]}, which is gone: choose the new one to "
        "follow it"
    )
    assert world.log.lines[-1] == f"-- {A[:12]} is gone; {fresh.name} is now {fresh.id[:12]} --"


def test_a_broken_log_connection_is_taken_up_again(rig: Rig) -> None:
    answers: list[Any] = [(LogLine("one", "2026-01-01T00:00:01Z"),), Unreachable("docker", "reset"), ()]
    rig.box.values["log"] = lambda: answers.pop(0) if len(answers) > 1 else answers[0]
    real_ask = rig.box.ask
    rig.box.ask = lambda name, *a: _raised(real_ask(name, *a))  # type: ignore[method-assign]
    rig.box.follow_lines = [LogLine("two")]
    rig.probes.follow(A)
    world = rig.until(lambda w: bool(w.log and len(w.log.lines) == 2))
    assert world.log is not None and world.log.lines == ("one", "two")


def _raised(value: Any) -> Any:
    if isinstance(value, Exception):
        raise value
    return value


@pytest.mark.parametrize(("count", "size", "kept"), [(2100, 1, 2000), (100, 65536, 16)])
def test_a_log_is_bounded_by_lines_and_bytes_and_counts_what_it_dropped(count: int, size: int, kept: int) -> None:
    box = Box()
    box.values["log"] = tuple(LogLine("x" * size) for _ in range(count))
    views: list[LogView] = []
    done = threading.Event()

    def publish(view: LogView) -> None:
        views.append(view)
        done.set()

    follow = LogFollow(A, box, Clock(), publish)  # type: ignore[arg-type]
    follow.start()
    assert done.wait(5)
    follow.stop()
    assert follow.join(5)
    assert (len(views[-1].lines), views[-1].dropped) == (kept, count - kept)


def test_a_log_is_followed_on_when_the_same_container_starts_again(rig: Rig) -> None:
    rig.box.follow_ends = True
    rig.box.follow_lines = [LogLine("goodbye", "2026-01-01T00:00:02Z")]
    rig.box.values["inspect"] = Container(A, "n", "exited", "i", IMAGE)
    views: list[LogView] = []
    follow = LogFollow(A, rig.box, Clock(), views.append)  # type: ignore[arg-type]
    follow.start()
    wait_until(lambda: views and views[-1].note == "the container has ended", "the end is told")
    rig.box.follow_lines = [LogLine("hello again", "2026-01-01T00:00:09Z")]
    rig.box.values["inspect"] = Container(A, "n", "running", "i", IMAGE)
    wait_until(lambda: views[-1].lines[-1] == "hello again", "the second start is shown")
    follow.stop()
    assert follow.join(5)


def test_a_load_is_told_by_the_log_of_its_own_start(rig: Rig) -> None:
    """The same container ran before: what its log says of then is not where it stands now."""
    rig.box.values["engine"] = Engine("llamacpp", "starting")
    rig.box.values["log"] = (
        LogLine("main: server is listening on http://127.0.0.1:1", "2025-12-31T00:00:00Z"),
        LogLine("load_model: loading model '/m'", "2026-01-01T00:00:00.5Z"),
    )
    world = rig.probes.once()
    assert str(world.loads[A]) == "weights"


def test_a_loop_backs_off_while_it_fails_and_recovers() -> None:
    waits: list[float] = []
    loop = Loop("x", 1.0, lambda: len(waits) >= 6)

    class Wake(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0)
            if len(waits) == 8:
                loop.stop()
            return False

    loop._wake = Wake()
    loop.start()
    assert loop.join(5)
    assert waits == [2, 4, 8, BACKOFF, BACKOFF, BACKOFF, 1, 1]


def test_subscribers_are_told_and_read_the_newest(rig: Rig) -> None:
    seen: list[int] = []
    end = rig.store.subscribe(lambda: seen.append(rig.store.version))
    before = rig.store.version
    rig.store.update(suites=("a",))
    rig.store.update(suites=("b",), read_only=False)
    end()
    rig.store.update(suites=("c",))
    assert seen == [before + 1, before + 2] and rig.store.version == before + 3


def test_what_may_wait_comes_with_the_next_change_in_its_order(rig: Rig) -> None:
    """One world, one telling, one working out of what follows, for the readings of many engines."""
    told: list[int] = []
    before, end = rig.store.world, rig.store.subscribe(lambda: told.append(rig.store.version))
    rig.store.change(lambda w: {"suites": (*w.suites, "a")}, soon=True)
    rig.store.change(lambda w: {"suites": (*w.suites, "b")}, soon=True)
    assert rig.store.world is before and told == []
    assert rig.store.change(lambda w: {"suites": (*w.suites, "c")}).suites == ("a", "b", "c")
    assert len(told) == 1 and rig.store.version == told[0]
    end()


def test_what_waits_is_bounded(rig: Rig) -> None:
    for _ in range(MOST_WAITING + 1):
        rig.store.change(lambda w: {"suites": (*w.suites, "a")}, soon=True)
    assert rig.store.world.suites == ("a",) * (MOST_WAITING + 1)


def test_lines_of_a_log_make_a_world_in_which_nothing_else_is_new(rig: Rig) -> None:
    rig.probes.once()
    before = rig.store.world
    rig.store.change(lambda w: {"suites": ("later",)}, soon=True)
    after = rig.store.update(log=LogView(A, ("one",)))
    same = [f.name for f in fields(World) if f.name not in ("log", "now_s", "now_utc")]
    assert after.log is not None and all(getattr(after, n) is getattr(before, n) for n in same)
    assert rig.store.update().suites == ("later",)


def test_an_unchanged_source_makes_no_world_of_its_own_and_is_newer_in_the_next(rig: Rig) -> None:
    rig.probes.once()
    version, at = rig.store.version, rig.store.world.containers.at_s
    for name in ("files", "operations", "containers", "gateway", "host", "images", "evidence", "clients"):
        getattr(rig.probes, f"_{name}")()
    assert rig.store.version == version
    rig.probes._gpus()
    newer = rig.store.world.containers.at_s
    assert at is not None and newer is not None and newer > at


def test_changes_from_many_threads_are_all_kept(rig: Rig) -> None:
    def add() -> None:
        for _ in range(50):
            rig.store.change(lambda w: {"suites": (*w.suites, "x")})

    threads = [threading.Thread(target=add) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(rig.store.world.suites) == 200


def test_what_happened_becomes_events_and_they_are_bounded(rig: Rig) -> None:
    rig.probes.once()
    rig.box.values["engine"] = replace(rig.box.values["engine"], progress=1.0)
    rig.box.values["list"] = (replace(rig.box.values["list"][0], status="exited", exit_code=1),)
    step = StepView("flip", "t", "done", "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z")
    rig.box.values["operations"] = (OperationView("OP", "promote", "a", started_at="t", steps=(step,)),)
    rig.box.values["gateway"] = Unreachable("sock", "gone")
    world = rig.probes.once()
    texts = [(e.source, e.text, e.tone) for e in world.events]
    assert ("promote", "a: begun (OP)", "plain") in texts and ("promote", "flip done", "plain") in texts
    assert any(s == "a" and t.startswith("failed: exited with 1") and tone == "bad" for s, t, tone in texts)
    assert any(s == "gateway" and "gone" in t for s, t, _ in texts)
    rig.store.update(events=tuple(Event("t", "s", str(n)) for n in range(EVENTS_KEPT + 5)))
    rig.box.values["gateway"] = Gateway({}, (), 0, 1, True)
    world = rig.probes.once()
    assert len(world.events) == EVENTS_KEPT and world.events[-1].text == "readable again"


def test_an_engine_restart_is_an_event(rig: Rig) -> None:
    """O-43."""
    rig.probes.once()
    rig.box.values["engine"] = replace(rig.box.values["engine"], progress=1.0)
    assert any("engine restarted" in e.text for e in rig.probes.once().events)


def test_gpu_history_is_bounded_and_shows_gaps() -> None:
    def reading(used: int | None) -> Reading[GpuSnapshot]:
        gpu = Gpu(0, "u", used_bytes=None if used is None else used * MIB)
        return Reading.known(GpuSnapshot("1", (gpu,)), 1.0, "nvml")

    history: dict[str, tuple[int | None, ...]] = {}
    for r in (reading(1), reading(None), Reading.error("x", 1.0, "nvml", reading(9).value), reading(0)):
        history = push_gpus(history, r, keep=3)
    assert history == {"u": (None, None, 0)}
