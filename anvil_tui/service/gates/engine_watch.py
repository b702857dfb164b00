"""What an engine shows of itself while a lane runs: requests running and waiting, KV use, preemptions."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TypeVar

from anvil_tui.core.box import Engine
from anvil_tui.service.gates.session import Session

EVERY_S = 0.25
MOST_SAMPLES = 256

Number = TypeVar("Number", int, float)


@dataclass(slots=True)
class EngineWatch:
    """Reads the engine in a thread of its own while it is entered. Peaks are of all readings; None = never told.

    `samples` are (second, running, waiting, KV fraction), thinned out evenly to at most `MOST_SAMPLES`.
    `queued` counts the readings that showed a waiting request, `kv_odd` is the last KV use below 0 or above 1.
    """

    session: Session
    samples: list[tuple[float, int | None, int | None, float | None]] = field(default_factory=list)
    readings: int = 0
    queued: int = 0
    running_peak: int | None = None
    waiting_peak: int | None = None
    kv_peak: float | None = None
    kv_odd: float | None = None
    _preempted: list[float] = field(default_factory=list)
    _every: int = 1
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> EngineWatch:
        self._thread = threading.Thread(target=self._watch, name="engine-watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def preempted(self) -> int | None:
        """Preemptions between the first reading and the last."""
        counts = self._preempted
        return round(counts[-1] - counts[0]) if counts else None

    def _watch(self) -> None:
        target, began = self.session.target, self.session.clock.monotonic_s()
        while True:
            last = self._ended.is_set()
            seen = self.session.engines.read(target.recipe.engine, target.port)
            self._take(self.session.clock.monotonic_s() - began, seen)
            if last:
                return
            self._ended.wait(EVERY_S)

    def _take(self, at_s: float, seen: Engine) -> None:
        if seen.metrics != "on":
            return
        self.running_peak = _most(self.running_peak, seen.running)
        self.waiting_peak = _most(self.waiting_peak, seen.waiting)
        self.kv_peak = _most(self.kv_peak, seen.kv_used)
        if seen.kv_used is not None and not 0.0 <= seen.kv_used <= 1.0:
            self.kv_odd = seen.kv_used
        self.queued += bool(seen.waiting)
        if seen.preempted is not None:
            self._preempted.append(seen.preempted)
            del self._preempted[1:-1]
        if self.readings % self._every == 0:
            self.samples.append((round(at_s, 3), seen.running, seen.waiting, seen.kv_used))
        self.readings += 1
        if len(self.samples) > MOST_SAMPLES:
            del self.samples[1::2]
            self._every *= 2


def _most(a: Number | None, b: Number | None) -> Number | None:
    return b if a is None else a if b is None else max(a, b)
