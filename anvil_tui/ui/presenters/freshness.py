"""How old a reading may be, and the words for stale, unknown and error."""

from __future__ import annotations

from typing import TypeVar

from anvil_tui.core.discovery import NO_WORKSPACE
from anvil_tui.core.reading import Reading
from anvil_tui.core.times import span
from anvil_tui.core.world import World
from anvil_tui.ui.presenters.cells import Cell
from anvil_tui.ui.text import literal

T = TypeVar("T")

STALE_S = 10.0


def gpu_limit_s(world: World) -> float:
    """Three missed readings of the configured cadence."""
    return max(3.0, 3 * world.workspace.gpus.interval_s)


def empty(world: World, text: str) -> str:
    """What stands where nothing is: without a workspace there can be nothing, and that is said."""
    return text if world.workspace.roles else NO_WORKSPACE


def state_note(reading: Reading[T], now_s: float, limit_s: float = STALE_S) -> Cell | None:
    """None while fresh; else one word in capitals and why."""
    age = reading.age_s(now_s)
    old = "" if age is None else f" {span(age)}"
    if reading.state == "error":
        held = f", last value{old} ago" if reading.value is not None and old else ""
        return Cell(f"ERROR {literal(reading.reason, 160)}{held}", "bad")
    if reading.state == "unknown":
        return Cell(f"unknown: {literal(reading.reason, 160)}", "dim")
    return Cell(f"STALE{old}", "warn") if reading.is_stale(now_s, limit_s) else None


def why_unusable(reading: Reading[T], now_s: float, what: str, limit_s: float = STALE_S) -> str | None:
    """A sentence when a deed must not rest on this reading."""
    if not reading.ok:
        return f"{what} cannot be read: {literal(reading.reason, 160)}"
    if reading.is_stale(now_s, limit_s):
        return f"{what} was last read {span(reading.age_s(now_s) or 0)} ago: wait for a fresh reading"
    return None
