"""What the steps of a rotation do: gateway, files and proofs. The values come from the operation's folder; what is
journaled of them is their fingerprint."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anvil_tui.core.credentials import Credential, credentials_of, fingerprint
from anvil_tui.core.errors import AnvilError, EffectFailed, NotFound, Unreachable
from anvil_tui.core.facts import Facts
from anvil_tui.core.plan import Intent, Step
from anvil_tui.core.rotation import copy_of, file_text, place_text, unfit, value_in, with_value
from anvil_tui.core.standing import CopyState, CredentialState
from anvil_tui.ports.files import ConfigFiles
from anvil_tui.service.box import Box
from anvil_tui.service.deeds import Deed, Seen
from anvil_tui.service.run import Run

KEY_BYTES = 32
GRACE_POLL_S = 0.5


def with_copies(box: Box, intent: Intent, facts: Facts) -> Facts:
    """The facts with what every copy of the credential that is to be rotated holds now."""
    return replace(facts, credentials=copies_read(box, facts.credentials, intent.target))


def copies_read(
    box: Box, states: tuple[CredentialState, ...], only: str = "", *, remote: bool = True
) -> tuple[CredentialState, ...]:
    """Each state with its copies; those of other hosts only if `remote`."""
    named = {c.name: c for c in credentials_of(box.workspace)}
    return tuple(
        replace(s, copies=_copies(box.files, named[s.name], s.fingerprint, remote)) if only in ("", s.name) else s
        for s in states
    )


def _copies(files: ConfigFiles, credential: Credential, known: str, remote: bool) -> tuple[CopyState, ...]:
    return tuple(_copy(files, t, known) for t in credential.targets if remote or not t.host)


def _copy(files: ConfigFiles, target: Any, known: str) -> CopyState:
    try:
        raw = files.read(target.host, target.file)
        return copy_of(target.where, target.key, value_in(target.where, raw, target.format, target.key), known)
    except AnvilError as why:
        return CopyState(target.where, target.key, "unreadable", why=str(why))


# mint


def _staged(run: Run) -> Mapping[str, str]:
    return run.box.operations.staged(run.operation)


def _both(run: Run) -> Mapping[str, str]:
    """Old and new once both are known, else nothing: a given key that was never minted is nobody's."""
    kept = _staged(run)
    return kept if {"old", "new"} <= set(kept) else {}


def minted(run: Run, step: Step) -> Seen | None:
    kept = _both(run)
    return {n: fingerprint(kept[n]) for n in ("old", "new")} if kept else None


def mint(run: Run, step: Step) -> None:
    old = run.box.secret(step.args["ref"]).value
    new = _staged(run).get("new") or secrets.token_urlsafe(KEY_BYTES)
    if why := "is the old one" if new == old else unfit(new):
        raise EffectFailed(f"the new key {why}: nothing was changed")
    run.box.operations.stage(run.operation, {"old": old, "new": new})


# gateway


def _answer(run: Run, value: str) -> str:
    """`accepted` or `refused` by an authenticated read; a gateway that does not answer proves nothing."""
    proof = run.box.prove_key(value)
    if proof.state == "unproven":
        raise Unreachable(run.box.gateway_url(), proof.why)
    return proof.state


def accepted(run: Run, step: Step) -> Seen | None:
    """A way back needs the old key only; before anything was minted there is nothing to be accepted."""
    kept = _both(run)
    if step.name.startswith("undo:") and not kept:
        return {"nothing": "no key was made"}
    wanted = ("old",) if step.name.startswith("undo:") else ("old", "new")
    if any(_answer(run, kept[n]) != "accepted" for n in wanted):
        return None
    return {n: fingerprint(kept[n]) for n in wanted}


def accept(run: Run, step: Step) -> None:
    kept = _both(run)
    for n in ("old",) if step.name.startswith("undo:") else ("old", "new"):
        run.controls.gateway.accept_key(kept[n])


def expelled(run: Run, step: Step) -> Seen | None:
    """By an authenticated read; once the values are gone, by the journal: they go after that."""
    value = _both(run).get(step.args["value"])
    if value is None:
        before = [r.data for r in run.journal.records() if r.kind == "done" and r.step == step.name]
        if not before:
            return {"nothing": "no key was made"} if step.name.startswith("undo:") else None
        return {"refused": before[-1].get("refused", "")}
    return {"refused": fingerprint(value)} if _answer(run, value) == "refused" else None


