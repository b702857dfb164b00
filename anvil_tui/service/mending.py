"""A record of the box that cannot be read: used from its last good copy where the box agrees, else confirmed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from anvil_tui.core.errors import BadFile, Refused
from anvil_tui.core.mending import Proposal, Seen, proposed
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.world import BoxRecord
from anvil_tui.service.box import Box

LEASE = "record"


@dataclass(frozen=True, slots=True)
class Damage:
    """`why` it cannot be read, and what would be put in its place."""

    why: BadFile
    proposal: Proposal

    @property
    def hash(self) -> str:
        """Of what a person confirms. The generation is left out: a look at the box does not raise it."""
        body = {**asdict(self.proposal.record), "generation": 0, "doubts": self.proposal.doubts}
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:12]


def damage(box: Box) -> Damage | None:
    """None = the record can be read."""
    try:
        box.store.read()
    except BadFile as why:
        return Damage(why, proposed(box.store.copy(), _seen(box)))
    return None


def _seen(box: Box) -> Seen:
    stored = box.store.kept_recipes()
    files = {f.recipe.id: f.recipe for f in box.recipes() if f.recipe}

    def exact(digest: str, recipe_id: str) -> Recipe | None:
        now = files.get(recipe_id)
        return stored.get(digest) or (now if now and now.digest() == digest else None)

    return Seen(
        box.workspace, {c.id: c for c in box.containers.list()}, box.gateway.snapshot().aliases, exact,
        _newest_generation(box),
    )  # fmt: skip


def _newest_generation(box: Box) -> int:
    """As the journals have it: what was fenced off by a generation must stay so."""
    told = (
        r.data.get("generation") for v in box.operations.views() for r in box.operations.journal(v.id).records()
    )
    return max((g for g in told if isinstance(g, int)), default=0)


def read_or_mend(box: Box, own: str = "") -> BoxRecord:
    """The record; one that cannot be read is replaced by its last good copy if the box agrees with it in all that
    can be seen. BadFile, with what is in doubt, if not. `own` is the operation of this process: it has the lease.
    """
    try:
        return box.store.read()
    except BadFile as why:
        found = damage(box)
        if found is not None and found.proposal.doubts:
            raise BadFile(why.path, f"{why.message}. In doubt: {'; '.join(found.proposal.doubts)}") from why
    mend(box, own=own)
    return box.store.read()


def mend(box: Box, confirmed: str = "", own: str = "") -> str:
    """Set the damaged file aside and put the proposal in its place, under the lease; returns where it lies now.
    Refused when a person has to confirm it and confirmed something else, or nothing."""
    if not own:
        box.lease.take(LEASE)
    try:
        found = damage(box)
        if found is None:
            raise Refused("the record of the box can be read; nothing was changed")
        if found.proposal.doubts and confirmed != found.hash:
            raise Refused(
                f"what the box shows is {found.hash}, not {confirmed or 'confirmed'}: `anvil-tui record` shows it"
            )
        return box.store.mend(found.proposal.record)
    finally:
        if not own:
            box.lease.release()
