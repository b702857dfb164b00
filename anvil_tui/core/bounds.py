"""What so many right out of so many asked proves about the share: k of k is a lower bound, never 100 %."""

from __future__ import annotations

import math

CONFIDENCE = 0.95
METHOD = "Clopper-Pearson, one-sided 95 %"
_STEPS = 60


def lower_bound(right: int, asked: int, confidence: float = CONFIDENCE) -> float:
    """The one-sided Clopper-Pearson lower bound of a share, 0 to 1. ValueError unless 0 <= right <= asked > 0.

    >>> round(lower_bound(20, 20), 3)
    0.861
    """
    if not 0 <= right <= asked or asked == 0:
        raise ValueError(f"{right} of {asked} is no share")
    if right == 0:
        return 0.0
    low, high = 0.0, right / asked
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if _at_least(right, asked, middle) > 1 - confidence:
            high = middle
        else:
            low = middle
    return low


def _at_least(right: int, asked: int, share: float) -> float:
    """The chance of `right` or more out of `asked` when each has this share."""
    if share <= 0.0:
        return 0.0
    yes, no = math.log(share), math.log1p(-share) if share < 1.0 else -math.inf
    return math.fsum(
        math.exp(_log_ways(asked, k) + k * yes + ((asked - k) * no if k < asked else 0.0))
        for k in range(right, asked + 1)
    )


def _log_ways(asked: int, k: int) -> float:
    return math.lgamma(asked + 1) - math.lgamma(k + 1) - math.lgamma(asked - k + 1)


def proven(right: int, asked: int) -> str:
    """`20/20, ≥ 86.1 % at 95 %`; with one asked nothing is said about a share."""
    if asked < 2 or right == 0:
        return f"{right}/{asked}"
    return f"{right}/{asked}, ≥ {100 * lower_bound(right, asked):.1f} % at 95 %"
