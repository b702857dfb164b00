"""What the steps of `apply` do to clients' files; and the last step of a switch, which tells who has not
followed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from anvil_tui.core.client_files import patch
from anvil_tui.core.clients import words
from anvil_tui.core.config_path import parse_path
from anvil_tui.core.errors import AnvilError, EffectFailed, NotFound
from anvil_tui.core.plan import Step
from anvil_tui.service.clients import catalogs, serving_now
from anvil_tui.service.deeds import Deed, Seen
from anvil_tui.service.run import Run


def _read(run: Run, args: Mapping[str, Any]) -> bytes:
    return run.box.files.read(args["host"], args["file"])


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _copy(run: Run, args: Mapping[str, Any]) -> str:
    return f"{args['client']}/{run.operation}"


def _patched(args: Mapping[str, Any], raw: bytes) -> bytes:
    at = f"{args['host']}:{args['file']}" if args["host"] else args["file"]
    return patch(at, raw, args["format"], [(parse_path(key), value) for key, value in args["entries"]]).data


def copied(run: Run, step: Step) -> Seen | None:
    """There is a copy of exactly what the plan was made of."""
    try:
        kept = run.controls.files.kept(_copy(run, step.args))
    except AnvilError:
        return None
    return {"copy": _copy(run, step.args), "sha256": _sha(kept)} if _sha(kept) == step.args["before"] else None


def copy(run: Run, step: Step) -> None:
    raw = _read(run, step.args)
    if _sha(raw) != step.args["before"]:
        raise EffectFailed(f"{step.args['file']}: changed since the preview; nothing was written: plan again")
    run.note(step, f"copy in {run.controls.files.keep(_copy(run, step.args), raw)}")


def written(run: Run, step: Step) -> Seen | None:
    sha = _sha(_read(run, step.args))
    return {"sha256": sha} if sha == step.args["after"] else None


def write(run: Run, step: Step) -> None:
    new = _patched(step.args, run.controls.files.kept(_copy(run, step.args)))
    if _sha(new) != step.args["after"]:
        raise EffectFailed(f"{step.args['file']}: would not be as it was previewed; nothing was written")
    run.controls.files.replace(step.args["host"], step.args["file"], new, step.args["before"])


def restored(run: Run, step: Step) -> Seen | None:
    """As it was; or changed by somebody else after us, which is left alone and told."""
    args = step.args
    try:
        sha = _sha(_read(run, args))
    except NotFound:
        sha = ""
    if sha == args["before"]:
        return {"sha256": sha}
    if sha == args["after"]:
        return None
    left = f"client {args['client']}: {args['file']} was changed by somebody else meanwhile; it is left as it is"
    if left not in run.residue:
        run.residue.append(left)
    return {"sha256": sha, "left": "changed by somebody else"}


def restore(run: Run, step: Step) -> None:
    old = run.controls.files.kept(_copy(run, step.args))
    run.controls.files.replace(step.args["host"], step.args["file"], old, step.args["after"])


def checked(run: Run, step: Step) -> Seen | None:
    """Each file read back and previewed once more: nothing would change."""
    found = {args["client"]: _read(run, args) for args in step.args["of"]}
    moved = [args["client"] for args in step.args["of"] if _patched(args, raw := found[args["client"]]) != raw]
    return None if moved else {name: _sha(raw) for name, raw in found.items()}


def not_checked(run: Run, step: Step) -> None:
    raise EffectFailed("a second preview shows a change: somebody else writes the same keys")


def told(run: Run, step: Step) -> Seen:
    """Always seen: a client that does not follow stops no switch, and is said in the end of the operation."""
    clients = [c for c in run.box.workspace.clients if c.name in step.args["clients"]]
    states = [c.state for c in catalogs(run.box, clients, lambda role: serving_now(run.box, role))]
    for line in (words(s) for s in states if s.state != "converged"):
        if line not in run.residue:
            run.residue.append(line)
    return {s.name: s.state for s in states}


def nothing(run: Run, step: Step) -> None:
    """Telling is all."""


CLIENT_DEEDS: dict[str, Deed] = {
    "client-copy": Deed(copied, copy),
    "client-write": Deed(written, write),
    "client-restore": Deed(restored, restore),
    "client-check": Deed(checked, not_checked),
    "clients": Deed(told, nothing),
}
