"""The console on a box without a workspace: what runs is shown, every pane says why the rest is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from anvil_tui.core.discovery import NO_WORKSPACE
from anvil_tui.ui.actions import ACTIONS
from tests.support import bare
from tests.support.console import console

pytestmark = pytest.mark.asyncio


async def test_what_runs_is_shown_and_no_pane_is_an_error(tmp_path: Path) -> None:
    async with console(bare.discovered(), tmp_path) as c:
        for words in ("rack-7 NO WORKSPACE", "READ-ONLY", "serves acme/m-8b; vllm on 127.0.0.1:8000",
                      "running 6  waiting 2", "412,656 tok", "not reachable: it publishes no port",
                      "`anvil-tui init DIR` writes"):  # fmt: skip
            assert words in c.text, words
        assert "postgres" not in c.text and " db " not in c.text
        for key in ("2", "3", "4", "6", "7", "8"):
            await c.press(key)
            assert "no workspace: discovery" in c.text, key
            assert "ERROR" not in c.text, key
            assert "haproxy" not in c.text, key


async def test_no_key_does_anything_to_the_box_and_says_why(tmp_path: Path) -> None:
    async with console(bare.discovered(), tmp_path) as c:
        assert c.app.deeds is None or not c.deeds.started
        for action in ACTIONS:
            if action.mutates:
                assert c.app.why(action) == NO_WORKSPACE, action.id


async def test_the_narrow_screen_tells_what_to_do(tmp_path: Path) -> None:
    async with console(bare.discovered(), tmp_path, (80, 24)) as c:
        assert "`anvil-tui init DIR` writes a workspace of what runs here" in c.text
        assert "…" not in next(line for line in c.text.splitlines() if line.startswith(" next"))
