"""Statistics of a comparison: effects with intervals, bounds of k of n, and the rule for a verdict. Pure, seeded.

The unit is the run (load, warm-up, lane); requests are paired by prompt item. All intervals are two-sided 90 %.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, median, stdev
from typing import Literal

LEVEL = 0.90
RESAMPLES = 1000
PAIRS_NEEDED = 5
"""Below five pairs no distribution-free 90 % interval of a median exists: 1 - 2/2^4 = 87.5 %."""
RUNS_NEEDED = 3
"""Three runs against three can differ by order alone once in 20 ways: 5 % a side. Two against two once in 6."""

Runs = Sequence[Mapping[str, float]]
"""One mapping a run: prompt item to a measured value above 0."""

Verdict = Literal["better", "worse", "equivalent", "undecided"]


@dataclass(frozen=True, slots=True)
class Effect:
    """B over A. `ratio`, `low` and `high` are B/A; `log_sd` is the standard error of its logarithm.

    `pairs` counts items times runs of the shorter arm; `df` are degrees of freedom, of the runs where both
    arms have two or more, else of the items.
    """

    ratio: float
    low: float
    high: float
    pairs: int
    runs_a: int
    runs_b: int
    log_sd: float
    df: int


def paired_effect(a: Runs, b: Runs, *, resamples: int = RESAMPLES, seed: int = 1) -> Effect | None:
    """exp of the median over items of ln(B/A), each item the geometric mean over its arm's runs.

    Interval: bootstrap over the runs of each arm, then over the items, percentiles expanded for few runs
    (Hesterberg 2015): plain ones covered 71-84 % with 2-4 runs that differ by 5 %, these 92-96 % with 3 and
    more, 84-92 % with 2. With one run an arm it holds within that run only: 22-78 % where runs differ.
    None when the arms share no item.
    """
    logs_a, logs_b = [_logs(run) for run in a], [_logs(run) for run in b]
    items = sorted(set().union(*logs_a) & set().union(*logs_b))
    if not items:
        return None
    ways_a, ways_b = _grid(logs_a, items), _grid(logs_b, items)
    middle = median(_differences(ways_a, ways_b))
    draw = random.Random(seed)
    drawn = sorted(_resampled(draw, ways_a, ways_b) for _ in range(resamples))
    df, of = _freedom(len(a), len(b), len(items))
    tail = NormalDist().cdf(-math.sqrt(of / (of - 1)) * t_quantile((1 + LEVEL) / 2, df)) if df else 0.0
    low, high = drawn[math.floor(tail * (resamples - 1))], drawn[math.ceil((1 - tail) * (resamples - 1))]
    sd = stdev(drawn) * math.sqrt(of / (of - 1)) if df else math.inf
    return Effect(
        math.exp(middle), math.exp(min(low, middle)), math.exp(max(high, middle)),
        len(items) * min(len(a), len(b)), len(a), len(b), sd, df,
    )  # fmt: skip


def _logs(run: Mapping[str, float]) -> dict[str, float]:
    return {item: math.log(value) for item, value in run.items()}


def _grid(runs: Sequence[Mapping[str, float]], items: Sequence[str]) -> list[list[float | None]]:
    return [[run.get(item) for item in items] for run in runs]


def _differences(a: Sequence[Sequence[float | None]], b: Sequence[Sequence[float | None]]) -> list[float]:
    """ln(B/A) of every item that both selections of runs hold."""
    found = []
    for of_a, of_b in zip(zip(*a, strict=True), zip(*b, strict=True), strict=True):
        mine, theirs = [v for v in of_a if v is not None], [v for v in of_b if v is not None]
        if mine and theirs:
            found.append(fmean(theirs) - fmean(mine))
    return found


def _resampled(
    draw: random.Random, a: Sequence[Sequence[float | None]], b: Sequence[Sequence[float | None]]
) -> float:
    of_runs: list[float] = []
    while not of_runs:  # a drawn pair of runs may share no item when some requests failed
        of_runs = _differences(draw.choices(a, k=len(a)), draw.choices(b, k=len(b)))
    return median(draw.choices(of_runs, k=len(of_runs)))


def _freedom(runs_a: int, runs_b: int, items: int) -> tuple[int, int]:
    """(degrees of freedom, how many units the bootstrap draws at that level); (0, ...) = no interval can hold."""
    if min(runs_a, runs_b) > 1:
        return runs_a + runs_b - 2, min(runs_a, runs_b)
    return items - 1, items


def noise_floor(arms: Sequence[Runs]) -> tuple[float, float] | None:
    """(lowest, highest) ratio of any two runs of one arm: what identical arms differ by. None = no arm repeats."""
    found = [
        math.exp(median(_differences([x], [y])))
        for runs in arms
        for items in [sorted(set().union(*runs)) if runs else []]
        for grid in [_grid([_logs(run) for run in runs], items)]
        for n, x in enumerate(grid)
        for y in grid[n + 1 :]
        if _differences([x], [y])
    ]
    if not found:
        return None
    widest = max(max(r, 1 / r) for r in found)
    return 1 / widest, widest


# verdicts


def judge(
    effect: Effect, *, band: float, higher_is_better: bool, floor: tuple[float, float] | None
) -> tuple[Verdict, str]:
    """The verdict on B by its interval against the predeclared band (0.03 = 3 %), and why."""
    low_edge, high_edge = 1 - band, 1 + band
    single = min(effect.runs_a, effect.runs_b) < 2
    unmeasured = "between-run variance not measured" if single and floor is None else ""
    if effect.pairs < PAIRS_NEEDED and min(effect.runs_a, effect.runs_b) < RUNS_NEEDED:
        pairs = f"{effect.pairs} pair" + ("s" if effect.pairs != 1 else "")
        return "undecided", f"{pairs}: a 90 % interval needs {PAIRS_NEEDED}, or {RUNS_NEEDED} runs an arm"
    if low_edge <= effect.low and effect.high <= high_edge:
        runs = min(effect.runs_a, effect.runs_b)
        if runs < RUNS_NEEDED:
            few = f"equal needs {RUNS_NEEDED} runs an arm, there {'is' if runs == 1 else 'are'} {runs}"
            return "undecided", "; ".join(filter(None, [few, unmeasured]))
        return "equivalent", "the interval lies inside the band"
    if effect.low <= high_edge and effect.high >= low_edge:
        return "undecided", "; ".join(filter(None, ["the interval crosses the band's edge", unmeasured]))
    if single and floor and effect.low <= floor[1] and effect.high >= floor[0]:
        return "undecided", "within what two runs of one arm differ by, and an arm has one run"
    won = (effect.ratio > 1) == higher_is_better
    return "better" if won else "worse", "; ".join(
        filter(None, ["the interval lies outside the band", unmeasured])
    )


def p_beyond(effect: Effect, band: float) -> float:
    """One-sided p of an effect no larger than the band; never below what the sign test could reach."""
    floor = 0.5**effect.pairs
    if effect.df < 1:
        return 1.0
    edge = math.log(1 + band) if effect.ratio > 1 else -math.log(1 - band)
    beyond = abs(math.log(effect.ratio)) - edge
    if effect.log_sd == 0:
        return floor if beyond > 0 else 1.0
    return max(floor, 1 - t_cdf(beyond / effect.log_sd, effect.df))


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's adjusted p values, in the order given (family-wise error over all of them)."""
    adjusted, least = [0.0] * len(ps), 0.0
    for rank, n in enumerate(sorted(range(len(ps)), key=lambda n: ps[n])):
        least = max(least, min(1.0, (len(ps) - rank) * ps[n]))
        adjusted[n] = least
    return adjusted


