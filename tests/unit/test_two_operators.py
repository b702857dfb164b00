"""Two operators on one box: the second is told what moved, and a process that was replaced does nothing more."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.core.errors import EffectFailed, NotFound, Refused, Stale
from anvil_tui.core.journal import OperationView, fold
from anvil_tui.core.moved import moved
from anvil_tui.core.plan import Plan, Step, Verb
from anvil_tui.core.world import BoxRecord
from anvil_tui.service.executor import Executor
from anvil_tui.service.operation import Mode, operate, prepare
from anvil_tui.service.run import Run
from anvil_tui.service.steering import cancel, live, pause
from tests.support.membox import World, recipe


@pytest.fixture
def spare(tmp_path: Path) -> World:
    world = World(tmp_path, recipe("a"), recipe("b"))
    assert world.do("promote", recipe="a") == "done"
    return world


def view(world: World, operation: str = "") -> OperationView:
    found = fold(world.box.operations.journal(operation or world.last).records())
    assert found is not None
    return found


def serve(world: World, name: str) -> str:
    return next(i for i, s in world.box.store.read().serves.items() if s.recipe_id == name)


# a plan made before somebody else's change


TARGETS: dict[Verb, Callable[[World], dict[str, Any]]] = {
    "load": lambda world: {"recipe": "b"},
    "unload": lambda world: {"container_id": serve(world, "a")},
    "qualify": lambda world: {"container_id": serve(world, "a")},
    "quiesce": lambda world: {"role": "primary"},
    "drain": lambda world: {"role": "primary"},
    "readmit": lambda world: {"role": "primary"},
    "promote": lambda world: {"recipe": "b"},
    "rollback": lambda world: {"role": "primary"},
    "drill": lambda world: {"role": "primary"},
}


@pytest.mark.parametrize("verb", TARGETS)
def test_a_plan_of_any_verb_is_refused_with_what_moved_since(spare: World, verb: Verb) -> None:
    if verb in ("rollback", "drill"):
        assert spare.do("promote", recipe="b") == "done"
    other: Verb = "quiesce"
    if verb == "readmit":
        assert spare.do("quiesce", role="primary") == "done"
        other = "readmit"
    mine = prepare(spare.box, spare.plan(verb, **TARGETS[verb](spare)))
    was, before = spare.box.store.read().generation, spare.docker.running()
    assert spare.do(other, role="primary") == "done"
    spare.last = mine
    assert spare.operate("start") == "undone"
    assert view(spare).why.startswith("refused before step 1")
    assert f"generation: was {was}, is {was + 1}" in view(spare).why
    if verb not in ("load", "qualify", "unload"):
        assert "aliases.llm.primary: was " in view(spare).why
    assert spare.docker.running() == before


def test_same_name_new_id_is_never_taken_for_the_old_one(spare: World) -> None:
    """O-20: confirmed after the container was recreated under its name; nothing is done to the new one."""
    old = serve(spare, "a")
    mine = prepare(spare.box, spare.plan("unload", container_id=old))
    seen = spare.docker.all.pop(old)
    fresh = dataclasses.replace(seen, id="2222bbbb" + "0" * 56)
    spare.docker.all[fresh.id] = fresh
    spare.last = mine
    assert spare.operate("start") == "undone"
    assert f"{seen.name} is now 2222bbbb0000, the plan was for {old[:12]}" in view(spare).why
    assert spare.docker.running() == [fresh]


def test_what_moved_is_said_in_words(spare: World) -> None:
    old = spare.plan("promote", recipe="b")
    assert moved(old, spare.plan("promote", recipe="b")) == ()
    assert moved(Plan.from_json(old.to_json()), old) == ()
    spare.docker.stop(serve(spare, "a"), 1)
    assert "incumbent.seen.status: was running, is exited" in moved(old, spare.plan("promote", recipe="b"))
    steps = dataclasses.replace(old, steps=(*old.steps[1:], Step("extra", "decide", "one more", 1)))
    assert moved(old, steps) == (f"step {old.steps[0].name}: not there any more", "step extra: new")
    slower = dataclasses.replace(old.steps[0], deadline_s=7, title="slower")
    changed = dataclasses.replace(old, steps=(slower, *old.steps[1:]))
    assert moved(old, changed) == (f"step {slower.name}: was `{old.steps[0].title}`, is `slower`",)


def test_many_and_long_facts_are_cut_to_what_a_person_reads(spare: World) -> None:
    plan = spare.plan("quiesce", role="primary")
    old = dataclasses.replace(plan, facts={f"k{n:02}": "f" * 64 for n in range(20)} | {"list": []})
    new = dataclasses.replace(plan, facts={f"k{n:02}": "x " * 99 for n in range(20)} | {"list": ["c" * 64]})
    said = moved(old, new)
    assert len(said) == 13 and said[-1] == "and 9 more"
    assert said[0].startswith("k00: was ffffffffffff, is x x") and len(said[0]) < 120
    one = dataclasses.replace(plan, facts={"list": ["c" * 64]})
    assert moved(dataclasses.replace(plan, facts={"list": []}), one) == ("list: was [], is [cccccccccccc]",)


def test_a_plan_that_was_shown_can_be_compared_later(spare: World) -> None:
    made = spare.plan("promote", recipe="b")
    spare.box.operations.keep_shown(made.hash, made.to_json())
    assert spare.do("quiesce", role="primary") == "done"
    shown = spare.box.operations.shown(made.hash)
    assert shown is not None
    assert "aliases.llm.primary: was primary-a, is hold" in moved(
        Plan.from_json(shown), spare.plan("promote", recipe="b")
    )
    for n in range(30):
        spare.box.operations.keep_shown(f"{n:012x}", {"n": n})
    assert len(list((spare.tmp / "plans").iterdir())) == 20
    assert spare.box.operations.shown("../operations") is None and spare.box.operations.shown(f"{1:012x}") is None


# taking over, and being taken over


class Halfway:
    """An operation of another process of this box, which waits at one point until it is let go on."""

    def __init__(self, world: World, point: str, verb: str, **target: Any) -> None:
        self.world, self.point = world, point
        self.operation = world.last = prepare(world.box, world.plan(verb, **target))
        self.there, self.go = threading.Event(), threading.Event()
        self.ended: list[object] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self.there.wait(20)

    def _run(self) -> None:
        box, last = self.world.box, self.operation
        own = dataclasses.replace(box, lease=type(box.lease)(self.world.tmp / "lease"))  # type: ignore[call-arg]
        try:
            asked = partial(box.operations.cancel_asked, last)
            ended = operate(own, self.world.controls, last, pid=41, checkpoint=self._wait, interrupted=asked)
            self.ended.append(ended)
        except Exception as why:
            self.ended.append(why)
        finally:
            self.there.set()

    def _wait(self, at: str) -> None:
        if at == self.point:
            self.there.set()
            assert self.go.wait(20)

    def end(self) -> object:
        self.go.set()
        self._thread.join(20)
        return self.ended[0]


def test_a_live_operation_is_refused_to_others_by_name_and_goes_on(spare: World) -> None:
    running = Halfway(spare, "ready:intended", "load", recipe="b")
    modes: tuple[Mode, Mode] = ("resume", "undo")
    for mode in modes:
        with pytest.raises(Refused, match=rf"operation {running.operation} \(.*pid \d+, since .*; attach with"):
            spare.operate(mode)
    assert live(spare.box, running.operation).state == "running"
    assert running.end() == "done"


@pytest.mark.parametrize(
    ("point", "ends"),
    [
        ("create:acted", "undone"),
        ("start:before", "undone"),
        ("start:intended", "undone"),
        ("ready:before", "undone"),
        ("record:before", "done"),
    ],
)
def test_a_process_that_was_taken_over_stops_before_its_next_effect(spare: World, point: str, ends: str) -> None:
    """A file system without a lease: the lock's file is removed under a process that still lives."""
    stalled = Halfway(spare, point, "load", recipe="b")
    (spare.tmp / "lease").unlink()
    spare.last = stalled.operation
    assert spare.operate("undo") == ends
    records = spare.box.operations.journal(stalled.operation).records()
    started, left = list(spare.docker.started), dict(spare.docker.all)
    ended = stalled.end()
    assert isinstance(ended, Stale) and "stops where it is" in str(ended)
    assert (spare.docker.started, spare.docker.all) == (started, left)
    assert spare.box.operations.journal(stalled.operation).records() == records
    assert spare.box.operations.journal(stalled.operation).damage() == ""
    assert spare.plan("quiesce", role="primary").refusals == ()


