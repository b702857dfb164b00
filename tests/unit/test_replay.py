"""A recording as a source of worlds: moves, gaps, clocks, and nothing of this machine's own time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from anvil_tui.core.errors import NotFound
from anvil_tui.core.recording import Frame, Index, index_of
from anvil_tui.core.times import utc_text, when
from anvil_tui.core.world import Event
from anvil_tui.core.world_codec import encode
from anvil_tui.service.replay import Player, cut
from tests.support import worlds
from tests.support.wait import wait_until

TREE = encode(worlds.calm())


def at(second: float) -> datetime:
    return worlds.NOW + timedelta(seconds=second)


def frame(second: float, *events: Event, run: str = "boot") -> Frame:
    tree = {**TREE, "events": [{"at": e.at, "source": e.source, "text": e.text, "tone": e.tone} for e in events]}
    return Frame(at(second), 5000.0 + second, run, tree)


class Tape:
    """Parts in memory, as a folder gives them."""

    where = "the tape"

    def __init__(self, *parts: list[Frame]) -> None:
        self.made = list(parts)

    def parts(self) -> tuple[tuple[str, Index], ...]:
        ends = ["", *(utc_text(p[-1].at) if p else "" for p in self.made)]
        return tuple((str(n), index_of(p, ends[n])) for n, p in enumerate(self.made))

    def frames(self, part: str) -> tuple[Frame, ...]:
        return tuple(self.made[int(part)])


EARLY, HOT, GONE = (Event(utc_text(at(s)), "gpu", text) for s, text in ((-60, "old"), (9, "hot"), (104, "gone")))


def tape() -> Tape:
    """Two parts of one span, a gap of 80 s, and a third part."""
    return Tape(
        [frame(0, EARLY), frame(5, EARLY), frame(10, EARLY, HOT)],
        [frame(15, EARLY, HOT), frame(20, EARLY, HOT)],
        [frame(100, EARLY, HOT), frame(105, EARLY, HOT, GONE)],
    )


@pytest.fixture
def player() -> Iterator[Player]:
    made = Player(tape())
    made.open()
    yield made
    made.close()


def arrive(player: Player, second: float, said: str = "") -> None:
    """It stands there within a moment, and says so."""
    wait_until(
        lambda: player.world.now_utc == at(second) and said in player.state.said,
        f"{second}: stands at {(player.world.now_utc - worlds.NOW).total_seconds()}, {player.state.said!r}", 5,
    )  # fmt: skip


def test_a_replayed_world_has_the_clocks_of_then_and_no_deed_can_start(player: Player) -> None:
    world = player.world
    assert (world.now_utc, world.now_s, world.replayed, world.read_only) == (at(0), 5000.0, True, True)
    assert world.gpus.age_s(world.now_s) == worlds.calm().gpus.age_s(worlds.NOW_S) == pytest.approx(0.4)
    assert (
        replace(world, now_s=worlds.NOW_S, replayed=False, read_only=False, events=worlds.EVENTS) == worlds.calm()
    )


def test_steps_cross_parts_and_gaps_and_end_at_the_ends(player: Player) -> None:
    for second in (5, 10, 15, 20, 100, 105):
        player.step(1)
        arrive(player, second)
    player.step(1)
    arrive(player, 105, "this is the last frame")
    assert (player.state.begin, player.state.end) == (utc_text(at(100)), utc_text(at(105)))
    for second in (100, 20, 15, 10, 5, 0):
        player.step(-1)
        arrive(player, second)
    assert (player.state.begin, player.state.end) == (utc_text(at(0)), utc_text(at(20))), "two parts, one span"
    player.step(-1)
    arrive(player, 0, "this is the first frame")


def test_events_are_stops(player: Player) -> None:
    player.event(1)
    arrive(player, 10, "gpu: hot")
    player.event(1)
    arrive(player, 105, "gpu: gone")
    player.event(1)
    arrive(player, 105, "no event after this")
    player.event(-1)
    arrive(player, 10, "gpu: hot")
    player.event(-1)
    arrive(player, 10, "no event before this")


@pytest.mark.parametrize(
    ("wanted", "after", "second", "said"),
    [
        (12, False, 10, ""), (12, True, 15, ""), (20, False, 20, ""), (-900, False, 0, "15 min 00 s after it"),
        (60, False, 20, "nothing is recorded then: this is 40 s before it"), (60, True, 100, "40 s after it"),
        (900, False, 105, "13 min 15 s before it"), (900, True, 105, "13 min 15 s before it"),
    ],
)  # fmt: skip
def test_a_jump_finds_the_frame_or_says_how_far_off_it_is(
    player: Player, wanted: float, after: bool, second: float, said: str
) -> None:
    player.step(1)
    player.jump(utc_text(at(wanted)), after=after)
    arrive(player, second, said)
    assert bool(player.state.said) is bool(said)


def test_it_plays_over_a_gap_and_stops_at_the_end(player: Player) -> None:
    player.faster(99)
    player.jump(utc_text(at(15)))
    player.toggle()
    wait_until(lambda: player.state.playing or player.world.now_utc == at(105), "it plays", 5)
    arrive(player, 105, "this is the last frame")
    assert player.state.playing is False and player.state.speed == 240
    player.faster(-99)
    wait_until(lambda: player.state.speed == 1, "as slow as it was", 5)


def test_each_move_is_told_and_none_after_it_was_closed(player: Player) -> None:
    told: list[datetime] = []
    end = player.subscribe(lambda: told.append(player.world.now_utc))
    player.step(1)
    wait_until(lambda: told == [at(5)], "the move is told", 5)
    end()
    player.step(1)
    arrive(player, 10)
    assert told == [at(5)]


def test_what_is_recorded_meanwhile_is_replayed_too() -> None:
    made = Tape([frame(0)])
    player = Player(made)
    player.open()
    made.made[0].append(frame(5))
    player.step(1)
    arrive(player, 5)
    made.made.append([frame(10)])
    player.step(1)
    arrive(player, 10)
    player.close()


def test_a_clock_that_was_set_back_is_two_spans_and_the_second_counts() -> None:
    back = [Frame(at(s - 3), 5000.0 + s, "boot", TREE) for s in (10, 15)]
    player = Player(Tape([frame(0), frame(5), *back]))
    player.open(utc_text(at(7)))
    assert player.world.now_s == 5010.0 and player.world.now_utc == at(7)
    player.step(-1)
    arrive(player, 5)
    player.close()


def test_a_frame_that_cannot_be_shown_is_said_and_the_last_one_stays() -> None:
    bad = Frame(at(5), 5005.0, "boot", {**TREE, "host": 3})
    player = Player(Tape([frame(0), bad, frame(10)]))
    player.open()
    player.step(1)
    arrive(player, 0, "cannot be shown: host")
    player.step(1)
    arrive(player, 10)
    player.close()


@pytest.mark.parametrize("parts", [[], [[]], [[Frame(at(0), 1.0, "b", {"workspace": 1})]]])
def test_nothing_to_replay_is_told(parts: list[list[Frame]]) -> None:
    with pytest.raises(NotFound, match="the tape: "):
        Player(Tape(*parts)).open()


def test_a_cut_holds_the_frames_between_two_times() -> None:
    found = [(f.at - worlds.NOW).total_seconds() for f in cut(tape(), at(5), at(100))]
    assert found == [5, 10, 15, 20, 100]
    assert list(cut(tape(), at(21), at(99))) == []


EAST = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("text", "zone", "then"),
    [
        ("14:05", UTC, "2026-09-02T14:05:00+00:00"), ("9:05:30", UTC, "2026-09-02T09:05:30+00:00"),
        ("00:30", EAST, "2026-09-01T22:30:00+00:00"), ("2026-08-30 14:05", EAST, "2026-08-30T12:05:00+00:00"),
        (" 15m ", EAST, "2026-09-02T11:39:09+00:00"), ("-1.5h", UTC, "2026-09-02T10:24:09+00:00"),
        ("2026-09-02T14:05:00+05:00", UTC, "2026-09-02T09:05:00+00:00"),
    ],
)  # fmt: skip
def test_a_moment_as_a_person_writes_it(text: str, zone: timezone, then: str) -> None:
    assert when(text, worlds.NOW, zone).astimezone(UTC).isoformat() == then


def test_without_a_zone_it_is_this_machines() -> None:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "EST5EDT"
    time.tzset()
    try:
        assert when("07:54", worlds.NOW, None) == datetime(2026, 9, 2, 11, 54, tzinfo=UTC)
    finally:
        os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
        time.tzset()


@pytest.mark.parametrize("text", ["", "noon", "25:00", "14:61", "2026-02-30 10:00", "-5 weeks", "9" * 400])
def test_what_is_no_time_is_told_with_what_would_be(text: str) -> None:
    with pytest.raises(ValueError, match="is no time like 14:05"):
        when(text, worlds.NOW, UTC)
