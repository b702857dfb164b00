"""Requests in progress as HAProxy tells them, and drains over them: what stalls is told from what is slow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.adapters.clock import SystemClock
from anvil_tui.core.box import Engine as Seen
from anvil_tui.core.box import Request
from anvil_tui.core.errors import EffectFailed
from anvil_tui.core.inflight import state_of
from anvil_tui.core.plan import Step
from anvil_tui.core.workspace import Policies
from anvil_tui.service.box import Controls
from anvil_tui.service.draining import drain, drained
from anvil_tui.service.run import Run
from tests.support import membox
from tests.support.gateway import BINARIES, Client, Rig, in_flight, rig
from tests.support.wait import wait_until

pytestmark = pytest.mark.real

CUT = r"IncompleteRead|0 bytes|Connection|Remote"
QUICK = Policies(stalled_after_s=1, first_byte_s=60)


def listed(gateway: Rig, slot: str = "a") -> tuple[Request, ...]:
    found = gateway.reader.snapshot().requests
    assert found is not None
    return tuple(r for r in found if r.backend == slot)


class Told:
    """The engine's own counts, as a test says."""

    running: int | None = None

    def read(self, kind: object, port: int) -> Seen:
        return Seen("vllm", "ready", running=self.running, waiting=None if self.running is None else 0)


class Drains:
    """The product's drain step over a real gateway; `notes` is what the journal has of it."""

    def __init__(self, gateway: Rig, tmp: Path) -> None:
        self.engine = Told()
        self.world = membox.World(tmp, membox.recipe("a"))
        workspace = self.world.box.workspace.model_copy(update={"policies": QUICK})
        box = replace(
            self.world.box, workspace=workspace, clock=SystemClock(), gateway=gateway.reader, engines=self.engine
        )
        controls: Controls = replace(self.world.controls, gateway=gateway.control)
        box.operations.create("op", {})
        plan: Any = None
        self.run = Run(
            "op", 1, "", plan, box, controls, box.operations.journal("op"), lambda at: None, lambda: None
        )

    def drain(self, on_timeout: str = "abort", timeout_s: float = 0.3, extend_s: float = 0.3) -> Mapping[str, Any]:
        args = {
            "slot": "a", "port": 1, "engine": "vllm", "timeout_s": timeout_s, "on_timeout": on_timeout,
            "extend_s": extend_s,
        }  # fmt: skip
        step = Step("drain", "drain", "drain", 30, args)
        drain(self.run, step)
        seen = drained(self.run, step)
        assert seen is not None
        return seen

    def notes(self) -> list[Mapping[str, Any]]:
        return [r.data for r in self.run.journal.records()]


@pytest.fixture
def drains(gateway: Rig, tmp_path: Path) -> Drains:
    (tmp_path / "box").mkdir()
    return Drains(gateway, tmp_path / "box")


def test_each_request_is_told_by_what_it_does(gateway: Rig) -> None:
    """Slow, stalled, read and queued ones at once; only the stalled one is cut, and the rest end whole."""
    gateway.point(llm_primary="a")
    kinds = ("queued", "prefill", "stalled", "slow")
    streams: dict[str, Client] = {how: gateway.streaming(how=how) for how in kinds}
    reader = gateway.reader

    def states() -> Mapping[str, str] | None:
        found = reader.snapshot().requests or ()
        told: dict[str, str] = {
            how: state_of(r, QUICK) for how, r in zip(kinds, sorted(found, key=_number), strict=True)
        }
        return told if told["stalled"] == "stalled" else None

    assert wait_until(states, "the stalled one is seen to be") == {
        "queued": "waiting", "prefill": "waiting", "stalled": "stalled", "slow": "flowing",
    }  # fmt: skip
    found = sorted(reader.snapshot().requests or (), key=_number)
    sent = [r.bytes_out for r in found]
    assert sent[0] == 0 and 0 < (sent[1] or 0) < 1000 and (sent[2] or 0) > 3000 < (sent[3] or 0)
    assert all((r.backend, r.age_s >= 1) == ("a", True) for r in found)
    stalled = found[2]
    assert [r.id for r in gateway.control.sever("a", [stalled.id, "1-1"])] == [stalled.id]
    with pytest.raises(Exception, match=CUT):
        streams.pop("stalled").read()
    assert in_flight(gateway, "a") == 3
    gateway.engines["a"].go.set()
    assert all(s.read().whole for s in streams.values())
    wait_until(lambda: in_flight(gateway, "a") == 0, "nothing is left")
    assert reader.snapshot().requests == ()


