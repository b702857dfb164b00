"""Drills on a box in memory: away and home, whatever fails in between; how facts compare; the trend of many."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.core.box import SharedFile
from anvil_tui.core.drills import Fact, compare, last_drill, outcome_words, trend_line, trends
from anvil_tui.core.journal import OperationView
from anvil_tui.core.plan import Plan
from anvil_tui.core.standing import DrillPhase, DrillRecord
from anvil_tui.service.drill import recheck
from anvil_tui.service.operation import accept, operate, prepare
from tests.support.membox import World, recipe


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """What survives a power cut is the journal's own test; here it would only cost time."""
    monkeypatch.setattr("os.fsync", lambda fd: None)


CARD = {"select": ("0",), "need_free_mib": 80_000}


def drilled(folder: Path, *, exclusive: bool, **more: Any) -> World:
    """`b` serves, and `a`, which served before, is kept as its way back."""
    folder.mkdir(exist_ok=True)
    world = World(folder, *(recipe(name, exclusive=exclusive, **more) for name in ("a", "b")))
    assert world.do("promote", recipe="a") == "done"
    assert world.do("promote", recipe="b") == "done"
    world.docker.started.clear()
    world.gate.history.clear()
    return world


@pytest.fixture
def full(tmp_path: Path) -> World:
    return drilled(tmp_path / "full", exclusive=True)


@pytest.fixture
def spare(tmp_path: Path) -> World:
    return drilled(tmp_path / "spare", exclusive=False)


@pytest.fixture(params=["full", "spare"])
def either(request: pytest.FixtureRequest) -> World:
    world: World = request.getfixturevalue(request.param)
    return world


def ids(world: World) -> dict[str, str]:
    return {s.recipe_id: s.container_id for s in world.box.store.read().serves.values()}


def view(world: World) -> OperationView:
    return next(v for v in world.box.operations.views() if v.id == world.last)


def newest(world: World) -> DrillRecord:
    return world.box.store.drills()[-1]


def home(world: World) -> None:
    """`b` serves alone, as before the drill."""
    assert (world.serving(), world.incumbent(), len(world.docker.running())) == ("b", "b", 1)
    assert world.gate.file == world.gate.live


# both ways


def test_a_drill_goes_away_and_comes_home_to_the_exact_container(either: World) -> None:
    before, made = either.box.store.read(), ids(either)
    assert either.do("drill", role="primary") == "done"
    home(either)
    assert either.docker.started == [made["a"], made["b"]]
    now = either.box.store.read()
    assert (now.roles, now.serves) == (before.roles, before.serves)
    record = newest(either)
    assert (record.outcome, record.differences, record.unread) == ("restored", (), ())
    assert (record.incumbent, record.way_back) == (made["b"], made["a"])
    assert view(either).why == ""


def test_on_a_full_box_clients_are_held_and_no_two_engines_run(full: World) -> None:
    running: list[int] = []
    start = full.docker.start

    def watched(container_id: str) -> None:
        running.append(len(full.docker.running()))
        start(container_id)

    full.docker.start = watched  # type: ignore[method-assign]
    assert full.do("drill", role="primary") == "done"
    assert running == [0, 0]
    assert [row["llm.primary"] for row in full.gate.history] == ["hold", "primary-a", "hold", "primary-b"]


def test_with_room_for_both_nobody_waits(spare: World) -> None:
    made: Plan = spare.plan("drill", role="primary")
    assert made.outage == "none" and made.interrupts.startswith("nothing")
    assert spare.do("drill", role="primary") == "done"
    assert [row["llm.primary"] for row in spare.gate.history] == ["primary-a", "primary-b"]


def test_a_way_back_that_ran_beside_goes_on_running(spare: World) -> None:
    spare.docker.start(ids(spare)["a"])
    spare.docker.started.clear()
    assert spare.do("drill", role="primary") == "done"
    assert sorted(c.labels["anvil.recipe"] for c in spare.docker.running()) == ["a", "b"]
    assert spare.docker.started == [ids(spare)["b"]]
    assert newest(spare).outcome == "restored"


