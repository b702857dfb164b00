"""Drills: the facts that a start and an end are compared by, what a journal says of one, the trend of many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC
from statistics import median
from typing import Any, Literal

from anvil_tui.core.journal import Outcome, Record
from anvil_tui.core.standing import DrillPhase, DrillRecord
from anvil_tui.core.times import parse_time, with_zone

HOME = "-home"
_PHASES = ("hold", "drain", "stop", "free", "start", "ready", "gates", "flip", "verify", "retire")
START, END = "facts", "compare"
"""The steps that take the facts, at the beginning and at the end (`undo:compare` on the way back)."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact of the box. `value` None = not read, `why` says why. `moves` = a drill changes it by itself."""

    name: str
    value: str | None
    why: str = ""
    moves: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """`differences` count, `expected` are those that a drill makes by itself, `unread` could not be compared."""

    differences: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def compare(start: Iterable[Fact], end: Iterable[Fact]) -> Comparison:
    """Fact by fact. One that is known on one side only is a difference: unknown is never the same."""
    before, after = {f.name: f for f in start}, {f.name: f for f in end}
    found: dict[str, list[str]] = {"differences": [], "expected": [], "unread": []}
    for name in dict.fromkeys((*before, *after)):
        a = before.get(name, Fact(name, None, "not taken at the start"))
        b = after.get(name, Fact(name, None, "not there at the end"))
        if a.value is None and b.value is None:
            found["unread"].append(f"{name}: not known: {b.why or a.why}")
        elif a.value != b.value:
            kind = "expected" if a.moves or b.moves else "differences"
            found[kind].append(f"{name} was {_said(a)}, is {_said(b)}")
    return Comparison(*(tuple(found[kind]) for kind in ("differences", "expected", "unread")))


def _said(fact: Fact) -> str:
    return f"not known ({fact.why})" if fact.value is None else fact.value or "empty"


def facts_json(facts: Iterable[Fact]) -> list[dict[str, Any]]:
    return [asdict(f) for f in facts]


def start_facts(records: Iterable[Record]) -> tuple[Fact, ...]:
    """The facts that a drill took at its beginning; () when it never came so far."""
    done = [r for r in records if r.kind == "done" and r.step == START]
    return tuple(Fact(**f) for f in done[-1].data["facts"]) if done else ()


def compared(records: Iterable[Record]) -> Comparison:
    """What the last comparison of a drill found; empty when there was none."""
    done = [r.data for r in records if r.kind == "done" and r.step.removeprefix("undo:") == END]
    return Comparison(**{k: tuple(done[-1].get(k, ())) for k in Comparison.__slots__}) if done else Comparison()


def differing(found: Comparison) -> str:
    """What the end of a drill says; "" = restored exactly."""
    count = len(found.differences)
    return f"restored with {count} difference{'s' * (count != 1)}: {'; '.join(found.differences)}" if count else ""


# the record of one drill


def drill_record(records: Sequence[Record], at: str, outcome: Outcome, why: str) -> DrillRecord | None:
    """What one journal says of its drill; None when it did not begin, or is no drill."""
    begun = next((r.data for r in records if r.kind == "begin"), None)
    who: Mapping[str, str] | None = (begun or {}).get("facts", {}).get("drill")
    if begun is None or who is None:
        return None
    phases, found = phases_of(records), compared(records)
    ended: Literal["restored", "differs", "undone", "halted"] = outcome if outcome != "done" else "restored"
    if ended == "restored" and found.differences:
        ended = "differs"
    return DrillRecord(
        begun["op"], begun["role"], at, "box", who["incumbent"], who["way_back"], ended,
        answered_s(phases, "away"), phases, found.differences, home_s=answered_s(phases, "home"),
        expected=found.expected, unread=found.unread, why=why,
        incumbent_name=who["incumbent_name"], way_back_name=who["way_back_name"],
    )  # fmt: skip


def phases_of(records: Iterable[Record]) -> tuple[DrillPhase, ...]:
    """The steps of both legs that were done, in their order, with the seconds that each took."""
    found = []
    for r in records:
        name, leg = r.step.removesuffix(HOME), "home" if r.step.endswith(HOME) else "away"
        if r.kind == "done" and name in _PHASES and r.data.get("took_s") is not None:
            found.append(DrillPhase("home" if leg == "home" else "away", name, r.data["took_s"]))
    return tuple(found)


def answered_s(phases: Iterable[DrillPhase], leg: str) -> float | None:
    """Seconds from the first step of a leg until its serve had answered through the gateway; waits for a person
    between two steps are not in it. None = it never answered, or ran before the leg began.
    """
    names = [p.name for p in phases if p.leg == leg]
    if not {"start", "verify"} <= set(names):
        return None
    seconds = [p.seconds for p in phases if p.leg == leg]
    return round(sum(seconds[: names.index("verify") + 1]), 3)


