"""What a load was measured to take: pool, bytes of KV a rank, free memory before and after. Pure.

One record for each time that a serve was proven ready after its start. Read back, it is the best figure there is
for the next load of the same recipe, and a good one for others of its shape.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from anvil_tui.core.quantity import Amount, Standing, hull, unknown
from anvil_tui.core.recipe import EngineKind, Recipe
from anvil_tui.core.vram import BASELINE_TOLERANCE_MIB

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class CardLoad:
    """One GPU around a load, in bytes; None = not known."""

    uuid: str
    total: int | None = None
    before: int | None = None
    after: int | None = None

    @property
    def taken(self) -> int | None:
        return None if self.before is None or self.after is None else self.before - self.after


@dataclass(frozen=True, slots=True)
class MeasuredLoad:
    """`shape` is what loads must share for their KV bytes a token to be the same; `rank_bytes` are of one rank.

    `replicas` is how many data-parallel copies share `pool_tokens`; `odd` says why the engine's figures differ.
    """

    operation: str
    at: str
    recipe: str
    digest: str
    shape: str
    context_tokens: int
    concurrency: int
    replicas: int = 1
    pool_tokens: int | None = None
    pool_source: str = ""
    rank_bytes: int | None = None
    odd: str = ""
    cards: tuple[CardLoad, ...] = ()

    @property
    def token_bytes(self) -> float | None:
        """Bytes of KV of one token on one rank; None where the figures do not tell it."""
        if not self.pool_tokens or not self.rank_bytes or self.odd:
            return None
        return self.rank_bytes * self.replicas / self.pool_tokens


def shape_of(recipe: Recipe) -> str:
    """Hash of what decides the KV bytes of a token on a rank: engine, image, weights, KV type, ranks, draft."""
    facts = (
        recipe.engine, recipe.image.ref, recipe.model.repo, recipe.model.revision, recipe.model.sha256,
        recipe.kv.type, recipe.gpus.tensor_parallel, len(recipe.gpus.select),
        recipe.speculation.model_dump(mode="json") if recipe.speculation else None,
    )  # fmt: skip
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def replicas_of(recipe: Recipe) -> int:
    """Data-parallel copies; llama.cpp makes none, it cuts one model over its GPUs."""
    if recipe.engine is EngineKind.LLAMACPP:
        return 1
    return max(1, len(recipe.gpus.select) // recipe.gpus.tensor_parallel)


def per_token(recipe: Recipe, loads: Iterable[MeasuredLoad]) -> Amount | None:
    """Bytes of KV of a token on a rank, from every load of the recipe's shape; None = never measured."""
    if recipe.engine is EngineKind.LLAMACPP and len(recipe.gpus.select) > 1:
        return None  # it cuts layers among its GPUs unevenly and prints one size for all of them
    shape = shape_of(recipe)
    found = [(x.token_bytes, x) for x in loads if x.shape == shape and x.token_bytes]
    if not found:
        return None
    return hull("KV", (b for b, _ in found if b), "measured", *_named([x for _, x in found]))


def whole(recipe: Recipe, loads: Iterable[MeasuredLoad]) -> Amount | None:
    """What exactly this recipe took of a card, the least and the most of its ranks and loads.

    It is a difference of two readings, between which the driver's own share moves: hence the wider bounds.
    """
    mine = _of(recipe, loads)
    taken = [(t, x) for x in mine for c in x.cards if (t := c.taken) is not None and t > 0]
    if not taken:
        return None
    source, at = _named([x for _, x in taken])
    slack = BASELINE_TOLERANCE_MIB * MIB
    sizes = [t for t, _ in taken]
    return Amount("measured at load", max(0, min(sizes) - slack), max(sizes) + slack, "measured", source, at)


def left(
    recipe: Recipe, uuids: Iterable[str], loads: Iterable[MeasuredLoad],
    reserved: Mapping[str, int | None] = {},
) -> dict[str, Amount]:  # fmt: skip
    """What the newest load of exactly this recipe on these GPUs left free on each; {} = nobody knows.

    `reserved` is the driver's own share. A load beside another serve is passed over: what it left is not what a
    card of its own leaves. Keys are UUIDs in small letters.
    """
    wanted = {u.lower() for u in uuids}
    for load in reversed(_of(recipe, loads)):
        cards = {c.uuid.lower(): c for c in load.cards}
        if cards.keys() != wanted or any(_shared(c, reserved.get(u)) for u, c in cards.items()):
            continue
        name = "left free after load"
        free = {u: c.after for u, c in cards.items() if c.after is not None}
        if len(free) < len(cards):
            return {}
        return {u: Amount(name, f, f, "measured", load.operation, load.at) for u, f in free.items()}
    return {}


def _shared(card: CardLoad, reserved: int | None) -> bool:
    """Whether somebody else is known to have held memory of it before the load."""
    if card.total is None or card.before is None or reserved is None:
        return False
    return card.total - reserved - card.before > BASELINE_TOLERANCE_MIB * MIB


def _of(recipe: Recipe, loads: Iterable[MeasuredLoad]) -> list[MeasuredLoad]:
    digest = recipe.digest()
    return [x for x in loads if x.digest == digest]


def rest(recipe: Recipe, loads: Iterable[MeasuredLoad]) -> Amount | None:
    """Everything of a rank but its KV, from loads of the shape with the same concurrency under other arguments.

    Assumed, not measured: other arguments may take other room.
    """
    shape = shape_of(recipe)
    near = [
        x for x in loads
        if x.shape == shape and x.concurrency == recipe.envelope.concurrency and x.rank_bytes
    ]  # fmt: skip
    sizes = [
        (t - x.rank_bytes, x) for x in near for c in x.cards
        if (t := c.taken) is not None and x.rank_bytes and t > x.rank_bytes
    ]  # fmt: skip
    if not sizes:
        return None
    status: Standing = "assumed"
    return hull(
        "weights, runtime, graphs and sequences", (s for s, _ in sizes), status, *_named([x for _, x in sizes])
    )


def newest_pool(recipe: Recipe, loads: Iterable[MeasuredLoad]) -> Amount:
    """Tokens of the pool of one copy."""
    mine = [x for x in _of(recipe, loads) if x.pool_tokens and not x.odd]
    if not mine:
        return unknown("pool", "this recipe was not loaded here with a pool that the engine told")
    last = mine[-1]
    each = (last.pool_tokens or 0) / last.replicas
    return Amount("pool", each, each, "measured", last.operation, last.at)


def _named(loads: list[MeasuredLoad]) -> tuple[str, str]:
    """(operations, newest time) that a figure comes from."""
    return ", ".join(dict.fromkeys(x.operation for x in loads)), max(x.at for x in loads)
