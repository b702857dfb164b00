"""No road from foreign text to markup, no textual in presenters, no styling in Python (O-95)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

UI = Path(__file__).parents[2] / "anvil_tui" / "ui"
FILES = sorted(UI.rglob("*.py"))
# Widgets and calls that read markup from a str. The console draws strips and gives Content to the few buttons.
MARKUP = {"Static", "Label", "DataTable", "RichLog", "Log", "Markdown", "notify", "from_markup", "from_text"}


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            yield node.lineno, called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(UI)))
def test_nothing_here_reads_markup(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert [f"{path}:{line} {name}" for line, name in names(tree) if name in MARKUP] == []


def test_buttons_get_literal_content() -> None:
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Button":
                first = node.args[0]
                assert isinstance(first, ast.Call) and getattr(first.func, "id", "") == "Content", (
                    f"{path}:{node.lineno}"
                )


@pytest.mark.parametrize("path", sorted((UI / "presenters").glob("*.py")), ids=lambda p: p.stem)
def test_presenters_know_no_textual(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        bad = (
            "textual",
            "anvil_tui.ui.widgets",
            "anvil_tui.ui.screens",
            "anvil_tui.ui.modals",
            "anvil_tui.ui.app",
        )
        assert not [m for m in modules if m.startswith(bad)], path


def test_app_is_wiring_only() -> None:
    assert len((UI / "app.py").read_text().splitlines()) <= 250
