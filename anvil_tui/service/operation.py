"""One operation from plan to end, under the box's lease: console, command line and recovery all come here."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal

from anvil_tui.core.errors import Refused
from anvil_tui.core.journal import Outcome, Record
from anvil_tui.core.plan import Plan
from anvil_tui.ports.operations import Journal
from anvil_tui.service.box import Box, Controls
from anvil_tui.service.credentials import fingerprints
from anvil_tui.service.drill import keep
from anvil_tui.service.drill import keep
from anvil_tui.service.executor import Executor
from anvil_tui.service.planning import gather, plan
from anvil_tui.service.run import Run

Mode = Literal["start", "resume", "undo"]

WHY = {"resume": "its process ended before the decision", "undo": "asked by the operator"}


def prepare(box: Box, made: Plan) -> str:
    """Freeze a plan in a folder of its own; returns the operation id, which sorts by time."""
    if made.refusals:
        raise Refused("; ".join(made.refusals))
    now = box.clock.utc()
    operation = f"{now:%Y%m%dT%H%M%S}{now.microsecond // 1000:03d}-{made.intent.verb}-{secrets.token_hex(2)}"
    box.operations.create(operation, made.to_json())
    return operation


def operate(
    box: Box,
    controls: Controls,
    operation: str,
    mode: Mode = "start",
    *,
    pid: int,
    interrupted: Callable[[], str | None],
    checkpoint: Callable[[str], None],
) -> Outcome:
    """Run, resume or undo one operation to its end. Refused when the lease is held or there is nothing to do.

    `interrupted` says why to stop (None = go on); `checkpoint` is told every point between two effects.
    """
    box.lease.take(operation)
    try:
        stored = Plan.from_json(box.operations.plan(operation))
        journal = box.operations.journal(operation)
        if damage := journal.damage():
            raise Refused(
                f"{damage}: what it decided is not certain, so nothing is done by itself; compare the box with "
                f"the lines before it, set it right, then `operations accept {operation}`"
            )
        begun = _taken_up(box, journal, operation, stored, mode, pid)
        if isinstance(begun, str):
            return "undone"
        run = Run(
            operation, begun.data["generation"], begun.at, stored, box, controls, journal, checkpoint, interrupted
        )
        executor = Executor(run)
        if mode == "start" or (mode == "resume" and executor.repeatable()):
            return executor.forward()
        return executor.recover(WHY[mode])
    finally:
        box.lease.release()


def _taken_up(
    box: Box, journal: Journal, operation: str, stored: Plan, mode: Mode, pid: int
) -> Record | Literal["not begun"]:
    """The `begin` of the operation, written now or found; "not begun" when it ended before its first step."""
    begun = next((r for r in journal.records() if r.kind == "begin"), None)
    if begun is None and mode != "start":
        box.operations.unstage(operation)
        return _never_began(journal, operation, stored)
    if begun is None:
        if moved := _moved(box, operation, stored):
            box.operations.unstage(operation)
            return _refuse(journal, operation, stored, moved)
        return _begin(box, journal, operation, stored, pid)
    if mode == "start" or _ended_well(journal.records()):
        raise Refused(f"operation {operation} was started before; a new one is a new plan")
    journal.append("note", text=f"{mode} by process {pid}", pid=pid)
    return begun


def accept(box: Box, operation: str, reason: str) -> None:
    """A person has seen to it: the operation no longer stands in the way. What it did is not changed."""
    box.lease.take(operation)
    try:
        journal = box.operations.journal(operation)
        if _ended_well(journal.records()):
            raise Refused(f"operation {operation} has ended; there is nothing to accept")
        if not any(r.kind == "begin" for r in journal.records()):
            journal.append(
                "begin", **_begin_data(operation, Plan.from_json(box.operations.plan(operation))), generation=0
            )
        if all(d.operation != operation for d in box.store.drills()):
            keep(box, operation, "halted", f"accepted: {reason}")
        if all(d.operation != operation for d in box.store.drills()):
            keep(box, operation, "halted", f"accepted: {reason}")
        journal.append("end", outcome="halted", why=f"accepted: {reason}", residue=[], accepted=True)
        box.operations.unstage(operation)
    finally:
        box.lease.release()


def _ended_well(records: Iterable[Record]) -> bool:
    """Done or undone, or accepted by a person; `halted` may be taken up again."""
    ends = [r.data for r in records if r.kind == "end"]
    return bool(ends) and (ends[-1]["outcome"] != "halted" or bool(ends[-1].get("accepted")))


def _moved(box: Box, operation: str, stored: Plan) -> str:
    """Why the plan no longer holds ("" = it does): made again under the lease, it must be the same."""
    fresh = plan(box, stored.intent, gather(box, ignore=operation))
    if fresh.refusals:
        return "; ".join(fresh.refusals)
    if fresh.hash == stored.hash:
        return ""
    moved = [k for k in {*fresh.facts, *stored.facts} if fresh.facts.get(k) != stored.facts.get(k)]
    return f"the facts moved since the plan was made ({', '.join(sorted(moved)) or 'steps'}): plan again"


def _begin(box: Box, journal: Journal, operation: str, made: Plan, pid: int) -> Record:
    generation = _raised(box)
    digests = {str(s.args["digest"]) for s in made.steps if "digest" in s.args}
    for file in box.recipes():
        if file.recipe and file.recipe.digest() in digests:
            box.store.keep_recipe(file.recipe)
    return journal.append(
        "begin", **_begin_data(operation, made), generation=generation, pid=pid,
        operator=_operator(box), facts=dict(made.facts), credentials=fingerprints(box),
    )  # fmt: skip


def _begin_data(operation: str, made: Plan) -> dict[str, Any]:
    return {
        "op": operation,
        "kind": made.intent.verb,
        "target": made.title.removeprefix(f"{made.intent.verb} "),
        "role": made.facts.get("role", ""),
        "plan_hash": made.hash,
        "reason": made.intent.reason,
        "steps": [{"name": s.name, "title": s.title, "deadline_s": s.deadline_s} for s in made.steps],
        "gates": list(made.gates),
    }


def _refuse(journal: Journal, operation: str, made: Plan, why: str) -> Literal["not begun"]:
    journal.append("begin", **_begin_data(operation, made), generation=0)
    journal.append("end", outcome="undone", why=f"refused before step 1: {why}", residue=[], refused=True)
    return "not begun"


def _never_began(journal: Journal, operation: str, made: Plan) -> Literal["not begun"]:
    journal.append("begin", **_begin_data(operation, made), generation=0)
    journal.append("end", outcome="undone", why="its process ended before step 1: nothing was done", residue=[])
    return "not begun"
