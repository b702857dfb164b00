"""The mouse: a click chooses the row that is drawn there, the wheel moves, and neither begins a deed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from textual.events import MouseDown, MouseEvent, MouseScrollDown, MouseScrollUp, MouseUp
from textual.geometry import Offset
from textual.widget import Widget
from textual.widgets import Button, Input

from anvil_tui.ui.modals.picker import Picker
from anvil_tui.ui.modals.plan_dialog import PlanDialog
from anvil_tui.ui.screens.overview import Overview
from anvil_tui.ui.widgets.pane import Pane
from tests.support import standings, worlds
from tests.support.console import Driver, console

BACK = worlds.cid(worlds.INCUMBENT)


def line_of(pane: Pane, key: str) -> int:
    """The first drawn line of an item."""
    return next(y for y, row in enumerate(pane.lines) if row.key == key)


async def click(c: Driver, pane: Pane, y: int) -> None:
    await c.pilot.click(pane, offset=(4, y))
    await c.pilot.pause()


async def wheel(c: Driver, pane: Pane, *notches: type[MouseEvent]) -> None:
    for notch in notches:
        c.app.post_message(at(notch, pane, 4, 2))
    await c.pilot.pause()


def at(kind: type[MouseEvent], widget: Widget, x: int, y: int) -> MouseEvent:
    """As the driver makes it: in cells of the screen."""
    place = widget.region.offset + Offset(x, y)
    return kind(None, place.x, place.y, 0, 0, 1, False, False, False, place.x, place.y)


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12)])
async def test_a_click_chooses_the_row_that_is_drawn_there(size: tuple[int, int], tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path, size) as c:
        pane = c.pane("tiny" if size[0] == 40 else "serves")
        await click(c, pane, line_of(pane, BACK))
        assert pane.cursor == BACK == c.app.view.serve and pane.has_focus
        assert isinstance(c.app.screen, Overview) and c.deeds.intents == []
        await click(c, pane, 0)
        assert pane.cursor == BACK, "the rule is no row"


async def test_a_click_in_a_scrolled_list_is_on_what_is_seen(tmp_path: Path) -> None:
    async with console(worlds.many_gpus(), tmp_path, (80, 24)) as c:
        pane = c.pane("gpus")
        pane.focus()
        await c.press("end")
        assert pane.top > 0
        seen = pane.lines[-2].key
        assert seen and seen != pane.cursor
        await click(c, pane, len(pane.lines) - 2)
        assert pane.cursor == seen == c.app.view.gpu


async def test_the_wheel_moves_the_cursor_and_pauses_the_log(tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path) as c:
        serves, log = c.pane("serves"), c.pane("log")
        first = serves.cursor
        await wheel(c, serves, MouseScrollDown)
        assert serves.cursor == BACK
        await wheel(c, serves, MouseScrollUp)
        assert serves.cursor == first
        assert "following" in c.text
        await wheel(c, log, MouseScrollUp)
        assert "PAUSED" in c.text
        await wheel(c, log, MouseScrollDown, MouseScrollDown)
        assert "following" in c.text


async def test_the_wheel_scrolls_a_text(tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path, (80, 24)) as c:
        await c.press("question_mark")
        body = (await c.dialog()).query_one("#body", Pane)
        await wheel(c, body, MouseScrollDown, MouseScrollDown)
        assert body.top == 6


async def test_a_click_in_a_picker_chooses_and_enter_takes(tmp_path: Path) -> None:
    """The field keeps the focus; a click on a closed row says why."""
    async with console(worlds.calm(), tmp_path) as c:
        await c.press("p")
        await c.until(lambda: isinstance(c.app.screen, Picker))
        pane = c.pane("choices")
        await click(c, pane, line_of(pane, worlds.CANDIDATE))
        assert "already serves primary" in c.text and isinstance(c.app.screen, Picker)
        await click(c, pane, line_of(pane, worlds.FALLBACK))
        assert isinstance(c.app.focused, Input) and c.deeds.intents == []
        await c.press("enter")
        await c.dialog()
        assert [i.recipe for i in c.deeds.intents] == [worlds.FALLBACK]


async def test_a_click_older_than_the_question_confirms_nothing(tmp_path: Path) -> None:
    """The button down and up on the place of the deed, before the dialog is drawn; then once more."""
    async with console(worlds.calm(), tmp_path) as c:
        await c.press("g")
        dialog = await c.dialog()
        yes = dialog.query_one("#yes", Button)
        early = [at(kind, yes, 3, 0) for kind in (MouseDown, MouseUp)]
        dialog.armed_at = early[-1].time + 0.001
        for event in early:
            c.app.post_message(event)
        await c.pilot.pause()
        assert c.app.screen is dialog and c.deeds.started == []
        await c.pilot.click(yes)
        await c.until(lambda: bool(c.deeds.started), "a click on what was drawn is one")


async def test_keys_and_clicks_for_the_plan_before_do_not_confirm_the_new_one(tmp_path: Path) -> None:
    """The facts moved: until the new plan is drawn nothing confirms it, not even what was on its way."""
    async with console(worlds.calm(), tmp_path) as c:
        await c.press("g")
        dialog = await c.dialog()
        assert isinstance(dialog, PlanDialog)
        yes = dialog.query_one("#yes", Button)
        old, early = dialog.plan, [at(kind, yes, 3, 0) for kind in (MouseDown, MouseUp)]
        await c.press("tab")
        moved = replace(worlds.calm(), record=replace(worlds.calm().record, generation=99))
        fresh = worlds.plan_for(old.intent, moved)
        assert fresh.hash != old.hash
        dialog._take(fresh)
        dialog.post_message(Button.Pressed(yes))
        for event in early:
            c.app.post_message(event)
        await c.until(lambda: dialog.armed_at < float("inf"), "the new plan is drawn")
        await c.pilot.pause()
        assert c.app.screen is dialog and c.deeds.started == []
        assert dialog.focused is dialog.query_one("#cancel", Button)
        await c.pilot.click(yes)
        await c.until(lambda: c.deeds.started == [fresh])


async def test_no_click_changes_a_box_that_is_read_only(tmp_path: Path) -> None:
    """Report 2, the road of the mouse: once on each row of each screen."""
    world = replace(standings.wired(), read_only=True)
    async with console(world, tmp_path) as c:
        for key in "1234567890":
            await c.press(key)
            for pane in [p for p in c.app.screen.query(Pane) if p.display]:
                for y in range(len(pane.lines)):
                    c.app.post_message(at(MouseDown, pane, 4, y))
                    c.app.post_message(at(MouseUp, pane, 4, y))
            await c.pilot.pause()
            assert c.app.deeds is None and len(c.app.screen_stack) <= 3, key


async def test_an_action_that_changes_is_closed_in_the_palette_for_the_mouse_too(tmp_path: Path) -> None:
    async with console(worlds.calm(read_only=True), tmp_path) as c:
        await c.press("colon")
        pane = c.pane("choices")
        await c.type("rollback")
        await click(c, pane, 1)
        await c.press("enter")
        assert isinstance(c.app.screen, Picker) and "not now: read-only" in c.text


@pytest.mark.parametrize("opened", ["question_mark", "colon", "b", "slash"])
async def test_a_garbled_screen_is_drawn_again_over_a_dialog(
    opened: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(worlds.calm(), tmp_path) as c:
        await c.press(opened)
        await c.until(lambda: len(c.app.screen_stack) > 2 and c.app.screen.is_current)
        await c.pilot.pause()
        screen = c.app.screen
        painted: list[dict[str, object]] = []
        monkeypatch.setattr(c.app, "refresh", lambda *regions, **how: painted.append(how))
        await c.press("ctrl+l")
        assert {"layout": True, "repaint": True} in painted
        assert c.app.screen is screen and not "".join(i.value for i in screen.query(Input))


async def test_a_letter_that_a_person_gave_to_redraw_stays_a_letter_in_a_field(tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path, keys={"view.redraw": "R"}) as c:
        await c.press("slash")
        dialog = await c.dialog()
        await c.press("R")
        assert dialog.query_one(Input).value == "R"
