"""The terminal's bell, once for each alarm that is new, or bad by now, and that nobody has acknowledged."""

from __future__ import annotations

from collections.abc import Callable

from anvil_tui.core.world import World


class Ringer:
    """`ring` None = silent. Several alarms at once are one bell; a replay rings for nothing."""

    def __init__(self, ring: Callable[[], object] | None) -> None:
        self._ring = ring
        self._heard: set[tuple[str, ...]] = set()

    def hear(self, world: World) -> None:
        if world.replayed or self._ring is None:
            return
        now: set[tuple[str, ...]] = {(a.id, a.since, a.severity) for a in world.alarms if not a.acked_by}
        new, self._heard = now - self._heard, now
        if new:
            self._ring()
