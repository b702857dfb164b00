"""The lifecycle strip: where the candidate stands, and the one next deed with the reason if it is closed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from anvil_tui.core.journal import OperationView
from anvil_tui.core.world import Phase, Serve, World
from anvil_tui.ui import glyphs
from anvil_tui.ui.presenters import gates
from anvil_tui.ui.presenters.cells import Cell, Row, Tone, View, spread, width_of
from anvil_tui.ui.presenters.operations import current_step
from anvil_tui.ui.presenters.serves import incumbent
from anvil_tui.ui.text import fit, literal

StageState = Literal["done", "running", "open"]
Why = Callable[[str], str | None]

_NOT_UP = (Phase.ABSENT, Phase.CREATED, Phase.STOPPED, Phase.FAILED, Phase.LOST)
_MARKS: dict[StageState, tuple[str, Tone]] = {
    "done": (glyphs.DONE, "good"),
    "running": (glyphs.RUN, "accent"),
    "open": (glyphs.TODO_DOT, "dim"),
}


@dataclass(frozen=True, slots=True)
class Stage:
    """One deed on the way to production; `figure` stands in place of the mark while it runs."""

    verb: str
    state: StageState
    figure: str = ""


def candidate(world: World, view: View) -> Serve | None:
    """The selected candidate, else the first one."""
    found = [s for s in world.serves if s.position == "candidate"]
    return next((s for s in found if s.container.id == view.serve), next(iter(found), None))


def stages(world: World, serve: Serve) -> tuple[Stage, ...]:
    role = serve.record.role if serve.record else ""
    held, empty = _held(world, role), _empty(world, role)
    return (
        _load(serve),
        _qualify(world, serve),
        Stage("quiesce", "done" if held else "open"),
        Stage("drain", "done" if held and empty else "running" if held else "open"),
        Stage("promote", "done" if serve.position == "incumbent" else "open"),
    )


def _load(serve: Serve) -> Stage:
    if serve.phase is Phase.LOADING:
        return Stage("load", "running")
    return Stage("load", "open" if serve.phase in _NOT_UP else "done")


def _qualify(world: World, serve: Serve) -> Stage:
    running = world.operation
    if running and running.outcome is None and running.kind == "qualify":
        return Stage("qualify", "running", gates.tally(running.gates))
    return Stage("qualify", "done" if serve.record and serve.record.qualified_by else "open")


def _held(world: World, role: str) -> bool:
    found = world.workspace.role(role)
    gateway = world.gateway.value
    return bool(found and gateway and {gateway.aliases.get(a) for a in found.aliases} == {"hold"})


def _empty(world: World, role: str) -> bool:
    serve = incumbent(world, role)
    return serve is not None and serve.in_flight == 0


def next_verb(found: tuple[Stage, ...]) -> str | None:
    """Load, then qualify, then promote: promote itself holds and drains."""
    open_ones = {s.verb for s in found if s.state != "done"}
    return next((verb for verb in ("load", "qualify", "promote") if verb in open_ones), None)


def strip(world: World, view: View, width: int, why: Why, keys: dict[str, str]) -> tuple[Row, Row]:
    """Two rows: the stages, and what comes next. `why` gives the reason a verb is closed, or None."""
    operation = world.operation
    if operation and operation.outcome is None:
        return _operation_rows(operation, width)
    serve = candidate(world, view)
    if serve is None:
        text = [Cell(" candidate ", "dim"), Cell("none", "text")]
        return spread(text, [], width), _next_row("load", why, keys, width)
    found = stages(world, serve)
    return _stage_row(serve, found, width), _next_row(next_verb(found), why, keys, width)


def _stage_row(serve: Serve, found: tuple[Stage, ...], width: int) -> Row:
    cells: list[Cell] = []
    for stage in found:
        glyph, tone = _MARKS[stage.state]
        if cells:
            cells.append(Cell(f" {glyphs.RULE} ", "faint"))
        name: Tone = "dim" if stage.state == "open" else "text"
        cells += [Cell(f"{stage.verb} ", name), Cell(stage.figure or glyph, tone)]
    room = width - width_of(cells) - 14
    head = [Cell(" candidate ", "dim"), Cell(fit(literal(serve.name), max(8, room)), "strong"), Cell("  ")]
    return spread([*head, *cells], [], width)


def _next_row(verb: str | None, why: Why, keys: dict[str, str], width: int) -> Row:
    if verb is None:
        return spread([Cell(" next      ", "dim"), Cell("nothing: it serves", "dim")], [], width)
    reason = why(verb)
    deed = f"{keys.get(verb, '')} {verb}".strip()
    if reason is None:
        return spread([Cell(" next      ", "dim"), Cell(deed, "accent")], [], width)
    return spread(
        [Cell(" next      ", "dim"), Cell(f"({deed})", "faint"), Cell(f"  {literal(reason)}", "dim")], [], width
    )


def _operation_rows(operation: OperationView, width: int) -> tuple[Row, Row]:
    """While an operation is open the strip is about it: steps around the present one."""
    tone: Tone = "accent" if operation.state == "running" else "warn"
    word = operation.kind if operation.state == "running" else f"{operation.kind} INTERRUPTED"
    place, count, step = current_step(operation)
    undo = "undo " if operation.decision == "undo" and operation.undo_steps else ""
    head = [Cell(f" {glyphs.RUN if tone == 'accent' else glyphs.WARN} {word} ", tone)]
    tail = [Cell(f"{undo}step {place}/{count}  ", "dim"), *_dots(place, count, tone)]
    room = width - width_of(head) - width_of(tail) - 3
    name = Cell(fit(literal(operation.target), max(8, room)) + "  ", "strong")
    first = spread([*head, name, *tail], [], width)
    if operation.state == "interrupted":
        return first, spread(
            [Cell(" next      ", "dim"), Cell("r resume", "accent"), Cell(" or "), Cell("z undo", "accent")],
            [],
            width,
        )
    now = literal(step.title, 100) if step else "starting"
    note = f"  {literal(operation.last_note, 200)}" if operation.last_note else ""
    return first, spread([Cell(" now       ", "dim"), Cell(now), Cell(note, "dim")], [], width)


def _dots(place: int, count: int, tone: Tone) -> list[Cell]:
    if count > 24:
        return []
    done, now = glyphs.OK * max(0, place - 1), glyphs.RUN * (place > 0)
    return [Cell(done, "good"), Cell(now, tone), Cell(glyphs.TODO_DOT * (count - place), "dim")]
