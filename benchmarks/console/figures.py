"""Medians, percentiles and ratios of what was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest rank: the smallest value that at least this share of them does not exceed.

    >>> percentile([4, 1, 3, 2], 0.5), percentile([4, 1, 3, 2], 0.99)
    (2, 4)
    """
    if not values:
        raise ValueError("no value, so no percentile")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def spread(values: Sequence[float], digits: int = 1) -> str:
    """`median (least-most)`; of one value only itself, of none a dash."""
    if not values:
        return "-"
    middle = f"{median(values):.{digits}f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Median over median: one odd window moves neither. nan where one has no value."""
    if not ours or not theirs or median(theirs) == 0:
        return math.nan
    return median(ours) / median(theirs)


def last_line(gpus: int, cpu: float, sent: float, key_p99_ms: float, status_ms: float) -> str:
    return (
        f"console: gpus={gpus} cpu_ratio={cpu:.2f} bytes_ratio={sent:.2f} "
        f"key_p99_ms={key_p99_ms:.0f} status_ms={status_ms:.0f}"
    )
