"""A plan as an operator reads it before confirming."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from anvil_tui.core.plan import Plan
from anvil_tui.core.times import span
from anvil_tui.ui import glyphs
from anvil_tui.ui.presenters.cells import BLANK, Cell, Panel, Row, Tone, facts, item, right, row, sentence
from anvil_tui.ui.text import clip, literal


def panel(plan: Plan, width: int) -> Panel:
    """Target, interruption, memory, way back, failure, then steps and gates. Nothing is cut."""
    rows = [*_closed(plan, width), *facts(_summary(plan), width), *_warnings(plan, width), BLANK]
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
    for number, step in enumerate(plan.steps, 1):
        rows += _step(number, step.title, step.deadline_s, width)
    return rows


def _step(number: int, title: str, deadline_s: float, width: int) -> list[Row]:
    most = [Cell(f" at most {span(deadline_s)}", "faint")]
    return item([right(str(number), 3, "faint"), Cell("  ")], literal(title, 400), "text", most, width)


def _gates(plan: Plan, width: int) -> list[Row]:
    names = ", ".join(clip(literal(g.get("id", "?")), 40) for g in plan.gates)
    return [row(Cell(f"Gates {len(plan.gates)}", "accent")), *sentence(names, width, "text", indent=2)]


def moved_note(old: str, new: str) -> str:
    return f"The facts moved while this was open: plan {old} is now {new}. Read it again."
