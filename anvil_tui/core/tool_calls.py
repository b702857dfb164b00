"""Tool calls put together from streamed fragments, with the oddities that engines are known for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anvil_tui.core.chat import ToolCall


@dataclass(slots=True)
class _Open:
    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(slots=True)
class ToolCallJoiner:
    """Joins fragments by index; a new non-empty id that comes with a name starts a new call.

    `notes` names what the server did against the format: `missing_tool_id`, `missing_tool_index`,
    `tool_index_reused`, `tool_arguments_not_text`, `malformed_tool_call`.
    """

    notes: list[str] = field(default_factory=list)
    _calls: list[_Open] = field(default_factory=list)
    _by_index: dict[int, _Open] = field(default_factory=dict)

    def add(self, fragments: Sequence[Any]) -> bool:
        """Take the fragments of one delta. True when any of them bore an id, a name or arguments."""
        return any([self._one(f) for f in fragments])

    def _one(self, fragment: Any) -> bool:
        if not isinstance(fragment, Mapping):
            self._note("malformed_tool_call")
            return False
        function = fragment.get("function")
        function = function if isinstance(function, Mapping) else {}
        call_id, name = _text(fragment.get("id")), _text(function.get("name"))
        arguments = self._arguments(function.get("arguments"))
        call = self._find(fragment.get("index"), call_id, name)
        call.id, call.name = call.id or call_id, call.name or name
        call.arguments += arguments
        return bool(call_id or name or arguments)

    def _find(self, index: Any, call_id: str, name: str) -> _Open:
        if not isinstance(index, int) or isinstance(index, bool):
            self._note("missing_tool_index")
            last = self._calls[-1] if self._calls else None
            new = last is None or (bool(name) and bool(last.name) and (not call_id or call_id != last.id))
            return self._start(len(self._calls)) if last is None or new else last
        known = self._by_index.get(index)
        if known and call_id and name and known.id and call_id != known.id:
            self._note("tool_index_reused")
            known = None
        return known or self._start(index)

    def _start(self, index: int) -> _Open:
        call = self._by_index[index] = _Open(index)
        self._calls.append(call)
        return call

    def _arguments(self, value: Any) -> str:
        if value is None or isinstance(value, str):
            return value or ""
        self._note("tool_arguments_not_text")
        return json.dumps(value)

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def calls(self) -> tuple[ToolCall, ...]:
        """The calls in order of arrival; a missing id is made up as `call_N` and noted."""
        if any(not c.id for c in self._calls):
            self._note("missing_tool_id")
        return tuple(
            ToolCall(c.index, c.id or f"call_{n}", c.name, c.arguments) for n, c in enumerate(self._calls)
        )


def whole_calls(value: Any) -> tuple[tuple[ToolCall, ...], tuple[str, ...]]:
    """The calls of a message that was not streamed (where an index is no part of the format), and notes."""
    joiner = ToolCallJoiner()
    entries = value if isinstance(value, list) else []
    joiner.add([{**e, "index": n} if isinstance(e, Mapping) else e for n, e in enumerate(entries)])
    return joiner.calls(), tuple(joiner.notes)


def decoded(text: str | bytes, *, strict: bool = False) -> Any:
    """A JSON text as its value. ValueError for what is no JSON, and for brackets nested deeper than Python reads.

    `strict`: an object that names a key twice, and NaN, are no JSON either.
    """
    try:
        if strict:
            return json.loads(text, object_pairs_hook=no_duplicates, parse_constant=_no_constant)
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def decoded_arguments(text: str) -> tuple[Any, bool]:
    """(value, double): the decoded arguments, and whether they had been encoded twice.

    An empty text is an empty object. Raises ValueError for what is no JSON.
    """
    value = decoded(text, strict=True) if text.strip() else {}
    if not isinstance(value, str):
        return value, False
    try:
        inner = decoded(value)
    except ValueError:
        return value, False
    return (inner, True) if isinstance(inner, Mapping) else (value, False)


def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For json.loads: an object that names a key twice is an error, not the last one's."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is named twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
