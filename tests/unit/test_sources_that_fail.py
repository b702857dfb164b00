"""Backends stopped one by one and together, and brought back, under a console that stays (derailed/k9s#3471)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from anvil_tui.core.box import Engine, Gpu, GpuSnapshot
from anvil_tui.core.errors import Unreachable
from anvil_tui.core.reading import Reading
from anvil_tui.core.world import Phase, World
from anvil_tui.service import probes
from anvil_tui.service.loop import BACKOFF
from anvil_tui.ui.presenters.freshness import state_note, why_unusable
from tests.unit.test_probes import MIB, A, Rig

FAST_S = 0.01
LAST = GpuSnapshot("1", (Gpu(0, "GPU-1", used_bytes=7 * MIB),))


def gpus(fault: str = "") -> Any:
    """A reader's newest answer, as new at each look."""
    now = time.monotonic()
    return Reading.error(fault, now, "nvml", LAST) if fault else Reading.known(LAST, now, "nvml")


DOWN: dict[str, Any] = {
    "gpus": lambda: gpus("driver and library differ"),
    "list": Unreachable("unix:///x", "connection refused"),
    "gateway": Unreachable("sock", "no answer"),
    "engine": Engine("llamacpp", "refused", "connection refused"),
}


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    for name in ("HOST_S", "CONTAINERS_S", "GATEWAY_S", "ENGINE_S"):
        monkeypatch.setattr(probes, name, FAST_S)
    made = Rig()
    made.box.values["gpus"] = gpus
    yield made
    made.probes.stop()


def state(world: World) -> dict[str, bool]:
    engine = world.engines.get(A)
    answers = bool(engine and engine.value and engine.value.http == "ready")
    return {"gpus": world.gpus.ok, "list": world.containers.ok, "gateway": world.gateway.ok, "engine": answers}


@pytest.mark.parametrize(
    ("broken", "phase"),
    [
        (("gpus",), Phase.SERVING),
        (("list",), Phase.LOST),
        (("gateway",), Phase.READY),
        (("engine",), Phase.FAILED),
        (tuple(DOWN), Phase.LOST),
    ],
    ids=["gpus", "docker", "gateway", "engine", "all"],
)
def test_stopped_and_brought_back(rig: Rig, broken: tuple[str, ...], phase: Phase) -> None:
    """derailed/k9s#3471: what is gone is told in words beside its last value, the rest goes on, and nothing that
    was seen is lost."""
    good = {name: rig.box.values[name] for name in broken}
    rig.probes.start()
    before = rig.until(lambda w: all(state(w).values()) and w.serves[0].phase is Phase.SERVING)
    rig.box.values |= {name: DOWN[name] for name in broken}
    wanted = {name: name not in broken for name in DOWN}
    world = rig.until(lambda w: state(w) == wanted and w.serves[0].phase is phase)
    readings: dict[str, Reading[Any]] = {"gpus": world.gpus, "list": world.containers, "gateway": world.gateway}
    for name, reading in readings.items():
        note = state_note(reading, world.now_s)
        assert reading.value is not None
        assert (note is not None and note.text.startswith("ERROR ")) is (name in broken)
        assert bool(why_unusable(reading, world.now_s, name)) is (name in broken)
    if "gpus" in broken:
        rig.until(lambda w: w.gpu_history["GPU-1"][-1] is None)
    rig.box.values |= good
    after = rig.until(lambda w: all(state(w).values()) and w.serves[0].phase is Phase.SERVING)
    assert after.events[: len(before.events)] == before.events
    assert after.gpu_history["GPU-1"][: len(before.gpu_history["GPU-1"])] == before.gpu_history["GPU-1"]
    told = {e.source for e in after.events[len(before.events) :] if e.text == "readable again"}
    assert told == {{"list": "containers"}.get(n, n) for n in broken if n != "engine"}


def test_a_source_that_is_gone_is_asked_ever_more_seldom(rig: Rig) -> None:
    """Each pause doubles up to a limit, so of ten asks of the others it gets few; its return needs no restart."""
    rig.box.values["gateway"] = DOWN["gateway"]
    rig.probes.start()
    rig.until(lambda w: w.gateway.state == "error" and w.host.ok)

    def asks(name: str) -> int:
        return sum(a[0] == name for a in rig.box.asked)

    began = asks("gateway"), asks("host")
    while asks("host") < began[1] + 20 * BACKOFF:
        time.sleep(FAST_S)
    assert 0 < asks("gateway") - began[0] <= (asks("host") - began[1]) / 2


def test_a_source_that_hangs_is_old_in_words_and_holds_nobody_up(rig: Rig) -> None:
    """Syllo/nvtop#189: one ask waits and no second one is sent; the others go on; the end does not wait for it."""
    rig.probes.start()
    rig.until(lambda w: all(state(w).values()))
    hang, entered = threading.Event(), threading.Event()
    answer = rig.box.values["list"]

    def slow() -> Any:
        entered.set()
        hang.wait(30)
        return answer

    rig.box.values["list"] = slow
    assert entered.wait(5)
    asked = sum(a == ("list",) for a in rig.box.asked)
    world = rig.store.world
    later = rig.until(lambda w: (w.gpus.at_s or 0) > (world.gpus.at_s or 0) + 0.2)
    assert sum(a == ("list",) for a in rig.box.asked) == asked
    note = state_note(later.containers, (later.containers.at_s or 0) + 11)
    assert note is not None and note.text == "STALE 11 s"
    began = time.monotonic()
    rig.probes.stop()
    assert time.monotonic() - began < 2.0
    hang.set()
