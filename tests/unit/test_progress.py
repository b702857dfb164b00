"""Rates, restarts and stalls from a sequence of engine readings."""

from __future__ import annotations

import pytest

from anvil_tui.core.box import Engine, HttpLight
from anvil_tui.core.progress import Trail, advance


def walk(
    samples: list[tuple[float, float | None]],
    interval_s: float,
    running: int | None = 1,
    waiting: int | None = None,
) -> list[Trail]:
    trails: list[Trail] = []
    for at_s, value in samples:
        engine = Engine("vllm", "ready", running=running, waiting=waiting, progress=value)
        trails.append(advance(trails[-1] if trails else None, at_s, engine, interval_s, "start"))
    return trails


def test_a_counter_that_goes_down_is_a_restart_and_never_a_negative_rate() -> None:
    """O-43, mostlygeek/llama-swap#355."""
    trails = walk([(0, 120000), (5, 121500), (10, 900), (15, 2400)], 5.0)
    assert [t.rate for t in trails] == [None, 300.0, None, 300.0]
    assert (trails[-1].total, trails[-1].restarts) == (3900, 1)


def test_two_samples_close_together_give_no_rate_and_keep_the_base() -> None:
    """O-103, Osmantic/ODS#5049."""
    trails = walk([(10.0, 1000), (10.02, 1004), (12.0, 1200)], 2.0)
    assert [t.rate for t in trails] == [None, None, 100.0]


def test_two_samples_of_one_moment_never_divide_by_zero() -> None:
    assert walk([(1.0, 5), (1.0, 9)], 0.0)[-1].rate is None


def test_a_missing_counter_is_a_gap() -> None:
    trails = walk([(0, 10), (2, 30), (4, None), (6, 90), (8, 110)], 2.0)
    assert [t.rate for t in trails] == [None, 10.0, None, None, 10.0]
    assert (trails[-1].total, trails[-1].restarts) == (100, 0)


def test_a_restart_that_was_silent_for_a_while_is_a_restart() -> None:
    """O-43: between the two engines nothing answers, inside one container or over a start of the container."""
    inside = walk([(0, 120000), (5, 121500), (10, None), (15, None), (20, 900), (25, 2400)], 5.0)
    assert [t.rate for t in inside] == [None, 300.0, None, None, None, 300.0]
    assert [t.restarts for t in inside] == [0, 0, 0, 0, 1, 1]
    assert inside[-1].total == 3900
    trail = walk([(0, 120000), (5, 121500)], 5.0)[-1]
    for at_s, value in ((10, None), (15, 900.0), (20, 2400.0)):
        trail = advance(trail, at_s, Engine("vllm", "ready", progress=value), 5.0, "a later start")
    assert (trail.total, trail.restarts, trail.rate) == (3900, 1, 300.0)


def test_a_restart_that_grew_past_the_old_count_within_one_start_is_not_told() -> None:
    """O-43: nothing in the counter shows it; no rate is negative, and none is drawn over the gap."""
    assert [t.rate for t in walk([(0, 100), (2, None), (4, 5000)], 2.0)] == [None, None, None]


@pytest.mark.parametrize("late", [0.0, 0.9, 1.0, 3.0])
def test_jitter_of_the_cadence_is_in_the_rate(late: float) -> None:
    """O-103: the time that passed divides, not the interval; below half an interval the base stays."""
    rate = walk([(0, 0), (late, 100 * late)], 2.0)[-1].rate
    assert rate == (None if late < 1 else 100.0)


@pytest.mark.parametrize(
    ("context", "seconds", "stalled"),
    [(90_000, 58, False), (90_000, 60, True), (600_000, 240, False), (600_000, 300, True), (None, 60, True)],
)
def test_no_progress_is_a_stall_only_after_the_longest_prefill(context: int, seconds: int, stalled: bool) -> None:
    """O-45, vllm-project/vllm#39863: a prefill of 240 s is normal where the context is long."""
    last = walk([(t, 50120) for t in range(0, seconds + 1, 2)], 2.0)[-1]
    assert last.flat_s == seconds and last.stalled(context) is stalled


def test_one_token_clears_the_suspicion() -> None:
    trails = walk([(0, 5), (30, 5), (60, 5), (75, 6)], 15.0)
    assert trails[2].stalled(None) and trails[3].flat_s == 0


@pytest.mark.parametrize("running", [0, None])
def test_an_idle_engine_does_not_stall(running: int | None) -> None:
    assert walk([(0, 5), (600, 5)], 2.0, running)[-1].flat_s == 0
    assert walk([(0, 5), (600, 5)], 2.0, running, 0)[-1].flat_s == 0


@pytest.mark.parametrize("running", [0, 2, None])
def test_requests_that_only_wait_are_work_too(running: int | None) -> None:
    """O-45: a dead engine core behind a living server may count nothing as running."""
    assert walk([(0, 5), (600, 5)], 2.0, running, 3)[-1].stalled(None)


def test_a_prompt_that_is_read_is_progress() -> None:
    """O-45, O-47: the count of prompt tokens moves while no token is generated yet."""
    trail = None
    for at_s, prompt in ((0, 100000.0), (40, 140000.0), (80, 190000.0), (140, 190000.0)):
        trail = advance(trail, at_s, Engine("vllm", "ready", running=1, progress=7.0, prompt=prompt), 15.0)
        assert trail.flat_s == (60 if at_s == 140 else 0)


@pytest.mark.parametrize(
    ("answers", "misses"),
    [
        (["error", "error", "ready"], 0),
        (["error", "error", "error"], 3),
        (["starting", "error", "refused"], 3),
        (["ready", "error", "error"], 2),
    ],
)
@pytest.mark.parametrize("moving", [False, True])
def test_health_is_missed_only_while_the_counters_stand_still(
    answers: list[HttpLight], misses: int, moving: bool
) -> None:
    """O-47, sgl-project/sglang#22511: an engine that generates is not unhealthy, however late /health answers."""
    trail = advance(None, 0, Engine("vllm", "ready", running=1, progress=5.0), 2.0, "a")
    for n, http in enumerate(answers, 1):
        progress = None if http == "refused" else 5.0 + n * moving
        trail = advance(trail, n * 20, Engine("vllm", http, running=1, progress=progress), 2.0, "a")
    assert trail.misses == (answers[-1] == "refused" if moving else misses)


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
