"""Pictures of the console: each with one fact in words beside it, so that a wrong picture is not approved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.core.world import World
from anvil_tui.ui.app import Console
from anvil_tui.ui.modals.dialog import Dialog
from anvil_tui.ui.modals.picker import Picker
from tests.support import worlds
from tests.support.console import Driver, make

WIDE, NARROW, TINY, HUGE = (120, 40), (80, 24), (40, 12), (200, 60)

CASES: dict[str, tuple[Callable[[], World], tuple[int, int], tuple[str, ...], str]] = {
    "calm-wide": (worlds.calm, WIDE, (), "primary ● serving glm53-393k-c1"),
    "calm-narrow": (worlds.calm, NARROW, (), "rollback of primary: ready ✔"),
    "calm-narrow-gates": (worlds.calm, NARROW, ("tab",), "windows  C1         1.00"),
    "calm-narrow-work": (worlds.calm, NARROW, ("tab", "tab", "tab"), "following"),
    "calm-tiny": (worlds.calm, TINY, (), "glm53-393k-c1"),
    "promoting-wide": (worlds.promoting, WIDE, (), "HELD, 3 waiting"),
    "promoting-narrow": (worlds.promoting, NARROW, (), "step 7/10"),
    "promoting-huge": (worlds.promoting, HUGE, (), "206,296 prompt tokens measured"),
    "degraded-wide": (worlds.degraded, WIDE, (), "LOST GPU is lost"),
    "degraded-narrow": (worlds.degraded, NARROW, (), "✖ lost"),
    "stale-wide": (worlds.stale, WIDE, (), "STALE 42 s"),
    "stale-narrow": (worlds.stale, NARROW, (), "ERROR unix:///var/run/docker.sock"),
    "interrupted-wide": (worlds.interrupted, WIDE, (), "r resume or z undo"),
    "interrupted-narrow": (worlds.interrupted, NARROW, (), "promote INTERRUPTED"),
    "read-only-wide": (lambda: worlds.calm(read_only=True), WIDE, (), "READ-ONLY"),
    "production-narrow": (lambda: worlds.calm(kind="production"), NARROW, (), "PRODUCTION"),
    "empty-wide": (worlds.empty, WIDE, (), "unknown: not read yet"),
    "sixteen-gpus-narrow": (worlds.many_gpus, NARROW, (), "gpu 7"),
    "recipes-wide": (worlds.calm, WIDE, ("2", "down", "down"), "served name"),
    "recipes-narrow": (worlds.calm, NARROW, ("2",), "Recipes 12"),
    "operations-wide": (worlds.promoting, WIDE, ("3",), "Steps 6/10"),
    "operations-narrow": (worlds.interrupted, NARROW, ("3",), "INTERRUPTED"),
    "gates-wide": (worlds.promoting, WIDE, ("4", *["down"] * 4), "206,296 prompt tokens measured"),
    "detail-wide": (worlds.calm, WIDE, ("enter",), worlds.cid(worlds.CANDIDATE)),
    "plan-wide": (worlds.calm, WIDE, ("b",), "type adaptive-mtp to confirm"),
    "plan-narrow": (worlds.calm, NARROW, ("b",), "type adaptive-mtp to confirm"),
    "plan-reversible": (worlds.calm, NARROW, ("u",), "quiesce primary"),
    "resume-narrow": (worlds.interrupted, NARROW, ("r",), "Let an interrupted operation go on"),
    "palette-wide": (worlds.calm, WIDE, ("colon",), "role.rollback"),
    "picker-narrow": (worlds.calm, NARROW, ("l",), "load which recipe? for role primary"),
    "help-wide": (worlds.calm, WIDE, ("question_mark",), "What every key does"),
}  # fmt: skip


async def _settle(c: Driver, keys: tuple[str, ...]) -> None:
    assert c.app.bridge is not None
    c.app.bridge.pump()
    await c.pilot.pause()
    await c.press(*keys)
    if keys and keys[-1] in "bur":
        await c.dialog()
    if keys and keys[-1] in ("l", "colon"):
        await c.until(lambda: isinstance(c.app.screen, Picker))
    if keys == ("question_mark",):
        await c.until(lambda: isinstance(c.app.screen, Dialog))
        await c.dialog()
    await c.pilot.pause()


def shoot(snap_compare: Any, app: Console, size: tuple[int, int], keys: tuple[str, ...], fact: str) -> bool:
    said: list[str] = []

    async def before(pilot: Any) -> None:
        c = Driver(app, pilot)
        await _settle(c, keys)
        said.append(c.text)

    same = bool(snap_compare(app, terminal_size=size, run_before=before))
    assert fact in said[0], said[0]
    return same


@pytest.mark.parametrize("name", CASES)
def test_picture(name: str, snap_compare: Any, tmp_path: Path) -> None:
    world, size, keys, fact = CASES[name]
    assert shoot(snap_compare, make(world(), tmp_path), size, keys, fact)


def test_ascii(snap_compare: Any, tmp_path: Path) -> None:
    """`--ascii` swaps every glyph and keeps every fact."""
    app = make(worlds.degraded(), tmp_path, ascii_only=True)
    assert shoot(snap_compare, app, WIDE, (), "LOST GPU is lost")


def test_ascii_dialog(snap_compare: Any, tmp_path: Path) -> None:
    app = make(worlds.calm(), tmp_path, ascii_only=True)
    assert shoot(snap_compare, app, NARROW, ("b",), "type adaptive-mtp to confirm")


def test_no_colour(snap_compare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR: the same words and shapes."""
    monkeypatch.setenv("NO_COLOR", "1")
    assert shoot(snap_compare, make(worlds.degraded(), tmp_path), WIDE, (), "LOST GPU is lost")


def test_no_colour_dialog(snap_compare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The button with the focus is seen without colour."""
    monkeypatch.setenv("NO_COLOR", "1")
    assert shoot(snap_compare, make(worlds.calm(), tmp_path), NARROW, ("b",), "type adaptive-mtp to confirm")
