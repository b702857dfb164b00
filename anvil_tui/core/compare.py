"""Two arms of measured runs: matched or refused, then per lane and metric the difference and a verdict. Pure.

`a` is what is compared with, `b` what is judged. Nothing is pooled, no run is chosen, and without an interval
there is no verdict but `undecided`. The primary metric is judged by itself; of the others, which are looked at
all at once, a `better` or `worse` must hold after Holm's correction over all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Literal

from anvil_tui.core.bundle import Bundle
from anvil_tui.core.gates import GateResult, Observation
from anvil_tui.core.lanes import LaneRow, Spread
from anvil_tui.core.matching import (
    OUTPUT,
    OUTPUT_LENGTH,
    Arm,
    FieldRow,
    LaneRun,
    group_of,
    identity_rows,
    lane_rows,
    measuring_rows,
    order_warnings,
)
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.stats import Verdict, holm, judge, noise_floor, p_beyond, paired_effect

ALPHA = 0.05
"""One-sided, which is what a 90 % interval outside the band means."""

_WHOLE = "lane"
"""The one item of a figure that a lane has once."""


@dataclass(frozen=True, slots=True)
class Metric:
    """`of` reads one request (None = the lane has one figure only), `row` the lane's median or its one figure."""

    name: str
    unit: str
    higher_is_better: bool
    of: Callable[[Observation], float | None] | None
    row: Callable[[LaneRow], float | None]


def _p50(spread: Spread | None) -> float | None:
    return spread.p50 if spread else None


def _seeds_rate(seen: Observation) -> float | None:
    rate = seen.raw.get("decode_seeds_tok_s")
    return rate if isinstance(rate, float) else None


METRICS = (
    Metric("decode", "tok/s", True, lambda o: o.decode_tok_s, lambda r: _p50(r.decode_tok_s)),
    Metric("decode-seeds", "tok/s", True, _seeds_rate, lambda r: _p50(r.decode_seeds_tok_s)),
    Metric("ttft", "s", False, lambda o: o.ttft_any_s, lambda r: _p50(r.ttft_any_s)),
    Metric("ttft-visible", "s", False, lambda o: o.ttft_visible_s, lambda r: _p50(r.ttft_visible_s)),
    Metric("e2e", "s", False, lambda o: o.e2e_s, lambda r: _p50(r.e2e_s)),
    Metric("aggregate", "tok/s", True, None, lambda r: r.aggregate_tok_s),
)
NAMES = tuple(m.name for m in METRICS)
_STANDS_IN = {"decode": "decode-seeds"}
"""Records give (N-1)/T alone; it is compared where both arms have nothing better."""

