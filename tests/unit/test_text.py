"""The sanitiser of foreign text (field case O-95)."""

from __future__ import annotations

import time

import pytest

from anvil_tui.core.text import clean

LITERAL = [
    "[TP0] Load weight end",
    "x [/b] y",
    "path [/] here",
    '{"booleans": [true, false]}',
    "qwen[awq]-r7",
    "tail [b + and more",
    "café 模型 ✓ 100 %",
    "a\tb",
]


@pytest.mark.parametrize("text", LITERAL)
def test_ordinary_text_is_untouched(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[38;2;1;2;3mx\x1b[2J\x1b[Hy", "xy"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;aGk=\x07x", "x"),
        ("\x1bP1$tdata\x1b\\x", "x"),
        ("\x1b_apc\x1b\\x", "x"),
        ("a\x1bcb", "ab"),
        ("a\x1b", "a"),
        ("a\x1b[31", "a31"),
        ("keep \x1b]unterminated text", "keep unterminated text"),
        ("bell\x07back\x08nul\x00del\x7fc1\x84", "bellbacknuldelc1"),
        ("evil\u202egnp.exe", "evilgnp.exe"),
        ("a\u2066b\u2069c\u200fd\u061c", "abcd"),
        ("zero\u200bwidth\ufeff\u2060", "zerowidth"),
        ("tag\U000e0041s", "tags"),
        ("one\ntwo\r\nthree\rfour\u2028five", "one two three four five"),
        ("half \ud800 pair", "half \ufffd pair"),
        ("\x01\x00\x00\x00\x00\x00\x00\x03abc", "abc"),
    ],
)
def test_what_a_terminal_would_obey_is_gone(text: str, shown: str) -> None:
    assert clean(text) == shown


def test_nothing_unprintable_is_left_of_any_character() -> None:
    every = "".join(map(chr, range(0x3000))) + "\x1b[" + "\U000e0020\ud800"
    out = clean(every, limit=100_000)
    control = [c for c in out if (ord(c) < 32 and c != "\t") or 0x7F <= ord(c) <= 0x9F]
    assert control == []
    assert not set(out) & set(
        "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b\u200c\u200d\u200e\u200f"
    )


def test_bounded() -> None:
    assert clean("x" * 10, limit=10) == "x" * 10
    assert clean("x" * 11, limit=10) == "x" * 9 + "…"
    assert len(clean("\x1b[31m" * 3_000_000 + "y" * 50, limit=80)) <= 80


def test_hostile_text_takes_linear_time() -> None:
    """Measured 0.02 s a piece; patterns that could run into each other took over 10 s."""
    for piece in ("\x1b]", "\x1b[1;", "\x1bPa", "\x1b[ ", "\x9d", "\x9da", "\x90a", "\x9b1;", "\u202e", "\n"):
        started = time.perf_counter()
        clean(piece * 100_000, limit=1_000_000)
        assert time.perf_counter() - started < 3, repr(piece)
