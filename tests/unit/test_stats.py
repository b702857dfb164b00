"""Statistics against tables and hand calculations, and the coverage of the interval by simulation."""

from __future__ import annotations

import math
import random

import pytest

from anvil_tui.core.stats import (
    Effect,
    holm,
    judge,
    lower_bound,
    median_interval,
    noise_floor,
    p_beyond,
    paired_effect,
    t_cdf,
    t_quantile,
)


@pytest.mark.parametrize(
    ("passed", "of", "bound"),
    [
        (20, 20, 0.05 ** (1 / 20)),  # k = n: p^n = 0.05
        (60, 60, 0.05 ** (1 / 60)),
        (1, 20, 1 - 0.95 ** (1 / 20)),  # k = 1: (1 - p)^n = 0.95
        (19, 20, 0.783894),  # Clopper and Pearson's table, one-sided 95 %
        (0, 5, 0.0),
    ],
)
def test_k_of_n_is_a_lower_bound(passed: int, of: int, bound: float) -> None:
    assert lower_bound(passed, of) == pytest.approx(bound, abs=1e-6)


def test_more_than_all_is_no_share() -> None:
    with pytest.raises(ValueError, match="21 of 20"):
        lower_bound(21, 20)


@pytest.mark.parametrize(
    ("n", "interval"),
    [
        (4, None),  # 1 - 2/16 = 87.5 %
        (5, (1, 5, 1 - 2 / 32)),
        (8, (2, 7, 1 - 2 * (1 + 8) / 256)),
        (11, (3, 9, 1 - 2 * (1 + 11 + 55) / 2048)),
        (0, None),
    ],
)
def test_a_median_has_an_exact_interval_or_none(n: int, interval: tuple[float, float, float] | None) -> None:
    found = median_interval(list(range(n, 0, -1)))
    assert found == (None if interval is None else pytest.approx(interval))


@pytest.mark.parametrize(
    ("p", "df", "t"), [(0.95, 1, 6.3138), (0.95, 2, 2.9200), (0.95, 4, 2.1318), (0.975, 9, 2.2622)]
)
def test_student_t_as_in_the_tables(p: float, df: int, t: float) -> None:
    assert t_quantile(p, df) == pytest.approx(t, abs=5e-5)
    assert t_cdf(t, df) == pytest.approx(p, abs=1e-5)
    assert t_cdf(-t, df) == pytest.approx(1 - p, abs=1e-5)


