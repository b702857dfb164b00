"""The overview: six panes at 120x40, two at a time with tabs at 80x24, one line a serve below that."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal

from anvil_tui.core.world import World
from anvil_tui.ui.keymap import key
from anvil_tui.ui.presenters import capacity, gates, gpus, operations, serves, tiny
from anvil_tui.ui.presenters.cells import Cell, View, spread
from anvil_tui.ui.screens.board import Board
from anvil_tui.ui.widgets.pane import Pane
from anvil_tui.ui.widgets.strips import Line
from anvil_tui.ui.widgets.tail import Tail

_TABS: dict[str, tuple[str, tuple[str, ...]]] = {
    "box": ("GPUs, serves", ("gpus", "serves")),
    "gates": ("KV capacity, gates", ("kv", "gates")),
    "work": ("operations, log", ("events", "log")),
}


class Overview(Board):
    """In the narrow layout the tab with the focused pane is the one that shows: tab walks through all."""

    AUTO_FOCUS = ""
    HINTS: ClassVar[tuple[str, ...]] = (
        "view.help", "view.palette", "recipe.load", "serve.qualify", "recipe.promote", "role.rollback",
    )  # fmt: skip

    def body(self) -> ComposeResult:
        yield Line(id="tabs")
        with Horizontal(id="row1", classes="row"):
            yield Pane(gpus.panel, "gpu", id="gpus")
            yield Pane(capacity.panel, id="kv")
        with Horizontal(id="row2", classes="row"):
            yield Pane(serves.panel, "serve", id="serves")
            yield Pane(gates.panel, "gate", id="gates")
        yield Pane(operations.events_panel, "operation", id="events")
        yield Tail(id="log")
        yield Pane(tiny.panel, id="tiny")

    def on_mount(self) -> None:
        super().on_mount()
        self.tab("box")
        self.call_after_refresh(self._first_focus)

    def _first_focus(self) -> None:
        wanted = "#tiny" if self.is_tiny else "#serves"
        self.query_one(wanted, Pane).focus()

    @property
    def is_tiny(self) -> bool:
        return self.has_class("-tiny-w") or self.has_class("-tiny-h")

    @property
    def is_tabbed(self) -> bool:
        return self.has_class("-narrow") or self.has_class("-short")

    def on_resize(self) -> None:
        super().on_resize()
        pane = self.focused_pane()
        if self.is_tiny or (pane and pane.id == "tiny"):
            self.call_after_refresh(self._first_focus)

    def tab(self, name: str) -> None:
        for other in _TABS:
            self.set_class(other == name, f"-{other}")
        self._draw_tabs()

    def show(self, world: World, view: View) -> None:
        super().show(world, view)
        self._draw_tabs()

    def _draw_tabs(self) -> None:
        if not self.is_mounted or not self.size.width:
            return
        cells = [Cell(" ")]
        for name, (label, _) in _TABS.items():
            here = self.has_class(f"-{name}")
            cells += [Cell(f"[{label}]" if here else f" {label} ", "mark" if here else "dim"), Cell(" ")]
        self.query_one("#tabs", Line).set_rows(
            spread(cells, [Cell(f"{key('view.next')} next ", "faint")], self.size.width)
        )

    def panes(self) -> list[Pane]:
        if self.is_tiny:
            return [self.query_one("#tiny", Pane)]
        if self.is_tabbed:
            return [self.query_one(f"#{i}", Pane) for _, ids in _TABS.values() for i in ids]
        return [self.query_one(f"#{i}", Pane) for i in ("gpus", "kv", "serves", "gates", "events", "log")]

    def stand_on(self, name: str, key: str) -> None:
        """The focus on a pane, in its tab, and the cursor on one of its items."""
        pane = self.query_one("#tiny" if self.is_tiny else f"#{name}", Pane)
        if self.is_tabbed:
            self.tab(next(tab for tab, (_, ids) in _TABS.items() if name in ids))
        pane.cursor = key
        pane.focus()

    def cycle(self, by: int) -> None:
        panes, now = self.panes(), self.focused_pane()
        pane = panes[((panes.index(now) if now in panes else -1) + by) % len(panes)]
        if self.is_tabbed:
            self.tab(next(name for name, (_, ids) in _TABS.items() if pane.id in ids))
        pane.focus()
