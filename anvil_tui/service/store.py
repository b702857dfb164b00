"""The one writer of the World. Probes hand in what they read; panes read the newest value."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from anvil_tui.core.alarm_rules import alarms_after
from anvil_tui.core.happenings import EVENTS_KEPT, events_between
from anvil_tui.core.serves import derive
from anvil_tui.core.world import Change, World, reduce
from anvil_tui.ports import Clock

Subscriber = Callable[[], None]


class Store:
    """Thread-safe. Each change is one batch: the fields, then the clocks, then what follows from them, once."""

    def __init__(self, world: World, clock: Clock) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._world, self._version = world, 0
        self._subscribers: list[Subscriber] = []

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

    def change(self, fields_of: Callable[[World], Change]) -> World:
        """The next world, with fields computed from the newest one, under the lock."""
        with self._lock:
            old = self._world
            moved = reduce(old, fields_of(old))
            new = derive(replace(moved, now_s=self._clock.monotonic_s(), now_utc=self._clock.utc()))
            alarms, marks = alarms_after(old, new)
            new = replace(new, alarms=alarms, alarm_marks=marks)
            happened = tuple(events_between(old, new))
            if happened:
                new = replace(new, events=(*new.events, *happened)[-EVENTS_KEPT:])
            self._world, self._version = new, self._version + 1
            told = tuple(self._subscribers)
        for subscriber in told:
            subscriber()
        return new

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
