"""The journal's vocabulary: one fact a line, and what an operation's facts add up to.

`Record` is one line of `state/operations/ID/journal.ndjson`. `fold` turns a sequence of records into the
`OperationView` that console, `status`, evidence and recovery all read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Literal

from pydantic import TypeAdapter

from anvil_tui.core.gate_kinds import DEEP, LANES
from anvil_tui.core.lanes import LaneRow

JOURNAL_VERSION = 1
WAITS = "waits for you: "
"""How the note of an operation begins that goes step by step and waits for a person."""

_ROW = TypeAdapter(LaneRow)
EARLIER_RUNS = 5

RecordKind = Literal["begin", "intent", "done", "failed", "note", "progress", "gate", "decide", "end"]
Outcome = Literal["done", "undone", "halted"]
StepState = Literal["pending", "running", "done", "failed"]


@dataclass(frozen=True, slots=True)
class Record:
    """`step` is the step's name, with `undo:` in front for the way back; `data` is JSON-able and redacted."""

    seq: int
    at: str
    kind: RecordKind
    step: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    v: int = JOURNAL_VERSION


@dataclass(frozen=True, slots=True)
class StepView:
    name: str
    title: str
    state: StepState = "pending"
    started_at: str | None = None
    ended_at: str | None = None
    deadline_s: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class GateView:
    """`verdict` is `pending` or `running` before there is one. `recipe` is whose serve it judges; `rows` are the
    lane rows that are complete so far, `started_at` is when it began last. `step` is what runs it: a drill runs
    the gates of two serves."""

    id: str
    kind: str
    verdict: str = "pending"
    done: int = 0
    of: int = 0
    reason: str = ""
    elapsed_s: float | None = None
    recipe: str = ""
    rows: tuple[LaneRow, ...] = ()
    started_at: str = ""
    step: str = ""


@dataclass(frozen=True, slots=True)
class OperationView:
    """One operation as its journal tells it.

    `outcome` None = not ended; `started_at` "" = planned, nothing done. `alive` is filled in by whoever can
    see the lease: one without an end whose holder is gone is `interrupted` and waits for resume or undo.
    `paused` = its gates wait, with the lease held, until somebody lets them go on.
    """

    id: str
    kind: str
    target: str
    plan_hash: str = ""
    role: str = ""
    started_at: str = ""
    ended_at: str | None = None
    pid: int | None = None
    steps: tuple[StepView, ...] = ()
    undo_steps: tuple[StepView, ...] = ()
    gates: tuple[GateView, ...] = ()
    decision: Literal["", "forward", "undo"] = ""
    decision_why: str = ""
    outcome: Outcome | None = None
    why: str = ""
    residue: tuple[str, ...] = ()
    last_note: str = ""
    alive: bool = False
    paused: bool = False
    torn: str = ""
    accepted: bool = False

    @property
    def needs_person(self) -> bool:
        """Begun and not at a good end: nothing else may start until it is resumed, undone or accepted."""
        if self.accepted:
            return False
        return (
            bool(self.torn and not self.outcome)
            or self.outcome == "halted"
            or bool(self.started_at and not self.outcome)
        )

    @property
    def waits_for(self) -> str:
        """The title of the step before which it waits for a person, "" = for none."""
        return self.last_note.removeprefix(WAITS) if self.paused and self.last_note.startswith(WAITS) else ""

    @property
    def state(self) -> str:
        if self.outcome:
            return self.outcome
        if not self.started_at:
            return "planned"
        if self.alive:
            return "paused" if self.paused else "running"
        return "interrupted"

    def step(self, name: str) -> StepView | None:
        return next((s for s in (*self.steps, *self.undo_steps) if s.name == name), None)


def fold(records: Iterable[Record]) -> OperationView | None:
    """The view of one operation, or None when there is not even a `begin`."""
    view: OperationView | None = None
    for record in records:
        if record.kind == "begin":
            view = _begun(record)
        elif view is not None:
            view = _next(view, record)
    return view


def _begun(record: Record) -> OperationView:
    d = record.data
    steps = tuple(StepView(s["name"], s["title"], deadline_s=s.get("deadline_s")) for s in d["steps"])
    gates = tuple(
        GateView(g["id"], g["kind"], of=g.get("of", 0), recipe=g.get("recipe", ""), step=g.get("step", ""))
        for g in d.get("gates", ())
    )
    return OperationView(
        d["op"], d["kind"], d["target"], d.get("plan_hash", ""), d.get("role", ""), record.at,
        pid=d.get("pid"), steps=steps, gates=gates,
    )  # fmt: skip


