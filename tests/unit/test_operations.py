"""Operations on a box in memory: where they end, whatever happens in between."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.core.draft import last_segment
from anvil_tui.core.errors import EffectFailed, Refused
from anvil_tui.core.gates import SuiteFile
from anvil_tui.core.journal import fold
from anvil_tui.service.operation import Mode, accept, operate, prepare
from tests.support.membox import GPU, World, recipe


@pytest.fixture
def spare(tmp_path: Path) -> World:
    """Two recipes that fit side by side; `a` serves."""
    return _with_a(World(tmp_path, recipe("a"), recipe("b")))


@pytest.fixture
def full(tmp_path: Path) -> World:
    """Two recipes that each need the whole box; `a` serves."""
    return _with_a(World(tmp_path, recipe("a", exclusive=True), recipe("b", exclusive=True)))


def _with_a(world: World) -> World:
    assert world.do("promote", recipe="a") == "done"
    assert (world.serving(), world.incumbent()) == ("a", "a")
    return world


def steps(world: World, verb: str, **target: str) -> list[str]:
    return [s.name for s in world.plan(verb, **target).steps]


def test_a_full_box_stops_before_it_starts_and_holds_meanwhile(full: World) -> None:
    assert steps(full, "promote", recipe="b") == [
        "create", "hold", "drain", "stop-incumbent", "start", "ready",
        "gates", "decide", "flip", "verify", "record",
    ]  # fmt: skip


def test_with_room_the_candidate_starts_first_and_nobody_waits(spare: World) -> None:
    names = steps(spare, "promote", recipe="b")
    assert names == ["create", "start", "ready", "gates", "decide", "flip", "verify", "record", "retire"]
    spare.gate.history.clear()
    assert spare.do("promote", recipe="b") == "done"
    assert all("hold" not in aliases.values() for aliases in spare.gate.history)


@pytest.mark.parametrize("box", ["spare", "full"])
def test_promote_and_roll_back_return_to_the_same_container(box: str, request: pytest.FixtureRequest) -> None:
    world: World = request.getfixturevalue(box)
    first = world.box.store.read().roles["primary"].incumbent
    assert world.do("promote", recipe="b") == "done"
    assert (world.serving(), world.incumbent(), len(world.docker.running())) == ("b", "b", 1)
    assert world.do("rollback") == "done"
    assert world.box.store.read().roles["primary"].incumbent == first
    assert (world.serving(), len(world.docker.running())) == ("a", 1)


def test_exclusive_to_exclusive_never_leaves_the_box_without_a_serve(full: World) -> None:
    """The outage of a promotion whose candidate and rollback are both refused by admission (defect 1)."""
    full.docker.dies.add("b")
    assert full.do("promote", recipe="b") == "undone"
    assert (full.serving(), full.incumbent(), len(full.docker.all)) == ("a", "a", 1)


def test_the_dry_run_fails_where_the_real_run_would(full: World) -> None:
    made = full.plan("load", recipe="b")
    assert "needs the whole box" in made.refusals[0]
    with pytest.raises(Refused, match="needs the whole box"):
        full.do("load", recipe="b")


def test_every_kill_point_of_a_good_promotion_ends_as_its_decision_says(tmp_path: Path) -> None:
    for exclusive in (False, True):
        _kill_everywhere(tmp_path / f"good{exclusive}", exclusive, bad=False)


def test_every_kill_point_of_a_bad_promotion_ends_with_the_incumbent(tmp_path: Path) -> None:
    for exclusive in (False, True):
        _kill_everywhere(tmp_path / f"bad{exclusive}", exclusive, bad=True)


CARD: dict[str, Any] = {"select": (GPU,), "need_free_mib": 90_000}


def _kill_everywhere(tmp: Path, exclusive: bool, bad: bool, gpus: bool = False) -> None:
    card: dict[str, Any] = {"gpus": CARD} if gpus else {}

    def fresh(name: str) -> World:
        folder = tmp / name
        folder.mkdir(parents=True)
        world = World(folder, recipe("a", exclusive=exclusive, **card), recipe("b", exclusive=exclusive, **card))
        _with_a(world)
        world.failing |= {"b"} if bad else set()
        return world

    whole = fresh("whole")
    assert whole.do("promote", recipe="b") == ("undone" if bad else "done")
    points = whole.points
    assert len(points) > 20
    assert any("gateway:between" in p for p in points) == (exclusive or not bad)
    for number, point in enumerate(points):
        recovers: tuple[Mode, Mode] = ("resume", "undo")
        for recover in recovers:
            world = fresh(f"{number}-{recover}")
            assert world.do("promote", kill_at=point, recipe="b") == "killed"
            world.gate.restart()
            forward = world.decision() == "forward"
            ended = world.operate("resume" if forward else recover)
            expected = "b" if forward else "a"
            assert ended == ("done" if forward else "undone"), point
            assert (world.serving(), world.incumbent(), len(world.docker.running())) == (expected, expected, 1), (
                point
            )
            assert world.gate.file == world.gate.live


def test_every_kill_point_on_a_full_gpu_box_ends_as_its_decision_says(tmp_path: Path) -> None:
    """The incumbent holds the card: a way back that asks for a free card while it runs would never end."""
    for bad in (False, True):
        _kill_everywhere(tmp_path / f"gpu{bad}", True, bad, gpus=True)


def test_every_kill_point_of_a_rollback_ends_as_its_decision_says(tmp_path: Path) -> None:
    def fresh(name: str) -> World:
        (tmp_path / name).mkdir()
        world = World(tmp_path / name, recipe("a", exclusive=True), recipe("b", exclusive=True))
        _with_a(world)
        assert world.do("promote", recipe="b") == "done"
        return world

    whole = fresh("whole")
    assert whole.do("rollback") == "done"
    for number, point in enumerate(whole.points):
        world = fresh(str(number))
        assert world.do("rollback", kill_at=point) == "killed"
        expected = "a" if world.decision() == "forward" else "b"
        world.operate("resume")
        assert (world.serving(), world.incumbent(), len(world.docker.running())) == (expected, expected, 1), point


def test_a_second_kill_during_the_way_back_still_comes_home(full: World) -> None:
    full.failing.add("b")
    assert full.do("promote", kill_at="gates:intended", recipe="b") == "killed"
    assert full.operate("resume", kill_at="undo:start-incumbent:acted") == "killed"
    assert full.operate("resume") == "undone"
    assert full.serving() == "a"


def test_undo_does_not_stop_the_serving_candidate_when_the_way_back_is_gone(full: World) -> None:
    """fluxcd/flagger#1931: the only healthy copy must not be killed for a rollback that cannot start."""
    old = full.box.store.read().roles["primary"].incumbent
    assert full.do("promote", kill_at="gates:after", recipe="b") == "killed"
    full.docker.remove(old)
    assert full.operate("undo") == "halted"
    assert [c.labels["anvil.recipe"] for c in full.docker.running()] == ["b"]
    view = fold(full.box.operations.journal(full.last).records())
    assert view and "does not exist any more" in view.why


