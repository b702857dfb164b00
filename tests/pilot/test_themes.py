"""Themes in the running console: what is drawn has the theme's colours; NO_COLOR and wrong names are answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from anvil_tui.ui.presenters.cells import TONES
from anvil_tui.ui.theme import THEMES
from tests.support import worlds
from tests.support.console import Driver, console

DRAWN = {"good": "success", "warn": "warning", "bad": "error", "text": "foreground", "mark": "accent"}


def drawn(c: Driver) -> dict[str, str]:
    """The colour of each tone as the serves pane draws it, and what is under it."""
    pane = c.pane("serves")
    styles = {tone: pane.get_component_rich_style(f"tone--{tone}") for tone in TONES}
    found = {t: s.color.get_truecolor().hex for t, s in styles.items() if s.color}
    under = styles["text"].bgcolor
    return found | {"under": under.get_truecolor().hex if under else ""}


def wanted(name: str) -> dict[str, str]:
    theme = THEMES[name]
    found = {t: str(theme.variables.get(t) or getattr(theme, DRAWN.get(t, t))) for t in TONES}
    return found | {"under": str(theme.background)}


def same(c: Driver, name: str) -> bool:
    """Textual rounds a colour by one step on its way through a stylesheet."""

    def parts(colour: str) -> list[int]:
        return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]

    have, want = drawn(c), wanted(name)
    near = {t: max(abs(a - b) for a, b in zip(parts(have[t]), parts(want[t]), strict=True)) for t in want}
    return set(have) == set(want) and max(near.values()) <= 1


async def test_t_goes_through_all_of_them_and_each_is_drawn(tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path) as c:
        assert same(c, "anvil")
        for name in [*list(THEMES)[1:], "anvil"]:
            await c.press("T")
            assert same(c, name)
            assert f'theme: {name}; `theme = "{name}"` in your settings keeps it' in c.text


async def test_the_setting_is_the_theme_from_the_start(tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path, theme="high-contrast") as c:
        assert same(c, "high-contrast")


async def test_an_unknown_name_falls_back_and_says_so_until_the_first_key(tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path, theme="solar[/ized]") as c:
        assert same(c, "anvil")
        assert (
            "no theme solar[/ized]: anvil is used; there are anvil, light, high-contrast, colour-blind" in c.text
        )
        await c.press("down")
        assert "no theme" not in c.text


async def test_no_colour_has_no_themes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with console(worlds.calm(), tmp_path) as c:
        await c.press("T")
        assert "theme: NO_COLOR is set, so no theme has colours" in c.text
