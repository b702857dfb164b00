"""A list and the chosen item in full: recipes, operations, gates. And one item alone, and the log alone."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal

from anvil_tui.ui.presenters import details, gates, operations, recipes
from anvil_tui.ui.screens.board import Board
from anvil_tui.ui.widgets.pane import Build, Pane
from anvil_tui.ui.widgets.tail import Tail


class Recipes(Board):
    HINTS: ClassVar[tuple[str, ...]] = (
        "view.help", "view.back", "view.filter", "recipe.load", "recipe.promote", "view.copy",
    )  # fmt: skip

    def body(self) -> ComposeResult:
        with Horizontal(classes="split"):
            yield Pane(recipes.list_panel, "recipe", id="recipes")
            yield Pane(recipes.detail_panel, id="recipe")


class Operations(Board):
    HINTS: ClassVar[tuple[str, ...]] = (
        "view.help", "view.back", "operation.resume", "operation.undo", "operation.cancel", "view.filter",
    )  # fmt: skip

    def body(self) -> ComposeResult:
        with Horizontal(classes="split"):
            yield Pane(operations.list_panel, "operation", id="operations")
            yield Pane(operations.detail_panel, id="operation")


class Gates(Board):
    HINTS: ClassVar[tuple[str, ...]] = ("view.help", "view.back", "serve.qualify", "operation.cancel", "view.logs")

    def body(self) -> ComposeResult:
        with Horizontal(classes="split"):
            yield Pane(gates.panel, "gate", id="gates")
            yield Pane(gates.detail, id="gate")


class Logs(Board):
    HINTS: ClassVar[tuple[str, ...]] = ("view.help", "view.back", "view.pause", "view.filter", "view.redraw")

    def body(self) -> ComposeResult:
        yield Tail(id="log")


class Detail(Board):
    """One serve or one GPU in full."""

    HINTS: ClassVar[tuple[str, ...]] = ("view.help", "view.back", "view.copy", "serve.qualify", "serve.unload")
    BUILDS: ClassVar[dict[str, Build]] = {"serve": details.serve_panel, "gpu": details.gpu_panel}

    def __init__(self, field: str) -> None:
        super().__init__()
        self.field = field

    def body(self) -> ComposeResult:
        yield Pane(self.BUILDS[self.field], id="detail")


SCREENS: dict[str, type[Board]] = {
    "view.recipes": Recipes,
    "view.operations": Operations,
    "view.gates": Gates,
    "view.logs": Logs,
}
