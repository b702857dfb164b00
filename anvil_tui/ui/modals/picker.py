"""Choose one row by typing a part of it: recipes, roles, commands. A closed row says why and stays closed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.widgets import Input

from anvil_tui.core.world import World
from anvil_tui.ui.modals.dialog import Modal
from anvil_tui.ui.presenters.cells import Cell, Panel, Row, View, sentence
from anvil_tui.ui.text import literal
from anvil_tui.ui.widgets.pane import Pane
from anvil_tui.ui.widgets.strips import Line

Rows = Callable[[str, int], Sequence[Row]]
Closed = Callable[[str], str | None]
Begin = Callable[[Sequence[str]], str]


class Picker(Modal):
    """Answers the key of the chosen row, None for Esc. `rows` gets the typed text and the width."""

    AUTO_FOCUS = "Input"
    BINDINGS = [
        Binding("escape", "cancel", show=False),
        Binding("up", "step(-1)", show=False, priority=True),
        Binding("down", "step(1)", show=False, priority=True),
        Binding("pageup", "step(-10)", show=False, priority=True),
        Binding("pagedown", "step(10)", show=False, priority=True),
    ]

    def __init__(
        self, title: str, rows: Rows, closed: Closed, start: str = "", begin: Begin | None = None
    ) -> None:
        """`begin` chooses the row to stand on whenever something was typed; without it the first that is open."""
        super().__init__()
        self.prompt, self._rows, self._why, self._begin = title, rows, closed, begin
        self._list = Pane(self._panel, id="choices")
        self._list.cursor = start
        self._list.lit_always = True
        self._list.can_focus = False  # after a click on a row, too, what is typed narrows and enter takes

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield Input(placeholder="type to narrow, arrows move, enter takes, esc goes back", compact=True)
            yield self._list
            yield Line(id="asked")

    @property
    def typed(self) -> str:
        return self.query_one(Input).value

    def _panel(self, world: World, view: View, width: int, height: int) -> Panel:
        found = tuple(self._rows(self.typed, width))
        return Panel(self.prompt, found or (Row((Cell("nothing matches", "dim"),)),))

    def on_mount(self) -> None:
        self.world_changed(self.console.world, self.console.view)
        self.call_after_refresh(self._first_open)

    def _first_open(self) -> None:
        """Begin on a row that can be taken, where there is one."""
        keys = self._list.keys()
        if self._begin is not None:
            self._list.stand_on(self._begin(keys))
            return
        if self._list.cursor in keys and not self._why(self._list.cursor):
            return
        wanted = next((k for k in keys if not self._why(k)), "")
        if wanted:
            self._list.move(keys.index(wanted) - keys.index(self._list.cursor))

    def on_resize(self) -> None:
        self.call_after_refresh(self._say)

    def world_changed(self, world: World, view: View) -> None:
        self._list.show(world, view)
        self._say()

    @on(Input.Changed)
    def _narrow(self) -> None:
        self.world_changed(self.console.world, self.console.view)
        self._first_open()

    @on(Pane.Moved)
    def _moved(self, event: Pane.Moved) -> None:
        event.stop()
        self._say()

    def _say(self) -> None:
        why = self._why(self._list.cursor) if self._list.cursor else None
        line = self.query_one("#asked", Line)
        rows = sentence(f"not now: {literal(why)}" if why else "", line.size.width or 1, "warn", most=2)
        line.set_class(len(rows) > 1, "-two")
        line.set_rows(*rows)

    @on(Input.Submitted)
    def _take(self) -> None:
        key = self._list.cursor
        if key and not self._why(key):
            self.dismiss(key)

    def action_cancel(self) -> None:
        self.dismiss(None)

    def action_step(self, by: int) -> None:
        self._list.move(by)