def test_an_undo_that_fails_twice_halts_and_says_what_is_left(full: World) -> None:
    full.docker.dies.add("b")
    full.docker.refuses_start.add(full.box.store.read().roles["primary"].incumbent)
    assert full.do("promote", recipe="b") == "halted"
    view = fold(full.box.operations.journal(full.last).records())
    assert view and "cannot start" in view.why and view.residue
    assert set(full.gate.live.values()) == {"hold"}


def test_a_candidate_lost_after_the_decision_is_a_second_decision(full: World) -> None:
    assert full.do("promote", kill_at="decide:after", recipe="b") == "killed"
    lost = full.docker.on_port(9132)
    assert lost
    full.docker.stop(lost.id, 1)
    assert full.operate("resume") == "undone"
    assert full.serving() == "a"


def test_wrong_identity_is_never_promoted(spare: World) -> None:
    spare.wrong_identity.add("b")
    assert spare.do("promote", recipe="b") == "undone"
    view = fold(spare.box.operations.journal(spare.last).records())
    assert view and "identity_mismatch" in view.why and spare.serving() == "a"


def test_an_engine_that_is_healthy_but_silent_is_never_ready(spare: World) -> None:
    """O-45, vllm-project/vllm#39863: health and models answer, nothing is generated."""
    spare.silent.add("b")
    assert spare.do("promote", recipe="b") == "undone"
    assert spare.serving() == "a"


def test_a_load_that_outlasts_its_deadline_is_named_with_its_last_progress_and_may_be_tried_again(
    spare: World,
) -> None:
    """O-104: not crashed and not unhealthy; the process is stopped by its id, and nothing has to be edited."""
    spare.silent.add("b")
    spare.docker.log = "Loading safetensors checkpoint shards:  78% Completed | 7/9 [01:52<00:32, 16.0s/it]"
    assert spare.do("promote", recipe="b") == "undone"
    view = fold(spare.box.operations.journal(spare.last).records())
    assert view and "start_timeout" in view.why and "last progress weights 7/9 (78 %)" in view.why
    assert "not within 5 s" in view.why and "raise launch.start_deadline_s" in view.why
    assert spare.serving() == "a" and not view.residue
    spare.silent.clear()
    assert spare.do("promote", recipe="b") == "done"


