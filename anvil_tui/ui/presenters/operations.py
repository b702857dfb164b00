"""Operations: what runs, what was interrupted, its steps, its decision, what is left, and events."""

from __future__ import annotations

from statistics import median

from rich.cells import cell_len

from anvil_tui.core.drills import END, HOME, START
from anvil_tui.core.journal import OperationView, StepView
from anvil_tui.core.times import parse_time, span
from anvil_tui.core.world import Event, Phase, World
from anvil_tui.ui import glyphs
from anvil_tui.ui.keymap import key
from anvil_tui.ui.presenters import alarms, evidence, gates
from anvil_tui.ui.presenters.cells import (
    BLANK,
    Cell,
    Panel,
    Row,
    Tone,
    View,
    facts,
    item,
    left,
    right,
    row,
    sentence,
    spread,
    titled,
    width_of,
)
from anvil_tui.ui.presenters.freshness import empty
from anvil_tui.ui.presenters.serves import at_work
from anvil_tui.ui.presenters.standing import drill_rows
from anvil_tui.ui.text import clock, literal, seconds_since, stamp

READY, DRAIN = "ready", "drain"
_RESUME, _UNDO, _CANCEL = "operation.resume", "operation.undo", "operation.cancel"
_STATES: dict[str, tuple[str, Tone]] = {
    "planned": (glyphs.TODO_DOT, "faint"),
    "running": (glyphs.RUN, "accent"),
    "paused": (glyphs.WAIT, "warn"),
    "interrupted": (glyphs.WARN, "warn"),
    "done": (glyphs.DONE, "good"),
    "undone": (glyphs.OFF, "warn"),
    "halted": (glyphs.BAD, "bad"),
}
_STEPS: dict[str, tuple[str, Tone]] = {
    "pending": (glyphs.TODO_DOT, "faint"),
    "running": (glyphs.RUN, "accent"),
    "done": (glyphs.DONE, "good"),
    "failed": (glyphs.BAD, "bad"),
}
# a step that was running when its process went; nothing counts on any more
_BROKEN: tuple[str, Tone] = (glyphs.WARN, "warn")
_EVENT_TONES: dict[str, Tone] = {"plain": "text", "good": "good", "warn": "warn", "bad": "bad"}


def state_word(operation: OperationView) -> str:
    return operation.state.upper() if operation.state in ("interrupted", "halted", "paused") else operation.state


def current_step(operation: OperationView) -> tuple[int, int, StepView | None]:
    """1-based place, count, and the step that runs or failed last; the way back counts for itself."""
    steps = operation.undo_steps if operation.decision == "undo" and operation.undo_steps else operation.steps
    active = [i for i, s in enumerate(steps) if s.state in ("running", "failed")]
    if active:
        return active[-1] + 1, len(steps), steps[active[-1]]
    done = sum(s.state == "done" for s in steps)
    return done, len(steps), None


def open_rows(world: World, width: int) -> list[Row]:
    """What needs attention first: running, interrupted, halted."""
    rows: list[Row] = []
    for operation in world.operations:
        if operation.outcome is None or operation.needs_person:
            rows += _summary(world, operation, width)
    return rows


def state_mark(operation: OperationView) -> tuple[str, Tone]:
    return _STATES[operation.state]


def _kind(operation: OperationView) -> str:
    """A word of ours, unless the journal or the recording is somebody else's."""
    return literal(operation.kind, 16)


def _summary(world: World, operation: OperationView, width: int) -> list[Row]:
    glyph, tone = _STATES[operation.state]
    head = [Cell(f"{glyph} {_kind(operation)} ", tone), Cell(f"{literal(operation.target, 60)}  ", "strong")]
    if operation.state == "interrupted":
        step = current_step(operation)[2]
        at = operation.last_note or (f"at: {step.title}" if step else "between two steps")
        text = f"INTERRUPTED {literal(at, 200)}"
        return [
            spread([*head, Cell(text, "warn")], [], width, operation.id),
            row(
                Cell(f"  {key(_RESUME)} resume · {key(_UNDO)} undo · {_shows()} its steps", "warn"),
                key=operation.id,
            ),
        ]
    if operation.state == "halted":
        why = literal(operation.why or "a person must act", 200)
        return [
            spread([*head, Cell(f"HALTED {why}", "bad")], [], width, operation.id),
            row(Cell(f"  nothing else starts: {key(_RESUME)} tries again · {key(_UNDO)} undoes · "
                     f"{_shows()} what is true", "warn"), key=operation.id),
        ]  # fmt: skip
    if operation.state == "paused":
        return _paused(operation, head, width)
    place, count, step = current_step(operation)
    title = literal(step.title, 300) if step else "starting"
    where = Cell(f"{leg(operation)} step {place}/{count} ".lstrip() if count else "", "dim")
    took = elapsed(world, operation, step)
    rows = [spread([*head, where, Cell(title)], took, width, operation.id)]
    if step and DRAIN in step.name and width_of([*head, where, *took]) + cell_len(title) >= width:
        rows = [spread([*head, where], elapsed(world, operation, step, limit=False), width, operation.id),
                *sentence(title, width, indent=2, key=operation.id, most=2)]  # fmt: skip
    said = progress_note(world, operation)
    if said:
        rows += sentence(literal(said, 300), width, "dim", indent=2, key=operation.id, most=2)
    return rows


