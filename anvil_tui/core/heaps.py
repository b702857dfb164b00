"""One rank's need on one GPU's heap, by interval arithmetic over figures with their standing. Pure; bytes, tokens.

Each GPU is a heap of its own: the need is that of one rank, cards are never added up. An unknown bound stays
unknown. What is not known can only add to a need: the known parts alone may prove that it does not fit, and never
that it fits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor
from typing import Literal

from anvil_tui.core.quantity import Amount, exactly, product, total, weakest

Axis = Literal["pass", "fail", "modelled-fail", "unknown"]
"""`fail` rests on measured and confirmed figures alone, `modelled-fail` on estimated or assumed ones too."""
Range = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU's heap. `capacity` is what it has (or has free now); `held` what of it a driver keeps for itself.

    `left` is what exactly this recipe left free on it, where that was measured card by card.
    """

    name: str
    capacity: Amount
    held: tuple[Amount, ...] = ()
    left: Amount | None = None


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One requirement that memory cannot answer. `projected` is what a figure that does not count would say."""

    name: str
    outcome: Literal["pass", "miss", "unproven"]
    text: str
    projected: str = ""


@dataclass(frozen=True, slots=True)
class Need:
    """What one rank needs. `whole` is the measured need of exactly this recipe and replaces the sum.

    `left` is what was measured free on the smallest card with exactly this recipe loaded and `loaded_tokens` in
    its pool: a margin that was seen needs no model.
    """

    tokens: Amount
    concurrency: int
    resident: tuple[Amount, ...] = ()
    per_sequence: tuple[Amount, ...] = ()
    per_token: tuple[Amount, ...] = ()
    multiplier: Amount = exactly("KV multiplier", 1.0)
    whole: Amount | None = None
    left: Amount | None = None
    loaded_tokens: Amount | None = None
    context_limit: Amount | None = None
    stable_context: Amount | None = None
    hard_failures: tuple[str, ...] = ()
    behaviours: tuple[Behaviour, ...] = ()

    def parts(self) -> tuple[Amount, ...]:
        """Everything that one rank holds, in bytes; the measured whole where there is one."""
        if self.whole is not None:
            return (self.whole,)
        count = exactly("concurrency", self.concurrency)
        return (
            *self.resident,
            *(product(f"{p.name}, {self.concurrency} at once", p, count) for p in self.per_sequence),
            *(
                product(f"{p.name}, {_tokens(self.tokens)}", p, self.multiplier, self.tokens)
                for p in self.per_token
            ),
        )


@dataclass(frozen=True, slots=True)
class Heap:
    """One card's answer, in bytes; None = unknown. `room` is the card without the driver's own share.

    A margin is what is left of the room (negative: short), as an interval.
    """

    card: str
    capacity: Amount
    room: Range
    demand: Amount
    physical: Axis
    policy: Axis
    margin: Range
    policy_margin: Range
    max_tokens: tuple[int | None, int | None]
    measured: bool = False


def heap_of(need: Need, parts: tuple[Amount, ...], card: Card, reserve: int) -> Heap:
    demand = total("need of a rank", parts)
    seen = card.left or need.left
    if seen is not None and need.whole is None:
        return _measured_heap(need, card, seen, reserve)
    held = total("held by the driver", card.held)
    room = _less(card.capacity, held)
    kept = (None if room[0] is None else room[0] - reserve, None if room[1] is None else room[1] - reserve)
    return Heap(
        card.name, card.capacity, room, demand,
        physical=_axis(parts, room, card), policy=_axis(parts, kept, card),
        margin=_margin(room, demand), policy_margin=_margin(kept, demand),
        max_tokens=_max_tokens(need, kept), measured=need.whole is not None,
    )  # fmt: skip


def _measured_heap(need: Need, card: Card, left: Amount, reserve: int) -> Heap:
    """What was left free when exactly this recipe ran is the margin itself."""
    room, demand = _less(card.capacity, total("", card.held)), _taken(card.capacity, card.held, left)
    margin = (left.low, left.high)
    kept = (None if left.low is None else left.low - reserve, None if left.high is None else left.high - reserve)
    policy: Axis = "unknown" if None in kept else "pass"
    if kept[0] is not None and kept[1] is not None:
        policy = "fail" if kept[1] < 0 else "pass" if kept[0] >= 0 else "unknown"
    physical: Axis = "unknown" if left.low is None else "pass"
    return Heap(
        card.name, card.capacity, room, demand, physical, policy, margin, kept, _tokens_from(need, kept), True
    )


def _taken(capacity: Amount, held: tuple[Amount, ...], left: Amount) -> Amount:
    """What the rank held: everything of the card that was neither free nor the driver's own."""
    room = _less(capacity, total("", held))
    low = None if room[0] is None or left.high is None else max(0.0, room[0] - left.high)
    high = None if room[1] is None or left.low is None else max(0.0, room[1] - left.low)
    return Amount("need of a rank", low, high, weakest((capacity, *held, left)), left.source, left.at)


