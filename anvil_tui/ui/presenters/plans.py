"""A plan as an operator reads it before confirming."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from anvil_tui.core.drills import HOME
from anvil_tui.core.plan import Plan
from anvil_tui.core.times import span
from anvil_tui.core.world import World
from anvil_tui.ui import glyphs
from anvil_tui.ui.presenters.cells import BLANK, Cell, Panel, Row, Tone, facts, item, right, row, sentence
from anvil_tui.ui.presenters.operations import current_step, leg_of
from anvil_tui.ui.text import chop, clip, literal

# What a line of a diff begins with; the names of the two files before what is added and taken away.
_DIFF: tuple[tuple[str, Tone], ...] = (
    ("+++", "dim"), ("---", "dim"), ("@@", "accent"), ("+", "good"), ("-", "bad"),
)  # fmt: skip


def panel(plan: Plan, width: int) -> Panel:
    """Target, interruption, memory, way back, failure, then diffs, steps and gates. Nothing is cut."""
    rows = [*_closed(plan, width), *facts(_summary(plan), width), *_warnings(plan, width), BLANK]
    for text in plan.details:
        rows += [*_detail(text, width), BLANK]
    rows += _steps(plan, width)
    if plan.gates:
        rows += [BLANK, *_gates(plan, width)]
    if plan.undo_steps:
        rows += [BLANK, row(Cell(f"Way back if it fails: {_steps_text(len(plan.undo_steps))}", "accent"))]
        for number, step in enumerate(plan.undo_steps, 1):
            rows += _step(number, step.title, step.deadline_s, width)
    return Panel(literal(plan.title, 200), tuple(rows), Cell(f"plan {plan.hash}", "dim"))


def _steps_text(n: int) -> str:
    return "1 step" if n == 1 else f"{n} steps"


def _closed(plan: Plan, width: int) -> list[Row]:
    rows: list[Row] = []
    for why in plan.refusals:
        rows += sentence(f"{glyphs.BAD} {literal(why, 1000)}", width, "bad")
    return [*rows, BLANK] if rows else []


def _warnings(plan: Plan, width: int) -> list[Row]:
    rows: list[Row] = []
    for text in plan.warnings:
        rows += sentence(f"{glyphs.WARN} {literal(text, 1000)}", width, "warn")
    return rows


def _detail(text: str, width: int) -> Iterator[Row]:
    """A diff, line by line with its blanks; what goes on in the next row begins two cells further in."""
    for line in text.splitlines():
        tone: Tone = next((t for mark, t in _DIFF if line.startswith(mark)), "text")
        first, *more = chop(literal(line.expandtabs(4), 20_000), max(8, width - 2))
        yield row(Cell(first, tone))
        yield from (row("  ", Cell(part, tone)) for part in more)


def _summary(plan: Plan) -> list[tuple[str, str | list[Cell]]]:
    quiet = plan.outage in ("", "none")
    outage: Tone = "text" if quiet else "warn"
    pairs: list[tuple[str, str | list[Cell]]] = [(name, value) for name, value in targets(plan)]
    pairs += [
        ("interrupts", literal(plan.interrupts, 1000) or "nothing"),
        ("for how long", literal(plan.outage, 600) if quiet else [Cell(literal(plan.outage, 600), outage)]),
    ]
    if plan.memory:
        pairs.append(("GPU memory", literal(plan.memory, 1000)))
    pairs += [("rollback", literal(plan.rollback, 1000)), ("on failure", literal(plan.on_failure, 1000))]
    return [p for p in pairs if p[1]]


def targets(plan: Plan) -> list[tuple[str, str]]:
    """The exact target: every id the plan is frozen on, in full."""
    found: list[tuple[str, str]] = []
    facts_ = plan.facts
    for name in ("recipe", "serve", "incumbent"):
        value = facts_.get(name)
        if isinstance(value, Mapping):
            found.append((name, literal(_named(value), 300)))
    intent = plan.intent
    if intent.container_id and not any(intent.container_id in text for _, text in found):
        found.append(("container", literal(intent.container_id, 128)))
    if intent.recipe and not any(n == "recipe" for n, _ in found):
        found.append(("recipe", literal(intent.recipe, 200)))
    role = intent.role or str(facts_.get("role", ""))
    return [*found, ("role", literal(role))] if role else found


def _named(value: Mapping[str, Any]) -> str:
    parts = [str(value[k]) for k in ("id", "slot") if value.get(k)]
    digest = str(value.get("digest", ""))
    return "  ".join([*parts, *([f"digest {digest[:12]}"] if digest else [])]) or json.dumps(
        dict(value), default=str
    )


def _steps(plan: Plan, width: int) -> list[Row]:
    rows = [row(Cell(f"Steps {len(plan.steps)}", "accent"))]
    two_legs, was = any(s.name.endswith(HOME) for s in plan.steps), ""
    for number, step in enumerate(plan.steps, 1):
        if two_legs and (now := leg_of(step.name)) not in ("", was):
            rows.append(row(Cell(f"  {now}", "strong")))
            was = now
        rows += _step(number, step.title, step.deadline_s, width)
    return rows


def _step(number: int, title: str, deadline_s: float, width: int) -> list[Row]:
    most = [Cell(f" at most {span(deadline_s)}", "faint")]
    return item([right(str(number), 3, "faint"), Cell("  ")], literal(title, 400), "text", most, width)


def _gates(plan: Plan, width: int) -> list[Row]:
    rows = [row(Cell(f"Gates {len(plan.gates)}", "accent"))]
    recipes = dict.fromkeys(str(g.get("recipe", "")) for g in plan.gates)
    for recipe in recipes:
        mine = [g for g in plan.gates if str(g.get("recipe", "")) == recipe]
        whose = f"{literal(recipe, 80)}: " if len(recipes) > 1 else ""
        names = ", ".join(clip(literal(g.get("id", "?")), 40) for g in mine)
        rows += sentence(f"{whose}{names}", width, "text", indent=2)
    return rows


def moved_note(old: str, new: str, mover: str = "") -> str:
    """`mover` is whose operation it was, as `mover` tells it."""
    why = f"{mover} moved the facts" if mover else "The facts moved"
    return f"{why} while this was open: plan {old} is now {new}. Read it again."


def mover(before: World, now: World) -> str:
    """The newest operation that began, or came further, between two moments; "" = none."""
    known = {o.id: (o.state, current_step(o)[0]) for o in before.operations}
    moved = [o for o in now.operations if known.get(o.id) != (o.state, current_step(o)[0])]
    if not moved:
        return ""
    lease = next((x for x in (now.lease, before.lease) if x and x.operation == moved[-1].id), None)
    at = f"@{literal(lease.host, 40)}" if lease and lease.host else ""
    whose = f" of {literal(lease.user, 40)}{at}" if lease else ""
    return f"{moved[-1].kind} {moved[-1].id}{whose}"