def test_a_drain_that_times_out_puts_everything_back_and_cuts_nothing(full: World) -> None:
    full.gate.in_flight["primary-a"] = 1
    assert full.do("promote", recipe="b") == "undone"
    assert (full.serving(), full.gate.severed) == ("a", [])
    view = fold(full.box.operations.journal(full.last).records())
    assert view and "drain_timeout" in view.why


def test_an_unknown_count_is_not_zero(full: World) -> None:
    full.gate.in_flight["primary-a"] = None
    assert full.do("drain", role="primary") == "undone"


def test_sever_cuts_only_when_asked(full: World) -> None:
    full.gate.in_flight["primary-a"] = 2
    assert full.do("drain", role="primary", on_timeout="sever") == "done"
    assert full.gate.severed == ["primary-a-0", "primary-a-1"]


def test_a_serve_that_does_not_finish_after_a_promotion_is_left_running_and_listed(spare: World) -> None:
    spare.gate.in_flight["primary-a"] = 1
    assert spare.do("promote", recipe="b") == "done"
    view = fold(spare.box.operations.journal(spare.last).records())
    assert view and "still runs" in view.residue[0] and len(spare.docker.running()) == 2


def test_quiesce_readmit_and_unload(spare: World) -> None:
    assert spare.do("quiesce", role="primary") == "done"
    assert set(spare.gate.live.values()) == {"hold"}
    assert spare.do("readmit", role="primary") == "done"
    serve = spare.box.store.read().roles["primary"].incumbent
    assert spare.do("unload", container_id=serve) == "done"
    assert (spare.gate.live["llm.primary"], spare.docker.running()) == ("none", [])
    assert spare.do("rollback") == "done"
    assert spare.serving() == "a"


def test_load_qualify_promote_by_hand(spare: World) -> None:
    assert spare.do("load", recipe="b") == "done"
    made = spare.plan("promote", recipe="b")
    assert "not qualified" in made.refusals[0]
    loaded = next(s for s in spare.box.store.read().serves.values() if s.recipe_id == "b")
    assert spare.do("qualify", container_id=loaded.container_id) == "done"
    assert spare.do("promote", recipe="b") == "done"
    assert spare.box.store.read().roles["primary"].incumbent == loaded.container_id


def test_a_lesser_suite_takes_no_qualification_away(spare: World) -> None:
    """Who passed the role's own suite is judged by it on the way back, whatever was asked of it since."""
    (small,) = spare.box.suites()
    assert small.suite
    quick = SuiteFile("quick", small.suite.model_copy(update={"id": "quick"}))
    spare.box = replace(spare.box, suites=lambda: (small, quick))
    assert spare.do("promote", recipe="b") == "done"
    serve = spare.box.store.read().roles["primary"].incumbent
    before = spare.box.store.read().serves[serve]
    assert before.qualified_suite == "small"
    assert spare.do("qualify", container_id=serve, suite="quick") == "done"
    assert spare.box.store.read().serves[serve] == before
    assert spare.do("qualify", container_id=serve, suite="small") == "done"
    assert spare.box.store.read().serves[serve].qualified_by == spare.last


def test_a_plan_made_before_somebody_elses_change_is_refused(spare: World) -> None:
    spare.last = prepare(spare.box, spare.plan("promote", recipe="b"))
    mine = spare.last
    assert spare.do("quiesce", role="primary") == "done"
    spare.last = mine
    assert spare.operate("start") == "undone"
    view = fold(spare.box.operations.journal(mine).records())
    assert view and view.why.startswith("refused before step 1") and view.steps[0].state == "pending"


def test_an_unfinished_operation_blocks_the_next_until_it_is_recovered(full: World) -> None:
    assert full.do("promote", kill_at="drain:after", recipe="b") == "killed"
    made = full.plan("quiesce", role="primary")
    assert "operations resume" in made.refusals[0]
    assert full.operate("resume") == "undone"
    assert not full.plan("quiesce", role="primary").refusals


def test_cancel_goes_back_before_the_decision(full: World) -> None:
    full.last = prepare(full.box, full.plan("promote", recipe="b"))
    full.box.operations.ask_cancel(full.last, "wrong recipe")
    assert full.operate("start") == "undone"
    view = fold(full.box.operations.journal(full.last).records())
    assert view and view.why == "wrong recipe" and full.serving() == "a"