def test_a_way_back_needs_no_room_for_another_generation(spare: World) -> None:
    assert spare.do("quiesce", kill_at="decide:before", role="primary") == "killed"
    write = spare.box.store.write

    def full(record: BoxRecord, was: BoxRecord) -> None:
        raise EffectFailed("box.json: not saved: no space")

    spare.box.store.write = full  # type: ignore[method-assign]
    assert spare.operate("undo") == "undone"
    spare.box.store.write = write  # type: ignore[method-assign]


def raised(world: World) -> None:
    """Another process has begun something since."""
    now = world.box.store.read()
    world.box.store.write(dataclasses.replace(now, generation=now.generation + 1), now)


def test_a_long_wait_inside_a_step_is_followed_by_no_stop_of_an_old_generation(spare: World) -> None:
    """Retiring waits for minutes, and ends with a stop."""
    spare.gate.in_flight["primary-a"] = 1
    spare.clock.after(0.5, partial(raised, spare))
    spare.clock.after(0.8, lambda: spare.gate.in_flight.update({"primary-a": 0}))
    with pytest.raises(Stale, match="stops where it is"):
        spare.do("promote", recipe="b", timeout_s=60)
    assert [c.labels["anvil.recipe"] for c in spare.docker.running()] == ["a", "b"]


