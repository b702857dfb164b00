"""Three concurrencies side by side and never mixed: configured, resident, measured. Pure; tokens.

Configured is the scheduler's ceiling of the recipe; resident is whole windows of the engine's own pool; measured
is what lanes of gates proved, with the prompt tokens they were measured at.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import floor
from typing import Any, Literal

from anvil_tui.core.box import Engine, KvCapacity
from anvil_tui.core.lanes import LaneRow
from anvil_tui.core.recipe import Recipe

RECORDED = "measured concurrency"
"""The name of the figure in which a recipe's record keeps a concurrency that was measured elsewhere or before."""


@dataclass(frozen=True, slots=True)
class Proven:
    """`streams` requests at once, every one completed, nothing waited; each had at least `prompt_tokens`."""

    streams: int
    prompt_tokens: int
    requests: int
    bundle: str
    at: str


@dataclass(frozen=True, slots=True)
class Capacity:
    """One engine. `recipe_context` is what the recipe asks for and says nothing of what is resident.

    `windows` are complete windows of `context_tokens`; `concurrent` is how many requests of a whole window may be
    claimed: the smaller of the running limit and the windows. `proven` stands longest prompt first; `recorded` is
    what the recipe's record says, which nobody measured here.
    """

    configured: int | None
    recipe_context: int | None
    context_tokens: int | None
    pool_tokens: int | None
    pool_source: str
    pool_at: str | None
    rank_bytes: int | None
    windows: float | None
    longest_request: int | None
    running_limit: int | None
    concurrent: int | None
    inconsistent: str
    proven: tuple[Proven, ...] = ()
    recorded: str = ""


def capacity_of(recipe: Recipe | None, engine: Engine | None, proven: Iterable[Proven] = ()) -> Capacity:
    """None in every field that nobody told; the recipe's own context is never taken for the pool's."""
    kv = engine.capacity if engine else None
    context = (engine.context_tokens if engine else None) or (kv.per_request_tokens if kv else None)
    windows = kv.windows(context) if kv else None
    limit = engine.slots if engine else None
    sizes = [x for x in (kv.tokens, kv.per_request_tokens, context) if x] if kv and not kv.inconsistent else []
    counts = [x for x in (limit, None if windows is None else floor(windows)) if x is not None]
    return Capacity(
        configured=recipe.envelope.concurrency if recipe else None,
        recipe_context=recipe.envelope.context_tokens if recipe else None,
        context_tokens=context,
        pool_tokens=kv.tokens if kv else None,
        pool_source=kv.source if kv else "",
        pool_at=kv.at if kv else None,
        rank_bytes=kv.per_rank_bytes if kv else None,
        windows=windows,
        longest_request=min(sizes) if kv and kv.tokens and sizes else None,
        running_limit=limit,
        concurrent=min(counts) if windows is not None else None,
        inconsistent=kv.inconsistent if kv else "",
        proven=tuple(proven),
        recorded=recorded(recipe),
    )


def recorded(recipe: Recipe | None) -> str:
    figures = recipe.figures if recipe else ()
    return next((f.value for f in figures if f.name.replace("_", " ").lower() == RECORDED), "")


def proven_by(rows: Iterable[LaneRow], bundle: str, at: str) -> list[Proven]:
    """The rows that prove a concurrency: nothing waited, and all streams were seen running at once.

    A queue that nobody read is not an empty one, and a short row may queue between two readings.
    """
    return [
        Proven(r.streams, int(low), r.requests, bundle, at)
        for r in rows
        if r.requests >= r.streams and not r.failed and r.waiting_peak == 0 and (r.running_peak or 0) >= r.streams
        if (low := r.prompt_tokens.low if r.prompt_tokens else None) is not None
    ]


def frontier(found: Iterable[Proven]) -> tuple[Proven, ...]:
    """What no other row beats in both streams and prompt tokens; the longest prompt first."""
    best: list[Proven] = []
    for p in sorted(found, key=lambda p: (p.prompt_tokens, p.streams, p.at), reverse=True):
        if all(p.streams > b.streams for b in best):
            best.append(p)
    return tuple(best)


def fits_pool(kv: KvCapacity | None, tokens: int) -> Literal["yes", "no", "inconclusive", "unknown"]:
    """Whether so many tokens can be resident at once. Between two figures that contradict, nobody can say."""
    if kv is None or not kv.tokens:
        return "unknown"
    figures = [kv.tokens]
    if kv.inconsistent and kv.reported_windows and kv.per_request_tokens:
        figures.append(round(kv.reported_windows * kv.per_request_tokens))
    if tokens <= min(figures):
        return "yes"
    return "no" if tokens > max(figures) else "inconclusive"


def refused_by_pool(kv: KvCapacity | None, tokens: int) -> str:
    """Why one request of so many tokens, answer included, can never be served; "" = it can, or nobody knows."""
    if kv is None:
        return ""
    most = kv.per_request_tokens
    if fits_pool(kv, tokens) == "no":
        limit = f"the engine's KV pool of {kv.tokens:,} tokens ({kv.source})"
    elif most and tokens > most:
        limit = f"the {most:,} tokens that the engine allows one request ({kv.source})"
    else:
        return ""
    return (
        f"policy-infeasible: one request of {tokens:,} tokens does not fit {limit}; give it a larger pool, or "
        "promise a shorter context"
    )


def pool_doubt(kv: KvCapacity | None, tokens: int) -> str:
    """Why nobody can say that so many tokens were resident at once: the engine's own figures contradict."""
    if kv is None or not kv.inconsistent or fits_pool(kv, tokens) == "yes":
        return ""
    return f"{tokens:,} tokens at once are more than the smaller of two figures of the engine: {kv.inconsistent}"


def proven_text(proven: Proven) -> str:
    return f"C{proven.streams} at {proven.prompt_tokens:,}"


def capacity_json(c: Capacity) -> dict[str, Any]:
    """null = unknown; `windows` and `proven` are claims, `configured` and `recipe_context` are not."""
    return asdict(c) | {"windows": None if c.windows is None else round(c.windows, 4)}


def capacity_text(c: Capacity) -> str:
    """One line: configured, resident, measured, in this order."""
    windows = "n/a" if c.windows is None else f"{c.windows:.2f} windows of {c.context_tokens:,}"
    configured = "n/a" if c.configured is None else f"C{c.configured}"
    measured = ", ".join(proven_text(p) for p in c.proven) or "n/a"
    said = f", the record says {c.recorded}" if c.recorded and not c.proven else ""
    longest = "" if c.longest_request is None else f"; longest request {c.longest_request:,}"
    odd = f"; inconsistent: {c.inconsistent}" if c.inconsistent else ""
    return f"configured {configured}, resident {windows}, measured {measured}{said}{longest}{odd}"