def _number(request: Request) -> int:
    return int(request.id.partition("-")[2])


def test_requests_of_a_worker_left_by_a_reload_are_listed_and_cut_by_name(gateway: Rig) -> None:
    gateway.point(llm_primary="a")
    old = [gateway.streaming() for _ in range(2)]
    gateway.settings = gateway.settings.model_copy(update={"hold_max_s": 31})
    assert gateway.control.install() is True
    new = gateway.streaming()
    found = listed(gateway)
    pid = str(gateway.reader.snapshot().pid)
    left = sorted((r for r in found if not r.id.startswith(f"{pid}-")), key=_number)
    assert (len(found), len(left)) == (3, 2)
    assert [r.id for r in gateway.control.sever("a", [left[0].id])] == [left[0].id]
    with pytest.raises(Exception, match=CUT):
        old[0].read()
    gateway.engines["a"].go.set()
    assert old[1].read().whole and new.read().whole


def test_a_list_that_may_lack_some_is_no_list(gateway: Rig) -> None:
    """O-76: without the master nobody knows what old workers hold."""
    gateway.reader._runtime.paths.master.unlink()
    assert gateway.reader.snapshot().requests is None


def test_a_drain_that_times_out_cuts_nothing_and_one_that_may_extend_waits_once(
    gateway: Rig, drains: Drains
) -> None:
    """O-75: zero in flight, twice; a time-out harms nobody."""
    gateway.point(llm_primary="a")
    stream = gateway.streaming(how="slow")
    with pytest.raises(EffectFailed, match=r"drain_timeout: 1 in flight on a.*nothing was cut"):
        drains.drain()
    with pytest.raises(EffectFailed, match=r"after 0.3 s and 0.2 s more"):
        drains.drain("extend", extend_s=0.2)
    gateway.engines["a"].go.set()
    assert stream.read().whole
    assert drains.drain()["in_flight"] == 0


def test_stalled_streams_may_be_cut_although_live_ones_may_not(gateway: Rig, drains: Drains) -> None:
    gateway.point(llm_primary="a", llm_fast="b")
    slow, stalled = gateway.streaming(how="slow"), gateway.streaming(how="stalled")
    other = gateway.streaming("llm.fast", how="stalled")
    with pytest.raises(EffectFailed, match=r"2 in flight on a \(1 stalled\).*nothing was cut"):
        drains.drain("sever-stalled", timeout_s=1.4)
    assert slow.link.sock
    slow.link.sock.close()
    slow.link.close()
    seen = drains.drain("sever-stalled", timeout_s=1.4)
    [cut] = seen["severed"]
    assert (cut["state"], cut["backend"]) == ("stalled", "a") and cut["bytes_out"] > 3000 and cut["age_s"] >= 1
    with pytest.raises(Exception, match=CUT):
        stalled.read()
    gateway.engines["b"].go.set()
    assert other.read().whole
    before = next(n for n in drains.notes() if "to_cut" in n)
    assert [r["id"] for r in before["to_cut"]] == [cut["id"]]


def test_sever_cuts_and_lists_what_is_left_whatever_it_does(gateway: Rig, drains: Drains) -> None:
    gateway.point(llm_primary="a", llm_fast="b")
    left = [gateway.streaming(how=how) for how in ("queued", "slow")]
    other = gateway.streaming("llm.fast")
    wanted = {r.id for r in listed(gateway)}
    assert {r["id"] for r in drains.drain("sever")["severed"]} == wanted
    assert left[0].read().status in (502, 503), "no answer had begun: an error that may be tried again"
    with pytest.raises(Exception, match=CUT):
        left[1].read()
    gateway.engines["b"].go.set()
    assert other.read().whole


@pytest.fixture
def idle(tmp_path: Path) -> Iterator[Drains]:
    """One gateway is enough where only the engine's count matters."""
    (tmp_path / "box").mkdir()
    with rig(tmp_path, BINARIES["debian"]) as gateway:
        gateway.point(llm_primary="a")
        yield Drains(gateway, tmp_path / "box")


def test_an_engine_with_work_past_the_gateway_blocks_the_stop(idle: Drains) -> None:
    idle.engine.running = 2
    with pytest.raises(EffectFailed, match=r"nothing in flight on a; its engine still counts 2.*nothing was cut"):
        idle.drain()
    idle.engine.running = None
    assert idle.drain()["engine"] is None
    idle.engine.running = 0
    assert idle.drain()["engine"] == 0
