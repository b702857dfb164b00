"""What of a bundle may be published: the same documents without endpoints, identifiers, paths and free text. Pure.

Two nets: fields that are private whatever they hold, and shapes that give a machine away wherever they occur.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from anvil_tui.core.bundle import IDENTITY, MANIFEST, OBSERVATIONS, RESULTS
from anvil_tui.core.claims import Fact

REMOVED = "[removed]"
# Registries that anybody can ask; the host of any other one is an endpoint.
_OPEN_REGISTRIES = frozenset({"docker.io", "ghcr.io", "quay.io", "nvcr.io", "gcr.io", "public.ecr.aws"})
_SHAPES: tuple[re.Pattern[str], ...] = (
    re.compile(r"\b[a-z][a-z0-9+.-]{1,15}://[^\s'\"<>]+", re.I),
    re.compile(r"\b(?:GPU-|MIG-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.I),
    re.compile(r"\b[0-9a-f]{64}\b(?<!sha256:.{64})"),
    re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?::\d{1,5})?(?![\d.])"),
    re.compile(r"(?<![\w:])(?:[0-9a-f]{0,4}:){3,7}[0-9a-f]{0,4}(?![\w:])|(?<![\w:])::1\b", re.I),
    re.compile(r"\b[\w.+-]+@(?!sha256:)[A-Za-z][\w-]*(?:\.[\w-]+)+"),
    re.compile(r"\b(?:[\w-]+\.)+(?:local|internal|intranet|lan|home|corp|localdomain|ts\.net)\b(?::\d+)?", re.I),
    re.compile(r"\blocalhost\b(?::\d+)?"),
    re.compile(r"(?<![\w.@:/-])\b[A-Za-z][\w.-]*:\d{2,5}\b(?![\w:.])"),
    re.compile(r"(?<![\w.@:/~-])~?(?:(?:/[\w.@+%-]+){2,}|/[\w.@+%-]{2,})/?"),
    re.compile(r"\b[A-Za-z]:\\[^\s'\"]+"),
)


def scrubbed(text: str) -> str:
    """Text without anything that has the shape of an endpoint, an identifier, an address or a path."""
    for shape in _SHAPES:
        text = shape.sub(REMOVED, text)
    return text


def image(ref: str | None) -> str | None:
    """An image reference without the host of a registry that is not open to all; None stays unknown."""
    if ref is None:
        return None
    host, _, rest = ref.partition("/")
    named = rest and ("." in host or ":" in host or host == "localhost")
    return f"{REMOVED}/{rest}" if named and host not in _OPEN_REGISTRIES else ref


Rule = Callable[[Any], Any]
_GONE: Rule = lambda value: REMOVED if value else value  # noqa: E731
_KEPT: Rule = lambda value: value  # noqa: E731
_PRIVATE: Mapping[str, Mapping[str, Rule]] = {
    IDENTITY: {
        "container": _GONE, "gpu_uuids": lambda uuids: uuids and [REMOVED for _ in uuids], "image": image,
        "argv": _GONE, "env": _GONE, "json_expect": _GONE, "fixture_sha256": _GONE,
    },
    RESULTS: {"reason": _GONE},
    OBSERVATIONS: {"note": _GONE, "excerpt": _GONE},
    MANIFEST: {"sha256": _KEPT, "seal": _KEPT},
}  # fmt: skip
"""File -> keys that are private, or that are known to be none of the shapes, wherever they stand in it."""


def published(documents: Mapping[str, Fact], *, historical: bool) -> tuple[dict[str, Fact], tuple[Fact, ...]]:
    """(documents that may be published, the private facts that are not in them any more).

    Of a measured bundle no observation goes out but its numbers; a historical one was taken from a public record,
    so its free text stays, without the shapes.
    """
    removed: list[Fact] = []
    made: dict[str, Fact] = {}
    for name, fact in documents.items():
        kind = next((k for k in _PRIVATE if name.endswith(k)), "")
        rules = {} if historical and kind in (RESULTS, OBSERVATIONS) else _PRIVATE.get(kind, {})
        made[name] = replace(
            fact, value=_public(fact, rules, removed, numbers=kind == OBSERVATIONS and not historical)
        )
    return made, tuple(removed)


def _public(fact: Fact, rules: Mapping[str, Rule], removed: list[Fact], *, numbers: bool) -> Any:
    value = fact.value
    if isinstance(value, list):
        return [_public(part, rules, removed, numbers=numbers) for part in fact]
    if isinstance(value, Mapping):
        return {k: _member(fact[k], k, rules, removed, numbers) for k in value}
    if not isinstance(value, str):
        return value
    return _noted(fact, REMOVED if numbers and value else scrubbed(value), removed)


def _member(fact: Fact, key: str, rules: Mapping[str, Rule], removed: list[Fact], numbers: bool) -> Any:
    if key in rules and not isinstance(fact.value, Mapping):
        return _noted(fact, rules[key](fact.value), removed)
    named = numbers and key in ("gate", "kind", "failure", "when")
    return fact.value if named else _public(fact, rules, removed, numbers=numbers)


def _noted(fact: Fact, made: Any, removed: list[Fact]) -> Any:
    if made != fact.value:
        removed.append(fact)
    return made


def place(pointer: str) -> str:
    """A pointer that may be published: it ends before the first key that has a shape itself (a GPU's UUID)."""
    kept: list[str] = []
    for part in pointer.split("/"):
        if scrubbed(part) != part:
            break
        kept.append(part)
    return "/".join(kept)
