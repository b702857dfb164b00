"""Help and hints: two views of the one action registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from anvil_tui.core.world import World
from anvil_tui.ui import keymap
from anvil_tui.ui.actions import ACTIONS, Action
from anvil_tui.ui.presenters.cells import BLANK, Cell, Row, Tone, joined, left, row, spread, width_of
from anvil_tui.ui.text import literal, wrap

Why = Callable[[Action], str | None]

HINT_LIMIT = 6
_AREAS = {
    "view": "Look",
    "replay": "In a replay",
    "recipe": "Recipes",
    "serve": "The selected serve",
    "role": "Its role",
    "alarm": "Alarms",
    "operation": "Operations",
    "client": "Clients",
    "credential": "Credentials",
    "storage": "Images and caches",
}


def urgent(world: World, usual: Sequence[str]) -> list[str]:
    """The ids of the hints, with what an alarm or an operation that waits for a person needs behind the first."""
    operation = world.operation
    ways: tuple[str, ...] = ()
    if operation and operation.needs_person:
        waits = {"paused": ("operation.resume", "operation.cancel")}
        open_ways = ("operation.resume", "operation.undo")
        ways = waits.get(operation.state, () if operation.state == "running" else open_ways)
    if any(not a.acked_by for a in world.alarms):
        ways = ("alarm.ack", *ways)
    return [*usual[:1], *ways, *(i for i in usual[1:] if i not in ways)]


def hints(actions: Sequence[Action], why: Why, width: int, called: Mapping[str, str] = {}) -> Row:
    """At most six, the first never cut; a closed one stands in brackets, so that it reads without colour.
    `called` are names of actions that mean something more particular on the screen."""
    parts = [_hint(a, called.get(a.id, a.label), why(a)) for a in actions[:HINT_LIMIT]]
    return spread([Cell(" "), *joined(parts, "  ")], [], width)


def _hint(action: Action, label: str, closed: str | None) -> list[Cell]:
    if closed:
        return [Cell(f"({action.key} {label})", "faint")]
    return [Cell(action.key, "accent"), Cell(f" {label}", "dim")]


def help_rows(why: Why, width: int) -> list[Row]:
    """Every action by area; a closed one says why in its second line."""
    rows: list[Row] = []
    for area, title in _AREAS.items():
        rows += [BLANK] if rows else []
        rows.append(row(Cell(title, "accent")))
        for action in ACTIONS:
            if action.id.startswith(f"{area}."):
                rows += _help(action, why(action), width)
    return rows


def _help(action: Action, closed: str | None, width: int) -> list[Row]:
    keys = ", ".join(map(keymap.written, keymap.keys(action.id)))
    tone: Tone = "dim" if closed else "text"
    cells = [
        left(keys, 15, "faint" if closed else "strong"),
        left(action.label, 14, tone),
    ]
    first, *more = wrap(action.help, max(8, width - width_of(cells)))
    rows = [spread([*cells, Cell(first, "dim")], [], width)]
    rows += [row(" " * width_of(cells), Cell(part, "dim")) for part in more]
    if closed:
        rows.append(spread([Cell(" " * 15), Cell(f"not now: {literal(closed)}", "warn")], [], width))
    return rows
