"""What calls for a person: raised and ended with hysteresis, acknowledged by one. Pure; kinds: `alarm_rules.py`.

A level counts as on or off only by what was read: while a reading is unknown, stale or an error, the seconds
towards an alarm or towards its end stand still.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from anvil_tui.core.times import age_s, parse_time, utc_text

Severity = Literal["warn", "bad"]
LevelState = Literal["on", "between", "off", "unknown"]
# What happens again so soon after it was acknowledged is no news.
SAME_S = 60.0


@dataclass(frozen=True, slots=True)
class Alarm:
    """`id` is `KIND:TARGET`, with the target's stable id. `since` is UTC text; `acked_by` "" = nobody yet.

    `grade` says how bad it is among its kind: when it grows, an acknowledged alarm is a new one.
    """

    id: str
    kind: str
    target: str
    severity: Severity
    since: str
    text: str
    acked_by: str = ""
    acked_at: str = ""
    grade: int = 0


@dataclass(frozen=True, slots=True)
class Level:
    """What one kind says of one target now. `between` is not on and not clear by its margin.

    It must be on for `hold_s` seconds to be raised, and off for `clear_s` to end. An `event` is on only in the
    world in which it happened; each is worse than the one before.
    """

    kind: str
    target: str
    state: LevelState
    severity: Severity = "warn"
    text: str = ""
    hold_s: float = 0.0
    clear_s: float = 0.0
    grade: int = 0
    event: bool = False

    @property
    def id(self) -> str:
        return f"{self.kind}:{self.target}"


@dataclass(frozen=True, slots=True)
class Mark:
    """Seconds towards raising an alarm, or towards its end; `at_s` None = they stand still."""

    seconds: float = 0.0
    at_s: float | None = None

    def more(self, now_s: float) -> Mark:
        return Mark(self.seconds + (0.0 if self.at_s is None else max(0.0, now_s - self.at_s)), now_s)


NONE = Mark()
Marks = Mapping[str, Mark]


def step(
    have: Iterable[Alarm], marks: Marks, levels: Iterable[Level], unsure: Collection[str],
    now_s: float, now: datetime, clear_s: float,
) -> tuple[tuple[Alarm, ...], Marks]:  # fmt: skip
    """The alarms and marks after one more world. `unsure` are kinds of which a target that is not named may still
    be there; of the others it is gone, and its alarm ends after `clear_s`."""
    found, open_ones = {level.id: level for level in levels}, {a.id: a for a in have}
    alarms: list[Alarm] = []
    kept: dict[str, Mark] = {}
    for name in dict.fromkeys((*open_ones, *found, *marks)):
        alarm, mark = open_ones.get(name), marks.get(name, NONE)
        level = found.get(name) or _absent(name, unsure, clear_s)
        if alarm is None and mark is NONE and level.state != "on":
            continue  # nearly all of them, ten times a second
        alarm, mark = _one(alarm, mark, level, now_s, now)
        if alarm is not None:
            alarms.append(alarm)
        if mark != NONE:
            kept[name] = mark
    return tuple(alarms), kept


def _absent(name: str, unsure: Collection[str], clear_s: float) -> Level:
    kind, _, target = name.partition(":")
    return Level(kind, target, "unknown" if kind in unsure else "off", clear_s=clear_s)


def _one(alarm: Alarm | None, mark: Mark, level: Level, now_s: float, now: datetime) -> tuple[Alarm | None, Mark]:
    if alarm is not None:
        alarm = _worse(alarm, level, now)
    if level.state == "unknown":
        return alarm, replace(mark, at_s=None)
    if level.state != ("on" if alarm is None else "off"):
        return alarm, NONE
    mark = mark.more(now_s)
    if mark.seconds < (level.hold_s if alarm is None else level.clear_s):
        return alarm, mark
    return (_raised(level, now) if alarm is None else None), NONE


def _raised(level: Level, now: datetime) -> Alarm:
    at = utc_text(now)
    return Alarm(level.id, level.kind, level.target, level.severity, at, level.text, grade=level.grade)


def _worse(alarm: Alarm, level: Level, now: datetime) -> Alarm:
    """An acknowledged one that grew worse is a new one, unless it is the same again so soon after; of one that
    nobody has acknowledged the words follow, but those of a bad one stay before those of a warning."""
    if level.state != "on" or not (level.event or level.grade > alarm.grade or _outdoes(level, alarm)):
        return alarm
    grade = max(level.grade, alarm.grade + 1)
    if not alarm.acked_by:
        if _outdoes(alarm, level):
            return replace(alarm, grade=grade)
        return replace(alarm, severity=level.severity, text=level.text, grade=grade)
    if (age_s(parse_time(alarm.acked_at), now) or 0.0) < SAME_S and not _outdoes(level, alarm):
        return alarm
    return replace(_raised(level, now), grade=grade)


def _outdoes(one: Alarm | Level, other: Alarm | Level) -> bool:
    return one.severity == "bad" and other.severity == "warn"


def adopted(have: tuple[Alarm, ...], kept: Iterable[Alarm]) -> tuple[Alarm, ...]:
    """With the alarms that another process left open: nobody is called twice because a watcher was restarted."""
    known = {a.id for a in have}
    return (*have, *(k for k in kept if k.id not in known))


def with_acks(have: Iterable[Alarm], kept: Iterable[Alarm]) -> tuple[Alarm, ...]:
    """With the acknowledgements of other consoles. One of before an alarm was raised is not for it, unless this
    console only saw a little later what was acknowledged there."""
    acked = {k.id: k for k in kept if k.acked_by}
    return tuple(
        replace(a, acked_by=k.acked_by, acked_at=k.acked_at)
        if (k := acked.get(a.id)) and not a.acked_by and _covers(k, a)
        else a
        for a in have
    )


def _covers(kept: Alarm, alarm: Alarm) -> bool:
    since, acked = parse_time(alarm.since), parse_time(kept.acked_at)
    late_s = 0.0 if since is None or acked is None else (since - acked).total_seconds()
    return late_s <= 0 or (late_s < SAME_S and alarm.grade <= kept.grade and not _outdoes(alarm, kept))


def acknowledge(alarm: Alarm, by: str, at: datetime) -> Callable[[tuple[Alarm, ...]], tuple[Alarm, ...]]:
    """What it makes of the open alarms of the box; the first who acknowledged one stays."""

    def changed(kept: tuple[Alarm, ...]) -> tuple[Alarm, ...]:
        mine = next((k for k in kept if k.id == alarm.id), alarm)
        done = mine if mine.acked_by else replace(mine, acked_by=by, acked_at=utc_text(at))
        return (*(k for k in kept if k.id != alarm.id), done)

    return changed


def ordered(alarms: Iterable[Alarm]) -> list[Alarm]:
    """As they concern a person: not acknowledged first, then bad before warn, then the newest."""
    newest = sorted(alarms, key=lambda a: a.since, reverse=True)
    return sorted(newest, key=lambda a: (bool(a.acked_by), a.severity != "bad"))


def alarm_text(alarm: Alarm) -> str:
    """One line: `bad gpu-lost: GPU 1 …`, with who acknowledged it."""
    acked = f" (acknowledged by {alarm.acked_by} at {alarm.acked_at[:19]}Z)" if alarm.acked_by else ""
    return f"{alarm.severity} {alarm.kind}: {alarm.text}{acked}"
