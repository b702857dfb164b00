"""What of a bundle may be published: the same documents without endpoints, identifiers, paths and free text. Pure.

Two nets: fields that are private whatever they hold, and shapes that give a machine away wherever they occur.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from anvil_tui.core.bundle import IDENTITY, MANIFEST, OBSERVATIONS, RESULTS
from anvil_tui.core.claims import Fact
from anvil_tui.core.redact import redact

REMOVED = "[removed]"
# Registries that anybody can ask; the host of any other one is an endpoint.
_OPEN_REGISTRIES = frozenset({"docker.io", "ghcr.io", "quay.io", "nvcr.io", "gcr.io", "public.ecr.aws"})
_TOPS = (
    "local|internal|intranet|lan|home|corp|localdomain|arpa|test|com|net|org|io|dev|ai|app|cloud|co|edu|gov|info"
    "|biz|eu|de|uk|fr|nl|ch|at|it|es|se|no|fi|pl|us|ca|au|jp|cn|in|kr|tw|br"
)
_HEX = "[0-9a-f]{1,4}"
_SHAPES: tuple[re.Pattern[str], ...] = (
    re.compile(r"\b[a-z][a-z0-9+.-]{1,15}://[^\s'\"<>]+", re.I),
    re.compile(r"\b(?:GPU-|MIG-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.I),
    re.compile(r"\b[0-9a-f]{64}\b(?<!sha256:.{64})", re.I),
    re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?:/\d{1,2}\b|:\d{1,5})?(?![\d.])"),
    re.compile(rf"\[?(?<![\w:])(?:{_HEX}(?::{_HEX}){{0,6}})?::(?:{_HEX}(?::{_HEX}){{0,6}})?(?:%[\w.-]+)?(?![\w:])"
               r"(?:\]:\d{1,5}|\])?", re.I),
    re.compile(r"(?<![\w:-])(?:[0-9a-f]{1,4}[:-]){5,7}[0-9a-f]{1,4}(?:%[\w.-]+)?(?![\w:-])", re.I),
    re.compile(r"\b[\w.+-]+@(?!sha256:|[0-9a-f]{7,40}\b)[A-Za-z][\w-]*(?:\.[\w-]+)*", re.I),
    re.compile(rf"\b(?:[\w-]+\.)+(?:{_TOPS})\b(?![\w-]|\.\w)\.?(?::\d+)?(?:/[^\s'\"<>]*)?", re.I),
    re.compile(r"\blocalhost\b(?::\d+)?", re.I),
    re.compile(r"(?<![\w.@:/-])\b[A-Za-z][\w.-]*:\d{2,5}\b(?![\w:.])"),
    re.compile(r"\b[A-Za-z]:[\\/][^\s'\"]+"),
    re.compile(r"(?<![\w\\])\\\\[\w.$-]+\\[^\s'\"]+"),
    re.compile(r"(?<![\w.@/~-])(?:~(?:/[\w.@+%-]+)+|(?:/[\w.@+%-]+){2,}|/[\w.@+%-]{2,})/?"),
)  # fmt: skip


def scrubbed(text: str) -> str:
    """Text without anything that has the shape of a secret, an endpoint, an identifier, an address or a path."""
    text = redact(text)
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


# As `core.waivers` writes one: what it says, whose words those are, whether it counts.
_WAIVER = re.compile(
    r"(reserve [\d,]+ MiB instead of [\d,]+ MiB, waived \d{4}-\d\d-\d\d(?: until \d{4}-\d\d-\d\d)? for ).*"
    r"( \((?:in force; it changes the class and no measurement|expired \d{4}-\d\d-\d\d|no longer in force)\))",
    re.S,
)


def _note(text: str) -> str:
    """A waiver without its reason and its cards; any other note is somebody's free text."""
    found = _WAIVER.fullmatch(text)
    return f"{found[1]}{REMOVED}{found[2]}" if found else REMOVED


Rule = Callable[[Any], Any]
_GONE: Rule = lambda value: REMOVED if value else value  # noqa: E731
_KEPT: Rule = lambda value: value  # noqa: E731
_PRIVATE: Mapping[str, Mapping[str, Rule]] = {
    IDENTITY: {
        "container": _GONE, "gpu_uuids": lambda uuids: uuids and [REMOVED for _ in uuids], "image": image,
        "argv": _GONE, "env": _GONE, "json_expect": _GONE, "fixture_sha256": _GONE,
        "notes": lambda notes: [_note(n) for n in notes or ()],
    },
    RESULTS: {"reason": _GONE},
    OBSERVATIONS: {"note": _GONE, "excerpt": _GONE},
    MANIFEST: {"sha256": _KEPT, "seal": _KEPT},
}  # fmt: skip
"""File -> keys that are private, or that are known to be none of the shapes, wherever they stand in it."""


@dataclass(frozen=True, slots=True)
class _Copy:
    """One document being copied. `removed` counts by field, `deep` keys of it: deeper ones may be foreign text."""

    rules: Mapping[str, Rule]
    numbers: bool
    deep: int
    removed: Counter[str] = field(default_factory=Counter)

    def of(self, value: Any, at: tuple[str, ...] = ()) -> Any:
        if isinstance(value, list):
            return [self.of(part, at) for part in value]
        if isinstance(value, Mapping):
            return {k: self._member(k, v, at if len(at) == self.deep else (*at, k)) for k, v in value.items()}
        if not isinstance(value, str):
            return value
        return self._noted(value, REMOVED if self.numbers and value else scrubbed(value), at)

    def _member(self, key: str, value: Any, at: tuple[str, ...]) -> Any:
        if key in self.rules:
            return self._noted(value, self.rules[key](value), at)
        if self.numbers and key in ("gate", "kind", "failure", "when"):
            return value
        return self.of(value, at)

    def _noted(self, value: Any, made: Any, at: tuple[str, ...]) -> Any:
        if made != value:
            self.removed[".".join(at)] += 1
        return made


def published(
    documents: Mapping[str, Fact], *, historical: bool
) -> tuple[dict[str, Fact], dict[str, Mapping[str, int]]]:
    """(the bundle's own documents as they may be published, for each file how many values of a field are gone).

    Of a measured bundle no observation goes out but its numbers; a historical one was taken from a public record,
    so its free text stays, without the shapes.
    """
    removed: dict[str, Mapping[str, int]] = {}
    made: dict[str, Fact] = {}
    for name, fact in documents.items():
        kind = next((k for k in _PRIVATE if name.endswith(k)), "")
        if not kind:
            continue
        rules = dict(_PRIVATE[kind]) if not historical or kind in (IDENTITY, MANIFEST) else {}
        if historical:
            rules.pop("notes", None)
        numbers = kind == OBSERVATIONS and not historical
        copy = _Copy(rules, numbers, 1 if kind == OBSERVATIONS else 3)
        made[name] = replace(fact, value=copy.of(fact.value))
        removed[name] = copy.removed
    return made, removed


def place(pointer: str) -> str:
    """A pointer that may be published: it ends before the first key that has a shape itself (a GPU's UUID)."""
    kept: list[str] = []
    for part in pointer.split("/"):
        if scrubbed(part) != part:
            break
        kept.append(part)
    return "/".join(kept)
