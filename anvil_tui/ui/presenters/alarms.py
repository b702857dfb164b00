"""Alarms wherever they are shown: counted in the header, named where the eye goes, in full on the standing screen.

No filter hides them. What nobody has acknowledged comes first; the key of a line is `alarm:ID`.
"""

from __future__ import annotations

from collections.abc import Iterator

from anvil_tui.core.alarms import Alarm, Severity, ordered
from anvil_tui.core.world import World
from anvil_tui.ui import glyphs
from anvil_tui.ui.keymap import key
from anvil_tui.ui.presenters.cells import BLANK, Cell, Row, Tone, View, facts, sentence, spread
from anvil_tui.ui.text import clock, literal, stamp

MARKS: dict[Severity, tuple[str, Tone]] = {"bad": (glyphs.BAD, "bad"), "warn": (glyphs.WARN, "warn")}
SHOWN = 4
"""Of so many a line stands over the events."""


def waiting(world: World) -> list[Alarm]:
    """Those that nobody has acknowledged, as they concern a person."""
    return [a for a in ordered(world.alarms) if not a.acked_by]


def counts(world: World, brief: int) -> list[Cell]:
    """`ALARMS ✖ 2 bad ▲ 1 warn`, as short as `brief` says, never without the word; [] = there is none."""
    unseen = waiting(world)
    acked = len(world.alarms) - len(unseen)
    if not unseen:
        words = f"{acked} alarm{'s' * (acked > 1)} acked" if brief < 2 else f"{acked} acked"
        return [Cell(words, "dim")] if acked else []
    worst: Severity = unseen[0].severity
    cells = [Cell("ALARM" if len(unseen) == 1 else "ALARMS", MARKS[worst][1])]
    for severity, (glyph, tone) in MARKS.items():
        if count := sum(a.severity == severity for a in unseen):
            cells.append(
                Cell(f" {glyph} {count} {severity}" if brief < 2 else f" {glyph}{count} {severity}", tone)
            )
    return [*cells, *([Cell(f" +{acked} acked", "dim")] if acked and brief < 1 else [])]


def line(world: World, view: View, width: int) -> Row | None:
    """The one that concerns a person most, with the key that acknowledges it; None = there is none."""
    unseen = waiting(world)
    if not unseen:
        return None
    first = unseen[0]
    glyph, tone = MARKS[first.severity]
    more = f" (+{len(unseen) - 1})" if len(unseen) > 1 else ""
    ack = [] if world.read_only else [Cell(f" {key('alarm.ack')}", "accent"), Cell(" acknowledge ", "dim")]
    text = f" {glyph} ALARM{more}: {literal(first.text, 400)}"
    return spread([Cell(text, tone), Cell(f"  {_since(first, view)}", "dim")], ack if width >= 60 else [], width)


def _since(alarm: Alarm, view: View) -> str:
    """The moment and no age: nothing is drawn anew every second."""
    return f"since {clock(alarm.since, view.zone)}"


def event_rows(world: World, view: View, width: int) -> list[Row]:
    """Over the events: what nobody has acknowledged."""
    unseen, rows = waiting(world), list[Row]()
    for alarm in unseen[:SHOWN]:
        glyph, tone = MARKS[alarm.severity]
        rows += sentence(f"{glyph} ALARM {_since(alarm, view)}: {literal(alarm.text, 600)}", width, tone, most=2)
    if len(unseen) > SHOWN:
        rows += sentence(f"and {len(unseen) - SHOWN} alarms more: {key('view.standing')} shows all", width, "warn")
    return rows


def tells(world: World, problem: str) -> bool:
    """Whether an alarm that nobody has acknowledged says what this problem says."""
    subject = problem.partition(":")[0]
    return any(
        problem == a.text or (len(a.target) > 11 and a.target[:12] in subject) for a in waiting(world)[:SHOWN]
    )


def list_rows(world: World, view: View, width: int) -> Iterator[Row]:
    for alarm in ordered(world.alarms):
        glyph, tone = MARKS[alarm.severity]
        tone = "dim" if alarm.acked_by else tone
        seen = f"acked by {literal(alarm.acked_by, 20)} " if alarm.acked_by else ""
        head = [Cell(f"{glyph} {alarm.severity:4} ", tone), Cell(literal(alarm.text, 300), tone)]
        tail = [Cell(f" {seen}{stamp(alarm.since, view.zone)}", "dim")] if width >= 60 else []
        yield spread(head, tail, width, f"alarm:{alarm.id}")


def detail_rows(world: World, view: View, name: str, width: int) -> Iterator[Row]:
    for alarm in (a for a in world.alarms if a.id == name):
        glyph, tone = MARKS[alarm.severity]
        yield from sentence(f"{glyph} {alarm.severity}: {literal(alarm.text, 2000)}", width, tone)
        yield BLANK
        by = (
            f"by {literal(alarm.acked_by, 60)}, {stamp(alarm.acked_at, view.zone)}"
            if alarm.acked_by
            else "by nobody"
        )
        yield from facts([
            ("kind", literal(alarm.kind, 40)), ("target", literal(alarm.target, 200)),
            ("since", stamp(alarm.since, view.zone)), ("acknowledged", by),
        ], width)  # fmt: skip
        yield BLANK
        watcher = world.watcher
        who = (
            f"kept by {literal(watcher.operation, 20)}, {literal(watcher.who, 120)}"
            if watcher
            else "kept by nobody"
        )
        yield from sentence(who, width, "dim")
