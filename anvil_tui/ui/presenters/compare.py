"""The compare screen: bundles to choose from, and arm B against arm A with everything that a verdict rests on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anvil_tui.core.compare import Comparison, LanePair, MetricRow
from anvil_tui.core.holding import Past, moment
from anvil_tui.core.lanes import LaneRow
from anvil_tui.core.matching import FieldRow, Standing
from anvil_tui.core.plots import amount, over_streams
from anvil_tui.core.shelf import Compared
from anvil_tui.core.world import World
from anvil_tui.ui import glyphs
from anvil_tui.ui.keymap import key
from anvil_tui.ui.presenters import charts
from anvil_tui.ui.presenters.cells import (
    BLANK,
    Cell,
    Panel,
    Row,
    Tone,
    View,
    facts,
    heading,
    item,
    joined,
    left,
    right,
    sentence,
    spread,
    titled,
    width_of,
)  # fmt: skip
from anvil_tui.ui.presenters.evidence import PASSED, verdict
from anvil_tui.ui.presenters.freshness import empty
from anvil_tui.ui.text import NA, literal

_STATES: dict[str, tuple[str, Tone]] = {
    "matched": (glyphs.DONE, "good"), "confounded": (glyphs.WARN, "warn"), "refused": (glyphs.BAD, "bad"),
}  # fmt: skip
_STANDINGS: dict[Standing, tuple[str, Tone]] = {
    "blocking": ("REFUSED", "bad"), "confounds": ("confounds", "warn"), "warning": ("warning", "warn"),
    "named": ("varies", "accent"), "same": ("same", "dim"),
}  # fmt: skip
_VERDICTS: dict[str, tuple[str, Tone]] = {
    "better": (glyphs.UP, "good"), "worse": (glyphs.DOWN, "bad"), "equivalent": (glyphs.OK, "text"),
    "undecided": (glyphs.ASK, "warn"),
}  # fmt: skip
_WIDE = 100


# the list


def shown(world: World, view: View) -> list[Past]:
    """Newest first."""
    wanted = view.filter_of("bundles").lower()
    found = [p for p in world.pasts if wanted in _haystack(p)]
    return sorted(found, key=lambda p: (moment(p.at), p.id), reverse=True)


def _haystack(p: Past) -> str:
    return f"{p.id} {p.identity.recipe} {p.identity.suite} {p.kind} {PASSED[p.passed]}".lower()


def list_panel(world: World, view: View, width: int, height: int) -> Panel:
    """Every bundle; one that cannot be read says why instead, and no filter hides it."""
    rows: list[Row] = []
    for past in shown(world, view):
        rows += _line(past, view.shelf.arms.get(past.id, ""), width)
    for name, why in world.broken_bundles.items():
        rows.append(spread([Cell(f"{glyphs.BAD}   ", "bad"), Cell(literal(name, 60), "text"),
                            Cell(f"  {literal(why, 300)}", "bad")], [], width, name))  # fmt: skip
    if not rows:
        told = (
            "No bundle matches."
            if view.filter_of("bundles")
            else empty(world, f"No bundle yet: {key('serve.qualify')} qualifies a serve.")
        )
        rows = sentence(told, width, "dim")
    broken = len(world.broken_bundles)
    title = titled(
        "Bundles", view.filter_of("bundles"), len(shown(world, view)) + broken, len(world.pasts) + broken
    )
    return Panel(title, tuple(rows), Cell(f"{key('view.arm')}: arm A, B, none", "dim"))


def _line(past: Past, arm: str, width: int) -> list[Row]:
    day = past.at[:16].replace("T", " ") if "T" in past.at else past.at or NA
    word = PASSED[past.passed]
    tone: Tone = "good" if past.passed else "bad" if past.passed is False else "dim"
    who = literal(past.identity.recipe or NA)
    suite = literal(past.identity.suite or "suite n/a")
    kind = [Cell(" record", "warn")] if past.kind == "historical" else []
    tail = [Cell(f" {word}", tone), *kind]
    head = [left(arm, 2, "mark"), left(literal(day, 16), 17, "dim")]
    if width >= _WIDE:
        name = [left(who, 34, "strong" if arm else "text"), left(f" {suite}", 22, "dim")]
        name.append(Cell(f" {literal(past.id)}", "faint"))
        return [spread([*head, *name], tail, width, past.id)]
    return [
        spread([*head, Cell(who, "strong" if arm else "text")], tail, width, past.id),
        spread([Cell(" " * 19), Cell(f"{suite}  {literal(past.id)}", "faint")], [], width, past.id),
    ]


# the comparison


def panel(world: World, view: View, width: int, height: int) -> Panel:
    """What was compared and whether it may be; then lane by lane. Refused arms show no difference."""
    shelf = view.shelf
    if shelf.compared is None or shelf.compared.comparison is None:
        return Panel("Comparison", tuple(_not_yet(view, shelf.compared, width)))
    found = shelf.compared.comparison
    rows = _head(found, width)
    for lane in found.lanes:
        rows += _lane(lane, width)
    rows += _metrics(shelf.compared, width, primary=True)
    if not found.refusals:
        rows += _plots(shelf.compared, width, height)
    rows += _metrics(shelf.compared, width, primary=False)
    return Panel(f"Comparison {found.state}: {found.b} against {found.a}", (*rows, *_basis(found, width)))


def _not_yet(view: View, compared: Compared | None, width: int) -> list[Row]:
    shelf = view.shelf
    rows: list[Row] = []
    if compared is not None and compared.error:
        rows += sentence(f"{glyphs.BAD} {literal(compared.error, 1000)}", width, "bad")
    elif shelf.comparing:
        rows += sentence("Reading, checking and comparing the bundles of both arms.", width, "accent")
    else:
        told = f"Put at least one bundle in arm A and one in arm B by {key('view.arm')}; "
        told += "three runs an arm can prove a tie."
        rows += sentence(told, width, "dim")
    pairs = [(f"arm {name}", ", ".join(literal(i) for i, arm in shelf.arms.items() if arm == name) or "none yet")
             for name in "AB"]  # fmt: skip
    rows += [BLANK, *facts(pairs, width)]
    if view.bundle:
        rows += [BLANK, heading(literal(view.bundle, 200), width), *verdict(shelf, view.bundle, view, width)]
    return rows


def _head(found: Comparison, width: int) -> list[Row]:
    glyph, tone = _STATES[found.state]
    varies = found.varied
    parts = [
        [Cell(f"{glyph} {found.state}", tone)], [Cell("varies ", "dim"), Cell(literal(varies), "strong")],
        [Cell(f"primary metric {found.metric}, band {found.band_pct:g} %", "dim")],
    ]  # fmt: skip
    rows = [spread(joined(parts), [], width)]
    if found.refusals:
        rows += sentence("These arms are not matched, so no difference is shown.", width, "bad")
    if found.confounded:
        also = f"{', '.join(found.confounded)} differ too: the difference cannot be laid to {found.varies}"
        rows += sentence(literal(also), width, "warn")
    rows += _fields(found.rows, width)
    for text in found.warnings:
        rows += _said("warning", "warn", text, width)
    for text in found.alone:
        rows += _said("alone", "dim", f"in one arm only: {text}", width)
    return rows


def _said(word: str, tone: Tone, text: str, width: int) -> list[Row]:
    return item([Cell(f"{word:11}", tone)], literal(text, 600), tone, [], width)


def _fields(rows: Iterable[FieldRow], width: int, of: str = "") -> list[Row]:
    """What differs, the worst first."""
    order = list(_STANDINGS)
    out: list[Row] = []
    for r in sorted((r for r in rows if r.standing != "same"), key=lambda r: order.index(r.standing)):
        word, tone = _STANDINGS[r.standing]
        why = f" ({r.why})" if r.why else ""
        sides = ", ".join(f"{arm} {text}" for arm, text in (("A", r.a), ("B", r.b)) if text)
        out += _said(word, tone, f"{of}{r.field}: {sides}{why}", width)
    return out


def _lane(lane: LanePair, width: int) -> list[Row]:
    """What differs in how one lane was measured."""
    return _fields(lane.rows, width, f"{lane.lane} {lane.label}, ")


def _basis(found: Comparison, width: int) -> list[Row]:
    """The runs of both arms, and what is the same."""
    pairs = [(f"arm {name}", f"{len(ids)} run{'s' * (len(ids) != 1)}: {', '.join(ids)}")
             for name, ids in ((found.a, found.runs_a), (found.b, found.runs_b))]  # fmt: skip
    same = ", ".join(r.field for r in found.rows if r.standing == "same")
    told = [(name, literal(text, 2000)) for name, text in (*pairs, ("same", same or "nothing"))]
    return [BLANK, heading("What was compared", width), *facts(told, width, 8)]


# the metrics


def _metrics(compared: Compared, width: int, *, primary: bool) -> list[Row]:
    """One block a lane and metric; nothing of lanes that are refused."""
    found = compared.comparison
    assert found is not None
    mine = [(lane, m) for lane in found.lanes for m in lane.metrics if m.primary == primary]
    if not mine:
        return []
    title = f"Primary metric: {found.metric}" if primary else "Exploratory metrics, corrected for their number"
    rows = [BLANK, heading(title, width)]
    for lane, m in mine:
        levels = [_level(m, value, compared.rows[arm], lane) for arm, value in _levels(m, found)]
        rows += _metric(lane, m, levels, width)
    return rows


def _levels(m: MetricRow, found: Comparison) -> tuple[tuple[str, float], ...]:
    return (found.a, m.a), (found.b, m.b)


def _level(m: MetricRow, value: float, rows: Sequence[LaneRow], lane: LanePair) -> str:
    """The median of an arm, and from where to where its single requests go."""
    same = [r for r in rows if r.lane == lane.lane and r.label == lane.label]
    point = next((p for s in over_streams({"": same}, m.metric).series for p in s.points), None)
    if point is None or point.low is None or point.high is None or m.metric == "aggregate":
        return amount(value)
    return f"{amount(value)} ({amount(point.low)} to {amount(point.high)})"


def _metric(lane: LanePair, m: MetricRow, levels: Sequence[str], width: int) -> list[Row]:
    """Verdict and difference with its interval; below it what they rest on: levels, spread, n, band, noise."""
    glyph, tone = _VERDICTS[m.verdict]
    interval = "no interval"
    if m.low_pct is not None and m.high_pct is not None:
        interval = f"[{m.low_pct:+.1f}, {m.high_pct:+.1f}]"
    name = [] if m.primary else [left(m.metric, 13)]
    where = max(12, min(34, width - 44 - width_of(name)))
    first = [
        Cell(f"{glyph} ", tone),
        left(m.verdict, 11, tone),
        *name,
        left(literal(f"{lane.lane} {lane.label}"), where, "strong"),
        right(f"{m.delta_pct:+.1f} %", 9, "strong"),
        Cell(f" {interval}"),
    ]
    floor = "A/A not measured" if m.floor_pct is None else f"A/A within {m.floor_pct:.1f} %"
    basis = (
        f"A {levels[0]}, B {levels[1]} {m.unit}; n {m.pairs}, runs {m.runs_a}+{m.runs_b}, band {m.band_pct:g} %, "
        f"{floor}: {m.reason}"
    )
    return [spread(first, [], width), *sentence(literal(basis, 600), width, "dim", indent=2)]


def _plots(compared: Compared, width: int, height: int) -> list[Row]:
    """Both arms in one picture, gate by gate, where the arms may be compared."""
    assert compared.comparison is not None
    rows: list[Row] = []
    for lane in dict.fromkeys(pair.lane for pair in compared.comparison.lanes if pair.metrics):
        lines: dict[str, Sequence[LaneRow]] = {}
        mine = {name: [r for r in arm if r.lane == lane] for name, arm in compared.rows.items()}
        deep = charts.series_of([r for arm in mine.values() for r in arm])[1]
        for name, arm in mine.items():
            own = charts.series_of(arm)[0]
            lines |= {f"{name} {line}" if len(own) > 1 else name: of for line, of in own.items()}
        rows += [BLANK, heading(f"{literal(lane)}, both arms", width)]
        rows += charts.charts(lines, deep, width, charts.chart_height(height))
    return rows
