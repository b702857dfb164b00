"""What is different between a plan as somebody saw it and the same intent planned now, in words. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from anvil_tui.core.plan import Plan, Step

SHOWN, VALUE_CHARS = 12, 80


def moved(old: Plan, new: Plan) -> tuple[str, ...]:
    """`KEY: was X, is Y` for each fact that moved; where none did, the steps that differ. () = the same plan."""
    if old.hash == new.hash:
        return ()
    before, after = dict(_flat(_plain(old.facts))), dict(_flat(_plain(new.facts)))
    keys = sorted(k for k in {*before, *after} if before.get(k, "") != after.get(k, ""))
    lines = [f"{k}: was {_said(before, k)}, is {_said(after, k)}" for k in keys] or [*_steps(old, new)]
    more = len(lines) - SHOWN
    return (*lines[:SHOWN], *([f"and {more} more"] if more > 0 else ()))


def _plain(facts: Mapping[str, Any]) -> Any:
    """As the frozen plan's file has them."""
    return json.loads(json.dumps(facts, default=str))


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, _text(value)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_text(v) for v in value) + "]"
    text = "nothing" if value in (None, "", {}) else str(value)
    short = re.sub(r"\b([0-9a-f]{12})[0-9a-f]{28,}\b", r"\1", text)
    return short if len(short) <= VALUE_CHARS else f"{short[:VALUE_CHARS]}…"


def _said(facts: Mapping[str, str], key: str) -> str:
    return facts.get(key, "not there")


def _steps(old: Plan, new: Plan) -> Iterator[str]:
    was, now = _by_name(old), _by_name(new)
    for name in {**was, **now}:
        if name not in now or name not in was:
            yield f"step {name}: {'new' if name in now else 'not there any more'}"
        elif _plain(was[name].args) != _plain(now[name].args) or was[name].deadline_s != now[name].deadline_s:
            yield f"step {name}: was `{was[name].title}`, is `{now[name].title}`"


def _by_name(plan: Plan) -> dict[str, Step]:
    return {s.name: s for s in (*plan.steps, *plan.undo_steps)}
