"""A list and the chosen item: recipes, operations, gates, bundles. And one item alone, and the log alone."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal

from anvil_tui.ui.presenters import (
    compare,
    details,
    gate_table,
    gateway,
    history,
    operations,
    recipes,
    standing,
    storage,
)
from anvil_tui.ui.screens.board import Board
from anvil_tui.ui.widgets.pane import Build, Pane
from anvil_tui.ui.widgets.tail import Tail


class Recipes(Board):
    HINTS: ClassVar[tuple[str, ...]] = (
        "view.help", "view.back", "view.filter", "view.arm", "recipe.load", "recipe.promote",
    )  # fmt: skip
    CALLED: ClassVar[dict[str, str]] = {"view.arm": "mark to compare"}

    def body(self) -> ComposeResult:
        with Horizontal(classes="split"):
            yield Pane(recipes.list_panel, "recipe", id="recipes")
            yield Pane(recipes.beside_panel, id="recipe")


class Operations(Board):
    HINTS: ClassVar[tuple[str, ...]] = (
        "view.help", "view.back", "operation.resume", "operation.undo", "operation.cancel", "view.verify",
    )  # fmt: skip

    def body(self) -> ComposeResult:
        with Horizontal(classes="split"):
            yield Pane(operations.list_panel, "operation", id="operations")
            yield Pane(operations.detail_panel, id="operation")


class Gates(Board):
    HINTS: ClassVar[tuple[str, ...]] = (
        "view.help", "view.back", "view.detail", "operation.pause", "operation.resume", "operation.cancel",
    )  # fmt: skip

    def body(self) -> ComposeResult:
        with Horizontal(classes="stack"):
            yield Pane(gate_table.table, "gate", id="gates")
            yield Pane(gate_table.detail, id="gate")


class Compare(Board):
    HINTS: ClassVar[tuple[str, ...]] = (
        "view.help", "view.back", "view.arm", "view.detail", "view.verify", "view.filter",
    )  # fmt: skip
    CALLED: ClassVar[dict[str, str]] = {"view.arm": "arm A or B"}

    def body(self) -> ComposeResult:
        with Horizontal(classes="stack"):
            yield Pane(compare.list_panel, "bundle", id="bundles")
            yield Pane(compare.panel, id="comparison")


class Gateway(Board):
    HINTS: ClassVar[tuple[str, ...]] = (
        "view.help", "view.back", "role.quiesce", "role.drain", "role.readmit", "view.standing",
    )  # fmt: skip

    def body(self) -> ComposeResult:
        with Horizontal(classes="stack"):
            yield Pane(gateway.panel, "alias", id="gateway")
            yield Pane(gateway.requests_panel, id="requests")


class Standing(Board):
    HINTS: ClassVar[tuple[str, ...]] = (
        "view.help", "view.back", "view.detail", "role.drill", "credential.rotate", "client.apply",
    )  # fmt: skip
    field = "standing"

    def body(self) -> ComposeResult:
        with Horizontal(classes="split"):
            yield Pane(standing.list_panel, "standing", id="standings")
            yield Pane(standing.detail_panel, id="standing")


class Storage(Board):
    """Looks at the disks when it opens, when it is redrawn, and after a removal."""

    HINTS: ClassVar[tuple[str, ...]] = (
        "view.help", "view.back", "view.detail", "storage.remove", "serve.unload", "view.redraw",
    )  # fmt: skip
    CALLED: ClassVar[dict[str, str]] = {"view.redraw": "look again"}
    field = "stored"

    def body(self) -> ComposeResult:
        with Horizontal(classes="split"):
            yield Pane(storage.list_panel, "stored", id="disks")
            yield Pane(storage.detail_panel, id="stored")


class History(Board):
    """Reads what is kept when it opens, and when it is redrawn."""

    HINTS: ClassVar[tuple[str, ...]] = ("view.help", "view.back", "view.detail", "view.export", "view.redraw")
    CALLED: ClassVar[dict[str, str]] = {"view.detail": "replay it"}

    def body(self) -> ComposeResult:
        with Horizontal(classes="split"):
            yield Pane(history.spans_panel, "span", id="spans")
            yield Pane(history.moments_panel, "moment", id="moments")

    def on_mount(self) -> None:
        super().on_mount()
        self.console.replays.look()


class Logs(Board):
    HINTS: ClassVar[tuple[str, ...]] = ("view.help", "view.back", "view.pause", "view.filter", "view.redraw")

    def body(self) -> ComposeResult:
        yield Tail(id="log")


class Detail(Board):
    """One thing in full, on the whole screen."""

    HINTS: ClassVar[tuple[str, ...]] = ("view.help", "view.back", "view.copy")
    MORE: ClassVar[dict[str, tuple[str, ...]]] = {
        "serve": ("serve.qualify", "serve.unload"), "recipe": ("recipe.load", "recipe.promote"),
        "gate": ("operation.pause", "operation.resume", "operation.cancel"), "bundle": ("view.verify",),
        "operation": ("operation.resume", "operation.undo", "operation.cancel", "view.verify"),
        "standing": ("role.drill", "credential.rotate", "client.apply"), "stored": ("storage.remove",),
    }  # fmt: skip
    BUILDS: ClassVar[dict[str, Build]] = {
        "serve": details.serve_panel, "gpu": details.gpu_panel, "gate": gate_table.detail,
        "operation": operations.detail_panel, "recipe": recipes.detail_panel, "bundle": compare.panel,
        "standing": standing.detail_panel, "stored": storage.detail_panel,
    }  # fmt: skip

    def __init__(self, field: str) -> None:
        super().__init__()
        self.field = field

    def hinted(self) -> tuple[str, ...]:
        return (*self.HINTS, *self.MORE.get(self.field, ()))

    def body(self) -> ComposeResult:
        yield Pane(self.BUILDS[self.field], id="detail")


SCREENS: dict[str, type[Board]] = {
    "view.recipes": Recipes,
    "view.operations": Operations,
    "view.gates": Gates,
    "view.compare": Compare,
    "view.logs": Logs,
    "view.gateway": Gateway,
    "view.standing": Standing,
    "view.storage": Storage,
    "view.history": History,
}
