"""A comparison as lines of text; the command line prints them and a report may. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from anvil_tui.core.compare import Comparison, MetricRow
from anvil_tui.core.matching import FieldRow
from anvil_tui.core.plots import amount


def lines(found: Comparison) -> list[str]:
    """What was compared, what differs, and the verdicts; of a refused comparison the reasons and no difference."""
    head = f"{found.state}: {found.b} against {found.a}, varies {found.varied}"
    if found.confounded:
        head += f"; {', '.join(found.confounded)} differ, so the effect cannot be laid to one thing"
    made = [head]
    for name, ids in ((found.a, found.runs_a), (found.b, found.runs_b)):
        made.append(f"  {name} {len(ids)} run{'s' if len(ids) > 1 else ''}: {', '.join(ids)}")
    made += _fields(found.rows)
    made += [f"  warning    {text}" for text in found.warnings]
    made += [f"  not in both {text}" for text in found.alone]
    for lane in found.lanes:
        made += [f"{lane.lane} {lane.label}", *_fields(lane.rows), *map(metric_line, lane.metrics)]
    return made


def _fields(rows: Iterable[FieldRow]) -> list[str]:
    """Each row that says something; what is the same, and what nobody knows of either arm, in one line each."""
    kept = list(rows)
    same = [r.field for r in kept if r.standing == "same"]
    dark = [r.field for r in kept if r.standing == "warning" and {r.a, r.b} <= _DARK]
    told = [r for r in kept if r.standing != "same" and r.field not in dark]
    made = [f"  {'REFUSED' if r.standing == 'blocking' else r.standing:10} {_short(str(r))}" for r in told]
    made += [f"  unknown    {', '.join(dict.fromkeys(dark))}: not known to be the same"] if dark else []
    return made + ([f"  same       {', '.join(same)}"] if same else [])


_DARK = {"not known", "unknown", ""}


def _short(text: str) -> str:
    """Digests by their first digits, as they are told apart."""
    return re.sub(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}", r"\1", text)


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
