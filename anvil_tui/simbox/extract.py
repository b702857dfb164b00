"""Reading values out of an instruction: by JSON literal, by name, by allowed values, by kind."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

VALUE = (
    r"(\"[^\"\n]*\"|'[^'\n]*'|`[^`\n]*`|\[[^\]\n]*\]|-?\d+(?:\.\d+)?|\btrue\b|\bfalse\b|\bnull\b"
    r"|[A-Za-z][\w./:-]*)"
)
_WORDS = r"\bset to\b|\bequal to\b|\bwith (?:the )?value\b|\bvalue\b|\bis\b|\bto\b|\bas\b|\bof\b"
LINK = rf"(?:\s*(?:=|:|{_WORDS})\s*|\s+(?=[\"'`\d-]))"
FILLERS = frozenset(
    {"and", "or", "the", "a", "an", "with", "must", "be", "string", "integer", "number", "boolean"}
)


def literals(text: str) -> list[Any]:
    """Every JSON object in a text, in order."""
    found: list[Any] = []
    decoder, at = json.JSONDecoder(), text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except ValueError:
            end = at + 1
        else:
            found.append(value)
        at = text.find("{", end)
    return found


def pairs(text: str) -> dict[str, Any]:
    """Key and value pairs that a text describes: `"name" set to "x"`, `count = 3`."""
    found: dict[str, Any] = {}
    for quoted in re.finditer(rf"[\"`'](\w+)[\"`']{LINK}{VALUE}", text):
        found.setdefault(quoted[1], plain(quoted[2]))
    for bare in re.finditer(rf"\b([a-z]\w*)\s*[=:]\s*{VALUE}", text):
        found.setdefault(bare[1], plain(bare[2]))
    return {k: v for k, v in found.items() if not (isinstance(v, str) and v.lower() in FILLERS)}


def plain(text: str) -> Any:
    """A value as written: quotes off, numbers and booleans as such."""
    if text[:1] in "\"'`":
        return text[1:-1]
    try:
        return json.loads(text)
    except ValueError:
        return text.rstrip(".,;:")


def values(schema: Mapping[str, Any], text: str) -> dict[str, Any]:
    """An object for a JSON schema out of a text; a required value that is nowhere gets its type's empty value."""
    properties: Mapping[str, Any] = schema.get("properties") or {}
    required = set(schema.get("required") or ())
    given = next((v for v in literals(text) if isinstance(v, dict) and set(v) & set(properties)), {})
    left, result = _Unclaimed(text), {}
    for name, kind in properties.items():
        value = given[name] if name in given else _named(name, kind, text)
        if value is not None:
            left.claim(value)
            result[name] = value
    for name in (n for n in properties if n not in result and n in required):
        result[name] = left.take(properties[name])
    return {name: result[name] for name in properties if name in result}


def _named(name: str, kind: Mapping[str, Any], text: str) -> Any:
    if "const" in kind:
        return kind["const"]
    spoken = re.escape(name).replace("_", "[_ ]")
    if kind.get("type") == "array" and (listed := re.search(rf"\b{spoken}\b:? ((?:-?\d+(?:, | and )?)+)", text)):
        return [int(n) for n in re.findall(r"-?\d+", listed[1])]
    for found in re.finditer(rf"[\"'`]?\b{spoken}\b[\"'`]?{LINK}{VALUE}", text, re.IGNORECASE):
        value = _as(kind, plain(found[1]))
        if value is not None:
            return value
    allowed = [v for v in kind.get("enum", ()) if re.search(rf"\b{re.escape(str(v))}\b", text, re.IGNORECASE)]
    return allowed[0] if allowed else None


def _as(kind: Mapping[str, Any], value: Any) -> Any:
    """The value in the schema's type, None when it does not fit."""
    wanted = kind.get("type", "string")
    if "enum" in kind and value not in kind["enum"]:
        return None
    if wanted == "boolean":
        return value if isinstance(value, bool) else None
    if wanted in ("integer", "number"):
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        return (int(value) if wanted == "integer" else value) if fits else None
    if wanted == "array":
        return value if isinstance(value, list) else None
    if wanted == "object":
        return value if isinstance(value, dict) else None
    if isinstance(value, str):
        return None if value.lower() in FILLERS or not value else value
    return json.dumps(value) if value is not None else None


class _Unclaimed:
    """Numbers, quoted texts and names of a text that no named property took, in order."""

    def __init__(self, text: str) -> None:
        self.numbers: list[float | int] = [
            json.loads(n) for n in re.findall(r"(?<![\w-])-?[1-9]\d*(?:\.\d+)?|\b0\b", text)
        ]
        quoted = [q[0] or q[1] for q in re.findall(r"\"([^\"\n]+)\"|(?<!\w)'([^'\n]+)'", text)]
        proper = re.findall(r"\b(?:in|for|at|of|from|to|about|named)\s+([A-Z][\w-]*(?:\s[A-Z][\w-]*)*)", text)
        self.texts: list[str] = quoted + proper

    def claim(self, value: Any) -> None:
        if isinstance(value, str) and value in self.texts:
            self.texts.remove(value)
        if isinstance(value, int | float) and value in self.numbers:
            self.numbers.remove(value)

    def take(self, kind: Mapping[str, Any]) -> Any:
        wanted = kind.get("type", "string")
        if wanted in ("integer", "number"):
            value = self.numbers.pop(0) if self.numbers else 0
            return int(value) if wanted == "integer" else value
        if wanted == "string":
            return self.texts.pop(0) if self.texts else (kind.get("enum") or [""])[0]
        return {"boolean": False, "array": [], "object": {}}.get(wanted)
