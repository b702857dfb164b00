"""Keeps the box's alarms in `state/` and tells of them. Of all consoles and watchers of a box one does so: the one
that has the kernel's lock, which dies with its holder. The others follow what it keeps, and take over."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any, Literal

from anvil_tui.core.alarms import Alarm, adopted
from anvil_tui.core.errors import AnvilError, EffectFailed, Refused
from anvil_tui.core.world import World
from anvil_tui.ports.alarms import AlarmBook, Notifier
from anvil_tui.ports.operations import WriteRight
from anvil_tui.service.store import Store

ALARM_SCHEMA = "anvil.alarm/1"
RETRY_S = 2.0
WAITING = 32
"""Alarms that wait for the command; the oldest give way, and that is said."""
# A command that must end gets TERM, and KILL after 3 s.
STOP_S, END_S = 2.0, 4.0
SOURCE, COMMAND = "alarms", "alarms.notify"

Told = Literal["raised", "ended"]


class AlarmKeeper:
    """`start` begins, `stop` ends it within seconds: what waits for the command still gets `STOP_S`."""

    def __init__(
        self, store: Store, book: AlarmBook, right: WriteRight, notifier: Notifier | None, name: str
    ) -> None:
        self._store, self._book, self._right, self._name = store, book, right, name
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._holds = False
        # What would stand in the book if it could be written: nobody is told twice because a disk is full.
        self._unsaved: tuple[Alarm, ...] | None = None
        self._caller = None if notifier is None else Caller(notifier, lambda why: store.complain(COMMAND, why))
        self._thread = threading.Thread(target=self._run, name="alarm-keeper", daemon=True)
        self._unsubscribe: Callable[[], None] = lambda: None

    def start(self) -> None:
        self._unsubscribe = self._store.subscribe(self._wake.set)
        if self._caller is not None:
            self._caller.start()
        self._thread.start()

    def stop(self) -> None:
        self._unsubscribe()
        self._stopped.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(STOP_S)
        if self._caller is not None:
            self._caller.stop()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            self._guarded()
            (self._wake if self._holds else self._stopped).wait(RETRY_S)
        if self._holds:
            self._right.release()

    def _guarded(self) -> None:
        """What fails is a source error and is tried again; nothing here ends what it watches."""
        why = ""
        try:
            self._tick()
        except (AnvilError, OSError) as error:
            why = str(error)
        except Exception as bug:
            why = f"internal error, {type(bug).__name__}: {bug}"
        self._store.complain(SOURCE, why)

    def _tick(self) -> None:
        if not (self._holds or self._take()):
            return
        world = self._store.world
        if world.kept_alarms is not None and _told(world.alarms) == _told(world.kept_alarms):
            return
        news: list[tuple[Told, Alarm]] = []

        def merged(have: tuple[Alarm, ...]) -> tuple[Alarm, ...]:
            news.clear()
            return _merged(have if self._unsaved is None else self._unsaved, world.alarms, news)

        try:
            kept = self._book.change(merged)
            self._unsaved = None
        except EffectFailed:
            self._unsaved = merged(world.kept_alarms or ())
            raise
        finally:
            self._tell(world, news)
        self._store.update(kept_alarms=kept)

    def _tell(self, world: World, news: Iterable[tuple[Told, Alarm]]) -> None:
        if self._caller is not None:
            box = {"name": world.workspace.box.name, "kind": world.workspace.box.kind}
            for what, alarm in news:
                self._caller.put({"schema": ALARM_SCHEMA, "event": what, "box": box, "alarm": asdict(alarm)})

    def _take(self) -> bool:
        """The right to keep them; what the one before had left open is taken over first."""
        try:
            self._right.take(self._name)
        except Refused:
            return False
        self._holds = True
        left = self._book.read()
        self._store.change(lambda w: {"alarms": adopted(w.alarms, left), "kept_alarms": left})
        return True


def _told(alarms: Iterable[Alarm]) -> set[tuple[object, ...]]:
    """What is written: not since when, which each console sees a moment apart."""
    return {(a.id, a.severity, a.text, a.grade, a.acked_by) for a in alarms}


def _merged(
    kept: tuple[Alarm, ...], alarms: tuple[Alarm, ...], news: list[tuple[Told, Alarm]]
) -> tuple[Alarm, ...]:
    """What is open now, with since when and by whom as it is kept; `news` gets what was raised and what ended."""
    have, out = {k.id: k for k in kept}, []
    for alarm in alarms:
        k = have.pop(alarm.id, None)
        if k is None or (k.acked_by and not alarm.acked_by and alarm.since > k.acked_at):
            news.append(("raised", alarm))
            out.append(alarm)
        else:
            by, at = (k.acked_by, k.acked_at) if k.acked_by else (alarm.acked_by, alarm.acked_at)
            out.append(replace(alarm, since=k.since, acked_by=by, acked_at=at))
            if (k.severity, alarm.severity) == ("warn", "bad") and not by:
                news.append(("raised", out[-1]))
    news.extend(("ended", gone) for gone in have.values())
    return tuple(out)


class Caller:
    """One alarm after the other goes to the command; whoever puts one in never waits."""

    def __init__(self, notifier: Notifier, say: Callable[[str], None]) -> None:
        self._notifier, self._say = notifier, say
        self._waiting: deque[Mapping[str, Any]] = deque()
        self._lost = 0
        self._changed, self._over = threading.Condition(), False
        self._cancelled = threading.Event()
        self._thread = threading.Thread(target=self._run, name="alarm-command", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, told: Mapping[str, Any]) -> None:
        with self._changed:
            if len(self._waiting) >= WAITING:
                self._waiting.popleft()
                self._lost += 1
            self._waiting.append(told)
            self._changed.notify()

    def stop(self) -> None:
        """What waits is told for `STOP_S` more; then the command that runs is ended."""
        with self._changed:
            self._over = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(STOP_S)
            self._cancelled.set()
            self._thread.join(END_S)

    def _run(self) -> None:
        while (told := self._next()) is not None and not self._cancelled.is_set():
            try:
                why = self._notifier.send(told, self._cancelled.is_set)
            except Exception as bug:  # the next alarm is told all the same
                why = f"not told: {type(bug).__name__}: {bug}"
            lost = f"{self._lost} alarms were not told: too many waited for the command" if self._lost else ""
            self._say("; ".join(t for t in (why, lost) if t))

    def _next(self) -> Mapping[str, Any] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._over)
            return self._waiting.popleft() if self._waiting else None
