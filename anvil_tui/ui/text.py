"""Literal text for cells: cutting by terminal cells, ages, bytes, times, bars. Nothing here is markup."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, tzinfo

from rich.cells import cell_len, chop_cells, set_cell_size

from anvil_tui.core.box import MIB
from anvil_tui.core.text import clean
from anvil_tui.core.times import parse_time
from anvil_tui.ui import glyphs

NA = "n/a"


def literal(text: object, limit: int = 512) -> str:
    """A foreign string as one drawable line. Every foreign string passes here."""
    return clean(str(text), limit).replace("\t", " ")


def fit(text: str, width: int) -> str:
    """At most `width` cells: cut in the middle with a mark, head and tail stay readable.

    >>> fit("glm53-flash-524k-vision-xgfix", 14)
    'glm53-f…-xgfix'
    """
    if cell_len(text) <= width:
        return text
    if width <= 1:
        return glyphs.CUT[:width]
    tail = (width - 1) // 2
    head = width - 1 - tail
    return set_cell_size(text, head).rstrip() + glyphs.CUT + _last_cells(text, tail)


def _last_cells(text: str, width: int) -> str:
    out, used = "", 0
    for ch in reversed(text):
        used += cell_len(ch)
        if used > width:
            break
        out = ch + out
    return out


def clip(text: str, width: int) -> str:
    """At most `width` cells, cut at the end: for sentences, where the beginning matters."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)).rstrip() + glyphs.CUT if width > 0 else ""


def pad(text: str, width: int) -> str:
    """Exactly `width` cells, cut in the middle if longer, blanks on the right if shorter."""
    short = fit(text, width)
    return short + " " * (width - cell_len(short))


def rpad(text: str, width: int) -> str:
    """Exactly `width` cells, blanks on the left: for numbers."""
    short = fit(text, width)
    return " " * (width - cell_len(short)) + short


def number(value: float | int | None, unit: str = "") -> str:
    """Thousands with commas, `n/a` for None.

    >>> number(393216, "tok"), number(None)
    ('393,216 tok', 'n/a')
    """
    if value is None:
        return NA
    return f"{value:,.0f} {unit}".rstrip()


def mib(value: int | None) -> str:
    return number(None if value is None else value // MIB, "MiB")


def gib(value: int | None, *, unit: bool = True) -> str:
    """One decimal GiB, `n/a` for None."""
    if value is None:
        return NA
    return f"{value / (1024 * MIB):.1f}" + (" GiB" if unit else "")


def clock(at: str | None, zone: tzinfo | None) -> str:
    """HH:MM:SS in `zone` (None = this machine's) of an RFC 3339 text; the text itself if it is none."""
    try:
        when = parse_time(at)
        return "-" if when is None else when.astimezone(zone).strftime("%H:%M:%S")
    except (ValueError, OverflowError):  # the last hours of the calendar are in no other zone
        return literal(at, 8)


def stamp(at: str | None, zone: tzinfo | None) -> str:
    """Date and time with the zone written behind it."""
    try:
        when = parse_time(at)
        return "-" if when is None else f"{when.astimezone(zone):%Y-%m-%d %H:%M:%S %Z}"
    except (ValueError, OverflowError):
        return literal(at, 40)


def seconds_since(at: str | None, now: datetime) -> float | None:
    try:
        when = parse_time(at)
    except ValueError:
        return None
    return None if when is None else max(0.0, (now - when).total_seconds())


def bar(fraction: float, width: int) -> tuple[str, str]:
    """The filled and the empty part of a bar of `width` cells; the fraction is clipped to 0..1."""
    full, half = divmod(round(max(0.0, min(1.0, fraction)) * width * 2), 2)
    filled = glyphs.BAR * full + glyphs.HALF * half
    return filled, glyphs.RULE * (width - len(filled))


def spark(values: Iterable[int | None], width: int, top: int = 100) -> str:
    """The last `width` values as block levels; a missing value is a blank, zero is the lowest block.

    >>> spark((0, None, 50, 100), 6)
    '  ▁ ▅█'
    """
    last = list(values)[-width:] if width > 0 else []
    return "".join(_level(v, top) for v in last).rjust(width)


def _level(value: int | None, top: int) -> str:
    if value is None:
        return " "
    share = max(0.0, min(1.0, value / top))
    return glyphs.LEVELS[round(share * 7)]


def short_id(container_id: str) -> str:
    return container_id[:12]


def wrap(text: str, width: int) -> list[str]:
    """A sentence in lines of at most `width` cells; a word longer than that is cut in pieces."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        while cell_len(word) > width:
            room = width - cell_len(line) - 1 if line else width
            if room < 8:
                lines.append(line)
                line, room = "", width
            head = set_cell_size(word, room).rstrip()
            lines.append(f"{line} {head}".strip())
            line, word = "", word[len(head) :]
        if line and cell_len(line) + 1 + cell_len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return [*lines, line] if line else lines or [""]


def chop(text: str, width: int) -> list[str]:
    """A line of a file in pieces of `width` cells: its blanks are kept, and nothing is cut off."""
    return chop_cells(text, max(1, width)) or [""]
