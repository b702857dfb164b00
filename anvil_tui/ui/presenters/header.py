"""The header: which box, may I write, who holds the lease, what serves and how well, what time."""

from __future__ import annotations

import re

from anvil_tui.core.times import span
from anvil_tui.core.world import BoxRecord, Lights, World
from anvil_tui.ui import glyphs
from anvil_tui.ui.presenters.alarms import counts
from anvil_tui.ui.presenters.cells import Cell, Row, Tone, View, joined, spread, width_of
from anvil_tui.ui.presenters.freshness import empty, state_note
from anvil_tui.ui.presenters.serves import PHASE_TONES, incumbent
from anvil_tui.ui.text import NA, fit, literal, seconds_since

_HOLDS = re.compile(r"(^|[-:])hold\b")
_RELEASES = re.compile(r"(^|[-:])(flip|aliases|close-aliases)\b")
# below this width a free lease and the seconds give way
_ROOMY = 70
# from this width on: since when the lease is held
_WIDE = 100


def header(world: World, view: View, width: int) -> Row:
    """What serves is the last thing to give way: a free lease, then words about problems go first."""
    clock = Cell(_clock(world, view, width) + " ", "dim")
    for brief in (0, 1, 2):
        left = _box(world, width, brief)
        room = width - width_of([*left, clock]) - 3
        serving = _serving(world, room)
        if serving:
            break
    gap = width - width_of([*left, *serving, clock])
    if gap < 1:
        return spread(left, [Cell(" "), clock], width)
    before = min(max(2, gap // 2) if width >= 100 else 2, gap - 1)
    return Row((*left, Cell(" " * before), *serving, Cell(" " * (gap - before)), clock))


def _box(world: World, width: int, brief: int) -> list[Cell]:
    box = world.workspace.box
    kind: Tone = "warn" if box.kind == "production" else "dim"
    mode = Cell("READ-ONLY", "warn") if world.read_only else Cell("RW", "good")
    mode = Cell(" REPLAY ", "mark") if world.replayed else mode
    name = [Cell(" anvil", "accent"), Cell("  ")] if width >= 100 else [Cell(" ")]
    what = empty(world, box.kind).partition(":")[0].upper()
    parts = [[Cell(literal(box.name, 40), "strong"), Cell(" "), Cell(what, kind)], [mode]]
    parts += [found] if (found := counts(world, brief)) else []
    never = len(parts)
    if world.lease or (brief < 1 and width >= _ROOMY):
        parts.append(_lease(world, brief, width))
    if world.problems:
        word = "" if brief > 0 else f" problem{'s' * (len(world.problems) > 1)}"
        parts.append([Cell(f"{glyphs.WARN} {len(world.problems)}{word}", "warn")])
    return [*name, *joined(parts[:never] if brief > 1 else parts, "  ")]


def _lease(world: World, brief: int, width: int) -> list[Cell]:
    """Who holds it; that its operation is paused is the last of it to give way."""
    if world.lease is None:
        return [Cell("lease free", "dim")]
    held = world.lease
    paused = any(o.id == held.operation and o.state == "paused" for o in world.operations)
    at = f"@{literal(held.host, 16)}" if held.host and not brief else ""
    at = f"@{literal(held.host, 16)}" if held.host and not brief else ""
    whose = "" if paused and brief else f"{literal(held.user, 16)}{at}:{held.pid}"
    since = seconds_since(held.since or None, world.now_utc) if not brief and width >= _WIDE else None
    long = "" if since is None else f" for {span(since)}"
    return [Cell("lease ", "dim"), Cell(f"{whose}{' PAUSED' * paused}{long}".strip(), "warn")]


def _serving(world: World, room: int) -> list[Cell]:
    """One group a role, as many as fit; names give way first."""
    roles = world.workspace.roles
    for keep in range(len(roles), 0, -1):
        each = (room - 3 * (keep - 1)) // keep
        cells = joined(([*_role(world, r.name, each)] for r in roles[:keep]), "   ")
        if keep < len(roles):
            cells.append(Cell(f" +{len(roles) - keep}", "dim"))
        if width_of(cells) <= room:
            return cells
    return []


def _role(world: World, role: str, room: int) -> list[Cell]:
    serve = incumbent(world, role)
    head = Cell(f"{literal(role, 20)} ", "dim")
    held = _held(world, role)
    if held is not None:
        since = held_for(world, role)
        long = f" {since}" if since and room >= width_of([head]) + len(held) + len(since) + 3 else ""
        word, _, rest = held.partition(",")
        return [head, Cell(f"{glyphs.WAIT} {word}{long},{rest}", "warn")]
    if serve is None:
        # a daemon that cannot be read is not the same as nothing serving
        lost = state_note(world.containers, world.now_s)
        recorded = world.record.serve_in(role)
        if lost or recorded:
            unread: Tone = "dim" if world.containers.state == "unknown" else "bad"
            return [head, Cell(f"{glyphs.ASK} UNKNOWN" if lost else f"{glyphs.BAD} GONE", unread)]
        if world.kept_alarms is None and world.record == BoxRecord() and not world.replayed:
            return [head, Cell(f"{glyphs.ASK} UNKNOWN", "dim")]  # state/ is read a moment after the containers
        gone = world.record.roles.get(role)
        if gone and gone.evicted_for:
            by = fit(literal(gone.evicted_for, 60), max(0, room - len(head.text) - 14))
            return [head, Cell(f"{glyphs.OFF} EVICTED{' for ' * bool(by)}{by}", "warn")]
        return [head, Cell(f"{glyphs.OFF} nothing serves", "warn")]
    tone = PHASE_TONES[serve.phase]
    glyph = glyphs.BAD if tone == "bad" else glyphs.WAIT
    if serve.phase == "serving":
        glyph, tone = worst(serve.lights)
    fixed = [head, Cell(f"{glyph} {serve.phase} ", tone)]
    return [*fixed, Cell(fit(literal(serve.name), max(6, room - width_of(fixed))), "strong")]


def _held(world: World, role: str) -> str | None:
    """What new requests of a role get whose every alias is held; None when it is not. No gateway holds what it
    answers with 503."""
    gateway, found = world.gateway.value, world.workspace.role(role)
    if gateway is None or found is None or {gateway.aliases.get(a) for a in found.aliases} != {"hold"}:
        return None
    if not gateway.can.holds:
        return "QUIESCED, clients get 503"
    return f"HELD, {'n/a' if gateway.held is None else gateway.held} waiting"


def held_for(world: World, role: str) -> str:
    """Since the first hold after the last release of its traffic; a hold of what is held already, as on the way
    back, begins nothing anew. "" = not known."""
    steps = (s for o in world.operations if o.role == role and not o.accepted for s in (*o.steps, *o.undo_steps))
    done = sorted((s.ended_at, s.name) for s in steps if s.state == "done" and s.ended_at)
    first = ""
    for at, name in done:
        if _HOLDS.search(name):
            first = first or at
        elif _RELEASES.search(name):
            first = ""
    since = seconds_since(first, world.now_utc) if first else None
    return "" if since is None else span(since)


def worst(lights: Lights) -> tuple[str, Tone]:
    """The one glyph for four lights: the worst of them."""
    states = {lights.process.state, lights.http.state, lights.identity.state, lights.progress.state}
    if "bad" in states:
        return glyphs.BAD, "bad"
    if "wait" in states:
        return glyphs.WAIT, "warn"
    if "unknown" in states:
        return glyphs.ASK, "warn"
    return glyphs.OK, "good"


def _clock(world: World, view: View, width: int) -> str:
    if not world.now_utc.timestamp():  # nothing was read yet
        return NA
    local = world.now_utc.astimezone(view.zone)
    if world.replayed:  # it may be of another day, and its seconds matter
        return f"{local:%Y-%m-%d %H:%M:%S %Z}" if width >= _WIDE else f"{local:%m-%d %H:%M:%S %Z}"
    if width < _ROOMY:
        return f"{local:%H:%M %Z}"
    return f"{local:%Y-%m-%d %H:%M:%S %Z}" if width >= 140 else f"{local:%H:%M:%S %Z}"
