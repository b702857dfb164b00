"""A question with Cancel in focus, and optionally a word to type. Keys typed before it was drawn are dropped."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.events import Key
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widgets import Button, Input

from anvil_tui.core.world import World
from anvil_tui.ui.presenters.cells import Cell, Panel, View, row, sentence
from anvil_tui.ui.text import literal
from anvil_tui.ui.widgets.pane import GUTTER, MARGIN, Pane
from anvil_tui.ui.widgets.strips import Line

if TYPE_CHECKING:
    from anvil_tui.ui.app import Console

Draw = Callable[[int], Panel]

# border, question, input, buttons and the gaps between them
_CHROME = 9


class Body(Pane, can_focus=False):
    """The text of a dialog: as high as its rows, scrolled by the dialog's keys."""

    def __init__(self, draw: Draw) -> None:
        super().__init__(lambda world, view, width, height: self.draw(width), id="body")
        self.draw = draw

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        wanted = len(self.draw(max(1, width - GUTTER - MARGIN)).rows) + 1
        return min(wanted, max(3, viewport.height - _CHROME))


class Modal(ModalScreen[str | None], inherit_bindings=False):
    """What every question shares: a garbled terminal is drawn again over it, too."""

    @property
    def console(self) -> Console:
        return self.app  # type: ignore[return-value]

    def on_key(self, event: Key) -> None:
        """A letter that a person gave to that stays a letter in a field: the field keeps it."""
        if self.console.by_key.get(event.key) == "view.redraw":
            self.console.refresh(layout=True, repaint=True)


class Dialog(Modal):
    """Answers None for Cancel, else what was typed ("" when nothing had to be).

    `word` must be typed exactly; `ask` wants any text (a reason, a filter). `no` is the word on Cancel.
    """

    AUTO_FOCUS = ""
    BINDINGS = [
        Binding("escape", "cancel", show=False),
        Binding("tab,right", "step(1)", show=False),
        Binding("shift+tab,left", "step(-1)", show=False),
        Binding("up,k", "scroll(-1)", show=False),
        Binding("down,j", "scroll(1)", show=False),
        Binding("pageup", "scroll(-10)", show=False),
        Binding("pagedown", "scroll(10)", show=False),
    ]

    def __init__(self, draw: Draw, yes: str = "", word: str = "", ask: str = "", text: str = "",
                 no: str = "Cancel") -> None:  # fmt: skip
        super().__init__()
        self.draw, self.yes, self.no, self.ask, self.text = draw, yes, no, ask, text
        self.word = word
        self.closed = ""
        self.note = ""
        self.armed_at = math.inf

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield Body(self.draw)
            yield Line(id="asked")
            if self.word or self.ask:
                yield Input(self.text, placeholder="type here", compact=True, select_on_focus=False)
            with Horizontal(id="buttons"):
                yield Button(Content(f"[ {self.no if self.yes else 'Close'} ]"), id="cancel", compact=True)
                if self.yes:
                    yield Button(Content(f"[ {self.yes} ]"), id="yes", compact=True)

    def on_mount(self) -> None:
        self.query_one(Body).show(self.console.world, View())
        self._say()
        self.call_after_refresh(self._arm)

    def _arm(self) -> None:
        """Drawn: from now on keys count, Cancel has the focus, and the buttons show it."""
        self.armed_at = time.monotonic()
        self.query_one("#buttons").add_class("-armed")
        self.home()

    def home(self) -> None:
        wanted = self.query(Input).first() if self.ask and not self.word else self.query_one("#cancel", Button)
        # Widget.focus is queued: a Tab typed in the same moment would be undone by it.
        self.set_focus(wanted)

    # what stands between body and buttons

    def _say(self) -> None:
        line = self.query_one("#asked", Line)
        width = line.size.width or self.app.size.width
        asked = self._question()
        rows = sentence(asked.text, width, asked.tone, most=2)
        line.set_class(len(rows) > 1, "-two")
        line.set_rows(*rows)
        for box in self.query(Input):
            box.display = not self.closed
        for button in self.query("#yes").results(Button):
            button.disabled = bool(self.closed)

    def _question(self) -> Cell:
        if self.note:
            return Cell(literal(self.note), "warn")
        if self.closed:
            return Cell(literal(self.closed), "bad")
        if self.word:
            return Cell(f"This touches live traffic. Tab, then type {self.word} to confirm:", "warn")
        return Cell(self.ask, "dim")

    def on_resize(self) -> None:
        self._say()

    # answers

    @on(Button.Pressed, "#cancel")
    def action_cancel(self) -> None:
        self.dismiss(None)

    @on(Button.Pressed, "#yes")
    @on(Input.Submitted)
    def _confirm(self) -> None:
        typed = "".join(i.value for i in self.query(Input)).strip()
        if self.closed or math.isinf(self.armed_at):
            return
        if self.word and typed != self.word:
            self.note = f"Type {self.word} exactly: this is a second look, not a formality"
            self._say()
            return
        self.dismiss(typed)

    @on(Input.Changed)
    def _typing(self) -> None:
        self.note = ""
        self._say()

    def action_step(self, by: int) -> None:
        """Cancel, what is to be typed, the deed: in this order."""
        stops = [*self.query("#cancel"), *self.query(Input), *self.query("#yes").results(Button)]
        able = [w for w in stops if not w.disabled and w.display]
        at = able.index(self.focused) if self.focused in able else -1
        # Not Widget.focus, which is queued: what is typed right after Tab must reach the field.
        self.set_focus(able[(at + by) % len(able)])

    def action_scroll(self, by: int) -> None:
        self.query_one(Body).move(by)

    def world_changed(self, world: World, view: View) -> None:
        """A plain question does not change; a plan does."""


def sentence_panel(title: str, text: str) -> Draw:
    """A dialog body of plain sentences."""

    def draw(width: int) -> Panel:
        rows = [r for line in text.split("\n") for r in (sentence(line, width) if line else [row("")])]
        return Panel(title, tuple(rows))

    return draw
