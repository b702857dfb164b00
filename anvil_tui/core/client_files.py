"""Values of somebody else's configuration file set in place: bytes in, bytes and differences out. Pure.

Only the named values change. Indentation, order, unknown keys, comments (TOML, env), line ends and a BOM stay;
what cannot be kept is refused. Used for clients' catalogs and for credentials in files.
"""

from __future__ import annotations

import copy
import difflib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import tomlkit
import tomlkit.exceptions
import tomlkit.items

from anvil_tui.core.config_path import ABSENT, Path, get, path_text, put, texts
from anvil_tui.core.errors import BadFile
from anvil_tui.core.json_text import parse_json, set_json
from anvil_tui.core.redact import MASK, redact
from anvil_tui.core.text import clean

Format = Literal["json", "toml", "env"]
Value = str | int | bool | list[str]
_BOM = b"\xef\xbb\xbf"
_ENV_LINE = re.compile(r"(?m)^([ \t]*(?:export[ \t]+)?)([A-Za-z_]\w*)([ \t]*=[ \t]*)([^\r\n]*?)([ \t]*)(?=\r?$)")
_SECRETIVE = re.compile(
    r"(?i)key|token|secret|pass|pwd|auth|credential|cookie|bearer|header|hook|private|session|cert|signature|salt"
    r"|dsn|^env$|^args$"
)
_TOML_TEXT = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'")


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that is not as wanted; `has` is ABSENT when the file has no such key."""

    key: str
    has: object
    serves: object

    def __str__(self) -> str:
        return f"{self.key}: has {shown(self.has)}, serves {shown(self.serves)}"


@dataclass(frozen=True, slots=True)
class Patched:
    """The file as it should be, and what of it is not so now. No difference: `data` is the file, byte for byte."""

    data: bytes
    differences: tuple[Difference, ...]


def patch(where: str, raw: bytes, form: Format, wanted: Iterable[tuple[Path, Value]]) -> Patched:
    """Set each value at its path. BadFile names `where`, the key and what to do; then nothing is to be written."""
    body, text = raw.removeprefix(_BOM), _decoded(where, raw)
    data = _parsed(where, text, form)
    expected = copy.deepcopy(data)
    differences = []
    for path, value in wanted:
        value = _env_text(where, path, value) if form == "env" else value  # an env file holds texts only
        has = get(where, expected, path)
        if _same(has, value):
            continue
        if _tables(has):
            raise BadFile(where, "is a table where one value should be; edit it by hand", key=path_text(path))
        hides = isinstance(value, str) and secretive(path)
        differences.append(Difference(path_text(path), MASK if hides and has is not ABSENT else has,
                                      MASK if hides else value))  # fmt: skip
        text = _set(where, text, form, path, value)
        put(where, expected, path, value)
    if differences and _exact(_parsed(where, text, form)) != _exact(expected):
        raise BadFile(where, f"setting {differences[0].key} would change other values; edit it by hand")
    new = text.encode()
    return Patched(raw if new == body else raw[: len(raw) - len(body)] + new, tuple(differences))


def value_of(where: str, raw: bytes, form: Format, path: Path) -> Any:
    """What the file holds at a path, or ABSENT. BadFile when it cannot be read as that format."""
    return get(where, _parsed(where, _decoded(where, raw), form), path)


def preview(where: str, before: bytes, after: bytes, form: Format, secrets: Iterable[str] = ()) -> str:
    """A unified diff of two states of one file. Texts under keys that look like a secret's are masked, as are the
    values in `secrets`, and in an env file all that stay; a masked one that changes says so."""
    old, new = (_parsed(where, _decoded(where, raw), form) for raw in (before, after))
    masked: list[list[str]] = []
    for raw, data, other in ((before, old, new), (after, new, old)):
        text, stays = _decoded(where, raw), set(texts(other))
        for path, value in texts(data):
            moved = (path, value) not in stays
            if secretive(path):
                text = _set(where, text, form, path, f"{MASK} (changed)" if moved and data is new else MASK)
            elif form == "env" and not moved:
                text = _set(where, text, form, path, MASK)
        masked.append(text.splitlines())
    lines = difflib.unified_diff(masked[0], masked[1], fromfile=where, tofile=where, lineterm="", n=2)
    return redact("\n".join(clean(line) for line in lines), secrets)


def secretive(path: Path) -> bool:
    """Whether a text at this path may be a secret: by the names on the way to it."""
    return any(isinstance(part, str) and _SECRETIVE.search(part) for part in path)


def shown(value: object) -> str:
    """A value as a person reads it on one line: 393,216; "text, image"; yes."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return clean(", ".join(map(str, value))) or "an empty list"
    return "an empty text" if value == "" else clean(str(value))


def _same(has: object, value: object) -> bool:
    """1 is neither true nor 1.0: a client that reads whole numbers refuses the others."""
    return has == value and isinstance(has, bool) == isinstance(value, bool) and not isinstance(has, float)


