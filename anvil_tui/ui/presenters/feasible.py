"""What is known before a load: class, each card's margin, what it rests on; and what a qualification is worth."""

from __future__ import annotations

from anvil_tui.core.feasibility import FeasibilityClass
from anvil_tui.core.heaps import mib
from anvil_tui.core.holding import Holding, State, words
from anvil_tui.core.present import ground_of
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.screening import Feasible, amount_text, feasible, heap_text, other_unknowns
from anvil_tui.core.world import World
from anvil_tui.ui.presenters.cells import BLANK, Cell, Row, Tone, facts, row
from anvil_tui.ui.text import NA, literal

_CLASSES: dict[FeasibilityClass, Tone] = {
    "empirically-disqualified": "bad",
    "proven-infeasible": "bad",
    "modeled-infeasible": "bad",
    "policy-infeasible": "warn",
    "requirements-disqualified": "bad",
    "unresolved": "warn",
    "benchmark-survivor": "text",
    "math-qualified": "good",
    "verified-by-waiver": "good",
}
_STATES: dict[State, tuple[str, Tone]] = {
    "never": ("never", "dim"),
    "failed": ("failed", "bad"),
    "holds": ("holds", "good"),
    "drifted": ("drifted", "warn"),
    "cannot-tell": ("unclear", "warn"),
}


def state_cell(world: World, recipe: Recipe, *, dated: bool) -> tuple[str, Tone]:
    """For a column: whether the last qualification still holds, and of which day it is."""
    held = world.qualified.get(recipe.id)
    if held is None:
        return NA, "dim"
    text, tone = _STATES[held.state]
    return (f"{text} {held.at[5:10]}" if dated and held.at else text), tone


def qualified(held: Holding | None) -> Cell:
    if held is None:
        return Cell("evidence not read yet", "dim")
    return Cell(literal(words(held), 2000), _STATES[held.state][1])


def screened(world: World, recipe: Recipe) -> Feasible:
    return feasible(recipe, ground_of(world, recipe))


def class_cell(found: Feasible) -> Cell:
    return Cell(found.cls, _CLASSES[found.screen.cls])


def section(found: Feasible, width: int) -> list[Row]:
    """The screen of `core.feasibility` on this box, per rank."""
    pairs: list[tuple[str, list[Cell]]] = [
        ("why", [Cell(literal(found.screen.why, 2000))]),
        ("reserve", [Cell(_reserve(found))]),
        *((literal(h.card.partition(" (")[0], 12), [Cell(literal(heap_text(h), 400))])
          for h in found.screen.heaps),
        *(("part", [Cell(literal(amount_text(p), 600), "dim")]) for p in found.screen.parts),
        *(("unknown", [Cell(literal(f"{a.name}: {a.source}", 600), "warn")])
          for a in other_unknowns(found.screen)),
    ]  # fmt: skip
    if found.note:
        pairs.append(("note", [Cell(literal(found.note, 600), "dim")]))
    return [BLANK, row(Cell("Feasibility per rank", "accent")), *facts(pairs, width)]


def _reserve(found: Feasible) -> str:
    standing = f"{mib(found.standing_mib * 1024 * 1024)} a card"
    return f"{standing}, {mib(found.waiver.reserve_mib * 1024 * 1024)} by waiver" if found.waiver else standing
