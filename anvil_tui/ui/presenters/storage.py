"""What lies on the disks: images, revisions of model caches, stopped containers, and who refers to each.

Keys of the list: `stored:ID or PATH` for what `remove` takes, `container:ID`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from anvil_tui.core.shelf import Disks
from anvil_tui.core.times import age_s, parse_time, span
from anvil_tui.core.world import World
from anvil_tui.ui import glyphs
from anvil_tui.ui.keymap import key
from anvil_tui.ui.presenters.cells import (
    BLANK,
    Cell,
    Panel,
    Row,
    View,
    facts,
    heading,
    left,
    right,
    row,
    sentence,
    spread,
    width_of,
)
from anvil_tui.ui.text import NA, clip, literal

Thing = Mapping[str, Any]
GB = 1e9
_SIZE, _WHO = 12, 16
_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{28,}\b")


def list_panel(world: World, view: View, width: int, height: int) -> Panel:
    disks = view.shelf.disks
    if disks is None:
        return Panel("Storage", tuple(sentence("The disks are being looked at.", width, "dim")))
    note = Cell(f"read {_age(world, disks)} ago, {key('view.redraw')} reads again", "dim")
    if disks.error:
        return Panel("Storage", tuple(sentence(f"cannot be read: {literal(disks.error)}", width, "bad")), note)
    rows: list[Row] = []
    for why in disks.told["why"]:
        rows += sentence(f"{glyphs.WARN} not read: {literal(why)}", width, "warn")
    for title, part in _parts(disks):
        rows += [BLANK] if rows else []
        nothing = "n/a: not read" if part is None else "none"
        rows += [heading(title, width), *([_line(t, width) for t in part or ()] or [row(Cell(nothing, "dim"))])]
    return Panel("Storage", tuple(rows), note)


def choices(disks: Disks, text: str, width: int) -> list[Row]:
    """What a removal may be aimed at, by a part of its name; keys are the targets themselves."""
    things = [t for _, part in _parts(disks) for t in part or () if text.lower() in literal(name(t)).lower()]
    return [_line(t, width)._replace(key=_id(t)) for t in things]


def free(disks: Disks) -> str:
    """How many may go: `2 of 7 are needed by nobody`."""
    things = [t for _, part in _parts(disks) for t in part or () if "status" not in t]
    return f"{sum(not t['held_by'] for t in things)} of {len(things)} are needed by nobody"


def why_kept(disks: Disks, target: str) -> str | None:
    """Who refers to it; None when nobody does."""
    found = _find(disks, target)
    if found is None:
        return "it is not there any more"
    if "status" in found:
        return f"a container: `unload` removes it, {key('serve.unload')} on the storage screen"
    return f"needed by {'; '.join(found['held_by'])}" if found["held_by"] else None


def _parts(disks: Disks) -> list[tuple[str, Sequence[Thing] | None]]:
    """None = could not be read."""
    told = disks.told
    images, revisions = told.get("images"), told.get("revisions")
    return [
        (f"Images  {size(told.get('image_bytes'))} in all, shared layers once", _by_size(images)),
        ("Model caches", _by_size(revisions)),
        ("Stopped containers to which no role refers", told.get("containers", ())),
    ]  # fmt: skip


def _by_size(things: Iterable[Thing] | None) -> list[Thing] | None:
    return None if things is None else sorted(things, key=lambda t: -(t["bytes"] or 0))


def _id(thing: Thing) -> str:
    """What `remove` calls it: an image's full id, a snapshot's path; a container's id."""
    return str(thing["path"] if "path" in thing else thing["id"])


def name(thing: Thing) -> str:
    """As a person knows it: a tag, a pinned name, REPO@REVISION, a container's name."""
    if "pins" in thing:
        return str(next(iter([*thing["tags"], *thing["pins"]]), thing["id"]))
    return str(thing["name"])


def _key(thing: Thing) -> str:
    return f"{'container' if 'status' in thing else 'stored'}:{_id(thing)}"