def expel(run: Run, step: Step) -> None:
    """What a copy still holds, or may hold because it cannot be read, is taken on."""
    value = _both(run).get(step.args["value"])
    if value is None:
        raise EffectFailed(f"the {step.args['value']} key is not known any more: run `anvil-tui gateway install`")
    for place in step.args.get("places", ()):
        if _held(run, place)[1] == value:
            raise EffectFailed(
                f"{place_text(place)} holds the {step.args['value']} key again, so the gateway takes it on: "
                "write the new key there, then resume"
            )
    run.controls.gateway.expel_key(value)


# files


def _held(run: Run, args: Mapping[str, Any]) -> tuple[bytes, str | None]:
    raw = run.box.files.read(args["host"], args["file"])
    return raw, value_in(file_text(args), raw, args["format"], args["key"])


def written(run: Run, step: Step) -> Seen | None:
    """A way back touches only a file that holds the new key; one that is gone holds none."""
    kept, back = _both(run), step.name.startswith("undo:")
    if back and not kept:
        return {"nothing": "no key was made"}
    try:
        held = _held(run, step.args)[1]
    except NotFound as why:
        if not back:
            raise
        if str(why) not in run.residue:
            run.residue.append(str(why))
        return {"nothing": "no such file"}
    done = held != kept["new"] if step.args["value"] == "old" else held == kept["new"]
    return {"fingerprint": fingerprint(held) if held else ""} if done else None


def write(run: Run, step: Step) -> None:
    args, kept = step.args, _both(run)
    raw, held = _held(run, args)
    if args["value"] == "new" and not _expected(run, args, held, kept["old"]):
        at = place_text(args)
        raise EffectFailed(f"{at} was changed since the plan was made (fingerprint {fingerprint(held or '')})")
    new = with_value(file_text(args), raw, args["format"], args["key"], kept[args["value"]])
    run.controls.files.replace(args["host"], args["file"], new, hashlib.sha256(raw).hexdigest())


def _expected(run: Run, args: Mapping[str, Any], held: str | None, old: str) -> bool:
    """The old key, or what the plan saw in this copy."""
    if held == old:
        return True
    seen = run.plan.facts["credential"]["copies"]
    here = [file_text(args), args["key"], fingerprint(held or "")]
    return held is not None and here in [list(c) for c in seen]


def settled(run: Run, step: Step) -> Seen | None:
    """Both keys have been taken for a while: nobody has put another one back meanwhile."""
    return None if _moved(run, step) else {"copies": len(step.args["places"])}


def unsettled(run: Run, step: Step) -> None:
    if moved := _moved(run, step):
        raise EffectFailed(
            f"somebody writes there, too; it does not hold the new key any more: {', '.join(moved)}"
        )


def _moved(run: Run, step: Step) -> list[str]:
    new = _both(run)["new"]
    return [place_text(p) for p in step.args["places"] if _held(run, p)[1] != new]


# proofs


def proven(run: Run, step: Step) -> Seen | None:
    if step.name.startswith("undo:") and not _both(run):
        return {"nothing": "no key was made"}
    seen: Seen | None = run.memory.get(step.name)
    return seen


def prove(run: Run, step: Step) -> None:
    """With the key as everybody finds it now, and it must be the one that was meant."""
    found, wanted = run.box.secret(step.args["ref"]), _both(run)[step.args["value"]]
    if found.value != wanted:
        raise EffectFailed(f"{found.source} holds {fingerprint(found.value)}, not {fingerprint(wanted)}")
    if _answer(run, found.value) != "accepted":
        raise EffectFailed(f"the gateway refuses the key in {found.source} (fingerprint {fingerprint(wanted)})")
    run.memory[step.name] = {"accepted": fingerprint(wanted), "source": found.source}


def over(run: Run, step: Step) -> Seen | None:
    return {"seconds": step.args["seconds"]} if run.memory.get(step.name) else None


def grace(run: Run, step: Step) -> None:
    """Both keys are taken, and whoever starts a client again has time; a cancel goes back to the old key."""
    until = run.box.clock.monotonic_s() + step.args["seconds"]
    while run.box.clock.monotonic_s() < until:
        run.stop_if_asked()
        run.box.clock.sleep(min(GRACE_POLL_S, max(0.0, until - run.box.clock.monotonic_s())))
    run.memory[step.name] = True


def forgotten(run: Run, step: Step) -> Seen | None:
    return None if _staged(run) else {"removed": True}


def forget(run: Run, step: Step) -> None:
    run.box.operations.unstage(run.operation)


def rotation_deeds() -> dict[str, Deed]:
    return {
        "key-mint": Deed(minted, mint),
        "key-accept": Deed(accepted, accept),
        "key-write": Deed(written, write),
        "key-prove": Deed(proven, prove),
        "key-grace": Deed(over, grace),
        "key-copies": Deed(settled, unsettled),
        "key-expel": Deed(expelled, expel),
        "key-forget": Deed(forgotten, forget),
    }
