"""The log: follows the newest line; paused it stays on its line, and counts what waits and what was lost."""

from __future__ import annotations

from textual.events import Key

from anvil_tui.core.recipe import EngineKind
from anvil_tui.core.world import LogView, World
from anvil_tui.ui import glyphs
from anvil_tui.ui.keymap import key
from anvil_tui.ui.presenters import logs
from anvil_tui.ui.presenters.cells import Cell, Panel, Row, View
from anvil_tui.ui.text import clip, literal
from anvil_tui.ui.widgets.pane import Pane

_STEP = 16


class Tail(Pane):
    """`held` is the absolute number of the last line shown while paused, None while following."""

    def __init__(self, *, id: str) -> None:  # noqa: A002
        super().__init__(lambda world, view, width, height: Panel("Log", ()), id=id)
        self.held: int | None = None
        self.shift = 0
        self._log: LogView | None = None
        self._then = False
        self._engine: EngineKind | None = None
        self._lines: tuple[tuple[int, str], ...] = ()

    def _build(self, world: World, view: View) -> None:
        log = world.log
        if log and self._log and log.container_id != self._log.container_id:
            self.held, self.shift = None, 0
        wanted = view.filter_of("log")
        self._then = world.replayed
        self._log, self._lines = log, logs.matching(log, wanted) if log else ()
        self._engine = logs.engine_of(world)
        self.panel = Panel(logs.title(world, wanted, len(self._lines)), (), self._note())
        self.lay_out()

    def _note(self) -> Cell:
        log = self._log
        if log is None:
            return Cell("no serve chosen", "dim")
        lost = f"  {log.dropped:,} dropped" if log.dropped else ""
        note = f"  {literal(log.note, 120)}" if log.note else ""
        if self.held is None:
            return Cell(f"{'as recorded' if self._then else 'following'}{lost}{note}", "dim")
        waiting = sum(n > self.held for n, _ in self._lines)
        return Cell(f"PAUSED  +{waiting:,} waiting{lost}{note}", "warn")

    def lay_out(self) -> None:
        room = max(0, self.size.height - 1)
        self.panel = Panel(self.panel.title, (), self._note())
        self.paint([self.rule(0), *self._seen(room)])

    def _seen(self, room: int) -> list[Row]:
        lines = self._lines if self.held is None else [x for x in self._lines if x[0] <= self.held]
        if self.held is not None and not lines and self._lines:
            return [
                Row(
                    (
                        Cell(
                            f"  line {self.held:,} has fallen off the front: {key('view.pause')} follows again",
                            "warn",
                        ),
                    )
                )
            ]
        if not lines:
            return [Row((Cell("  no line yet" if self._log else "  choose a serve to read its log", "dim"),))]
        return [self._one(text) for _, text in lines[-room:]] if room else []

    def _one(self, text: str) -> Row:
        shown = literal(text, 8192)
        moved = shown[self.shift :]
        left = glyphs.CUT if self.shift and shown else " "
        mark, tone = logs.mark_of(shown, self._engine)
        return Row((Cell(left, "faint"), Cell(f"{mark} ", tone), Cell(clip(moved, self.size.width - 3), tone)))

    def whole_text(self) -> str:
        """Every line that the filter lets through, up to the one where it was paused."""
        held = self.held
        return "\n".join(literal(text, 8192) for n, text in self._lines if held is None or n <= held)

    def move(self, by: int) -> None:
        """Up pauses; down past the newest line follows again."""
        numbers = [n for n, _ in self._lines]
        if not numbers:
            return
        held = numbers[-1] if self.held is None else self.held
        at = max((i for i, n in enumerate(numbers) if n <= held), default=0) + by
        self.held = None if at >= len(numbers) else numbers[max(0, at)]
        self.lay_out()

    def toggle(self) -> None:
        """Freeze at the newest line, or follow again."""
        if self.held is not None or not self._lines:
            self.held = None
        else:
            self.held = self._lines[-1][0]
        self.lay_out()

    def on_key(self, event: Key) -> None:
        if event.key in ("left", "right"):
            self.shift = max(0, self.shift + (_STEP if event.key == "right" else -_STEP))
            self.lay_out()
            event.stop()