def _paused(operation: OperationView, head: list[Cell], width: int) -> list[Row]:
    if operation.waits_for:
        return [
            spread([*head, Cell(leg(operation), "dim")], [], width, operation.id),
            *sentence(waits(operation), width, "warn", indent=2, key=operation.id, most=2),
            row(Cell(f"  {go_on()}", "warn"), key=operation.id),
        ]
    said = "PAUSED: its gates wait, the lease is held"
    return [
        spread([*head, Cell(said, "warn")], [], width, operation.id),
        row(
            Cell(f"  {key(_RESUME)} lets them go on · {key(_CANCEL)} cancels with a reason", "warn"),
            key=operation.id,
        ),
    ]


def _shows() -> str:
    return f"{key('view.detail')} shows"


def go_on() -> str:
    """The two ways of an operation that waits before a step."""
    return f"{key(_RESUME)} one step on · {key(_CANCEL)} back"


def waits(operation: OperationView) -> str:
    """`waits before step 4 of 17: TITLE`, for one that goes step by step."""
    titles = [s.title if s.state != "done" else "" for s in operation.steps]
    place = titles.index(operation.waits_for) + 1 if operation.waits_for in titles else 0
    of = f" {place} of {len(titles)}" if place else ""
    return f"waits before step{of}: {literal(operation.waits_for, 300)}"


def leg(operation: OperationView) -> str:
    """Where a drill is: `away` to the way back, or `home` to the incumbent; "" for all others and around both."""
    if operation.kind != "drill" or operation.decision:
        return ""
    active = [s for s in operation.steps if s.state in ("running", "failed")]
    coming = [s for s in operation.steps if s.state == "pending"]
    return leg_of(next(iter([*active, *coming])).name) if active or coming else ""


def leg_of(step: str) -> str:
    """The leg of a drill's step by its name."""
    return "" if step in (START, END) else "home" if step.endswith(HOME) else "away"


def progress_note(world: World, operation: OperationView) -> str:
    """What the present step says of itself; while an engine starts, where its load is."""
    step, serve = current_step(operation)[2], at_work(world)
    if step and step.name.endswith(READY) and serve and serve.phase is Phase.LOADING and serve.why:
        return f"{serve.name}: {serve.why}"
    return operation.last_note


def usual_s(world: World, operation: OperationView) -> float | None:
    """How long engines of the same recipe took to get ready in earlier operations; None = never seen here."""
    recipe = _recipe_of(world, operation)
    steps = [
        o.step(READY) for o in world.operations if recipe and o is not operation and _recipe_of(world, o) == recipe
    ]
    spans = [_span_s(s) for s in steps if s and s.state == "done"]
    known = [s for s in spans if s is not None]
    return median(known) if known else None


def _recipe_of(world: World, operation: OperationView) -> str:
    """The recipe that an operation's target names, "" when it names none that is known."""
    names = {f.recipe.id for f in world.recipes if f.recipe} | {s.name for s in world.serves}
    return next((word for word in operation.target.split() if word in names), "")


def _span_s(step: StepView) -> float | None:
    try:
        start, end = parse_time(step.started_at), parse_time(step.ended_at)
    except ValueError:
        return None
    return (end - start).total_seconds() if start and end else None


