"""Serves: phase, the four lights apart, place in the role, requests in flight, and why."""

from __future__ import annotations

from anvil_tui.core.inflight import slot_text
from anvil_tui.core.world import OPERATION_LABEL, Light, Phase, Serve, World
from anvil_tui.ui import glyphs
from anvil_tui.ui.keymap import key
from anvil_tui.ui.presenters.cells import (
    Cell,
    Panel,
    Row,
    Tone,
    View,
    joined,
    left,
    right,
    row,
    sentence,
    spread,
    titled,
)
from anvil_tui.ui.presenters.freshness import state_note
from anvil_tui.ui.presenters.standing import drilled
from anvil_tui.ui.text import literal, short_id

PHASE_TONES: dict[Phase, Tone] = {
    Phase.ABSENT: "warn",
    Phase.CREATED: "dim",
    Phase.LOADING: "warn",
    Phase.READY: "good",
    Phase.SERVING: "good",
    Phase.QUIESCED: "warn",
    Phase.DRAINING: "warn",
    Phase.DRAINED: "warn",
    Phase.STOPPED: "dim",
    Phase.FAILED: "bad",
    Phase.LOST: "bad",
    Phase.FOREIGN: "warn",
}
LIGHTS: dict[str, Cell] = {
    "ok": Cell(glyphs.OK, "good"),
    "bad": Cell(glyphs.BAD, "bad"),
    "wait": Cell(glyphs.WAIT, "warn"),
    "unknown": Cell(glyphs.ASK, "dim"),
}
_LOADING_KINDS = ("load", "qualify", "promote", "rollback", "drill")
_COMING = (Phase.LOADING, Phase.READY, Phase.FAILED)
_QUIET = (Phase.STOPPED, Phase.ABSENT, Phase.CREATED)
_LIGHT_COLUMNS = ("proc", "http", "id", "prog")
_PHASE_WIDTH = 9
_POSITION_WIDTH = 9


def incumbent(world: World, role: str) -> Serve | None:
    """The serve that the record names as the role's incumbent, if it can be seen."""
    held = world.record.roles.get(role)
    return world.serve(held.incumbent) if held and held.incumbent else None


def at_work(world: World) -> Serve | None:
    """The serve that an open operation loads or judges: it runs and does not serve yet."""
    operation = world.operation
    if operation is None or operation.outcome is not None or operation.kind not in _LOADING_KINDS:
        return None
    found = [s for s in world.serves if s.container.running and s.position != "foreign" and s.phase in _COMING]
    made = [s for s in found if s.container.labels.get(OPERATION_LABEL) == operation.id]
    coming = [s for s in found if s.position != "incumbent"]
    return next(iter([*made, *coming, *found]), None)


def subject(world: World, view: View) -> Serve | None:
    """What KV capacity and log are about: the serve that a person chose; else what an operation is at work on;
    else the one under the cursor while it runs; else what serves."""
    chosen = world.serve(view.serve)
    if chosen and "serve" in view.picked:
        return chosen
    work = at_work(world)
    if work or (chosen and chosen.container.running):
        return work or chosen
    serving = [s for r in world.workspace.roles if (s := incumbent(world, r.name)) and s.container.running]
    running = [s for s in world.serves if s.container.running and s.position != "foreign"]
    return next(iter([*serving, *running]), chosen)


def shown(world: World, view: View) -> list[Serve]:
    """Serves that pass the filter; one that somebody must not lose sight of is never hidden."""
    wanted = view.filter_of("serves").lower()
    return [s for s in world.serves if not wanted or wanted in _haystack(s) or _in_sight(world, s)]


def _in_sight(world: World, serve: Serve) -> bool:
    """In trouble, part of an open operation, or named by an alarm or a problem."""
    mine = serve.container.id
    open_ones = [o for o in world.operations if o.outcome is None or o.needs_person]
    moved = any(
        serve.container.labels.get(OPERATION_LABEL) == o.id
        or serve.name in o.target.split()
        or (o.role and serve.record and serve.record.role == o.role and serve.position == "incumbent")
        for o in open_ones
    )
    alarmed = any(mine in (a.target, a.id.partition(":")[2]) for a in world.alarms)
    told = any(serve.name in text or short_id(mine) in text for text in world.problems)
    return in_trouble(serve) or moved or alarmed or told


def _haystack(serve: Serve) -> str:
    return f"{serve.name} {serve.container.name} {serve.container.id} {serve.phase}".lower()


