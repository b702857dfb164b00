"""The predeclared rule of a command gate: dotted path into the JSON result -> a value, or {min =, max =}."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from anvil_tui.core.answers import unequal
from anvil_tui.core.command_rules import is_number
from anvil_tui.core.tool_calls import decoded
from anvil_tui.core.verdicts import OK, Judged, check, shown

_ABSENT = object()


def judge_result(result: Any, rules: Mapping[str, Any]) -> Judged:
    """Whether a result keeps every rule. A path that is not there proves nothing about the serve: `errored`."""
    for path, rule in rules.items():
        value = value_at(result, path)
        if value is _ABSENT:
            return Judged("errored", None, f"the result has no {path}")
        if why := _broken(value, rule):
            return check(f"{path} {why}")
    return OK


def told(result: Any, rules: Mapping[str, Any]) -> str:
    """`path = value` of every path that the rules name."""
    return ", ".join(f"{path} = {json.dumps(value_at(result, path))[:80]}" for path in rules)


def _broken(value: Any, rule: Any) -> str:
    if not isinstance(rule, Mapping):
        return f"is {shown(json.dumps(value))}, not {json.dumps(rule)}" if unequal(value, rule) else ""
    if not is_number(value):
        return f"is {shown(json.dumps(value))}, which is no number"
    if "min" in rule and value < rule["min"]:
        return f"is {value:g}, less than {rule['min']:g}"
    return f"is {value:g}, more than {rule['max']:g}" if "max" in rule and value > rule["max"] else ""


def value_at(result: Any, path: str) -> Any:
    """The value at a dotted path; a number picks an item of a list, and a key may hold dots itself."""
    if not path:
        return result
    parts = path.split(".")
    if isinstance(result, list):
        index = int(parts[0]) if parts[0].isdecimal() else len(result)
        return value_at(result[index], ".".join(parts[1:])) if index < len(result) else _ABSENT
    if not isinstance(result, Mapping):
        return _ABSENT
    for n in range(len(parts), 0, -1):
        key = ".".join(parts[:n])
        if key in result and (found := value_at(result[key], ".".join(parts[n:]))) is not _ABSENT:
            return found
    return _ABSENT


def last_json(text: str) -> Any:
    """The last line that is a JSON object or list. ValueError when there is none."""
    for line in reversed(text.splitlines()):
        if line.strip()[:1] in ("{", "["):
            try:
                return decoded(line)
            except ValueError:
                continue
    raise ValueError("no line of the output is a JSON object")