def test_each_serve_is_judged_by_its_own_gates_and_they_are_told_apart(full: World) -> None:
    assert full.do("drill", role="primary") == "done"
    assert [(g.id, g.step, g.recipe, g.verdict) for g in view(full).gates] == [
        ("smoke", "gates", "a", "passed"), ("smoke", "gates-home", "b", "passed"),
    ]  # fmt: skip


# where it fails


STEPS = {
    "full": (
        "facts", "prove", "hold", "drain", "stop", "start", "ready", "gates", "flip", "verify", "prove-home",
        "hold-home", "drain-home", "stop-home", "start-home", "ready-home", "gates-home", "flip-home",
        "verify-home", "compare", "decide",
    ),
    "spare": (
        "facts", "prove", "start", "ready", "gates", "flip", "verify", "drain", "stop", "prove-home", "start-home",
        "ready-home", "gates-home", "flip-home", "verify-home", "retire-home", "compare", "decide",
    ),
}  # fmt: skip


@pytest.mark.parametrize("box", STEPS)
def test_the_steps_of_a_drill(box: str, request: pytest.FixtureRequest) -> None:
    world: World = request.getfixturevalue(box)
    assert tuple(s.name for s in world.plan("drill", role="primary").steps) == STEPS[box]


@pytest.mark.parametrize(("box", "step"), [(b, s) for b, steps in STEPS.items() for s in steps])
def test_a_kill_at_any_step_ends_with_the_incumbent_and_on_record(
    box: str, step: str, request: pytest.FixtureRequest
) -> None:
    """O-123 for the drill: before its decision, which is the last step, the only way is back."""
    world: World = request.getfixturevalue(box)
    before = world.box.store.read().roles
    point = f"{step}:after" if step != "decide" else "decide:before"
    assert world.do("drill", kill_at=point, role="primary") == "killed"
    assert world.operate("resume") == "undone"
    home(world)
    assert world.box.store.read().roles == before
    (record,) = world.box.store.drills()
    assert (record.outcome, record.differences) == ("undone", ())
    assert (record.restore_s is not None) == (step in STEPS[box][STEPS[box].index("verify") :])


def test_a_kill_after_the_decision_is_finished_as_restored(either: World) -> None:
    assert either.do("drill", kill_at="decide:after", role="primary") == "killed"
    assert either.operate("resume") == "done"
    home(either)
    assert newest(either).outcome == "restored"


def test_what_a_person_accepts_is_on_record_and_the_way_back_can_be_kept(full: World) -> None:
    """A drill that was killed on its way home while the way back served, and its incumbent is lost for good."""
    assert full.do("drill", kill_at="verify:after", role="primary") == "killed"
    full.docker.remove(ids(full)["b"])
    accept(full.box, full.last, "the incumbent is gone")
    record = newest(full)
    assert (record.outcome, record.why) == ("halted", "accepted: the incumbent is gone")
    assert record.restore_s is not None and record.home_s is None
    assert full.serving() == "a" and full.do("rollback") == "done"
    assert (full.serving(), full.incumbent()) == ("a", "a")


@pytest.mark.parametrize(
    ("hurt", "said"),
    [
        (lambda w: w.failing.add("a"), "suite small did not pass"),
        (lambda w: w.docker.dies.add("a"), "exit code 1"),
        (lambda w: w.wrong_identity.add("a"), "identity_mismatch"),
        (lambda w: w.silent.add("a"), "start_timeout"),
        (lambda w: w.docker.refuses_start.add(ids(w)["a"]), "cannot start"),
    ],
)
def test_a_way_back_that_does_not_come_up_costs_the_drill_and_nothing_else(
    either: World, hurt: Callable[[World], None], said: str
) -> None:
    hurt(either)
    assert either.do("drill", role="primary") == "undone"
    home(either)
    record = newest(either)
    assert said in view(either).why and said in record.why
    assert (record.outcome, record.restore_s, record.home_s) == ("undone", None, None)


