"""Faults of the model's answer: each changes a right answer into one wrong kind of answer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anvil_tui.simbox.answer import Answer, Call

Faults = Mapping[str, Mapping[str, str]]


def answer(given: Answer, faults: Faults, body: Mapping[str, Any]) -> Answer:
    """The answer after every answer fault that is on."""
    if "json_wrong" in faults and given.rule.startswith("json"):
        given = _json(given, faults["json_wrong"].get("mode", "value"))
    if "tools_wrong" in faults and given.calls:
        given = _tools(given, faults["tools_wrong"].get("mode", "value"))
    if "needle_wrong" in faults and given.rule == "found in the prompt":
        given = replace(given, content="ZEBRA-00000-NOTHING")
    if "reasoning_leak" in faults:
        leaked = given.reasoning or "I think about the request first."
        given = replace(given, reasoning="", content=f"{leaked}\n</think>\n{given.content}")
    if "no_answer" in faults:
        given = replace(given, content="", calls=())
    return given


def _json(given: Answer, mode: str) -> Answer:
    """`fenced`, `prose` around it, `broken` off in the middle, or a changed `value`."""
    if mode == "fenced":
        return replace(given, content=f"```json\n{given.content}\n```")
    if mode == "prose":
        return replace(given, content=f"Here is the object: {given.content}")
    if mode == "broken":
        return replace(given, content=given.content[: len(given.content) // 2])
    return replace(given, content=json.dumps(_other(json.loads(given.content))))


def _tools(given: Answer, mode: str) -> Answer:
    """`double` encodes twice, `text` writes the call as content, `name` misnames it, or another `value`."""
    call = given.calls[0]
    if mode == "double":
        return replace(given, calls=(Call(call.name, json.dumps(call.arguments)),))
    if mode == "text":
        return replace(given, calls=(), content=json.dumps({"name": call.name, "arguments": call.arguments}))
    if mode == "name":
        return replace(given, calls=(Call(f"{call.name}_x", call.arguments),))
    return replace(given, calls=(Call(call.name, json.dumps(_other(json.loads(call.arguments)))),))


def _other(value: Any) -> Any:
    """The same shape with every value changed."""
    if isinstance(value, dict):
        return {k: _other(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_other(v) for v in value] or [0]
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return value + 1
    return re.sub(r"\w$", "x", value) if value and not value.endswith("x") else f"{value}y"
