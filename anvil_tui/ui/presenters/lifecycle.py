"""The lifecycle strip: where the candidate stands, and the one next deed with the reason if it is closed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from anvil_tui.core.journal import OperationView
from anvil_tui.core.world import Phase, Serve, World
from anvil_tui.ui import glyphs, policies
from anvil_tui.ui.keymap import key
from anvil_tui.ui.policies import Target
from anvil_tui.ui.presenters import alarms, gates
from anvil_tui.ui.presenters.cells import Cell, Row, Tone, View, spread, width_of
from anvil_tui.ui.presenters.operations import DRAIN, current_step, elapsed, go_on, leg, progress_note, waits
from anvil_tui.ui.presenters.serves import incumbent
from anvil_tui.ui.presenters.standing import NO_DRILL, drilled
from anvil_tui.ui.text import fit, literal

StageState = Literal["done", "running", "open"]
Why = Callable[[str], str | None]

_DEEDS = {"load": "recipe.load", "qualify": "serve.qualify", "promote": "recipe.promote",
          "rollback": "role.rollback", "readmit": "role.readmit"}  # fmt: skip
"""What can come next, by its action."""
_NOT_UP = (Phase.ABSENT, Phase.CREATED, Phase.STOPPED, Phase.FAILED, Phase.LOST)
_DOWN = (Phase.ABSENT, Phase.STOPPED, Phase.FAILED)
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
    role = _role_of(world, serve)
    held, empty = _held(world, role), _empty(world, role)
    return (
        _load(serve),
        _qualify(world, serve),
        Stage("quiesce", "done" if held else "open"),
        Stage("drain", "done" if held and empty else "running" if held else "open"),
        Stage("promote", "done" if serve.position == "incumbent" else "open"),
    )


def _role_of(world: World, serve: Serve | None) -> str:
    """The role of the serve, or the only one that there is."""
    if serve and serve.record:
        return serve.record.role
    roles = world.workspace.roles
    return roles[0].name if len(roles) == 1 else ""


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


def next_verb(world: World, serve: Serve, found: tuple[Stage, ...]) -> str | None:
    """Load, then qualify, then promote: promote itself holds and drains. A candidate that cannot be loaded
    beside what serves goes straight to its promotion, which loads and qualifies it too."""
    target = Target(role=_role_of(world, serve), recipe=serve.name)
    open_ones = {s.verb for s in found if s.state != "done"}
    if "load" in open_ones and policies.load(world, target) and not policies.promote(world, target):
        return "promote"
    return next((verb for verb in ("load", "qualify", "promote") if verb in open_ones), None)


def _picked(world: World, view: View) -> str:
    """The recipe that a person chose among the recipes; "" when none, or when it serves already."""
    wanted = world.recipe(view.recipe) if "recipe" in view.picked else None
    serving = {s.name for r in world.workspace.roles if (s := incumbent(world, r.name))}
    return wanted.id if wanted and wanted.loadable and wanted.id not in serving else ""


def _without_candidate(world: World, view: View, width: int) -> tuple[Row, str]:
    """Nothing stands beside what serves: what could, and by which deed."""
    role, recipe = _role_of(world, None), _picked(world, view)
    ids = [recipe] if recipe else [f.recipe.id for f in world.recipes if f.recipe]
    loads, promotes = (
        [i for i in ids if policy(world, Target(role=role, recipe=i)) is None]
        for policy in (policies.load, policies.promote)
    )
    count = len(loads or promotes)
    can = f"  {count} recipe{'s' * (count != 1)} can be {'loaded' if loads else 'promoted'}" if count else ""
    name = Cell(fit(literal(recipe), max(8, width - 24)), "strong") if recipe else Cell("none", "text")
    row = spread([Cell(" candidate ", "dim"), name, Cell("  not loaded" if recipe else can, "dim")], [], width)
    return row, "load" if loads or not promotes else "promote"


def _urgent(world: World, verb: str | None, beside: bool) -> str | None:
    """What comes before `verb`: an incumbent that is down; traffic that is held with no promotion to come."""
    for role in world.workspace.roles:
        now = incumbent(world, role.name)
        held = world.record.roles.get(role.name)
        if (now and now.phase in _DOWN) or (held and not held.incumbent and held.evicted_for):
            return "rollback"
        if now and _held(world, role.name) and not (beside and verb == "promote"):
            return "readmit"
    return verb


def strip(world: World, view: View, width: int, why: Why) -> tuple[Row, Row]:
    """Two rows: the stages, or an alarm that nobody has acknowledged; and what comes next. `why` gives the reason
    a verb is closed, or None."""
    operation = world.operation
    if not world.workspace.roles:
        return _discovery(width)
    if operation and operation.outcome is None:
        return _operation_rows(world, operation, width)
    serve, verb = candidate(world, view), None
    beside = serve is not None and _picked(world, view) in ("", serve.name)
    if serve is not None and beside:
        found = stages(world, serve)
        first, verb = _stage_row(serve, found, width), next_verb(world, serve, found)
    else:
        first, verb = _without_candidate(world, view, width)
    first = alarms.line(world, view, width) or first
    if world.gateway.state == "error" and any(held.incumbent for held in world.record.roles.values()):
        said = Cell(literal(world.gateway.reason, 600), "dim")
        return first, spread([Cell(" next      ", "dim"), Cell("the gateway: ", "warn"), said], [], width)
    return first, _next_row(_urgent(world, verb, beside), why, _last_drill(world, view), width)


def _discovery(width: int) -> tuple[Row, Row]:
    """There is no workspace, so nothing can become a candidate."""
    first = [Cell(" candidate ", "dim"), Cell("none", "text"), Cell("  no workspace: discovery, read-only", "dim")]
    then = [Cell(" next      ", "dim"), Cell("`anvil-tui init DIR` writes a workspace of what runs here", "dim")]
    return spread(first, [], width), spread(then, [], width)


def _last_drill(world: World, view: View) -> str:
    """Of the way back that the screen is about: its last drill; "" when there is no way back."""
    role = _role_of(world, world.serve(view.serve))
    way = world.rollbacks.get(role)
    return drilled(world, role) if way and way.target else ""


def _stage_row(serve: Serve, found: tuple[Stage, ...], width: int) -> Row:
    cells: list[Cell] = []
    for stage in found:
        glyph, tone = _MARKS[stage.state]
        if cells:
            cells.append(Cell(f" {glyphs.RULE} ", "line"))
        name: Tone = "dim" if stage.state == "open" else "text"
        cells += [Cell(f"{stage.verb} ", name), Cell(stage.figure or glyph, tone)]
    room = width - width_of(cells) - 14
    head = [Cell(" candidate ", "dim"), Cell(fit(literal(serve.name), max(8, room)), "strong"), Cell("  ")]
    return spread([*head, *cells], [], width)


def _next_row(verb: str | None, why: Why, drill: str, width: int) -> Row:
    """A reason needs the whole line; else the last drill stands at its end, and that there was none when all is
    well."""
    tail = [Cell(f"{drill} ", "dim")] if drill and (verb is None or drill != NO_DRILL) else []
    if verb is None:
        return spread([Cell(" next      ", "dim"), Cell("nothing: it serves", "dim")], tail, width)
    reason = why(verb)
    deed = f"{key(_DEEDS[verb])} {verb}"
    if reason is None:
        return spread([Cell(" next      ", "dim"), Cell(deed, "accent")], tail, width)
    return spread(
        [Cell(" next      ", "dim"), Cell(f"({deed})", "faint"), Cell(f"  {literal(reason)}", "dim")], [], width
    )


def _ways(operation: OperationView) -> list[Cell]:
    """What a person can do with one that is interrupted or paused; two keys that do the same are told so."""
    resume = Cell(f"{key('operation.resume')} resume", "accent")
    if operation.state == "paused":
        return [resume, Cell(" or "), Cell(f"{key('operation.cancel')} cancel", "accent")]
    if operation.decision == "forward":
        return [resume, Cell("  it had decided, and is finished", "dim")]
    undo = Cell(f"{key('operation.undo')} undo", "accent")
    return [resume, Cell(" or "), undo, Cell("  both put everything back", "dim")]


def _operation_rows(world: World, operation: OperationView, width: int) -> tuple[Row, Row]:
    """While an operation is open the strip is about it: steps around the present one."""
    gone, paused = operation.state == "interrupted", operation.state == "paused"
    tone: Tone = "warn" if gone or paused else "accent"
    kind = literal(operation.kind, 16)
    word = f"{kind} {operation.state.upper()}" if gone or paused else kind
    place, count, step = current_step(operation)
    back = operation.decision == "undo" and bool(operation.undo_steps)
    glyph = glyphs.WARN if gone else glyphs.WAIT if paused else glyphs.RUN
    head = [Cell(f" {glyph} {word} ", tone)]
    # the journal tells of a way back only what it has come to, so that there is no "of how many"
    if back:
        tail = [Cell(f"undo step {place}  ", "dim")]
    elif operation.waits_for:
        said = f"{leg(operation)} {place}/{count} done  ".lstrip()
        tail = [Cell(said, "dim"), *_dots(place + 1, count, tone)]
    else:
        said = f"{leg(operation)} step {place}/{count}  ".lstrip() if count else ""
        tail = [Cell(said, "dim"), *_dots(place, count, tone)]
    room = width - width_of(head) - width_of(tail) - 3
    name = Cell(fit(literal(operation.target), max(8, room)) + "  ", "strong")
    first = spread([*head, name, *tail], [], width)
    if operation.waits_for:
        tail = [Cell(f"{go_on()} ", "accent")]
        return first, spread([Cell(" "), Cell(waits(operation), "warn")], tail, width)
    if gone or paused:
        return first, spread([Cell(" next      ", "dim"), *_ways(operation)], [], width)
    now = literal(step.title, 200) if step else "starting"
    said = progress_note(world, operation)
    what = [Cell(now), Cell(f"  {literal(said, 200)}" if said else "", "dim")]
    if step and said and DRAIN in step.name:  # what is in flight is the news, not that it is waited for
        what = [Cell(literal(said, 200)), Cell(f"  {now}", "dim")]
    took = elapsed(world, operation, step, limit=False)
    return first, spread([Cell(" now       ", "dim"), *what], [*took, Cell(" ")], width)


def _dots(place: int, count: int, tone: Tone) -> list[Cell]:
    if count > 24:
        return []
    done, now = glyphs.OK * max(0, place - 1), glyphs.RUN * (place > 0)
    return [Cell(done, "good"), Cell(now, tone), Cell(glyphs.TODO_DOT * (count - place), "dim")]
