"""One value of a JSON text set in place: every byte that is not this value stays. Pure.

What is not JSON (comments, trailing commas, bare keys: JSONC and JSON5) is refused with its line.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from anvil_tui.core.config_path import Path, Pick, index_of, item, nested
from anvil_tui.core.errors import BadFile

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_DEEP = "nested too deeply"


@dataclass(slots=True)
class Node:
    """One value: its span, and for a container its children with the offset at which each begins (its key's)."""

    start: int
    end: int = 0
    members: dict[str, Node] = field(default_factory=dict)
    items: list[Node] = field(default_factory=list)
    heads: list[int] = field(default_factory=list)

    @property
    def last(self) -> Node:
        return (list(self.members.values()) or self.items)[-1]


def parse_json(where: str, text: str) -> Any:
    """The data. BadFile names the line; a key that stands twice in one object is refused."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, value in pairs:
            if name in made:
                raise BadFile(
                    where, "stands twice in one object: which one counts depends on the reader", key=name
                )
            made[name] = value
        return made

    def no_number(name: str) -> Any:
        raise BadFile(where, f"{name} is not JSON")

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=no_number)
    except json.JSONDecodeError as why:
        hint = "; it is not rewritten, edit it by hand" if not text.strip() else _relaxed(text)
        raise BadFile(where, f"not JSON: {why.msg}{hint}", line=why.lineno) from None
    except ValueError:
        raise BadFile(where, "holds a whole number of thousands of digits; edit it by hand") from None
    except RecursionError:
        raise BadFile(where, _DEEP) from None


def _relaxed(text: str) -> str:
    """Whether it looks like JSON with comments or like JSON5, outside its strings."""
    bare = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)
    marks = {
        "comments": r"//|/\*", "a comma before a closing bracket": r",\s*(?:(?://[^\n]*|/\*.*?\*/)\s*)*[}\]]",
        "keys without quotes": r"[{,]\s*[A-Za-z_$][\w$]*\s*:", "single quotes": r"'",
    }  # fmt: skip
    seen = [name for name, mark in marks.items() if re.search(mark, bare, re.DOTALL)]
    if not seen:
        return ""
    return f"; it holds {', '.join(seen)} (JSONC or JSON5), which a rewrite would lose: make it plain JSON first"


def set_json(where: str, text: str, data: Any, path: Path, value: Any) -> str:
    """The text with one value replaced or added. `data` is the text parsed."""
    node = _nodes(where, text)
    for n, part in enumerate(path):
        if isinstance(part, str):
            child = node.members.get(part)
            data = data.get(part) if child else data
        else:
            at = index_of(where, data, path, n)
            child = None if at is None else node.items[at]
            data = data if at is None else data[at]
        if child is None:
            return _added(text, node, path[n:], value)
        node = child
    many = "\n" in text[node.start : node.end]
    return text[: node.start] + _written(text, node.start, value, many) + text[node.end :]


def _added(text: str, into: Node, rest: Path, value: Any) -> str:
    """A member or item after the last one, laid out as its neighbours are."""
    many = "\n" in text[into.start : into.heads[0]] if into.heads else "\n" in text.strip()
    line = _newline(text)
    inner = _indent(text, into.heads[-1] if into.heads else into.start)
    inner += "" if into.heads else _unit(text)
    part, made = rest[0], nested(rest[1:], value)
    if isinstance(part, Pick):
        body = _dumped(item(part, made), text, inner, many)
    else:
        body = f"{json.dumps(part, ensure_ascii=False)}: {_dumped(made, text, inner, many)}"
    if into.heads:
        at = into.last.end
        return text[:at] + ("," + (line + inner if many else " ") + body) + text[at:]
    close = line + _indent(text, into.start) if many else ""
    opened = line + inner if many else ""
    return text[: into.start + 1] + opened + body + close + text[into.end - 1 :]


def _written(text: str, at: int, value: Any, many: bool) -> str:
    return _dumped(value, text, _indent(text, at), many)


def _dumped(value: Any, text: str, indent: str, many: bool) -> str:
    if not many or not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False, indent=_unit(text)).replace("\n", _newline(text) + indent)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str) -> str:
    """What one level is indented by: the first indented line tells."""
    found = re.search(r"\n([ \t]+)\S", text)
    return found[1] if found else "  "


def _indent(text: str, at: int) -> str:
    """The white space that begins the line of an offset."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip())]


def _nodes(where: str, text: str) -> Node:
    """The tree of spans of a text that `parse_json` has accepted: structure is followed, syntax not judged."""
    tokens = list(_TOKEN.finditer(text))
    try:
        return _node(tokens, 0)[0]
    except RecursionError:
        raise BadFile(where, _DEEP) from None


def _node(tokens: list[re.Match[str]], at: int) -> tuple[Node, int]:
    first = tokens[at]
    node = Node(first.start())
    at += 1
    if first[0] not in "{[":
        node.end = first.end()
        return node, at
    while tokens[at][0] not in "}]":
        if tokens[at][0] == ",":
            at += 1
            continue
        node.heads.append(tokens[at].start())
        key = None
        if first[0] == "{":
            key = str(json.loads(tokens[at][0]))
            at += 2
        child, at = _node(tokens, at)
        if key is None:
            node.items.append(child)
        else:
            node.members[key] = child
    node.end = tokens[at].end()
    return node, at + 1
