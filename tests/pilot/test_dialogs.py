"""Dialogs: a refused plan asks nothing, a moved one names the mover, one at a time, pastes confirm nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from textual.events import Paste
from textual.widgets import Button, Input

from anvil_tui.core.plan import Intent, Plan
from anvil_tui.ui.modals.dialog import Dialog
from anvil_tui.ui.modals.picker import Picker
from anvil_tui.ui.modals.plan_dialog import PlanDialog
from anvil_tui.ui.screens.overview import Overview
from tests.support import worlds
from tests.support.console import Driver, console


async def refused(c: Driver) -> PlanDialog:
    """A rollback whose plan comes with a refusal: it has a word to type and nothing to confirm."""
    made = c.deeds.plan

    def plan(intent: Intent) -> Plan:
        return replace(made(intent), refusals=("the way back is gone",))

    c.deeds.plan = plan  # type: ignore[method-assign]
    await c.press("b")
    dialog = await c.dialog()
    assert isinstance(dialog, PlanDialog) and dialog.word
    return dialog


async def test_a_refused_plan_asks_for_no_word(tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path) as c:
        dialog = await refused(c)
        assert not dialog.query_one(Input).display
        assert "This plan is refused" in c.text and "to confirm" not in c.text
        await c.press("tab", "enter")
        await c.until(lambda: isinstance(c.app.screen, Overview))
        assert c.deeds.started == []


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_a_plan_that_another_console_moved_names_its_operation(
    size: tuple[int, int], tmp_path: Path
) -> None:
    """Also when the World tells of the operation only after the plan was made again."""
    async with console(worlds.calm(), tmp_path, size) as c:
        await c.press("b")
        dialog = await c.dialog()
        assert isinstance(dialog, PlanDialog)
        old = dialog.plan.hash
        await c.publish(worlds.calm())
        moved = replace(worlds.calm(), record=replace(worlds.calm().record, generation=99), now_s=worlds.NOW_S + 3)
        await c.publish(moved)
        await c.until(lambda: dialog.plan.hash != old, "the dialog re-plans")
        later = replace(
            moved, operations=worlds.promoting().operations, lease=worlds.promoting().lease,
            now_s=worlds.NOW_S + 3.5,
        )  # fmt: skip
        await c.publish(later)
        said = " ".join(c.text.split())
        assert "promote 20260902-1150-promote of sekou moved the facts while this was open" in said
        assert f"plan {old} is now {dialog.plan.hash}" in said
        await c.pilot.pause()
        button = dialog.query_one("#cancel", Button)
        assert dialog.region.contains_region(button.region), "the buttons stay on the screen"


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        (("question_mark",) * 3, Dialog), (("colon",) * 3, Picker), (("slash",) * 2, Dialog),
        (("b",) * 4, PlanDialog), (("b", "g", "question_mark"), Dialog),
    ],
)  # fmt: skip
async def test_one_dialog_at_a_time(keys: tuple[str, ...], kind: type, tmp_path: Path) -> None:
    """All in one burst. What was asked for first is on top in the end, or a deed waits for nothing."""
    async with console(worlds.calm(), tmp_path) as c:
        for name in keys:
            c.app.simulate_key(name)
        await c.until(lambda: isinstance(c.app.screen, kind), "a dialog")
        await c.pilot.pause(0.05)
        assert sum(isinstance(s, Dialog | Picker) for s in c.app.screen_stack) == 1
        assert c.deeds.started == []
        if kind is Dialog and keys[0] == "b":
            await c.press("escape")
            assert "rollback: dropped, another dialog was opened meanwhile; press b again" in c.text
            await c.press("b")
            await c.dialog()


async def test_a_paste_with_a_newline_confirms_nothing(tmp_path: Path) -> None:
    """Into the field of a typed confirmation, and while Cancel has the focus."""
    async with console(worlds.calm(), tmp_path) as c:
        await c.press("b")
        dialog = await c.dialog()
        c.app.post_message(Paste("adaptive-mtp\nadaptive-mtp\n"))
        await c.pilot.pause()
        assert isinstance(c.app.screen, PlanDialog) and c.deeds.started == []
        await c.press("tab")
        c.app.post_message(Paste("adaptive-mtp\n"))
        await c.pilot.pause()
        assert dialog.query_one(Input).value == "adaptive-mtp"
        assert isinstance(c.app.screen, PlanDialog) and c.deeds.started == []
        await c.press("enter")
        await c.until(lambda: bool(c.deeds.started), "the pasted word is a word")


@pytest.mark.parametrize("key", ["g", "u", "b", "D", "x", "q", "c"])
async def test_a_burst_into_the_dialog_of_any_deed_starts_nothing(key: str, tmp_path: Path) -> None:
    """Report 3: the opening key twice, enter and y, all before the dialog is drawn."""
    world = worlds.promoting() if key in "qc" else worlds.calm()
    async with console(world, tmp_path) as c:
        for name in (key, key, "enter", "y"):
            c.app.simulate_key(name)
        await c.until(lambda: any(isinstance(s, Dialog) for s in c.app.screen_stack) or key == "q")
        await c.pilot.pause(0.05)
        assert c.deeds.started == [] and c.deeds.steered == []
        assert c.app.is_running


async def test_help_scrolls_to_its_end_in_a_small_terminal(tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path, (80, 24)) as c:
        await c.press("question_mark")
        await c.dialog()
        assert "? " in c.text and "help" in c.text and "storage" not in c.text.splitlines()[-1]
        for _ in range(12):
            await c.press("pagedown")
        assert "remove" in c.text and "Images and caches" in c.text
        await c.press(*["pageup"] * 12)
        assert "What every key does" in c.text