def rechecked(drill: DrillRecord, at: str, found: Comparison) -> DrillRecord:
    """A later record: the box as it is now against the start of that drill."""
    return replace(
        drill, at=at, outcome="differs" if found.differences else "restored", restore_s=None, home_s=None,
        phases=(), differences=found.differences, expected=found.expected, unread=found.unread, why="",
        recheck=True,
    )  # fmt: skip


# many drills


@dataclass(frozen=True, slots=True)
class Trend:
    """Times to restore of one role by one way back, on this box: `newest` and `median`, in seconds."""

    role: str
    way_back: str
    drills: int
    newest_s: float
    median_s: float
    home_newest_s: float | None
    home_median_s: float | None


def trends(drills: Iterable[DrillRecord]) -> tuple[Trend, ...]:
    """By role and way back, in the order of their first drill. A simulated copy says nothing about times."""
    groups: dict[tuple[str, str], list[DrillRecord]] = {}
    for d in drills:
        if d.place == "box" and not d.recheck and d.restore_s is not None:
            groups.setdefault((d.role, d.way_back_name), []).append(d)
    return tuple(_trend(role, name, group) for (role, name), group in groups.items())


def _trend(role: str, way_back: str, group: Sequence[DrillRecord]) -> Trend:
    away = [d.restore_s for d in group if d.restore_s is not None]
    home = [d.home_s for d in group if d.home_s is not None]
    return Trend(
        role,
        way_back,
        len(away),
        away[-1],
        median(away),
        home[-1] if home else None,
        median(home) if home else None,
    )


def trend_line(trend: Trend) -> str:
    """`primary by glm53-1m-k5: 3 drills, way back answered after 41.2 s (median 44.0 s), home 39.9 s (…)`"""
    home = ""
    if trend.home_newest_s is not None and trend.home_median_s is not None:
        home = f", home {trend.home_newest_s:.1f} s (median {trend.home_median_s:.1f} s)"
    return (
        f"{trend.role} by {trend.way_back}: {trend.drills} drill{'s' * (trend.drills != 1)}, the way back "
        f"answered after {trend.newest_s:.1f} s (median {trend.median_s:.1f} s){home}"
    )


def last_drill(drills: Iterable[DrillRecord], role: str, way_back: str = "") -> DrillRecord | None:
    """The newest drill of a role on this box, of that way back (a full container id) if one is named."""
    mine = [d for d in drills if d.role == role and d.place == "box" and not d.recheck]
    mine = [d for d in mine if not way_back or d.way_back == way_back]
    return mine[-1] if mine else None


def outcome_words(drill: DrillRecord) -> str:
    """`restored`, or what else: a drill that left a difference never reads as restored."""
    count = len(drill.differences)
    words: str = drill.outcome
    if drill.outcome == "differs":
        words = f"restored with {count} difference{'s' * (count != 1)}"
    elif count:
        words += f", {count} difference{'s' * (count != 1)}"
    return words + (f", {len(drill.unread)} facts not known" if drill.unread else "")


def drill_line(drill: DrillRecord) -> str:
    """One drill or recheck on one line, newest facts of the list first."""
    place = "" if drill.place == "box" else " on a simulated copy"
    kind = "recheck" if drill.recheck else "drill"
    times = [
        f"{word} {s:.1f} s" for word, s in (("away", drill.restore_s), ("home", drill.home_s)) if s is not None
    ]
    names = f"{drill.incumbent_name} -> {drill.way_back_name} -> {drill.incumbent_name}"
    took = f"  {', '.join(times)}" if times else ""
    when = with_zone(parse_time(drill.at), UTC)
    return f"{drill.operation}  {when}  {kind}{place} of {drill.role}: {names}  {outcome_words(drill)}{took}"


def drill_lines(drill: DrillRecord) -> Iterator[str]:
    """One drill in full."""
    yield drill_line(drill)
    yield f"  incumbent  {drill.incumbent_name} {drill.incumbent}"
    yield f"  way back   {drill.way_back_name} {drill.way_back}"
    if drill.why:
        yield f"  {drill.why}"
    yield from (f"  {p.leg:5} {p.name:10} {p.seconds:9.3f} s" for p in drill.phases)
    kinds = (("DIFFERS", drill.differences), ("by the drill itself", drill.expected), ("not known", drill.unread))
    for word, rows in kinds:
        yield from (f"  {word}: {row}" for row in rows)
    if drill.place == "copy":
        yield f"  {COPY_SAYS}"


COPY_SAYS = (
    "a simulated copy shows the steps, the order and the gateway; load times are simulated, no weights are read, "
    "no GPU and no image of this box is used"
)
