"""What calls for a person, what is wrong, and what stands ready or does not: ways back, drills, GPUs, credentials.

Keys of the list: `alarm:ID`, `problem:N`, `role:NAME`, `gpu:UUID`, `credential:NAME`, `client:NAME`,
`drill:OPERATION:AT`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from anvil_tui.core.clients import words as client_words
from anvil_tui.core.credentials import copy_text, credential_text, credentials_of, why_not_usable
from anvil_tui.core.drills import COPY_SAYS, last_drill, outcome_words, trend_line, trends
from anvil_tui.core.ownership import owner_text
from anvil_tui.core.standing import Check, ClientState, CopyState, CredentialState, DrillRecord, Owner
from anvil_tui.core.times import age_s, parse_time, span
from anvil_tui.core.world import Readiness, World
from anvil_tui.ui import glyphs
from anvil_tui.ui.presenters import alarms
from anvil_tui.ui.presenters.cells import (
    BLANK,
    Cell,
    Panel,
    Row,
    Tone,
    View,
    facts,
    heading,
    item,
    left,
    right,
    row,
    sentence,
    spread,
)
from anvil_tui.ui.presenters.freshness import empty
from anvil_tui.ui.text import NA, literal, stamp

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
_TALL = 20
"""From so many rows on a problem is told to its end in the list, too."""
NO_DRILL = "no drill yet"
UNSEEN = "not looked at yet"
ALL = "all clients"
"""No name of a client: a name has no blank."""


def list_panel(world: World, view: View, width: int, height: int) -> Panel:
    rows: list[Row] = []
    for title, part in (
        *((("Alarms", alarms.list_rows(world, view, width)),) if world.alarms else ()),
        *((("Problems", _problems(world, width, 3 if height >= _TALL else 1)),) if world.problems else ()),
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


def _problems(world: World, width: int, most: int) -> Iterator[Row]:
    for number, text in enumerate(world.problems):
        told = f"{glyphs.WARN} {literal(text, 600)}"
        yield from sentence(told, width, "warn", key=f"problem:{number}", most=most)


def _roles(world: World, width: int) -> Iterator[Row]:
    for role in world.workspace.roles:
        mark, name, text = _role_words(world, role.name)
        ready = mark == CHECKS["ok"]
        yield _marked(mark, name, text, width, f"role:{role.name}", drilled(world, role.name) if ready else "")


def _role_words(world: World, role: str) -> tuple[tuple[str, Tone], str, str]:
    way = world.rollbacks.get(role, Readiness("", ("not looked at yet",)))
    if not way.target:
        return (glyphs.DASH, "dim"), role, f"none: {'; '.join(way.missing)}"
    if way.ready:
        return CHECKS["ok"], role, f"ready: {way.target}"
    if any(o.role == role and o.outcome is None and o.started_at for o in world.operations):
        # it holds ports and memory just now, which then stand against the way back
        return CHECKS["unknown"], role, f"{way.target}: told again when the operation has ended"
    states = {c.state for c in way.checks}
    mark = CHECKS["missing" if "missing" in states else "unknown"]
    return mark, role, f"{way.target}: {'; '.join(way.missing)}"


def drilled(world: World, role: str) -> str:
    """`drill 3 d 04 h ago, back in 41 s`: the newest one of the role on this box; how it ended unless well."""
    newest = last_drill(world.drills, role)
    if newest is None:
        return NO_DRILL
    took = f", back in {newest.restore_s:.0f} s" if newest.restore_s is not None else ""
    how = "" if newest.outcome == "restored" else f" {outcome_words(newest)}"
    return f"drill{how} {span(age_s(parse_time(newest.at), world.now_utc) or 0)} ago{took}"


def _gpus(world: World, width: int) -> Iterator[Row]:
    snapshot = world.gpus.value
    if snapshot is None:
        yield from sentence(f"not read: {literal(world.gpus.reason)}", width, "dim", most=3)
        return
    for gpu in snapshot.gpus:
        owners = [o for o in world.owners if o.gpu == gpu.uuid]
        doubt = any(not o.certain or o.kind != "ours" for o in owners)
        mark: tuple[str, Tone] = (glyphs.WARN, "warn") if doubt else (glyphs.OK if owners else glyphs.OFF, "text")
        names = ", ".join(o.name for o in owners) or "nobody"
        yield _marked(mark, f"GPU {gpu.index}", names, width, f"gpu:{gpu.uuid or gpu.index}")


def _credentials(world: World, width: int) -> Iterator[Row]:
    found = _known_credentials(world)
    if not found:
        yield from sentence(empty(world, "anvil.toml names no gateway.client_keys"), width, "dim")
    for c in found:
        copies = _copies(c)
        text = f"{c.state}{copies}" if c.state != "unknown" else UNSEEN
        mark: tuple[str, Tone] = (
            (glyphs.WARN, "warn") if copies and c.state == "accepted" else _CREDENTIALS[c.state]
        )
        yield _marked(mark, c.name, text, width, f"credential:{c.name}", c.fingerprint)


def _copies(c: CredentialState) -> str:
    """What is wrong with copies of it: `, 1 of 3 copies does not hold it`."""
    bad = sum(copy.state != "same" for copy in c.copies)
    return f", {bad} of {len(c.copies)} copies {'does' if bad == 1 else 'do'} not hold it" if bad else ""


def _clients(world: World, width: int) -> Iterator[Row]:
    if not world.workspace.clients:
        yield from sentence(empty(world, "anvil.toml names no [[clients]]"), width, "dim")
    for c in _known_clients(world):
        text = "; ".join(c.differences) or (c.state if c.state != "unknown" else c.why or UNSEEN)
        yield _marked(_CLIENTS[c.state], c.name, text, width, f"client:{c.name}")


def _known_clients(world: World) -> list[ClientState]:
    """Those that were looked at, then those of the workspace that were not yet."""
    seen = {c.name for c in world.clients}
    unseen = [c for c in world.workspace.clients if c.name not in seen]
    return [*world.clients, *(ClientState(c.name, c.where, "unknown") for c in unseen)]


def _known_credentials(world: World) -> list[CredentialState]:
    seen = {c.name for c in world.credentials}
    unseen = [c for c in credentials_of(world.workspace) if c.name not in seen]
    return [*world.credentials, *(CredentialState(c.name, c.ref, "unknown") for c in unseen)]


# choosing one of them


def named(world: World, kind: str) -> list[str]:
    """The names that a deed on clients or on credentials may mean."""
    found = world.workspace.clients if kind == "client" else credentials_of(world.workspace)
    return [c.name for c in found]


def choices(world: World, kind: str, text: str, width: int) -> list[Row]:
    """Clients, with all of them first, or credentials: each with its state, the key its name."""
    rows = list(_clients(world, width) if kind == "client" else _credentials(world, width))
    rows = [r._replace(key=r.key.partition(":")[2]) for r in rows if text.lower() in r.key.partition(":")[2]]
    if kind == "client" and text.lower() in ALL:
        known = _known_clients(world)
        right = sum(c.state == "converged" for c in known)
        mark: tuple[str, Tone] = (glyphs.DONE, "good") if right == len(known) else (glyphs.DASH, "text")
        rows.insert(0, _marked(mark, ALL, f"{right} of {len(known)} converged", width, ALL))
    return rows


def _drills(world: World, width: int) -> Iterator[Row]:
    if not world.drills:
        yield from sentence(empty(world, "none yet: a way back that was never walked is a guess"), width, "dim")
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


def _problem_rows(world: World, view: View, name: str, width: int) -> Iterator[Row]:
    if name.isdigit() and int(name) < len(world.problems):
        yield from sentence(literal(world.problems[int(name)], 4000), width, "warn")


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
    for c in (c for c in _known_credentials(world) if c.name == name):
        yield from sentence(literal(credential_text(c, world.now_utc), 800), width)
        yield from _wrong(c, width)
        yield from (r for copy in c.copies for r in _copy(copy, width))


def _wrong(c: CredentialState, width: int) -> list[Row]:
    why = why_not_usable(c)
    return [BLANK, *sentence(literal(why, 800), width, "bad" if c.state != "unknown" else "dim")] if why else []


def _copy(copy: CopyState, width: int) -> list[Row]:
    same = copy.state == "same"
    mark = Cell(f"{glyphs.DONE} ", "good") if same else Cell(f"{glyphs.BAD} ", "bad")
    return item([mark], literal(copy_text(copy), 400), "dim" if same else "bad", [], width)


def _client_rows(world: World, view: View, name: str, width: int) -> Iterator[Row]:
    for c in (c for c in _known_clients(world) if c.name == name):
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
        yield from drill_rows(d, view, width)


def drill_rows(d: DrillRecord, view: View, width: int) -> Iterator[Row]:
    """One drill, or one recheck of it: its outcome, what differs, and the seconds of each phase of both legs."""
    glyph, tone = _DRILLS[d.outcome]
    kind = f"{'recheck' if d.recheck else 'drill'}{'' if d.place == 'box' else ' on a simulated copy'}"
    yield from item(
        [Cell(f"{glyph} ", tone)], f"{kind} {stamp(d.at, view.zone)}: {outcome_words(d)}", tone, [], width
    )
    if d.why:
        yield from sentence(literal(d.why, 1000), width, tone, indent=2)
    kinds: tuple[tuple[str, tuple[str, ...], Tone], ...] = (
        ("DIFFERS", d.differences, "bad"), ("not known", d.unread, "warn"),
    )  # fmt: skip
    for word, lines, worry in kinds:
        for text in lines:
            yield from sentence(f"{word}: {literal(text, 600)}", width, worry, indent=2)
    yield from facts([
        ("incumbent", f"{literal(d.incumbent_name, 120)} {literal(d.incumbent, 80)}"),
        ("way back", f"{literal(d.way_back_name, 120)} {literal(d.way_back, 80)}"),
    ], width)  # fmt: skip
    yield from _phases(d)
    for text in d.expected:
        yield from sentence(f"changed by the drill itself: {literal(text, 600)}", width, "dim")
    if d.place == "copy":
        yield from sentence(COPY_SAYS, width, "dim")


def _phases(d: DrillRecord) -> Iterator[Row]:
    """A phase a line, the two legs beside each other; then when each had answered."""
    if not d.phases:
        return
    took = {(p.leg, p.name): p.seconds for p in d.phases}
    yield row(left("phase", 13, "faint"), right("away", 12, "faint"), right("home", 12, "faint"))
    for name in dict.fromkeys(p.name for p in d.phases):
        yield row(left(name, 13, "dim"), *(right(_seconds(took.get((leg, name))), 12) for leg in ("away", "home")))
    yield row(left("answered", 13, "dim"), *(right(_seconds(s), 12, "strong") for s in (d.restore_s, d.home_s)))


def _seconds(value: float | None) -> str:
    """`n/a` = that leg has no such phase, or did not come so far."""
    return NA if value is None else f"{value:,.1f} s"


Rows = Callable[[World, View, str, int], Iterator[Row]]
_DETAILS: dict[str, Rows] = {
    "role": _role_rows, "gpu": _gpu_rows, "credential": _credential_rows, "client": _client_rows,
    "drill": _drill_rows, "problem": _problem_rows, "alarm": alarms.detail_rows,
}  # fmt: skip
_TITLES = {
    "role": "Way back of {}", "gpu": "Owners of {}", "credential": "Credential {}", "client": "Client {}",
    "drill": "Drill {}", "problem": "Problem", "alarm": "Alarm {}",
}  # fmt: skip
