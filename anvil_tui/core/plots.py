"""Line plots of measured rows, as one SVG text or as lines for a terminal. Pure: same chart, same bytes.

What is not known is a gap in the line and is named below it; nothing is drawn between two points with an unknown
one between them. Series differ by shape as well as by colour (Okabe and Ito's, told apart by colour-blind eyes).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from xml.sax.saxutils import escape

from anvil_tui.core.lanes import LaneRow, Spread

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MARKS = "●○▲✖▶✔"
"""One a series in text; each has an ASCII twin in the console."""

LOG_FROM = 8.0
"""An axis whose largest value is this many times its smallest is logarithmic."""


@dataclass(frozen=True, slots=True)
class Point:
    """`y` None = not known; `low` and `high` are the ends of its whisker. `name` says the point in words."""

    x: float
    y: float | None
    low: float | None = None
    high: float | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """`whiskers` says what they span. `unknown` names what has no place on the x axis at all."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    whiskers: str = ""
    unknown: tuple[str, ...] = ()

    @property
    def gaps(self) -> tuple[str, ...]:
        """What is not drawn, in words."""
        unknown = (f"{s.name} at {p.name or amount(p.x)}" for s in self.series for p in s.points if p.y is None)
        return (*unknown, *self.unknown)


def amount(value: float) -> str:
    """A number as an axis or a table says it: `0.35`, `42.6`, `2,969`, `206.6K`, `1.05M`."""
    for unit, size in (("M", 1e6), ("K", 1e4)):
        if abs(value) >= size:
            scaled = value / (1e6 if unit == "M" else 1e3)
            return f"{scaled:.{2 if unit == 'M' else 1}f}".rstrip("0").rstrip(".") + unit
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value else "0"


# rows to charts

Pick = Callable[[LaneRow], Spread | None]

_MEASURES: Mapping[str, tuple[str, Pick]] = {
    "decode": ("decode, tok/s a stream", lambda r: r.decode_tok_s),
    "decode-seeds": ("decode by (N-1)/T, tok/s a stream", lambda r: r.decode_seeds_tok_s),
    "ttft": ("TTFT any, s", lambda r: r.ttft_any_s),
    "ttft-visible": ("TTFT visible, s", lambda r: r.ttft_visible_s),
    "e2e": ("E2E, s", lambda r: r.e2e_s),
    "aggregate": ("aggregate, tok/s", lambda r: _single(r.aggregate_tok_s)),
}


def _single(value: float | None) -> Spread | None:
    return None if value is None else Spread(1, value, value, value)


def over_depth(arms: Mapping[str, Sequence[LaneRow]], measure: str) -> Chart:
    """A metric by its name in `core.compare` over the prompt tokens that the engine counted."""
    return _chart(arms, measure, "over depth", "prompt tokens, counted by the engine", _depth)


def over_streams(arms: Mapping[str, Sequence[LaneRow]], measure: str) -> Chart:
    """A metric by its name in `core.compare` over the streams in flight."""
    return _chart(arms, measure, "over concurrency", "streams in flight", lambda r: float(r.streams))


def over_what_varies(arms: Mapping[str, Sequence[LaneRow]], measure: str) -> Chart:
    """Over concurrency when that is what the rows differ in most, else over depth; a line a gate and cache."""
    rows = [row for mine in arms.values() for row in mine]
    streams, depths = {r.streams for r in rows}, {r.nominal_tokens for r in rows}
    several = len({(r.lane, r.cache) for r in rows}) > 1
    lines: dict[str, list[LaneRow]] = {}
    for name, mine in arms.items():
        for r in mine:
            lines.setdefault(f"{name} {r.lane} {r.cache}" if several else name, []).append(r)
    return (over_streams if len(streams) > len(depths) else over_depth)(lines, measure)


def _depth(row: LaneRow) -> float | None:
    return row.prompt_tokens.p50 if row.prompt_tokens else None