def _line(thing: Thing, width: int) -> Row:
    if "status" in thing:
        cells = [Cell(f"{glyphs.OFF} ", "dim"), Cell(literal(name(thing), 120)),
                 Cell(f"  {literal(thing['status'], 40)}", "dim")]  # fmt: skip
        return spread(cells, [right(NA, _SIZE, "dim")], width, _key(thing))
    held = thing["held_by"]
    room = max(_WHO, width // 2 - _SIZE)
    whose = left(_needed_by(held, room), room, "dim") if held else left("nobody needs it", room, "good")
    mark = Cell(f"{glyphs.OK} ", "text") if held else Cell(f"{glyphs.OFF} ", "good")
    flaw = [Cell("not whole ", "warn")] if thing.get("flaws") else []
    tail = [*flaw, whose, right(size(thing["bytes"]), _SIZE)]
    head = [
        mark,
        left(_DIGEST.sub(r"\1", literal(name(thing), 300)), max(8, width - 3 - width_of(tail)), "strong"),
    ]
    return spread(head, tail, width, _key(thing))


def _needed_by(held: Sequence[str], room: int) -> str:
    """The first who needs it and how many more, or, where there is no room, how many."""
    more = f", +{len(held) - 1}" if len(held) > 1 else ""
    if room <= 2 * _WHO:
        return f"needed by {len(held)}"
    return clip(f"needed by {literal(held[0], 120)}", room - len(more)) + more


def detail_panel(world: World, view: View, width: int, height: int) -> Panel:
    disks = view.shelf.disks
    found = _find(disks, view.stored.partition(":")[2]) if disks else None
    if found is None:
        return Panel("Stored", tuple(sentence("Choose a line with the arrow keys.", width, "dim")))
    rows = facts(_pairs(found), width)
    for text in found.get("flaws", ()):
        rows += sentence(f"not whole: {literal(text)}", width, "warn")
    if "status" in found:
        rows += [
            BLANK,
            *sentence(
                f"No role and no way back means it. {key('serve.unload')} unloads it: the container goes.",
                width,
                "dim",
            ),
        ]
        return Panel(f"Container {literal(found['name'], 120)}", tuple(rows))
    rows += [BLANK, row(Cell(f"Needed by {len(found['held_by'])}", "accent"))]
    for holder in found["held_by"]:
        rows += sentence(literal(holder), width, indent=2)
    if not found["held_by"]:
        rows += sentence(
            f"Nobody refers to it: {key('storage.remove')} removes exactly it.", width, "good", indent=2
        )
    return Panel(literal(name(found), 200), tuple(rows))


def _pairs(found: Thing) -> list[tuple[str, str | Sequence[Cell]]]:
    if "status" in found:
        return [
            ("container", literal(found["id"], 128)),
            ("status", literal(found["status"])),
            ("size", "not read"),
        ]
    pairs: list[tuple[str, str | Sequence[Cell]]] = []
    if "path" in found:
        pairs += [("name", literal(found["name"], 300)), ("path", literal(found["path"], 600)),
                  ("size", f"{size(found['bytes'])} in {found['files']} files"),
                  ("frees", size(found["own_bytes"]))]  # fmt: skip
        pairs += [("also called", literal(ref, 200)) for ref in found["refs"]]
        return pairs
    pairs += [("image id", literal(found["id"], 128)), ("size", f"{size(found['bytes'])} with shared layers")]
    return [*pairs, *(("name", literal(n, 300)) for n in (*found["tags"], *found["pins"]))]


def _find(disks: Disks, target: str) -> Thing | None:
    told = disks.told
    every = (*(told.get("images") or ()), *(told.get("revisions") or ()), *told.get("containers", ()))
    return next((t for t in every if _id(t) == target), None)


def size(number: int | None) -> str:
    """Decimal gigabytes, as registries and disks count; `n/a` for None."""
    return NA if number is None else f"{number / GB:,.2f} GB"


def _age(world: World, disks: Disks) -> str:
    return span(max(0.0, age_s(parse_time(disks.at), world.now_utc) or 0.0))