def in_trouble(serve: Serve) -> bool:
    lights = (serve.lights.process, serve.lights.http, serve.lights.identity, serve.lights.progress)
    trouble = serve.phase in (Phase.FAILED, Phase.LOST) or any(light.state == "bad" for light in lights)
    return trouble or serve.phase in (Phase.LOADING, Phase.DRAINING)


def panel(world: World, view: View, width: int, height: int) -> Panel:
    serves = shown(world, view)
    title = _title(world, view, len(serves))
    note = state_note(world.containers, world.now_s)
    if not serves:
        return Panel(title, tuple(_nothing(world, width)), note)
    wide = 1 + 2 * len(serves) <= height
    rows = [_head(width)]
    if not world.containers.ok and world.containers.state != "unknown":
        rows = sentence(f"cannot be read: {literal(world.containers.reason)}", width, "bad", most=3) + rows
    for serve in serves:
        rows.append(_line(serve, width))
        if wide or in_trouble(serve):
            rows.extend(_second(world, serve, width))
    return Panel(title, tuple(rows), note)


def _title(world: World, view: View, count: int) -> str:
    wanted = view.filter_of("serves")
    return titled("Serves", wanted, count, len(world.serves)) if wanted else "Serves"


def _nothing(world: World, width: int) -> list[Row]:
    if world.serves:
        return sentence(f"No serve matches the filter: {key('view.back')} clears it.", width, "dim")
    if world.containers.state == "unknown":
        return sentence(f"unknown: containers {literal(world.containers.reason)}", width, "dim")
    if not world.containers.ok:
        return sentence("Containers cannot be read, so what runs is unknown.", width, "bad")
    return sentence(f"No serve yet. {key('recipe.load')} loads one from a recipe.", width, "dim")


def _name_width(width: int) -> int:
    fixed = 2 + 1 + _PHASE_WIDTH + 4 * 5 + 5
    return max(8, width - fixed - (_POSITION_WIDTH + 1 if width >= 70 else 0))


def _head(width: int) -> Row:
    cells = [left("", 2), left("serve", _name_width(width) + 1, "faint"), left("phase", _PHASE_WIDTH, "faint")]
    cells += [left(name, 5, "faint") for name in _LIGHT_COLUMNS]
    cells.append(right("fly", 4, "faint"))
    if width >= 70:
        cells.append(left("  place", _POSITION_WIDTH + 2, "faint"))
    return row(*cells)


def _line(serve: Serve, width: int) -> Row:
    tone = PHASE_TONES[serve.phase]
    glyph = glyphs.OFF if serve.phase in _QUIET else glyphs.ASK if serve.phase is Phase.FOREIGN else glyphs.OK
    glyph = glyphs.BAD if serve.phase in (Phase.FAILED, Phase.LOST) else glyph
    name_tone: Tone = "strong" if serve.container.running else "text"
    cells = [
        Cell(f"{glyph} ", tone),
        left(literal(serve.name), _name_width(width), name_tone),
        Cell(" "),
        left(_phase_word(serve), _PHASE_WIDTH, tone),
    ]
    for light in _lights(serve):
        cells += [_light(serve, light), Cell("    ")]
    fly = "n/a" if serve.in_flight is None else str(serve.in_flight)
    cells.append(right(fly, 4, "dim" if not serve.in_flight else "text"))
    if width >= 70:
        cells.append(left(f"  {serve.position}", _POSITION_WIDTH + 2, "dim"))
    return row(*cells, key=serve.container.id)


def _light(serve: Serve, light: Light) -> Cell:
    """A container that is meant to be down has no lights to worry about."""
    if serve.phase not in _QUIET:
        return LIGHTS[light.state]
    return Cell(glyphs.DASH if light.state == "unknown" else LIGHTS[light.state].text, "faint")


def _phase_word(serve: Serve) -> str:
    return serve.phase.upper() if serve.phase in (Phase.FAILED, Phase.LOST) else str(serve.phase)


