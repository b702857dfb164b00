"""Rotation of a client key: the gateway takes old and new until every copy is proven to hold the new one. Pure.

Plans and journals hold names, references and fingerprints. Steps say `old` or `new`; the values lie in the
operation's folder, for its owner only, from the first step to the last.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from anvil_tui.core.client_files import Format, patch, value_of
from anvil_tui.core.config_path import ABSENT, parse_path
from anvil_tui.core.credentials import Credential, credentials_of, fingerprint, why_not_usable
from anvil_tui.core.draft import Draft
from anvil_tui.core.errors import BadFile, NotFound
from anvil_tui.core.secrets import parse_reference
from anvil_tui.core.standing import CopyState, CredentialState

GRACE_S = 5
MIN_CHARACTERS = 16


def plan_rotate(d: Draft) -> None:
    credential, state = _named(d)
    d.title = f"rotate {credential.name}"
    d.target()
    d.rests_on["credential"] = {
        "name": credential.name, "ref": credential.ref, "fingerprint": state.fingerprint,
        "copies": [[c.where, c.key, c.fingerprint] for c in state.copies],
    }  # fmt: skip
    _may_rotate(d, credential, state)
    places = _places(credential)
    _forward(d, credential, places)
    _back(d, credential, places)
    d.interrupts = "nothing: the gateway takes the old and the new key until all copies hold the new one"
    d.outage = "none; a client that reads its key only when it starts must be started again within the grace"
    d.rollback = "until the decision the old key is put back everywhere; afterwards rotate again"
    d.on_failure = "the old key back in every file, proven; the new one is refused again"
    d.confirm_word = ""


def _named(d: Draft) -> tuple[Credential, CredentialState]:
    found = {c.name: c for c in credentials_of(d.facts.workspace)}
    name = d.intent.target or (next(iter(found)) if len(found) == 1 else "")
    if name not in found:
        raise NotFound(f"no credential {name!r} in anvil.toml (have: {', '.join(found)})")
    state = next((s for s in d.facts.credentials if s.name == name), None)
    return found[name], state or CredentialState(name, found[name].ref, "unknown", why="not looked at")


def _may_rotate(d: Draft, credential: Credential, state: CredentialState) -> None:
    if why := why_not_usable(state):
        d.refuse(why)
    if variable := parse_reference(credential.ref).env:
        d.refuse(
            f"{credential.ref} is a variable of this process's environment, which nobody else can change: keep "
            f'the key in a file, client_keys = ["file:secrets/gateway.env#{variable}"], and rotate then'
        )
    twins = [
        s.name for s in d.facts.credentials if s.name != state.name and s.fingerprint and
        s.fingerprint == state.fingerprint
    ]  # fmt: skip
    if twins:
        d.refuse(
            f"{twins[0]} is the same key: to take the old one away would cut it off; give it a key of its own"
        )
    if not d.facts.gateway.can.keys:
        d.refuse("this gateway cannot take two client keys at a time: its key changes with a restart only")
    for copy in state.copies:
        if copy.state == "other":
            d.warnings.append(
                f"{copy.where}: {copy.key} holds another value (fingerprint {copy.fingerprint}): it is stale, and "
                "gets the new key"
            )
        elif copy.state != "same":
            d.refuse(f"{copy.where}: {copy.key} cannot be written: {copy.why}")


def _places(credential: Credential) -> list[dict[str, Any]]:
    """The file of the reference first, then each copy, as arguments of a step."""
    own = parse_reference(credential.ref)
    first = {"host": "", "file": own.file, "format": "env" if own.key else "text", "key": own.key}
    return [first] + [
        {"host": t.host, "file": t.file, "format": t.format, "key": t.key} for t in credential.targets
    ]


def file_text(args: Mapping[str, Any]) -> str:
    return f"{args['host']}:{args['file']}" if args["host"] else str(args["file"])


def place_text(args: Mapping[str, Any]) -> str:
    return f"{file_text(args)}: {args['key']}" if args["key"] else file_text(args)


def _forward(d: Draft, credential: Credential, places: list[dict[str, Any]]) -> None:
    grace = GRACE_S if d.intent.timeout_s is None else d.intent.timeout_s
    named = {"ref": credential.ref}
    d.step("mint", "key-mint", "the new key, kept with the operation for its owner only", 30, **named)
    d.step("accept", "key-accept", "the gateway takes the old and the new key", 60, **named)
    for n, place in enumerate(places):
        d.step(f"write-{n}", "key-write", f"the new key into {place_text(place)}, read back", 60,
               **named, **place, value="new")  # fmt: skip
    d.step("prove", "key-prove", "an authenticated read with the key as it is found now", 60, **named, value="new")
    d.step("grace", "key-grace", f"{grace} s in which both are taken", grace + 30, seconds=grace)
    d.step("copies", "key-copies", "every copy still holds the new key", 60, places=places)
    d.decide("every copy holds the new key, and the gateway takes it")
    d.step("expel", "key-expel", "the gateway refuses the old key, which no copy holds, proven", 60, **named,
           value="old", places=places)  # fmt: skip
    d.step("forget", "key-forget", "the values kept with the operation are removed", 30)


def _back(d: Draft, credential: Credential, places: list[dict[str, Any]]) -> None:
    named = {"ref": credential.ref}
    d.undo_step("accept", "key-accept", "the gateway takes the old key", 60, **named)
    for n, place in enumerate(places):
        d.undo_step(f"write-{n}", "key-write", f"the old key back into {place_text(place)}, where the new one is",
                    60, **named, **place, value="old")  # fmt: skip
    d.undo_step(
        "prove", "key-prove", "an authenticated read with the key as it is found now", 60, **named, value="old"
    )
    d.undo_step("expel", "key-expel", "the gateway refuses the new key, proven", 60, **named, value="new")
    d.undo_step("forget", "key-forget", "the values kept with the operation are removed", 30)


def copy_of(where: str, key: str, value: str | None, known: str) -> CopyState:
    """What one copy holds, compared with the credential's own value by fingerprint."""
    if value is None:
        return CopyState(where, key, "absent", why=f"{key} is not in it")
    digest = fingerprint(value)
    return CopyState(where, key, "same" if digest == known else "other", digest)


def value_in(where: str, raw: bytes, form: str, key: str) -> str | None:
    """The key's value as the file holds it; None = it holds none."""
    if form == "text":
        return raw.decode("utf-8-sig", errors="replace").strip() or None
    found = value_of(where, raw, _format(form), parse_path(key))
    if found is ABSENT:
        return None
    if not isinstance(found, str):
        raise BadFile(where, "is no text, so no key", key=key)
    return found


def with_value(where: str, raw: bytes, form: str, key: str, value: str) -> bytes:
    """The file with the key's value in place of its own, and nothing else changed."""
    if form == "text":
        return value.encode() + (b"\n" if raw.endswith(b"\n") or not raw else b"")
    return patch(where, raw, _format(form), [(parse_path(key), value)]).data


def _format(form: str) -> Format:
    assert form in ("env", "json", "toml")
    return form  # type: ignore[return-value]


def unfit(value: str) -> str:
    """Why a value cannot be a client key, "" = it can."""
    if not re.fullmatch(r"[\x21-\x7e]*", value):
        return "holds blanks, control characters or letters beyond ASCII, which no header carries"
    if len(value) < MIN_CHARACTERS:
        return f"has {len(value)} characters; at least {MIN_CHARACTERS} are needed"
    return ""