def _next(view: OperationView, record: Record) -> OperationView:
    d = record.data
    match record.kind:
        case "intent":
            return replace(_with_step(view, record, "running"), last_note="")
        case "done":
            return _with_step(view, record, "done")
        case "failed":
            return replace(_with_step(view, record, "failed"), last_note=str(d.get("why", "")))
        case "note" | "progress":
            changed = replace(view, last_note=str(d.get("text", "")), paused=bool(d.get("paused", view.paused)))
            if "pid" in d:  # somebody took it up again: what ended it before is no end
                changed = replace(
                    changed, pid=d["pid"], outcome=None, ended_at=None, why="", residue=(), paused=False
                )
            if not record.step or d.get("waiting"):
                return changed
            return _with_note(changed, record.step, str(d.get("text", "")))
        case "gate":
            return _with_gate(view, record)
        case "decide":
            return replace(view, decision=d["way"], decision_why=str(d.get("why", "")))
        case "end":
            return replace(
                view, outcome=d["outcome"], ended_at=record.at, why=str(d.get("why", "")),
                residue=tuple(d.get("residue", ())), accepted=bool(d.get("accepted")),
            )  # fmt: skip
        case _:
            return view


def _with_step(view: OperationView, record: Record, state: StepState) -> OperationView:
    name, undo = record.step, record.step.startswith("undo:")
    have = view.undo_steps if undo else view.steps
    old = next((s for s in have if s.name == name), None)
    fresh = old or StepView(name, str(record.data.get("title", name)))
    note = str(record.data.get("why") or record.data.get("note") or fresh.note)
    if state == "running":
        fresh = replace(fresh, state=state, started_at=record.at, ended_at=None)
        if "deadline_s" in record.data:
            fresh = replace(fresh, deadline_s=record.data["deadline_s"])
    else:
        fresh = replace(fresh, state=state, ended_at=record.at, note=note)
    steps = tuple(fresh if s.name == name else s for s in have) if old else (*have, fresh)
    return replace(view, undo_steps=steps) if undo else replace(view, steps=steps)


def _with_note(view: OperationView, step: str, text: str) -> OperationView:
    steps = tuple(replace(s, note=text) if s.name == step else s for s in view.steps)
    undo = tuple(replace(s, note=text) if s.name == step else s for s in view.undo_steps)
    return replace(view, steps=steps, undo_steps=undo)


def _with_gate(view: OperationView, record: Record) -> OperationView:
    d = record.data
    mine = [g for g in view.gates if g.id == d["id"] and (not record.step or g.step in ("", record.step))]
    old = mine[0] if mine else GateView(d["id"], d.get("kind", ""), step=record.step)
    new = replace(
        old, kind=d.get("kind", old.kind), verdict=d.get("verdict", "running"), done=d.get("done", old.done),
        of=d.get("of", old.of), reason=d.get("reason", ""), elapsed_s=d.get("elapsed_s"),
        rows=_rows(old.rows, d), started_at=record.at if _begins(d) else old.started_at,
    )  # fmt: skip
    if not mine:
        return replace(view, gates=(*view.gates, new))
    return replace(view, gates=tuple(new if g is old else g for g in view.gates))


def _rows(have: tuple[LaneRow, ...], d: Mapping[str, Any]) -> tuple[LaneRow, ...]:
    """A gate that begins anew has no rows yet."""
    if d.get("row"):
        return (*have, _ROW.validate_python(d["row"]))
    return () if _begins(d) else have


def _begins(d: Mapping[str, Any]) -> bool:
    return d.get("verdict") == "running" and not d.get("done")


def usual_s(gate: GateView, earlier: Iterable[OperationView]) -> float | None:
    """Median seconds that this gate took on the same recipe, over its newest passes; None = it never passed.

    A lane that runs counts requests; one that has ended is one of one.
    """
    took = [
        g.elapsed_s
        for view in earlier
        for g in view.gates
        if (g.id, g.kind, g.recipe) == (gate.id, gate.kind, gate.recipe)
        and (g.of == gate.of or gate.kind in LANES | DEEP)
        and g.verdict == "passed"
        and g.elapsed_s is not None
    ]
    return median(took[-EARLIER_RUNS:]) if took and gate.recipe else None