def test_a_drain_that_times_out_on_the_way_out_harms_nothing(full: World) -> None:
    full.gate.in_flight["primary-b"] = 1
    assert full.do("drill", role="primary") == "undone"
    home(full)
    assert full.gate.severed == [] and "drain_timeout" in newest(full).why


def at(world: World, point: str, do: Callable[[], None]) -> str:
    """Run a drill in which something happens at a point."""
    world.last = prepare(world.box, world.plan("drill", role="primary"))
    return operate(
        world.box, world.controls, world.last, "start", pid=1, interrupted=lambda: None,
        checkpoint=lambda here: do() if here == point else None,
    )  # fmt: skip


def test_an_incumbent_that_is_gone_halfway_leaves_the_way_back_serving_and_named(either: World) -> None:
    """fluxcd/flagger#1931 on the way home: what serves is not stopped for a serve that cannot start."""
    assert at(either, "prove-home:before", lambda: either.docker.remove(ids(either)["b"])) == "halted"
    assert (either.serving(), len(either.docker.running())) == ("a", 1)
    assert f"primary is at primary-a: a ({ids(either)['a'][:12]}) serves it" in view(either).why
    assert newest(either).outcome == "halted"
    assert "no good end" in either.plan("drill", role="primary").refusals[0]


def test_an_incumbent_that_cannot_start_again_halts_with_nothing_serving_said(full: World) -> None:
    assert at(full, "start-home:before", lambda: full.docker.refuses_start.add(ids(full)["b"])) == "halted"
    assert "primary is held: nothing serves it" in view(full).why
    full.docker.refuses_start.clear()
    assert full.operate("resume") == "undone"
    home(full)
    assert [d.outcome for d in full.box.store.drills()] == ["undone"]


def test_with_room_an_incumbent_that_cannot_start_again_leaves_the_way_back_serving(spare: World) -> None:
    assert at(spare, "start-home:before", lambda: spare.docker.refuses_start.add(ids(spare)["b"])) == "halted"
    assert spare.serving() == "a" and "serves it" in view(spare).why


def test_a_stream_on_the_way_back_is_not_cut_by_going_home(full: World) -> None:
    """The way back serves clients during a drill: what it still answers when its time is over goes on."""

    def stream() -> None:
        full.gate.in_flight["primary-a"] = 1

    assert at(full, "hold-home:after", stream) == "halted"
    assert (full.serving(), full.gate.severed) == ("a", [])
    assert "goes on serving" in view(full).why
    full.gate.in_flight["primary-a"] = 0
    assert full.operate("resume") == "undone"
    home(full)


def test_with_room_a_stream_on_the_way_back_is_left_running_and_is_a_difference(spare: World) -> None:
    def stream() -> None:
        spare.gate.in_flight["primary-a"] = 1

    assert at(spare, "flip-home:after", stream) == "done"
    record = newest(spare)
    assert record.outcome == "differs" and "way back status was exited, is running" in record.differences
    assert view(spare).why.startswith("restored with 1 difference: way back status")
    assert "still runs" in view(spare).residue[0] and spare.serving() == "b"


def test_no_step_of_the_way_back_cuts_what_it_left_running(spare: World) -> None:
    def stream() -> None:
        spare.gate.in_flight["primary-a"] = 1
        spare.docker.refuses_start.add(ids(spare)["b"])

    assert at(spare, "start-home:before", stream) == "halted"
    spare.docker.refuses_start.clear()
    assert spare.operate("resume") == "undone"
    assert len(spare.docker.running()) == 2 and "still runs" in view(spare).residue[0]


