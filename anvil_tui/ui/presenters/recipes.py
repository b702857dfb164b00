"""Recipes: the list to choose from, with decision, envelope, GPUs and licence, and one in full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anvil_tui.core.recipe import Recipe, Status
from anvil_tui.core.screening import Feasible
from anvil_tui.core.world import RecipeFile, World
from anvil_tui.ui import glyphs
from anvil_tui.ui.presenters import feasible, recipe_diff
from anvil_tui.ui.presenters.cells import (
    BLANK,
    Cell,
    Panel,
    Row,
    Tone,
    View,
    facts,
    left,
    right,
    row,
    sentence,
    spread,
    titled,
)
from anvil_tui.ui.presenters.freshness import empty
from anvil_tui.ui.text import clip, gib, literal, number

_DECISIONS: dict[Status, Tone] = {
    Status.CURRENT: "good",
    Status.ROLLBACK: "accent",
    Status.CHALLENGER: "accent",
    Status.FALLBACK: "text",
    Status.REJECTED: "bad",
    Status.POLICY_INFEASIBLE: "warn",
    Status.UNVERIFIED: "warn",
}

_LICENCES = {"unrestricted": "free", "noncommercial": "noncomm", "evaluation": "eval", "unreviewed": "unread"}
_MARKS = {"unrestricted": "free", "noncommercial": "NC", "evaluation": "eval", "unreviewed": "?"}
_WIDE = 84


def key_of(file: RecipeFile) -> str:
    return file.recipe.id if file.recipe else file.path


def shown(world: World, view: View) -> list[RecipeFile]:
    wanted = view.filter_of("recipes").lower()
    return [f for f in world.recipes if wanted in haystack(f)]


def haystack(file: RecipeFile) -> str:
    if file.recipe is None:
        return file.path.lower()
    decision = file.recipe.decision
    return (
        f"{file.recipe.id} {file.recipe.family} {file.recipe.engine} {decision.status if decision else ''}".lower()
    )


def list_panel(world: World, view: View, width: int, height: int) -> Panel:
    files = shown(world, view)
    rows = [_head(width), *(line(world, f, width, _letter(view, f)) for f in files)]
    if not files:
        told = "No recipe matches." if world.recipes else empty(world, "recipes/ holds no recipe.")
        rows = sentence(told, width, "dim")
    return Panel(titled("Recipes", view.filter_of("recipes"), len(files), len(world.recipes)), tuple(rows))


def _head(width: int) -> Row:
    if width >= _WIDE:
        tail = [
            left("engine", 9, "faint"), right("context", 11, "faint"), right("C", 5, "faint"),
            right("GPUs", 6, "faint"), left("  qualified", 17, "faint"), left("licence", 7, "faint"),
        ]  # fmt: skip
    else:
        tail = [
            right("context", 8, "faint"), right("C", 5, "faint"), left("  qualif.", 10, "faint"),
            left("lic.", 5, "faint"),
        ]  # fmt: skip
    return spread([left("  decision", 14, "faint"), Cell("recipe", "faint")], tail, width)


def marking(view: View) -> View:
    """Mark the recipe under the cursor for comparison, or take its mark away; the older of two gives way."""
    others = tuple(m for m in view.marked if m != view.recipe)
    return replace(view, marked=others if view.recipe in view.marked else (*others, view.recipe)[-2:])


def _letter(view: View, file: RecipeFile) -> str:
    return "AB"[view.marked.index(key_of(file))] if key_of(file) in view.marked else ""


def line(world: World, file: RecipeFile, width: int, letter: str = "") -> Row:
    """One recipe, with its letter in a comparison; a file that cannot be used says why instead."""
    recipe = file.recipe
    if recipe is None:
        cells = [Cell(f"{glyphs.BAD} ", "bad"), left("bad file", 12, "bad")]
        return spread(
            [*cells, Cell(f"{literal(file.path, 80)}: {literal(file.error)}", "bad")], [], width, key_of(file)
        )
    status, tone = _decision(recipe)
    running = any(s.container.running and s.recipe and s.recipe.id == recipe.id for s in world.serves)
    mark = Cell(f"{glyphs.OK} ", "good") if running else Cell("  ")
    tail = _columns(world, recipe, width)
    room = width - 14 - sum(len(c.text) for c in tail)
    lit = [Cell(f"{letter} ", "mark")] if letter else []
    name = left(literal(recipe.id), max(8, room - 1 - 2 * len(lit)), "text" if recipe.loadable else "dim")
    return spread([mark, left(status, 12, tone), *lit, name], tail, width, recipe.id)


def _columns(world: World, recipe: Recipe, width: int) -> list[Cell]:
    """Everything but decision and name; a narrow list leaves engine, GPUs and days to the detail."""
    shape, wide = recipe.envelope, width >= _WIDE
    boundary = recipe.licence.boundary
    licence: Tone = "dim" if boundary == "unrestricted" else "warn"
    held, tone = feasible.state_cell(world, recipe, dated=wide)
    if not wide:
        return [
            right(_thousands(shape.context_tokens), 8), right(f"C{shape.concurrency}", 5),
            left(f"  {held}", 10, tone), left(_MARKS[boundary], 5, licence),
        ]  # fmt: skip
    return [
        left(str(recipe.engine), 9, "dim"), right(number(shape.context_tokens), 11),
        right(f"C{shape.concurrency}", 5), right(_gpus(recipe), 6, "dim"), left(f"  {held}", 17, tone),
        left(_LICENCES[boundary], 7, licence),
    ]  # fmt: skip


def _thousands(tokens: int) -> str:
    """As recipes are named: 393,216 is 393K. The exact number stands in the detail."""
    return f"{tokens // 1000:,}K" if tokens >= 10_000 else number(tokens)


def _gpus(recipe: Recipe) -> str:
    """How many GPUs; `all` when it holds the whole box."""
    count = str(len(recipe.gpus.select))
    return f"{count} all" if recipe.exclusive and recipe.gpus.select else count


def _decision(recipe: Recipe) -> tuple[str, Tone]:
    decision = recipe.decision
    if decision is None:
        return "undecided", "dim"
    return _short(decision.status), _DECISIONS.get(decision.status, "dim")


def _short(status: Status) -> str:
    return "infeasible" if status is Status.POLICY_INFEASIBLE else str(status)


def beside_panel(world: World, view: View, width: int, height: int) -> Panel:
    """Beside the list: two marked recipes against each other, else the one under the cursor."""
    pair = [recipe for name in view.marked if (recipe := world.recipe(name))]
    if len(pair) == 2:
        return recipe_diff.panel(world, pair[0], pair[1], width)
    return detail_panel(world, view, width, height)


def detail_panel(world: World, view: View, width: int, height: int) -> Panel:
    file = next((f for f in world.recipes if key_of(f) == view.recipe), None)
    if file is None:
        return Panel("Recipe", tuple(sentence("Choose a recipe with the arrow keys.", width, "dim")))
    if file.recipe is None:
        return Panel(literal(file.path, 200), tuple(sentence(literal(file.error, 2000), width, "bad")))
    recipe = file.recipe
    found = feasible.screened(world, recipe)
    rows = [
        *_main(world, recipe, found, width), *feasible.section(found, width), *_decisions(recipe, width),
        *_figures(recipe, width),
    ]  # fmt: skip
    return Panel(literal(recipe.id, 200), tuple(rows))


def _main(world: World, recipe: Recipe, found: Feasible, width: int) -> list[Row]:
    shape = recipe.envelope
    gpus = ", ".join(recipe.gpus.select) or "none"
    held = "exclusive: holds the whole box" if recipe.exclusive else "shares the box"
    envelope = f"{shape.context_tokens:,} context, {number(shape.max_output_tokens)} output, C{shape.concurrency}"
    media = ", ".join(shape.modalities)
    speculation = (
        f"{recipe.speculation.method} {recipe.speculation.tokens}".strip() if recipe.speculation else "none"
    )
    waived = f", waived {recipe.reserve.waived_on}: {recipe.reserve.waiver}" if recipe.reserve.waived_on else ""
    size = f", {gib(recipe.model.bytes)}" if recipe.model.bytes else ""
    pairs: list[tuple[str, str | Sequence[Cell]]] = [
        ("title", literal(recipe.title, 400) or "none"),
        ("served name", literal(recipe.served_name, 400) or "n/a: the record does not say"),
        ("envelope", f"{envelope}; {media}"),
        ("GPUs", f"{literal(gpus, 400)}, tensor parallel {recipe.gpus.tensor_parallel}; {held}"),
        ("reserve", literal(f"{recipe.reserve.mib_per_gpu:,} MiB per GPU{waived}", 1000)),
        ("feasibility", [feasible.class_cell(found)]),
        ("qualified", [feasible.qualified(world.qualified.get(recipe.id))]),
        ("engine", f"{recipe.engine}, KV {recipe.kv.type}, speculation {literal(speculation, 200)}"),
        ("model", literal(f"{recipe.model.repo} {recipe.model.revision}{size}", 400)),
        ("image", literal(recipe.image.ref, 400)),
        ("budgets", f"{recipe.budgets.visible_tokens:,} visible, {recipe.budgets.reasoning_tokens:,} reasoning"),
        ("suite", recipe.suite),
        ("rollback", literal(recipe.rollback, 400)),
        ("control", recipe.control or "none"),
        ("licence", literal(f"{recipe.licence.boundary}. {recipe.licence.note}", 600)),
        ("patches", literal(", ".join(p.name for p in recipe.patches), 600) or "none"),
    ]
    rows = facts(pairs, width)
    if not recipe.loadable:
        rows += sentence(f"Cannot be loaded: {literal(recipe.not_loadable_because, 600)}", width, "warn")
    return rows


def _decisions(recipe: Recipe, width: int) -> list[Row]:
    if not recipe.decisions:
        return []
    rows = [BLANK, row(Cell("Decisions", "accent"))]
    for decision in sorted(recipe.decisions, key=lambda d: d.date, reverse=True):
        head = [
            Cell(f"{decision.date} ", "dim"),
            Cell(str(decision.status), _DECISIONS.get(decision.status, "dim")),
        ]
        rows.append(row(*head))
        rows += sentence(literal(decision.reason, 1000), width, "text", indent=2)
    return rows


def _figures(recipe: Recipe, width: int) -> list[Row]:
    if not recipe.figures:
        return []
    rows = [BLANK, row(Cell("Figures", "accent"))]
    for figure in recipe.figures:
        count = f", n {figure.n}" if figure.n else ", n n/a"
        spread_text = f", spread {literal(figure.spread)}" if figure.spread else ""
        rows.append(
            row(
                left(literal(figure.name), 28, "dim"),
                Cell(clip(literal(figure.value), max(8, width - 28)), "strong"),
            )
        )
        if figure.conditions:
            rows += sentence(f"{literal(figure.conditions, 400)}{count}{spread_text}", width, "dim", indent=2)
    return rows
