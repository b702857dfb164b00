"""The gates screen keeps the running gate in sight; two recipes are marked and compared on the recipes screen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from anvil_tui.core.world import World
from tests.support import measured, worlds
from tests.support.console import console


def running(number: int) -> World:
    """The promotion with so many gates passed and the next one running."""
    world = worlds.promoting()
    gates = worlds.passed_gates(number)
    now = replace(gates[number], verdict="running", done=0)
    operation = replace(world.operations[-1], gates=(*gates[:number], now, *gates[number + 1 :]))
    return replace(world, operations=(*world.operations[:-1], operation))


async def test_the_cursor_follows_the_running_gate_until_a_person_chooses(tmp_path: Path) -> None:
    """At 80x24 the table shows seven of ten gates."""
    async with console(running(0), tmp_path, (80, 24), evidence=measured.on_disk()) as c:
        await c.press("4")
        pane = c.pane("gates")
        for number in (1, 6, 9):
            await c.publish(running(number))
            name = worlds.GATES[number][0]
            assert pane.cursor == name
            assert name in {r.key for r in pane.lines}, "in sight"
            assert f"Gate {name}" in c.text
        await c.press("up")
        chosen = pane.cursor
        await c.publish(running(2))
        assert pane.cursor == chosen == worlds.GATES[8][0]
        await c.press("f")
        assert pane.cursor == worlds.GATES[2][0]


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_two_marked_recipes_are_compared_beside_the_list(size: tuple[int, int], tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path, size) as c:
        await c.press("2", "space", "down", "space")
        first, second = c.app.view.marked
        assert f"A {first}" in c.text and f"B {second}" in c.text
        assert "fields differ" in c.pane("recipe").panel.title
        await c.press("down")
        assert "fields differ" in c.pane("recipe").panel.title, "the cursor moves on, the comparison stays"
        await c.press("up", "space")
        assert c.pane("recipe").panel.title == second


async def test_a_key_typed_while_a_screen_opens_acts_there(tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path) as c:
        for key in ("2", "8", "3"):
            c.app.simulate_key(key)
        await c.until(lambda: type(c.app.screen).__name__ == "Operations")
