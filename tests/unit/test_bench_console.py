"""The arithmetic of `make bench-console`; what it measures is not asserted anywhere."""

from __future__ import annotations

import math

import pytest

from benchmarks.console.figures import last_line, percentile, ratio, spread


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(n) for n in range(1, 201)]
    assert percentile(values, 0.5) == 100
    assert percentile(values, 0.99) == 198
    assert percentile(list(reversed(values)), 1.0) == 200
    assert percentile([7.0], 0.01) == 7


def test_no_value_has_no_percentile() -> None:
    with pytest.raises(ValueError, match="no value"):
        percentile([], 0.99)


def test_a_ratio_is_of_medians_and_says_when_there_is_none() -> None:
    assert ratio([1.0, 2.0, 90.0], [4.0, 5.0, 3.0]) == 0.5
    assert math.isnan(ratio([1.0], []))
    assert math.isnan(ratio([], [1.0]))
    assert math.isnan(ratio([1.0], [0.0]))


def test_a_spread_names_least_and_most() -> None:
    assert spread([3.0, 1.0, 2.0]) == "2.0 (1.0-3.0)"
    assert spread([3.14159], 2) == "3.14"
    assert spread([]) == "-"


def test_the_last_line() -> None:
    said = last_line(8, 0.987, 1.004, 48.6, 149.4)
    assert said == "console: gpus=8 cpu_ratio=0.99 bytes_ratio=1.00 key_p99_ms=49 status_ms=149"
