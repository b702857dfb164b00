"""A World as JSON, and what changed between two of them. Pure.

A tree is what JSON gives back. A patch is `[value]` (replaced), `[n, items]` (n gone from the front of a list,
items added at its end), or an object of patches by key or position, where null is a key that is gone. Members that
are the same object are never looked into, so that a frame costs what has changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from anvil_tui.core.redact import redact_values
from anvil_tui.core.text import clean
from anvil_tui.core.times import utc_text
from anvil_tui.core.world import World

Tree = dict[str, Any]
Hide = Callable[[str], str]
CLOCKS = ("now_s", "now_utc")
MOST_ITEMS = 20_000
"""In a list or object that a change copies: in a file made to do harm each short line would copy a huge one."""
# A bounded list that grew by more than this between two frames is written anew.
_SLIDES = 64
_PLAIN = (str, int, float, bool)


def encode(world: World, hide: Hide = str) -> Tree:
    """The whole world without its clocks, every text in it hidden."""
    tree: Tree = redact_values(to_jsonable_python(world), hide)
    return {k: v for k, v in tree.items() if k not in CLOCKS}


def decode(tree: Tree, at: datetime, s: float) -> World:
    """The world as it was at that moment, replayed: nothing can start from it. ValueError when it is none."""
    try:
        # no reader of ours lets NaN or infinity in, and no screen can round one
        world = _adapter().validate_json(dumped({**tree, "now_s": s, "now_utc": utc_text(at)}, nan=False))
    except ValidationError as why:
        first = why.errors()[0]
        raise ValueError(clean(f"{'.'.join(str(p) for p in first['loc'])}: {first['msg']}", 300)) from why
    except RecursionError as why:
        raise ValueError("it is nested too deeply") from why
    return replace(world, read_only=True, replayed=True)


def dumped(value: Any, *, nan: bool = True) -> bytes:
    """One line of JSON. What was no UTF-8 where it came from becomes `?`: no reader takes half a character.
    ValueError for NaN and infinity without `nan`."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=nan)
    return text.encode("utf-8", "replace")


@cache
def _adapter() -> TypeAdapter[World]:
    return TypeAdapter(World)


@cache
def words_of_world() -> frozenset[str]:
    """Every word that is one of a fixed choice somewhere in a World: in another's place it would be no world."""
    found: set[str] = set()

    def look(schema: Any) -> None:
        if isinstance(schema, dict):
            found.update(w for w in (*schema.get("enum", ()), schema.get("const")) if isinstance(w, str))
        for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
            look(inner)

    look(_adapter().json_schema())
    return frozenset(found)


def changes(old: World, new: World, hide: Hide = str) -> Tree:
    """The patch that makes the tree of `old` that of `new`; {} when only the clocks moved on."""
    found = {n: _patch(getattr(old, n), getattr(new, n), hide, n) for n in _names(World) if n not in CLOCKS}
    return {n: p for n, p in found.items() if p is not None}


def tree_changes(old: Tree, new: Tree) -> Any:
    """The same for two trees."""
    return _patch(old, new, str, "") or {}


def _same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """0, 0.0 and False are equal, and are not the same."""
    return a == b and all(type(x) is type(y) for x, y in zip(a, b, strict=True))


def apply(tree: Any, patch: Any) -> Any:
    """The next tree; what the patch does not name is shared with the old one. ValueError when it does not fit."""
    try:
        return _applied(tree, patch)
    except (TypeError, KeyError, IndexError, AttributeError, RecursionError) as why:
        raise ValueError(f"this change does not fit what was before it ({type(why).__name__})") from why


def _applied(tree: Any, patch: Any) -> Any:
    if isinstance(tree, dict | list) and len(tree) > MOST_ITEMS:
        raise ValueError(f"it changes one of {len(tree):,} things, more than a box has")
    if isinstance(patch, list):
        return patch[0] if len(patch) == 1 else [*tree[patch[0] :], *patch[1]]
    if isinstance(tree, list):
        items = list(tree)
        for at, inner in patch.items():
            items[int(at)] = _applied(items[int(at)], inner)
        return items
    out = dict(tree)
    for key, inner in patch.items():
        if inner is None:
            out.pop(key, None)
        else:
            out[key] = _applied(out.get(key), inner)
    return out


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


def _patch(old: Any, new: Any, hide: Hide, key: str) -> Any:
    """None when nothing changed. `key` is the nearest name above: under some names a text is hidden whole."""
    if old is new:
        return None
    if type(new) in _PLAIN:
        return None if type(old) is type(new) and old == new else _whole(new, hide, key)
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return _by_key(old, new, hide)
    if type(old) is not type(new):
        return _whole(new, hide, key)
    if is_dataclass(new):
        if old == new:  # read anew, and nothing moved: most of a box, most of the time
            return None
        found = {n: _patch(getattr(old, n), getattr(new, n), hide, n) for n in _names(new.__class__)}
        return {n: p for n, p in found.items() if p is not None} or None
    if isinstance(new, tuple | list):
        return _by_place(old, new, hide, key)
    return None if old == new else _whole(new, hide, key)


def _whole(value: Any, hide: Hide, key: str) -> list[Any]:
    if type(value) in (int, float, bool):
        return [value]
    return [redact_values({key: to_jsonable_python(value)}, hide)[key]]


def _by_key(old: Mapping[Any, Any], new: Mapping[Any, Any], hide: Hide) -> Any:
    """The order of keys is drawn too: where it is not kept, everything is written."""
    order = [k for k in old if k in new] + [k for k in new if k not in old]
    if order != list(new):
        return [redact_values(to_jsonable_python(new), hide)]
    out: Tree = {str(k): None for k in old if k not in new}
    for k, value in new.items():
        patch = _patch(old[k], value, hide, str(k)) if k in old else _whole(value, hide, str(k))
        if patch is not None:
            out[str(k)] = patch
    return out or None


def _by_place(old: Sequence[Any], new: Sequence[Any], hide: Hide, key: str) -> Any:
    if len(old) == len(new) and _same(old, new):
        return None
    for gone in range(min(len(old), _SLIDES)):
        kept = len(old) - gone
        if kept <= len(new) and _same(old[gone:], new[:kept]):
            return [gone, _whole(list(new[kept:]), hide, key)[0]]
    if len(old) != len(new):
        return _whole(new, hide, key)
    found = {str(n): _patch(a, b, hide, key) for n, (a, b) in enumerate(zip(old, new, strict=True))}
    return {n: p for n, p in found.items() if p is not None} or None
