"""A validation error of a table as a person reads it: file, line, dotted key, what is wrong, nearest known key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from anvil_tui.adapters.toml_lines import KeyPath, Place, key_text, parse_key
from anvil_tui.core.errors import BadFile
from anvil_tui.core.recipe import Table

HINT = "use single quotes or double the backslashes"
_WORDS = {
    "str": "a string", "bool": "a boolean", "int": "an integer", "float": "a float", "list": "an array",
    "tuple": "an array", "dict": "a table", "date": "a date", "datetime": "a date and time", "time": "a time",
}  # fmt: skip
_WANTED = {
    "int_type": "an integer", "string_type": "a string", "bool_type": "true or false", "float_type": "a number",
    "tuple_type": "an array", "dict_type": "a table", "model_type": "a table", "date_type": "a date",
    "is_instance_of": "a string",
}  # fmt: skip

_WINDOWS = re.compile(r"(?:(?:^|[^A-Za-z])[A-Za-z]:(?:[\\/]\S*?)?|(?:^|[\s=])\\\\\S+?)[\x00-\x1f]")

Problem = tuple[KeyPath, str]


def bad_file(path: str, places: Mapping[KeyPath, Place], problems: list[Problem]) -> BadFile:
    """One error for all problems of a file, in the order of their lines."""
    rows = sorted(((_line(places, key), key_text(key), text) for key, text in problems), key=lambda r: r[0])
    line, key, text = rows[0]
    more = [str(BadFile(path, t, line=n, key=k or None)) for n, k, t in rows[1:]]
    return BadFile(path, "\n".join([text, *more]), line=line, key=key or None)


def _line(places: Mapping[KeyPath, Place], key: KeyPath) -> int:
    """The key's own line, else that of the nearest table around it."""
    while key and key not in places:
        key = key[:-1]
    return places[key].line if key in places else 1


def problems_of(error: ValidationError, model: type[Table]) -> list[Problem]:
    """Every error with its key; a message of our own may hold several lines, each beginning with its key."""
    found: list[Problem] = []
    for detail in error.errors(include_url=False):
        key = tuple(p for p in detail["loc"] if p != "[key]")
        if detail["type"] == "value_error":
            found += [_own(line, key, model) for line in detail["msg"].removeprefix("Value error, ").split("\n")]
        elif detail["type"] == "extra_forbidden":
            found.append((key, _unknown(key, model)))
        else:
            found.append((key, _said(detail)))
    return found


def control_characters(data: Any, key: KeyPath = ()) -> Iterator[Problem]:
    """Windows paths that a basic string turned into something else (`"D:\\temp"` holds a TAB), wherever any text
    is allowed; a line end in other text is nobody's mistake."""
    if isinstance(data, str) and _WINDOWS.search(data):
        yield key, f"holds a control character in a Windows path: {HINT}"
    elif isinstance(data, dict):
        for name, value in data.items():
            yield from control_characters(value, (*key, name))
    elif isinstance(data, (list, tuple)):
        for n, value in enumerate(data):
            yield from control_characters(value, (*key, n))


def _own(line: str, key: KeyPath, model: type[Table]) -> Problem:
    first, _, rest = line.partition(" ")
    named = parse_key(first)
    table = _model_at(key, model)
    if table and named and named[0] in _names(table):
        return (*key, *named), rest
    return key, line + (f": {HINT}" if "control characters" in line else "")


def _said(detail: ErrorDetails) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "missing":
        return "is required and missing"
    if kind in _WANTED:
        return f"must be {_WANTED[kind]}, not {_WORDS.get(type(detail['input']).__name__, 'this')}"
    if kind in ("literal_error", "enum"):
        return _choice(str(detail["input"]), str(context["expected"]))
    text = detail["msg"].replace("Input should be", "must be").replace("String should", "must")
    value = detail["input"]
    return f"{text}, not {value}" if isinstance(value, (int, float)) and not isinstance(value, bool) else text


def _choice(value: str, expected: str) -> str:
    known = re.findall(r"'([^']*)'", expected)
    near = get_close_matches(value, known, 1)
    return f"must be {expected}" + (f"; nearest: '{near[0]}'" if near else "")


def _unknown(key: KeyPath, model: type[Table]) -> str:
    name = str(key[-1])
    here = _model_at(key[:-1], model)
    own = _names(here) if here else ()
    plain = name.lower().replace("-", "_")
    near = get_close_matches(plain, own, 1, 0.7)
    if near:
        return f"unknown key; nearest known key: {near[0]}"
    homes = list(dict.fromkeys(home for home, known in _all(model) if known == name))
    if homes:
        return f"this key belongs to {' or '.join(homes)}"
    close = get_close_matches(plain, [known for _, known in _all(model)], 1)
    if close:
        home = next(home for home, known in _all(model) if known == close[0])
        return f"unknown key; nearest known key: {close[0]} in {home}"
    flags = "; flags of the engine go into argv" if "argv" in own else ""
    return f"unknown key; known here: {', '.join(own)}{flags}"


def _names(model: type[Table]) -> tuple[str, ...]:
    return tuple(info.alias or name for name, info in model.model_fields.items())


def _tables_in(annotation: Any) -> tuple[type[Table] | None, bool]:
    """The table type inside an annotation, and whether it is an array of them."""
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return annotation, False
    origin = get_origin(annotation)
    if origin in (tuple, Union, UnionType):
        inner = [_tables_in(a)[0] for a in get_args(annotation)]
        return next((t for t in inner if t), None), origin is tuple
    return None, False


def _field(model: type[Table], name: str | int) -> FieldInfo | None:
    return next((i for n, i in model.model_fields.items() if name == (i.alias or n)), None)


def _model_at(key: KeyPath, model: type[Table]) -> type[Table] | None:
    found: type[Table] | None = model
    for part in key:
        if isinstance(part, int) or found is None:
            continue
        info = _field(found, part)
        found = _tables_in(info.annotation)[0] if info else None
    return found


def _all(model: type[Table], at: str = "") -> Iterator[tuple[str, str]]:
    """Every known key of the file with the table it stands in, as its header is written."""
    home = at or "the top level, above the first [table]"
    for name, info in model.model_fields.items():
        known = info.alias or name
        yield home, known
        table, many = _tables_in(info.annotation)
        if table:
            path = f"{at.strip('[]')}.{known}" if at else known
            yield from _all(table, f"[[{path}]]" if many else f"[{path}]")
