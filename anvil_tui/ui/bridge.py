"""From the store's threads to the console's loop: only the latest World, at most four a second."""

from __future__ import annotations

import time
from collections.abc import Callable

from textual.message import Message

from anvil_tui.core.world import World
from anvil_tui.ui.seams import WorldStore

TICK_S = 0.25
SILENCE_S = 6.0
# Textual queues 30 writes and then blocks the loop; a terminal that reads keeps the queue near 0.
MAX_BACKLOG = 3


class WorldChanged(Message):
    """A new World. `silent_s` is 0 while the store speaks, else for how long it has said nothing."""

    def __init__(self, world: World, silent_s: float = 0.0) -> None:
        super().__init__()
        self.world, self.silent_s = world, silent_s

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, WorldChanged)


class Bridge:
    """Remembers that there is something newer; `pump`, called by one timer on the loop, reads the newest."""

    def __init__(
        self,
        store: WorldStore,
        post: Callable[[WorldChanged], object],
        backlog: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._post, self._backlog, self._clock = store, post, backlog, clock
        self._fresh = True
        self._heard_s = clock()
        self._silent_s = 0.0
        self._stop = store.subscribe(self._hear)

    def _hear(self) -> None:
        self._fresh, self._heard_s = True, self._clock()

    def pump(self) -> None:
        """Post what is new unless the terminal is behind: then the next tick carries the newer World."""
        if self._backlog() > MAX_BACKLOG:
            return
        silent = self._clock() - self._heard_s
        silent = float(int(silent)) if silent > SILENCE_S else 0.0
        if self._fresh or silent != self._silent_s:
            self._fresh, self._silent_s = False, silent
            self._post(WorldChanged(self._store.world, silent))

    def close(self) -> None:
        self._stop()
