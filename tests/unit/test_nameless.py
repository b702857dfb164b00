"""Persons, hosts and addresses in a recording that is given away."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from anvil_tui.core.alarms import Alarm
from anvil_tui.core.nameless import Names
from anvil_tui.core.recording import Frame, lines_of, read_frames
from anvil_tui.core.waivers import Waiver
from anvil_tui.core.world import Event, Lease, LogView, World
from anvil_tui.core.world_codec import decode, dumped, encode
from tests.support import worlds
from tests.unit.test_recording import WORLDS

HOME = "/home"  # apart from a name it is no path of anybody's machine
AT = "2026-09-02T10:00:00Z"


def told() -> World:
    """Two operators at one box, and everything that gives them away."""
    log = (
        'INFO: 192.168.7.20:40112 - "POST /v1/chat/completions" by bob',
        f"File {HOME}/carol/engine.py, line 3, as alice@forge.example.com on forge.corp.example.com",
        "bound to [fd12:3456::7]:8001, 127.0.0.1:8000, 0.0.0.0:80, version 570.86.15, at 12:30:45",
    )
    return replace(
        worlds.calm(), lease=Lease("op", 7, "alice", AT, "forge"), watcher=Lease("watch", 9, "bob", AT, "spare"),
        alarms=(Alarm("kv:x", "kv", "x", "bad", AT, "KV 99 %", "bob", AT),), log=LogView("c", log),
        waivers=(Waiver(AT, "a", ("GPU-1",), 3072, 0, "alice asked bob", "alice"),),
        events=(Event(AT, "alarm", "acknowledged by bob: kv: bobbin 192.168.7.20"),),
    )  # fmt: skip


def given(world: World, names: Names) -> World:
    """As a stranger's replay shows it."""
    tree = json.loads(dumped(encode(world)))
    names.learn(tree)
    return decode(json.loads(dumped(names.out_of(tree))), world.now_utc, world.now_s)


def test_nobody_and_no_machine_is_named_and_two_are_still_two() -> None:
    world = given(told(), Names(("dave",), ("forge.corp.example.com",)))
    text = dumped(encode(world)).decode()
    for word in ("alice", "carol", "forge", "spare", "example.com", "192.168.7.20", "fd12"):
        assert word not in text, word
    assert world.lease and world.watcher and world.log
    one, other = world.lease.user, world.watcher.user
    assert one != other and {one[:5], other[:5]} == {"user-"} and world.lease.host != world.watcher.host
    assert world.alarms[0].acked_by == other and world.waivers[0].by == one
    assert world.waivers[0].reason == f"{one} asked {other}"
    address = world.log.lines[0].split()[1].partition(":")[0]
    assert world.events[-1].text == f"acknowledged by {other}: kv: bobbin {address}" and address.startswith("240.")
    assert "127.0.0.1:8000, 0.0.0.0:80, version 570.86.15, at 12:30:45" in world.log.lines[2]
    assert "[2001:db8::" in world.log.lines[2]


@pytest.mark.parametrize("name", WORLDS)
def test_what_names_nobody_stays_as_it_is(name: str) -> None:
    """Paths under /home and addresses apart, which some of these worlds have, a replay shows the same world."""
    world = WORLDS[name]()
    before, after = dumped(encode(world)), dumped(encode(given(world, Names())))
    if not any(w in before for w in (b"/home/", b'"by":"', b'"user":"', b'"host":"')):
        assert json.loads(after) == {**json.loads(before), "read_only": True, "replayed": True}


WORDS = ("vllm", "lab", "ready", "llm", "primary", "engines", "probe", "anvil", "7", "b", "unix", "sha256", "file")


@pytest.mark.parametrize("person", WORDS)
def test_a_person_named_like_a_thing_of_the_box_breaks_no_replay(person: str) -> None:
    """Whatever a person or a machine is called, the file can be shown, and who holds the lease is not named."""
    world = given(replace(told(), lease=Lease("op", 7, person, AT, person)), Names((person,), (person,)))
    assert world.lease and person not in (world.lease.user, world.lease.host)
    assert world.workspace.schema_ == "anvil.workspace/1" and set(world.gateway.value.aliases) == set(  # type: ignore[union-attr]
        worlds.calm().gateway.value.aliases  # type: ignore[union-attr]
    )


def test_changes_are_given_away_without_names_too() -> None:
    trees: list[dict[str, Any]] = [json.loads(dumped(encode(w))) for w in (worlds.calm(), told())]
    frames = [Frame(worlds.calm().now_utc, 5.0 * n, "boot", t) for n, t in enumerate(trees)]
    names = Names()
    for tree in trees:
        names.learn(tree)
    lines = list(lines_of(frames, str, names.out_of))
    for word in (b"alice", b"carol", b"forge", b"spare", b"192.168"):
        assert word not in b"".join(lines)
    shown = [decode(f.tree, f.at, f.s) for f in read_frames(lines)][-1]
    assert shown.lease and shown.lease.user.startswith("user-")


def test_only_what_is_new_is_looked_at() -> None:
    """A frame shares with the one before it what did not change."""
    seen: list[str] = []

    class Listening(Names):
        def _named(self, key: str, text: str) -> None:
            seen.append(text)

    names, shared = Listening(), {"user": "alice"}
    first = {"a": shared, "b": [shared, {"user": "bob"}]}
    names.learn(first)
    assert seen == ["alice", "alice", "bob"]
    names.learn({"a": shared, "b": [*first["b"], {"user": "carol"}]}, first)
    assert seen[3:] == ["carol"]


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("root at localhost", str), ("sha256:0f1e", str), ("00000000:01:00.0", str), ("a::b::c", str),
        ("1.2.3.4.5", str), ("999.1.2.3", str), ("::1", str), ("12:30:45:99", str), ("std::vector", str),
        ("mail me@corp.example.com", lambda text: "mail user@host"),
    ],
)  # fmt: skip
def test_what_only_looks_like_an_address_stays(text: str, made: Callable[[str], str]) -> None:
    assert Names(("root",), ("localhost",)).out_of(text) == made(text)
