"""Rates, restarts and stalls from a sequence of engine readings."""

from __future__ import annotations

import pytest

from anvil_tui.core.box import Engine
from anvil_tui.core.progress import Trail, advance


def walk(samples: list[tuple[float, float | None]], interval_s: float, running: int | None = 1) -> list[Trail]:
    trails: list[Trail] = []
    for at_s, value in samples:
        engine = Engine("vllm", "ready", running=running, progress=value)
        trails.append(advance(trails[-1] if trails else None, at_s, engine, interval_s, "start"))
    return trails


def test_a_counter_that_goes_down_is_a_restart_and_never_a_negative_rate() -> None:
    """mostlygeek/llama-swap#355."""
    trails = walk([(0, 120000), (5, 121500), (10, 900), (15, 2400)], 5.0)
    assert [t.rate for t in trails] == [None, 300.0, None, 300.0]
    assert (trails[-1].total, trails[-1].restarts) == (3900, 1)


def test_two_samples_close_together_give_no_rate_and_keep_the_base() -> None:
    """Osmantic/ODS#5049."""
    trails = walk([(10.0, 1000), (10.02, 1004), (12.0, 1200)], 2.0)
    assert [t.rate for t in trails] == [None, None, 100.0]


def test_two_samples_of_one_moment_never_divide_by_zero() -> None:
    assert walk([(1.0, 5), (1.0, 9)], 0.0)[-1].rate is None


def test_a_missing_counter_is_a_gap() -> None:
    trails = walk([(0, 10), (2, 30), (4, None), (6, 90), (8, 110)], 2.0)
    assert [t.rate for t in trails] == [None, 10.0, None, None, 10.0]


@pytest.mark.parametrize(
    ("context", "seconds", "stalled"),
    [(90_000, 58, False), (90_000, 60, True), (600_000, 240, False), (600_000, 300, True), (None, 60, True)],
)
def test_no_progress_is_a_stall_only_after_the_longest_prefill(context: int, seconds: int, stalled: bool) -> None:
    """vllm-project/vllm#39863."""
    last = walk([(t, 50120) for t in range(0, seconds + 1, 2)], 2.0)[-1]
    assert last.flat_s == seconds and last.stalled(context) is stalled


def test_one_token_clears_the_suspicion() -> None:
    trails = walk([(0, 5), (30, 5), (60, 5), (75, 6)], 15.0)
    assert trails[2].stalled(None) and trails[3].flat_s == 0


@pytest.mark.parametrize("running", [0, None])
def test_an_idle_engine_does_not_stall(running: int | None) -> None:
    assert walk([(0, 5), (600, 5)], 2.0, running)[-1].flat_s == 0


def test_two_readings_less_than_two_seconds_apart_raise_no_suspicion() -> None:
    assert walk([(0, 5), (1.9, 5)], 2.0)[-1].flat_s == 0


def test_misses_count_in_a_row_and_a_new_start_forgets() -> None:
    trail = advance(None, 0, Engine("vllm", "ready"), 2.0, "a")
    for at_s in (2, 4):
        trail = advance(trail, at_s, Engine("vllm", "error"), 2.0, "a")
    assert (trail.misses, trail.was_ready) == (2, True)
    assert advance(trail, 6, Engine("vllm", "ready"), 2.0, "a").misses == 0
    fresh = advance(trail, 6, Engine("vllm", "refused"), 2.0, "b")
    assert (fresh.misses, fresh.was_ready, fresh.restarts) == (1, False, 1)
