"""Measured rows of lanes: as a table and as line charts in text; alike for a run that goes on and for a bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from anvil_tui.core.lanes import LaneRow, Spread, drawable
from anvil_tui.core.plots import MARKS, Chart, amount, over_depth, over_streams, text_plot
from anvil_tui.ui.presenters.cells import BLANK, Cell, Row, Tone, cut_row, right, row, sentence, width_of
from anvil_tui.ui.text import NA, literal, number

MEASURES = ("decode", "ttft")
_BESIDE = 90
_GAP = 3
_CACHES = {"unknown": "cache n/a"}


def series_of(rows: Sequence[LaneRow]) -> tuple[Mapping[str, Sequence[LaneRow]], bool]:
    """(rows by the name of their line, whether the x axis is the depth).

    Over depth when there is more than one depth, a line for each number of streams; else over streams. What the
    prefix cache was arranged to hold makes lines of its own.
    """
    depths, streams = {r.nominal_tokens for r in rows}, {r.streams for r in rows}
    caches = {r.cache for r in rows}
    deep = len(depths) > 1 or len(streams) == 1
    found: dict[str, list[LaneRow]] = {}
    for r in rows:
        name = f"C{r.streams}" if deep else f"{amount(float(r.nominal_tokens or 0))} tokens"
        found.setdefault(f"{name} {r.cache}" if len(caches) > 1 else name, []).append(r)
    return found, deep


def chart_height(height: int) -> int:
    """Rows of one chart in a pane of so many."""
    return min(12, max(7, 2 * height // 5))


def chart_of(lines: Mapping[str, Sequence[LaneRow]], measure: str, deep: bool) -> Chart:
    return (over_depth if deep else over_streams)(lines, measure)


def charts(lines: Mapping[str, Sequence[LaneRow]], deep: bool, width: int, height: int) -> list[Row]:
    """Decode and TTFT, beside each other where there is room; a sentence while there is no line to draw."""
    usable = {name: [drawable(r) for r in rows] for name, rows in lines.items()}
    made = [chart_of(usable, m, deep) for m in MEASURES]
    places = {p.x for c in made for s in c.series for p in s.points if p.y is not None}
    if len(places) < 2:
        over = "depth" if deep else "number of streams"
        if len({r.nominal_tokens if deep else r.streams for rows in lines.values() for r in rows}) > 1:
            return sentence("No chart: rows whose times must not be used are not drawn.", width, "dim")
        return sentence(f"A chart needs rows at two places; so far there is one {over} or none.", width, "dim")
    beside = width >= _BESIDE
    each = (width - _GAP) // 2 if beside else width
    drawn = [[_line(text) for text in text_plot(c, each, max(7, height))] for c in made]
    if not beside:
        return [r for plot in drawn for r in (*plot, BLANK)]
    rows = []
    for mine, theirs in zip_longest(*drawn, fillvalue=BLANK):
        gap = " " * (each + _GAP - width_of(mine.cells))
        rows.append(Row((*mine.cells, Cell(gap), *theirs.cells)))
    return [*rows, BLANK]


def _line(text: str) -> Row:
    """Marks of points stand out; the rest of a plot is quiet."""
    cells: list[Cell] = []
    for ch in literal(text):
        tone: Tone = "accent" if ch in MARKS else "dim"
        if cells and cells[-1].tone == tone:
            cells[-1] = Cell(cells[-1].text + ch, tone)
        else:
            cells.append(Cell(ch, tone))
    return Row(tuple(cells))


# the table

_COLUMNS = (("depth", 9), ("C", 5), ("cache", 10), ("n", 7), ("TTFT any", 10), ("visible", 10), ("decode", 11))
_MORE = (("aggregate", 12), ("output", 12), ("client error", 17))
_WIDE = sum(w for _, w in (*_COLUMNS, *_MORE))


def table(rows: Sequence[LaneRow], width: int) -> list[Row]:
    """One line a row, medians; below it what makes it invalid, and without which it would be misread."""
    wide = width >= _WIDE
    columns = (*_COLUMNS, *_MORE) if wide else (*_COLUMNS, *_MORE[:1])
    out = [_cut([right(name, w, "faint") for name, w in columns], width)]
    for r in rows:
        out.append(_cut([right(text, w, tone) for (text, tone), (_, w) in zip(_texts(r), columns, strict=False)],
                        width))  # fmt: skip
        if not wide:
            out += sentence(f"output {r.output}, client error {_error(r)}", width, "dim", indent=4)
        if r.instrument and r.instrument.invalid:
            out += sentence(f"INVALID, its times must not be used: {literal(r.instrument.invalid, 400)}", width,
                            "bad", indent=4)  # fmt: skip
        for note in (*r.notes, *(f"not in the record: {m}" for m in r.missing)):
            out += sentence(literal(note, 400), width, "dim", indent=4)
    return out


def _cut(cells: Sequence[Cell], width: int) -> Row:
    return row(*cut_row(cells, width))


def _texts(r: LaneRow) -> list[tuple[str, Tone]]:
    n = f"{r.requests - r.failed}/{r.requests}"
    depth = r.prompt_tokens.p50 if r.prompt_tokens else None
    used: Tone = "warn" if r.instrument and r.instrument.invalid else "text"
    return [
        (number(depth), "text"), (f"C{r.streams}", "text"),
        (_CACHES.get(r.cache, r.cache), "text"), (n, "bad" if r.failed else "text"),
        (_seconds(r.ttft_any_s), used), (_seconds(r.ttft_visible_s), used), (_rate(r.decode_tok_s), used),
        (NA if r.aggregate_tok_s is None else f"{amount(r.aggregate_tok_s)} t/s", used), (r.output, "text"),
        (_error(r), "dim"),
    ]  # fmt: skip


def _seconds(spread: Spread | None) -> str:
    return NA if spread is None else f"{amount(spread.p50)} s"


def _rate(spread: Spread | None) -> str:
    return NA if spread is None else f"{amount(spread.p50)} t/s"


def _error(r: LaneRow) -> str:
    """What the client read too much of a known 200 ms, at the same number of streams."""
    found = r.instrument
    if found is None or found.error_p50_ms is None:
        return NA
    p95 = NA if found.error_p95_ms is None else f"{found.error_p95_ms:.1f}"
    return f"{found.error_p50_ms:.1f} / {p95} ms"
