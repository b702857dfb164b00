"""A World in which every text that could come from outside carries something that a terminal or a reader
should not obey: names, ids, notes, reasons, paths, log lines, at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from anvil_tui.core.times import parse_time

POISONS = {
    "markup": "[/b] [bold red] [/] {\"x\": [true]} tail [b",
    "escapes": "\x1b[31mred\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\x1b]52;c;aGk=\x07\x9b2J\x00nul\x08\r\nnext\x7f\x1b[",
    "wide": "模型-超长-名字-双卡-長文-視覚👩\u200d👩\u200d👧e\u0301\u0301\ufe0f\u202eevil\u2066\u200f\u00ad",
    "long": "-" + "very-long-name" * 21,
}  # fmt: skip
T = TypeVar("T")


@cache
def hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def poisoned(value: T, poison: str, hint: Any = None) -> T:
    """The same value with `poison` behind each free text. Times, words of a Literal and enums stay as they are;
    equal texts stay equal, so that keys still find what they name."""
    made: Any = value
    if isinstance(value, Enum) or (_closed(hint) and isinstance(value, str)):
        return value
    if isinstance(value, str):
        made = value if not value or _is_time(value) else value + poison
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        of = hints(type(value))
        parts = {f.name: poisoned(getattr(value, f.name), poison, of[f.name])
                 for f in dataclasses.fields(value) if f.init}  # fmt: skip
        made = dataclasses.replace(value, **parts)
    elif isinstance(value, Mapping):
        key, item = (*get_args(_bare(hint)), Any, Any)[:2]
        # The keys of a document of no fixed shape are its schema, not its data.
        made = {
            k if item is Any else poisoned(k, poison, key): poisoned(v, poison, item) for k, v in value.items()
        }
    elif isinstance(value, tuple | list | frozenset):
        inner = [a for a in get_args(_bare(hint)) if a is not Ellipsis]
        each = inner[0] if len(set(map(str, inner))) == 1 else None
        parts_ = [poisoned(v, poison, inner[n] if each is None and n < len(inner) else each)
                  for n, v in enumerate(value)]  # fmt: skip
        made = type(value)(*parts_) if hasattr(value, "_fields") else type(value)(parts_)
    return made  # type: ignore[no-any-return]


def _bare(hint: Any) -> Any:
    """Without None."""
    if get_origin(hint) in (Union, UnionType):
        rest = [a for a in get_args(hint) if a is not type(None)]
        return rest[0] if len(rest) == 1 else None
    return hint


def _closed(hint: Any) -> bool:
    bare = _bare(hint)
    return get_origin(bare) is Literal or (isinstance(bare, type) and issubclass(bare, Enum))


def _is_time(text: str) -> bool:
    try:
        return parse_time(text) is not None
    except ValueError:
        return False
