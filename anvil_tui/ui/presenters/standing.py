"""What stands ready, or does not: the way back of each role, drills, owners of GPUs, credentials, clients.

Keys of the list: `role:NAME`, `gpu:UUID`, `credential:NAME`, `client:NAME`, `drill:OPERATION:AT`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from anvil_tui.core.clients import words as client_words
from anvil_tui.core.credentials import credential_text, why_not_usable
from anvil_tui.core.drills import drill_lines, last_drill, outcome_words, trend_line, trends
from anvil_tui.core.ownership import owner_text
from anvil_tui.core.standing import Check, ClientState, CredentialState, DrillRecord, Owner
from anvil_tui.core.times import age_s, parse_time, span
from anvil_tui.core.world import Readiness, World
from anvil_tui.ui import glyphs
from anvil_tui.ui.presenters.cells import (
    BLANK,
    Cell,
    Panel,
    Row,
    Tone,
    View,
    facts,
    heading,
    left,
    row,
    sentence,
    spread,
)
from anvil_tui.ui.text import literal, stamp

CHECKS: dict[str, tuple[str, Tone]] = {
    "ok": (glyphs.DONE, "good"),
    "missing": (glyphs.BAD, "bad"),
    "unknown": (glyphs.ASK, "warn"),
    "waived": (glyphs.WARN, "warn"),
}
_CREDENTIALS: dict[str, tuple[str, Tone]] = {
    "accepted": (glyphs.DONE, "good"),
    "refused": (glyphs.BAD, "bad"),
    "absent": (glyphs.BAD, "bad"),
    "unproven": (glyphs.ASK, "warn"),
    "unknown": (glyphs.ASK, "dim"),
}
_CLIENTS: dict[str, tuple[str, Tone]] = {
    "converged": (glyphs.DONE, "good"),
    "drift": (glyphs.BAD, "bad"),
    "no-credential": (glyphs.WARN, "warn"),
    "unreachable": (glyphs.WARN, "warn"),
    "unreadable": (glyphs.BAD, "bad"),
    "unknown": (glyphs.ASK, "dim"),
}
_DRILLS: dict[str, tuple[str, Tone]] = {
    "restored": (glyphs.DONE, "good"),
    "differs": (glyphs.WARN, "warn"),
    "undone": (glyphs.OFF, "warn"),
    "halted": (glyphs.BAD, "bad"),
}
SHOWN_DRILLS = 8


def list_panel(world: World, view: View, width: int, height: int) -> Panel:
    rows: list[Row] = []
    for title, part in (
        ("Way back", _roles(world, width)), ("GPUs", _gpus(world, width)),
        ("Credentials", _credentials(world, width)),
        ("Clients", _clients(world, width)), ("Drills", _drills(world, width)),
    ):  # fmt: skip
        rows += [BLANK] if rows else []
        rows += [heading(title, width), *part]
    return Panel("Standing", tuple(rows))


# the list


def _marked(mark: tuple[str, Tone], name: str, text: str, width: int, key: str, tail: str = "") -> Row:
    cells = [
        Cell(f"{mark[0]} ", mark[1]),
        Cell(literal(name, 60), "strong"),
        Cell(f"  {literal(text, 200)}", mark[1]),
    ]
    return spread(cells, [Cell(literal(tail, 40), "dim")] if tail else [], width, key)


def _roles(world: World, width: int) -> Iterator[Row]:
    for role in world.workspace.roles:
        yield _marked(*_role_words(world, role.name), width, f"role:{role.name}", drilled(world, role.name))


def _role_words(world: World, role: str) -> tuple[tuple[str, Tone], str, str]:
    way = world.rollbacks.get(role, Readiness("", ("not looked at yet",)))
    if not way.target:
        return (glyphs.DASH, "dim"), role, f"none: {'; '.join(way.missing)}"
    if way.ready:
        return CHECKS["ok"], role, f"ready: {way.target}"
    states = {c.state for c in way.checks}
    mark = CHECKS["missing" if "missing" in states else "unknown"]
    return mark, role, f"{way.target}: {'; '.join(way.missing)}"


def drilled(world: World, role: str) -> str:
    """`drill 3 d 04 h ago, back in 41 s`: the newest one of the role on this box."""
    newest = last_drill(world.drills, role)
    if newest is None:
        return "no drill yet"
    took = f", back in {newest.restore_s:.0f} s" if newest.restore_s is not None else ""
    return f"drill {span(age_s(parse_time(newest.at), world.now_utc) or 0)} ago{took}"


def _gpus(world: World, width: int) -> Iterator[Row]:
    snapshot = world.gpus.value
    if snapshot is None:
        yield row(Cell(f"not read: {literal(world.gpus.reason)}", "dim"))
        return
    for gpu in snapshot.gpus:
        owners = [o for o in world.owners if o.gpu == gpu.uuid]
        doubt = any(not o.certain or o.kind != "ours" for o in owners)
        mark: tuple[str, Tone] = (glyphs.WARN, "warn") if doubt else (glyphs.OK if owners else glyphs.OFF, "text")
        names = ", ".join(o.name for o in owners) or "nobody"
        yield _marked(mark, f"GPU {gpu.index}", names, width, f"gpu:{gpu.uuid or gpu.index}")


def _credentials(world: World, width: int) -> Iterator[Row]:
    if not world.credentials:
        yield row(Cell("not looked at yet", "dim"))
    for c in world.credentials:
        yield _marked(_CREDENTIALS[c.state], c.name, c.state, width, f"credential:{c.name}", c.fingerprint)


def _clients(world: World, width: int) -> Iterator[Row]:
    if not world.workspace.clients:
        yield row(Cell("anvil.toml names no [[clients]]", "dim"))
    for c in world.clients:
        text = "; ".join(c.differences) or c.state
        yield _marked(_CLIENTS[c.state], c.name, text, width, f"client:{c.name}")


def _drills(world: World, width: int) -> Iterator[Row]:
    if not world.drills:
        yield row(Cell("none yet: a way back that was never walked is a guess", "dim"))
    for d in list(reversed(world.drills))[:SHOWN_DRILLS]:
        kind = "recheck" if d.recheck else "drill" if d.place == "box" else "copy"
        text = f"{kind}: {outcome_words(d)}"
        tail = span(age_s(parse_time(d.at), world.now_utc) or 0) + " ago"
        yield _marked(_DRILLS[d.outcome], d.role, text, width, f"drill:{d.operation}:{d.at}", tail)


# one of them


def detail_panel(world: World, view: View, width: int, height: int) -> Panel:
    kind, _, name = view.standing.partition(":")
    build = _DETAILS.get(kind)
    rows = list(build(world, view, name, width)) if build else []
    if not rows:
        return Panel("Standing", tuple(sentence("Choose a line with the arrow keys.", width, "dim")))
    return Panel(_TITLES[kind].format(literal(name.partition(":")[0], 120)), tuple(rows))


def _role_rows(world: World, view: View, name: str, width: int) -> Iterator[Row]:
    way = world.rollbacks.get(name)
    if way is None:
        return
    yield from facts([("returns to", literal(way.target, 200) or "nothing: there is no way back")], width)
    yield BLANK
    for check in way.checks:
        yield from check_rows(check, width)
    if not way.checks:
        yield from sentence(literal("; ".join(way.missing), 600), width, "dim")
    yield BLANK
    lines = [trend_line(t) for t in trends(world.drills) if t.role == name] or [
        "no drill was timed on this box yet"
    ]
    for text in lines:
        yield from sentence(literal(text, 400), width, "dim")
    newest = last_drill(world.drills, name)
    if newest:
        yield from sentence(f"last drill {stamp(newest.at, view.zone)}: {outcome_words(newest)}", width, "dim")


def check_rows(check: Check, width: int) -> list[Row]:
    """A check with its mark, name, and what was seen or is wrong."""
    glyph, tone = CHECKS[check.state]
    text_tone: Tone = "dim" if check.state == "ok" else tone
    name_tone: Tone = "text" if check.state == "ok" else tone
    first, *more = sentence(literal(check.why or check.state, 600), max(8, width - 17), text_tone)
    head = [Cell(f"{glyph} ", tone), left(check.name, 15, name_tone)]
    return [row(*head, *first.cells), *(row(" " * 17, *r.cells) for r in more)]


def _gpu_rows(world: World, view: View, name: str, width: int) -> Iterator[Row]:
    owners = [o for o in world.owners if o.gpu == name]
    yield from sentence(literal(name, 120), width, "dim")
    for owner in owners:
        yield from sentence(literal(_owner(owner), 400), width, "text" if owner.certain else "warn")
    if not owners:
        yield from sentence("Nobody holds it, and no running container was given it.", width, "dim")


def _owner(owner: Owner) -> str:
    return f"{owner.kind}: {owner_text(owner)}"


def _credential_rows(world: World, view: View, name: str, width: int) -> Iterator[Row]:
    for c in (c for c in world.credentials if c.name == name):
        yield from sentence(literal(credential_text(c, world.now_utc), 800), width)
        yield from _wrong(c, width)


def _wrong(c: CredentialState, width: int) -> list[Row]:
    why = why_not_usable(c)
    return [BLANK, *sentence(literal(why, 800), width, "bad" if c.state != "unknown" else "dim")] if why else []


def _client_rows(world: World, view: View, name: str, width: int) -> Iterator[Row]:
    for c in (c for c in world.clients if c.name == name):
        yield from facts(_client_pairs(c, view), width)
        yield BLANK
        for text in c.differences:
            yield from sentence(literal(text, 400), width, "bad")
        yield from sentence(literal(client_words(c), 400), width, "dim")


def _client_pairs(c: ClientState, view: View) -> list[tuple[str, str | Sequence[Cell]]]:
    glyph, tone = _CLIENTS[c.state]
    return [
        ("file", literal(c.where, 400)), ("state", [Cell(f"{glyph} {c.state}", tone)]),
        ("looked at", stamp(c.at, view.zone) if c.at else "not yet"),
    ]  # fmt: skip


def _drill_rows(world: World, view: View, name: str, width: int) -> Iterator[Row]:
    for d in (d for d in world.drills if f"{d.operation}:{d.at}" == name):
        yield from _drill(d, width)


def _drill(d: DrillRecord, width: int) -> Iterator[Row]:
    for text in drill_lines(d):
        tone: Tone = "bad" if text.startswith("  DIFFERS") else "text"
        yield from sentence(literal(text.strip(), 600), width, tone)


Rows = Callable[[World, View, str, int], Iterator[Row]]
_DETAILS: dict[str, Rows] = {
    "role": _role_rows, "gpu": _gpu_rows, "credential": _credential_rows, "client": _client_rows,
    "drill": _drill_rows,
}  # fmt: skip
_TITLES = {
    "role": "Way back of {}", "gpu": "Owners of {}", "credential": "Credential {}", "client": "Client {}",
    "drill": "Drill {}",
}  # fmt: skip
