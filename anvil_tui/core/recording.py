"""The lines of a recording, and what they add up to: frames, spans with gaps, samples, moments. Pure.

The first line is the head. Each line after it is a frame: a key frame has the whole tree, any other has what
changed since the line before it. A recording that several files make up is read as one.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from anvil_tui.core.redact import redact_values
from anvil_tui.core.times import parse_time, utc_text
from anvil_tui.core.world_codec import Hide, Tree, apply, dumped, tree_changes

FAMILY, VERSION = "anvil.history/", 1
SCHEMA = f"{FAMILY}{VERSION}"
CADENCE_S = 5.0
GAP_S = 4 * CADENCE_S
KEY_EVERY = 180
STEP_S = 2.0
"""How far the wall clock may part from the monotonic one between two frames before it is a clock step."""


class Damaged(ValueError):
    """A line that cannot be used; `line` is 1-based."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened: an event of the console, at UTC text."""

    at: str
    source: str
    text: str
    tone: str = "plain"


@dataclass(frozen=True, slots=True)
class Sample:
    """VRAM in use and the fullest KV pool, as fractions, and requests in flight; None = not known."""

    at: str
    vram: float | None = None
    kv: float | None = None
    requests: int | None = None


@dataclass(frozen=True, slots=True)
class Ran:
    """An operation that was seen: `outcome` None = it had not ended yet."""

    id: str
    kind: str
    target: str
    started_at: str
    ended_at: str | None = None
    outcome: str | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """Frames without a gap between them. `why` says what stands before it: a gap, or a clock that was set."""

    begin: str
    end: str
    frames: int
    run: str = ""
    why: str = ""

    @property
    def seconds(self) -> float:
        return seconds_between(self.begin, self.end)


@dataclass(frozen=True, slots=True)
class Index:
    """What one recording holds without its frames. `torn` = its last line was cut off."""

    spans: tuple[Span, ...] = ()
    samples: tuple[Sample, ...] = ()
    moments: tuple[Moment, ...] = ()
    ran: tuple[Ran, ...] = ()
    damage: str = ""
    torn: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    """The first line. `run` is the boot whose monotonic clock the frames have; `since` is the time of the last
    frame before this file, "" = none; `index` stands in files that are complete."""

    box: str
    run: str = ""
    since: str = ""
    made_by: str = ""
    schema: str = SCHEMA
    index: Index | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """One moment: wall clock, monotonic second of its `run`, and the tree of the World."""

    at: datetime
    s: float
    run: str
    tree: Tree = field(compare=False)


MALFORMED = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError)
"""What reading runs into when a line is JSON and what it holds is no recording's."""

N = TypeVar("N", int, float)
_HEAD = TypeAdapter(Head)


def head_line(head: Head) -> bytes:
    return dumped(asdict(head)) + b"\n"


def frame_line(n: int, at: datetime, s: float, what: Any, *, key: bool, run: str = "") -> bytes:
    begun = {"n": n, "at": utc_text(at), "s": round(s, 3)}
    return dumped({**begun, "run": run, "key": what} if key else {**begun, "d": what}) + b"\n"


def read_head(line: bytes) -> Head:
    """Damaged when this is no recording, or one of a newer schema."""
    try:
        raw = json.loads(line)
        schema = str(raw["schema"])
    except MALFORMED as why:
        raise Damaged(1, "this is no recording of anvil-tui: its first line names no schema") from why
    number = schema.removeprefix(FAMILY)
    if not schema.startswith(FAMILY) or not re.fullmatch("[1-9][0-9]{0,5}", number):
        raise Damaged(1, f"this is no recording of anvil-tui: its schema is {schema[:60]!r}")
    if int(number) > VERSION:
        raise Damaged(
            1, f"it was written by a newer anvil-tui ({schema}; this one reads {SCHEMA}): update this one"
        )
    try:
        return _HEAD.validate_python(raw)
    except ValidationError as why:
        raise Damaged(1, f"its head is damaged: {why.errors()[0]['msg']}") from why