def test_the_incumbent_that_someone_replaced_is_named(full: World) -> None:
    old = full.box.store.read().roles["primary"].incumbent
    full.docker.remove(old)
    assert "no way back" in full.plan("promote", recipe="b").refusals[0]


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("glm53-393k-c1-adaptive-mtp", "adaptive-mtp"),
        ("smollm2-135m-x8k", "135m-x8k"),
        ("org/model", "model"),
        ("ab", "ab"),
        ("", ""),
    ],
)
def test_the_word_to_confirm_is_the_end_of_the_served_name(name: str, word: str) -> None:
    assert last_segment(name) == word


@pytest.fixture
def card(tmp_path: Path) -> World:
    """A full box whose one GPU the incumbent holds."""
    return _with_a(World(tmp_path, *(recipe(n, exclusive=True, gpus=CARD) for n in ("a", "b"))))


def test_a_drain_time_out_on_a_gpu_box_readmits_the_incumbent_that_holds_the_card(card: World) -> None:
    card.gate.in_flight["primary-a"] = 1
    assert card.do("promote", recipe="b") == "undone"
    assert (card.serving(), card.gate.severed) == ("a", [])


def test_a_recipe_larger_than_the_card_is_refused_before_anything_stops(card: World) -> None:
    card.recipes.append(recipe("huge", exclusive=True, gpus={**CARD, "need_free_mib": 98_000}))
    assert "can never start here" in card.plan("promote", recipe="huge").refusals[0]


@pytest.mark.parametrize("point", ["ready:intended", "flip:intended", "stop-incumbent:intended"])
def test_a_moment_without_docker_or_gateway_is_waited_out(full: World, point: str) -> None:
    full.last = prepare(full.box, full.plan("promote", recipe="b"))

    def silence(at: str) -> None:
        if at == point:
            full.docker.silent_calls = full.gate.silent_calls = 6

    ended = operate(
        full.box, full.controls, full.last, "start", pid=1, interrupted=lambda: None, checkpoint=silence
    )
    assert (ended, full.serving()) == ("done", "b")


def test_halted_blocks_the_next_plan_and_can_be_taken_up_again(full: World) -> None:
    incumbent = full.box.store.read().roles["primary"].incumbent
    full.failing.add("b")
    full.docker.refuses_start.add(incumbent)
    assert full.do("promote", recipe="b") == "halted"
    assert "no good end" in full.plan("readmit", role="primary").refusals[0]
    full.docker.refuses_start.clear()
    assert full.operate("resume") == "undone"
    assert (full.serving(), full.incumbent()) == ("a", "a")
    assert not full.plan("quiesce", role="primary").refusals


def test_a_person_can_accept_what_cannot_be_undone(full: World) -> None:
    full.failing.add("b")
    full.docker.refuses_start.add(full.box.store.read().roles["primary"].incumbent)
    assert full.do("promote", recipe="b") == "halted"
    accept(full.box, full.last, "moved the box's work elsewhere")
    assert not [r for r in full.plan("quiesce", role="primary").refusals if "good end" in r]


def test_a_running_container_of_ours_that_is_not_on_record_is_named(full: World) -> None:
    full.docker.sneak("b", 9132)
    assert "not on record" in full.plan("promote", recipe="b").refusals[0]


