"""Makes `docs/reference.md` and `docs/keys.md` from the schemas and the registry of actions: `python -m docs`.

What a key is for stands in `docs/notes.toml`; type, limits and default come from the schema.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel
from pydantic.fields import FieldInfo

from anvil_tui.core.gates import Suite
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.settings import Settings
from anvil_tui.core.workspace import Workspace
from anvil_tui.ui import keymap
from anvil_tui.ui.actions import ACTIONS, Action

HERE = Path(__file__).parent
FILES: dict[str, tuple[str, type[BaseModel]]] = {
    "workspace": ("anvil.toml", Workspace),
    "recipe": ("recipes/ID.toml", Recipe),
    "suite": ("gates/ID.toml", Suite),
    "settings": ("config.toml", Settings),
}
TIERS = {
    "read": "only looks",
    "note": "at once, and only in `state/`",
    "reversible": "one dialog",
    "traffic": "the served name's last part is typed",
}
SIGNS = {"Ge": "≥ {ge}", "Le": "≤ {le}", "Gt": "> {gt}", "Lt": "< {lt}"}


def main() -> int:
    for name, text in documents().items():
        (HERE / name).write_text(text)
        print(name)
    return 0


def documents() -> dict[str, str]:
    """Name in this folder -> text, of every generated document."""
    return {"reference.md": reference(), "keys.md": keys()}


def notes() -> dict[str, dict[str, str]]:
    return tomllib.loads((HERE / "notes.toml").read_text())


def reference() -> str:
    known = notes()
    lines = [
        "# Every key of every file",
        "",
        "Made from the schemas by `make docs`. A key that is not here, a wrong type or a value outside its limits",
        "is an error that names file, line and key. A key without a default must be given.",
    ]
    for file, (path, model) in FILES.items():
        lines += ["", f"## `{path}`"]
        for table, rows in tables(model):
            lines += ["", f"### {table}" if table else "### top level"]
            if not rows:
                continue
            lines += ["", "| key | type | default | meaning |", "|---|---|---|---|"]
            for key, field in rows:
                dotted = f"{_plain(table)}.{key}".lstrip(".")
                lines.append(_row(key, field, known[file][dotted]))
    return "\n".join(lines) + "\n"


def _row(key: str, field: FieldInfo, note: str) -> str:
    cells = (f"`{key}`", kind_of(field.annotation, field.metadata), _default(field), note)
    return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"


def _plain(table: str) -> str:
    return table.strip("`[]")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    value = field.default
    if isinstance(value, Enum):
        value = value.value
    if value is None or value in ("", (), {}):
        return "none"
    if isinstance(value, tuple):
        return f"`[{', '.join(map(repr, value))}]`".replace("'", '"')
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def tables(model: type[BaseModel]) -> Iterator[tuple[str, list[Any]]]:
    """(heading, rows) of each table, outermost first; a row is (key, field). A table of a form that was told
    already has no rows: its heading names the one that told it."""
    told: dict[type[BaseModel], str] = {}
    waiting: list[tuple[str, type[BaseModel], bool]] = [("", model, False)]
    while waiting:
        path, table, listed = waiting.pop(0)
        heading = (f"`[[{path}]]`" if listed else f"`[{path}]`") if path else ""
        if table in told:
            yield f"{heading}: the keys of {told[table]}", []
            continue
        told[table] = heading
        inner: list[tuple[str, type[BaseModel], bool]] = []
        rows = []
        for name, field in table.model_fields.items():
            key = field.alias or name
            found = _model_in(field.annotation)
            if found is None or found[2]:
                rows.append((key, field))
            if found is not None and not found[2]:
                inner.append((f"{path}.{key}".lstrip("."), found[0], found[1]))
        yield heading, rows
        waiting[:0] = inner


def _model_in(annotation: Any) -> tuple[type[BaseModel], bool, bool] | None:
    """(model, whether it is a list of tables, whether the key is a table of tables by free names)."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False, False
    if origin in (Union, UnionType, Annotated):
        return next((f for a in inside if (f := _model_in(a))), None)
    if origin is tuple and (found := _model_in(inside[0])):
        return found[0], True, False
    if origin is dict and (found := _model_in(inside[1])):
        return found[0], False, True
    return None


def kind_of(annotation: Any, metadata: Any = ()) -> str:
    """One phrase: the type and what bounds it."""
    origin, inside = get_origin(annotation), get_args(annotation)
    limits = " ".join(_limits(metadata))
    if origin is Annotated:
        return kind_of(inside[0], (*inside[1:], *metadata))
    if origin is Literal:
        return ", ".join(f'`"{v}"`' for v in inside)
    if origin in (Union, UnionType):
        return " or ".join(kind_of(a, metadata) for a in inside if a is not NoneType)
    if origin is tuple:
        return f"list of {kind_of(inside[0])}"
    if origin is dict:
        return f"table of {kind_of(inside[1])}"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(f'`"{v.value}"`' for v in annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "table"
    names = {str: "text", int: "integer", float: "number", bool: "`true`, `false`", Any: "any value"}
    return f"{names.get(annotation, getattr(annotation, '__name__', 'text'))} {limits}".strip()


def _limits(metadata: Any) -> Iterator[str]:
    for rule in metadata:
        if isinstance(rule, AfterValidator) and rule.func.__doc__:
            yield f"({rule.func.__doc__})"
        elif isinstance(rule, FieldInfo):
            yield from _limits(rule.metadata)
        elif (name := type(rule).__name__) in SIGNS:
            yield SIGNS[name].format(**{name.lower(): getattr(rule, name.lower())})


def keys() -> str:
    lines = [
        "# Keys",
        "",
        "Made from the console's registry of actions by `make docs`. `?` in the console shows the same list, with",
        "the reason why an action is closed now. The id is what `[keys]` of `config.toml` names.",
        "",
        "Arrows, `j`, `k`, page up, page down, home and end move in the pane that has the focus.",
        "",
        "| key | action | id | confirmation |",
        "|---|---|---|---|",
    ]
    return "\n".join([*lines, *map(_key_row, ACTIONS)]) + "\n"


def _key_row(action: Action) -> str:
    written = ", ".join(f"`{keymap.written(k)}`" for k in action.keys)
    return f"| {written} | {action.help} | `{action.id}` | {TIERS[action.tier]} |"


if __name__ == "__main__":
    sys.exit(main())