def elapsed(world: World, operation: OperationView, step: StepView | None, *, limit: bool = True) -> list[Cell]:
    """How long the present step has taken, what is usual, and what is allowed."""
    took = seconds_since(step.started_at, world.now_utc) if step else None
    if step is None or took is None:
        return []
    if step.state != "running":
        return [Cell(f" {span(took)}", "dim")]
    usual = usual_s(world, operation) if step.name == READY else None
    cells = [Cell(f" {span(took)}", "text"), Cell("" if usual is None else f", usually {span(usual)}", "dim")]
    if limit and step.deadline_s:
        late: Tone = "warn" if took > step.deadline_s else "dim"
        cells.append(Cell(f"{' of' if usual is None else ','} at most {span(step.deadline_s)}", late))
    return cells


def events_panel(world: World, view: View, width: int, height: int) -> Panel:
    """Alarms that nobody has acknowledged, open operations, problems, then events, newest first."""
    rows = [*alarms.event_rows(world, view, width), *open_rows(world, width)]
    shown_above = {r.key for r in rows if r.key}
    for problem in world.problems:
        if any(key in problem for key in shown_above) or alarms.tells(world, problem):
            continue
        rows += sentence(f"{glyphs.WARN} {literal(problem)}", width, "warn", most=2)
    rows += [_event(e, view, width) for e in reversed(world.events)]
    if not rows:
        rows = sentence("Nothing has happened yet.", width, "dim")
    return Panel("Operations and events", tuple(rows))


def _event(event: Event, view: View, width: int) -> Row:
    head = [
        Cell(clock(event.at, view.zone), "faint"),
        Cell("  "),
        left(literal(event.source), 18, "dim"),
        Cell("  "),
    ]
    return spread([*head, Cell(literal(event.text, 600), _EVENT_TONES[event.tone])], [], width)


def shown(world: World, view: View) -> list[OperationView]:
    wanted = view.filter_of("operations").lower()
    found = [o for o in world.operations if wanted in f"{o.id} {o.kind} {o.target} {o.state}".lower()]
    open_ones = [o for o in world.operations if (o.outcome is None or o.needs_person) and o not in found]
    return [*open_ones, *reversed(found)]


def list_panel(world: World, view: View, width: int, height: int) -> Panel:
    """The history of all, newest first."""
    rows = []
    for operation in shown(world, view):
        glyph, tone = _STATES[operation.state]
        when = [Cell(clock(operation.started_at, view.zone), "faint"), Cell("  ")]
        cells = [Cell(f"{glyph} ", tone), *when, left(_kind(operation), 9), left(state_word(operation), 12, tone)]
        rows.append(spread([*cells, Cell(literal(operation.target, 120), "text")], [], width, operation.id))
    wanted, total = view.filter_of("operations"), len(world.operations)
    if not rows:
        told = "No operation matches the filter." if wanted else empty(world, "No operation yet.")
        rows = sentence(told, width, "dim")
    return Panel(titled("Operations", wanted, len(shown(world, view)), total), tuple(rows))


def chosen(world: World, view: View) -> OperationView | None:
    return next((o for o in world.operations if o.id == view.operation), None) or world.operation


def detail_panel(world: World, view: View, width: int, height: int) -> Panel:
    """Everything the journal tells of one operation."""
    operation = chosen(world, view)
    if operation is None:
        return Panel("Operation", tuple(sentence(empty(world, "No operation yet."), width, "dim")))
    rows = [*_facts(operation, view, width), BLANK]
    for drill in (d for d in world.drills if d.operation == operation.id):
        rows += [*drill_rows(drill, view, width), BLANK]
    if operation.undo_steps:
        rows += [*_steps(world, operation, operation.undo_steps, width, "Way back"), BLANK]
    rows += _steps(world, operation, operation.steps, width, "Steps")
    if operation.gates:
        rows += [BLANK, row(Cell(f"Gates {gates.tally(operation.gates)}", "accent"))]
        rows += [gates.line(g, width)._replace(key="") for g in gates.settled(operation)]
    rows += evidence.rows(operation, view, width)
    return Panel(f"{_kind(operation)} {literal(operation.target, 120)}", tuple(rows))