def test_a_record_of_a_newer_generation_is_not_written(spare: World) -> None:
    """Raised after the fence before the step, and before the record is read to be changed."""
    spare.last = prepare(spare.box, spare.plan("load", recipe="b"))
    store, read, write = spare.box.store, spare.box.store.read, spare.box.store.write
    asked: list[int] = []

    def read_and_raise() -> BoxRecord:
        if spare.points[-1:] == ["record:intended"]:
            asked.append(1)
            if len(asked) == 3:  # look, fence, act
                raised(spare)
        return read()

    store.read = read_and_raise  # type: ignore[method-assign]
    try:
        with pytest.raises(Stale, match="another process has taken over"):
            spare.operate("start")
    finally:
        store.read, store.write = read, write  # type: ignore[method-assign]
    assert [s.recipe_id for s in read().serves.values()] == ["a"]


def test_who_took_over_from_whom_is_in_the_journal(spare: World) -> None:
    assert spare.do("load", kill_at="start:acted", recipe="b") == "killed"
    assert spare.operate("undo") == "undone"
    begun, note = (r.data for r in spare.box.operations.journal(spare.last).records() if "operator" in r.data)
    assert note["generation"] == begun["generation"] + 1 == spare.box.store.read().generation
    assert note["text"] == f"undo by {note['operator']}, process 1; it was {begun['operator']}'s, process 1"