def _chart(
    arms: Mapping[str, Sequence[LaneRow]],
    measure: str,
    over: str,
    x_label: str,
    at: Callable[[LaneRow], float | None],
) -> Chart:
    y_label, pick = _MEASURES[measure]
    series, homeless = [], []
    for name, rows in arms.items():
        of_label: dict[str, list[LaneRow]] = {}
        for row in rows:
            label = row.label or f"{row.lane} C{row.streams} {row.nominal_tokens or ''}".strip()
            of_label.setdefault(label, []).append(row)
        points = [_point(label, same, pick, at) for label, same in of_label.items()]
        homeless += [f"{name} {p} (prompt tokens not counted)" for p in points if isinstance(p, str)]
        known = (p for p in points if isinstance(p, Point))
        series.append(Series(name, tuple(sorted(known, key=lambda p: p.x))))
    title = f"{y_label.split(',')[0]} {over}"
    return Chart(
        title, x_label, y_label, tuple(series), "lowest to highest request; mark: median", tuple(homeless)
    )


def _point(label: str, rows: Sequence[LaneRow], pick: Pick, at: Callable[[LaneRow], float | None]) -> Point | str:
    """One row, in one or several runs: the median of its runs' medians, and the extremes of all requests.

    Just the label when it has no place on the x axis.
    """
    places = [x for row in rows if (x := at(row)) is not None]
    if not places:
        return label
    spreads = [s for row in rows if (s := pick(row)) is not None]
    if not spreads:
        return Point(median(places), None, name=label)
    lows, highs = [s.low for s in spreads], [s.high for s in spreads]
    low = min((v for v in lows if v is not None), default=None) if None not in lows else None
    high = max((v for v in highs if v is not None), default=None) if None not in highs else None
    return Point(median(places), median(s.p50 for s in spreads), low, high, label)


# axes


@dataclass(frozen=True, slots=True)
class Axis:
    """A scale from the values to 0..1. `ticks` are the values that get a number."""

    low: float
    high: float
    log: bool
    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        if self.low == self.high:
            return 0.5
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def x_axis(chart: Chart) -> Axis:
    """From the smallest to the largest x; the numbers on it are the measured ones."""
    values = sorted({p.x for s in chart.series for p in s.points})
    if not values:
        return Axis(0.0, 1.0, False, ())
    low, high = values[0], values[-1]
    return Axis(low, high, low > 0 and high / low >= LOG_FROM, tuple(values))


def y_axis(chart: Chart) -> Axis:
    """From 0, or by decades when the values span `LOG_FROM` and more."""
    ends = [v for s in chart.series for p in s.points for v in (p.y, p.low, p.high) if v is not None]
    if not ends:
        return Axis(0.0, 1.0, False, ())
    low, high = min(ends), max(ends)
    if low > 0 and high / low >= LOG_FROM:
        steps = [m * 10.0**e for e in range(-6, 10) for m in (1, 2, 5)]
        bottom, top = max(s for s in steps if s <= low), min(s for s in steps if s >= high)
        return Axis(bottom, top, True, tuple(s for s in steps if bottom <= s <= top))
    step = _nice(max(high, 0.0) or 1.0)
    top = math.ceil((high or 1.0) / step - 1e-9) * step
    bottom = math.floor(min(low, 0.0) / step) * step
    return Axis(bottom, top, False, tuple(bottom + i * step for i in range(round((top - bottom) / step) + 1)))


def _nice(high: float) -> float:
    """A step of 1, 2 or 5 times a power of ten that divides 0..high into four to eight parts."""
    power = 10.0 ** math.floor(math.log10(high / 4))
    return next(m * power for m in (1, 2, 5, 10) if high / (m * power) <= 8)


def _apart(axis: Axis, length: float, least: Callable[[float], float]) -> list[float]:
    """The ticks whose numbers do not touch on an axis of this length; `least` is the room that one needs."""
    kept: list[float] = []
    for tick in axis.ticks:
        if not kept or (axis.at(tick) - axis.at(kept[-1])) * length >= (least(tick) + least(kept[-1])) / 2:
            kept.append(tick)
    return kept


# SVG

_LEFT, _RIGHT, _TOP, _BOTTOM, _INSET, _LINE = 64, 20, 40, 48, 12, 18


