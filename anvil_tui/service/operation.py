"""One operation from plan to end, under the box's lease: console, command line and recovery all come here."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from anvil_tui.core.errors import BadFile, EffectFailed, Refused
from anvil_tui.core.facts import Facts
from anvil_tui.core.journal import Outcome, Record
from anvil_tui.core.moved import moved
from anvil_tui.core.plan import Plan
from anvil_tui.ports.operations import Journal
from anvil_tui.service.box import Box, Controls
from anvil_tui.service.credentials import fingerprints
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
    operation = f"{now:%Y%m%dT%H%M%S}{now.microsecond // 1000:03d}-{made.intent.verb}-{secrets.token_hex(3)}"
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
        at, generation = begun
        run = Run(operation, generation, at, stored, box, controls, journal, checkpoint, interrupted)
        executor = Executor(run)
        if mode == "start" or (mode == "resume" and executor.repeatable()):
            return executor.forward()
        return executor.recover(WHY[mode])
    finally:
        box.lease.release()


def _taken_up(
    box: Box, journal: Journal, operation: str, stored: Plan, mode: Mode, pid: int
) -> tuple[str, int] | Literal["not begun"]:
    """When it began, and the generation of this process; "not begun" when it ended before its first step."""
    begun = next((r for r in journal.records() if r.kind == "begin"), None)
    if begun is None and mode != "start":
        box.operations.unstage(operation)
        return _never_began(journal, operation, stored)
    if begun is None:
        if why := _moved(box, operation, stored):
            box.operations.unstage(operation)
            return _refuse(journal, operation, stored, why)
        fresh = _begin(box, journal, operation, stored, pid)
        return fresh.at, fresh.data["generation"]
    if mode == "start" or _ended_well(journal.records()):
        raise Refused(f"operation {operation} was started before; a new one is a new plan")
    return begun.at, _take_over(box, journal, mode, pid)


def _take_over(box: Box, journal: Journal, mode: Mode, pid: int) -> int:
    """Raise the generation, so that a former process of this operation that is not dead after all stops where it
    is; and write down who took it over from whom."""
    before = [r.data for r in journal.records() if "pid" in r.data]
    known = max((int(d.get("generation", 0)) for d in before), default=0)
    try:
        generation = _raised(box)
    except (BadFile, EffectFailed):
        generation = known  # a way back must need neither the record nor room for another one
    who, former = _operator(box), before[-1] if before else {}
    text = (
        f"{mode} by {who}, process {pid}; it was {former.get('operator') or 'somebody'}'s, "
        f"process {former.get('pid', 'unknown')}"
    )
    journal.append("note", text=text, pid=pid, operator=who, generation=generation)
    return generation


def _operator(box: Box) -> str:
    """Who runs this process: the lease, which it holds, says so."""
    holder = box.lease.holder()
    return f"{holder.user}@{holder.host}" if holder else "somebody"


def _raised(box: Box) -> int:
    record = box.store.read()
    box.store.write(replace(record, generation=record.generation + 1), record)
    return record.generation + 1


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
    facts = gather(box, ignore=operation)
    fresh = plan(box, stored.intent, facts)
    whys = [*_replaced(stored, facts), *fresh.refusals]
    if fresh.hash != stored.hash:
        whys.append(f"the facts moved since the plan was made: {'; '.join(moved(stored, fresh))}: plan again")
    return "; ".join(whys)


def _replaced(stored: Plan, facts: Facts) -> Iterable[str]:
    """A container that the plan means is gone and another has its name: never the plan's."""
    for fact in stored.facts.values():
        seen = fact.get("seen") if isinstance(fact, Mapping) else None
        if not seen or fact["id"] in facts.containers:
            continue
        for other in facts.containers.values():
            if other.name == seen.get("name"):
                yield f"{other.name} is now {other.id[:12]}, the plan was for {fact['id'][:12]}"


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