# bounds and quantiles


def median_interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float, float] | None:
    """(low, high, exact coverage) of the median by order statistics: no assumption about the distribution.

    None when even lowest to highest covers less than `level` (fewer than 5 values at 90 %).
    """
    ordered, n = sorted(values), len(values)
    cut = 0
    while cut < (n - 1) // 2 and 1 - 2 * binomial_below(cut + 2, n, 0.5) >= level:
        cut += 1
    covers = 1 - 2 * binomial_below(cut + 1, n, 0.5) if n else 0.0
    return (ordered[cut], ordered[n - 1 - cut], covers) if covers >= level else None


def binomial_below(k: int, n: int, p: float) -> float:
    """P(X < k) of a binomial X."""
    if p <= 0 or p >= 1:
        return float(k > 0) if p <= 0 else float(k > n)
    of = math.lgamma(n + 1)
    terms = (
        math.exp(of - math.lgamma(i + 1) - math.lgamma(n - i + 1) + i * math.log(p) + (n - i) * math.log1p(-p))
        for i in range(min(k, n + 1))
    )
    return min(1.0, math.fsum(terms))


def lower_bound(passed: int, of: int, confidence: float = 0.95) -> float:
    """Clopper and Pearson's one-sided bound of a share: 20 of 20 proves 0.861, not 1.

    >>> round(lower_bound(20, 20), 3)
    0.861
    """
    if not 0 <= passed <= of:
        raise ValueError(f"{passed} of {of} is no share")
    if passed == 0:
        return 0.0
    return _root(lambda p: confidence - binomial_below(passed, of, p), 0.0, 1.0)


def t_cdf(t: float, df: int) -> float:
    """Student's t for whole degrees of freedom, by its finite series (Abramowitz and Stegun 26.7.3-4)."""
    angle = math.atan(t / math.sqrt(df))
    cosine = math.cos(angle)
    term, total, first = (cosine, 0.0, 1) if df % 2 else (1.0, 0.0, 0)
    for n in range(first, df - 1, 2):
        total += term
        term *= cosine * cosine * (n + 1) / (n + 2)
    inside = math.sin(angle) * total
    if df % 2:
        inside = 2 / math.pi * (angle + inside)
    return 0.5 + inside / 2


def t_quantile(p: float, df: int) -> float:
    """The t that `p` (above 0.5) of the distribution lies below."""
    high = 1.0
    while t_cdf(high, df) < p:
        high *= 2
    return _root(lambda t: t_cdf(t, df) - p, 0.0, high)


def _root(f: Callable[[float], float], low: float, high: float) -> float:
    """Where an increasing function crosses 0, by bisection; for a falling one the sides change."""
    rising = f(high) > f(low)
    for _ in range(80):
        middle = (low + high) / 2
        if (f(middle) < 0) == rising:
            low = middle
        else:
            high = middle
    return (low + high) / 2
