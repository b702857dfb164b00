"""Alarms as drawn: counted, named, never hidden behind what says the same, never by colour alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from anvil_tui.core.alarms import Alarm
from anvil_tui.core.world import World
from anvil_tui.ui.presenters import alarms, header, lifecycle, operations, standing, tiny
from anvil_tui.ui.presenters.cells import Cell, Row, View, width_of
from tests.support import worlds
from tests.support.worlds import UUIDS


def text(rows: Iterable[Row]) -> str:
    return "\n".join("".join(c.text for c in r.cells) for r in rows)


def words(cells: Iterable[Cell]) -> str:
    return "".join(c.text for c in cells)


def acked(world: World) -> World:
    return replace(world, alarms=tuple(replace(a, acked_by="ana", acked_at=worlds.at(1)) for a in world.alarms))


def test_the_header_counts_by_severity_in_words_at_every_width() -> None:
    world = worlds.alarmed()
    assert words(alarms.counts(world, 0)) == "ALARMS ✖ 1 bad ▲ 1 warn +1 acked"
    assert words(alarms.counts(world, 2)) == "ALARMS ✖1 bad ▲1 warn"
    assert words(alarms.counts(acked(world), 0)) == "3 alarms acked"
    assert alarms.counts(worlds.calm(), 0) == []
    for width in (60, 80, 100, 120, 200):
        row = header.header(world, View(), width)
        assert width_of(row.cells) <= width
        assert "1 bad" in words(row.cells), width


def test_the_strip_names_it_and_still_says_what_comes_next() -> None:
    first, second = lifecycle.strip(worlds.alarmed(), View(), 120, lambda verb: None)
    assert "ALARM (+1): GPU 1 compute-b" in text([first]) and "! acknowledge" in text([first])
    assert "next" in text([second])
    first, _ = lifecycle.strip(acked(worlds.alarmed()), View(), 120, lambda verb: None)
    assert "ALARM" not in text([first])
    first, _ = lifecycle.strip(worlds.alarmed(read_only=True), View(), 120, lambda verb: None)
    assert "ALARM" in text([first]) and "acknowledge" not in text([first])


def test_an_open_operation_keeps_its_strip_and_alarms_stand_over_the_events() -> None:
    world = replace(worlds.promoting(), alarms=worlds.alarmed().alarms)
    assert "ALARM" not in text(lifecycle.strip(world, View(), 120, lambda verb: None))
    rows = operations.events_panel(world, View(), 116, 20).rows
    assert "ALARM since" in text(rows[:1]) and "compute-b" in text(rows[:1])


def test_a_problem_that_an_alarm_tells_is_not_told_twice_over_the_events() -> None:
    world = worlds.alarmed()
    assert any(UUIDS[1] in p for p in world.problems)
    shown = text(operations.events_panel(world, View(), 200, 20).rows)
    assert shown.count("is lost: ") == 1 and f"({UUIDS[1][:12]}) is lost" in shown
    others = [p for p in world.problems if not p.startswith("GPU 1 ")]
    assert others and all(p[:60] in shown for p in others), "what no alarm tells stays"
    after = text(operations.events_panel(acked(world), View(), 200, 20).rows)
    assert f"GPU 1 ({UUIDS[1]}) is lost" in after and "ALARM" not in after


def test_many_alarms_leave_room_for_events() -> None:
    many = tuple(
        Alarm(f"kv:{n}", "kv", f"{n}", "warn", worlds.at(n), f"serve {n}: KV pool 97 % in use") for n in range(30)
    )
    rows = operations.events_panel(replace(worlds.calm(), alarms=many), View(), 116, 20).rows
    assert "and 26 alarms more: 8 shows all" in text(rows)


def test_standing_has_those_first_that_nobody_has_seen() -> None:
    panel = standing.list_panel(worlds.alarmed(), View(), 100, 30)
    keys = [r.key for r in panel.rows if r.key.startswith("alarm:")]
    assert keys == [f"alarm:gpu:{UUIDS[1]}", "alarm:rollback:primary", f"alarm:throttle:{UUIDS[0]}"]
    assert panel.rows[0].cells[0].text == "Alarms"
    detail = standing.detail_panel(worlds.alarmed(), View(standing=keys[2]), 100, 30)
    assert "acknowledged by ana" in " ".join(text(detail.rows).split())
    assert "kept by watch, anvil, pid 811" in text(detail.rows)


def test_the_smallest_layout_begins_with_it_while_the_strip_is_an_operations() -> None:
    world = replace(worlds.promoting(), alarms=worlds.alarmed().alarms)
    rows = tiny.panel(world, View(), 40, 10).rows
    assert "✖ ALARM (+1): GPU 1" in text(rows[:1])
    assert all(width_of(r.cells) <= 40 for r in rows)


@pytest.mark.parametrize("width", [12, 40, 80, 120])
def test_foreign_text_in_an_alarm_is_data(width: int) -> None:
    nasty = "[bold]\x1b[31m[/x]\x00 漢字 " + "a" * 5000
    bad = Alarm("kv:x", "kv", "x", "bad", worlds.at(5), nasty, nasty, "no time")
    world = replace(worlds.calm(), alarms=(bad, replace(bad, id="kv:y", acked_by="", since="never")))
    rows = [*alarms.event_rows(world, View(), width), *alarms.list_rows(world, View(), width)]
    rows += [*alarms.detail_rows(world, View(), "kv:x", width)]
    assert "\x1b" not in text(rows) and "\x00" not in text(rows)
    assert all(width_of(r.cells) <= max(width, 21) for r in rows)
