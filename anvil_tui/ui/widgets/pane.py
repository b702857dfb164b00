"""A pane: a rule with its title, rows below, a cursor that stays on its key."""

from __future__ import annotations

from collections.abc import Callable

from textual.events import Click, MouseScrollDown, MouseScrollUp
from textual.message import Message

from anvil_tui.core.world import World
from anvil_tui.ui import glyphs
from anvil_tui.ui.presenters.cells import BLANK, Cell, Panel, Row, Tone, View, cut_row, width_of
from anvil_tui.ui.text import clip
from anvil_tui.ui.widgets.strips import Strips

Build = Callable[[World, View, int, int], Panel]

GUTTER, MARGIN = 2, 1
# Lines of one notch of the wheel where nothing can be selected.
_NOTCH = 3


class Pane(Strips, can_focus=True):
    """Shows the panel that `build` makes of the World. The cursor is a key of the View, never a position."""

    class Moved(Message):
        """The cursor is on another key, by a person or by itself; `lost` is the key that vanished under it."""

        def __init__(self, pane: Pane, key: str, lost: str = "", *, by_person: bool = False) -> None:
            super().__init__()
            self.pane, self.key, self.lost, self.by_person = pane, key, lost, by_person

    def __init__(self, build: Build, field: str = "", *, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self.build, self.field = build, field
        self.top = 0
        self.lit_always = False
        self.cursor = ""
        self.panel = Panel("", ())
        self._told: str | None = None
        self._world: World | None = None
        self._view = View()

    # what is shown

    def show(self, world: World, view: View) -> None:
        self._world, self._view = world, view
        if self.size.width and self.display:
            self._build(world, view)

    def resized(self) -> None:
        if self._world is not None and self.size.width:
            self._build(self._world, self._view)
        self.refresh()

    def _build(self, world: World, view: View) -> None:
        keys = self.keys()
        width, height = self.size
        self.panel = self.build(world, view, max(1, width - GUTTER - MARGIN), max(1, height - 1))
        self._place(keys, str(getattr(view, self.field)) if self.field else self.cursor)
        self.lay_out()

    def keys(self) -> list[str]:
        """The selectable items, each once, in order."""
        return list(dict.fromkeys(r.key for r in self.panel.rows if r.key))

    def _place(self, before: list[str], wanted: str) -> None:
        """Keep the cursor on its key; when it is gone, go to the neighbour and say so."""
        now = self.keys()
        if not now or wanted in now:
            self.cursor, self._told = wanted if now else "", None
            return
        if self._told == wanted and self.cursor in now:
            return  # said already; the view that answers is on its way
        self._told = wanted
        lost = wanted if wanted in before else ""
        at = min(before.index(wanted), len(now) - 1) if lost else 0
        self.cursor = now[at]
        self.post_message(self.Moved(self, self.cursor, lost))

    def lay_out(self) -> None:
        """Rule, then the rows that fit, with the cursor's lines in sight."""
        rows, room = self.panel.rows, max(0, self.size.height - 1)
        marked = [i for i, r in enumerate(rows) if self.cursor and r.key == self.cursor]
        if marked:
            self.top = min(self.top, marked[0] if marked[0] > 1 else 0)
            self.top = max(self.top, marked[-1] - room + 1)
        self.top = max(0, min(self.top, len(rows) - room))
        seen = rows[self.top : self.top + room]
        lines = [self.rule(len(rows) - self.top - room), *(self._line(r, i) for i, r in enumerate(seen, self.top))]
        first = marked[0] if marked else -1
        lit = first - self.top + 1 if (self.has_focus or self.lit_always) and first >= self.top else -1
        self.paint(lines, lit)

    def _line(self, row: Row, index: int) -> Row:
        rows = self.panel.rows
        head = bool(row.key) and row.key == self.cursor and (index == 0 or rows[index - 1].key != row.key)
        mark = Cell(f"{glyphs.POINT} ", "accent" if self.has_focus else "dim") if head else Cell("  ")
        return Row((mark, *row.cells), row.key)

    def rule(self, below: int) -> Row:
        """Title, rule, note. What lies below the last line is counted."""
        width = self.size.width
        title_tone: Tone = "mark" if self.has_focus else "strong"
        tail: list[Cell] = []
        if self.panel.note:
            tail += [Cell(f" {clip(self.panel.note.text, max(8, width // 2))} ", self.panel.note.tone)]
        hidden = [f"{glyphs.UP}{self.top}"] * (self.top > 0) + [f"{glyphs.DOWN}{below}"] * (below > 0)
        if hidden:
            tail += [Cell(f" {' '.join(hidden)} ", "dim")]
        title = cut_row([Cell(f"{self.panel.title} ", title_tone)], max(1, width - width_of(tail) - 2))
        fill = max(0, width - width_of(title) - width_of(tail))
        return Row((*title, Cell(glyphs.RULE * fill, "accent" if self.has_focus else "line"), *tail))

    # moving

    def move(self, by: int) -> None:
        """The cursor by items, or the rows when nothing here can be selected."""
        keys = self.keys()
        if not keys:
            self.top += by
            self.lay_out()
            return
        at = keys.index(self.cursor) if self.cursor in keys else 0
        self._take(keys[max(0, min(len(keys) - 1, at + by))])

    def _take(self, key: str) -> None:
        if key != self.cursor:
            self.cursor = key
            self.post_message(self.Moved(self, key, by_person=True))
        self.lay_out()

    def on_click(self, event: Click) -> None:
        """The cursor on the row that is drawn there. Nothing else: no click begins a deed."""
        row = self.lines[event.y] if 0 < event.y < len(self.lines) else BLANK
        if row.key:
            self._take(row.key)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        event.stop()
        self.move(-1 if self.keys() else -_NOTCH)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        event.stop()
        self.move(1 if self.keys() else _NOTCH)

    def stand_on(self, key: str) -> None:
        """The cursor on one item, where it is there; nobody moved it there by hand."""
        if key in self.keys():
            self.cursor = key
            self.lay_out()
            self.post_message(self.Moved(self, key))

    def page(self) -> int:
        return max(1, self.size.height - 2)

    def on_focus(self) -> None:
        self.lay_out()

    def on_blur(self) -> None:
        self.lay_out()

    def on_show(self) -> None:
        self.resized()
