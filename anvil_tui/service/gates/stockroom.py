"""A small stockroom that a model works on by tool calls: what it may do, what it must do, how it ends.

The stock is not in the question: it must be looked up. Reading is free; what is written must be exactly what
was asked for.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anvil_tui.core.chat import ToolCall
from anvil_tui.core.tool_calls import decoded_arguments
from anvil_tui.core.verdicts import shown
from anvil_tui.service.gates.prompts import Message, function_tool
from anvil_tui.service.gates.puzzles import END, PLACES

_PLACE = {"type": "string", "description": "Name of the place"}

TOOLS: tuple[Message, ...] = (
    function_tool("count_crates", "How many crates a place holds now", place=_PLACE),
    function_tool(
        "move_crates", "Move crates from one place to another", source=_PLACE, target=_PLACE,
        count={"type": "integer", "description": "How many crates"},
    ),
    function_tool("lock_place", "Lock an empty place", place=_PLACE),
)  # fmt: skip
_TYPES: Mapping[str, Mapping[str, type]] = {
    "count_crates": {"place": str},
    "move_crates": {"source": str, "target": str, "count": int},
    "lock_place": {"place": str},
}

Write = tuple[str, Mapping[str, Any]]


@dataclass(slots=True)
class Stockroom:
    """The task, and the state that calls change. `left` are the writes still to be made, in this order."""

    family: str
    asked: str
    answer: str
    stock: dict[str, int]
    left: list[Write]
    locked: set[str] = field(default_factory=set)

    def call(self, call: ToolCall) -> tuple[str, str]:
        """(the tool's result as JSON, what is wrong with the call)."""
        arguments, why = _read(call)
        if arguments is None:
            return "", why
        strange = [v for v in arguments.values() if isinstance(v, str) and v not in self.stock]
        if strange:
            return "", f"{call.name} names {shown(strange[0])}, which is no place of the task"
        if call.name == "count_crates":
            place = arguments["place"]
            return json.dumps({"place": place, "crates": self.stock[place]}), ""
        if not self.left or self.left[0] != (call.name, arguments):
            due = f"{self.left[0][0]} {json.dumps(self.left[0][1])}" if self.left else "no change"
            return "", f"{call.name} {shown(json.dumps(arguments))} was called; {due} was due"
        self.left.pop(0)
        return self._change(call.name, arguments), ""

    def _change(self, name: str, arguments: Mapping[str, Any]) -> str:
        if name == "lock_place":
            self.locked.add(arguments["place"])
            return json.dumps({"locked": arguments["place"]})
        self.stock[arguments["source"]] -= arguments["count"]
        self.stock[arguments["target"]] += arguments["count"]
        return json.dumps({"moved": arguments["count"]})

    def unfinished(self) -> str | None:
        """What has not been done; None = all of it."""
        return f"{self.left[0][0]} was never called as asked" if self.left else None


def _read(call: ToolCall) -> tuple[dict[str, Any] | None, str]:
    types = _TYPES.get(call.name)
    if types is None:
        return None, f"a call to {shown(call.name)}, which is no tool"
    try:
        value, double = decoded_arguments(call.arguments)
    except ValueError as why:
        return None, f"malformed call of {call.name}: no JSON ({why}): {shown(call.arguments)}"
    if double:
        return None, f"double_encoded_arguments: {shown(call.arguments)}"
    if not isinstance(value, dict) or value.keys() != types.keys():
        return None, f"malformed call of {call.name}: {shown(call.arguments)} has not the keys {', '.join(types)}"
    wrong = [k for k, kind in types.items() if type(value[k]) is not kind]
    if wrong:
        return None, f"malformed call of {call.name}: {wrong[0]} is {shown(json.dumps(value[wrong[0]]))}"
    return value, ""


def stockroom(seed: str, n: int) -> Stockroom:
    """Task `n` (from 1) of a seed: the families take turns."""
    pick = random.Random(f"stock/{seed}/{n}")
    places = pick.sample(PLACES, 4)
    counts = pick.sample(range(6, 40), 4)
    made = (_half, _fewest)[(n - 1) % 2]
    return made(dict(zip(places, counts, strict=True)))


def _half(stock: dict[str, int]) -> Stockroom:
    source, target, *_ = stock
    stock[source] += stock[source] % 2
    count = stock[source] // 2
    asked = (
        f"Half of the crates of the {source} must go to the {target}. Find out with the tools how many that is "
        f"and move them. At the end say how many crates the {target} holds. {END}"
    )
    due: list[Write] = [("move_crates", {"source": source, "target": target, "count": count})]
    return Stockroom("half", asked, str(stock[target] + count), stock, due)


def _fewest(stock: dict[str, int]) -> Stockroom:
    *three, target = stock
    source = min(three, key=lambda place: stock[place])
    count = stock[source]
    asked = (
        f"Look at the {three[0]}, the {three[1]} and the {three[2]}. Move all crates of the one that holds the "
        f"fewest to the {target}, then lock the emptied place. At the end say how many crates the {target} "
        f"holds. {END}"
    )
    due: list[Write] = [
        ("move_crates", {"source": source, "target": target, "count": count}),
        ("lock_place", {"place": source}),
    ]
    return Stockroom("fewest", asked, str(stock[target] + count), stock, due)
