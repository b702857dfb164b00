"""What the painter writes shows the same picture as what Textual would write, with a tenth of the bytes."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

from anvil_tui.ui.painter import Painter

WIDTH, HEIGHT, CUT = 40, 6, 17
STYLES = [
    Style.parse(s)
    for s in ("#c8ced6 on #0f1317", "bold #eef2f6 on #0f1317", "#87929f on #0f1317", "#87929f on #1c242c",
              "default on default", "underline #6cc0ad on #0f1317", "bold reverse #eef2f6 on #1c242c")
]  # fmt: skip
_TOKEN = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])|(\n)|([^\x1b\n])")


class Screen:
    """A terminal that knows CUP, CHA, SGR and text."""

    def __init__(self) -> None:
        self.cells: dict[tuple[int, int], tuple[str, object]] = {}

    def feed(self, written: str) -> None:
        x = y = 0
        pen = _Pen()
        for numbers, letter, newline, ch in _TOKEN.findall(written):
            if letter == "H":
                y, x = (int(n) - 1 for n in numbers.split(";"))
            elif letter == "G":
                x = int(numbers) - 1
            elif letter == "m":
                for code in _sgr(numbers):
                    pen = pen.after(code)
            elif newline:
                x, y = 0, y + 1
            elif cell_len(ch) == 0:
                text, shown = self.cells[y, x - 1]
                self.cells[y, x - 1] = (text + ch, shown)
            else:
                for i in range(cell_len(ch)):
                    self.cells[y, x + i] = ("" if i else ch, pen.seen(ch))
                x += cell_len(ch)


class _Pen(NamedTuple):
    attributes: frozenset[str] = frozenset()
    fg: str = ""
    bg: str = ""

    def after(self, code: str) -> _Pen:
        if code in ("", "0"):
            return _Pen()
        if code in ("39", "49"):
            return self._replace(fg="") if code == "39" else self._replace(bg="")
        if code[0] in "39" and len(code) > 1:
            return self._replace(fg=code)
        if len(code) > 1:
            return self._replace(bg=code)
        return self._replace(attributes=self.attributes | {code})

    def seen(self, ch: str) -> _Pen:
        """The ink of a blank does not show, unless it is drawn in reverse or underlined."""
        return self if ch != " " or self.attributes & {"4", "7"} else _Pen(bg=self.bg)


def _sgr(numbers: str) -> Iterator[str]:
    """One entry a setting: `38;2;R;G;B` stays together."""
    parts = numbers.split(";")
    while parts:
        n = {"2": 5, "5": 3}.get(parts[1], 1) if parts[0] in ("38", "48") else 1
        yield ";".join(parts[:n])
        del parts[:n]


def _strip(rng: random.Random, width: int) -> Strip:
    """Random words: ASCII, blanks, blocks, wide and combining characters."""
    segments, left = [], width
    while left:
        text = rng.choice(["12", "13", "  ", "━━─", "界界", "e\u0301x", "▁▂█", "free 1", " "])
        if cell_len(text) > left:
            text = " " * left
        segments.append(Segment(text, rng.choice(STYLES)))
        left -= cell_len(text)
    return Strip(segments, width)


def _console() -> Console:
    console = Console(force_terminal=True, color_system="truecolor", legacy_windows=False)
    assert console._color_system is ColorSystem.TRUECOLOR
    return console


@pytest.mark.parametrize("seed", range(8))
def test_the_picture_is_the_one_that_textual_would_draw(seed: int) -> None:
    rng, console, painter, ours, theirs = random.Random(seed), _console(), Painter(), Screen(), Screen()
    lines = [[_strip(rng, CUT), _strip(rng, WIDTH - CUT)] for _ in range(HEIGHT)]
    layout = LayoutUpdate([list(line) for line in lines], Region(0, 0, WIDTH, HEIGHT))
    for step in range(40):
        update: LayoutUpdate | ChopsUpdate = layout
        if step:
            y = rng.randrange(HEIGHT)
            which = rng.randrange(2)
            lines[y][which] = _strip(rng, CUT if which == 0 else WIDTH - CUT)
            chops = [{0: line[0], CUT: line[1] if rng.random() < 0.7 or which else None} for line in lines]
            first, end = ((0, CUT), (CUT, WIDTH))[which]
            update = ChopsUpdate(chops, [(y, first, end)], [[CUT, WIDTH] for _ in lines])
        theirs.feed(update.render_segments(console))
        ours.feed(painter.of(update).render_segments(console))
        assert ours.cells == theirs.cells, f"step {step}"


def _one(text: str, style: Style = STYLES[0]) -> ChopsUpdate:
    return ChopsUpdate([{0: Strip([Segment(text, style)])}], [(0, 0, len(text))], [[len(text)]])


def test_only_the_cells_that_differ_are_written() -> None:
    console, painter = _console(), Painter()
    painter.of(_one("free 99,254 MiB   used")).render_segments(console)
    assert painter.of(_one("free 99,254 MiB   used")).render_segments(console) == ""
    written = painter.of(_one("free 99,255 MiB   usex")).render_segments(console)
    assert written == "\x1b[1;11H\x1b[38;2;200;206;214;48;2;15;19;23m5\x1b[22Gx\x1b[m"


def test_a_layout_update_repairs_a_garbled_screen() -> None:
    """A `wall` message, a resumed job: what is drawn anew is drawn whole."""
    console, painter = _console(), Painter()
    whole = LayoutUpdate([[Strip([Segment("anvil", STYLES[0])])]], Region(0, 0, 5, 1))
    first = painter.of(whole).render_segments(console)
    assert "anvil" in first and painter.of(whole).render_segments(console) == first


def test_the_colours_of_a_poorer_terminal() -> None:
    console = Console(force_terminal=True, color_system="256", legacy_windows=False)
    written = Painter().of(_one("ab")).render_segments(console)
    assert re.fullmatch(r"\x1b\[1;1H\x1b\[38;5;\d+;48;5;\d+mab\x1b\[m", written), repr(written)


def test_without_colours_there_are_no_codes() -> None:
    written = Painter().of(_one("ab", Style())).render_segments(_console())
    assert written == "\x1b[1;1Hab"
