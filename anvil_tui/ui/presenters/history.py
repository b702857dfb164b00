"""What was recorded: spans with the gaps between them, figures over a span, what happened in it. And a replay's
strip."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, tzinfo
from functools import lru_cache

from anvil_tui.core.recording import Index, Kept, Playing, Ran, Sample, Span, seconds_between
from anvil_tui.core.times import parse_time, span
from anvil_tui.core.world import World
from anvil_tui.ui import glyphs
from anvil_tui.ui.keymap import key
from anvil_tui.ui.presenters.cells import BLANK, Cell, Panel, Row, Tone, View, joined, left, row, sentence, spread
from anvil_tui.ui.text import NA, literal, spark

ALL = "all"
MIB = 1024 * 1024
_LABEL = 9
_TONES: dict[str, Tone] = {"plain": "text", "good": "good", "warn": "warn", "bad": "bad"}
_OUTCOMES: dict[str | None, Tone] = {"done": "good", "undone": "warn", "halted": "bad", None: "accent"}


def spans_panel(world: World, view: View, width: int, height: int) -> Panel:
    """Everything, then each span, the newest first."""
    kept = view.shelf.history
    if kept is None:
        return Panel("Recorded", (row(Cell("reading what is kept", "dim")),))
    off = sentence(f"this console does not record: {literal(kept.note, 300)}", width, "warn") if kept.note else []
    if kept.error or not kept.index.spans:
        why = kept.error or f"nothing is recorded yet in {kept.where}"
        return Panel("Recorded", (*off, *sentence(literal(why, 400), width, "warn")))
    index = kept.index
    rows = [*off, spread([Cell("everything", "strong")], [Cell(_size(kept), "dim")], width, ALL)]
    for s in reversed(index.spans):
        rows.append(_span_row(s, view.zone, width))
        if s.why:
            rows.append(row(Cell(f"  {glyphs.TODO_DOT} {literal(s.why, width)}", "dim")))
    if index.damage:
        rows += [BLANK, *sentence(f"damaged: {literal(index.damage, 600)}", width, "bad")]
    return Panel(f"Recorded {len(index.spans)}", tuple(rows))


def _size(kept: Kept) -> str:
    return f"{kept.bytes / MIB:.1f} MiB"


def _span_row(s: Span, zone: tzinfo | None, width: int) -> Row:
    begin, end = _local(s.begin, zone), _local(s.end, zone)
    same = begin.date() == end.date()
    until = f"{end:%H:%M:%S}" if same else f"{end:%m-%d %H:%M:%S}"
    cells = [Cell(f"{begin:%Y-%m-%d} ", "dim"), Cell(f"{begin:%H:%M:%S} {glyphs.DASH} {until}")]
    return spread(cells, [Cell(span(s.seconds), "dim")], width, s.begin)


def moments_panel(world: World, view: View, width: int, height: int) -> Panel:
    """Figures over the chosen span, then its events and operations, the newest first."""
    kept = view.shelf.history
    if kept is None or not kept.index.spans:
        return Panel("What happened", ())
    return _happened(kept, view.span, view.zone, width)


@lru_cache(maxsize=4)
def _happened(kept: Kept, chosen: str, zone: tzinfo | None, width: int) -> Panel:
    """Made once: a week of samples would be laid into columns every second."""
    index = kept.index
    begin, end = _range(index, chosen)
    rows = [*_figures(index, begin, end, zone, width), BLANK]
    listed = _listed(index, begin, end, zone, width)
    if not listed:
        rows.append(row(Cell("nothing happened in this span", "dim")))
    return Panel(f"What happened {len(listed)}", (*rows, *listed))


def _range(index: Index, chosen: str) -> tuple[str, str]:
    """Begin and end of the chosen span; of everything, by the clock, when none is chosen."""
    found = next((s for s in index.spans if s.begin == chosen), None)
    if found:
        return found.begin, found.end
    return min(s.begin for s in index.spans), max(s.end for s in index.spans)


def _figures(index: Index, begin: str, end: str, zone: tzinfo | None, width: int) -> list[Row]:
    room = max(8, width - _LABEL - 7)
    first, last = _local(begin, zone), _local(end, zone)
    ruler = spread(
        [Cell(" " * _LABEL), Cell(f"{first:%m-%d %H:%M:%S}", "dim")],
        [Cell(f"{last:%m-%d %H:%M:%S %Z}", "dim"), Cell(" " * 7)], width,
    )  # fmt: skip
    within = (first.timestamp(), last.timestamp(), room)
    seen = _columns([(_second(s.begin), _second(s.end), 1) for s in index.spans], *within)
    marks = "".join(glyphs.BAR if n else " " for n in seen)
    out = [ruler, row(left("recorded", _LABEL, "dim"), Cell(marks, "accent"))]
    samples = _lasting(index, (last - first).total_seconds() / max(1, room - 1))
    busiest = max((s.requests for s in index.samples if s.requests is not None), default=0)
    measures: tuple[tuple[str, Callable[[Sample], float | None], int, str], ...] = (
        ("VRAM", lambda s: s.vram, 100, "%"), ("KV", lambda s: s.kv, 100, "%"),
        ("requests", lambda s: s.requests, max(1, busiest), ""),
    )  # fmt: skip
    for name, value_of, top, unit in measures:
        known = [(at, until, v) for at, until, s in samples if (v := value_of(s)) is not None]
        columns = _columns([(a, b, round(v * 100) if unit else round(v)) for a, b, v in known], *within)
        most = max((n for n in columns if n is not None), default=None)
        told = NA if most is None else f"{most}{unit}"
        cells = (Cell(spark(columns, room, top), "spark"), Cell(f" {told:>5}", "dim"))
        out.append(row(left(name, _LABEL, "dim"), *cells))
    return out


def _lasting(index: Index, column_s: float) -> list[tuple[float, float, Sample]]:
    """Each sample with the second until which it is drawn: one column before the next one, and never beyond its
    span. A blank in a figure is a gap in the recording, and nothing else."""
    ends = sorted((_second(s.begin), _second(s.end)) for s in index.spans)
    begins = [b for b, _ in ends]
    out: list[tuple[float, float, Sample]] = []
    starts = [_second(s.at) for s in index.samples]
    for at, later, sample in zip(starts, [*starts[1:], float("inf")], index.samples, strict=True):
        place = bisect_right(begins, at) - 1
        end = ends[place][1] if place >= 0 else at
        out.append((at, max(at, min(later - column_s, end)), sample))
    return out


def _columns(pieces: Iterable[tuple[float, float, int]], begin: float, end: float, room: int) -> list[int | None]:
    """The largest value in each of `room` columns between two epoch seconds; None where there is none."""
    whole = max(1.0, end - begin)
    out: list[int | None] = [None] * room
    for first, last, value in pieces:
        a, b = (first - begin) / whole, (last - begin) / whole
        if b < 0 or a > 1:
            continue
        for n in range(max(0, int(a * (room - 1))), min(room - 1, int(b * (room - 1))) + 1):
            out[n] = max(value, out[n] or 0)
    return out


def _listed(index: Index, begin: str, end: str, zone: tzinfo | None, width: int) -> list[Row]:
    """Keys are `TIME NUMBER`: two things may have happened at once."""
    found: list[tuple[str, list[Cell]]] = [
        (m.at, [left(m.source, 14, "dim"), Cell("  "), Cell(literal(m.text, 300), _TONES.get(m.tone, "text"))])
        for m in index.moments
    ]
    found += [(r.started_at, _operation(r)) for r in index.ran]
    inside = [
        (at, cells) for at, cells in found if seconds_between(begin, at) >= 0 and seconds_between(at, end) >= 0
    ]
    inside.sort(key=lambda f: seconds_between(begin, f[0]), reverse=True)
    return [
        spread([Cell(f"{_local(at, zone):%m-%d %H:%M:%S}  ", "dim"), *cells], [], width, f"{at} {n}")
        for n, (at, cells) in enumerate(inside)
    ]


def _operation(r: Ran) -> list[Cell]:
    took = "" if r.ended_at is None else f" in {span(max(0.0, seconds_between(r.started_at, r.ended_at)))}"
    tone = _OUTCOMES.get(r.outcome, "text")
    return [
        left(f"{glyphs.RUN} {literal(r.kind, 12)}", 14, "accent"), Cell("  "), Cell(literal(r.target, 80)),
        Cell(f"  {r.outcome or 'had not ended'}{took}", tone),
    ]  # fmt: skip


def moment_of(view: View, chosen: str) -> str:
    """The UTC text of the key of a span or of a moment, "" = of none."""
    kept = view.shelf.history
    if chosen == ALL:
        return kept.index.spans[0].begin if kept and kept.index.spans else ""
    return chosen.partition(" ")[0]


@lru_cache(maxsize=1 << 15)
def _second(at: str) -> float:
    """Epoch seconds. Parsing the samples of a week took 0.2 s of each move of the cursor."""
    return _local(at, UTC).timestamp()


def _local(at: str, zone: tzinfo | None) -> datetime:
    found = parse_time(at)
    return (found or datetime.fromtimestamp(0, UTC)).astimezone(zone)


# the strip of a replay

_KEYS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("view.arm",), "play"), (("replay.before", "replay.after"), "event"), (("replay.back", "replay.on"), "step"),
    (("replay.slower", "replay.faster"), "speed"), (("replay.jump",), "time"),
)  # fmt: skip


def replay_strip(state: Playing, view: View, width: int, *, home: bool) -> tuple[Row, Row]:
    """Where it stands in its span and what it found there; then its keys."""
    mark = f"{glyphs.RUN} {state.speed}{glyphs.TIMES}" if state.playing else "paused"
    begin, end, at = (_local(t, view.zone) for t in (state.begin, state.end, state.at))
    done = seconds_between(state.begin, state.at) / max(1.0, seconds_between(state.begin, state.end))
    head = [Cell(" REPLAY ", "mark"), Cell(f" {mark}  ", "accent"), Cell(f"{at:%Y-%m-%d %H:%M:%S %Z}", "strong")]
    if state.said:
        rest = [Cell("  "), Cell(literal(state.said, 300), "warn")]
        return spread([*head, *rest], [], width), _keys(home, width)
    tail = [Cell(f" of {begin:%H:%M:%S} {glyphs.DASH} {end:%H:%M:%S} ", "dim")]
    return spread([*head, Cell("  "), *_bar(done, max(0, min(40, width - 75)))], tail, width), _keys(home, width)


def _bar(done: float, width: int) -> list[Cell]:
    full = round(max(0.0, min(1.0, done)) * width)
    return [Cell(glyphs.BAR * full, "accent"), Cell(glyphs.RULE * (width - full), "faint")]


def _keys(home: bool, width: int) -> Row:
    parts = [[Cell(" ".join(key(a) for a in ids), "accent"), Cell(f" {word}", "dim")] for ids, word in _KEYS]
    if home:
        parts.append([Cell(key("view.back"), "accent"), Cell(" now", "dim")])
    return spread([Cell(" "), *joined(parts, "  ")], [], width)
