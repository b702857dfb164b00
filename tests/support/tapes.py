"""A history for the console's tests: an hour of the seeds' box, with a gap, a lost card and a promotion in it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import Any, Literal

from pydantic_core import to_jsonable_python

from anvil_tui.cli.past import NOT_RECORDED, NotThere
from anvil_tui.core.box import GpuSnapshot
from anvil_tui.core.errors import NotFound
from anvil_tui.core.reading import Reading
from anvil_tui.core.recording import Frame, Index, Kept, index_of, joined
from anvil_tui.core.shelf import Disks
from anvil_tui.core.times import utc_text
from anvil_tui.core.world import Event, World
from anvil_tui.core.world_codec import Tree, encode
from anvil_tui.service.replay import Player
from tests.support import worlds

HOUR = 3600.0


class Tape:
    """Parts in memory, as a folder gives them."""

    where = "state/history"

    def __init__(self, *parts: list[Frame]) -> None:
        self.made = list(parts)
        self._known: dict[tuple[int, int], Index] = {}

    def parts(self) -> tuple[tuple[str, Index], ...]:
        return tuple((str(n), self._index(n)) for n in range(len(self.made)))

    def _index(self, n: int) -> Index:
        """Made once for so many frames, as that of a folder is."""
        made = self.made[n]
        before = [p[-1].at for p in self.made[:n] if p]
        if (n, len(made)) not in self._known:
            self._known[n, len(made)] = index_of(made, utc_text(before[-1]) if before else "")
        return self._known[n, len(made)]

    def frames(self, part: str) -> tuple[Frame, ...]:
        return tuple(self.made[int(part)])


def frame(world: World, seconds: float, *happened: Event, **more: Any) -> Frame:
    """The same box so many seconds from `worlds.NOW`, its readings as fresh as they were."""
    events = [{"at": e.at, "source": e.source, "text": e.text, "tone": e.tone} for e in happened]
    base = _tree(world)
    tree = {**base, **{n: _shifted(base[n], seconds) for n in _READ}, "events": [*base["events"], *events], **more}
    return Frame(world.now_utc + timedelta(seconds=seconds), world.now_s + seconds, "boot", tree)


_READ = ("gpus", "containers", "gateway", "engines", "trails", "serves")
_trees: dict[int, tuple[World, Tree]] = {}


def _tree(world: World) -> Tree:
    """Encoded once; of the events those that were before any of this."""
    if id(world) not in _trees:
        _trees[id(world)] = (world, encode(replace(world, events=worlds.EVENTS[:3])))
    return _trees[id(world)][1]


def _shifted(value: Any, seconds: float) -> Any:
    if isinstance(value, dict):
        return {
            k: v + seconds if k in ("at_s", "moved_at_s") and v is not None else _shifted(v, seconds)
            for k, v in value.items()
            if k != "recipe" or v is None
        } | ({"recipe": value["recipe"]} if "recipe" in value else {})
    return [_shifted(v, seconds) for v in value] if isinstance(value, list) else value


def event(seconds: float, source: str, text: str, tone: Literal["good", "bad"]) -> Event:
    return Event(utc_text(worlds.NOW + timedelta(seconds=seconds)), source, text, tone)


LOST_AT, BACK_AT = -1500.0, -1200.0


@cache
def hour() -> Tape:
    """From 60 to 40 minutes ago and from 30 minutes ago to now; a card is lost 25 minutes ago, and comes back."""
    promoted = replace(worlds.promoted(), started_at=worlds.at(3200), ended_at=worlds.at(2800))
    calm, degraded = (replace(w, operations=(promoted,)) for w in (worlds.calm(), worlds.degraded()))
    lost = event(LOST_AT - 2, "gpus", "GPU 1 is lost", "bad")
    back = event(BACK_AT - 2, "gpus", "GPU 1 is back", "good")
    first = [_busy(calm, -HOUR + 15 * n, n) for n in range(81)]
    second = [_busy(calm, -1800.0 + 15 * n, n) for n in range(20)]
    third = [frame(degraded, LOST_AT + 15 * n, lost) for n in range(20)]
    fourth = [_busy(calm, BACK_AT + 15 * n, n, lost, back) for n in range(81)]
    return Tape(first, [*second, *third], fourth)


def _busy(world: World, seconds: float, n: int, *happened: Event) -> Frame:
    """Load that goes up and down."""
    cards = tuple(worlds.gpu(i, free_mib=2543 + (n * 700) % 30_000) for i in range(2))
    gpus = Reading.known(GpuSnapshot("580.95.05", cards), world.now_s + seconds - 0.4, "nvml")
    flow = Reading.known(worlds.gateway("primary-b", (n // 6) % 5), world.now_s + seconds - 1, "haproxy")
    return frame(world, seconds, *happened, gpus=to_jsonable_python(gpus), gateway=to_jsonable_python(flow))


class FakePast:
    """The history of a `FakeService`: a tape, what is said about it, and what was exported."""

    def __init__(self, tape: Tape, note: str = "") -> None:
        self.tape, self.note = tape, note
        self.exported: list[World] = []

    def kept(self) -> Kept:
        return Kept(self.tape.where, joined(i for _, i in self.tape.parts()), 3_250_000, self.note)

    def replay(self, at: str) -> FakeReplay:
        player = Player(self.tape)
        player.open(at)
        return FakeReplay(player, self)

    def export(self, world: World) -> str:
        self.exported.append(world)
        return "/box/state/exports/fakoli-dark.ndjson.gz"


class FakeReplay:
    """What the composition root makes of a player."""

    deeds = None

    def __init__(self, player: Player, history: FakePast) -> None:
        self.store = self.player = player
        self.history = history
        self.evidence = NotThere(NOT_RECORDED)

    def disks(self) -> Disks:
        raise NotFound(NOT_RECORDED)

    def begin(self) -> None: ...

    def follow(self, container_id: str | None) -> None:
        """The log is the one that was followed then."""
