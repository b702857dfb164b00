"""Keeps what the store publishes, in a thread of its own: nobody who changes the world ever waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from anvil_tui.core.errors import AnvilError, Refused
from anvil_tui.core.recording import CADENCE_S
from anvil_tui.core.world import World
from anvil_tui.ports import Clock
from anvil_tui.ports.history import HistoryWriter
from anvil_tui.service.store import Store

# What happens is written at once; of what happens together, all is one frame.
AT_ONCE_S = 0.5
AGAIN_S = 60.0
STOP_S = 1.0


class Recorder:
    """A frame every five seconds, and soon after each event or alarm. `note` says why nothing is kept, "" = it is.

    A failure (a full disk) is a source error of the store's world too; it is tried again every minute.
    """

    def __init__(self, store: Store, writer: HistoryWriter, clock: Clock) -> None:
        self._store, self._writer, self._clock = store, writer, clock
        self.note, self._opened = "", False
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._seen = _news(store.world)
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self) -> None:
        self._unsubscribe = self._store.subscribe(self._hear)
        self._thread.start()

    def stop(self) -> None:
        """Returns within a second: what hangs in a disk is left to end with the process."""
        self._unsubscribe()
        self._stopped.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(STOP_S)

    def _hear(self) -> None:
        """In the thread that changed the world: cheap, and nothing of ours is locked."""
        events, alarms = _news(self._store.world)
        if events is not self._seen[0] or alarms != self._seen[1]:
            self._wake.set()

    def _run(self) -> None:
        while True:
            last = self._stopped.is_set()
            good = self._keep()
            if last:
                break
            if not good:
                self._stopped.wait(AGAIN_S)
            elif not self._stopped.wait(AT_ONCE_S):
                self._wake.wait(CADENCE_S - AT_ONCE_S)
        self._writer.close()

    def _keep(self) -> bool:
        """One frame of the world as it is. False when it could not be written."""
        self._wake.clear()
        try:
            if not self._opened:
                self._writer.open()
                self._opened = True
            world = self._store.world
            self._seen = _news(world)
            self._writer.append(world)
        except Refused as why:
            self.note = str(why)
            return False
        except AnvilError as why:
            self._say(str(why))
            return False
        except Exception as bug:  # a defect of ours here must not end what it watches
            self._say(f"internal error, {type(bug).__name__}: {bug}")
            return False
        self._say("")
        return True

    def _say(self, why: str) -> None:
        """The note, and the same as a source error; unchanged it makes no new world."""
        self.note = why
        self._store.complain("history", why)


def _news(world: World) -> tuple[object, object]:
    """What is written at once. Phases, operations and sources all make events; an alarm's words may hold
    a figure that moves."""
    return world.events, tuple((a.id, a.severity, a.acked_by) for a in world.alarms)