def _second(world: World, serve: Serve, width: int) -> list[Row]:
    """Why, where there is more to say than the phase; else id, place, restarts, readiness of the way back."""
    if not world.containers.ok:
        known = [Cell(f"last seen {literal(serve.container.status, 20)}", "dim")]
        return [spread([Cell("  "), *joined([known, [Cell(short_id(serve.container.id), "dim")]])], [], width,
                       serve.container.id)]  # fmt: skip
    if serve.phase is Phase.DRAINING and (said := _draining(world, serve)):
        return sentence(literal(said, 600), width, "warn", indent=2, key=serve.container.id, most=2)
    if serve.why and (in_trouble(serve) or serve.position == "foreign"):
        tone: Tone = "bad" if in_trouble(serve) and serve.phase is not Phase.LOADING else "dim"
        return sentence(literal(serve.why), width, tone, indent=2, key=serve.container.id, most=2)
    if (reasons := _not_ready(world, serve)) and not serve.container.running:
        return sentence(
            reasons, width, "bad" if _refused(world, serve) else "warn", indent=2, key=serve.container.id, most=2
        )
    parts = [[Cell(literal(serve.why, 120), "dim")]] if serve.why and serve.why != serve.phase else []
    parts += [[Cell(short_id(serve.container.id), "dim")], place(world, serve)]
    restarts = serve.container.restart_count
    if restarts:
        parts.append([Cell(f"restarts {restarts}", "warn")])
    if serve.record and serve.record.qualified_suite:
        parts.append([Cell(f"passed {literal(serve.record.qualified_suite, 24)}", "dim")])
    return [spread([Cell("  "), *joined(parts)], [], width, serve.container.id)]


def _draining(world: World, serve: Serve) -> str:
    """What is in flight, how old, how fast, in which state; and what happens when the time is over."""
    gateway = world.gateway.value
    if gateway is None or serve.record is None:
        return ""
    said = slot_text(gateway, serve.record.slot, world.workspace.policies)
    running = world.operation.steps if world.operation and world.operation.outcome is None else ()
    then = next((s.title.partition("; ")[2] for s in running if s.state == "running" and "; after" in s.title), "")
    return f"{said}; {then}" if then else said


def _not_ready(world: World, serve: Serve) -> str:
    """Why the first way back of a role is not ready, or not known to be; "" for every other serve."""
    held = world.record.roles.get(serve.record.role) if serve.record else None
    if held is None or held.rollback[:1] != (serve.container.id,):
        return ""
    way = world.rollbacks.get(held.name)
    if way is None or way.ready:
        return ""
    if _at_work(world, serve):
        return f"rollback of {literal(held.name, 20)}: told again when the operation has ended"
    return f"rollback of {literal(held.name, 20)}: {way.word}: {literal('; '.join(way.missing), 600)}"


def _refused(world: World, serve: Serve) -> bool:
    """Whether something of its way back was found wrong, not only not looked at."""
    if serve.record is None or _at_work(world, serve):
        return False
    return world.rollbacks[serve.record.role].word == "not ready"


def _at_work(world: World, serve: Serve) -> bool:
    """Whether an operation holds ports and memory of the role just now, which then stand against its way back."""
    role = serve.record.role if serve.record else ""
    return any(o.role == role and o.outcome is None and o.started_at for o in world.operations)


def place(world: World, serve: Serve) -> list[Cell]:
    """Its place in its role; for a rollback also whether the way back is ready."""
    if serve.position == "foreign":
        return [Cell("not made by a recipe of ours", "warn")]
    if serve.record is None:
        return [_made(world, serve)]
    role = literal(serve.record.role, 20)
    if serve.position != "rollback":
        return [Cell(f"{serve.position} of {role}", "dim")]
    ready = world.rollbacks.get(serve.record.role)
    held = world.record.roles.get(serve.record.role)
    if ready is None or held is None or held.rollback[:1] != (serve.container.id,):
        return [Cell(f"older rollback of {role}", "dim")]
    if ready.ready:
        return [
            Cell(f"rollback of {role}: ready {glyphs.DONE}", "good"),
            Cell(f", {drilled(world, serve.record.role)}", "dim"),
        ]
    return [Cell(_not_ready(world, serve), "bad" if _refused(world, serve) else "warn")]


def _made(world: World, serve: Serve) -> Cell:
    """Whose a container is that bears our labels and is on no record: a console in the wrong folder sees those."""
    if not world.workspace.roles:
        return Cell("made by another folder's workspace", "warn")
    by = serve.container.labels.get(OPERATION_LABEL, "")
    if any(o.id == by for o in world.operations):
        return Cell("candidate, not on record yet", "dim")
    return Cell("made by an operation unknown here", "warn")


def light_words(serve: Serve) -> list[tuple[str, list[Cell]]]:
    """The four lights with their words, for the detail view."""
    named = zip(("process", "http", "identity", "progress"), _lights(serve), strict=True)
    return [(n, [LIGHTS[x.state], Cell(f" {literal(x.word, 120)}")]) for n, x in named]


def _lights(serve: Serve) -> tuple[Light, Light, Light, Light]:
    lights = serve.lights
    return lights.process, lights.http, lights.identity, lights.progress
