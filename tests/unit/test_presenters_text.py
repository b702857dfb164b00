"""Cutting, padding, numbers, bars, sparklines, wrapping, glyphs."""

from __future__ import annotations

from datetime import UTC

import pytest
from rich.cells import cell_len

from anvil_tui.ui import glyphs, text

LONG = "glm53-flash-exl3-k3-dflash2-k5-fp8-tp2-524k-vision-xgfix-and-then-some-more-text-to-pass-one-hundred"
WIDE = "模型-超长-名字-双卡-长上下文-视觉"
FOREIGN = (
    "[TP0] Load weight end", "x [/b] y", "path [/] here", '{"booleans": [true, false]}', "qwen[awq]-r7",
    "tail [b + and more",
)  # fmt: skip


@pytest.mark.parametrize("name", [LONG, WIDE, "short", ""])
@pytest.mark.parametrize("width", [1, 2, 3, 10, 17, 40])
def test_padded_is_exactly_that_many_cells(name: str, width: int) -> None:
    assert cell_len(text.pad(name, width)) == width
    assert cell_len(text.rpad(name, width)) == width


def test_cut_in_the_middle_keeps_head_and_tail() -> None:
    """O-98"""
    assert text.fit(LONG, 20) == "glm53-flas…e-hundred"
    assert text.fit(WIDE, 11) == "模型-…-视觉"
    assert text.fit("fits", 4) == "fits"


@pytest.mark.parametrize("given", FOREIGN)
def test_brackets_stay_as_they_are(given: str) -> None:
    """O-95"""
    assert text.literal(given) == given


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("a\x1b]52;c;aGVsbG8=\x07b", "ab"),
        ("nul\x00here", "nulhere"),
        ("tab\there", "tab here"),
        ("two\nlines", "two lines"),
        ("\u202eevil", "evil"),
    ],
)
def test_no_escape_reaches_a_cell(given: str, shown: str) -> None:
    assert text.literal(given) == shown


def test_literal_is_bounded() -> None:
    assert len(text.literal("x" * 200_000)) == 512


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [(None, "MiB", "n/a"), (0, "MiB", "0 MiB"), (393216, "tok", "393,216 tok"), (7, "", "7")],
)
def test_unknown_and_zero_are_two_texts(value: int | None, unit: str, shown: str) -> None:
    assert text.number(value, unit) == shown


def test_bytes() -> None:
    assert text.mib(2_543 * 1024 * 1024) == "2,543 MiB"
    assert text.gib(97_887 * 1024 * 1024) == "95.6 GiB"
    assert (text.mib(None), text.gib(None), text.mib(0)) == ("n/a", "n/a", "0 MiB")


@pytest.mark.parametrize(
    ("fraction", "filled"), [(0, ""), (0.5, "━━━━━"), (0.55, "━━━━━╸"), (1, "━" * 10), (1.04, "━" * 10), (-1, "")]
)
def test_bar_is_clipped_and_always_full_width(fraction: float, filled: str) -> None:
    done, rest = text.bar(fraction, 10)
    assert done == filled
    assert len(done + rest) == 10


def test_spark_draws_a_gap_as_a_gap_and_zero_as_the_lowest_block() -> None:
    assert text.spark((0, None, 50, 100), 6) == "  ▁ ▅█"
    assert text.spark((), 3) == "   "
    assert text.spark((1, 2, 3), 0) == ""
    assert text.spark((200,), 1) == "█"


@pytest.mark.parametrize(
    ("at", "shown"),
    [
        ("2026-09-02T11:54:09Z", "11:54:09"),
        ("2026-09-02T13:54:09+02:00", "11:54:09"),
        (None, "-"),
        ("0001-01-01T00:00:00Z", "-"),
        ("not a time", "not a t…"),
        ("9999-12-31T23:59:59-05:00", "9999-12…"),
    ],
)
def test_clock(at: str | None, shown: str) -> None:
    assert text.clock(at, UTC) == shown


def test_the_last_hours_of_the_calendar_are_shown_as_they_are_written() -> None:
    """In a recording that somebody sent: UTC has no year 10000."""
    assert text.stamp("9999-12-31T23:59:59-05:00", UTC) == "9999-12-31T23:59:59-05:00"


def test_wrap_cuts_no_character_and_no_line_is_wider() -> None:
    sentence = f"image {'a' * 90} and {WIDE} end"
    lines = text.wrap(sentence, 24)
    assert "".join(lines).replace(" ", "") == sentence.replace(" ", "")
    assert all(cell_len(line) <= 24 for line in lines)
    assert text.wrap("", 10) == [""]


@pytest.mark.parametrize("glyph", glyphs.TWINS)
def test_every_glyph_and_its_twin_are_one_cell(glyph: str) -> None:
    twin = glyphs.TWINS[glyph]
    assert cell_len(glyph) == 1
    assert len(twin) == 1 and twin.isascii() and twin.isprintable()


def test_every_named_glyph_has_a_twin() -> None:
    named = {v for k, v in vars(glyphs).items() if k.isupper() and isinstance(v, str)}
    assert all(ch in glyphs.TWINS for v in named for ch in v)


def test_lights_and_levels_stay_apart_in_ascii() -> None:
    lights = {glyphs.OK, glyphs.WAIT, glyphs.BAD, glyphs.ASK, glyphs.OFF}
    assert len({glyphs.TWINS[g] for g in lights}) == len(lights)
    assert len({glyphs.TWINS[g] for g in glyphs.LEVELS}) == len(glyphs.LEVELS)


def test_ascii_keeps_the_width_of_wide_characters() -> None:
    assert glyphs.to_ascii(WIDE).isascii()
    assert len(glyphs.to_ascii(WIDE)) == cell_len(WIDE)
