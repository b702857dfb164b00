"""Figures with their standing: interval, unit, status, source; a recipe's `[feasibility]` is made of them. Pure.

A bound that nobody knows is None. It propagates through every sum and product and is never taken for 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Literal

from pydantic import Field, model_validator

from anvil_tui.core.tables import Line, Table

Standing = Literal["measured", "confirmed", "estimated", "assumed", "unknown"]
STANDINGS: tuple[Standing, ...] = ("measured", "confirmed", "estimated", "assumed", "unknown")
SURE: frozenset[Standing] = frozenset({"measured", "confirmed"})

Unit = Literal["B", "KiB", "MiB", "GiB", "kB", "MB", "GB", "tokens", "ratio", "s", "tok/s"]
_BYTES: Mapping[str, int] = {
    "B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "kB": 1000, "MB": 1000**2, "GB": 1000**3,
}  # fmt: skip
NotNegative = Annotated[float, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class Amount:
    """One input in bytes, tokens or a bare number; `at` is a date or a time as text."""

    name: str
    low: float | None
    high: float | None
    status: Standing
    source: str = ""
    at: str = ""

    @property
    def known(self) -> bool:
        return self.low is not None and self.high is not None

    @property
    def sure(self) -> bool:
        return self.known and self.status in SURE


def unknown(name: str, why: str) -> Amount:
    return Amount(name, None, None, "unknown", why)


def exactly(name: str, value: float, status: Standing = "confirmed", source: str = "", at: str = "") -> Amount:
    return Amount(name, value, value, status, source, at)


def hull(name: str, values: Iterable[float], status: Standing, source: str, at: str = "") -> Amount:
    """The interval from the least to the greatest of several readings of one thing."""
    have = list(values)
    return Amount(name, min(have), max(have), status, source, at) if have else unknown(name, "no reading")


def total(name: str, parts: Iterable[Amount]) -> Amount:
    """Sum of intervals. One unknown part makes the sum unknown; the weakest standing is the sum's."""
    have = list(parts)
    lows, highs = [p.low for p in have], [p.high for p in have]
    low = None if None in lows else sum(x for x in lows if x is not None)
    high = None if None in highs else sum(x for x in highs if x is not None)
    return Amount(name, low, high, weakest(have), "", "")


def product(name: str, *factors: Amount) -> Amount:
    """Product of intervals of numbers that are not negative."""
    low: float | None = 1.0
    high: float | None = 1.0
    for f in factors:
        low = None if low is None or f.low is None else low * f.low
        high = None if high is None or f.high is None else high * f.high
    named = next((f for f in factors if not f.known), factors[0])
    return Amount(name, low, high, weakest(factors), named.source, named.at)


def weakest(parts: Iterable[Amount]) -> Standing:
    return max((p.status for p in parts), key=STANDINGS.index, default="confirmed")


class Quantity(Table):
    """`value`, or `min` and `max`, in `unit`. Who says so is `source`; only an unknown one has `notes` instead."""

    value: NotNegative | None = None
    min: NotNegative | None = None
    max: NotNegative | None = None
    unit: Unit = "MiB"
    status: Standing
    source: str = ""
    observed_at: date | None = None
    notes: str = ""

    @model_validator(mode="after")
    def _sound(self) -> Quantity:
        problem = self._unknown_problem() if self.status == "unknown" else self._known_problem()
        if problem:
            raise ValueError(problem)
        return self

    def _unknown_problem(self) -> str:
        if (self.value, self.min, self.max) != (None, None, None):
            return "status unknown has no value, min or max: what is unknown is not a number"
        return "" if self.notes else "status unknown needs notes: why nobody knows, and what would tell"

    def _known_problem(self) -> str:
        bounds = (self.min is not None, self.max is not None)
        if (self.value is not None and any(bounds)) or (self.value is None and not all(bounds)):
            return "give value, or min and max"
        if self.min is not None and self.max is not None and self.min > self.max:
            return f"min {self.min:g} is larger than max {self.max:g}"
        if self.status == "estimated" and (self.value is not None or self.min == self.max):
            return "status estimated needs min and max that differ: an estimate without an error is a guess"
        return "" if self.source else f"status {self.status} needs a source"

    def amount(self, name: str) -> Amount:
        """In bytes where the unit is one of memory."""
        if self.status == "unknown":
            return unknown(name, self.notes)
        by = _BYTES.get(self.unit, 1)
        low, high = (self.value, self.value) if self.value is not None else (self.min, self.max)
        assert low is not None and high is not None
        at = str(self.observed_at) if self.observed_at else ""
        return Amount(name, low * by, high * by, self.status, self.source, at)


def _in_units(units: Iterable[str], wanted: str, **given: Quantity | None) -> list[str]:
    return [
        f"{key}.unit is {q.unit}: it must be {wanted}"
        for key, q in given.items()
        if q is not None and q.status != "unknown" and q.unit not in units
    ]


class Requirement(Table):
    """A predeclared threshold, and what was measured against it. Only measured and confirmed results count."""

    name: Line
    at_least: float | None = None
    at_most: float | None = None
    result: Quantity

    @model_validator(mode="after")
    def _one_rule(self) -> Requirement:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("give at_least or at_most, one of them")
        return self


class Feasibility(Table):
    """What is known of a recipe's memory per rank, for the screen before a load. It does not make the serve.

    `resident` is held whatever is served (`weights` here replaces the size on disk divided among the ranks);
    `per_sequence` once for each concurrent request; `per_token` for each resident token, times `kv_multiplier`.
    `tokens` that must be resident at once (absent: one complete window). `free` holds what was left free on each
    card of `hardware` at named moments when exactly this recipe ran there; the least of them decides.
    """

    hardware: str = ""
    resident: dict[str, Quantity] = {}
    per_sequence: dict[str, Quantity] = {}
    per_token: dict[str, Quantity] = {}
    kv_multiplier: Quantity | None = None
    tokens: Quantity | None = None
    context_limit: Quantity | None = None
    stable_context: Quantity | None = None
    free: dict[str, Quantity] = {}
    hard_failures: tuple[Line, ...] = ()
    requirements: tuple[Requirement, ...] = ()

    @model_validator(mode="after")
    def _units(self) -> Feasibility:
        problems: list[str] = []
        for table in ("resident", "per_sequence", "per_token", "free"):
            rows = {f"{table}.{key}": q for key, q in getattr(self, table).items()}
            problems += _in_units(_BYTES, f"one of {', '.join(_BYTES)}", **rows)
        counts = {k: getattr(self, k) for k in ("tokens", "context_limit", "stable_context")}
        problems += _in_units(("tokens",), "tokens", **counts)
        problems += _in_units(("ratio",), "ratio", kv_multiplier=self.kv_multiplier)
        if self.free and not self.hardware:
            problems.append("hardware is missing: free memory says nothing without the card it was read on")
        if problems:
            raise ValueError("\n".join(problems))
        return self
