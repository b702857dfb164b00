"""Drills on a box in memory: away and home, whatever fails in between; how facts compare; the trend of many."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from anvil_tui.core.plan import Plan
from anvil_tui.service.operation import accept
from tests.support.drills import at, drilled, home, ids, newest, view
from tests.support.membox import World, recipe


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """What survives a power cut is the journal's own test; here it would only cost time."""
    monkeypatch.setattr("os.fsync", lambda fd: None)


CARD = {"select": ("0",), "need_free_mib": 80_000}


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
    assert newest(spare).restore_s is None and newest(spare).home_s is not None, "nothing was started on the way"


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
