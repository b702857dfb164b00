"""Plans for clients' catalogs: apply, and what a switch will leave behind in them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from anvil_tui.core.clients import Catalog, Client, words
from anvil_tui.core.draft import Draft
from anvil_tui.core.errors import NotFound

WRITE_S = 60


def plan_apply(d: Draft) -> None:
    """Every drifting client gets what serves: its file copied, then written, then a second preview of all of them
    without a change. Clients may share a file: the second begins with what the first made, and goes back first.

    `target` names one client, "" = all of them. A client that cannot be written is said in the end of the
    operation; if it is the only one, there is no plan.
    """
    chosen = _chosen(d)
    d.title = f"apply what serves to {d.intent.target or 'all clients'}"
    drifting = [c for c in chosen if c.drifts]
    d.rests_on["clients"] = [
        {"name": c.state.name, "state": c.state.state, "before": c.before, "after": c.after} for c in chosen
    ]
    others = [c for c in chosen if not c.drifts and c.state.state != "converged"]
    if not drifting:
        why = "; ".join(words(c.state) for c in others)
        d.refuse(why or f"nothing to do: {d.intent.target or 'every client'} is converged")
    d.warnings += [f"{words(c.state)}: it is left as it is" for c in others if drifting]
    for c in drifting:
        what = "; ".join(c.state.differences)
        d.step(f"copy-{c.state.name}", "client-copy", f"keep a copy of {c.state.where}", WRITE_S, **_ref(d, c))
        d.step(f"write-{c.state.name}", "client-write", f"write {c.state.where}: {what}", WRITE_S, **_ref(d, c))
    for c in reversed(drifting):
        d.undo_step(f"restore-{c.state.name}", "client-restore", f"put {c.state.where} back as it was", WRITE_S,
                    **_ref(d, c))  # fmt: skip
    d.step(
        "preview", "client-check", "a second preview shows no change", WRITE_S, of=[_ref(d, c) for c in drifting]
    )
    d.decide("every file is as it was previewed")
    _tell(d, [c.state.name for c in chosen])
    d.details = tuple(c.diff for c in drifting)
    d.interrupts, d.outage = "nothing; a client takes its new catalog when it reads its file again", "none"
    d.rollback = "a copy of each file, in state/clients/"
    d.on_failure = "before the decision: every file is put back as it was"


def _chosen(d: Draft) -> list[Catalog]:
    name = d.intent.target
    found = [c for c in d.facts.catalogs if name in ("", c.state.name)]
    if not found:
        have = ", ".join(c.name for c in d.facts.workspace.clients) or "none: [[clients]] of anvil.toml names them"
        raise NotFound(f"no client {name!r} (have: {have})" if name else f"no clients (have: {have})")
    return found


def _ref(d: Draft, c: Catalog) -> dict[str, Any]:
    """All that a step needs: anvil.toml may be another one when an interrupted operation is taken back."""
    client = next(x for x in d.facts.workspace.clients if x.name == c.state.name)
    return {
        "client": client.name, "host": client.host, "file": client.file, "format": client.format,
        "before": c.before, "after": c.after, "entries": [[key, value] for key, value in c.entries],
    }  # fmt: skip


def clients_of(clients: Iterable[Client], role: str) -> list[Client]:
    return [c for c in clients if c.role == role]


def tell_clients(d: Draft, role: str) -> None:
    """After a switch of this role: which catalogs will be wrong now, and in the end which ones are."""
    names = [c.name for c in clients_of(d.facts.workspace.clients, role)]
    if not names:
        return
    for c in d.facts.catalogs:
        if c.state.name in names and c.state.state != "converged":
            d.warnings.append(f"afterwards {words(c.state)}; `apply {c.state.name}` then")
    _tell(d, names)


def _tell(d: Draft, names: list[str]) -> None:
    d.step("clients", "clients", "say which clients' catalogs are not converged", WRITE_S, clients=names)