def test_a_full_gpu_box_proves_its_cards_free_on_both_legs(tmp_path: Path) -> None:
    world = drilled(tmp_path / "card", exclusive=True, gpus=CARD)
    assert [s.name for s in world.plan("drill", role="primary").steps if s.deed == "free"] == ["free", "free-home"]
    assert world.do("drill", role="primary") == "done"
    home(world)
    assert newest(world).outcome == "restored"


# refusals


def test_without_a_way_back_there_is_nothing_to_drill(tmp_path: Path) -> None:
    world = World(tmp_path, recipe("a"))
    assert "has no way back to drill: nothing serves it" in world.plan("drill", role="primary").refusals[0]
    assert world.do("promote", recipe="a") == "done"
    assert "nothing was promoted over" in world.plan("drill", role="primary").refusals[0]


def test_a_drill_is_refused_with_what_is_not_ready(full: World) -> None:
    full.docker.remove(ids(full)["a"])
    assert any("container" in why for why in full.plan("drill", role="primary").refusals)


def test_an_incumbent_that_does_not_run_or_is_held_is_not_drilled(full: World) -> None:
    assert full.do("quiesce", role="primary") == "done"
    assert any("not all at primary-b" in why for why in full.plan("drill", role="primary").refusals)
    full.docker.stop(ids(full)["b"], 1)
    assert any("is not running" in why for why in full.plan("drill", role="primary").refusals)


# step by step


def test_step_by_step_waits_before_each_step_and_a_cancel_goes_back(full: World) -> None:
    waits: list[str] = []
    sleep = full.clock.sleep

    def person(seconds: float) -> None:
        sleep(seconds)
        operations = full.box.operations
        if operations.paused(full.last):
            shown = view(full)
            waits.append(next(s.name for s in shown.steps if s.state == "pending"))
            assert shown.waits_for == next(s.title for s in shown.steps if s.name == waits[-1])
            operations.pause(full.last, on=False)
            if waits[-1] == "gates":
                operations.ask_cancel(full.last, "seen enough")

    full.clock.sleep = person  # type: ignore[method-assign]
    made = full.plan("drill", role="primary", stepwise=True)
    assert any("a request waits 900 s at most" in w for w in made.warnings)
    assert full.do("drill", role="primary", stepwise=True) == "undone"
    assert tuple(waits) == STEPS["full"][:8] and not view(full).paused
    home(full)


def test_the_deadline_of_a_step_does_not_run_while_it_waits_for_a_person(full: World) -> None:
    sleep = full.clock.sleep

    def slow_person(seconds: float) -> None:
        sleep(seconds)
        if full.box.operations.paused(full.last):
            full.clock.now += 100_000.0
            full.box.operations.pause(full.last, on=False)

    full.clock.sleep = slow_person  # type: ignore[method-assign]
    assert full.do("drill", role="primary", stepwise=True) == "done"
    assert (newest(full).restore_s or 0) < 100


# facts


def test_what_differs_what_moves_and_what_is_not_known_are_three_things() -> None:
    start = (Fact("image", "x"), Fact("started", "1", moves=True), Fact("shm", None, "why"), Fact("context", "8"))
    end = (Fact("image", "y"), Fact("started", "2", moves=True), Fact("shm", None, "why"),
           Fact("context", None, "silent"))  # fmt: skip
    found = compare(start, end)
    assert found.differences == ("image was x, is y", "context was 8, is not known (silent)")
    assert found.expected == ("started was 1, is 2",)
    assert found.unread == ("shm: not known: why",)
    assert compare(start, start).differences == ()
    assert compare((), (Fact("image", "x"),)).differences == (
        "image was not known (not taken at the start), is x",
    )


def changed(world: World, **fields: Any) -> None:
    incumbent = ids(world)["b"]
    world.docker.all[incumbent] = dataclasses.replace(world.docker.all[incumbent], **fields)


