"""O-96 in each list: items come, go and change their order, and the cursor stays on its key, or on a neighbour."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.core.world import World
from tests.support import measured, standings, worlds
from tests.support.console import console

# The key of the screen, its list, and the World's tuple behind it.
LISTS = {
    "serves": ("1", "serves", "serves"), "recipes": ("2", "recipes", "recipes"),
    "bundles": ("6", "bundles", "pasts"),
}  # fmt: skip


def world_of(name: str) -> World:
    three = worlds.with_containers(standings.wired(), worlds.alien(1), worlds.alien(2))
    return replace(three, pasts=measured.shelf_of_bundles().pasts) if name == "bundles" else three


@pytest.mark.parametrize("name", LISTS)
async def test_the_cursor_stays_on_its_key(name: str, tmp_path: Path) -> None:
    key, pane_id, field = LISTS[name]
    world = world_of(name)
    async with console(world, tmp_path, evidence=measured.on_disk()) as c:
        await c.press(key, "down")
        pane = c.pane(pane_id)
        before, chosen = pane.keys(), pane.cursor
        assert chosen == before[1]
        turned: dict[str, Any] = {field: tuple(reversed(getattr(world, field)))}
        nothing: dict[str, Any] = {field: ()}
        await c.publish(replace(world, **turned))
        assert pane.cursor == chosen == getattr(c.app.view, pane.field)
        await c.publish(replace(world, **nothing))
        assert pane.keys() == [] and pane.cursor == "" and c.app.is_running
        await c.publish(world)
        assert pane.keys() == before and pane.cursor in before
