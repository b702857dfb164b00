"""One source, one thread, one cadence: never overlapping itself, slower while it fails."""

from __future__ import annotations

import threading
from collections.abc import Callable

BACKOFF = 8


class Loop:
    """Calls `work` every `interval_s` seconds until stopped; `work` says whether it went well.

    After a failure the pause doubles, up to `BACKOFF` intervals; a success or `poke` ends that.
    """

    def __init__(self, name: str, interval_s: float, work: Callable[[], bool]) -> None:
        self.name, self._interval_s, self._work = name, interval_s, work
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"probe-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def poke(self) -> None:
        """Ask again at once."""
        self._wake.set()

    def stop(self) -> None:
        """Does not wait; see `join`."""
        self._stopped.set()
        self._wake.set()

    def join(self, timeout_s: float) -> bool:
        """True when the thread has ended. One that hangs in its source dies with the process."""
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(max(0.0, timeout_s))
        return not self._thread.is_alive()

    def _run(self) -> None:
        pause_s = self._interval_s
        while not self._stopped.is_set():
            good = self._work()
            pause_s = self._interval_s if good else min(pause_s * 2, self._interval_s * BACKOFF)
            if self._wake.wait(pause_s):
                self._wake.clear()
                pause_s = self._interval_s
