"""What a filter shows and never hides; since when traffic is held; whose operation moved a plan's facts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from anvil_tui.core.alarms import Alarm
from anvil_tui.core.reading import Reading
from anvil_tui.core.serves import derive
from anvil_tui.core.world import Lease, World
from anvil_tui.ui.presenters import compare, header, operations, plans, recipes, serves
from anvil_tui.ui.presenters.cells import Panel, View
from tests.support import measured, worlds

SERVING, BACK = worlds.cid(worlds.CANDIDATE), worlds.cid(worlds.INCUMBENT)


def filtered(name: str, text: str) -> View:
    return View(filters=((name, text),))


def shown(world: World) -> set[str]:
    return {s.container.id for s in serves.shown(world, filtered("serves", "zzz"))}


def test_a_filter_hides_serves_that_nobody_has_to_watch() -> None:
    world = worlds.calm()
    assert world.alarms == () and world.problems == ()
    assert shown(world) == set()


def test_it_never_hides_a_serve_of_an_open_operation() -> None:
    assert SERVING in shown(worlds.promoting())
    assert SERVING in shown(worlds.interrupted())


def test_it_never_hides_a_serve_with_an_alarm() -> None:
    alarm = Alarm(f"kv:{BACK}", "kv", BACK, "warn", worlds.at(60), "KV nearly full")
    assert shown(replace(worlds.calm(), alarms=(alarm,))) == {BACK}


@pytest.mark.parametrize("named", [worlds.INCUMBENT, BACK[:12]])
def test_it_never_hides_a_serve_that_a_problem_names(named: str) -> None:
    assert shown(replace(worlds.calm(), problems=(f"{named} differs from its record",))) == {BACK}


def test_it_never_hides_an_operation_that_waits_for_a_person() -> None:
    halted = replace(worlds.qualified(), outcome="halted")
    world = replace(worlds.calm(), operations=(halted, worlds.promoted()))
    assert [o.id for o in operations.shown(world, filtered("operations", "zzz"))] == [halted.id]


Build = Callable[[World, View, int, int], Panel]


@pytest.mark.parametrize(
    ("build", "name", "text", "title"),
    [
        (serves.panel, "serves", "393k", 'Serves filter "393k" 1/2'),
        (recipes.list_panel, "recipes", "499k", 'Recipes filter "499k" 2/12'),
        (operations.list_panel, "operations", "promote", 'Operations filter "promote" 1/2'),
        (operations.list_panel, "operations", "", "Operations 2"),
        (operations.list_panel, "operations", "[/x]", 'Operations filter "[/x]" 0/2'),
    ],
)
def test_the_title_says_the_filter_and_how_many_of_how_many(
    build: Build, name: str, text: str, title: str
) -> None:
    assert build(worlds.calm(), filtered(name, text), 100, 20).title == title


def test_a_bundle_that_cannot_be_read_is_counted_and_no_filter_hides_it() -> None:
    world = replace(measured.shelf_of_bundles(), broken_bundles={"20260901-x": "manifest.json is missing"})
    whole = len(world.pasts)
    panel = compare.list_panel(world, View(), 120, 20)
    assert panel.title == f"Bundles {whole + 1}" and len(panel.rows) == whole + 1
    panel = compare.list_panel(world, filtered("bundles", "zzz"), 120, 20)
    assert panel.title == f'Bundles filter "zzz" 1/{whole + 1}'
    assert [r.key for r in panel.rows] == ["20260901-x"]


def words(world: World, width: int) -> str:
    return "".join(c.text for c in header.header(world, View(zone=None), width).cells)


def test_held_traffic_says_for_how_long() -> None:
    """The step that held it ended 375 s before now."""
    assert "HELD 6 min 15 s, 3 waiting" in words(worlds.promoting(), 120)
    assert "HELD, 3 waiting" in words(worlds.promoting(), 60), "the least room keeps the count"


def test_held_by_nobody_known_says_no_time() -> None:
    held = Reading.known(worlds.gateway("hold", held=1), worlds.NOW_S, "haproxy")
    world = derive(replace(worlds.calm(), gateway=held, operations=()))
    assert "HELD, 1 waiting" in words(world, 120)


def test_the_mover_of_a_plans_facts_is_the_operation_that_came_further() -> None:
    before, running = worlds.calm(), worlds.promoting()
    assert plans.mover(before, before) == ""
    assert plans.mover(before, running) == "promote 20260902-1150-promote of sekou"
    lease = Lease("20260902-1150-promote", 4300, "kai", worlds.at(420), "box-b")
    assert plans.mover(before, replace(running, lease=lease)) == "promote 20260902-1150-promote of kai@box-b"
    ended = replace(running.operations[-1], outcome="done")
    after = replace(running, operations=(*running.operations[:-1], ended), lease=None)
    assert plans.mover(running, after) == "promote 20260902-1150-promote of sekou", "by the lease it had"
