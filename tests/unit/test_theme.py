"""Contrast by WCAG 2.1, and good against bad as colour-blind eyes see them."""

from __future__ import annotations

import math
from typing import get_args

import pytest
from textual.theme import Theme

from anvil_tui.core.settings import Theme as Name
from anvil_tui.ui.theme import DEFAULT, THEMES, after, named

Matrix = tuple[tuple[float, float, float], ...]
# Machado, Oliveira and Fernandes 2009, severity 1.0, on linear RGB
EYES: dict[str, Matrix] = {
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def linear(colour: str) -> list[float]:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]


def luminance(colour: str) -> float:
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def seen(colour: str, eyes: Matrix) -> tuple[float, float, float]:
    """CIE L*a*b* of what these eyes see."""
    plain = linear(colour)
    red, green, blue = (max(0.0, min(1.0, sum(m * c for m, c in zip(line, plain, strict=True)))) for line in eyes)
    xyz = (
        (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505, 0.2126 * red + 0.7152 * green + 0.0722 * blue,
        (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089,
    )  # fmt: skip
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def backgrounds(theme: Theme) -> list[str]:
    return [str(c) for c in (theme.background, theme.surface, theme.panel, theme.variables["cursor"])]


def tones(theme: Theme) -> dict[str, str]:
    """Every tone that text is drawn in; a rule between panes is no text."""
    more = {name: theme.variables[name] for name in ("strong", "dim", "faint", "spark")}
    states = {"good": theme.success, "warn": theme.warning, "bad": theme.error, "accent": theme.accent}
    return {"text": str(theme.foreground), **more, **{name: str(c) for name, c in states.items()}}


def test_the_settings_know_the_same_names() -> None:
    assert set(THEMES) == set(get_args(Name))
    assert named("light") == ("light", "")
    wrong, said = named("solarized")
    assert wrong == DEFAULT and "no theme solarized: anvil is used; there are anvil, light" in said
    assert [after(n) for n in THEMES] == [*list(THEMES)[1:], "anvil"]
    assert after("unheard-of") == DEFAULT


@pytest.mark.parametrize("name", THEMES)
def test_every_tone_can_be_read_on_every_background(name: str) -> None:
    theme, least = THEMES[name], 7.0 if name == "high-contrast" else 4.5
    found = {
        (tone, under): round(contrast(colour, under), 2)
        for tone, colour in tones(theme).items()
        for under in backgrounds(theme)
    }
    assert {k: v for k, v in found.items() if v < least} == {}
    assert contrast(str(theme.background), str(theme.accent)) >= least, "the button with the focus"
    assert contrast(theme.variables["line"], str(theme.background)) >= 1.5, "a rule is seen"


def test_contrast_is_measured_as_wcag_does() -> None:
    assert math.isclose(contrast("#000000", "#ffffff"), 21.0)
    assert round(contrast("#777777", "#ffffff"), 2) == 4.48


@pytest.mark.parametrize("eyes", EYES)
def test_colour_blind_eyes_tell_good_warning_and_bad_apart(eyes: str) -> None:
    """A difference of 10 in L*a*b* is seen at once; good and bad are far more apart."""
    theme = tones(THEMES["colour-blind"])
    good, warn, bad = (seen(theme[t], EYES[eyes]) for t in ("good", "warn", "bad"))
    assert math.dist(good, bad) >= 60
    assert min(math.dist(good, warn), math.dist(warn, bad)) >= 15
