"""Faults of the model's answer: each changes a right answer into one wrong kind of answer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anvil_tui.simbox.answer import Answer, Call
from anvil_tui.simbox.tokens import count_prompt

Faults = Mapping[str, Mapping[str, str]]
THOUGHT = frozenset(
    {"reasoned", "recalled", "read in the notes", "found in the prompt", "wrote code", "worked with tools"}
)


def answer(given: Answer, faults: Faults, body: Mapping[str, Any]) -> Answer:
    """The answer after every answer fault that is on."""
    if "json_wrong" in faults and given.rule.startswith("json"):
        given = _json(given, faults["json_wrong"].get("mode", "value"))
    if "tools_wrong" in faults and given.calls:
        given = _tools(given, faults["tools_wrong"].get("mode", "value"))
    if "needle_wrong" in faults and given.rule in ("found in the prompt", "not in the prompt"):
        given = replace(given, content="ZEBRA-00000-NOTHING")
    if "image_wrong" in faults and given.rule == "image":
        given = replace(given, content=_misread(given.content))
    if "stupid" in faults and given.rule in THOUGHT and _at_length(faults["stupid"], body):
        given = _stupid(given)
    if "reasoning_leak" in faults:
        leaked = given.reasoning or "I think about the request first."
        given = replace(given, reasoning="", content=f"{leaked}\n</think>\n{given.content}")
    if "no_answer" in faults:
        given = replace(given, content="", calls=())
    return given


def _at_length(keys: Mapping[str, str], body: Mapping[str, Any]) -> bool:
    """Whether the prompt is of the length that the fault is for: `from` and `to` tokens, both included."""
    if not keys:
        return True
    length = count_prompt(body.get("messages") or (), body.get("tools"))
    return int(keys.get("from", 0)) <= length <= int(keys.get("to", length))


def _stupid(given: Answer) -> Answer:
    """Another value in the same form: looks right, is wrong."""
    if given.calls:
        return _tools(given, "value")
    other = re.sub(r"(\w)(\W*)\Z", lambda m: ("7" if m[1] != "7" else "8") + m[2], given.content)
    return replace(given, content=other)


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


def _misread(text: str) -> str:
    """Another digit where there is one, else another word."""
    wrong = re.sub(r"\d", lambda digit: str((int(digit[0]) + 1) % 10), text, count=1)
    return wrong if wrong != text else f"non-{text}"


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
