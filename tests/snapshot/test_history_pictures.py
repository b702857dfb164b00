"""Pictures of what was recorded and of a replay: each with one fact in words beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import tapes, worlds
from tests.support.console import Driver, make

WIDE, NARROW = (120, 40), (80, 24)

CASES: dict[str, tuple[tuple[int, int], tuple[str, ...], tuple[str, ...]]] = {
    "history-wide": (WIDE, ("0",), ("not recorded for 600 s", "GPU 1 is lost", "done in 6 min 40 s")),
    "history-narrow": (NARROW, ("0",), ("not recorded for 600 s", "09-02 10:54:09")),
    "replay-wide": (
        WIDE, ("0", "tab", "down", "enter"),
        ("REPLAY", "2026-09-02 11:29:09 UTC", "LOST GPU is lost", "esc now", "as recorded"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_picture(name: str, snap_compare: Any, tmp_path: Path) -> None:
    size, keys, facts = CASES[name]
    app = make(worlds.calm(), tmp_path)
    drawn: list[str] = []

    async def before(pilot: Any) -> None:
        c = Driver(app, pilot)
        c.service.history = tapes.FakePast(tapes.hour())
        await c.press(keys[0])
        await c.until(lambda: "everything" in c.text)
        await c.press(*keys[1:])
        assert app.bridge is not None
        await c.until(lambda: app.world.replayed is ("enter" in keys))
        app.bridge.pump()
        await c.pilot.pause()
        drawn.append(c.text)

    same = bool(snap_compare(app, terminal_size=size, run_before=before))
    assert all(fact in drawn[0] for fact in facts), drawn[0]
    assert same