def test_holm_as_computed_by_hand() -> None:
    """Sorted .005 .01 .03 .04 times 4 3 2 1 is .02 .03 .06 .04, and never falls."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


def run(*values: float) -> dict[str, float]:
    return {f"item {n}": v for n, v in enumerate(values)}


def test_the_effect_is_the_median_of_paired_ratios() -> None:
    """Ratios 1.1, 1.2, 2.0, 1.3, 1.0: their median is 1.2, whatever the levels of the items are."""
    a, b = run(10, 100, 1000, 50, 7), run(11, 120, 2000, 65, 7)
    effect = paired_effect([a], [b])
    assert effect is not None
    assert effect.ratio == pytest.approx(1.2)
    assert (effect.low, effect.high) == pytest.approx((1.0, 2.0)), "n = 5: lowest to highest, 93.75 %"
    assert (effect.pairs, effect.runs_a, effect.runs_b) == (5, 1, 1)


def test_only_items_that_both_arms_hold_are_paired() -> None:
    effect = paired_effect([run(1, 1, 1, 1, 1)], [{"item 0": 2.0, "item 4": 2.0, "other": 9.0}])
    assert effect is not None
    assert effect.ratio == pytest.approx(2.0)
    assert effect.pairs == 2
    assert paired_effect([run(1.0)], [{"other": 1.0}]) is None


def test_an_item_of_several_runs_is_their_geometric_mean() -> None:
    effect = paired_effect([run(4), run(9)], [run(12), run(12)])
    assert effect is not None
    assert effect.ratio == pytest.approx(2.0), "sqrt(4 * 9) = 6"


def test_the_same_values_give_the_same_interval() -> None:
    draw = random.Random(5)
    a, b = ([run(*(draw.gauss(50, 2) for _ in range(8))) for _ in range(3)] for _ in "ab")
    assert paired_effect(a, b) == paired_effect(a, b)


def test_runs_that_share_no_item_pairwise_do_not_stop_the_bootstrap() -> None:
    effect = paired_effect([{"x": 1.0}, {"y": 1.0}], [{"x": 2.0}, {"y": 2.0}])
    assert effect is not None
    assert effect.ratio == pytest.approx(2.0)


def covered(runs: int, between: float, trials: int) -> float:
    """Share of simulated A/A comparisons (6 items, within-run sd 3 %) whose interval holds the true ratio 1."""
    draw, held = random.Random(runs), 0

    def arm(levels: list[float]) -> list[dict[str, float]]:
        shifts = [draw.gauss(0, between) for _ in range(runs)]
        return [run(*(math.exp(v + s + draw.gauss(0, 0.03)) for v in levels)) for s in shifts]

    for _ in range(trials):
        levels = [draw.gauss(4, 0.1) for _ in range(6)]
        effect = paired_effect(arm(levels), arm(levels), resamples=200)
        held += effect is not None and effect.low <= 1 <= effect.high
    return held / trials


def test_the_interval_covers_what_it_says_although_runs_differ() -> None:
    """90 % is promised; 150 trials at a true 90 % fall below 84 % once in 100 times."""
    assert covered(runs=3, between=0.05, trials=150) >= 0.84
    assert covered(runs=4, between=0.02, trials=150) >= 0.84


def test_one_run_an_arm_does_not_cover_what_runs_differ_by() -> None:
    """Why one run an arm is never called equivalent: within-run intervals know nothing of other runs."""
    assert covered(runs=1, between=0.05, trials=150) < 0.75


def test_the_noise_floor_is_the_widest_difference_of_two_runs_of_one_arm() -> None:
    """Medians 64.51 and 70.50 of two runs of one configuration are 9.3 % apart."""
    assert noise_floor([[run(64.51), run(70.50)], [run(50.0)]]) == pytest.approx((0.9150, 1.0929), abs=5e-5)
    assert noise_floor([[run(64.51)], [run(70.50)]]) is None
    assert noise_floor([[], [{"x": 1.0}, {"y": 1.0}]]) is None


def effect(low: float, high: float, runs: int = 3, pairs: int = 15) -> Effect:
    return Effect(math.sqrt(low * high), low, high, pairs, runs, runs, 0.01, 4)


@pytest.mark.parametrize(
    ("given", "band", "verdict"),
    [
        (effect(1.031, 1.2), 0.03, "better"),
        (effect(1.031, 1.2), 0.05, "undecided"),
        (effect(0.8, 0.969), 0.03, "worse"),
        (effect(0.98, 1.02), 0.03, "equivalent"),
        (effect(0.97, 1.03), 0.03, "equivalent"),
        (effect(0.97, 1.031), 0.03, "undecided"),
        (effect(1.01, 1.04), 0.03, "undecided"),
        (effect(1.01, 1.04), 0.05, "equivalent"),
        (effect(0.9, 1.1), 0.03, "undecided"),
        (effect(0.98, 1.02, runs=2), 0.03, "undecided"),
        (effect(0.999, 1.001, runs=1), 0.03, "undecided"),
        (effect(1.5, 1.6, runs=1), 0.03, "better"),
        (effect(1.5, 1.6, runs=2, pairs=4), 0.03, "undecided"),
        (effect(1.5, 1.6, runs=3, pairs=3), 0.03, "better"),
    ],
)
def test_verdicts_come_from_the_interval_and_the_band(given: Effect, band: float, verdict: str) -> None:
    assert judge(given, band=band, higher_is_better=True, floor=None)[0] == verdict
    turned = {"better": "worse", "worse": "better"}.get(verdict, verdict)
    assert judge(given, band=band, higher_is_better=False, floor=None)[0] == turned


def test_one_run_an_arm_says_so_and_never_beats_a_known_noise_floor() -> None:
    given = effect(1.05, 1.08, runs=1)
    assert judge(given, band=0.03, higher_is_better=True, floor=None) == (
        "better", "the interval lies outside the band; between-run variance not measured",
    )  # fmt: skip
    floor = (1 / 1.093, 1.093)
    assert judge(given, band=0.03, higher_is_better=True, floor=floor)[0] == "undecided"
    assert judge(effect(1.10, 1.2, runs=1), band=0.03, higher_is_better=True, floor=floor)[0] == "better"


def test_a_change_of_2_8_percent_without_an_interval_decides_nothing() -> None:
    """The accepted long prefill of -2.8 % "inside the 3 % band", from one value an arm."""
    given = paired_effect([run(100.0)], [run(97.2)])
    assert given is not None
    assert judge(given, band=0.03, higher_is_better=True, floor=None) == (
        "undecided", "1 pair: a 90 % interval needs 5, or 3 runs an arm",
    )  # fmt: skip


def test_p_beyond_the_band() -> None:
    """ln 1.10 - ln 1.03 = 0.065720 over 0.03 is t = 2.19067; with 4 degrees of freedom one-sided 0.04676."""
    assert p_beyond(Effect(1.10, 1, 1.2, 15, 3, 3, 0.03, 4), 0.03) == pytest.approx(0.04676, abs=1e-5)
    assert p_beyond(Effect(1.01, 1, 1.02, 15, 3, 3, 0.01, 4), 0.03) > 0.5
    assert p_beyond(Effect(2.0, 2, 2, 5, 1, 1, 0.0, 4), 0.03) == 1 / 32, "five pairs reach no less"
    assert p_beyond(Effect(2.0, 2, 2, 1, 1, 1, math.inf, 0), 0.03) == 1.0