def _less(capacity: Amount, held: Amount) -> Range:
    """(least, most) room. An unknown share of the driver leaves no lower bound; the card's size is the upper."""
    low = None if capacity.low is None or held.high is None else capacity.low - held.high
    high = None if capacity.high is None else capacity.high - (held.low or 0.0)
    return low, high


def _margin(room: Range, demand: Amount) -> Range:
    low = None if room[0] is None or demand.high is None else room[0] - demand.high
    high = None if room[1] is None or demand.low is None else room[1] - demand.low
    return low, high


def _axis(parts: tuple[Amount, ...], room: Range, card: Card) -> Axis:
    low, high = room
    if high is not None and least(p for p in parts if p.sure) > high and card.capacity.sure:
        return "fail"
    if high is not None and least(parts) > high:
        return "modelled-fail"
    if low is None or any(p.high is None for p in parts):
        return "unknown"
    return "pass" if sum(p.high or 0.0 for p in parts) <= low else "unknown"


def least(parts: Iterable[Amount]) -> float:
    """What the known parts need at least; an unknown one can only add to it."""
    return sum(p.low for p in parts if p.low is not None)


def _max_tokens(need: Need, room: Range) -> tuple[int | None, int | None]:
    """(least, most) tokens that can be resident beside everything else; None where a figure for it is unknown."""
    each = product("", total("", need.per_token), need.multiplier)
    if not need.per_token or not each.low or not each.high:
        return None, None
    if need.whole is not None:
        if need.loaded_tokens is None:
            return None, None
        return _tokens_from(need, _margin(room, need.whole))
    count = exactly("", need.concurrency)
    rest = total("", (*need.resident, *(product("", p, count) for p in need.per_sequence)))
    left = _margin(room, rest)
    return _floor(left[0], each.high), _floor(left[1], each.low)


def _tokens_from(need: Need, left: Range) -> tuple[int | None, int | None]:
    """Tokens of the pool that was loaded, and what more (or less) the margin buys."""
    each = product("", total("", need.per_token), need.multiplier)
    base = need.loaded_tokens
    if (
        base is None
        or base.low is None
        or base.high is None
        or not need.per_token
        or not each.low
        or not each.high
    ):
        return None, None

    def more(margin: float | None, cheap: float, dear: float, pool: float) -> int | None:
        return None if margin is None else max(0, floor(pool + margin / (dear if margin >= 0 else cheap)))

    return more(left[0], each.low, each.high, base.low), more(left[1], each.high, each.low, base.high)


def _floor(left: float | None, each: float) -> int | None:
    return None if left is None else max(0, floor(left / each))


def _tokens(amount: Amount) -> str:
    return "tokens unknown" if amount.high is None else f"{amount.high:,.0f} tokens"


def mib(value: float | None) -> str:
    """Bytes as MiB, rounded down, so that a margin is never flattered."""
    return "n/a" if value is None else f"{floor(value / 1024**2):,} MiB"
