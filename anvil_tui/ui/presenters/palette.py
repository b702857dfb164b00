"""The palette: every action, and every noun that has a place on a screen, found by parts of their words.

Keys of its rows are `KIND:KEY`; those of the last choices begin with `AGAIN`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from anvil_tui.core.world import World
from anvil_tui.ui.actions import ACTIONS, Action
from anvil_tui.ui.presenters import gates, gpus, recipes, standing
from anvil_tui.ui.presenters.cells import Cell, Row, Tone, View, left, spread
from anvil_tui.ui.presenters.evidence import PASSED
from anvil_tui.ui.presenters.help import Why
from anvil_tui.ui.presenters.operations import state_word
from anvil_tui.ui.text import literal, short_id

AGAIN = "again:"
SCREEN_IDS = frozenset(a.id for a in ACTIONS if a.id.startswith("view.") and a.keys[0].isdigit())
_KIND = 11
_NAME = 34
_WIDE = 70


class Entry(NamedTuple):
    """`more` is found too, and not always shown. `why` says why an action is closed."""

    kind: str
    key: str
    name: str
    note: str
    more: str = ""
    hint: str = ""
    why: str = ""

    @property
    def id(self) -> str:
        return f"{self.kind}:{self.key}"


def entries(world: World, view: View, why: Why) -> list[Entry]:
    """Actions and screens first, then nouns, in the order in which an operator meets them."""
    return [*(_action(a, why(a)) for a in ACTIONS), *_box(world), *_work(world, view), *_around(world)]


def _action(action: Action, closed: str | None) -> Entry:
    kind = "screen" if action.id in SCREEN_IDS else "action"
    return Entry(kind, action.id, action.label, action.help, action.id, action.key, closed or "")


def _box(world: World) -> Iterator[Entry]:
    for s in world.serves:
        yield Entry("serve", s.container.id, s.name, f"{s.phase}, {s.position} {short_id(s.container.id)}",
                    f"{s.container.name} {s.record.served_name if s.record else ''}")  # fmt: skip
    for gpu in world.gpus.value.gpus if world.gpus.value else ():
        key = gpus.key_of(gpu)
        yield Entry("GPU", key, gpus.role_of(world, gpu), f"index {gpu.index}, {gpu.name or 'name n/a'}", key)
    for role in world.workspace.roles:
        yield Entry("role", role.name, role.name, f"its way back, and {', '.join(role.aliases)}")
    now = world.gateway.value
    for alias in (a for role in world.workspace.roles for a in role.aliases):
        target = now.aliases.get(alias, "not in the gateway") if now else "the gateway was not read"
        yield Entry("alias", alias, alias, f"points at {target}" if now and alias in now.aliases else target)


def _work(world: World, view: View) -> Iterator[Entry]:
    for file in world.recipes:
        decision = file.recipe.decision if file.recipe else None
        note = f"{decision.status if decision else 'undecided'}" if file.recipe else f"bad file: {file.error}"
        yield Entry("recipe", recipes.key_of(file), recipes.key_of(file), note, recipes.haystack(file))
    for o in reversed(world.operations):
        yield Entry("operation", o.id, o.id, f"{o.kind} {o.target} {state_word(o)}")
    found = gates.of_operation(world, view)
    for gate in gates.settled(found) if found else ():
        yield Entry("gate", gates.named(gate), gates.named(gate), f"{gate.verdict} in {found.id if found else ''}")


def _around(world: World) -> Iterator[Entry]:
    for past in sorted(world.pasts, key=lambda p: p.at, reverse=True):
        note = f"{past.identity.recipe or 'recipe n/a'} {past.identity.suite or ''} {PASSED[past.passed]}"
        yield Entry("bundle", past.id, past.id, note)
    for name, why in world.broken_bundles.items():
        yield Entry("bundle", name, name, f"cannot be read: {why}")
    for kind in ("credential", "client"):
        states = {c.name: c.state for c in (world.credentials if kind == "credential" else world.clients)}
        for name in standing.named(world, kind):
            yield Entry(kind, name, name, states.get(name, standing.UNSEEN))


def found(text: str, known: Iterable[Entry]) -> list[Entry]:
    """Those in which every word is found, the best first: at the start of the name, of a part of it, inside it,
    elsewhere, and last where only its letters come in that order."""
    words = text.lower().split()
    ranked = [(rank, n, e) for n, e in enumerate(known) if (rank := _rank(words, e)) is not None]
    return [e for _, _, e in sorted(ranked, key=lambda r: r[:2])]


def _rank(words: Sequence[str], entry: Entry) -> int | None:
    name, more = entry.name.lower(), f"{entry.kind} {entry.more} {entry.note}".lower()
    ranks = [_one(word, name, more) for word in words]
    return None if None in ranks else sum(r for r in ranks if r is not None)


def _one(word: str, name: str, more: str) -> int | None:
    if name.startswith(word):
        return 0
    if any(part.startswith(word) for part in re.split(r"[^a-z0-9]+", name)):
        return 1
    if word in name:
        return 2
    if word in more:
        return 3
    letters = iter(name)
    return 6 if len(word) > 1 and all(ch in letters for ch in word) else None


def rows(text: str, known: Sequence[Entry], recent: Sequence[str], width: int) -> list[Row]:
    """The last choices stand above the rest while nothing is typed, the newest lowest: the up key reaches it."""
    by_id = {e.id: e for e in known}
    again = [by_id[i] for i in recent if i in by_id] if not text.strip() else []
    return [
        *(_row(e, width, f"{AGAIN}{e.id}", "again") for e in again),
        *(_row(e, width, e.id, e.kind) for e in found(text, known)),
    ]


def _row(entry: Entry, width: int, key: str, kind: str) -> Row:
    room = _NAME if width >= _WIDE else max(12, width - _KIND - 8)
    tone: Tone = "faint" if entry.why else "strong"
    name = f"({literal(entry.name, 120)})" if entry.why else literal(entry.name, 120)
    note = Cell(f" {literal(entry.why or entry.note, 300)}", "dim") if width >= _WIDE else Cell("")
    tail = [Cell(f" {entry.hint} ", "accent" if not entry.why else "faint")] if entry.hint else []
    return spread([left(kind, _KIND, "dim"), left(name, room, tone), note], tail, width, key)


def why_closed(known: Sequence[Entry], key: str) -> str | None:
    return next((e.why for e in known if e.id == key.removeprefix(AGAIN)), "") or None


def begin(keys: Sequence[str]) -> str:
    """Where the cursor stands at first: on the best that is no earlier choice."""
    return next((k for k in keys if not k.startswith(AGAIN)), "")
