"""Pictures of the console, and what they were made of."""

from __future__ import annotations

import ast
import hashlib
import html
import re
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
UI = HERE.parent / "anvil_tui" / "ui"
MADE_OF = HERE / "made-of.txt"

FACTS = {
    "overview": "primary ● serving",
    "overview-light": "primary ● serving",
    "overview-high-contrast": "primary ● serving",
    "overview-colour-blind": "primary ● serving",
    "choose": "promote which recipe?",
    "plan": "type adaptive-mtp to confirm",
    "promoting": "HELD",
    "promoted": "promote",
    "recipes": "Recipes 12",
    "operations": "decision",
    "gates": "Gates",
    "compare": "Bundles",
    "logs": "Log",
    "gateway": "slot-a",
    "standing": "Way back",
    "storage": "Images",
    "history": "What happened",
    "help": "What every key does",
}
"""What each picture shows, in words."""


def words(svg: str) -> str:
    """The text of a picture, row by row."""
    rows: dict[float, list[tuple[float, str]]] = {}
    for x, y, text in re.findall(r'<text[^>]*? x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>', svg, re.S):
        rows.setdefault(float(y), []).append((float(x), html.unescape(text)))
    lines = ("".join(text for _, text in sorted(row)) for _, row in sorted(rows.items()))
    return "\n".join(lines).replace("\xa0", " ")


def drawn_by() -> str:
    """A hash of what draws: the console's code without comments and docstrings, its styles, and Textual."""
    digest = hashlib.sha256(version("textual").encode())
    for path in sorted([*UI.rglob("*.py"), *UI.rglob("*.tcss")]):
        text = path.read_text()
        digest.update(_bare(text) if path.suffix == ".py" else text.encode())
    return digest.hexdigest()


def _bare(source: str) -> bytes:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [
                n for n in node.body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))
            ]
    return ast.dump(tree).encode()
