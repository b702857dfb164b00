"""A recording as one more source of worlds: the same seam as the store's, and no clock of this machine in them.

Frames are shown one after the other, each with the clocks that were recorded. Its own thread reads and plays; who
asks for a move never waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial

from anvil_tui.core.errors import AnvilError, NotFound
from anvil_tui.core.recording import (
    GAP_S,
    Frame,
    Index,
    Playing,
    Span,
    joined,
    seconds_between,
)
from anvil_tui.core.times import parse_time, span, utc_text
from anvil_tui.core.world import World
from anvil_tui.core.world_codec import decode
from anvil_tui.ports.history import Recording

SPEEDS = (1, 4, 16, 60, 240)
# Between two spans nothing was seen: there is nothing to wait for.
_OVER_GAP_S = 1.0
_FASTEST_S = 0.1


class Player:
    """A WorldStore over a recording. `open` before anything else; NotFound when nothing is recorded."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._parts: tuple[tuple[str, Index], ...] = ()
        self._spans: tuple[Span, ...] = ()
        self._frames: tuple[Frame, ...] = ()
        self._part = self._at = 0
        self._playing, self._speed, self._said = False, 0, ""
        self._shown: tuple[World, Playing] | None = None
        self._todo: list[Callable[[], None]] = []
        self._asked, self._closed = threading.Condition(), False
        self._subscribers: list[Callable[[], None]] = []

    def open(self, at: str = "") -> None:
        """Stand at the first frame at or after this UTC text, "" = the very first; then take moves."""
        self._look()
        if not any(index.spans for _, index in self._parts):
            damage = joined(i for _, i in self._parts).damage
            raise NotFound(f"{self._recording.where}: nothing is recorded{': ' + damage if damage else ''}")
        self._load(next(n for n, (_, index) in enumerate(self._parts) if index.spans))
        if at:
            self._jump(at, after=True)
        self._show()
        if self._shown is None:
            raise NotFound(f"{self._recording.where}: {self._said}")
        threading.Thread(target=self._run, name="replay", daemon=True).start()

    # the store's seam

    @property
    def world(self) -> World:
        return self._now()[0]

    @property
    def state(self) -> Playing:
        return self._now()[1]

    def _now(self) -> tuple[World, Playing]:
        if self._shown is None:
            raise RuntimeError("a replay is opened first")
        return self._shown

    def subscribe(self, subscriber: Callable[[], None]) -> Callable[[], None]:
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber) if subscriber in self._subscribers else None

    # moves: each returns at once

    def toggle(self) -> None:
        self._ask(self._toggle)

    def step(self, by: int) -> None:
        """So many frames on or back; playing stops."""
        self._ask(partial(self._stop_and, partial(self._step, by)))

    def event(self, by: int) -> None:
        """To the next event, or with -1 to the one before."""
        self._ask(partial(self._stop_and, partial(self._event, by)))

    def faster(self, by: int) -> None:
        self._ask(partial(self._set_speed, by))

    def jump(self, at: str, *, after: bool = False) -> None:
        """To the last frame at or before this UTC text, or to the first at or after it."""
        self._ask(partial(self._stop_and, partial(self._jump, at, after=after)))

    def close(self) -> None:
        with self._asked:
            self._closed = True
            self._asked.notify()

    def _ask(self, move: Callable[[], None]) -> None:
        with self._asked:
            self._todo.append(move)
            self._asked.notify()

    # its own thread

    def _run(self) -> None:
        while True:
            with self._asked:
                if not self._todo and not self._closed:
                    self._asked.wait(self._pause_s())
                todo, self._todo = self._todo, []
            if self._closed:
                return
            self._said = ""
            try:
                for move in todo or [partial(self._step, 1)]:
                    move()
            except AnvilError as why:
                self._playing, self._said = False, str(why)
            self._show()

    def _pause_s(self) -> float | None:
        """Until the next frame is due; None while it does not play."""
        if not self._playing:
            return None
        if self._at + 1 >= len(self._frames):
            return _OVER_GAP_S
        gap = (self._frames[self._at + 1].at - self._frames[self._at].at).total_seconds()
        return _OVER_GAP_S if not 0 <= gap <= GAP_S else max(_FASTEST_S, gap / SPEEDS[self._speed])

    def _toggle(self) -> None:
        self._playing = not self._playing

    def _stop_and(self, move: Callable[[], None]) -> None:
        self._playing = False
        move()

    def _set_speed(self, by: int) -> None:
        self._speed = max(0, min(len(SPEEDS) - 1, self._speed + by))

    def _show(self) -> None:
        frame = self._frames[self._at]
        try:
            world = decode(frame.tree, frame.at, frame.s)
        except ValueError as why:
            self._playing, self._said = False, f"the frame of {utc_text(frame.at)} cannot be shown: {why}"
            if self._shown is None:
                return
            world = self._shown[0]
        here = self._span(frame)
        state = Playing(
            self._recording.where, utc_text(frame.at), here.begin, here.end, self._playing, SPEEDS[self._speed],
            self._said,
        )  # fmt: skip
        self._shown = (world, state)
        for subscriber in tuple(self._subscribers):
            subscriber()

    def _span(self, frame: Frame) -> Span:
        at = utc_text(frame.at)
        inside = [s for s in self._spans if s.run == frame.run and _within(s, at)]
        return inside[-1] if inside else Span(at, at, 1)

    # where it stands

    def _look(self) -> None:
        """The parts as they are now; the one that is shown stays, whatever its number has become."""
        name = self._parts[self._part][0] if self._parts else ""
        self._parts = self._recording.parts()
        self._spans = joined(index for _, index in self._parts).spans
        names = [n for n, _ in self._parts]
        self._part = names.index(name) if name in names else 0

    def _load(self, part: int, at: int = 0) -> bool:
        """False when nothing of this part can be read; then nothing has moved."""
        frames = self._recording.frames(self._parts[part][0])
        if not frames:
            return False
        self._part, self._frames = part, frames
        self._at = at if at >= 0 else len(frames) + at
        return True

    def _step(self, by: int) -> None:
        at = self._at + by
        if 0 <= at < len(self._frames):
            self._at = at
            return
        if by > 0:
            self._look()  # what is recorded meanwhile is replayed too
            grown = self._recording.frames(self._parts[self._part][0])
            if len(grown) > at:
                self._frames, self._at = grown, at
                return
        order = range(self._part + 1, len(self._parts)) if by > 0 else range(self._part - 1, -1, -1)
        if not any(self._load(part, 0 if by > 0 else -1) for part in order):
            self._playing = False
            self._said = f"this is the {'last' if by > 0 else 'first'} frame that is recorded"

    def _event(self, by: int) -> None:
        places = self._places(self._part, self._frames)
        later = sorted(n for n in places if (n > self._at if by > 0 else n < self._at))
        if later:
            self._at = later[0] if by > 0 else later[-1]
            self._said = places[self._at]
            return
        order = range(self._part + 1, len(self._parts)) if by > 0 else range(self._part - 1, -1, -1)
        for part in order:
            frames = self._recording.frames(self._parts[part][0]) if self._parts[part][1].moments else ()
            places = self._places(part, frames)
            if places and self._load(part, min(places) if by > 0 else max(places)):
                self._said = places[self._at]
                return
        self._said = f"there is no event {'after' if by > 0 else 'before'} this"

    def _places(self, part: int, frames: tuple[Frame, ...]) -> dict[int, str]:
        """Frames in which something is new, with what it was."""
        found: dict[int, list[str]] = {}
        for moment in self._parts[part][1].moments:
            at = parse_time(moment.at)
            place = next((n for n, f in enumerate(frames) if at and f.at >= at), None)
            if place is not None:
                found.setdefault(place, []).append(f"{moment.source}: {moment.text}")
        return {n: "; ".join(said) for n, said in found.items()}

    def _jump(self, at: str, *, after: bool) -> None:
        """By the wall clock as it was recorded; where it went over the same hour twice, the second time counts."""
        spans = [(n, s) for n, (_, index) in enumerate(self._parts) for s in index.spans]
        inside = [(n, s) for n, s in spans if _within(s, at)]
        before = [(n, s) for n, s in spans if seconds_between(s.end, at) > 0]
        behind = [(n, s) for n, s in spans if seconds_between(at, s.begin) > 0]
        order = [*inside[-1:], *(behind[:1] if after else before[-1:]), *before[-1:], *behind[:1]]
        part, found = order[0]
        if not self._load(part):
            raise NotFound(f"{self._recording.where}: the part with {at} cannot be read any more")
        self._at = _nearest(self._frames, found, parse_time(at), after)
        apart = seconds_between(utc_text(self._frames[self._at].at), at)
        if abs(apart) > GAP_S:
            self._said = (
                f"nothing is recorded then: this is {span(abs(apart))} {'before' if apart > 0 else 'after'} it"
            )


def cut(recording: Recording, begin: datetime, end: datetime) -> Iterator[Frame]:
    """The frames whose wall clock lies between the two, as they follow each other. A part that is removed
    meanwhile, being the oldest, is left out."""
    first, last = utc_text(begin), utc_text(end)
    for name, index in recording.parts():
        if any(seconds_between(s.begin, last) >= 0 and seconds_between(first, s.end) >= 0 for s in index.spans):
            with suppress(NotFound):
                yield from (f for f in recording.frames(name) if begin <= f.at <= end)


def _within(s: Span, at: str) -> bool:
    return seconds_between(s.begin, at) >= 0 and seconds_between(at, s.end) >= 0


def _nearest(frames: tuple[Frame, ...], within: Span, at: datetime | None, after: bool) -> int:
    """The place of the frame of that span that is the first at or after `at`, or the last at or before it."""
    mine = [n for n, f in enumerate(frames) if _within(within, utc_text(f.at))] or [0]
    if at is None:
        return mine[0]
    if after:
        return next((n for n in mine if frames[n].at >= at), mine[-1])
    return next((n for n in reversed(mine) if frames[n].at <= at), mine[0])
