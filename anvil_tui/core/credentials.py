"""Credentials of a workspace by name, and what their proofs mean for a plan. Values are only hashed here."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from anvil_tui.core.secrets import Secret
from anvil_tui.core.standing import CopyState, CredentialState
from anvil_tui.core.times import parse_time
from anvil_tui.core.workspace import CredentialTarget, Workspace


@dataclass(frozen=True, slots=True)
class Credential:
    """One client key of the gateway: `[[credentials]]` gives it a name, and the places that hold copies of it."""

    name: str
    ref: str
    targets: tuple[CredentialTarget, ...] = ()


def credentials_of(workspace: Workspace) -> tuple[Credential, ...]:
    """In the order of `gateway.client_keys`; the first is the one that plans are verified with."""
    named = {c.ref: c for c in workspace.credentials}
    return tuple(
        Credential(named[ref].name, ref, named[ref].targets) if ref in named else Credential(client_key(n), ref)
        for n, ref in enumerate(workspace.gateway.client_keys)
    )


def client_key(n: int) -> str:
    return f"gateway.client_keys[{n}]"


def fingerprint(value: str) -> str:
    """First 12 hex digits of the SHA-256.

    >>> fingerprint("abc")
    'ba7816bf8f01'
    """
    return hashlib.sha256(value.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Proof:
    """What an authenticated read came to; `unproven` = nobody answered, or not as a gateway does."""

    state: str
    why: str = ""


def state_of(credential: Credential, found: Secret | str, proof: Proof | None, at: str) -> CredentialState:
    """`found` is the secret, or the sentence why there is none; `proof` None = not tried."""
    if isinstance(found, str):
        return CredentialState(credential.name, credential.ref, "absent", why=found, at=at)
    state = proof.state if proof else "unproven"
    assert state in ("accepted", "refused", "unproven")
    return CredentialState(
        credential.name, credential.ref, state,  # type: ignore[arg-type]
        found.source, fingerprint(found.value), found.note, proof.why if proof else "not tried", at,
    )  # fmt: skip


def why_not_usable(c: CredentialState) -> str | None:
    """The sentence why nothing can be verified with it now, with the places looked at and the one to mend."""
    if c.state == "accepted":
        return None
    if c.state == "absent":
        return f"credential {c.name} ({c.ref}): {c.why}; put the gateway's client key there"
    if c.state == "refused":
        note = f", {c.note}" if c.note else ""
        return (
            f"the gateway refuses credential {c.name} ({c.why}): found in {c.source}, fingerprint {c.fingerprint}"
            f"{note}; put a client key that the gateway knows there, or, if it is the right one, run "
            "`anvil-tui gateway install`"
        )
    return f"whether the gateway takes credential {c.name} ({c.ref}) is not known: {c.why or 'not tried'}"


def unproven(credentials: Iterable[CredentialState]) -> Iterator[str]:
    """For people: every credential that is not accepted. One that was never looked at says nothing yet."""
    for c in credentials:
        if (why := why_not_usable(c)) and c.state != "unknown":
            yield why


def credential_text(c: CredentialState, now: datetime) -> str:
    """One line: name, reference, winner, note, fingerprint, proof and its age."""
    age = _age(c.at, now)
    words = [
        f"{c.name}: {c.state}" + (f" {age}" if age else ""), c.ref,
        f"from {c.source}" if c.source else "", f"fingerprint {c.fingerprint}" if c.fingerprint else "", c.note,
        "" if c.state == "accepted" else c.why,
    ]  # fmt: skip
    return "; ".join(w for w in words if w)


def _age(at: str, now: datetime) -> str:
    when = parse_time(at) if at else None
    return f"{max(0.0, (now - when).total_seconds()):.0f} s ago" if when else ""


def copy_text(copy: CopyState) -> str:
    """One line of a copy: where, what it holds against the credential."""
    held = {
        "same": "holds it",
        "other": f"holds another value, fingerprint {copy.fingerprint}: stale, `rotate` or mend it",
    }
    return f"{copy.where}: {copy.key} {held.get(copy.state, f'{copy.state}: {copy.why}')}"