@pytest.mark.parametrize(
    ("hurt", "said"),
    [
        (lambda w: changed(w, argv=("x", "9132")), "configuration was "),
        (lambda w: changed(w, restart_count=2), "restart count was 0, is 2"),
        (lambda w: changed(w, image_id="sha256:other"), "image was sha256:bbb"),
        (lambda w: setattr(w, "shared", (SharedFile("vllm_offload_1.mmap", 9, 0.0, ()),)),
         "shared memory left unused was none, is vllm_offload_1.mmap"),
        (lambda w: w.gate.file.update({"llm.secondary": "primary-a"}), "gateway file was as the process"),
        (lambda w: w.gate.live.update({"llm.secondary": "primary-a"}), "alias llm.secondary was primary-b"),
    ],
)  # fmt: skip
def test_each_fact_that_is_not_as_it_was_is_told_and_the_drill_is_not_restored(
    full: World, hurt: Callable[[World], None], said: str
) -> None:
    assert at(full, "compare:before", lambda: hurt(full)) == "done"
    record = newest(full)
    assert record.outcome == "differs"
    assert any(said in d for d in record.differences), record.differences
    assert view(full).why.startswith(f"restored with {len(record.differences)} difference")


def test_a_recheck_is_a_later_record_of_the_same_drill(full: World) -> None:
    assert full.do("drill", role="primary") == "done"
    again = recheck(full.box, newest(full))
    assert (again.outcome, again.recheck, again.phases) == ("restored", True, ())
    changed(full, restart_count=1)
    later = recheck(full.box, full.box.store.drills()[0])
    assert later.outcome == "differs" and later.differences == ("restart count was 0, is 1",)
    kept = full.box.store.drills()
    assert {d.operation for d in kept} == {full.last} and not kept[0].recheck
    assert last_drill(kept, "primary") == kept[0]


# many


def drill(n: int, away: float | None, back: float | None = None, **more: Any) -> DrillRecord:
    made: dict[str, Any] = {
        "operation": f"op-{n}", "role": "primary", "at": f"2026-11-{n:02}T10:00:00+00:00", "place": "box",
        "incumbent": "b" * 64, "way_back": "a" * 64, "outcome": "restored", "restore_s": away, "home_s": back,
        "way_back_name": "a",
    }  # fmt: skip
    return DrillRecord(**{**made, **more})


def test_the_trend_is_of_this_box_by_role_and_way_back() -> None:
    kept = (
        drill(1, 40.0, 50.0), drill(2, 10.0, None, outcome="undone"), drill(3, 1.0, place="copy"),
        drill(4, None, outcome="halted"), drill(5, 44.0, 30.0), drill(5, None, recheck=True),
        drill(6, 7.0, way_back_name="z"),
    )  # fmt: skip
    first, second = trends(kept)
    assert (first.drills, first.newest_s, first.median_s) == (3, 44.0, 40.0)
    assert (first.home_newest_s, first.home_median_s) == (30.0, 40.0)
    assert (second.way_back, second.drills, second.home_median_s) == ("z", 1, None)
    assert trend_line(second) == "primary by z: 1 drill, the way back answered after 7.0 s (median 7.0 s)"


def test_words_never_say_restored_where_something_differs() -> None:
    assert outcome_words(drill(1, 1.0)) == "restored"
    assert outcome_words(drill(1, 1.0, outcome="differs", differences=("x",))) == "restored with 1 difference"
    assert outcome_words(drill(1, None, outcome="undone", differences=("x", "y"))) == "undone, 2 differences"


def test_phases_are_the_seconds_of_each_step_of_both_legs(full: World) -> None:
    start = full.docker.start

    def slow(container_id: str) -> None:
        full.clock.now += 30.0 if container_id == ids(full)["a"] else 50.0
        start(container_id)

    full.docker.start = slow  # type: ignore[method-assign]
    assert full.do("drill", role="primary") == "done"
    record = newest(full)
    assert (
        DrillPhase("away", "start", 30.0) in record.phases and DrillPhase("home", "start", 50.0) in record.phases
    )
    assert 30.0 <= (record.restore_s or 0) < 32.0 and 50.0 <= (record.home_s or 0) < 52.0
