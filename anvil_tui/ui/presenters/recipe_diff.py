"""Two recipes on one screen: only what differs, with the differing part of each value highlighted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.cells import cell_len

from anvil_tui.core.recipe import Recipe
from anvil_tui.core.redact import redact, redact_argv
from anvil_tui.core.screening import Feasible
from anvil_tui.core.world import World
from anvil_tui.ui import glyphs
from anvil_tui.ui.keymap import key
from anvil_tui.ui.presenters import feasible
from anvil_tui.ui.presenters.cells import BLANK, Cell, Panel, Row, heading, row, sentence
from anvil_tui.ui.text import chop, literal

# What names a recipe, and what people wrote about it: neither says how it runs.
_APART = ("schema", "id", "title", "decisions", "figures")
_LABEL = 4


def panel(world: World, a: Recipe, b: Recipe, width: int) -> Panel:
    """`feasibility here` is what this box makes of each; then every field of the files that differs."""
    left, right = fields(a), fields(b)
    names = list(dict.fromkeys((*left, *right)))
    differ = [name for name in names if left.get(name) != right.get(name)]
    rows = [*_pair("A", literal(a.id), "B", literal(b.id), width), BLANK]
    found = [feasible.screened(world, r) for r in (a, b)]
    rows += [heading("feasibility here", width), *_pair("A", _here(found[0]), "B", _here(found[1]), width)]
    for name in differ:
        rows.append(row(Cell(literal(name, 200), "dim")))
        rows += _pair("A", left.get(name), "B", right.get(name), width)
    if not differ:
        rows += sentence("Every field that says how they run is the same.", width, "dim")
    same = len(names) - len(differ)
    told = f"{same} fields are the same; decisions and figures are not compared."
    told += f" {key('view.arm')} takes a mark away."
    return Panel(f"{len(differ)} of {len(names)} fields differ", (*rows, BLANK, *sentence(told, width, "dim")))


def _here(found: Feasible) -> str:
    return f"{found.cls}: {literal(found.screen.why, 400)}"


def fields(recipe: Recipe) -> dict[str, str]:
    """Every field as text by its dotted name; an argument vector by its flags, tables of a list by their names."""
    told = recipe.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dict(_flat("", {k: v for k, v in told.items() if k not in _APART}))


def _flat(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(f"{path}.{name}".lstrip("."), inner)
    elif path.endswith("argv"):
        yield from _flags(path, redact_argv(value))
    elif isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
        for number, inner in enumerate(value, 1):
            yield from _flat(f"{path}[{inner.get('name') or inner.get('target') or number}]", inner)
    elif isinstance(value, list):
        yield path, ", ".join(map(str, value)) or "none"
    elif isinstance(value, bool):
        yield path, "yes" if value else "no"
    elif value != "":
        yield path, redact(f"{value:,}" if isinstance(value, int) else str(value))


def _flags(path: str, argv: Iterable[str]) -> Iterator[tuple[str, str]]:
    """`--flag value value` is one field; what stands before the first flag is `argv`."""
    name, values, seen = path, list[str](), dict[str, int]()
    for arg in (*argv, None):
        if arg is not None and not arg.startswith("--"):
            values.append(arg)
            continue
        if name != path or values:
            seen[name] = seen.get(name, 0) + 1
            yield f"{name} ({seen[name]})" if seen[name] > 1 else name, " ".join(values) or "given"
        if arg is not None:
            flag, has, value = arg.partition("=")
            name, values = f"{path} {flag}", [value] if has else []


def _pair(name: str, a: str | None, other: str, b: str | None, width: int) -> list[Row]:
    """Both values, each on lines of its own, the part that differs marked."""
    before, after = _common(a or "", b or "")
    return [*_value(name, a, before, after, width), *_value(other, b, before, after, width)]


def _common(a: str, b: str) -> tuple[int, int]:
    """How many characters are the same at the two ends, in whole words."""
    before = _same(a, b)
    return before, _same(a[before:][::-1], b[before:][::-1])


def _same(a: str, b: str) -> int:
    """The length of the common beginning in whole words: half a word is no news."""
    if a == b:
        return len(a)
    same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    while same and a[same - 1].isalnum():
        same -= 1
    return same


def _value(name: str, value: str | None, before: int, after: int, width: int) -> list[Row]:
    label = Cell(f"  {name} ", "accent")
    if value is None:
        return [row(label, Cell(f"{glyphs.DASH} not set", "mark"))]
    shown = literal(value, 4000)
    end = len(shown) - after
    runs = [Cell(shown[:before], "text"), Cell(shown[before:end], "mark"), Cell(shown[end:], "text")]
    first, *more = _flow(runs, max(8, width - _LABEL))
    return [row(label, *first), *(row(" " * _LABEL, *cells) for cells in more)]


def _flow(runs: Iterable[Cell], room: int) -> list[list[Cell]]:
    """Runs of cells in lines of `room` cells; nothing is cut."""
    lines: list[list[Cell]] = [[]]
    left = room
    for run in runs:
        text = run.text
        while text:
            piece = chop(text, left)[0] if left else ""
            if not piece:
                lines.append([])
                left = room
                continue
            lines[-1].append(Cell(piece, run.tone))
            left -= cell_len(piece)
            text = text[len(piece) :]
    return lines
