"""Clients' catalogs: what a client's own file says of our models, against what serves. Pure.

A client is a file and a table of key paths with what must stand there, written with facts of what serves. A fact
that is not known overwrites nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import model_validator

from anvil_tui.core.box import Engine
from anvil_tui.core.client_files import Format, Value, patch, preview
from anvil_tui.core.config_path import Path, Pick, parse_path, path_text
from anvil_tui.core.errors import AnvilError, NoCredential, Unreachable
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.redact import redact
from anvil_tui.core.routing import Way
from anvil_tui.core.standing import ClientState
from anvil_tui.core.tables import PathText, Slug, Table, matching

FACTS = (
    "alias", "base_url", "model", "served_name", "recipe", "context_tokens", "max_output_tokens", "images",
    "inputs", "thinking",
)  # fmt: skip
_BRACED = re.compile(r"\{(\w+)\}")
HostText = Annotated[str, matching(r"|[A-Za-z0-9][A-Za-z0-9._@-]*", "where ssh goes: HOST or USER@HOST")]


class Client(Table):
    """One client's catalog. `entries` maps key paths to what must stand there.

    `{FACT}` in a path or a text stands for a fact of what serves `role`; a text that is nothing else takes the
    fact's own type. An entry whose path holds `{alias}` counts once for each of `aliases` (none = the role's).
    `host` is where ssh goes, "" = this machine.
    """

    name: Slug
    file: Annotated[PathText, matching(r".+", "a path")]
    host: HostText = ""
    format: Literal["json", "toml", "env"]
    role: Slug
    aliases: tuple[str, ...] = ()
    entries: dict[str, str | int | bool | tuple[str, ...]]

    @model_validator(mode="after")
    def _sound(self) -> Client:
        problems = [] if self.entries else ["entries needs at least one KEY = VALUE"]
        if self.host and not self.file.startswith(("/", "~/")):
            problems.append("file must be absolute or begin with ~/ on another host")
        for key, value in self.entries.items():
            problems += [f"entries.{_quoted(key)} {why}" for why in _wrong(key, value, self.format)]
        if problems:
            raise ValueError("\n".join(problems))
        return self

    @property
    def where(self) -> str:
        return f"{self.host}:{self.file}" if self.host else self.file


def _quoted(key: str) -> str:
    return f'"{key}"'


def _wrong(key: str, value: object, form: Format) -> Iterator[str]:
    try:
        path = parse_path(key)
        if form == "env" and len(path) > 1:
            yield "an env file has plain names only"
    except ValueError as why:
        yield str(why)
    texts = [key, *([value] if isinstance(value, str) else value if isinstance(value, tuple) else ())]
    for name in [n for text in texts for n in _BRACED.findall(text)]:
        if name not in FACTS:
            near = get_close_matches(name, FACTS, 1)
            yield f"holds {{{name}}}{f', nearest {{{near[0]}}}' if near else ''}; known facts: {', '.join(FACTS)}"


@dataclass(frozen=True, slots=True)
class Serving:
    """What serves a role, as clients should know it. A None is not known; `why` says why nothing is known.

    `context_tokens` is the smaller of what the engine answers and what the recipe promises. `inputs` are text and
    image. `ways` are how each alias is reached.
    """

    why: str = ""
    recipe: str | None = None
    served_name: str | None = None
    context_tokens: int | None = None
    max_output_tokens: int | None = None
    images: int | None = None
    inputs: tuple[str, ...] | None = None
    thinking: bool | None = None
    ways: Mapping[str, Way] | None = None


def promised(recipe: Recipe, ways: Mapping[str, Way]) -> Serving:
    """What will serve once this recipe does."""
    limits = recipe.envelope
    sees = limits.images > 0 or "image" in limits.modalities
    return Serving(
        "", recipe.id, recipe.served_name, limits.context_tokens, limits.max_output_tokens, limits.images,
        ("text", "image") if sees else ("text",), recipe.thinking not in ("none", "off"), ways,
    )  # fmt: skip


def serving(role: str, recipe: Recipe | None, engine: Engine | None, ways: Mapping[str, Way]) -> Serving:
    """What serves a role now: its incumbent's exact recipe, and what the engine itself says. An engine that does
    not answer, or answers as another, makes all of it unknown."""
    if recipe is None:
        return Serving(f"nothing serves {role}, or its exact recipe is not known")
    if engine is None or engine.http != "ready":
        said = f": {engine.reason}" if engine and engine.reason else ""
        return Serving(f"{recipe.id} does not answer{said}")
    if recipe.served_name not in engine.served:
        return Serving(f"the engine serves {', '.join(engine.served) or 'no name'}, not {recipe.served_name}")
    made = promised(recipe, ways)
    known = [n for n in (engine.context_tokens, made.context_tokens) if n is not None]
    return replace(made, context_tokens=min(known, default=None))


def wanted(client: Client, aliases: Iterable[str], now: Serving) -> tuple[list[tuple[Path, Value]], list[str]]:
    """What must stand where, and the keys of which it is not known."""
    known: list[tuple[Path, Value]] = []
    unknown = []
    names = list(client.aliases or aliases)
    for key, value in client.entries.items():
        for alias in names if "{alias}" in key else names[:1]:
            facts = _facts(now, alias)
            try:
                path = tuple(_part(p, facts) for p in parse_path(key))
                known.append((path, _value(value, facts)))
            except _NotKnown:
                unknown.append(key.replace("{alias}", alias))
    return known, unknown


class _NotKnown(Exception):
    pass


def _facts(now: Serving, alias: str) -> dict[str, Value | None]:
    way = (now.ways or {}).get(alias)
    return {
        "alias": alias, "base_url": f"{way.base_url}/v1" if way else None, "model": way.model if way else None,
        "served_name": now.served_name, "recipe": now.recipe, "context_tokens": now.context_tokens,
        "max_output_tokens": now.max_output_tokens, "images": now.images,
        "inputs": None if now.inputs is None else list(now.inputs), "thinking": now.thinking,
    }  # fmt: skip


def _fact(name: str, facts: Mapping[str, Value | None]) -> Value:
    value = facts[name]
    if value is None:
        raise _NotKnown
    return value


def _text(template: str, facts: Mapping[str, Value | None]) -> str:
    return _BRACED.sub(lambda m: str(_fact(m[1], facts)), template)


def _part(part: Any, facts: Mapping[str, Value | None]) -> Any:
    return Pick(part.field, _text(part.value, facts)) if isinstance(part, Pick) else _text(part, facts)


def _value(value: str | int | bool | tuple[str, ...], facts: Mapping[str, Value | None]) -> Value:
    if isinstance(value, tuple):
        return [_text(v, facts) for v in value]
    if not isinstance(value, str):
        return value
    whole = _BRACED.fullmatch(value)
    return _fact(whole[1], facts) if whole else _text(value, facts)


@dataclass(frozen=True, slots=True)
class Catalog:
    """One client's file compared. `before` and `after` are SHA-256 of the file as it is and as it should be, ""
    when it was not read or cannot be patched; `diff` has no secrets; `entries` are [key path, value] pairs. `data`
    is the file as it should be, which may hold secrets."""

    state: ClientState
    before: str = ""
    after: str = ""
    diff: str = ""
    entries: tuple[tuple[str, Value], ...] = ()
    data: bytes = field(default=b"", repr=False)

    @property
    def drifts(self) -> bool:
        return self.state.state == "drift"


def compared(
    client: Client,
    aliases: Iterable[str],
    now: Serving,
    raw: bytes | AnvilError | None,
    at: str,
    secrets: Iterable[str] = (),
) -> Catalog:
    """A client's file, or why it could not be read, against what serves. None = not looked at.

    `secrets` are values that are known to be secret; they are hidden wherever they stand.
    """
    hidden = tuple(secrets)
    if isinstance(raw, AnvilError):
        return Catalog(ClientState(client.name, client.where, _unread(raw), (), str(raw), at))
    if raw is None or now.why:
        return Catalog(ClientState(client.name, client.where, "unknown", (), now.why or "not read", at))
    entries, unknown = wanted(client, aliases, now)
    why = f"not known, so left as it is: {', '.join(unknown)}" if unknown else ""
    try:
        done = patch(client.where, raw, client.format, entries)
        diff = preview(client.where, raw, done.data, client.format, hidden)
    except AnvilError as wrong:
        return Catalog(ClientState(client.name, client.where, "unreadable", (), str(wrong), at))
    found = tuple(redact(str(d), hidden) for d in done.differences)
    state = ClientState(client.name, client.where, "drift" if found else "converged", found, why, at)
    if not entries:
        state = replace(state, state="unknown")
    plain = tuple((path_text(path), value) for path, value in entries)
    return Catalog(state, _sha(raw), _sha(done.data), diff, plain, done.data)


def _unread(why: AnvilError) -> Literal["no-credential", "unreachable", "unreadable"]:
    if isinstance(why, NoCredential):
        return "no-credential"
    return "unreachable" if isinstance(why, Unreachable) else "unreadable"


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def words(state: ClientState) -> str:
    """One line on a client: how it is, and why."""
    more = f" (and {len(state.differences) - 1} more)" if len(state.differences) > 1 else ""
    said = f"{state.differences[0]}{more}" if state.differences else state.why
    return f"client {state.name} {_WORDS[state.state]}" + (f": {said}" if said else "")


_WORDS = {
    "converged": "is converged", "drift": "drifts", "no-credential": "is not converged: no credential",
    "unreachable": "is not converged: unreachable", "unreadable": "is not converged: unreadable",
    "unknown": "is not known to be converged",
}  # fmt: skip
