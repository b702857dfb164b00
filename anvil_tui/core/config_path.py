"""Where one value stands in a configuration file: `providers.anvil.models[id=llm.primary].contextWindow`.

Names have dots between them; a name with a dot is in quotes; `[FIELD=VALUE]` is the item of a list whose field
has that value. Parsed data is read and changed here; how each format keeps its bytes is elsewhere. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from anvil_tui.core.errors import BadFile


@dataclass(frozen=True, slots=True)
class Pick:
    """The one item of a list whose `field` is `value` as text."""

    field: str
    value: str


Part = str | int | Pick
Path = tuple[Part, ...]
"""Whole numbers are places in a list; they come from reading a file, never from a person."""


class Absent:
    """The value of a key that a file does not have."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT = Absent()
_PART = re.compile(r'(?:^|\.)(?:"([^"]+)"|([^.\[\]"=]+))|\[([^\[\]=]+)=("?)([^\]"]+)\4\]')


def parse_path(text: str) -> Path:
    """ValueError says what is wrong with it.

    >>> parse_path('a."b.c".models[id=llm.primary].context')
    ('a', 'b.c', 'models', Pick(field='id', value='llm.primary'), 'context')
    """
    parts: list[Part] = []
    at = 0
    while at < len(text):
        found = _PART.match(text, at)
        if not found:
            raise ValueError(f"{text!r} is no key path at {text[at : at + 20]!r}; write a.b[FIELD=VALUE].c")
        quoted, bare, field, _, value = found.groups()
        parts.append(Pick(field, value) if field else quoted or bare)
        at = found.end()
    if not parts or not isinstance(parts[0], str) or not isinstance(parts[-1], str):
        raise ValueError(f"{text!r} must begin and end with a name")
    return tuple(parts)


def path_text(path: Path) -> str:
    """As `parse_path` reads it.

    >>> path_text(('a', 'b.c', Pick('id', 'x'), 'k'))
    'a."b.c"[id=x].k'
    """
    text = ""
    for part in path:
        if isinstance(part, Pick):
            text += f"[{part.field}={part.value}]"
        elif isinstance(part, int):
            text += f"[{part}]"
        else:
            name = f'"{part}"' if re.search(r'[.\[\]"=]', part) else part
            text += f".{name}" if text else name
    return text


def step(where: str, data: Any, path: Path, n: int) -> Any:
    """What part `n` of `path` names inside `data`, or ABSENT. BadFile when `data` is of the wrong kind."""
    part = path[n]
    if isinstance(part, str):
        if not isinstance(data, Mapping):
            raise BadFile(where, f"must hold named values, it is {_kind(data)}", key=_upto(path, n))
        return data.get(part, ABSENT)
    if not isinstance(data, list):
        raise BadFile(where, f"must be a list, it is {_kind(data)}", key=_upto(path, n))
    at = index_of(where, data, path, n)
    return ABSENT if at is None else data[at]


def index_of(where: str, items: list[Any], path: Path, n: int) -> int | None:
    """Which item part `n` picks; None when none does. BadFile when several do."""
    part = path[n]
    if isinstance(part, int):
        return part if part < len(items) else None
    assert isinstance(part, Pick)
    found = [
        i for i, item in enumerate(items) if isinstance(item, Mapping) and str(item.get(part.field)) == part.value
    ]
    if len(found) > 1:
        raise BadFile(
            where, f"{len(found)} items have {part.field} = {part.value}: which is meant?", key=_upto(path, n)
        )
    return found[0] if found else None


def _upto(path: Path, n: int) -> str | None:
    return path_text(path[:n]) or None


def get(where: str, data: Any, path: Path) -> Any:
    """The value at a path, or ABSENT."""
    for n in range(len(path)):
        data = step(where, data, path, n)
        if data is ABSENT:
            return ABSENT
    return data


def put(where: str, data: Any, path: Path, value: Any) -> None:
    """Set one value in place; what is missing on the way to it is made."""
    for n, part in enumerate(path):
        found = step(where, data, path, n)
        last = n == len(path) - 1
        if found is ABSENT or last:
            made = nested(path[n + 1 :], value)
            if isinstance(part, Pick):
                data.append(item(part, made))
            else:
                data[part] = made
            return
        data = found


def nested(rest: Path, value: Any) -> Any:
    """The value inside everything that `rest` names around it."""
    for part in reversed(rest):
        value = [item(part, value)] if isinstance(part, Pick) else {part: value}
    return value


def item(part: Pick, inner: Any) -> dict[str, Any]:
    return {part.field: part.value, **inner}


def texts(data: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Every text in the data with its path."""
    if isinstance(data, str):
        yield path, data
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from texts(value, (*path, str(key)))
    elif isinstance(data, list):
        for n, value in enumerate(data):
            yield from texts(value, (*path, n))


def _kind(data: Any) -> str:
    return "a list" if isinstance(data, list) else "a table" if isinstance(data, Mapping) else f"{data!r:.40}"
