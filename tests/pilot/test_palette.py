"""From the palette to anywhere: the screen of each kind of noun, with the cursor on it; the last choices by up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from anvil_tui.core.world import World
from anvil_tui.ui.modals.picker import Picker
from anvil_tui.ui.modals.plan_dialog import PlanDialog
from anvil_tui.ui.screens import listing
from anvil_tui.ui.screens.overview import Overview
from tests.support import measured, standings, worlds
from tests.support.console import Driver, console


def whole() -> World:
    return replace(standings.wired(), pasts=measured.shelf_of_bundles().pasts)


BACK = worlds.cid(worlds.INCUMBENT)
PLACES = [
    ("serve 524k-k5-x", Overview, "serves", BACK),
    ("compute-b", Overview, "gpus", worlds.UUIDS[1]),
    ("recipe 245k", listing.Recipes, "recipes", worlds.FALLBACK),
    ("operation 1048", listing.Operations, "operations", "20260902-1048-promote"),
    ("gate needle", listing.Gates, "gates", "needle"),
    ("alias llm.primary", listing.Gateway, "gateway", "llm.primary"),
    ("role primary", listing.Standing, "standings", "role:primary"),
    ("credential batch", listing.Standing, "standings", "credential:batch"),
    ("client pi", listing.Standing, "standings", "client:pi"),
    ("logs", listing.Logs, "log", ""),
]


async def jump(c: Driver, text: str) -> None:
    await c.press("colon")
    await c.type(text)
    await c.press("enter")
    await c.pilot.pause()


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_it_lands_on_the_thing(size: tuple[int, int], tmp_path: Path) -> None:
    async with console(whole(), tmp_path, size, evidence=measured.on_disk()) as c:
        for typed, screen, name, key in PLACES:
            await jump(c, typed)
            assert type(c.app.screen) is screen, typed
            found = c.pane(name)
            assert found.display and found.has_focus, typed
            assert found.cursor == key
            await c.press("escape" if screen is not Overview else "9")


async def test_it_lands_in_the_smallest_layout(tmp_path: Path) -> None:
    async with console(whole(), tmp_path, (40, 12)) as c:
        await jump(c, "serve 524k-k5-x")
        assert c.pane("tiny").cursor == BACK
        await jump(c, "compute-b")
        assert c.pane("tiny").cursor == worlds.UUIDS[1]


async def test_a_filter_that_hides_it_is_cleared(tmp_path: Path) -> None:
    async with console(whole(), tmp_path) as c:
        await c.press("2", "slash")
        await c.dialog()
        await c.type("499k")
        await c.press("enter")
        assert 'Recipes filter "499k" 2/12' in c.text
        await jump(c, "recipe 245k")
        assert "Recipes 12" in c.text and "the filter of recipes was cleared" in c.text
        assert c.pane("recipes").cursor == worlds.FALLBACK


async def test_the_last_choices_come_back_by_the_up_key(tmp_path: Path) -> None:
    async with console(whole(), tmp_path) as c:
        await jump(c, "recipe 245k")
        await jump(c, "logs")
        await c.press("1", "colon", "up", "enter")
        assert isinstance(c.app.screen, listing.Logs)
        await c.press("colon", "up", "up", "enter")
        assert isinstance(c.app.screen, listing.Recipes)
        assert c.pane("recipes").cursor == worlds.FALLBACK
        assert list(c.app.palette.recent) == ["screen:view.logs", f"recipe:{worlds.FALLBACK}"]


async def test_a_closed_action_stays_and_says_why_also_from_the_last_choices(tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path) as c:
        await jump(c, "rollback")
        dialog = await c.dialog()
        assert isinstance(dialog, PlanDialog)
        await c.press("escape")
        await c.publish(worlds.calm(read_only=True))
        await c.press("colon", "up")
        assert "not now: read-only" in c.text
        await c.press("enter")
        assert isinstance(c.app.screen, Picker)


async def test_a_thing_that_went_while_the_palette_was_open_is_no_crash(tmp_path: Path) -> None:
    async with console(whole(), tmp_path) as c:
        await c.press("colon")
        await c.type("serve 524k-k5-x")
        await c.publish(replace(whole(), serves=whole().serves[:1]))
        await c.press("enter")
        await c.pilot.pause()
        assert c.app.is_running