_OF_OUTPUT = frozenset({"e2e", "aggregate"})
"""Metrics that only mean something when both arms wrote as much."""


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric of one lane. `a`, `b` are medians over requests and runs; deltas are B over A in per cent.

    `low_pct`, `high_pct` are the 90 % interval, None = there is none; `pairs` is n;
    `p` that the effect is no larger than the band. `floor_pct` is by how much
    two runs of one arm differ at most, None = no arm has two runs: between-run variance not measured.
    """

    metric: str
    unit: str
    higher_is_better: bool
    primary: bool
    a: float
    b: float
    delta_pct: float
    low_pct: float | None
    high_pct: float | None
    pairs: int
    runs_a: int
    runs_b: int
    band_pct: float
    floor_pct: float | None
    verdict: Verdict
    reason: str
    p: float = 1.0


@dataclass(frozen=True, slots=True)
class LanePair:
    """One lane in both arms. With a blocking row there is no metric: the difference would mean nothing."""

    lane: str
    label: str
    rows: tuple[FieldRow, ...]
    metrics: tuple[MetricRow, ...]

    @property
    def refusals(self) -> tuple[FieldRow, ...]:
        return tuple(r for r in self.rows if r.standing == "blocking")


@dataclass(frozen=True, slots=True)
class Comparison:
    """`varies` names the variable under test, "" = nothing differs (A/A); several joined by `+` are confounded.
    `alone` names lanes of one arm only; `runs_a`, `runs_b` are the ids of the bundles.
    """

    a: str
    b: str
    runs_a: tuple[str, ...]
    runs_b: tuple[str, ...]
    metric: str
    band_pct: float
    varies: str
    rows: tuple[FieldRow, ...]
    warnings: tuple[str, ...]
    lanes: tuple[LanePair, ...]
    alone: tuple[str, ...]

    @property
    def refusals(self) -> tuple[FieldRow, ...]:
        """Why there is no difference to show; empty = at least one lane is compared."""
        whole = tuple(r for r in self.rows if r.standing == "blocking")
        every = self.lanes and all(lane.refusals for lane in self.lanes)
        return whole or (tuple(r for lane in self.lanes for r in lane.refusals) if every else ())

    @property
    def confounded(self) -> tuple[str, ...]:
        """What differs besides the variable under test, or beside each other: the effect cannot be laid to one."""
        return tuple(r.field for r in self.rows if r.standing == "confounds")

    @property
    def varied(self) -> str:
        """`varies` in words; what somebody does not know is not the same."""
        known = all(r.standing == "same" for r in self.rows)
        return self.varies or ("nothing (A/A)" if known else "nothing that is known")

    @property
    def state(self) -> Literal["matched", "confounded", "refused"]:
        return "refused" if self.refusals else "confounded" if self.confounded else "matched"

    @property
    def primary(self) -> tuple[tuple[LanePair, MetricRow], ...]:
        return tuple((lane, m) for lane in self.lanes for m in lane.metrics if m.primary)


def compare(
    a: Arm, b: Arm, *, metric: str = "decode", band_pct: float = 3.0, varies: str = "",
    recipes: Mapping[str, Recipe] | None = None,
) -> Comparison:  # fmt: skip
    """The comparison of B with A. `recipes` by digest say how the serves' arguments differ, where known.

    `varies` is one of `matching.VARIABLES`, "" = the one that differs. Never raises for what the bundles hold.
    """
    rows = (*identity_rows(a, b, varies, recipes or {}), *measuring_rows(a, b))
    pairs, alone = _paired(a, b)
    if not pairs:
        texts = (", ".join(_keys(a)) or "none", ", ".join(_keys(b)) or "none")
        rows = (*rows, FieldRow("lanes", *texts, "blocking", "no lane in common"))
    refused = any(r.standing == "blocking" for r in rows)
    lenient = a.historical or b.historical
    lanes = [_lane_pair(mine, theirs, metric, band_pct / 100, lenient, refused) for mine, theirs in pairs]
    differ = dict.fromkeys(group_of(r.field) for r in rows if r.standing in ("named", "confounds"))
    return Comparison(
        a.name, b.name, _ids(a), _ids(b), metric, band_pct,
        varies or " + ".join(differ), rows, order_warnings(a, b), tuple(_corrected(lanes)),
        alone,
    )  # fmt: skip


def rows_compared(found: Sequence[Comparison], arms: Sequence[Arm]) -> dict[str, tuple[LaneRow, ...]]:
    """The rows of every run by arm, `found[n]` being of `arms[n + 1]` with the first; without what is refused."""
    good = [{(lane.lane, lane.label) for lane in f.lanes if lane.metrics} for f in found]
    kept = [set().union(*good), *good]
    return {
        arm.name: tuple(
            made.row
            for run in arm.runs
            for made in lane_runs(run).values()
            if (made.row.lane, _label(made.row)) in lanes
        )
        for arm, lanes in zip(arms, kept, strict=True)
    }


def _ids(arm: Arm) -> tuple[str, ...]:
    return tuple(run.id for run in arm.runs)


# pairing


def lane_runs(bundle: Bundle) -> dict[str, LaneRun]:
    """The rows of one run by lane and label, each with the requests behind it."""
    gates = {g.get("id"): g for g in bundle.suite.get("gates", ())}
    return {
        f"{row.lane} {_label(row)}": _lane_run(row, result, gates.get(result.gate, {}), bundle.identity.thinking)
        for result in bundle.results
        for row in result.rows
    }


def _lane_run(row: LaneRow, result: GateResult, gate: Mapping[str, Any], thinking: str | None) -> LaneRun:
    mine = [o for o in result.observations if o.raw.get("row") == row.label]
    facts = next((o.raw for o in mine if o.raw.get("purpose") == "row"), {})
    requests = {str(o.raw["prompt"]): o for o in mine if o.raw.get("purpose") == "request" and o.ok}
    return LaneRun(row, requests, facts, gate, gate.get("thinking") or thinking)


def _label(row: LaneRow) -> str:
    return row.label or f"C{row.streams} {row.nominal_tokens or 'any'}"


def _keys(arm: Arm) -> list[str]:
    """Lanes that every run of the arm has."""
    found = [list(lane_runs(run)) for run in arm.runs]
    return [key for key in found[0] if all(key in keys for keys in found)]


Runs = list[LaneRun]


def _paired(a: Arm, b: Arm) -> tuple[list[tuple[Runs, Runs]], tuple[str, ...]]:
    """Lanes of both arms; what is left of one gate in both is paired as well, to say in what it differs."""
    mine, theirs = _keys(a), _keys(b)
    keys = [(key, key) for key in mine if key in theirs]
    left, right = [k for k in mine if k not in theirs], [k for k in theirs if k not in mine]
    for key in list(left):
        other = next((k for k in right if k.split(" ")[0] == key.split(" ")[0]), None)
        if other:
            keys.append((key, other))
            left.remove(key)
            right.remove(other)
    of_a, of_b = [lane_runs(run) for run in a.runs], [lane_runs(run) for run in b.runs]
    pairs = [([r[k] for r in of_a], [r[other] for r in of_b]) for k, other in keys]
    some = [text for arm in (a, b) for text in _of_some_runs(arm)]
    return pairs, tuple([f"{a.name}: {k}" for k in left] + [f"{b.name}: {k}" for k in right] + some)


def _of_some_runs(arm: Arm) -> Iterable[str]:
    """Lanes that a run of the arm lacks: they are not compared, as no run is chosen."""
    found = [key for run in arm.runs for key in lane_runs(run)]
    for key in dict.fromkeys(found):
        if (n := found.count(key)) < len(arm.runs):
            yield f"{arm.name}: {key} (in {n} of {len(arm.runs)} runs)"


def _lane_pair(a: Runs, b: Runs, metric: str, band: float, lenient: bool, refused: bool) -> LanePair:
    rows = lane_rows(a, b, lenient)
    lane, label = a[0].row.lane, _label(a[0].row)
    if refused or any(r.standing == "blocking" for r in rows):
        return LanePair(lane, label, rows, ())
    apart = any(r.field in (OUTPUT, OUTPUT_LENGTH) for r in rows)
    chosen = [m for m in METRICS if not (apart and m.name in _OF_OUTPUT)]
    chosen = [m for m in chosen if m.name == metric or not _same_as_any(m, a, b)]
    made = {m.name: row for m in chosen if (row := _metric(m, a, b, band, primary=m.name == metric))}
    for name, instead in _STANDS_IN.items():
        if name in made and metric != instead:
            made.pop(instead, None)
        elif name not in made and instead in made:
            made[instead] = replace(made[instead], primary=metric in (name, instead))
    return LanePair(lane, label, rows, tuple(made.values()))


def _same_as_any(metric: Metric, a: Runs, b: Runs) -> bool:
    """Nobody thinks: the first visible token is the first of all, and one test of it is enough."""
    seen = [o for run in (*a, *b) for o in run.requests.values()]
    return metric.name == "ttft-visible" and all(o.ttft_visible_s in (o.ttft_any_s, None) for o in seen)


# metrics


def _metric(metric: Metric, a: Runs, b: Runs, band: float, *, primary: bool) -> MetricRow | None:
    whole = metric.of is not None and not all(run.requests for run in (*a, *b))
    mine, theirs = ([_values(metric, run, whole) for run in runs] for runs in (a, b))
    effect = paired_effect(mine, theirs)
    if effect is None:
        return None
    floor = noise_floor([mine, theirs])
    verdict, reason = judge(effect, band=band, higher_is_better=metric.higher_is_better, floor=floor)
    made = MetricRow(
        metric.name, metric.unit, metric.higher_is_better, primary, _level(mine), _level(theirs),
        _pct(effect.ratio), _pct(effect.low), _pct(effect.high), effect.pairs, effect.runs_a, effect.runs_b,
        band * 100, None if floor is None else _pct(floor[1]), verdict, reason, p_beyond(effect, band),
    )  # fmt: skip
    if whole:
        why = "single requests are not kept: a difference without an interval"
        return replace(made, low_pct=None, high_pct=None, pairs=0, verdict="undecided", reason=why, p=1.0)
    return made if effect.df else replace(made, low_pct=None, high_pct=None)


def _values(metric: Metric, run: LaneRun, whole: bool) -> dict[str, float]:
    """By prompt item; the lane's own figure where it is one, or (`whole`) where a run kept no single requests."""
    of = metric.of
    if of is None or whole:
        value = metric.row(run.row)
        return {_WHOLE: value} if value else {}
    return {item: value for item, seen in run.requests.items() if (value := of(seen))}


def _level(runs: Sequence[Mapping[str, float]]) -> float:
    return median(value for run in runs for value in run.values())


def _pct(ratio: float) -> float:
    return (ratio - 1) * 100


def _corrected(lanes: Sequence[LanePair]) -> Iterable[LanePair]:
    """Exploratory metrics that only seem to differ because so many were looked at become undecided."""
    claims = [m for lane in lanes for m in lane.metrics if not m.primary]
    adjusted = iter(holm([m.p for m in claims]))
    for lane in lanes:
        made = []
        for m in lane.metrics:
            p = 0.0 if m.primary else next(adjusted)
            if p > ALPHA and m.verdict in ("better", "worse"):
                m = replace(m, verdict="undecided", reason=f"one of {len(claims)} exploratory metrics: p {p:.2f}")
            made.append(m)
        yield replace(lane, metrics=tuple(made))
