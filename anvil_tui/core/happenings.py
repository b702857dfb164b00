"""What happened between two worlds, as lines of the events pane. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from anvil_tui.core.alarms import alarm_text
from anvil_tui.core.journal import OperationView, StepView
from anvil_tui.core.reading import Reading
from anvil_tui.core.times import age_s, parse_time, span, utc_text
from anvil_tui.core.world import Event, Phase, Serve, World

EVENTS_KEPT = 500
HISTORY = 5
"""Ended operations that a console which has just been opened tells of."""

ALARM = "alarm"
"""The source of events about alarms."""

Tone = Literal["plain", "good", "warn", "bad"]
_TONES: dict[str, Tone] = {
    "done": "good", "passed": "good", "undone": "warn", "halted": "bad", "failed": "bad", "errored": "bad",
    "unrunnable": "warn",
}  # fmt: skip
_BAD_PHASES = (Phase.FAILED, Phase.LOST, Phase.ABSENT)


def events_between(old: World, new: World) -> Iterator[Event]:
    """Phase changes, engine restarts, operations' steps and gates, sources that broke or came back, alarms."""
    at = utc_text(new.now_utc)
    yield from _alarms(old, new, at)
    for source, text, tone in (*_serves(old, new), *_sources(old, new)):
        yield Event(at, source, text, tone)
    before = {o.id: o for o in old.operations}
    if not old.operations:
        yield from (_ended(o, at) for o in new.operations[-HISTORY:] if o.outcome)
    for operation in new.operations:
        had = before.get(operation.id)
        if had != operation and (had or old.operations or operation.outcome is None):
            yield from _operation(had, operation, at)


def _serves(old: World, new: World) -> Iterator[tuple[str, str, Tone]]:
    before = {s.container.id: s for s in old.serves}
    for serve in new.serves:
        had = before.get(serve.container.id)
        if (had is None and old.serves) or (had and had.phase is not serve.phase):
            yield serve.name, _became(serve), _tone(serve)
        trail, was = new.trails.get(serve.container.id), old.trails.get(serve.container.id)
        if trail and was and trail.restarts > was.restarts:
            yield serve.name, f"engine restarted (its counters began anew, restart {trail.restarts} seen)", "warn"
    gone = before.keys() - {s.container.id for s in new.serves}
    for container_id in sorted(gone):
        yield before[container_id].name, f"gone ({container_id[:12]})", "plain"


def _became(serve: Serve) -> str:
    why = f": {serve.why}" if serve.why and serve.why != serve.phase else ""
    return f"{serve.phase}{why} ({serve.container.id[:12]})"


def _tone(serve: Serve) -> Tone:
    return "bad" if serve.phase in _BAD_PHASES else "good" if serve.phase is Phase.SERVING else "plain"


def _sources(old: World, new: World) -> Iterator[tuple[str, str, Tone]]:
    pairs: tuple[tuple[str, Reading[Any], Reading[Any]], ...] = (
        ("gpus", old.gpus, new.gpus), ("host", old.host, new.host),
        ("containers", old.containers, new.containers), ("gateway", old.gateway, new.gateway),
    )  # fmt: skip
    for name, was, now in pairs:
        if now.state == "error" and was.state != "error":
            yield name, f"cannot be read: {now.reason}", "bad"
        elif now.ok and was.state == "error":
            yield name, "readable again", "good"
    for name, why in new.source_errors.items():
        if name not in old.source_errors:  # the text may hold elapsed seconds: only its coming is news
            yield name, why, "bad"


def _alarms(old: World, new: World, at: str) -> Iterator[Event]:
    """Raised or worse, acknowledged, and ended."""
    if old.alarms is new.alarms:
        return
    before, now = {a.id: a for a in old.alarms}, {a.id: a for a in new.alarms}
    for a in new.alarms:
        had = before.get(a.id)
        if had is None or had.since != a.since or had.grade < a.grade:
            yield Event(a.since if had is None else at, ALARM, f"raised: {alarm_text(a)}", a.severity)
        elif a.acked_by and not had.acked_by:
            yield Event(a.acked_at, ALARM, f"acknowledged by {a.acked_by}: {a.kind}: {a.text}")
    for a in old.alarms:
        if a.id not in now:
            lasted = span(age_s(parse_time(a.since), new.now_utc) or 0)
            yield Event(at, ALARM, f"ended after {lasted}: {a.kind}: {a.text}", "good")


def _operation(had: OperationView | None, now: OperationView, at: str) -> Iterator[Event]:
    if had is None:
        yield Event(now.started_at or at, now.kind, f"{now.target}: begun ({now.id})")
    steps = {s.name: s for s in (*had.steps, *had.undo_steps)} if had else {}
    for step in (*now.steps, *now.undo_steps):
        was = steps.get(step.name)
        if step.state != "pending" and (was is None or was.state != step.state):
            yield _step(now, step, at)
    verdicts = {g.id: g.verdict for g in had.gates} if had else {}
    for gate in now.gates:
        if gate.verdict not in ("pending", "running", verdicts.get(gate.id)):
            why = f": {gate.reason}" if gate.reason else ""
            yield Event(at, now.kind, f"gate {gate.id} {gate.verdict}{why}", _TONES.get(gate.verdict, "plain"))
    if now.decision and (had is None or had.decision != now.decision):
        yield Event(at, now.kind, f"decided {now.decision}: {now.decision_why}")
    if now.outcome and (had is None or had.outcome != now.outcome):
        text = f"{now.target}: {now.outcome}{': ' + now.why if now.why else ''}"
        yield Event(now.ended_at or at, now.kind, text, _TONES.get(now.outcome, "plain"))


def _ended(operation: OperationView, at: str) -> Event:
    tone = _TONES.get(operation.outcome or "", "plain")
    why = f": {operation.why}" if operation.why else ""
    return Event(operation.ended_at or at, operation.kind, f"{operation.target}: {operation.outcome}{why}", tone)


def _step(operation: OperationView, step: StepView, at: str) -> Event:
    when = (step.started_at if step.state == "running" else step.ended_at) or at
    note = f": {step.note}" if step.note else ""
    tone: Tone = "bad" if step.state == "failed" else "plain"
    return Event(when, operation.kind, f"{step.name} {step.state}{note}", tone)