def _exact(data: Any) -> str:
    """By which two states are compared: NaN is itself, and 1, 1.0 and true are three values."""
    return json.dumps(data, sort_keys=True, default=repr)


def _tables(has: object) -> bool:
    return isinstance(has, dict) or (isinstance(has, list) and any(map(_tables, has)))


def _decoded(where: str, raw: bytes) -> str:
    body = raw.removeprefix(_BOM)
    try:
        text = body.decode()
    except UnicodeDecodeError as why:
        line = body.count(b"\n", 0, why.start) + 1
        raise BadFile(where, f"not UTF-8: byte 0x{body[why.start]:02x}", line=line) from None
    lone = re.search(r"\r(?!\n)", text)
    if lone:
        line = text.count("\n", 0, lone.start()) + 1
        raise BadFile(where, "a lone carriage return (CR); end lines with LF or CRLF", line=line)
    return text


def _parsed(where: str, text: str, form: Format) -> Any:
    if form == "json":
        return parse_json(where, text)
    if form == "toml":
        return _toml(where, text).unwrap()
    return _env(where, text)


def _set(where: str, text: str, form: Format, path: Path, value: Value) -> str:
    if form == "json":
        return set_json(where, text, parse_json(where, text), path, value)
    return _set_toml(where, text, path, value) if form == "toml" else _set_env(where, text, path, value)


def _toml(where: str, text: str) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(text)
    except tomlkit.exceptions.ParseError as why:
        said = re.sub(r" at line \d+ col \d+$", "", str(why))
        raise BadFile(where, f"not TOML: {said}", line=why.line) from None
    except tomlkit.exceptions.TOMLKitError as why:
        raise BadFile(where, f"not TOML: {why}") from None
    except RecursionError:
        raise BadFile(where, "nested too deeply") from None


def _set_toml(where: str, text: str, path: Path, value: Value) -> str:
    document = _toml(where, text)
    old = get(where, document, path)
    adds = old is ABSENT
    if isinstance(old, tomlkit.items.Array) and "#" in _TOML_TEXT.sub("", old.as_string()):
        raise BadFile(where, "holds comments, which would be lost; edit it by hand", key=path_text(path))
    put(where, document, path, value)
    new = tomlkit.dumps(document)
    if "\r\n" in text and not re.search(r"(?<!\r)\n", text):
        new = re.sub(r"(?<!\r)\n", "\r\n", new)
    old_lines, lines = text.splitlines(True), new.splitlines(True)
    moves = difflib.SequenceMatcher(None, old_lines, lines, autojunk=False).get_opcodes()
    if adds and any(tag not in ("equal", "insert") for tag, *_ in moves):
        raise BadFile(where, "adding it would change other lines; add it by hand", key=path_text(path))
    return new


def _env(where: str, text: str) -> dict[str, str]:
    """NAME=VALUE lines as secrets are read from them: comments, `export` and one pair of quotes are understood."""
    found: dict[str, str] = {}
    for line in _ENV_LINE.finditer(text):
        if line[2] in found:
            raise BadFile(where, "stands twice: which one counts depends on the reader", key=line[2])
        found[line[2]] = line[4][1:-1] if _quote(line[4]) else line[4]
    return found


def _quote(written: str) -> str:
    quoted = len(written) >= 2 and written[0] == written[-1] and written[0] in "'\""
    return written[0] if quoted else ""


def _set_env(where: str, text: str, path: Path, value: Value) -> str:
    if len(path) != 1 or not isinstance(path[0], str) or not re.fullmatch(r"[A-Za-z_]\w*", path[0]):
        raise BadFile(where, "an env file has plain names only", key=path_text(path))
    name, plain = path[0], _env_text(where, path, value)
    line = next((m for m in _ENV_LINE.finditer(text) if m[2] == name), None)
    quote = _quote(line[4]) if line else ""
    if not quote and not re.fullmatch(r"[\w.,:/@%+=~^-]*", plain):
        quote = "'"
    if (quote and quote in plain) or (quote == '"' and re.search(r"[\\$`]", plain)):
        raise BadFile(
            where, "its new value cannot be written between the quotes it has; edit it by hand", key=name
        )
    written = f"{quote}{plain}{quote}"
    if line:
        return text[: line.start(4)] + written + text[line.end(4) :]
    end = "\r\n" if "\r\n" in text else "\n"
    gap = "" if not text or text.endswith("\n") else end
    return f"{text}{gap}{name}={written}{end}"


def _env_text(where: str, path: Path, value: Value) -> str:
    name = path_text(path)
    if isinstance(value, list):
        raise BadFile(where, "an env file holds no lists", key=name)
    plain = str(value).lower() if isinstance(value, bool) else str(value)
    if re.search(r"[\x00-\x1f\x7f]", plain):
        raise BadFile(where, "a value of an env file is one line without control characters", key=name)
    return plain