def test_a_port_that_somebody_has_is_found_before_anything_that_serves_is_touched(
    full: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O-25: a promotion once held the traffic and stopped the incumbent, to find the candidate's port taken."""
    real = full.read

    def read(kind: object = None, port: int = 0) -> Any:
        seen = real(kind, port)
        return dataclasses.replace(seen, http="ready") if port == 9132 else seen

    monkeypatch.setattr(full, "read", read)
    full.gate.history.clear()
    before = full.docker.running()
    assert full.do("promote", recipe="b") == "undone"
    view = fold(full.box.operations.journal(full.last).records())
    assert view and "port 9132 answers already (ready) and nothing was created" in view.why
    assert full.docker.running() == before and len(full.docker.all) == 1
    assert all("hold" not in aliases.values() for aliases in full.gate.history)


def test_a_port_that_answers_already_is_never_taken_for_the_candidate(spare: World) -> None:
    spare.last = prepare(spare.box, spare.plan("promote", recipe="b"))
    stranger = spare.docker.sneak("a", 9132)
    spare.docker.all[stranger.id] = dataclasses.replace(stranger, labels={"anvil.recipe": "b"})
    assert spare.operate("start") == "undone"
    view = fold(spare.box.operations.journal(spare.last).records())
    assert view and "answers already" in view.why and spare.serving() == "a"


@pytest.mark.parametrize(("box", "point"), [("full", "record:after"), ("spare", "retire:acted")])
def test_a_candidate_lost_after_it_was_recorded_leaves_record_and_box_as_before(
    box: str, point: str, request: pytest.FixtureRequest
) -> None:
    world: World = request.getfixturevalue(box)
    before = world.box.store.read().roles
    assert world.do("promote", kill_at=point, recipe="b") == "killed"
    lost = world.docker.on_port(9132)
    assert lost
    world.docker.stop(lost.id, 1)
    assert world.operate("resume") == "undone"
    assert (world.serving(), world.incumbent()) == ("a", "a")
    assert world.box.store.read().roles == before
    assert not world.plan("promote", recipe="b").refusals


def test_aliases_never_point_at_what_the_way_back_stops(spare: World) -> None:
    assert spare.do("promote", kill_at="flip:after", recipe="b") == "killed"
    spare.silent.add("b")
    stopped_while: list[set[str]] = []
    stop = spare.docker.stop

    def watch(container_id: str, grace_s: int) -> None:
        stopped_while.append(set(spare.gate.live.values()))
        stop(container_id, grace_s)

    spare.docker.stop = watch  # type: ignore[method-assign]
    assert spare.operate("resume") == "undone"
    assert stopped_while == [{"primary-a"}]


def test_one_slow_answer_does_not_reverse_a_decided_promotion(full: World) -> None:
    assert full.do("promote", kill_at="verify:after", recipe="b") == "killed"
    full.slow_answers = 1
    assert full.operate("resume") == "done"
    assert full.serving() == "b"


def test_unload_waits_for_what_a_held_incumbent_still_answers(spare: World) -> None:
    assert spare.do("quiesce", role="primary") == "done"
    spare.gate.in_flight["primary-a"] = 3
    serve = spare.box.store.read().roles["primary"].incumbent
    assert spare.plan("unload", container_id=serve).confirm_word
    assert spare.do("unload", container_id=serve) == "undone"
    assert len(spare.docker.running()) == 1


@pytest.mark.parametrize("line", [0, 3])
def test_a_damaged_journal_is_never_guessed_at(full: World, line: int) -> None:
    assert full.do("promote", kill_at="stop-incumbent:after", recipe="b") == "killed"
    path = full.tmp / "operations" / full.last / "journal.ndjson"
    rows = path.read_bytes().split(b"\n")
    rows[line] = rows[line][:10] + b"\x00" + rows[line][11:]
    path.write_bytes(b"\n".join(rows))
    assert "no good end" in full.plan("quiesce", role="primary").refusals[0]
    with pytest.raises(Refused, match=rf"journal.ndjson: line {line + 1} is damaged"):
        full.operate("resume")


def test_one_dead_alias_fails_the_verification(full: World) -> None:
    full.dead_aliases.add("llm.secondary")
    assert full.do("promote", recipe="b") != "done"


def test_a_failed_qualification_takes_an_earlier_one_back(spare: World) -> None:
    assert spare.do("load", recipe="b") == "done"
    loaded = next(s for s in spare.box.store.read().serves.values() if s.recipe_id == "b")
    assert spare.do("qualify", container_id=loaded.container_id) == "done"
    spare.failing.add("b")
    assert spare.do("qualify", container_id=loaded.container_id) == "undone"
    assert "not qualified" in spare.plan("promote", recipe="b").refusals[0]


def test_a_log_that_cannot_be_kept_does_not_stop_the_way_back(full: World) -> None:
    full.failing.add("b")

    def no_space(operation: str, name: str, text: str) -> str:
        raise EffectFailed("not saved: no space")

    full.box.operations.save = no_space  # type: ignore[method-assign]
    assert full.do("promote", recipe="b") == "undone"
    assert full.serving() == "a"


def test_an_engine_that_dies_after_the_decision_gets_no_alias(full: World) -> None:
    operation = full.last = prepare(full.box, full.plan("promote", recipe="b"))

    def checkpoint(at: str) -> None:
        if at == "decide:after":
            full.docker.stop(full.docker.running()[0].id, 0)

    ended = operate(
        full.box, full.controls, operation, pid=1, interrupted=lambda: None, checkpoint=checkpoint
    )  # fmt: skip
    assert (ended, full.serving()) == ("undone", "a")
    assert [set(aliases.values()) for aliases in full.gate.history] == [{"primary-a"}, {"hold"}, {"primary-a"}]
