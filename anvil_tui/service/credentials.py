"""Credentials of a box: found by reference, proven by an authenticated read, waited for when they are refused."""

from __future__ import annotations

from collections.abc import Mapping

from anvil_tui.core.credentials import (
    Credential,
    credentials_of,
    fingerprint,
    state_of,
    why_not_usable,
)
from anvil_tui.core.errors import AnvilError
from anvil_tui.core.plan import Step
from anvil_tui.core.secrets import Secret
from anvil_tui.core.standing import CredentialState
from anvil_tui.core.times import utc_text
from anvil_tui.service.box import Box
from anvil_tui.service.run import Run

ASK_AGAIN_S = 1.0


def inspect(box: Box) -> tuple[CredentialState, ...]:
    """Every credential of the workspace, resolved and proven now."""
    return tuple(prove(box, c) for c in credentials_of(box.workspace))


def prove(box: Box, credential: Credential) -> CredentialState:
    """One authenticated read with the credential as it can be found now."""
    found = found_or_why(box, credential.ref)
    proof = box.prove_key(found.value) if isinstance(found, Secret) else None
    return state_of(credential, found, proof, utc_text(box.clock.utc()))


def found_or_why(box: Box, ref: str) -> Secret | str:
    try:
        return box.secret(ref)
    except AnvilError as why:
        return str(why)


def fingerprints(box: Box) -> list[list[str]]:
    """Name and fingerprint of each, "" = it cannot be found. Pairs: redaction masks a text whose key is named
    like a secret."""
    found = ((c.name, found_or_why(box, c.ref)) for c in credentials_of(box.workspace))
    return [[name, fingerprint(s.value) if isinstance(s, Secret) else ""] for name, s in found]


def refused_now(run: Run) -> str | None:
    """Why nothing can be verified through the gateway now; None = it takes the key. One that somebody has changed
    since the operation began is taken up anew, and the journal says so."""
    credential = credentials_of(run.box.workspace)[0]
    state = prove(run.box, credential)
    if why := why_not_usable(state):
        return why
    _note_change(run, state)
    return None


def _note_change(run: Run, now: CredentialState) -> None:
    begun = next((r.data for r in run.journal.records() if r.kind == "begin"), {})
    known: Mapping[str, str] = dict(begun.get("credentials", ()))
    before = run.memory.setdefault(f"credential {now.name}", known.get(now.name, now.fingerprint))
    if before != now.fingerprint:
        run.memory[f"credential {now.name}"] = now.fingerprint
        moved = f"{before or 'none'} to {now.fingerprint}"
        run.journal.append("note", text=f"credential {now.name} was changed meanwhile ({moved}) and is accepted")


def wait_for_key(run: Run, step: Step) -> None:
    """A refused key is our trouble and no fault of a serve: ask a person, go on as soon as it is mended. At the
    step's deadline EffectFailed says which place to mend."""
    run.wait(step, lambda: refused_now(run), ASK_AGAIN_S)
