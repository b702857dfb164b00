"""How so many right out of so many asked is told: k of k is a lower bound, never 100 %."""

from __future__ import annotations

from functools import lru_cache

from anvil_tui.core.stats import lower_bound

METHOD = "Clopper-Pearson, one-sided 95 %"


@lru_cache(maxsize=256)
def proven(right: int, asked: int) -> str:
    """`20/20, ≥ 86.1 % at 95 %`; one answer alone, or none right, says nothing about a share."""
    if asked < 2 or right == 0:
        return f"{right}/{asked}"
    return f"{right}/{asked}, ≥ {100 * lower_bound(right, asked):.1f} % at 95 %"
