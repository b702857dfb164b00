"""The drawing base: rows of cells in, strips out, and only the lines that changed are drawn again."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from anvil_tui.ui.glyphs import to_ascii
from anvil_tui.ui.presenters.cells import BLANK, TONES, Cell, Row
from anvil_tui.ui.text import literal


class Strips(Widget):
    """Draws `lines`, one row a line. A subclass sets them through `paint`."""

    COMPONENT_CLASSES = {*(f"tone--{t}" for t in TONES), "tone--cursor"}
    ALLOW_SELECT = False
    ascii_only = False
    drawn = 0
    """Counted up with every paint of any strip in which something differed."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self.lines: tuple[Row, ...] = ()
        self.lit = -1

    def paint(self, lines: Sequence[Row], lit: int = -1) -> None:
        """Show these rows; `lit` is the line with the cursor's background. Only lines that differ are drawn."""
        old, was = self.lines, self.lit
        self.lines, self.lit = tuple(lines), lit
        width, height = self.size
        regions = [
            Region(0, y, width, 1)
            for y in range(min(height, max(len(old), len(lines))))
            if (y == was) != (y == lit) or _at(old, y).cells != _at(self.lines, y).cells
        ]
        if regions:
            Strips.drawn += 1
            self.refresh(*regions)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        base = self.get_component_rich_style("tone--text")
        over = self.get_component_rich_style("tone--cursor", partial=True) if y == self.lit else None
        segments = [Segment(self._text(c.text), self._style(c, over)) for c in _at(self.lines, y).cells]
        return Strip(segments).adjust_cell_length(width, base + over if over else base)

    def _style(self, cell: Cell, over: Style | None) -> Style:
        style = self.get_component_rich_style(f"tone--{cell.tone}")
        return style + over if over else style

    def _text(self, text: str) -> str:
        """Whatever a presenter let through, a journal's word or a recording's, no terminal obeys it."""
        if not text.isprintable():
            text = literal(text, len(text))
        return to_ascii(text) if self.ascii_only else text

    def on_resize(self) -> None:
        self.resized()

    def resized(self) -> None:
        """The size is known or changed: a subclass lays its rows out again."""
        self.refresh()


def _at(lines: Sequence[Row], y: int) -> Row:
    return lines[y] if y < len(lines) else BLANK


class Line(Strips):
    """One or two fixed lines: header, strip, hints. `build` is set by the board that owns it."""

    def set_rows(self, *rows: Row) -> None:
        self.paint(rows)