@pytest.mark.parametrize("newer", [0, 1])
def test_an_executor_of_an_old_generation_does_nothing(spare: World, newer: int) -> None:
    plan = spare.plan("quiesce", role="primary")
    spare.box.operations.create("op", plan.to_json())
    record = spare.box.store.read()
    spare.box.store.write(dataclasses.replace(record, generation=record.generation + newer), record)
    journal = spare.box.operations.journal("op")
    run = Run("op", record.generation, "", plan, spare.box, spare.controls, journal, lambda at: None, lambda: None)
    if newer:
        with pytest.raises(Stale, match=rf"generation {record.generation + 1}, op here is {record.generation}"):
            Executor(run).forward()
        assert (journal.records(), spare.gate.live["llm.primary"]) == ((), "primary-a")
    else:
        assert Executor(run).forward() == "done"


def test_a_record_that_moved_between_reading_and_writing_is_not_overwritten(spare: World) -> None:
    """O-91 for the record of the box, in the middle of an operation's own step."""
    spare.last = prepare(spare.box, spare.plan("load", recipe="b"))
    store, read = spare.box.store, spare.box.store.read
    raised: list[int] = []

    def moved_since() -> BoxRecord:
        found = read()
        if any(s.recipe_id == "b" for s in found.serves.values()) or not spare.docker.started[1:] or raised:
            return found
        raised.append(1)
        store.write(dataclasses.replace(found, generation=found.generation + 1), found)
        return found

    store.read = moved_since  # type: ignore[method-assign]
    with pytest.raises(Stale):
        spare.operate("start")
    store.read = read  # type: ignore[method-assign]
    assert spare.operate("undo") == "undone"
    assert [s.recipe_id for s in read().serves.values()] == ["a"]


# both ask at once


def test_the_first_who_asks_is_heard_and_the_second_is_told(spare: World) -> None:
    running = Halfway(spare, "ready:intended", "load", recipe="b")
    pause(spare.box, running.operation, True)
    cancel(spare.box, running.operation, "wrong recipe")
    cancel(spare.box, running.operation, "wrong recipe")
    with pytest.raises(Refused, match="was asked to go back already: wrong recipe"):
        cancel(spare.box, running.operation, "too slow")
    with pytest.raises(Refused, match=r"was asked to go back \(wrong recipe\): it does not go on"):
        pause(spare.box, running.operation, False)
    assert running.end() == "undone"
    assert view(spare).why == "wrong recipe"
    with pytest.raises(Refused, match="is undone and does not run: there is nothing to cancel"):
        cancel(spare.box, running.operation, "again")


def test_a_decided_or_dead_operation_cannot_be_cancelled(spare: World) -> None:
    decided = Halfway(spare, "record:before", "load", recipe="b")
    with pytest.raises(Refused, match=r"has decided \(forward\): it ends by itself"):
        cancel(spare.box, decided.operation, "late")
    assert decided.end() == "done"
    assert spare.do("quiesce", kill_at="hold:before", role="primary") == "killed"
    with pytest.raises(Refused, match=r"is interrupted and does not run: `operations undo"):
        cancel(spare.box, spare.last, "late")
    with pytest.raises(Refused, match="only a running one"):
        pause(spare.box, spare.last, True)
    with pytest.raises(NotFound, match="no operation"):
        cancel(spare.box, "nope", "")


def test_of_two_who_resume_at_once_one_wins_and_the_other_is_told(spare: World) -> None:
    assert spare.do("load", kill_at="start:acted", recipe="b") == "killed"
    ended: list[object] = []
    together = threading.Barrier(2)

    def resume() -> None:
        lease = type(spare.box.lease)(spare.tmp / "lease")  # type: ignore[call-arg]
        own = dataclasses.replace(spare.box, lease=lease)
        together.wait(20)
        try:
            again = partial(operate, own, spare.controls, spare.last, "resume", pid=1)
            ended.append(again(interrupted=lambda: None, checkpoint=lambda at: None))
        except Refused as why:
            ended.append(str(why))

    threads = [threading.Thread(target=resume) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert "undone" in ended
    [told] = [e for e in ended if e != "undone"]
    assert "the box is being changed by operation" in str(told) or "was started before" in str(told)
