"""A World as JSON and back, what changed between two, and what frames add up to."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from anvil_tui.core.alarms import Alarm, Mark
from anvil_tui.core.box import Host
from anvil_tui.core.discovery import Found
from anvil_tui.core.engine_log import LoadPhase
from anvil_tui.core.loads import CardLoad, MeasuredLoad
from anvil_tui.core.reading import Reading
from anvil_tui.core.recipe import EngineKind
from anvil_tui.core.recording import (
    KEY_EVERY,
    Damaged,
    Frame,
    Head,
    Index,
    Moment,
    Span,
    frame_line,
    head_line,
    index_of,
    joined,
    lines_of,
    read_frames,
    read_head,
    sample_of,
    to_remove,
)
from anvil_tui.core.redact import redact
from anvil_tui.core.standing import ClientState, DrillRecord, Owner
from anvil_tui.core.times import utc_text
from anvil_tui.core.waivers import CheckWaiver, Waiver
from anvil_tui.core.world import Event, Lease, LogView, World
from anvil_tui.core.world_codec import apply, changes, decode, dumped, encode, tree_changes
from tests.support import measured, standings, worlds

KEY = "sk-recorded-secret-0123456789"


def everything() -> World:
    """Fields that no other world of the tests fills, and values that a codec could confuse."""
    busy = standings.busy()
    zero = worlds.engine(worlds.recipes()[worlds.CANDIDATE], running=0, kv_used=0.0, waiting=None)
    engines = {
        "a": Reading.unknown("not asked yet", "http"), "b": Reading.error("reset", 4990.25, "http"),
        "c": Reading.error("late", 4990.0, "http", zero), "d": Reading.known(zero, 1.0, "http"),
    }  # fmt: skip
    return replace(
        busy, engines=engines, loads={"c": LoadPhase("weights", 3, 9)}, stored=worlds.recipes(),
        host=Reading.known(Host(1, 0, None, 4, 5, 6, 7, 8, 0.5, 16), 4999.0, "host"),
        pids={4242: "c" * 64, 1: ""}, source_errors={"record": "is damaged"},
        gpu_history={"GPU-1": (None, 0, 5, None)}, broken_bundles={"x/y": "no manifest"},
        waivers=(Waiver("2026-09-02T10:00:00+00:00", "a", ("GPU-1",), 3072, 0, "why", "who"),),
        check_waivers=(CheckWaiver("2026-09-02T10:00:00+00:00", "a", "drill", "why", "who"),),
        loads_kept=(MeasuredLoad("op", "2026-09-02T10:00:00+00:00", "a", "d" * 64, "s", 2048, 1,
                                 cards=(CardLoad("GPU-1", 10, 9, None),)),),
        drills=(DrillRecord("op", "primary", "", "box", "a", "b", "restored", 1.5),),
        owners=(Owner(gpu="GPU-1", kind="process", id="12", name="python", how="nvml"),),
        clients=(ClientState("pi", "~/.pi", "drift", ("a: has 1, serves 2",)),), proofs={"c": worlds.proven()},
        alarms=(Alarm("kv:x", "kv", "x", "bad", "2026-09-02T10:00:00Z", "KV 99 %"),),
    )  # fmt: skip


def discovered() -> World:
    """What discovery fills, and what is kept of alarms. Without a workspace nothing is recorded, so it has one."""
    found = {
        "a" * 64: Found(EngineKind.VLLM, 8000), "b" * 64: Found(None, None, "no port answers", True),
        "c" * 64: Found(),
    }  # fmt: skip
    alarm = Alarm("kv:a", "kv", "a", "warn", "2026-09-02T10:00:00Z", "KV 99 %", "bob", "2026-09-02T10:01:00Z", 2)
    return replace(
        worlds.empty(), found=found, kept_alarms=(alarm,),
        alarm_marks={"kv:a": Mark(4990.5, None), "kv:b": Mark(0.0, 1.5)},
        watcher=Lease("watch", 9, "bob", "2026-09-02T10:00:00Z", "forge"),
        gateway=Reading.unknown("no workspace", "gateway"),
    )  # fmt: skip


WORLDS: dict[str, Callable[[], World]] = {
    "empty": worlds.empty, "calm": worlds.calm, "promoting": worlds.promoting, "degraded": worlds.degraded,
    "stale": worlds.stale, "interrupted": worlds.interrupted, "many gpus": worlds.many_gpus,
    "busy": standings.busy, "wired": standings.wired, "not ready": standings.not_ready,
    "drilled": standings.drilled, "evicted": standings.evicted, "measuring": measured.measuring,
    "measured": measured.measured, "bundles": measured.shelf_of_bundles, "everything": everything,
    "discovered": discovered,
}  # fmt: skip


def seen(world: World) -> World:
    """The world as a replay shows it."""
    return replace(world, read_only=True, replayed=True)


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_comes_back_from_json_as_it_was(name: str) -> None:
    world = WORLDS[name]()
    tree = json.loads(dumped(encode(world, lambda text: redact(text, (KEY,)))))
    assert decode(tree, world.now_utc, world.now_s) == seen(world)


def test_every_field_of_a_world_is_filled_in_one_of_them() -> None:
    """Else a field that does not come back would go unnoticed."""
    made, bare = [make() for make in WORLDS.values()], World(worlds.workspace(), False)
    same = {f.name for f in fields(World) if all(getattr(w, f.name) == getattr(bare, f.name) for w in made)}
    assert same <= {"read_only", "replayed"}


def test_what_changed_makes_the_one_world_of_the_other() -> None:
    """Each world after each that stands before it in the list, forth and back."""
    made = [make() for make in WORLDS.values()]
    for old, new in [*pairwise(made), *pairwise(reversed(made)), (made[0], made[-1]), (made[-1], made[0])]:
        patch = json.loads(dumped(changes(old, new)))
        assert apply(json.loads(dumped(encode(old))), patch) == json.loads(dumped(encode(new)))


def test_only_what_moved_is_written() -> None:
    world = worlds.calm()
    assert changes(world, replace(world, now_s=world.now_s + 5)) == {}
    again = replace(world, containers=replace(world.containers, at_s=5004.0))
    assert changes(world, again) == {"containers": {"at_s": [5004.0]}}
    slid = replace(world, events=(*world.events[1:], Event("t", "gpu", "hot", "bad")))
    assert changes(world, slid)["events"][0] == 1 and len(changes(world, slid)["events"][1]) == 1


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        ({"a": 1}, {"a": 1.0}, {"a": [1.0]}),
        ({"a": 0}, {"a": False}, {"a": [False]}),
        ({"a": 0}, {"a": None}, {"a": [None]}),
        ({"a": 1, "b": 2}, {"b": 2}, {"a": None}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, None),
        ({"a": [1, 2, 3]}, {"a": [2, 3, 4, 5]}, {"a": [1, [4, 5]]}),
        ({"a": [1, 2]}, {"a": [1, 9]}, {"a": {"1": [9]}}),
        ({"a": [1]}, {"a": []}, {"a": [[]]}),
        ({"a": []}, {"a": [1]}, {"a": [[1]]}),
        ({"a": [0]}, {"a": [False]}, {"a": {"0": [False]}}),
    ],
)
def test_the_least_patch(old: Any, new: Any, patch: Any) -> None:
    """None as the patch: the order of the keys moved, which no patch by key can say."""
    found = tree_changes(old, new)
    assert found == patch or (patch is None and found == [new])
    assert json.dumps(apply(old, found)) == json.dumps(new)


def test_secrets_are_hidden_in_key_frames_and_in_changes() -> None:
    """Known values anywhere; a text under a name that says so, whatever it looks like."""
    calm = worlds.calm()
    assert calm.containers.value is not None
    first = replace(calm.containers.value[0], argv=("--api-key", KEY), labels={"api_key": "plain-words", "a": "b"})
    leaky = replace(
        calm, containers=replace(calm.containers, value=(first, *calm.containers.value[1:])),
        source_errors={"gateway": f"401 for {KEY}"}, log=LogView("c", (f"Authorization: Bearer {KEY}",)),
    )  # fmt: skip
    hide = lambda text: redact(text, (KEY,))  # noqa: E731
    for written in (dumped(encode(leaky, hide)), dumped(changes(calm, leaky, hide))):
        assert KEY.encode() not in written and b"plain-words" not in written and b"***" in written


def test_bytes_that_were_no_text_do_not_stop_a_frame() -> None:
    world = replace(worlds.calm(), source_errors={"host": "caf\udce9"})
    tree = json.loads(dumped(encode(world)))
    assert decode(tree, world.now_utc, world.now_s).source_errors == {"host": "caf?"}


@pytest.mark.parametrize("tree", [{}, {"workspace": 3}, {"workspace": None, "read_only": True}])
def test_what_is_no_world_is_told(tree: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="workspace"):
        decode(tree, worlds.NOW, 1.0)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_none_is_no_world(number: float) -> None:
    """JSON of other programs has none either; a screen that rounds one would end the console."""
    world = worlds.calm()
    tree = {**encode(world), "alarm_marks": {"kv:x": {"seconds": number}}}
    with pytest.raises(ValueError, match="Out of range float"):
        decode(tree, world.now_utc, world.now_s)


def test_what_is_said_of_a_foreign_world_cannot_draw() -> None:
    """A name in it is part of the sentence, and the sentence goes to a terminal."""
    world = worlds.calm()
    tree = {**encode(world), "alarm_marks": {"\x1b]0;owned\x07\x1b[2J" + "x" * 9999: 7}}
    with pytest.raises(ValueError, match="alarm_marks") as told:
        decode(tree, world.now_utc, world.now_s)
    assert "\x1b" not in str(told.value) and len(str(told.value)) <= 300


# lines


def frame(second: float, *, run: str = "boot", clock_s: float = 0.0, **tree: Any) -> Frame:
    """A frame at so many seconds of its boot; the wall clock may be off by `clock_s`."""
    return Frame(worlds.NOW + timedelta(seconds=second + clock_s), 100.0 + second, run, tree)


def at(second: float) -> str:
    return utc_text(worlds.NOW + timedelta(seconds=second))


def test_frames_become_lines_and_frames_again() -> None:
    made = [frame(5.0 * n, a=[n, n + 1], b={"c": n}) for n in range(2 * KEY_EVERY)]
    lines = list(lines_of(made, str))
    assert [(f.at, f.s, f.tree) for f in read_frames(lines)] == [(f.at, f.s, f.tree) for f in made]
    keys = [n for n, line in enumerate(lines, 1) if b'"key"' in line]
    assert keys == [1, KEY_EVERY, 2 * KEY_EVERY]


@pytest.mark.parametrize(
    ("spoil", "number", "said"),
    [
        (lambda lines: [*lines[:2], b"\0\0\0\n", *lines[3:]], 4, "damaged"),
        (lambda lines: lines[:2] + lines[3:], 4, "frame 4 follows frame 2"),
        (lambda lines: lines[1:], 2, "frame 2 follows frame 0"),
        (lambda lines: [*lines[:2], b'{"n":3,"at":"x","s":1,"d":{}}\n'], 4, "RFC 3339"),
        (
            lambda lines: [*lines[:2], b'{"n":3,"at":"2026-09-02T00:00:00Z","s":1,"d":{"b":{"x":{"y":1}}}}\n'],
            4,
            "fit",
        ),
        (
            lambda lines: [*lines[:2], b'{"n":3,"at":"2026-09-02T00:00:00Z","s":1,"d":' + b"[" * 9999 + b"\n"],
            4,
            "damaged",
        ),
    ],
)
def test_a_damaged_line_ends_what_can_be_told(
    spoil: Callable[[list[bytes]], list[bytes]], number: int, said: str
) -> None:
    lines = list(lines_of([frame(5.0 * n, a=n) for n in range(5)], str))
    found: list[Frame] = []
    with pytest.raises(Damaged, match=said) as told:
        found.extend(read_frames(spoil(lines)))
    assert told.value.line == number


@pytest.mark.parametrize(
    "wrong",
    [
        {"at": 5}, {"at": None}, {"at": {"a": 1}}, {"at": "9999-12-31T23:59:59-23:59"},
        {"at": "0001-01-01T00:00:00Z"},
        {"at": "2026-09-02T00:00:00+99:99"}, {"s": float("inf")}, {"s": float("nan")}, {"s": 10**400},
        {"n": float("inf")}, {"n": []}, {"key": 7}, {"key": []},
    ],
)  # fmt: skip
def test_no_member_of_a_line_can_do_more_than_spoil_that_line(wrong: dict[str, Any]) -> None:
    good = json.loads(next(lines_of([frame(0, a=1)], str)))
    with pytest.raises(Damaged, match="this line is damaged") as told:
        list(read_frames([dumped({**good, **wrong}) + b"\n"]))
    assert told.value.line == 2


def test_a_short_line_cannot_copy_a_huge_list() -> None:
    """A million such lines, each with a list of its own, would take all memory of the box."""
    many = frame(0, a=[0] * 20_001)
    lines = [next(lines_of([many], str)), b'{"n":2,"at":"2026-09-02T00:00:05Z","s":5,"d":{"a":{"0":[1]}}}\n']
    with pytest.raises(Damaged, match="20,001 things") as told:
        list(read_frames(lines))
    assert told.value.line == 3


def test_a_line_without_its_end_was_never_whole() -> None:
    lines = list(lines_of([frame(0, a=1), frame(5, a=2)], str))
    assert [f.tree for f in read_frames([lines[0], lines[1][:-1]])] == [{"a": 1}]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "no recording"),
        (b"\x7fELF\n", "no recording"),
        (b'{"schema": "anvil.recipe/1"}\n', "no recording of anvil-tui: its schema is 'anvil.recipe/1'"),
        (b'{"schema": "anvil.history/2", "box": "b"}\n', "newer anvil-tui .anvil.history/2"),
        (b'{"schema": "anvil.history/1"}\n', "head is damaged"),
        (b'{"schema": "anvil.history/0", "box": "b"}\n', "no recording of anvil-tui"),
        ('{"schema": "anvil.history/\u00b2", "box": "b"}\n'.encode(), "no recording of anvil-tui"),
        (b'{"schema": "anvil.history/' + b"9" * 5000 + b'"}\n', "no recording of anvil-tui"),
        (b"[" * 99_999 + b"\n", "no recording of anvil-tui"),
    ],
)
def test_a_foreign_head_is_told(line: bytes, said: str) -> None:
    with pytest.raises(Damaged, match=said):
        read_head(line)


def test_a_head_comes_back() -> None:
    head = Head("box", "boot", at(0), "1.2", index=index_of([frame(0), frame(5)]))
    assert read_head(head_line(head)) == head


# what they add up to


@pytest.mark.parametrize(
    ("frames", "spans", "why"),
    [
        ([frame(0), frame(5), frame(10)], [(0, 10)], ""),
        ([frame(0), frame(5), frame(65)], [(0, 5), (65, 65)], "not recorded for 60 s"),
        ([frame(0), frame(5, run="next"), frame(10, run="next")], [(0, 0), (5, 10)], "not recorded for 5 s"),
        ([frame(0), frame(5, clock_s=3600)], [(0, 0), (3605, 3605)], "clock set on by 3600 s"),
        (
            [frame(0), frame(5, clock_s=-60), frame(10, clock_s=-60)],
            [(0, 0), (-55, -50)],
            "clock set back by 60 s",
        ),
    ],
)
def test_spans_end_at_gaps_and_where_the_clock_was_set(
    frames: list[Frame], spans: list[tuple[float, float]], why: str
) -> None:
    found = index_of(frames).spans
    assert [(s.begin, s.end) for s in found] == [(at(a), at(b)) for a, b in spans]
    assert found[-1].why == why


def test_files_that_follow_each_other_are_one_span() -> None:
    first, second = index_of([frame(0), frame(5)]), index_of([frame(10), frame(15)])
    late, other = index_of([frame(90)]), index_of([frame(92, run="next")])
    found = joined((first, second, late, other)).spans
    assert [(s.begin, s.end, s.frames, s.why) for s in found] == [
        (at(0), at(15), 4, ""), (at(90), at(90), 1, "not recorded for 75 s"),
        (at(92), at(92), 1, "not recorded for 2 s"),
    ]  # fmt: skip


def test_moments_are_the_events_that_are_new() -> None:
    one, two, three = ({"at": at(n), "source": "s", "text": str(n), "tone": "bad"} for n in (-60, 4, 9))
    frames = [frame(0, events=[one]), frame(5, events=[one, two]), frame(10, events=[two, three])]
    assert index_of(frames).moments == (Moment(at(4), "s", "4", "bad"), Moment(at(9), "s", "9", "bad"))
    rolled = index_of([frame(10, events=[one, two, three])], since=at(5))
    assert [m.text for m in rolled.moments] == ["9"]
    assert index_of([frame(10, events=[one, two])]).moments == ()


def test_samples_tell_unknown_from_zero() -> None:
    def sample(world: World) -> tuple[float | None, float | None, int | None]:
        found = sample_of(Frame(world.now_utc, world.now_s, "", encode(world)))
        return found.vram, found.kv, found.requests

    calm = worlds.calm()
    assert sample(calm) == (round(94_244 / 97_887, 4), 0.36, 2)
    assert sample(worlds.empty()) == (None, None, None)
    assert calm.gateway.value is not None
    idle = replace(calm, gateway=Reading.known(worlds.gateway("primary-b", in_flight=0), 1.0, "haproxy"))
    assert sample(idle)[2] == 0
    assert sample(replace(calm, gateway=Reading.error("gone", 1.0, "haproxy", calm.gateway.value)))[2] is None


def test_a_minute_is_told_by_the_most_that_was_seen_in_it() -> None:
    """The first frame of a console has read nothing yet, and a peak may last one frame."""

    def busy(second: float, in_flight: int | None) -> Frame:
        backends = [] if in_flight is None else [{"in_flight": in_flight}]
        return frame(second, gateway={"state": "known", "value": {"backends": backends}})

    found = index_of([busy(0, None), busy(5, 0), busy(55, 7), busy(60, 1), busy(65, None)]).samples
    assert [(s.at, s.requests) for s in found] == [(at(0), 7), (at(60), 1)]


def test_retention_by_days_and_by_bytes() -> None:
    now = datetime(2026, 9, 10, tzinfo=UTC)
    kept = [("a", 10, now - timedelta(days=8)), ("b", 10, None), ("c", 10, now - timedelta(days=6)),
            ("d", 10, now + timedelta(days=900))]  # fmt: skip
    assert to_remove(kept, now, 7, 100) == ["a"]
    assert to_remove(kept, now, 7, 39) == ["a"]
    assert to_remove(kept, now, 7, 25) == ["a", "b"]
    assert to_remove(kept, now, 99, 0) == ["a", "b", "c", "d"]
    assert to_remove(kept, now, 99, 40) == []


def test_a_key_frame_may_begin_in_the_middle() -> None:
    """As where two segments are put behind each other."""
    lines = [*lines_of([frame(0, a=1), frame(5, a=2)], str), *lines_of([frame(10, a=3), frame(15, a=4)], str)]
    assert [f.tree["a"] for f in read_frames(lines)] == [1, 2, 3, 4]
    bare = frame_line(1, worlds.NOW, 1.0, {"a": 1}, key=True, run="r")
    assert next(read_frames([bare])).run == "r"


def test_an_index_without_frames_is_empty() -> None:
    assert index_of([]) == Index() and joined(()) == Index()
    assert Span(at(0), at(90), 3).seconds == 90.0
