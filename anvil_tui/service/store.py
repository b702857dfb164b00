"""The one writer of the World. Probes hand in what they read; panes read the newest value."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace

from anvil_tui.core.alarm_rules import alarms_after
from anvil_tui.core.happenings import EVENTS_KEPT, events_between
from anvil_tui.core.serves import derive
from anvil_tui.core.world import Change, World, reduce
from anvil_tui.ports import Clock

Subscriber = Callable[[], None]
MOST_WAITING = 64


class Store:
    """Thread-safe. Each change is one batch: the fields, then the clocks, then what follows from them, once."""

    def __init__(self, world: World, clock: Clock) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._world, self._version = world, 0
        self._subscribers: list[Subscriber] = []
        self._waiting: list[Callable[[World], Change]] = []

    @property
    def world(self) -> World:
        return self._world

    @property
    def version(self) -> int:
        """Grows by one with every change."""
        return self._version

    def update(self, **fields: object) -> World:
        """The next world, with these fields replaced."""
        return self.change(lambda world: fields)

    def change(self, fields_of: Callable[[World], Change], *, soon: bool = False) -> World:
        """The next world, with fields computed from the newest one, under the lock.

        With `soon` they wait for the next change and are part of its world: what follows from a world is worked
        out once for the readings of many engines, not once for each. For what tells nothing new but its figures.
        """
        with self._lock:
            if soon and len(self._waiting) < MOST_WAITING:
                self._waiting.append(fields_of)
                return self._world
            new = self._lines(fields_of(self._world)) or self._next(self._world, (*self._waiting, fields_of))
            self._world, self._version = new, self._version + 1
            told = tuple(self._subscribers)
        for subscriber in told:
            subscriber()
        return new

    def _lines(self, fields: Change) -> World | None:
        """A log's lines come five times a second and nothing follows from them; None for any other change."""
        return self._timed(reduce(self._world, fields)) if fields.keys() == {"log"} else None

    def _timed(self, world: World) -> World:
        return replace(world, now_s=self._clock.monotonic_s(), now_utc=self._clock.utc())

    def _next(self, old: World, changes: Iterable[Callable[[World], Change]]) -> World:
        self._waiting.clear()
        moved = old
        for fields_of in changes:
            moved = reduce(moved, fields_of(moved))
        new = derive(self._timed(moved))
        alarms, marks = alarms_after(old, new)
        new = replace(new, alarms=alarms, alarm_marks=marks)
        happened = tuple(events_between(old, new))
        return replace(new, events=(*new.events, *happened)[-EVENTS_KEPT:]) if happened else new

    def complain(self, source: str, why: str) -> None:
        """Set or, with "", clear one source error; unchanged it makes no new world."""
        if self._world.source_errors.get(source, "") == why:
            return

        def changed(world: World) -> Change:
            kept = {k: v for k, v in world.source_errors.items() if k != source}
            return {"source_errors": {**kept, source: why} if why else kept}

        self.change(changed)

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Calls `subscriber` after every change, in the thread that made it; returns how to end that.

        It gets no world on purpose: whoever is slow reads `world` when ready and finds the newest one.
        It must return at once and must not call back into the store.
        """
        with self._lock:
            self._subscribers.append(subscriber)
        return lambda: self._unsubscribe(subscriber)

    def _unsubscribe(self, subscriber: Subscriber) -> None:
        with self._lock:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)
