"""`watch`: a console without a screen. Every probe, the recorder, alarms and who is told; a line an event."""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC
from types import FrameType
from typing import Any

from anvil_tui.cli.wiring import box_of, open_keeper, open_probes, open_recorder
from anvil_tui.core.alarms import Alarm, ordered
from anvil_tui.core.happenings import ALARM
from anvil_tui.core.text import clean
from anvil_tui.core.times import parse_time, utc_text, with_zone
from anvil_tui.core.world import Event, World

WATCH_SCHEMA = "anvil.watch/1"


class _Asked(Exception):
    """SIGTERM or SIGINT: also breaks off a write to a pipe that nobody reads."""


def watch(args: argparse.Namespace) -> int:
    """Until SIGTERM or SIGINT; then 0. Makes no control object: nothing of the box can be changed by it."""
    box = box_of(args)
    probes = open_probes(box, read_only=args.read_only)
    keeper = None if args.read_only else open_keeper(box, probes.store, "watch")
    recorder, changed = open_recorder(box, probes.store), threading.Event()
    unsubscribe = probes.store.subscribe(changed.set)
    told = Told(as_json=args.json)
    try:
        with _ended_by_signal():
            probes.start()
            recorder.start()
            if keeper is not None:
                keeper.start()
            told.begin(probes.store.world)
            while True:
                changed.wait()
                changed.clear()
                told.news(probes.store.world)
    except _Asked:
        # A line that nobody took would be written again when the interpreter ends, and block it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    finally:
        unsubscribe()
        recorder.stop()
        if keeper is not None:
            keeper.stop()
        probes.stop()


@contextmanager
def _ended_by_signal() -> Iterator[None]:
    """One signal ends the watch; more of them change nothing, so that the end is a clean one."""

    def asked(number: int, frame: FrameType | None) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_IGN)
        raise _Asked

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, asked)
    yield


class Told:
    """Prints what is new in each world: a plain line, or one JSON object a line."""

    def __init__(self, *, as_json: bool) -> None:
        self._json = as_json
        self._last: Event | None = None
        self._alarms: dict[str, Alarm] = {}

    def begin(self, world: World) -> None:
        box, mode = world.workspace.box, "read-only" if world.read_only else "keeps the alarms unless another does"
        if self._json:
            self._print({"type": "watch", "schema": WATCH_SCHEMA, "box": box.name, "kind": box.kind,
                         "read_only": world.read_only, "at": utc_text(world.now_utc)})  # fmt: skip
        else:
            print(f"watching {box.name} ({box.kind}), {mode}", flush=True)

    def news(self, world: World) -> None:
        for event in self._fresh(world.events):
            if not self._json:
                print(clean(_line(event), 600), flush=True)
            elif event.source != ALARM:
                self._print({"type": "event", **asdict(event)})
        if self._json:
            for what, alarm in self._moved(world.alarms):
                at = utc_text(world.now_utc)
                self._print({"type": "alarm", "event": what, "at": at, "alarm": asdict(alarm)})

    def _fresh(self, events: tuple[Event, ...]) -> tuple[Event, ...]:
        """Those after the last one that was printed; all, if that one has fallen off the front."""
        at = next((n for n in range(len(events), 0, -1) if events[n - 1] is self._last), 0)
        self._last = events[-1] if events else None
        return events[at:]

    def _moved(self, alarms: tuple[Alarm, ...]) -> Iterator[tuple[str, Alarm]]:
        before, self._alarms = self._alarms, {a.id: a for a in alarms}
        for alarm in reversed(ordered(alarms)):
            had = before.get(alarm.id)
            if had is None or had.since != alarm.since or had.grade < alarm.grade:
                yield "raised", alarm
            elif alarm.acked_by and not had.acked_by:
                yield "acknowledged", alarm
        yield from (("ended", had) for had in before.values() if had.id not in self._alarms)

    @staticmethod
    def _print(row: dict[str, Any]) -> None:
        print(json.dumps(row, ensure_ascii=False), flush=True)


def _line(event: Event) -> str:
    source = "ALARM" if event.source == ALARM else event.source
    return f"{with_zone(parse_time(event.at), UTC)} {source}: {event.text}"