def read_frames(lines: Iterable[bytes], first: int = 2) -> Iterator[Frame]:
    """The frames behind the head, in order. Damaged at the first line that cannot be used: what changed since
    cannot be told. A last line without its end was never whole, and is left out. `first` is the number of the
    first line."""
    last, run = 0, ""
    tree: Tree = {}
    for number, line in enumerate(lines, first):
        if not line.endswith(b"\n"):
            return
        try:
            raw = json.loads(line)
            at, s, n = _stamp(raw["at"]), float(raw["s"]), int(raw["n"])
            key = raw.get("key")
            if key is None and (n != last + 1 or not tree):
                raise ValueError(f"frame {n} follows frame {last}: what is between them is lost")
            tree = key if key is not None else apply(tree, raw["d"])
            run = str(raw.get("run", run))
            if not isinstance(tree, dict) or not math.isfinite(s):
                raise ValueError("it has no world, or its clock is no number")
        except MALFORMED as why:
            raise Damaged(number, f"this line is damaged: {why}") from why
        last = n
        yield Frame(at, s, run, tree)


def lines_of(
    frames: Iterable[Frame], hide: Hide, given: Callable[[Any], Any] = lambda what: what
) -> Iterator[bytes]:
    """The frames as lines again, hidden once more, then as they are `given` away. The first, each with another
    run, and every 180th is a key."""
    before: Frame | None = None
    for n, frame in enumerate(frames, 1):
        key = before is None or before.run != frame.run or n % KEY_EVERY == 0
        what = frame.tree if before is None or key else tree_changes(before.tree, frame.tree)
        yield frame_line(n, frame.at, frame.s, given(redact_values(what, hide)), key=key, run=frame.run)
        before = frame


# what a recording adds up to


def index_of(frames: Iterable[Frame], since: str = "", every_s: float = 60.0) -> Index:
    """Spans, the most of each minute, moments and operations. Events of key frames count from `since` on."""
    spans: list[Span] = []
    samples: list[Sample] = []
    moments: list[Moment] = []
    ran: dict[str, Ran] = {}
    before: Frame | None = None
    for frame in frames:
        spans = with_frame(spans, before, frame)
        at = utc_text(frame.at)
        if not samples or abs(seconds_between(samples[-1].at, at)) >= every_s:
            samples.append(sample_of(frame))
        else:
            samples[-1] = _most(samples[-1], sample_of(frame))
        known = before.tree.get("events") if before and before.run == frame.run else None
        moments += _fresh(known, frame.tree.get("events") or [], since if before is None else utc_text(before.at))
        ran |= {o["id"]: _ran(o) for o in frame.tree.get("operations") or () if _is_time(o.get("started_at", ""))}
        before = frame
    begin = spans[0].begin if spans else ""
    seen = [r for r in ran.values() if r.ended_at is None or not is_older(r.ended_at, begin)]
    return Index(tuple(spans), tuple(samples), tuple(moments), tuple(seen))


def with_frame(spans: list[Span], before: Frame | None, frame: Frame) -> list[Span]:
    at = utc_text(frame.at)
    why = "begin" if before is None else _break(before, frame)
    if why:
        return [*spans, Span(at, at, 1, frame.run, "" if before is None else why)]
    last = spans[-1]
    return [*spans[:-1], Span(last.begin, at, last.frames + 1, last.run, last.why)]


def _break(before: Frame, frame: Frame) -> str:
    """Why two frames do not belong to one span, "" = they do."""
    wall = (frame.at - before.at).total_seconds()
    if before.run != frame.run:
        return _gap(wall)
    passed = frame.s - before.s
    if abs(wall - passed) > STEP_S:
        return f"clock set {'back' if wall < passed else 'on'} by {abs(wall - passed):.0f} s"
    return _gap(wall) if passed > GAP_S else ""


def _gap(wall: float) -> str:
    return f"not recorded for {wall:.0f} s" if wall >= 0 else f"clock set back by {-wall:.0f} s"


def joined(indexes: Iterable[Index]) -> Index:
    """The indexes of files that follow each other, as one."""
    spans: list[Span] = []
    out = list(indexes)
    for index in out:
        for n, span in enumerate(index.spans):
            last = spans[-1] if spans else None
            apart = 0.0 if last is None else seconds_between(last.end, span.begin)
            if last and n == 0 and last.run == span.run and 0 <= apart <= GAP_S:
                spans[-1] = Span(last.begin, span.end, last.frames + span.frames, last.run, last.why)
            else:
                why = span.why or (_gap(apart) if last else "")
                spans.append(Span(span.begin, span.end, span.frames, span.run, why))
    ran = {r.id: r for index in out for r in index.ran}
    return Index(
        tuple(spans), tuple(s for i in out for s in i.samples), tuple(m for i in out for m in i.moments),
        tuple(ran.values()), "; ".join(i.damage for i in out if i.damage), any(i.torn for i in out),
    )  # fmt: skip


