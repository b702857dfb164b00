"""A comparison as lines of text; the command line prints them and a report may. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from anvil_tui.core.compare import Comparison, LanePair, MetricRow
from anvil_tui.core.matching import FieldRow
from anvil_tui.core.plots import amount


def lines(found: Comparison) -> list[str]:
    """What was compared, what differs, and the verdicts; of a refused comparison the reasons and no difference."""
    under_test = found.varies or "nothing (A/A)"
    head = f"{found.state}: {found.b} against {found.a}, varies {under_test}"
    if found.confounded:
        head += f"; {', '.join(found.confounded)} differ too, so the difference cannot be laid to {found.varies}"
    made = [head, *(f"  {name} {len(ids)} run{'s' if len(ids) > 1 else ''}: {', '.join(ids)}" for name, ids in (
        (found.a, found.runs_a), (found.b, found.runs_b)
    ))]  # fmt: skip
    made += _fields(found.rows)
    made += [f"  warning    {text}" for text in found.warnings]
    made += [f"  not in both {text}" for text in found.alone]
    for lane in found.lanes:
        made += _lane(lane)
    return made


def _fields(rows: Iterable[FieldRow]) -> list[str]:
    kept = list(rows)
    same = [r.field for r in kept if r.standing == "same"]
    told = [f"  {_word(r)} {r}" for r in kept if r.standing != "same"]
    return [*told, *([f"  same       {', '.join(same)}"] if same else [])]


def _word(row: FieldRow) -> str:
    return f"{'REFUSED' if row.standing == 'blocking' else row.standing:10}"


def _lane(lane: LanePair) -> list[str]:
    return [
        f"{lane.lane} {lane.label}",
        *(f"  {_word(r)} {r}" for r in lane.rows),
        *map(metric_line, lane.metrics),
    ]


def metric_line(m: MetricRow) -> str:
    """One metric: levels, difference with its interval and n, band, noise floor, verdict and why."""
    interval = "no interval"
    if m.low_pct is not None and m.high_pct is not None:
        interval = f"[{m.low_pct:+.1f}, {m.high_pct:+.1f}]"
    floor = "A/A not measured" if m.floor_pct is None else f"A/A within {m.floor_pct:.1f} %"
    name = f"{m.metric}{'' if m.primary else ' (exploratory)'}"
    return (
        f"  {m.verdict:10} {name}: {amount(m.a)} to {amount(m.b)} {m.unit}, {m.delta_pct:+.1f} % {interval}, "
        f"n {m.pairs}, runs {m.runs_a}+{m.runs_b}, band {m.band_pct:g} %, {floor}: {m.reason}"
    )
