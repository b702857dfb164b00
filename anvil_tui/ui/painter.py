"""What goes to the terminal: of each update, only the cells that differ from what stands there.

Textual's own partial update writes a line from the left edge of its widget up to the changed cells, once for each
changed run, with a whole style before and a reset behind every segment: 78 % of its bytes were colour codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from rich.cells import cell_len
from rich.color import Color, ColorSystem
from rich.console import Console
from rich.style import Style
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual.strip import Strip

# A move to another column of the line costs up to six bytes; fewer unchanged cells are written again.
_GAP = 6


class Pen(NamedTuple):
    """SGR parameters. `fg` None: it does not show, as on a blank."""

    attributes: str
    fg: str | None
    bg: str


class Cell(NamedTuple):
    """One column. `text` is "" for the right half of a wide character."""

    text: str
    pen: Pen


PLAIN = Pen("", "", "")
# None: the update says nothing of this column.
Line = list[Cell | None]
_KEPT = 4096


class Painter:
    """Remembers what the terminal shows. A layout update is written whole: it also repairs a garbled screen."""

    def __init__(self) -> None:
        self._shown: dict[int, Line] = {}
        self._pens: dict[tuple[Style, ColorSystem], tuple[Pen, Pen]] = {}
        self._parts: dict[tuple[str, Style | None, ColorSystem], list[Cell]] = {}

    def of(self, update: CompositorUpdate) -> CompositorUpdate:
        """The same update, thriftily written. What is remembered changes when it is rendered, never before."""
        return _Thrifty(self, update) if isinstance(update, LayoutUpdate | ChopsUpdate) else update

    def write(self, update: LayoutUpdate | ChopsUpdate, console: Console) -> str:
        colours = console._color_system or ColorSystem.TRUECOLOR
        if isinstance(update, LayoutUpdate):
            self._shown.clear()
            first, end = update.region.x, update.region.right
            lines = {
                y: self._line({first: Strip.join(strips)}, end, colours)
                for y, strips in enumerate(update.strips, update.region.y)
            }
            return _sequence(run for y, line in lines.items() for run in self._runs(y, first, end, line))
        lines = {
            y: self._line(update.chops[y], max(end for row, _, end in update.spans if row == y), colours)
            for y in {y for y, _, _ in update.spans}
        }
        return _sequence(run for y, first, end in update.spans for run in self._runs(y, first, end, lines[y]))

    def _line(self, parts: Mapping[int, Strip | None], end: int, colours: ColorSystem) -> Line:
        """The columns before `end`."""
        line: Line = []
        for x, strip in parts.items():
            if strip is None or x >= end:
                continue
            line += [None] * (x - len(line))
            for text, style, control in strip:
                if not control:
                    line += self._part(text, style, colours)
        return line + [None] * (end - len(line))

    def _part(self, text: str, style: Style | None, colours: ColorSystem) -> list[Cell]:
        """The columns of one segment. Most segments are drawn again and again: kept."""
        key = (text, style, colours)
        known = self._parts.get(key)
        if known is None:
            if len(self._parts) >= _KEPT:
                self._parts.clear()
            known = self._parts[key] = _cells(text, *self._pen(style, colours))
        return known

    def _pen(self, style: Style | None, colours: ColorSystem) -> tuple[Pen, Pen]:
        """For characters, and for blanks."""
        if style is None:
            return PLAIN, PLAIN
        key = (style, colours)
        if key not in self._pens:
            attributes = _attributes(style, colours)
            pen = Pen(attributes, _codes(style.color, colours), _codes(style.bgcolor, colours, foreground=False))
            seen = style.reverse or style.underline or style.strike or style.underline2 or style.overline
            self._pens[key] = (pen, pen if seen else Pen("", None, pen.bg))
        return self._pens[key]

    def _runs(self, y: int, first: int, end: int, line: Line) -> Iterator[tuple[int, int, list[Cell]]]:
        """Row, column and cells of what differs between `first` and `end`; remembers it as shown."""
        shown = self._shown.setdefault(y, [])
        shown += [None] * (end - len(shown))
        differ = [x for x in range(first, end) if line[x] is not shown[x] and line[x] not in (None, shown[x])]
        for x in differ:
            shown[x] = line[x]
        while differ:
            last, n = differ[0], 1
            while n < len(differ) and differ[n] - last <= _GAP and None not in line[last : differ[n]]:
                last, n = differ[n], n + 1
            at = differ[0]
            del differ[:n]
            cells = [cell for cell in line[at : last + 1] if cell is not None]
            if cells[0].text == "" and at > 0 and (whole := line[at - 1]) is not None:
                at, cells = at - 1, [whole, *cells]
            yield y, at, cells


class _Thrifty(CompositorUpdate):
    def __init__(self, painter: Painter, update: LayoutUpdate | ChopsUpdate) -> None:
        self._painter, self._update = painter, update

    def render_segments(self, console: Console) -> str:
        return self._painter.write(self._update, console)


def _cells(text: str, pen: Pen, blank: Pen) -> list[Cell]:
    cells: list[Cell] = []
    for ch in text:
        wide = 1 if ch.isascii() else cell_len(ch)
        if wide == 0 and cells:
            cells[-1] = Cell(cells[-1].text + ch, pen)
        elif wide:
            cells.append(Cell(ch, blank if ch == " " else pen))
            cells += [Cell("", pen)] * (wide - 1)
    return cells


def _attributes(style: Style, colours: ColorSystem) -> str:
    """Bold and its like, without colours."""
    drawn = style.without_color.render("x", color_system=colours)
    return drawn[2 : drawn.index("m")] if drawn.startswith("\x1b[") else ""


def _codes(colour: Color | None, colours: ColorSystem, *, foreground: bool = True) -> str:
    return "" if colour is None else ";".join(colour.downgrade(colours).get_ansi_codes(foreground))


def _sequence(runs: Iterable[tuple[int, int, list[Cell]]]) -> str:
    """Moves, colours where they change, text; the pen is put back at the end."""
    out: list[str] = []
    pen, row = PLAIN, -1
    for y, x, cells in runs:
        out.append(f"\x1b[{x + 1}G" if y == row else f"\x1b[{y + 1};{x + 1}H")
        row = y
        for text, wanted in cells:
            if wanted is not pen and wanted != pen:
                code, pen = _change(pen, wanted)
                out.append(code)
            out.append(text)
    return "".join(out) + ("\x1b[m" if pen != PLAIN else "")


def _change(now: Pen, wanted: Pen) -> tuple[str, Pen]:
    """The shortest way from one pen to another, and the pen that it leads to."""
    if now.attributes != wanted.attributes and now.attributes:
        codes = ["0", wanted.attributes, wanted.fg or "", wanted.bg]
        return f"\x1b[{';'.join(c for c in codes if c)}m", wanted._replace(fg=wanted.fg or "")
    fg = now.fg if wanted.fg is None else wanted.fg
    codes = [wanted.attributes] if wanted.attributes != now.attributes else []
    codes += [fg or "39"] if fg != now.fg else []
    codes += [wanted.bg or "49"] if wanted.bg != now.bg else []
    return (f"\x1b[{';'.join(codes)}m" if codes else ""), Pen(wanted.attributes, fg, wanted.bg)
