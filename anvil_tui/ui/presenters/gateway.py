"""The gateway: where each alias points, what each slot has in hand, and every request in progress."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len

from anvil_tui.core.box import Gateway, Request
from anvil_tui.core.discovery import NO_WORKSPACE
from anvil_tui.core.inflight import State, on_slot, rate, state_of
from anvil_tui.core.serves import seat_of
from anvil_tui.core.times import span
from anvil_tui.core.workspace import Role, Slot
from anvil_tui.core.world import Serve, World
from anvil_tui.ui import glyphs
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
)
from anvil_tui.ui.presenters.freshness import state_note
from anvil_tui.ui.presenters.serves import PHASE_TONES
from anvil_tui.ui.text import NA, literal, number

_STATES: dict[State, tuple[str, Tone]] = {
    "flowing": (glyphs.RUN, "good"),
    "quiet": (glyphs.WAIT, "text"),
    "waiting": (glyphs.WAIT, "warn"),
    "stalled": (glyphs.BAD, "bad"),
    "unknown": (glyphs.ASK, "dim"),
}
_LACKS: dict[str, str] = {
    "atomic": "aliases move with a restart, not in one transaction",
    "durable": "a restart forgets what is quiesced",
    "counts": "requests in flight are unknown",
    "holds": "requests to a quiesced role get 503, they are not held",
    "severs": "a request cannot be cut",
    "strong_reads": "one reading proves nothing",
}
_AGE = 13
# below these widths ids, and how much was sent, give way
_WIDE, _ROOMY = 84, 75


def panel(world: World, view: View, width: int, height: int) -> Panel:
    """Roles, their aliases and slots; then what the gateway is and what it cannot do."""
    settings, note = world.workspace.gateway, state_note(world.gateway, world.now_s)
    title = f"Gateway {settings.kind} {literal(settings.bind, 60)}"
    now = world.gateway.value
    if not world.workspace.roles:
        return Panel("Gateway", tuple(sentence(NO_WORKSPACE, width, "dim")))
    if now is None:
        why = sentence(f"not read: {literal(world.gateway.reason)}", width, "bad")
        return Panel(title, tuple(why), note)
    rows = _old(world, width)
    for role in world.workspace.roles:
        rows += _role(world, now, role, width)
    return Panel(title, (*rows, *_itself(now, width)), note)


def _old(world: World, width: int) -> list[Row]:
    """What follows is the last reading, when there is no newer one."""
    if world.gateway.ok:
        return []
    age = world.gateway.age_s(world.now_s)
    since = "" if age is None else f"; what follows is {span(age)} old"
    return sentence(f"cannot be read now: {literal(world.gateway.reason, 200)}{since}", width, "bad", most=3)


def _role(world: World, now: Gateway, role: Role, width: int) -> Iterator[Row]:
    yield spread(
        [Cell(literal(role.name, 60), "accent")], [right("fly", 5, "faint"), right("oldest", _AGE, "faint")], width
    )
    for alias in role.aliases:
        yield row(
            Cell("  "),
            Cell(literal(alias, 120), "strong"),
            Cell(f" {glyphs.ARROW} ", "dim"),
            _target(now, role, alias),
            key=alias,
        )
    wide = max((cell_len(_address(now, s)) for s in role.slots), default=0)
    for slot in role.slots:
        yield _slot(world, now, slot, wide, width)


def _target(now: Gateway, role: Role, alias: str) -> Cell:
    target = now.aliases.get(alias)
    if target is None:
        return Cell("not in the gateway: `gateway install`", "bad")
    if target == "hold":
        return Cell("held" if now.can.holds else "quiesced: clients get 503", "warn")
    if target == "none":
        return Cell("nothing: clients get 503", "warn")
    ours = any(s.name == target for s in role.slots)
    return Cell(literal(target, 60), "good" if ours else "bad")


def _address(now: Gateway, slot: Slot) -> str:
    backend = now.backend(slot.name)
    return literal(backend.address if backend and backend.address else f"port {slot.port}", 40)


def _slot(world: World, now: Gateway, slot: Slot, wide: int, width: int) -> Row:
    """`wide`: of the longest address, so that what runs in the slots stands in one column."""
    backend, serve = now.backend(slot.name), _in_slot(world, slot)
    fly = backend.in_flight if backend else None
    oldest = span(backend.oldest_s) if backend and backend.oldest_s is not None else ""
    tail = [right(NA if fly is None else str(fly), 5, "text" if fly else "dim"), right(oldest, _AGE, "dim")]
    who = [Cell("  empty", "faint")]
    if serve:
        who = [Cell(f"  {literal(serve.name, 80)} ", "text"), Cell(str(serve.phase), PHASE_TONES[serve.phase])]
    return spread(
        [Cell("    "), left(literal(slot.name, 40), 16), left(_address(now, slot), wide, "dim"), *who], tail, width
    )


def _in_slot(world: World, slot: Slot) -> Serve | None:
    """What runs there, recorded or not yet; else what is recorded there."""
    at = ((s, s.record or seat_of(world, s.container)) for s in world.serves)
    found = [s for s, seat in at if seat and seat.slot == slot.name]
    return max(found, key=lambda s: s.container.running, default=None)


def _itself(now: Gateway, width: int) -> list[Row]:
    file = (
        [Cell("equals the running one", "dim")]
        if now.file_equal
        else [Cell("DIFFERS: `anvil-tui gateway install`", "bad")]
    )
    lacks = "; ".join(text for name, text in _LACKS.items() if not getattr(now.can, name))
    pairs: list[tuple[str, str | Sequence[Cell]]] = [
        ("process", f"pid {NA if now.pid is None else now.pid}, version {literal(now.version or NA, 40)}"),
        ("aliases file", file),
        ("generation", str(now.generation)),
        ("held", number(now.held) if now.can.holds else "not by this gateway"),
        ("cannot", [Cell(lacks, "warn")] if lacks else "nothing that a change needs"),
    ]  # fmt: skip
    return [BLANK, *facts(pairs, width)]


def requests_panel(world: World, view: View, width: int, height: int) -> Panel:
    """Every request in progress, oldest first, with what its bytes prove."""
    now, note = world.gateway.value, state_note(world.gateway, world.now_s)
    if not world.workspace.roles:
        return Panel("Requests in progress", ())
    if now is None or now.requests is None:
        why = "the gateway was not read" if now is None else "this gateway counts requests and cannot list them"
        return Panel("Requests in progress", tuple(sentence(why, width, "dim")), note)
    if not world.gateway.ok:
        return Panel(
            "Requests in progress", tuple(sentence("not known: the gateway cannot be read", width, "bad")), note
        )
    slots = [s.name for r in world.workspace.roles for s in r.slots]
    requests = sorted((r for s in slots for r in on_slot(now, s) or ()), key=lambda r: -r.age_s)
    if not requests:
        return Panel("Requests in progress 0", tuple(sentence("Nothing is in flight.", width, "dim")), note)
    rows = [_head(width), *(_request(world, r, width) for r in requests)]
    return Panel(f"Requests in progress {len(requests)}", tuple(rows), note)


def _head(width: int) -> Row:
    cells = [left("", 2), left("state", 9, "faint"), left("slot", _slot_width(width), "faint")]
    cells += [right("age", 13, "faint"), right("sent", 12 if width >= _ROOMY else 0, "faint")]
    cells += [right("bytes/s", 10, "faint"), right("silent", 13, "faint")]
    return row(*cells, Cell("  request" if width >= _WIDE else "", "faint"))


def _slot_width(width: int) -> int:
    return 16 if width >= _ROOMY else 10


def _request(world: World, r: Request, width: int) -> Row:
    state = state_of(r, world.workspace.policies)
    glyph, tone = _STATES[state]
    average = rate(r)
    idle = NA if r.idle_s is None else span(r.idle_s)
    roomy = width >= _ROOMY
    cells = [
        Cell(f"{glyph} ", tone), left(state, 9, tone), left(literal(r.backend, 40), _slot_width(width)),
        right(span(r.age_s), 13), right(number(r.bytes_out), 12 if roomy else 0),
        right(NA if average is None else f"{average:,.0f}", 10),
        right(idle, 13, "bad" if state == "stalled" else "dim"),
    ]  # fmt: skip
    return row(*cells, Cell(f"  {literal(r.id, 60)}" if width >= _WIDE else "", "faint"))
