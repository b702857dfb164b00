"""Keys that a person gave: they act, the old ones do not, and every place that names a key names the given one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from textual.widgets import Input

from anvil_tui.core.plan import Intent
from anvil_tui.ui import keymap
from anvil_tui.ui.modals.picker import Picker
from anvil_tui.ui.modals.plan_dialog import PlanDialog
from anvil_tui.ui.screens.overview import Overview
from tests.support import worlds
from tests.support.console import console

KEYS = {
    "serve.qualify": "f5", "view.help": "f1", "role.rollback": "B,f9", "operation.resume": "R",
    "operation.undo": "U", "view.palette": "ctrl+o",
}  # fmt: skip


@pytest.fixture(autouse=True)
def own_keys_again() -> Iterator[None]:
    yield
    keymap.use({})


async def test_the_given_key_acts_and_the_old_one_does_not(tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path, keys=KEYS) as c:
        await c.press("g", "b", "question_mark", "colon")
        assert isinstance(c.app.screen, Overview)
        assert c.deeds.intents == []
        await c.press("f5")
        await c.dialog()
        await c.press("escape", "f9")
        await c.dialog()
        assert [i.verb for i in c.deeds.intents] == ["qualify", "rollback"]
        assert c.deeds.intents[0] == Intent("qualify", container_id=worlds.cid(worlds.CANDIDATE))


async def test_a_given_key_does_nothing_while_an_input_has_the_focus_and_works_again_after(tmp_path: Path) -> None:
    """Textual's own keymap leaves it dead there: a binding is dropped by its original, printable key."""
    async with console(worlds.calm(), tmp_path, keys=KEYS) as c:
        await c.press("ctrl+o")
        assert isinstance(c.app.screen, Picker)
        await c.press("f5", "f9", "g")
        assert [type(s) for s in c.app.screen_stack[2:]] == [Picker]
        assert c.app.screen.query_one(Input).value == "g" and c.deeds.intents == []
        await c.press("escape", "B")
        await c.dialog()
        await c.press("tab", "f5", "B")
        assert [type(s) for s in c.app.screen_stack[2:]] == [PlanDialog]
        assert len(c.deeds.intents) == 1


async def test_hints_help_palette_strip_and_sentences_show_it(tmp_path: Path) -> None:
    async with console(worlds.interrupted(), tmp_path, (120, 60), keys=KEYS) as c:
        assert "R resume or U undo" in c.text
        assert "f1 help" in c.text and "? help" not in c.text
        await c.press("f5")
        assert "was interrupted: R resumes it, U undoes it" in c.text
        await c.press("f1")
        await c.dialog()
        await c.press(*["pagedown"] * 3)
        assert "B, f9" in c.text
        await c.press("escape", "ctrl+o")
        await c.type("qualify")
        assert any("(qualify)" in line and line.rstrip().endswith(" f5") for line in c.text.splitlines())


async def test_read_only_closes_a_given_key(tmp_path: Path) -> None:
    """Report 2: a second road to the same deed."""
    async with console(worlds.calm(read_only=True), tmp_path, keys=KEYS) as c:
        for given in ("f5", "B", "f9"):
            await c.press(given)
            assert "read-only: this console was started with --read-only" in c.text
            assert isinstance(c.app.screen, Overview)


async def test_a_dialog_that_was_open_when_the_box_became_read_only_confirms_nothing(tmp_path: Path) -> None:
    """Report 2: the policy is asked again when the answer comes."""
    async with console(worlds.calm(), tmp_path) as c:
        await c.press("g")
        await c.dialog()
        await c.publish(replace(worlds.calm(read_only=True), now_s=worlds.NOW_S + 0.1))
        await c.press("tab", "enter")
        await c.until(lambda: isinstance(c.app.screen, Overview))
        assert "qualify: read-only" in c.text
        assert c.deeds.started == []
