"""Alarms: what raises each kind, what does not, and how it ends; by a clock that only these tests move."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from anvil_tui.core.alarm_rules import EVENT_S, alarms_after
from anvil_tui.core.alarms import Alarm, acknowledge, ordered, with_acks
from anvil_tui.core.box import GpuSnapshot
from anvil_tui.core.discovery import Found
from anvil_tui.core.gpu_wire import APPLICATION_XIDS
from anvil_tui.core.happenings import events_between
from anvil_tui.core.journal import OperationView, StepView
from anvil_tui.core.reading import Reading
from anvil_tui.core.recipe import EngineKind
from anvil_tui.core.serves import derive
from anvil_tui.core.standing import ClientState, CredentialState
from anvil_tui.core.times import utc_text
from anvil_tui.core.waivers import Waiver
from anvil_tui.core.world import Lease, Phase, World
from tests.support import worlds
from tests.support.worlds import CANDIDATE, INCUMBENT, NOW_S, UUIDS, cid

Fields = dict[str, Any]
SERVING = cid(CANDIDATE)
HOLD, CLEAR = 20, 60


class Box:
    """A world that goes on: `after` is one change of the store so many seconds later, with fresh readings."""

    def __init__(self, world: World | None = None) -> None:
        self.world = replace(world or worlds.calm(), kept_alarms=())
        self.events: list[str] = []

    def after(self, seconds: float, *, fresh: bool = True, **fields: Any) -> tuple[str, ...]:
        old = self.world
        now_s = old.now_s + seconds
        new = replace(old, now_s=now_s, now_utc=old.now_utc + timedelta(seconds=seconds), **fields)
        if fresh:
            new = replace(
                new,
                gpus=replace(new.gpus, at_s=now_s), containers=replace(new.containers, at_s=now_s),
                gateway=replace(new.gateway, at_s=now_s),
                engines={k: replace(r, at_s=now_s) for k, r in new.engines.items()},
                trails={k: replace(t, at_s=now_s, moved_at_s=now_s - t.flat_s) for k, t in new.trails.items()},
            )  # fmt: skip
        new = derive(new)
        alarms, marks = alarms_after(old, new)
        self.world = replace(new, alarms=alarms, alarm_marks=marks)
        self.events += [e.text for e in events_between(old, self.world) if e.source == "alarm"]
        return tuple(a.id for a in alarms)

    @property
    def alarm(self) -> Alarm:
        (one,) = self.world.alarms
        return one

    def over(self, seconds: float) -> tuple[str, ...]:
        """So long in four changes: the first readings after a change of state only begin to count."""
        for _ in range(4):
            ids = self.after(seconds / 4)
        return ids

    def ack(self, by: str = "ana") -> None:
        kept = acknowledge(self.alarm, by, self.world.now_utc)(self.world.kept_alarms or ())
        self.after(0.1, kept_alarms=kept)


def gpus(**second: object) -> Fields:
    """Both cards well, but for these fields of the second."""
    cards = (worlds.gpu(0), replace(worlds.gpu(1), **second))  # type: ignore[arg-type]
    return {"gpus": Reading.known(GpuSnapshot("580.95.05", cards), NOW_S, "nvml")}


WELL: dict[str, object] = {"ecc_uncorrected": 0, "remap_pending": False, "remap_failed": False, "throttle": (),
                           "xid": 0, "xids": 0}  # fmt: skip


def engine(**more: object) -> Fields:
    made = worlds.engine(worlds.recipes()[CANDIDATE], **more)
    return {"engines": {SERVING: Reading.known(made, NOW_S, "http")}}


def flat(seconds: float, misses: int = 0) -> Fields:
    return {"trails": {SERVING: replace(worlds.trail(NOW_S - seconds), at_s=NOW_S, misses=misses)}}


def containers(status: str = "running", **more: object) -> Fields:
    known = worlds.recipes()
    both = (worlds.container(known[CANDIDATE], status, **more), worlds.container(known[INCUMBENT], "exited"))
    return {"containers": Reading.known(both, NOW_S, "docker")}


def gateway(**more: object) -> Fields:
    return {"gateway": Reading.known(replace(worlds.gateway("primary-b"), **more), NOW_S, "haproxy")}  # type: ignore[arg-type]


def proofs(state: str) -> Fields:
    checks = tuple(replace(c, state=state) if c.name == "weights" else c for c in worlds.proven())  # type: ignore[arg-type]
    return {"proofs": {cid(r): checks for r in (CANDIDATE, INCUMBENT)}}


def client(state: str) -> Fields:
    return {"clients": (ClientState("pi", "models.json", state, ("contextWindow: has 1, serves 2",)),)}  # type: ignore[arg-type]


def key(state: str) -> Fields:
    return {"credentials": (CredentialState("k", "env:K", state, why="401"),)}  # type: ignore[arg-type]


def halted(accepted: bool = False, state: str = "halted") -> Fields:
    end: Any = "halted" if state == "halted" else None
    o = OperationView("20260902-1150-drain", "drain", "primary", role="primary", started_at=worlds.at(60),
                      outcome=end, why="no answer", accepted=accepted)  # fmt: skip
    return {"operations": (o,)}


def error(last: Reading[Any]) -> Reading[Any]:
    return Reading.error("no answer", NOW_S, "x", last.value)


UNREAD_GPUS: Fields = {"gpus": error(worlds.calm().gpus)}
UNREAD_ENGINE: Fields = {"engines": {SERVING: Reading.error("no answer", NOW_S, "http")}}
UNREAD_CONTAINERS: Fields = {"containers": error(worlds.calm().containers)}
UNREAD_GATEWAY: Fields = {"gateway": error(worlds.calm().gateway)}


@dataclass(frozen=True)
class Row:
    """`ill` raises alarm `id` with `severity`, `well` ends it, `unknown` does neither; `held` = not at once."""

    id: str
    severity: str
    ill: Fields
    well: Fields
    unknown: Fields
    words: str
    held: bool = True
    clear_s: float = CLEAR


LOST: dict[str, object] = {"state": "lost", "reason": "GPU is lost", "free_bytes": None, "used_bytes": None}
ROWS = {
    "failed": Row(f"failed:{SERVING}", "bad", containers("exited", exit_code=1), containers(), UNREAD_CONTAINERS,
                  "exited with 1"),
    "removed": Row(f"failed:{SERVING}", "bad", {"containers": Reading.known((), NOW_S, "docker")}, containers(),
                   UNREAD_CONTAINERS, "was removed behind the console"),
    "stopped-by-hand": Row(f"failed:{SERVING}", "bad", containers("exited", exit_code=0), containers(),
                           UNREAD_CONTAINERS, "stopped"),
    "wedged": Row(f"wedged:{SERVING}", "bad", flat(400), flat(0), UNREAD_ENGINE, "makes no tokens"),
    "dead-core": Row(f"wedged:{SERVING}", "bad", {**engine(http="error", reason="503"), **flat(0, misses=3)},
                     {**engine(), **flat(0)}, UNREAD_ENGINE, "http"),
    "restart-loop": Row(f"restart:{SERVING}", "bad", containers("restarting", restart_count=7), containers(),
                        UNREAD_CONTAINERS, "restarted 7 times", held=False, clear_s=EVENT_S),
    "kv": Row(f"kv:{SERVING}", "warn", engine(kv_used=0.97, waiting=3), engine(kv_used=0.97, waiting=0),
              engine(kv_used=None, waiting=3), "97 % in use, 3 requests wait"),
    "gpu-lost": Row(f"gpu:{UUIDS[1]}", "bad", gpus(**LOST), gpus(**WELL), UNREAD_GPUS, "GPU is lost", held=False),
    "gpu-error": Row(f"gpu:{UUIDS[1]}", "bad", gpus(state="error", reason="Unknown Error"), gpus(**WELL),
                     UNREAD_GPUS, "compute-b"),
    "ecc": Row(f"ecc:{UUIDS[1]}", "bad", gpus(ecc_uncorrected=2), gpus(**WELL), gpus(ecc_uncorrected=None),
               "2 uncorrectable", held=False),
    "remap-pending": Row(f"row-remap:{UUIDS[1]}", "warn", gpus(remap_pending=True, remap_failed=False),
                         gpus(**WELL), gpus(remap_pending=None), "at its next reset", held=False),
    "remap-failed": Row(f"row-remap:{UUIDS[1]}", "bad", gpus(remap_pending=True, remap_failed=True), gpus(**WELL),
                        gpus(remap_pending=None, remap_failed=None), "replaced", held=False),
    "throttle": Row(f"throttle:{UUIDS[1]}", "warn", gpus(throttle=("sw-power-cap", "hw-thermal")),
                    gpus(throttle=("sw-power-cap", "idle")), gpus(throttle=None), "hw-thermal"),
    "gateway": Row("unreachable:gateway", "bad", UNREAD_GATEWAY, gateway(), {
        "gateway": Reading.unknown("not read yet", "gateway")}, "no answer"),
    "docker": Row("unreachable:containers", "warn", UNREAD_CONTAINERS, containers(), {
        "containers": Reading.unknown("not read yet", "docker")}, "no answer"),
    "rollback": Row("rollback:primary", "warn", proofs("missing"), proofs("ok"), proofs("unknown"), "weights"),
    "alias-file": Row("drift:gateway", "warn", gateway(file_equal=False), gateway(), {
        "lease": Lease("x", 1, "ana", worlds.at(1))}, "durable file"),
    "catalog": Row("drift:client pi", "warn", client("drift"), client("converged"), client("unreachable"), "pi"),
    "halted": Row("operation:20260902-1150-drain", "bad", halted(), halted(accepted=True), {
        **halted(), "operations": (), "source_errors": {"operations": "x"}}, "halted", held=False, clear_s=0),
    "interrupted": Row("operation:20260902-1150-drain", "bad", halted(state="open"), halted(accepted=True), {
        **halted(), "operations": (), "source_errors": {"operations": "x"}}, "interrupted", clear_s=0),
    "credential": Row("credential:k", "bad", key("refused"), key("accepted"), key("unproven"), "401"),
}  # fmt: skip
rows = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)


def ill_for(row: Row, seconds: float) -> Box:
    """A box that was well, and then ill for so long."""
    box = Box()
    box.after(1, **row.well)
    box.after(1, **row.ill)
    box.over(seconds)
    return box


@rows
def test_a_level_that_holds_is_raised_and_one_that_is_clear_for_long_enough_ends(row: Row) -> None:
    box = ill_for(row, HOLD - 0.1)
    assert (row.id in {a.id for a in box.world.alarms}) is not row.held
    assert row.id in box.after(0.2)
    (alarm,) = [a for a in box.world.alarms if a.id == row.id]
    assert (alarm.severity, row.words in alarm.text) == (row.severity, True), alarm
    assert any(f"raised: {row.severity} {alarm.kind}" in text for text in box.events)
    box.after(1, **row.well)
    if row.clear_s:
        assert row.id in box.over(row.clear_s - 0.1)
    assert row.id not in box.after(0.2)
    assert box.events[-1].startswith("ended after")


@rows
def test_what_is_not_known_neither_raises_nor_ends(row: Row) -> None:
    box = Box()
    box.after(1, **row.well)
    box.after(1, **row.unknown)
    assert row.id not in box.over(HOLD * 10)
    box = ill_for(row, HOLD)
    box.after(1, **row.unknown)
    assert row.id in box.over(row.clear_s * 10), box.events


@pytest.mark.parametrize("row", [r for r in ROWS.values() if r.held], ids=[n for n, r in ROWS.items() if r.held])
def test_the_seconds_stand_still_while_nothing_is_known(row: Row) -> None:
    """Half of the time on, a gap, the other half: raised then, not before."""
    box = ill_for(row, HOLD / 2)
    box.after(0, **row.unknown)
    box.after(1000)
    known = {k: getattr(Box().world, k) for k in row.unknown}
    box.after(1, **{**known, **row.ill})
    assert row.id not in box.over(HOLD / 2 - 0.1)
    assert row.id in box.after(0.2)


STALE: dict[str, tuple[str, float]] = {
    "kv": ("engines", 10), "wedged": ("engines", 10), "throttle": ("gpus", 7), "failed": ("containers", 7),
}  # fmt: skip


@pytest.mark.parametrize("name", STALE)
def test_a_stale_reading_neither_raises_nor_ends(name: str) -> None:
    row, (_, limit_s) = ROWS[name], STALE[name]
    box = Box()
    box.after(1, **row.ill)
    box.after(limit_s, fresh=False)
    assert row.id not in box.after(HOLD * 10, fresh=False)
    box = ill_for(row, HOLD)
    box.after(0.1, **row.well)
    box.after(limit_s, fresh=False)
    assert row.id in box.after(CLEAR * 10, fresh=False)


def test_what_comes_back_within_the_time_to_end_is_the_same_alarm() -> None:
    row, box = ROWS["kv"], Box()
    box.after(1, **row.ill)
    box.after(HOLD)
    since = box.alarm.since
    for _ in range(5):
        box.after(1, **row.well)
        box.after(CLEAR - 1)
        box.after(1, **row.ill)
    assert box.alarm.since == since
    assert len(box.events) == 1


@pytest.mark.parametrize(
    ("name", "between"),
    [("kv", engine(kv_used=0.90, waiting=3)), ("wedged", flat(30))],
)
def test_between_the_limit_and_its_margin_nothing_changes(name: str, between: Fields) -> None:
    row, box = ROWS[name], Box()
    box.after(1, **between)
    for _ in range(10):
        assert row.id not in box.after(HOLD)
    box.after(1, **row.ill)
    box.after(HOLD)
    box.after(1, **between)
    for _ in range(10):
        assert row.id in box.after(CLEAR)


def reserve(free_mib: int) -> Fields:
    return {"gpus": Reading.known(GpuSnapshot("1", (worlds.gpu(0), worlds.gpu(1, free_mib))), NOW_S, "nvml")}


def with_reserve(mib: int) -> World:
    """The box asks for 9,000 MiB, and the newest waiver of what serves lets it have `mib`."""
    world = worlds.calm()
    policies = world.workspace.policies.model_copy(update={"reserve_mib": 9000})
    waiver = Waiver(worlds.at(60), CANDIDATE, tuple(sorted(UUIDS)), 9000, mib, "tight")
    return replace(world, workspace=world.workspace.model_copy(update={"policies": policies}), waivers=(waiver,))


def test_reserve_by_the_smallest_that_must_stay_free() -> None:
    box = Box(with_reserve(4000))
    own = f"reserve:{UUIDS[1]}"
    box.after(1, **reserve(4100))
    assert own not in box.after(HOLD)
    box.after(1, **reserve(3999))
    assert own in box.after(HOLD)
    text = next(a.text for a in box.world.alarms if a.id == own)
    assert "3,999 MiB free, 4,000 MiB must stay free" in text
    box.after(1, **reserve(4100))
    assert own in box.after(CLEAR * 5), "clear only by a margin"
    box.after(1, **reserve(4256))
    assert own not in box.after(CLEAR)


def test_a_reserve_is_no_matter_of_a_card_on_which_nothing_runs() -> None:
    box = Box(with_reserve(4000))
    box.after(1, **reserve(10), **containers("exited", exit_code=0))
    assert f"reserve:{UUIDS[1]}" not in box.after(HOLD)


# events


def test_an_engine_that_began_anew_is_an_alarm_for_a_quarter_of_an_hour() -> None:
    box = Box()
    box.after(1)
    assert box.after(1, trails={SERVING: replace(worlds.trail(NOW_S), restarts=1)}) == (f"restart:{SERVING}",)
    box.after(1)
    box.after(EVENT_S - 1)
    assert box.alarm.severity == "warn" and "began anew" in box.alarm.text
    assert box.after(1) == ()


def test_a_start_by_an_operation_is_no_restart() -> None:
    started = worlds.container(worlds.recipes()[CANDIDATE], started_at=worlds.at(30))
    rolled = OperationView("x-rollback", "rollback", "r", role="primary", started_at=worlds.at(60),
                           ended_at=worlds.at(10), outcome="done")  # fmt: skip
    box = Box()
    both = (started, worlds.container(worlds.recipes()[INCUMBENT], "exited"))
    box.after(1, containers=Reading.known(both, NOW_S, "docker"), operations=(rolled,))
    again = replace(worlds.trail(NOW_S), restarts=1)
    assert box.after(1, trails={SERVING: again}) == ()
    later = replace(rolled, ended_at=worlds.at(40))
    assert box.after(1, operations=(later,), trails={SERVING: replace(again, restarts=2)}) != ()


@pytest.mark.parametrize(("code", "severity"), [(31, "warn"), (79, "bad"), (48, "bad")])
def test_an_xid_is_an_alarm_and_another_one_an_acknowledged_alarm_anew(code: int, severity: str) -> None:
    box = Box()
    box.after(1, **gpus(**WELL))
    assert box.after(1, **gpus(**{**WELL, "xid": code, "xids": 1})) == (f"xid:{UUIDS[1]}",)
    assert (box.alarm.severity, f"Xid {code}" in box.alarm.text) == (severity, True)
    assert (code in APPLICATION_XIDS) == (severity == "warn")
    since = box.alarm.since
    box.after(5, **gpus(**{**WELL, "xid": code, "xids": 2}))
    assert box.alarm.since == since, "nobody has seen the first one yet"
    box.after(1)
    box.ack()
    box.after(5, **gpus(**{**WELL, "xid": code, "xids": 3}))
    assert box.alarm.acked_by == "ana", "so soon it is no news"
    box.after(61, **gpus(**{**WELL, "xid": code, "xids": 4}))
    assert (box.alarm.acked_by, box.alarm.since > since) == ("", True)


def test_a_reader_that_was_started_again_tells_of_no_old_xid() -> None:
    box = Box()
    box.after(1, **gpus(**{**WELL, "xid": 79, "xids": 3}))
    box.after(1)
    assert box.after(EVENT_S) == ()
    assert box.after(1, **gpus(**WELL)) == ()
    assert box.after(1, **gpus(**{**WELL, "xid": None, "xids": None})) == ()
    assert box.after(1, **gpus(**WELL)) == ()


def test_an_xid_of_before_a_gap_is_no_news_after_it() -> None:
    """A GPU whose row failed for a while has no count then, which is not 0."""
    box = Box()
    box.after(1, **gpus(**{**WELL, "xid": 79, "xids": 3}))
    box.after(1)
    assert box.after(EVENT_S) == ()
    box.after(1, **gpus(**{**WELL, "xid": None, "xids": None}))
    assert box.after(1, **gpus(**{**WELL, "xid": 79, "xids": 3})) == ()
    assert box.after(1, **gpus(**{**WELL, "xid": 79, "xids": 4})) == (f"xid:{UUIDS[1]}",)


def test_an_xid_of_a_program_does_not_cover_one_of_the_gpu() -> None:
    """The driver ends the programs of a GPU that fell off the bus, and tells of each."""
    box = Box()
    box.after(1, **gpus(**WELL))
    box.after(1, **gpus(**{**WELL, "xid": 79, "xids": 1}))
    box.after(1, **gpus(**{**WELL, "xid": 45, "xids": 2}))
    assert (box.alarm.severity, "Xid 79" in box.alarm.text) == ("bad", True)
    box.after(1)
    box.after(EVENT_S - 1)
    assert box.alarm.severity == "bad"
    assert box.after(1) == (), "it ends after the last of them"


def test_what_turns_bad_just_after_the_warning_was_acknowledged_is_news() -> None:
    box = Box()
    box.after(1, **gpus(**WELL))
    box.after(1, **gpus(**{**WELL, "xid": 31, "xids": 1}))
    box.after(1)
    box.ack()
    box.after(5, **gpus(**{**WELL, "xid": 79, "xids": 2}))
    assert (box.alarm.acked_by, box.alarm.severity, "Xid 79" in box.alarm.text) == ("", "bad", True)


def test_restarts_that_become_a_loop_are_bad() -> None:
    """Each restart before it was an alarm that grew, too."""
    box = Box()
    box.after(1)
    for n in (1, 2, 3):
        box.after(5, trails={SERVING: replace(worlds.trail(NOW_S), restarts=n)})
    assert box.alarm.severity == "warn"
    box.after(5, **containers("restarting", restart_count=3))
    alarm = next(a for a in box.world.alarms if a.kind == "restart")
    assert (alarm.severity, "restarted 3 times" in alarm.text) == ("bad", True)
    raised = len(box.events)
    box.over(EVENT_S)
    assert len(box.events) == raised, "and are told of once"


@pytest.mark.parametrize(
    ("late_s", "more", "by"), [(5, {}, "ana"), (59, {}, "ana"), (61, {}, ""), (5, {"grade": 1}, "")]
)
def test_what_was_acknowledged_before_this_console_saw_it_is_acknowledged(
    late_s: int, more: dict[str, Any], by: str
) -> None:
    """Two consoles read at different moments. Much later, or worse, it is another one."""
    there = ill_for(ROWS["throttle"], HOLD)
    kept = acknowledge(there.alarm, "ana", there.world.now_utc)(())
    since = utc_text(there.world.now_utc + timedelta(seconds=late_s))
    (mine,) = with_acks((replace(there.alarm, since=since, **more),), kept)
    assert mine.acked_by == by


# targets that are gone


def test_of_a_target_that_is_gone_the_alarm_ends() -> None:
    box = Box()
    box.after(1, **halted())
    box.after(1, operations=())
    box.after(CLEAR - 1)
    assert box.world.alarms
    assert box.after(1) == ()


def test_while_gpus_cannot_be_read_the_alarm_of_a_lost_one_stays() -> None:
    """O-04: a lost GPU is one alarm, also when the whole reader fails after it."""
    box = Box()
    box.after(1, **gpus(**LOST))
    box.after(1, **UNREAD_GPUS)
    box.after(CLEAR * 10)
    assert {a.id for a in box.world.alarms} == {f"gpu:{UUIDS[1]}", "unreachable:gpus"}


# operations at work


def test_an_operation_that_was_taken_up_again_calls_nobody_and_does_so_when_it_dies_again() -> None:
    row = ROWS["interrupted"]
    box = ill_for(row, HOLD)
    (o,) = box.world.operations
    assert row.id in {a.id for a in box.world.alarms}
    assert row.id not in box.after(0.1, lease=Lease(o.id, 1, "ana", worlds.at(1)))
    box.after(0.1, lease=None)
    assert row.id in box.after(HOLD + 0.1)


def test_a_phase_is_not_told_as_its_own_reason() -> None:
    box = Box()
    box.after(1, **containers("exited", exit_code=0))
    box.after(HOLD + 1)
    texts = [a.text for a in box.world.alarms if a.kind == "failed"]
    assert texts and "stopped: stopped" not in texts[0]


def test_what_an_operation_stops_is_no_alarm() -> None:
    world = worlds.promoting()
    box = Box(world)
    for _ in range(10):
        assert [i for i in box.after(HOLD) if i.startswith(("failed", "rollback", "operation"))] == []
    assert worlds.promoting().serve(cid(INCUMBENT)).phase is Phase.STOPPED  # type: ignore[union-attr]


EXITS = {
    "a oom": (137, True, False, True), "b our kill after the grace": (137, False, True, False),
    "c unknown sender": (137, False, False, True), "d SIGTERM": (143, False, True, False),
    "e stopped": (0, False, True, False),
}  # fmt: skip


@pytest.mark.parametrize(("code", "oom", "ours", "raised"), EXITS.values(), ids=EXITS)
def test_which_ends_of_a_serve_beside_the_incumbent_are_alarms(
    code: int, oom: bool, ours: bool, raised: bool
) -> None:
    """O-27: only an OOM and a SIGKILL from nobody we know."""
    stop = StepView("stop", "stop it", "done", worlds.at(70), worlds.at(50), 90)
    done = OperationView("x-unload", "unload", INCUMBENT, role="primary", started_at=worlds.at(80),
                         ended_at=worlds.at(40), outcome="done", steps=(stop,))  # fmt: skip
    known = worlds.recipes()
    ended = worlds.container(known[INCUMBENT], "exited", exit_code=code, oom_killed=oom, finished_at=worlds.at(55))
    both = (worlds.container(known[CANDIDATE]), ended)
    box = Box()
    box.after(1, containers=Reading.known(both, NOW_S, "docker"), operations=(done,) if ours else ())
    box.after(HOLD)
    wanted = {f"failed:{cid(INCUMBENT)}"} if raised else set()
    assert {a.id for a in box.world.alarms} == wanted
    assert all(a.severity == "warn" for a in box.world.alarms)


@pytest.mark.parametrize(("flat_s", "raised"), [(100, False), (400, True)])
def test_a_prefill_of_the_full_context_is_no_wedged_engine(flat_s: float, raised: bool) -> None:
    """O-45: health is 200 in both; a context of 393,216 may be read for 197 s."""
    box = Box()
    box.after(1, **flat(flat_s))
    assert (f"wedged:{SERVING}" in box.after(HOLD)) is raised


def test_a_box_without_alarms_has_none() -> None:
    box = Box()
    for _ in range(30):
        assert box.after(HOLD) == ()
    assert box.world.alarm_marks == {}


def test_at_start_nothing_is_known_and_nothing_raised() -> None:
    box = Box(worlds.empty())
    for _ in range(30):
        assert box.after(HOLD, fresh=False) == ()


def test_foreign_containers_are_told_of_by_their_drift_alone() -> None:
    stray = replace(worlds.alien(), image_ref="vllm:latest", image_id="sha256:1", status="exited", exit_code=1)
    running = replace(stray, id="f" * 64, status="running")
    box = Box(worlds.with_containers(worlds.calm(), stray, running))
    box.after(1, images={**box.world.images, "vllm:latest": "sha256:2"})
    assert box.after(HOLD) == (f"drift:{'f' * 64}",)
    assert "vllm:latest names" in box.alarm.text


def test_an_engine_that_discovery_found_is_watched_and_may_end() -> None:
    stray = replace(worlds.alien(), image_ref="engine:1", started_at=worlds.at(9000))
    engine_of = worlds.engine(worlds.recipes()[CANDIDATE], kv_used=0.99, waiting=4)
    world = worlds.with_containers(worlds.calm(), stray)
    box = Box(replace(world, found={stray.id: Found(EngineKind.VLLM, 8000)}))
    box.after(1, engines={**world.engines, stray.id: Reading.known(engine_of, NOW_S, "http")})
    assert box.after(HOLD) == (f"kv:{stray.id}",)
    box.after(1, **containers())
    box.after(1)
    assert box.after(CLEAR) == ()


# acknowledgement


def test_an_acknowledged_alarm_stays_and_comes_back_new() -> None:
    row, box = ROWS["kv"], Box()
    box.after(1, **row.ill)
    box.after(HOLD)
    box.ack("ana")
    assert (box.alarm.acked_by, box.alarm.acked_at != "") == ("ana", True)
    assert box.events[-1].startswith("acknowledged by ana: kv")
    box.after(CLEAR)
    assert box.alarm.acked_by == "ana"
    box.after(1, **row.well)
    assert box.after(CLEAR) == ()
    box.after(1, **row.ill)
    box.after(HOLD)
    assert box.alarm.acked_by == "", "what is kept was for the one before"


def test_the_first_acknowledgement_stays() -> None:
    box = Box()
    box.after(1, **halted())
    kept = acknowledge(box.alarm, "ana", box.world.now_utc)(())
    again = acknowledge(box.alarm, "bo", box.world.now_utc)(kept)
    assert [a.acked_by for a in again] == ["ana"]


def test_one_that_grows_worse_is_new() -> None:
    box = Box()
    box.after(1, **gpus(remap_pending=True, remap_failed=False))
    box.ack()
    box.after(CLEAR + 1, **gpus(remap_pending=True, remap_failed=True))
    assert (box.alarm.acked_by, box.alarm.severity) == ("", "bad")


def test_more_errors_of_an_alarm_that_nobody_has_seen_only_change_its_words() -> None:
    box = Box()
    box.after(1, **gpus(ecc_uncorrected=1))
    since = box.alarm.since
    box.after(300, **gpus(ecc_uncorrected=9))
    assert (box.alarm.since, "9 uncorrectable" in box.alarm.text) == (since, True)
    box.ack()
    box.after(10, **gpus(ecc_uncorrected=10))
    assert box.alarm.acked_by == "ana"
    box.after(60)
    assert (box.alarm.acked_by, "10 uncorrectable" in box.alarm.text) == ("", True)


def test_what_another_process_left_open_is_taken_over() -> None:
    left = Alarm(f"ecc:{UUIDS[1]}", "ecc", UUIDS[1], "bad", "2026-09-01T00:00:00.000000Z", "2 errors", "bo",
                 "2026-09-01T01:00:00.000000Z", 2)  # fmt: skip
    box = Box()
    box.world = replace(box.world, kept_alarms=None)
    box.after(1, **gpus(ecc_uncorrected=2))
    box.world = replace(box.world, alarms=())
    box.after(1, kept_alarms=(left,))
    assert box.alarm == left
    box.after(1, **gpus(**WELL))
    assert box.after(CLEAR) == ()
    box.after(1, kept_alarms=(left,))
    assert box.world.alarms == (), "only once, when it is first read"


def test_those_that_concern_a_person_come_first() -> None:
    def made(name: str, severity: str, since: str, by: str = "") -> Alarm:
        return Alarm(name, "kv", name, severity, since, "", by)  # type: ignore[arg-type]

    mixed = [made("a", "bad", "1", "ana"), made("b", "warn", "2"), made("c", "bad", "3"), made("d", "bad", "4")]
    assert [a.id for a in ordered(mixed)] == ["d", "c", "b", "a"]


def test_a_recording_keeps_its_alarms() -> None:
    kept = Alarm("kv:x", "kv", "x", "warn", "1", "t")
    world = replace(worlds.calm(), replayed=True, alarms=(kept,))
    assert alarms_after(world, world) == ((kept,), {})
