"""What a person reads while an operation hangs, was broken off or goes back: it must be true then, too."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC

import pytest

from anvil_tui.core.journal import OperationView, Record, StepView, fold
from anvil_tui.core.recording import Index, Kept, Sample, Span
from anvil_tui.core.shelf import RunFiles, Shelf
from anvil_tui.core.standing import Check
from anvil_tui.core.world import OPERATION_LABEL, BoxRecord, Readiness, World
from anvil_tui.ui.presenters import (
    gate_table,
    gates,
    gateway,
    header,
    history,
    lifecycle,
    operations,
    serves,
    standing,
)
from anvil_tui.ui.presenters.cells import Panel, Row, View
from tests.support import worlds

VIEW = View(zone=UTC)


def line(row: Row) -> str:
    return "".join(c.text for c in row.cells)


def words(panel: Panel) -> str:
    return "\n".join(line(r) for r in panel.rows)


def with_operation(world: World, **more: object) -> World:
    *before, last = world.operations
    return replace(world, operations=(*before, replace(last, **more)))  # type: ignore[arg-type]


def done(name: str, seconds_ago: float) -> StepView:
    return StepView(name, name, "done", worlds.at(seconds_ago + 1), worlds.at(seconds_ago), 30)


class TestHeldSince:
    """Requests wait since the first hold, whatever holds again what is held."""

    @pytest.mark.parametrize(
        ("steps", "undo", "since"),
        [
            ([("hold", 100)], [], "1 min 40 s"),
            ([("hold", 100)], [("undo:hold", 3)], "1 min 40 s"),
            ([("hold", 100), ("flip", 60)], [("undo:hold", 3)], "3 s"),
            ([("hold", 200), ("flip", 150), ("hold-home", 50)], [], "50 s"),
            ([("hold", 200)], [("undo:aliases", 150)], ""),
        ],
    )
    def test_within_one_operation(
        self, steps: list[tuple[str, float]], undo: list[tuple[str, float]], since: str
    ) -> None:
        world = with_operation(
            worlds.promoting(),
            steps=tuple(done(*s) for s in steps),
            undo_steps=tuple(done(*s) for s in undo),
        )
        assert header.held_for(world, "primary") == since

    def test_over_a_quiesce_and_the_promotion_after_it(self) -> None:
        world = worlds.promoting()
        quiesce = OperationView(
            "q", "quiesce", "primary", role="primary", steps=(done("hold", 900),), outcome="done"
        )
        promote = replace(world.operations[-1], steps=(done("drain", 20),))
        assert header.held_for(replace(world, operations=(quiesce, promote)), "primary") == "15 min 00 s"

    def test_one_that_a_person_put_right_by_hand_says_nothing(self) -> None:
        assert (
            header.held_for(with_operation(worlds.promoting(), outcome="halted", accepted=True), "primary") == ""
        )


class TestBrokenOff:
    def test_no_gate_runs_on_without_its_process(self) -> None:
        text = words(gates.panel(worlds.interrupted(), VIEW, 60, 20))
        assert "▲ tools" in text and "broken off" in text and "running" not in text
        assert "pending" in text and "not run" not in text

    def test_a_gate_that_had_begun_was_not_not_run(self) -> None:
        world = with_operation(worlds.interrupted(), outcome="undone", decision="undo")
        text = words(gates.panel(world, VIEW, 60, 20))
        assert "broken off" in text and "not run" in text and "pending" not in text
        last = world.operations[-1].id
        view = replace(VIEW, gate="tools", operation=last, shelf=Shelf(run=RunFiles(last)))
        detail = gate_table.detail(world, view, 100, 30)
        assert "None: it did not end." in words(detail)

    def test_it_says_where_it_stopped(self) -> None:
        world = with_operation(worlds.interrupted(), last_note="")
        text = words(operations.events_panel(world, VIEW, 160, 20))
        assert "INTERRUPTED at: run the gates of suite promotion" in text

    def test_after_the_decision_there_is_one_way(self) -> None:
        world = with_operation(worlds.interrupted(), decision="forward")
        next_deed = line(lifecycle.strip(world, VIEW, 120, lambda verb: None)[1])
        assert "r resume" in next_deed and "undo" not in next_deed


def test_a_count_of_steps_that_is_not_known_is_no_zero() -> None:
    world = with_operation(worlds.promoting(), steps=(), gates=(), last_note="")
    text = words(operations.events_panel(world, VIEW, 120, 20))
    assert "starting" in text and "0/0" not in text
    assert "0/0" not in line(lifecycle.strip(world, VIEW, 120, lambda verb: None)[0])


def test_what_a_step_waited_for_is_no_word_about_the_step_that_is_done() -> None:
    begin = {"op": "o", "kind": "promote", "target": "t", "steps": [{"name": "ready", "title": "ready"}]}
    waits = Record(3, worlds.at(8), "progress", "ready", {"text": "http refused", "waiting": True})
    kept = Record(4, worlds.at(7), "progress", "ready", {"text": "cut 2 requests"})
    head = (Record(1, worlds.at(10), "begin", "", begin), Record(2, worlds.at(9), "intent", "ready", {}))
    end = Record(5, worlds.at(6), "done", "ready", {})
    running, ended, told = fold((*head, waits)), fold((*head, waits, end)), fold((*head, waits, kept, end))
    assert running and running.last_note == "http refused"
    assert ended and ended.steps[0].state == "done" and ended.steps[0].note == ""
    assert told and told.steps[0].note == "cut 2 requests"


def test_what_runs_in_the_slots_stands_in_one_column() -> None:
    world = worlds.calm()
    now = world.gateway.value
    assert now is not None
    short, *rest = now.backends
    backends = (replace(short, address="127.0.0.1:80"), *(replace(b, address="127.0.0.1:33471") for b in rest))
    world = replace(world, gateway=replace(world.gateway, value=replace(now, backends=backends)))
    rows = [line(r) for r in gateway.panel(world, VIEW, 110, 30).rows]
    starts = [r.index(word) for r in rows for word in ("empty", "glm53-") if "127.0.0.1" in r and word in r]
    assert len(starts) == len(backends) > 1 and len(set(starts)) == 1


def test_a_blank_in_a_figure_is_a_gap_in_the_recording() -> None:
    """Samples stand a minute apart: each lasts until the next one, and none beyond its span."""
    begin = worlds.at(600)
    spans = (Span(begin, worlds.at(400), 9, "a"), Span(worlds.at(200), worlds.at(0), 9, "b", "not recorded"))
    samples = tuple(Sample(worlds.at(s), 0.5, 0.5, 1) for s in (600, 540, 480, 420, 200, 140, 80, 20))
    view = replace(VIEW, shelf=Shelf(history=Kept("x", Index(spans, samples), 1, "")))
    drawn = [line(r) for r in history.moments_panel(worlds.calm(), view, 76, 20).rows[1:5]]
    rows = {text[:9].strip(): text[9:69] for text in drawn}
    for name in ("VRAM", "KV", "requests"):
        assert [c == " " for c in rows[name]] == [c == " " for c in rows["recorded"]]
    assert " " in rows["recorded"].strip()


class TestWhoseContainer:
    """A console that was opened in another folder sees containers with our labels and no record of them."""

    @pytest.mark.parametrize("known", [True, False])
    def test_it_is_a_candidate_only_of_an_operation_that_is_known(self, known: bool) -> None:
        world = worlds.promoting()
        by = world.operations[-1].id if known else "20200101-somebody"
        held = replace(world.serves[0].container, labels={OPERATION_LABEL: by})
        serve = replace(world.serves[0], record=None, position="candidate", container=held)
        said = "".join(c.text for c in serves.place(world, serve))
        assert said == ("candidate, not on record yet" if known else "made by an operation unknown here")

    def test_without_a_workspace_it_is_another_folders(self) -> None:
        world = worlds.promoting()
        bare = replace(world, workspace=world.workspace.model_copy(update={"roles": ()}))
        serve = replace(world.serves[0], record=None, position="candidate")
        assert "another folder" in "".join(c.text for c in serves.place(bare, serve))


class TestStanding:
    def test_a_way_back_that_an_operation_stands_in_is_not_judged(self) -> None:
        """Ports and memory that it holds for a while are no fault of the way back."""
        refused = Readiness("glm53-1m", ("gpus: too little is free",), (Check("gpus", "missing", "too little"),))
        busy = replace(worlds.promoting(), rollbacks={"primary": refused})
        text = words(standing.list_panel(busy, VIEW, 100, 40))
        assert "told again when the operation has ended" in text and "too little" not in text
        assert "too little" in words(standing.list_panel(replace(busy, operations=()), VIEW, 100, 40))

    def test_a_problem_is_read_to_its_end(self) -> None:
        told = "operation 20261130T032337276-promote-7d3026 (promote a to b) was interrupted: resume or undo it"
        drawn = standing.list_panel(replace(worlds.calm(), problems=(told,)), VIEW, 58, 40)
        assert "resume or undo it" in words(drawn)
        assert len({r.key for r in drawn.rows if r.key.startswith("problem:")}) == 1


class TestTheFirstSecond:
    """Containers are read, `state/` is not yet; before that nothing is, not even the time."""

    def test_nothing_serves_only_by_the_record(self) -> None:
        unread = replace(worlds.calm(), record=BoxRecord(), serves=())
        assert "primary ? UNKNOWN" in line(header.header(unread, VIEW, 120))
        assert "nothing serves" in line(header.header(replace(unread, kept_alarms=()), VIEW, 120))
        assert "nothing serves" in line(header.header(replace(unread, replayed=True), VIEW, 120))

    def test_no_time_is_no_midnight(self) -> None:
        assert "00:00:00" not in line(header.header(World(worlds.workspace(), False), VIEW, 120))
