"""Where each key of a TOML text stands: line and value span, found in the text itself.

Runs after `tomllib` has accepted the text, so it only follows structure and never judges syntax.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from dataclasses import dataclass, field

KeyPath = tuple[str | int, ...]

_TOKEN = re.compile(
    r'''(?P<string>"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')'''
    r"""|(?P<skip>[ \t\r]+|\#[^\n]*)|(?P<mark>[\[\]{}=,.\n])|(?P<bare>[^\s\[\]{}=,."'#]+)""",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Place:
    """1-based `line` of a key, table header or array element; `start:end` is the value's span in the text."""

    line: int
    start: int = 0
    end: int = 0


@dataclass(slots=True)
class _Scan:
    ends: list[int]
    tokens: list[Token]
    at: int = 0
    places: dict[KeyPath, Place] = field(default_factory=dict)
    arrays: dict[KeyPath, int] = field(default_factory=dict)

    def peek(self) -> Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def take(self) -> Token:
        self.at += 1
        return self.tokens[self.at - 1]

    def sees(self, *marks: str) -> bool:
        token = self.peek()
        return token is not None and token.kind == "mark" and token.text in marks

    def skip(self, *marks: str) -> None:
        while self.sees(*marks):
            self.take()

    def line(self, offset: int) -> int:
        return bisect_left(self.ends, offset) + 1

    def document(self) -> None:
        table: KeyPath = ()
        self.skip("\n")
        while self.peek():
            if self.sees("["):
                table = self.header()
            else:
                self.pair(table)
            self.skip("\n")

    def header(self) -> KeyPath:
        """`[a.b]` or `[[a.b]]`; array tables met on the way stand for their newest element."""
        start = self.take()
        double = self.sees("[") and self.tokens[self.at].start == start.end
        self.skip("[")
        keys = self.keys("]")
        self.skip("]")
        path: KeyPath = ()
        for n, key in enumerate(keys):
            path = (*path, key)
            if double and n == len(keys) - 1:
                self.places.setdefault(path, Place(self.line(start.start)))
                self.arrays[path] = self.arrays.get(path, -1) + 1
            if path in self.arrays:
                path = (*path, self.arrays[path])
        self.places.setdefault(path, Place(self.line(start.start)))
        return path

    def keys(self, stop: str) -> list[str]:
        found = []
        while not self.sees(stop):
            token = self.take()
            if token.kind != "mark":
                found.append(_unquote(token))
        return found

    def pair(self, table: KeyPath) -> None:
        start = self.tokens[self.at].start
        keys = self.keys("=")
        self.skip("=")
        path = table
        for key in keys:
            path = (*path, key)
            self.places.setdefault(path, Place(self.line(start)))
        self.value(path, start)

    def value(self, path: KeyPath, key_start: int) -> None:
        start = self.tokens[self.at].start
        if self.sees("["):
            self.take()
            self.elements(path)
            self.take()
        elif self.sees("{"):
            self.take()
            self.inline(path)
            self.take()
        else:
            while self.peek() and not self.sees(",", "]", "}", "\n"):
                self.take()
        end = self.tokens[self.at - 1].end
        self.places[path] = Place(self.line(key_start), start, end)

    def elements(self, path: KeyPath) -> None:
        n = 0
        self.skip("\n")
        while not self.sees("]"):
            self.value((*path, n), self.tokens[self.at].start)
            n += 1
            self.skip(",", "\n")

    def inline(self, path: KeyPath) -> None:
        self.skip("\n")
        while not self.sees("}"):
            self.pair(path)
            self.skip(",", "\n")


def _unquote(token: Token) -> str:
    if token.kind != "string":
        return token.text
    return str(tomllib.loads(f"key = {token.text}")["key"])


def find_places(text: str) -> dict[KeyPath, Place]:
    """Place of every table, key and array element of a valid TOML text.

    >>> find_places('a = 1\\n[b]\\nc = [2, 3] # x\\n')[("b", "c", 1)].line
    3
    """
    tokens = [
        Token(m.lastgroup or "", m[0], m.start(), m.end()) for m in _TOKEN.finditer(text) if m.lastgroup != "skip"
    ]
    scan = _Scan([m.start() for m in re.finditer("\n", text)], tokens)
    scan.document()
    return scan.places


def key_text(path: KeyPath) -> str:
    """The dotted key as messages and `set_value` write it: `roles[0].slots[1].port`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else f'"{part}"'
            text += f".{name}" if text else name
    return text


def parse_key(text: str) -> KeyPath:
    """The inverse of `key_text`.

    >>> parse_key('roles[0].slots[1].port')
    ('roles', 0, 'slots', 1, 'port')
    """
    parts = re.findall(r'"([^"]*)"|\[(\d+)\]|([^.\[\]"]+)', text)
    return tuple(int(index) if index else quoted or bare for quoted, index, bare in parts)
