"""What every full screen shares: header, lifecycle strip, hints, keys from the registry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.events import Key
from textual.screen import Screen

from anvil_tui.core.world import World
from anvil_tui.ui.actions import REGISTRY
from anvil_tui.ui.bridge import CALM_S
from anvil_tui.ui.presenters.cells import Cell, Row, View, spread
from anvil_tui.ui.presenters.header import header
from anvil_tui.ui.presenters.help import hints, urgent
from anvil_tui.ui.presenters.history import replay_strip
from anvil_tui.ui.presenters.lifecycle import strip
from anvil_tui.ui.text import literal
from anvil_tui.ui.widgets.pane import Pane
from anvil_tui.ui.widgets.strips import Line, Strips
from anvil_tui.ui.widgets.tail import Tail

if TYPE_CHECKING:
    from anvil_tui.ui.app import Console

MIXED = ("standing", "stored")
"""Choices of the View whose keys are `KIND:NAME`."""
_FILTERS = {name: name for name in ("serves", "log", "operations", "recipes", "bundles")} | {"tiny": "serves"}
"""By the id of a pane, the name of its filter."""
_WITHOUT_LOG = tuple(f.name for f in fields(World) if f.name not in ("log", "now_s", "now_utc"))
_MOVES = {"up,k": -1, "down,j": 1, "pageup": -10, "pagedown": 10, "home": -100_000, "end": 100_000}


class Board(Screen[None], inherit_bindings=False):
    """A subclass yields its panes in `body`, and names its hints; `CALLED` are hints whose action has another
    name here; `field` is the choice that it is about."""

    AUTO_FOCUS = "Pane"
    HINTS: ClassVar[tuple[str, ...]] = ("view.help", "view.palette", "view.back", "view.filter", "view.detail")
    CALLED: ClassVar[dict[str, str]] = {}
    field = ""
    _minute: datetime | None = None
    _seen: tuple[World, View, float] | None = None
    BINDINGS = [
        *(Binding(keys, f"move({by})", show=False) for keys, by in _MOVES.items()),
    ]

    @property
    def console(self) -> Console:
        return self.app  # type: ignore[return-value]

    def compose(self) -> ComposeResult:
        yield Line(id="header")
        yield Line(id="strip")
        yield from self.body()
        yield Line(id="hints")

    def body(self) -> ComposeResult:
        yield from ()

    def on_mount(self) -> None:
        self.show(self.console.world, self.console.view)
        self.console.shelves.tend()

    def on_screen_resume(self) -> None:
        """What was said while a dialog lay above is said now."""
        self.show_hints()

    def on_resize(self) -> None:
        self.show(self.console.world, self.console.view)

    def world_changed(self, world: World, view: View) -> None:
        """New lines of a log, which may come four times a second, concern nobody but the log. Ages concern all."""
        seen, now = self._seen, (world, view, self.console.silent_s)
        if seen and seen[1:] == now[1:] and world.now_s - seen[0].now_s < CALM_S and _new_lines(seen[0], world):
            for tail in self.query(Tail):
                tail.show(world, view)
        else:
            self._seen = now
            self.show(world, view)

    def show(self, world: World, view: View) -> None:
        drawn = Strips.drawn
        for pane in self.query(Pane):
            pane.show(world, view)
        width = self.size.width
        if not width or not self.is_mounted:
            return
        lines = strip(world, view, width, self.console.why_verb)
        if view.replay:
            lines = replay_strip(view.replay, view, width, home=self.console.replays.home is not None)
        elif self.console.silent_s:
            lines = (_silent(self.console.silent_s, width), lines[1])
        self.query_one("#strip", Line).set_rows(*lines)
        self.show_hints()
        self._show_header(world, view, moved=Strips.drawn != drawn)

    def _show_header(self, world: World, view: View, *, moved: bool) -> None:
        """Where nothing else moves the clock goes by the minute: a box at rest sends nothing to the terminal."""
        line, row = self.query_one("#header", Line), header(world, view, self.size.width)
        minute = world.now_utc.replace(second=0, microsecond=0)
        rest = bool(line.lines) and row.cells[:-1] == line.lines[0].cells[:-1] and minute == self._minute
        if moved or world.replayed or not rest:
            self._minute = minute
            line.set_rows(row)

    def show_hints(self) -> None:
        """The hints, or for one key press the sentence that answers the last one."""
        width, said = self.size.width, self.console.said
        shown = [REGISTRY[i] for i in urgent(self.console.world, self.hinted())]
        if self.console.world.read_only:
            shown = [a for a in shown if not a.mutates]
        rows = hints(shown, self.console.why, width, self.CALLED)
        if said:
            rows = spread([Cell(" "), Cell(literal(said), "warn")], [], width)
        for line in self.query("#hints").results(Line):  # none yet on a screen that was opened just now
            line.set_rows(rows)

    def line(self, view: View) -> tuple[str, str]:
        """Kind and name of the selected line, where a screen lists things of several kinds."""
        kind, _, name = str(getattr(view, self.field)).partition(":") if self.field in MIXED else ("", "", "")
        return kind, name

    def hinted(self) -> tuple[str, ...]:
        return self.HINTS

    # panes

    def panes(self) -> list[Pane]:
        """Panes that can have the focus, in reading order."""
        return [p for p in self.query(Pane) if p.can_focus and p.display and p.is_on_screen]

    def focused_pane(self) -> Pane | None:
        return self.focused if isinstance(self.focused, Pane) else next(iter(self.panes()), None)

    def cycle(self, by: int) -> None:
        panes, now = self.panes(), self.focused_pane()
        if panes:
            at = panes.index(now) if now in panes else -1
            panes[(at + by) % len(panes)].focus()

    def on_key(self, event: Key) -> None:
        """Textual's keymap drops a given key while an input has the focus; this is the only table of keys."""
        action = self.console.by_key.get(event.key)
        if action and isinstance(self.console.screen, Board):  # typed ahead of a dialog it arrives here, too
            event.stop()
            event.prevent_default()
            self.console.dispatch(REGISTRY[action])

    def action_move(self, by: int) -> None:
        pane = self.focused_pane()
        if pane is not None:
            pane.move(by)

    @on(Pane.Moved)
    def _moved(self, event: Pane.Moved) -> None:
        event.stop()
        field = event.pane.field or _field(self.console.world, event.key)
        self.console.choose(field, event.key, event.lost, picked=event.by_person)

    def filter_name(self) -> str:
        """Whose filter `/` sets here."""
        pane = self.focused_pane()
        return _FILTERS.get(pane.id or "", "") if pane else ""

    def filter_names(self) -> list[str]:
        """The filters of the panes that are shown, that of the pane with the focus first."""
        shown = [_FILTERS.get(pane.id or "", "") for pane in self.panes()]
        return [name for name in dict.fromkeys((self.filter_name(), *shown)) if name]

    def visible_text(self) -> Iterator[str]:
        """Every line of every strip on this screen, as drawn: for copying and for tests."""
        for strips in self.query(Line):
            yield from ("".join(c.text for c in r.cells) for r in strips.lines)
        for pane in self.query(Pane):
            if pane.display:
                yield from ("".join(c.text for c in r.cells) for r in pane.lines)


def _new_lines(old: World, new: World) -> bool:
    """Whether nothing but the log is new."""
    return old.log is not new.log and all(getattr(old, name) is getattr(new, name) for name in _WITHOUT_LOG)


def _field(world: World, key: str) -> str:
    """Which choice a key of a mixed pane is."""
    if world.serve(key):
        return "serve"
    return "operation" if any(o.id == key for o in world.operations) else "gpu"


def _silent(seconds: float, width: int) -> Row:
    text = f" NO NEWS for {seconds:.0f} s: what stands below is old"
    return spread([Cell(text, "bad")], [], width)
