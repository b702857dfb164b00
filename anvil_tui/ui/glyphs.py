"""Every glyph the console draws, each one cell wide, with its one-cell ASCII twin.

Presenters write glyphs; `to_ascii` swaps them at the last moment, so a fact never depends on the font.
"""

from __future__ import annotations

from typing import Final

from rich.cells import cell_len

OK: Final = "●"
WAIT: Final = "◐"
OFF: Final = "○"
BAD: Final = "✖"
ASK: Final = "?"
DONE: Final = "✔"
RUN: Final = "▶"
TODO_DOT: Final = "·"
POINT: Final = "▌"
RULE: Final = "─"
CUT: Final = "…"
BAR: Final = "━"
HALF: Final = "╸"
DASH: Final = "–"
ARROW: Final = "→"
UP: Final = "↑"
DOWN: Final = "↓"
WARN: Final = "▲"

TIMES: Final = "×"

LEVELS: Final = "▁▂▃▄▅▆▇█"

TWINS: Final[dict[str, str]] = {
    OK: "+",
    WAIT: "~",
    OFF: "o",
    BAD: "X",
    ASK: "?",
    DONE: "v",
    RUN: ">",
    TODO_DOT: ".",
    POINT: ">",
    RULE: "-",
    CUT: "~",
    BAR: "#",
    HALF: "=",
    DASH: "-",
    ARROW: ">",
    UP: "^",
    DOWN: "v",
    WARN: "!",
    "▁": "_",
    "▂": ".",
    "▃": ":",
    "▄": "-",
    "▅": "=",
    "▆": "+",
    "▇": "*",
    "█": "#",
    "°": " ",
    TIMES: "x",
    "≥": ">",
    "≤": "<",
    "µ": "u",
    "•": "*",
    "“": '"',
    "”": '"',
    "’": "'",
    "—": "-",
    "│": "|",
}
_TABLE: Final = str.maketrans(TWINS)


def to_ascii(text: str) -> str:
    """The same text in printable ASCII, cell for cell: twins for our glyphs, `?` for everything else.

    >>> to_ascii("● 模 …")
    '+ ?? ~'
    """
    swapped = text.translate(_TABLE)
    if swapped.isascii():
        return swapped
    return "".join(ch if ch.isascii() else "?" * cell_len(ch) for ch in swapped)
