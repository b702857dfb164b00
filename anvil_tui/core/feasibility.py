"""The class of a recipe's feasibility before a load: what fits, what is only hoped, what is proven not to. Pure.

The smallest card decides. A shortfall is proven only by figures that were measured or confirmed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from anvil_tui.core.heaps import Axis, Behaviour, Card, Heap, Need, Range, heap_of, least, mib
from anvil_tui.core.quantity import Amount

FeasibilityClass = Literal[
    "empirically-disqualified", "proven-infeasible", "modeled-infeasible", "policy-infeasible",
    "requirements-disqualified", "unresolved", "benchmark-survivor", "math-qualified", "verified-by-waiver",
]  # fmt: skip
ORDER: tuple[FeasibilityClass, ...] = (
    "empirically-disqualified", "proven-infeasible", "modeled-infeasible", "policy-infeasible",
    "requirements-disqualified", "unresolved", "benchmark-survivor", "math-qualified",
)  # fmt: skip
"""Worst first: the first that applies is the class. `verified-by-waiver` stands for a policy-infeasible recipe
that would be math-qualified under the reserve that a waiver leaves."""


@dataclass(frozen=True, slots=True)
class Screen:
    """The answer for a recipe. `heaps[0]` is the card that decides."""

    cls: FeasibilityClass
    why: str
    heaps: tuple[Heap, ...]
    parts: tuple[Amount, ...]
    reserve_bytes: int
    tokens: Amount
    context: Axis
    behaviours: tuple[Behaviour, ...] = ()
    load_bearing_unknowns: tuple[Amount, ...] = ()
    planning_inputs: tuple[Amount, ...] = ()


def screen(need: Need, cards: Sequence[Card], reserve_bytes: int) -> Screen:
    """Every card against the need, with `reserve_bytes` of each kept free by policy."""
    parts = need.parts()
    heaps = sorted((heap_of(need, parts, card, reserve_bytes) for card in cards), key=_tightness)
    context = _context(need)
    cls, why = _class(need, heaps, context, parts, reserve_bytes)
    unknowns = [p for p in _inputs(need, cards) if not p.known] if cls == "unresolved" else []
    planning = [p for p in _inputs(need, cards) if p.known and p.status in ("estimated", "assumed")]
    return Screen(
        cls, why, tuple(heaps), parts, reserve_bytes, need.tokens, context, need.behaviours, tuple(unknowns),
        tuple(planning),
    )  # fmt: skip


def _inputs(need: Need, cards: Sequence[Card]) -> list[Amount]:
    """What the answer rests on, each once."""
    formula = (*need.resident, *need.per_sequence, *need.per_token, need.multiplier, need.tokens)
    of_cards = [a for c in cards for a in (c.capacity, *c.held)]
    used = [need.left] if need.left is not None else [*([need.whole] if need.whole else formula), *of_cards]
    return list(dict.fromkeys(a for a in (*used, need.context_limit) if a is not None))


def _tightness(heap: Heap) -> tuple[int, float, float]:
    """The card with the least margin first; a failed axis before an unknown one."""
    rank = {"fail": 0, "modelled-fail": 1, "unknown": 3, "pass": 4}[heap.physical]
    rank = min(rank, 2) if heap.policy == "fail" else rank
    capacity = heap.capacity.low if heap.capacity.low is not None else 0.0
    return rank, heap.margin[0] if heap.margin[0] is not None else capacity, capacity


def _context(need: Need) -> Axis:
    limit, wanted = need.context_limit, need.tokens
    if limit is None:
        return "pass"
    if limit.high is None or wanted.low is None:
        return "unknown"
    if wanted.low > limit.high:
        return "fail" if limit.sure and wanted.sure else "modelled-fail"
    return "pass"


def _class(
    need: Need, heaps: list[Heap], context: Axis, parts: tuple[Amount, ...], reserve: int
) -> tuple[FeasibilityClass, str]:
    """The first that applies, in the order of `ORDER`."""
    if why := _disqualified(need):
        return "empirically-disqualified", why
    if not heaps:
        return "unresolved", "no card to screen against: the recipe names no GPU, or none can be read"
    worst = heaps[0]
    axes = {h.physical for h in heaps} | {context}
    if "fail" in axes:
        return "proven-infeasible", _short(need, worst, context, parts, sure=True)
    if "modelled-fail" in axes:
        return "modeled-infeasible", _short(need, worst, context, parts, sure=False)
    if short := next((h for h in heaps if h.policy in ("fail", "modelled-fail")), None):
        return "policy-infeasible", _policy_short(short, parts, reserve)
    if misses := [b for b in need.behaviours if b.outcome == "miss"]:
        return "requirements-disqualified", "; ".join(b.text for b in misses)
    if any(h.policy == "unknown" or h.physical == "unknown" for h in heaps) or context == "unknown":
        return "unresolved", _why_unresolved(need, worst, reserve)
    unproven = [b.name for b in need.behaviours if b.outcome == "unproven"]
    if unproven or not need.behaviours:
        named = ", ".join(unproven) or "nothing was measured of its behaviour"
        return (
            "benchmark-survivor",
            f"memory passes with {_margin_text(worst.policy_margin)} left; unproven: {named}",
        )
    return (
        "math-qualified",
        f"memory passes with {_margin_text(worst.policy_margin)} left and every requirement is met",
    )


def _disqualified(need: Need) -> str:
    if need.hard_failures:
        return "; ".join(need.hard_failures)
    stable = need.stable_context
    if stable and stable.sure and stable.high is not None and need.tokens.low and stable.high < need.tokens.low:
        return f"stable up to {stable.high:,.0f} tokens as {stable.status}, {need.tokens.low:,.0f} are required"
    return ""


def _short(need: Need, heap: Heap, context: Axis, parts: tuple[Amount, ...], *, sure: bool) -> str:
    if context in ("fail", "modelled-fail") and heap.physical not in ("fail", "modelled-fail"):
        limit = need.context_limit.high if need.context_limit else 0
        return f"{need.tokens.low:,.0f} tokens are required, the model's context ends at {limit:,.0f}"
    counted = [p for p in parts if p.low is not None and (p.sure or not sure)]
    floor_bytes, room = least(counted), heap.room[1] or 0.0
    terms = ", ".join(f"{p.name} {mib(p.low)}" for p in counted if p.low)
    return (
        f"a rank needs at least {mib(floor_bytes)} ({terms}); {heap.card} has {mib(room)}, "
        f"short by at least {mib(floor_bytes - room)}"
    )


def _policy_short(heap: Heap, parts: tuple[Amount, ...], reserve: int) -> str:
    if heap.policy_margin[1] is None:
        return f"the known parts of the need alone break the reserve of {mib(reserve)} on {heap.card}"
    left = heap.policy_margin[1] + reserve
    how = "measured" if heap.measured else "at most"
    return (
        f"{mib(left)} {how} left free on {heap.card}, the reserve is {mib(reserve)}: short by "
        f"{mib(-heap.policy_margin[1])}"
    )


def _why_unresolved(need: Need, heap: Heap, reserve: int) -> str:
    low, high = heap.policy_margin
    if low is not None and high is not None:
        return f"bounds overlap: {mib(low)} to {mib(high)} would be left beside the reserve of {mib(reserve)}"
    used = (need.left,) if need.left is not None else (*need.parts(), heap.capacity)
    names = ", ".join(dict.fromkeys(p.name for p in used if not p.known)) or "the driver's own share"
    return f"unknown: {names}"


def _margin_text(margin: Range) -> str:
    low, high = margin
    return mib(low) if low == high else f"{mib(low)} to {mib(high)}"


def compared(name: str, result: Amount, at_least: float | None, at_most: float | None) -> Behaviour:
    """A requirement judged: only measured and confirmed results pass or miss; others are only projected."""
    rule = f"at least {at_least:g}" if at_least is not None else f"at most {at_most:g}"
    if result.low is None or result.high is None:
        return Behaviour(name, "unproven", f"{name} unknown, {rule} is required")
    good = result.low >= at_least if at_least is not None else result.high <= (at_most or 0.0)
    bad = result.high < at_least if at_least is not None else result.low > (at_most or 0.0)
    said = f"{result.low:g}" if result.low == result.high else f"{result.low:g} to {result.high:g}"
    text = f"{name} {said} ({result.status}), {rule} is required"
    if not result.sure:
        return Behaviour(name, "unproven", text, "pass" if good else "miss" if bad else "")
    return Behaviour(name, "pass" if good else "miss" if bad else "unproven", text)


def by_waiver(standing: Screen, waived: Screen, words: str) -> Screen:
    """The class under a waiver. Only a policy-infeasible class moves; every figure stays as it was measured."""
    if standing.cls != "policy-infeasible" or waived.cls == "policy-infeasible":
        return standing
    why = f"{standing.why}; {words}"
    if waived.cls == "math-qualified":
        return replace(standing, cls="verified-by-waiver", why=f"{why}: policy-infeasible becomes verified")
    return replace(
        standing, cls=waived.cls, why=f"{why}: no longer policy-infeasible; {waived.why}",
        load_bearing_unknowns=waived.load_bearing_unknowns,
    )  # fmt: skip