def svg(chart: Chart, width: int = 640, height: int = 360) -> str:
    """One `<svg>` element with its own white ground; legend and what is missing stand below the plot."""
    notes = _notes(chart)
    whole = height + _LINE * (len(chart.series) + len(notes)) + 8
    x, y = x_axis(chart), y_axis(chart)
    wide, high = width - _LEFT - _RIGHT, height - _TOP - _BOTTOM

    def place(px: float, py: float) -> tuple[float, float]:
        return _across(x, px, wide), round(_TOP + (1 - y.at(py)) * high, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{whole}" viewBox="0 0 {width} {whole}" '
        'role="img" font-family="sans-serif" font-size="12" fill="#222">',
        f"<title>{escape(chart.title)}</title>",
        f'<rect width="{width}" height="{whole}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="18" font-size="14" font-weight="bold">{escape(chart.title)}</text>',
        f'<text x="{_LEFT}" y="33">{escape(chart.y_label)}{" (log)" if y.log else ""}</text>',
        f'<text x="{_LEFT + wide}" y="{height - 12}" text-anchor="end">{escape(chart.x_label)}'
        f"{' (log)' if x.log else ''}</text>",
        *_grid(chart, width, height),
    ]
    for n, series in enumerate(chart.series):
        parts += _line(series, n, place)
    for n, series in enumerate(chart.series):
        at = height + 4 + _LINE * n
        parts += [_mark(n, _LEFT + 5, at - 4), f'<text x="{_LEFT + 16}" y="{at}">{escape(series.name)}</text>']
    parts += [
        f'<text x="{_LEFT}" y="{height + 4 + _LINE * n}" fill="#555">{escape(note)}</text>'
        for n, note in enumerate(notes, len(chart.series))
    ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _across(axis: Axis, value: float, wide: float) -> float:
    """A little away from both ends, so that no point lies on the y axis."""
    return round(_LEFT + _INSET + axis.at(value) * (wide - 2 * _INSET), 1)


def _notes(chart: Chart) -> list[str]:
    return [*([f"bars: {chart.whiskers}"] if chart.whiskers else []), *(f"not known: {gap}" for gap in chart.gaps)]


def _grid(chart: Chart, width: int, height: int) -> list[str]:
    x, y = x_axis(chart), y_axis(chart)
    wide, high, foot = width - _LEFT - _RIGHT, height - _TOP - _BOTTOM, height - _BOTTOM
    parts = []
    for tick in _apart(y, high, lambda t: 16):
        at = round(_TOP + (1 - y.at(tick)) * high, 1)
        parts.append(f'<path d="M{_LEFT} {at}H{_LEFT + wide}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{at + 4}" text-anchor="end">{amount(tick)}</text>')
    for tick in _apart(x, wide - 2 * _INSET, lambda t: 7 * len(amount(t)) + 10):
        at = _across(x, tick, wide)
        parts.append(f'<path d="M{at} {foot}v5" stroke="#222"/>')
        parts.append(f'<text x="{at}" y="{foot + 18}" text-anchor="middle">{amount(tick)}</text>')
    return [*parts, f'<path d="M{_LEFT} {_TOP}V{foot}H{_LEFT + wide}" fill="none" stroke="#222"/>']


def _line(series: Series, n: int, place: Callable[[float, float], tuple[float, float]]) -> list[str]:
    colour, parts = COLOURS[n % len(COLOURS)], []
    for before, after in pairwise(series.points):
        if before.y is not None and after.y is not None:
            (x1, y1), (x2, y2) = place(before.x, before.y), place(after.x, after.y)
            parts.append(f'<path d="M{x1} {y1}L{x2} {y2}" stroke="{colour}" stroke-width="1.5"/>')
    for point in series.points:
        if point.y is None:
            continue
        at, level = place(point.x, point.y)
        if point.low is not None and point.high is not None:
            foot, head = place(point.x, point.low)[1], place(point.x, point.high)[1]
            parts.append(
                f'<path d="M{at} {foot}V{head}M{at - 3:.1f} {foot}h6M{at - 3:.1f} {head}h6" fill="none" '
                f'stroke="{colour}"/>'
            )
        parts.append(_mark(n, at, level))
    return parts


def _mark(n: int, x: float, y: float) -> str:
    """The shape of series `n` around a point; from the seventh on, colours and shapes pair differently."""
    colour = COLOURS[n % len(COLOURS)]
    edge = f'stroke="{colour}" stroke-width="2"'
    shapes = (
        f'<circle cx="{x}" cy="{y}" r="4" fill="{colour}"/>',
        f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" fill="#fff" {edge}/>',
        f'<path d="M{x} {y - 5:.1f}l5 9h-10z" fill="{colour}"/>',
        f'<path d="M{x} {y - 6:.1f}l6 6l-6 6l-6 -6z" fill="#fff" {edge}/>',
        f'<path d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8" stroke="{colour}" stroke-width="2.5"/>',
        f'<path d="M{x} {y + 5:.1f}l5 -9h-10z" fill="{colour}"/>',
    )
    return shapes[(n + n // len(COLOURS)) % len(shapes)]


# text


def text_plot(chart: Chart, width: int, height: int) -> list[str]:
    """`height` lines of at most `width` cells: the plot, its x axis, a legend, and what is not known (at least 7).

    Where two points fall into one cell the later series is seen; whiskers give way to points.
    """
    x, y = x_axis(chart), y_axis(chart)
    names = "  ".join(f"{MARKS[n % len(MARKS)]} {s.name}" for n, s in enumerate(chart.series))
    feet = [names, *([f"not known: {'; '.join(chart.gaps)}"] if chart.gaps else [])]
    left = max([len(amount(t)) for t in y.ticks] or [1]) + 1
    wide, rows = max(width - left - 1, 8), max(height - len(feet) - 2, 3)
    cells = [[" "] * wide for _ in range(rows)]

    def place(px: float, py: float) -> tuple[int, int]:
        return round(x.at(px) * (wide - 1)), round((1 - y.at(py)) * (rows - 1))

    for series in chart.series:
        _dots(cells, series.points, place)
    for n, series in enumerate(chart.series):
        for p in (p for p in series.points if p.y is not None):
            column, row = place(p.x, p.y or 0.0)
            cells[row][column] = MARKS[n % len(MARKS)]
    numbers = {round((1 - y.at(t)) * (rows - 1)): amount(t) for t in _apart(y, rows, lambda t: 2)}
    lines = [f"{chart.y_label}{' (log)' if y.log else ''}"]
    lines += [f"{numbers.get(n, ''):>{left}}│{''.join(row)}" for n, row in enumerate(cells)]
    lines += [" " * (left + 1) + _below(x, wide, f"{chart.x_label}{' (log)' if x.log else ''}"), *feet]
    return [_cut(line.rstrip(), width) for line in lines]


def _dots(
    cells: list[list[str]], points: Iterable[Point], place: Callable[[float, float], tuple[int, int]]
) -> None:
    for p in points:
        if p.y is not None and p.low is not None and p.high is not None:
            (column, foot), (_, head) = place(p.x, p.low), place(p.x, p.high)
            for row in range(head, foot + 1):
                cells[row][column] = "│"
    for a, b in pairwise(points):
        if a.y is None or b.y is None:
            continue
        (x1, y1), (x2, y2) = place(a.x, a.y), place(b.x, b.y)
        for column in range(x1 + 1, x2):
            row = round(y1 + (y2 - y1) * (column - x1) / (x2 - x1))
            if cells[row][column] == " ":
                cells[row][column] = "·"


def _below(axis: Axis, wide: int, label: str) -> str:
    """The numbers under the x axis, and its label where it fits behind them."""
    line = ""
    for tick in _apart(axis, wide, lambda t: len(amount(t)) + 1):
        text = amount(tick)
        at = min(max(round(axis.at(tick) * (wide - 1)) - len(text) // 2, 0), wide - len(text))
        if not line or at > len(line):
            line = line.ljust(at) + text
    return f"{line}  {label}" if len(line) + len(label) + 2 <= wide else line


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
