"""From the store's threads to the console's loop: the latest World once a second, what happens within 0.25 s."""

from __future__ import annotations

import time
from collections.abc import Callable

from textual.message import Message

from anvil_tui.core.world import World
from anvil_tui.ui.seams import WorldStore

TICK_S = 0.25
# Four redraws a second of figures that are read once a second cost three times the CPU and show nothing more.
CALM_S = 0.9
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
        reads_log: Callable[[], bool] = lambda: True,
    ) -> None:
        """`backlog`: writes that wait for the terminal; `reads_log`: whether the log has the focus."""
        self._store, self._post, self._backlog, self._clock = store, post, backlog, clock
        self._reads_log = reads_log
        self._fresh = True
        self._heard_s = clock()
        self._silent_s = 0.0
        self._shown: World | None = None
        self._shown_s = clock()
        self._stop = store.subscribe(self._hear)

    def _hear(self) -> None:
        self._fresh, self._heard_s = True, self._clock()

    def tick(self) -> None:
        """For the timer: figures wait until a second is over; what happens, and a log that is read, do not."""
        world, shown = self._store.world, self._shown
        late = shown is None or world.replayed or self._clock() - self._shown_s >= CALM_S
        if late or (shown and _news(shown, world, reads_log=self._reads_log())):
            self.pump()

    def pump(self) -> None:
        """Post what is new unless the terminal is behind: then the next tick carries the newer World."""
        if self._backlog() > MAX_BACKLOG:
            return
        silent = self._clock() - self._heard_s
        silent = float(int(silent)) if silent > SILENCE_S else 0.0
        if self._fresh or silent != self._silent_s:
            self._fresh, self._silent_s = False, silent
            self._shown, self._shown_s = self._store.world, self._clock()
            self._post(WorldChanged(self._shown, silent))

    def close(self) -> None:
        self._stop()


_PRESSING = ("operations", "lease", "events", "source_errors", "record", "recipes")
_READINGS = ("gpus", "host", "containers", "gateway")


def _news(old: World, new: World, *, reads_log: bool) -> bool:
    """Whether more than figures is new. What follows from a reading is made anew with each: its length counts."""
    moved = any(getattr(old, name) is not getattr(new, name) for name in _PRESSING)
    come = len(old.serves) != len(new.serves) or (reads_log and old.log is not new.log)
    return moved or come or any(getattr(old, name).state != getattr(new, name).state for name in _READINGS)
