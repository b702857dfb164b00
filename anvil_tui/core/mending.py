"""A record of the box that cannot be read: what its last good copy says, against what the box itself shows. Pure.

The copy may be one save old, so it is used by itself only where the box agrees with it in everything that can be
seen: the containers that operations made, who runs in which slot, where the aliases point. What cannot be seen is
then at worst a qualification that is asked for again. Everything else is a proposal for a person.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from anvil_tui.core.box import Container
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.serves import seat_in
from anvil_tui.core.workspace import Role, Workspace
from anvil_tui.core.world import (
    DIGEST_LABEL,
    GENERATION_LABEL,
    OPERATION_LABEL,
    RECIPE_LABEL,
    BoxRecord,
    RoleRecord,
    ServeRecord,
)

ExactRecipe = Callable[[str, str], Recipe | None]


@dataclass(frozen=True, slots=True)
class Seen:
    """What the box shows. `exact` gives the recipe of a digest and an id; `known` the newest generation that any
    journal tells of."""

    workspace: Workspace
    containers: Mapping[str, Container]
    aliases: Mapping[str, str]
    exact: ExactRecipe
    known: int = 0


@dataclass(frozen=True, slots=True)
class Proposal:
    """The record as the box shows it, and every sentence in which that is more than the copy says."""

    record: BoxRecord
    doubts: tuple[str, ...]


def proposed(copy: BoxRecord | None, seen: Seen) -> Proposal:
    doubts = [] if copy else ["there is no good copy of the record"]
    before = copy or BoxRecord()
    made = dict(_made(before, seen, doubts))
    serves = {**before.serves, **made}
    for gone in (s for s in before.serves.values() if s.container_id not in seen.containers):
        doubts.append(f"{gone.recipe_id} ({gone.container_id[:12]}) is in the copy, and its container is not here")
    roles = {r.name: _role(r, before, serves, seen, doubts) for r in seen.workspace.roles}
    labelled = (c.labels.get(GENERATION_LABEL, "") for c in seen.containers.values())
    newest = max((before.generation, seen.known, *(int(g) for g in labelled if g.isdigit())))
    kept = {k: v for k, v in {**before.roles, **roles}.items() if k in before.roles or v != RoleRecord(k)}
    return Proposal(BoxRecord(newest + 1, serves, kept), tuple(doubts))


def _made(before: BoxRecord, seen: Seen, doubts: list[str]) -> Iterator[tuple[str, ServeRecord]]:
    """Containers of operations of which the copy does not know."""
    for c in seen.containers.values():
        if OPERATION_LABEL not in c.labels or c.id in before.serves:
            continue
        recipe = seen.exact(c.labels.get(DIGEST_LABEL, ""), c.labels.get(RECIPE_LABEL, ""))
        seat = seat_in(seen.workspace, recipe, c) if recipe else None
        if seat is None:
            doubts.append(
                f"{c.name} ({c.id[:12]}) was made by an operation, for which slot cannot be told: left out"
            )
            continue
        doubts.append(f"{c.name} ({c.id[:12]}) in {seat.slot} is not in the copy: taken up")
        yield c.id, ServeRecord(
            c.id, seat.recipe.id, seat.recipe.digest(), c.image_id, seat.role, seat.slot, seat.port,
            seat.recipe.served_name, c.labels[OPERATION_LABEL], seat.recipe.exclusive,
        )  # fmt: skip


def _role(
    role: Role, before: BoxRecord, serves: Mapping[str, ServeRecord], seen: Seen, doubts: list[str]
) -> RoleRecord:
    held = before.roles.get(role.name, RoleRecord(role.name))
    running = [s for s in serves.values() if s.role == role.name and _runs(seen, s.container_id)]
    targets = {seen.aliases.get(a, "none") for a in role.aliases}
    pointed = [s.container_id for s in running if s.slot in targets]
    if len(targets) > 1 or len(pointed) > 1:
        doubts.append(f"{role.name}: its aliases point at {', '.join(sorted(targets))}: who serves cannot be told")
    if pointed == [held.incumbent] or (not pointed and not held.incumbent and not running):
        return held
    if targets == {"hold"} and _runs(seen, held.incumbent):
        return held
    holder = pointed[0] if len(pointed) == 1 else held.incumbent
    said = f"the copy says that {_named(serves, held.incumbent)} serves it, " if role.name in before.roles else ""
    behind = _named(serves, pointed[0]) if len(pointed) == 1 else "nobody"
    doubts.append(f"{role.name}: {said}the box shows {behind} behind its aliases")
    others = sorted(
        (s.container_id for s in serves.values() if s.role == role.name and s.container_id in seen.containers),
        key=lambda i: seen.containers[i].created_at or "", reverse=True,
    )  # fmt: skip
    ladder = dict.fromkeys((held.incumbent, *held.rollback, *others))
    return replace(held, incumbent=holder, rollback=tuple(i for i in ladder if i and i != holder), evicted_for="")


def _runs(seen: Seen, container_id: str) -> bool:
    found = seen.containers.get(container_id)
    return bool(found and found.running)


def _named(serves: Mapping[str, ServeRecord], container_id: str) -> str:
    if not container_id:
        return "nobody"
    found = serves.get(container_id)
    return f"{found.recipe_id} ({container_id[:12]})" if found else container_id[:12]