def _fresh(known: Sequence[Tree] | None, events: Sequence[Tree], since: str) -> Iterator[Moment]:
    """Events that the frame before did not have. Without one: those that came after `since`, "" = none of them."""
    if known:
        last = known[-1]
        places = [n for n, e in enumerate(events) if e == last]
        events = events[places[-1] + 1 :] if places else events
    elif known is None:
        events = [e for e in events if since and _is_time(e["at"]) and not is_older(e["at"], since)]
    made = (Moment(str(e["at"]), str(e["source"]), str(e["text"]), str(e["tone"])) for e in events)
    yield from (m for m in made if _is_time(m.at))


def _stamp(text: Any) -> datetime:
    """ValueError when it is no time, or one at the edge of the calendar, which no other zone has."""
    at = parse_time(text) if isinstance(text, str) else None
    if at is None or not 1 < at.year < 9999:
        raise ValueError(f"{str(text)[:40]!r} is no time that a clock shows")
    return at


def _is_time(text: Any) -> bool:
    """Somebody else's file may say anything."""
    try:
        _stamp(text)
    except ValueError:
        return False
    return True


def _ran(o: Tree) -> Ran:
    ended = o.get("ended_at")
    ended = ended if ended and _is_time(ended) else None
    return Ran(o["id"], o["kind"], o["target"], o["started_at"], ended, o.get("outcome"))


def sample_of(frame: Frame) -> Sample:
    tree = frame.tree
    gpus = (_value(tree.get("gpus")) or {}).get("gpus") or ()
    used = [
        (g["used_bytes"], g["total_bytes"]) for g in gpus if g.get("used_bytes") is not None and g["total_bytes"]
    ]
    full = [
        v["kv_used"] for r in (tree.get("engines") or {}).values() if (v := _value(r)) and v["kv_used"] is not None
    ]
    backends = (_value(tree.get("gateway")) or {}).get("backends") or ()
    busy = [b["in_flight"] for b in backends]
    return Sample(
        utc_text(frame.at),
        round(sum(u for u, _ in used) / sum(t for _, t in used), 4) if used else None,
        round(max(full), 4) if full else None,
        sum(busy) if busy and None not in busy else None,
    )


def _most(a: Sample, b: Sample) -> Sample:
    """The larger of each, by the time of the first: a peak within a minute is not lost."""
    return Sample(a.at, _larger(a.vram, b.vram), _larger(a.kv, b.kv), _larger(a.requests, b.requests))


def _larger(a: N | None, b: N | None) -> N | None:
    return b if a is None else a if b is None else max(a, b)


def _value(reading: Any) -> Any:
    """What was known; a last value under an error is not drawn as if it were."""
    return reading["value"] if reading and reading["state"] == "known" else None


# times and retention


def seconds_between(a: str, b: str) -> float:
    """Seconds from one UTC text to the other."""
    one, other = parse_time(a), parse_time(b)
    return 0.0 if one is None or other is None else (other - one).total_seconds()


def is_older(at: str, than: str) -> bool:
    return bool(at and than) and seconds_between(at, than) > 0


def to_remove(
    kept: Sequence[tuple[str, int, datetime | None]], now: datetime, days: float, most_bytes: int
) -> list[str]:
    """Names of files that must go, oldest first. `kept` are (name, bytes, end) in the order in which they were
    written. What ends in the future is not old: the clock was set."""
    out: list[str] = []
    left = sum(size for _, size, _ in kept)
    for name, size, end in kept:
        aged = end is not None and now - end > timedelta(days=days)
        if left > most_bytes or aged:
            out.append(name)
            left -= size
    return out


@dataclass(frozen=True, eq=False)
class Kept:
    """What a history holds, for the screen that shows it. `note` says why nothing is recorded now, "" = it is.

    One is equal to itself alone: a week of samples is not compared for each drawing.
    """

    where: str = ""
    index: Index = Index()
    bytes: int = 0
    note: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Playing:
    """Where a replay stands: `begin` and `end` of the span it is in, `said` what its last move found."""

    where: str
    at: str
    begin: str
    end: str
    playing: bool = False
    speed: int = 1
    said: str = ""