def _facts(operation: OperationView, view: View, width: int) -> list[Row]:
    glyph, tone = _STATES[operation.state]
    ended = f" {glyphs.ARROW} {stamp(operation.ended_at, view.zone)}" if operation.ended_at else ""
    ids = f"{operation.id}  plan {operation.plan_hash or 'n/a'}  pid {operation.pid or 'n/a'}"
    pairs: list[tuple[str, str | list[Cell]]] = [
        ("state", [Cell(f"{glyph} {state_word(operation)}", tone)]),
        ("operation", literal(ids)),
        ("started", stamp(operation.started_at, view.zone) + ended),
        ("decision", _decision(operation)),
    ]
    if operation.why and operation.why != operation.decision_why:
        pairs.append(("why", literal(operation.why, 2000)))
    if operation.last_note and not operation.waits_for:
        pairs.append(("last note", literal(operation.last_note, 2000)))
    if operation.torn:
        pairs.append(("journal", [Cell(literal(operation.torn, 300), "bad")]))
    rows = facts(pairs, width)
    for left_over in operation.residue:
        rows += sentence(f"left behind: {literal(left_over)}", width, "warn")
    rows += sentence(what_now(operation), width, tone if operation.state != "done" else "dim")
    return rows


def _decision(operation: OperationView) -> str:
    if not operation.decision:
        return "none yet: recovery means undo"
    why = f": {literal(operation.decision_why, 2000)}" if operation.decision_why else ""
    return f"{operation.decision}{why}"


def what_now(operation: OperationView) -> str:
    """The possible next deeds, as one sentence."""
    match operation.state:
        case "planned":
            return "Its process is starting."
        case "running" if operation.decision:
            return f"It has decided ({operation.decision}) and ends by itself, also without this console."
        case "paused" if operation.waits_for:
            return (
                f"It {waits(operation)}. The lease stays held: {key(_RESUME)} lets it go one step on; "
                f"{key(_CANCEL)} takes it back, with a reason."
            )
        case "paused":
            return (
                f"Its gates wait and the lease is held: {key(_RESUME)} lets them go on, {key(_CANCEL)} cancels it "
                "with a reason."
            )
        case "running":
            return (
                "It runs in its own process and goes on without this console until "
                f"{key(_CANCEL)} cancels it, with a reason."
            )
        case "interrupted" if operation.decision == "forward":
            return f"Its process is gone after the decision: {key(_RESUME)} resumes and finishes it."
        case "interrupted":
            return (
                f"Its process is gone before a decision: {key(_UNDO)} undoes it, and {key(_RESUME)} does the same."
            )
        case "halted":
            return (
                f"A person must act: mend what the last line names, then {key(_RESUME)} or {key(_UNDO)} goes on "
                f"from here; or see to it yourself and then `anvil-tui operations accept {operation.id}`."
            )
        case "undone":
            return "Everything was put back."
        case _:
            return "Nothing is left to do."


def broken_off(operation: OperationView, step: StepView) -> bool:
    """Its journal says that it runs, but nobody runs it any more: the process is gone, or the way back goes on."""
    back = operation.decision == "undo" and bool(operation.undo_steps) and step in operation.steps
    return step.state == "running" and (operation.state not in ("running", "paused") or back)


def _steps(
    world: World, operation: OperationView, steps: tuple[StepView, ...], width: int, title: str
) -> list[Row]:
    done = sum(s.state == "done" for s in steps)
    rows = [row(Cell(f"{title} {done}/{len(steps)}", "accent"))]
    two_legs, was = any(s.name.endswith(HOME) for s in steps), ""
    for number, step in enumerate(steps, 1):
        if two_legs and (now := leg_of(step.name)) != was:
            mine = [s for s in steps if leg_of(s.name) == now]
            ended = sum(s.state == "done" for s in mine)
            rows += [row(Cell(f"  {now}", "strong"), Cell(f" {ended}/{len(mine)}", "dim"))] if now else []
            was = now
        broken = broken_off(operation, step)
        glyph, tone = _BROKEN if broken else _STEPS[step.state]
        took = "broken off" if broken else _took(world, step)
        name: Tone = "faint" if step.state == "pending" else "text"
        head = [right(str(number), 3, "faint"), Cell(f" {glyph} ", tone)]
        rows += item(head, literal(step.title, 300), name, [Cell(f" {took}", "dim")], width)
        if step.note:
            worry: Tone = "bad" if step.state == "failed" else "dim"
            rows += sentence(literal(step.note, 600), width, worry, indent=6, most=3)
    return rows


def _took(world: World, step: StepView) -> str:
    start = seconds_since(step.started_at, world.now_utc)
    if start is None:
        return f"at most {span(step.deadline_s)}" if step.deadline_s else ""
    end = seconds_since(step.ended_at, world.now_utc) if step.ended_at else 0.0
    took = span(max(0.0, start - (end or 0.0)))
    return f"{took} of at most {span(step.deadline_s)}" if step.state == "running" and step.deadline_s else took
