"""Drains on a box in memory: what counts, what blocks, and what happens when the time is over."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.core.box import Backend, Gateway, Request
from anvil_tui.core.errors import Unreachable
from anvil_tui.core.inflight import State, findings, list_text, request_text, slot_text, state_of
from anvil_tui.core.journal import fold
from anvil_tui.core.plan import Intent, Plan
from anvil_tui.core.reading import Reading
from anvil_tui.core.serves import derive
from anvil_tui.core.status import status_json, status_lines
from anvil_tui.core.workspace import Policies
from anvil_tui.core.world import World as WholeWorld
from tests.support import worlds
from tests.support.membox import World, recipe

A, PORT = "primary-a", 9131
LIVE = Request("7-1", A, 100.0, 90_000, 0.2)
STALLED = Request("7-2", A, 312.0, 18_200, 61.0)
READS = Request("7-3", A, 30.0, 160, 29.0)
POLICIES = Policies()


@pytest.fixture
def full(tmp_path: Path) -> World:
    return serving(World(tmp_path, recipe("a", exclusive=True), recipe("b", exclusive=True)))


def serving(world: World) -> World:
    assert world.do("promote", recipe="a") == "done"
    return world


def ask(world: World, *requests: Request) -> None:
    world.gate.in_flight[A], world.gate.requests[A] = len(requests), list(requests)


def notes(world: World) -> list[Mapping[str, Any]]:
    records = world.box.operations.journal(world.last).records()
    return [r.data for r in records if r.kind == "progress" and r.step == "drain"]


def why(world: World) -> str:
    view = fold(world.box.operations.journal(world.last).records())
    assert view is not None
    return view.why


def untouched(world: World) -> bool:
    return (world.serving(), world.incumbent(), world.gate.severed) == ("a", "a", [])


# what is in flight


@pytest.mark.parametrize(
    ("request_", "state"),
    [
        (Request("1", A, 5.0, 0, None), "waiting"),
        (Request("1", A, 899.0, 160, 899.0), "waiting"),
        (Request("1", A, 900.0, 160, 899.0), "stalled"),
        (LIVE, "flowing"),
        (dataclasses.replace(LIVE, idle_s=2.0), "quiet"),
        (dataclasses.replace(LIVE, idle_s=59.9), "quiet"),
        (dataclasses.replace(LIVE, idle_s=60.0), "stalled"),
        (dataclasses.replace(LIVE, idle_s=None), "unknown"),
        (Request("1", A, 5.0), "unknown"),
    ],
)
def test_slow_is_not_stalled_and_neither_is_a_prompt_that_is_read(request_: Request, state: State) -> None:
    assert state_of(request_, POLICIES) == state


def test_a_request_and_a_slot_in_words() -> None:
    assert request_text(STALLED, POLICIES) == "7-2 stalled, 312 s old, 18,200 bytes (58/s), no byte for 61 s"
    assert request_text(Request("9", A, 0.4), POLICIES) == "9 unknown, 0 s old, bytes n/a"
    gateway = seen(LIVE, STALLED, READS)
    assert slot_text(gateway, A, POLICIES) == (
        "3 in flight on primary-a (1 stalled, 1 waiting), oldest 312 s, 58 bytes/s"
    )
    assert slot_text(gateway, "elsewhere", POLICIES) == "the gateway cannot tell what is in flight on elsewhere"
    many = [dataclasses.replace(LIVE, id=f"7-{n}") for n in range(11)]
    assert list_text(many, POLICIES).endswith("; and 3 more")


def seen(*requests: Request) -> Gateway:
    backend = Backend(A, "127.0.0.1:9131", len(requests), 0, max((r.age_s for r in requests), default=None))
    return Gateway({}, (backend,), 0, 1, True, requests=requests)


def test_what_should_be_looked_at_is_found() -> None:
    assert list(findings(seen(LIVE, READS), POLICIES)) == []
    [stalled] = findings(seen(LIVE, STALLED), POLICIES)
    assert stalled.startswith("primary-a: 1 request is stalled: 7-2") and "--sever-stalled" in stalled
    leaks = seen(dataclasses.replace(STALLED, age_s=20_000, idle_s=15_000))
    assert any("7-2 on primary-a should have been ended" in f for f in findings(leaks, POLICIES))
    below = dataclasses.replace(seen(), backends=(Backend(A, "", -1),))
    assert list(findings(below, POLICIES)) == ["gateway: it counts -1 requests on primary-a: its count leaks"]


def test_status_lists_requests_under_their_slot_and_says_when_it_cannot() -> None:
    calm = worlds.calm()
    base = calm.gateway.value
    assert base is not None
    slot = base.backends[0].name
    here = tuple(dataclasses.replace(r, backend=slot) for r in (LIVE, STALLED))
    counted = (dataclasses.replace(base.backends[0], in_flight=2), *base.backends[1:])

    def with_requests(requests: tuple[Request, ...] | None) -> WholeWorld:
        gateway = dataclasses.replace(base, backends=counted, requests=requests)
        return derive(dataclasses.replace(calm, gateway=Reading.known(gateway, worlds.NOW_S, "haproxy")))

    lines = status_lines(with_requests(here))
    at = next(n for n, line in enumerate(lines) if line.startswith(f"  {slot} "))
    assert "in flight 2" in lines[at]
    assert lines[at + 1] == f"      {request_text(here[1], POLICIES)}"
    listed = status_json(with_requests(here))["gateway"]["value"]["requests"]
    assert [(r["id"], r["state"], r["bytes_per_s"]) for r in listed] == [
        ("7-1", "flowing", 900.0), ("7-2", "stalled", 58.3),
    ]  # fmt: skip
    assert any("7-2 stalled" in p for p in with_requests(here).problems)
    assert "      requests cannot be listed" in status_lines(with_requests(None))
    assert status_json(with_requests(None))["gateway"]["value"]["requests"] is None


# what a plan says beforehand


@pytest.mark.parametrize(
    ("target", "words", "deadline_s"),
    [
        ({}, "after 1 s everything is put back", 31),
        ({"on_timeout": "extend", "extend_s": 7}, "after 1 s 7 s more, once, then everything is put back", 38),
        ({"on_timeout": "sever", "timeout_s": 9}, "after 9 s what is left is cut", 39),
        ({"on_timeout": "sever-stalled"}, "if all of it is stalled (60 s without a byte), else everything is", 31),
    ],
)
def test_a_plan_says_the_outcome_before_the_drain_begins(
    full: World, target: dict[str, Any], words: str, deadline_s: float
) -> None:
    ask(full, LIVE, STALLED)
    made = full.plan("promote", recipe="b", **target)
    step = next(s for s in made.steps if s.name == "drain")
    assert words in step.title and step.deadline_s == deadline_s
    listed = [w for w in made.warnings if "in flight now" in w]
    assert bool(listed) == ("sever" in target.get("on_timeout", ""))
    assert all("7-1 flowing" in w and "7-2 stalled" in w for w in listed)


def test_a_policy_decides_where_no_option_does_and_an_option_beats_it(tmp_path: Path) -> None:
    world = serving(World(tmp_path, recipe("a"), on_drain_timeout="sever"))
    ask(world, LIVE)
    assert world.do("drain", role="primary", on_timeout="abort") == "undone"
    assert world.gate.severed == []
    assert world.do("drain", role="primary") == "done"
    assert world.gate.severed == ["7-1"]


def test_plans_of_the_time_when_there_were_two_outcomes_are_still_read(full: World) -> None:
    raw = full.plan("drain", role="primary").to_json()
    old = {k: v for k, v in raw["intent"].items() if k not in ("on_timeout", "extend_s")} | {"sever": True}
    assert Plan.from_json({**raw, "intent": old}).intent == Intent("drain", role="primary", on_timeout="sever")


# waiting


def test_unload_begins_after_two_zero_readings_in_a_row_of_running_and_waiting(full: World) -> None:
    """O-75: at t=10 one still waits, at t=15 is the first zero, so not before the next look after that."""
    stopped_at: list[float] = []
    began, stop = full.clock.now, full.docker.stop

    def watch(container_id: str, grace_s: int) -> None:
        stopped_at.append(full.clock.now - began)
        stop(container_id, grace_s)

    full.docker.stop = watch  # type: ignore[method-assign]
    for at, running, waiting in ((0, 3, 1), (5, 2, 0), (10, 0, 1), (15, 0, 0)):
        full.clock.after(at, lambda r=running, w=waiting: counts(full, r, w))  # type: ignore[misc]
    counts(full, 3, 1)
    assert full.do("promote", recipe="b", timeout_s=30) == "done"
    assert 15.1 <= stopped_at[0] < 17
    assert full.gate.severed == []


def counts(world: World, running: int, waiting: int) -> None:
    world.counts[PORT] = (running, waiting)
    ask(world, *([LIVE] * (running + waiting)))


def test_one_zero_between_two_requests_is_not_enough(full: World) -> None:
    full.gate.in_flight[A] = 1
    full.clock.after(0.25, lambda: ask(full))
    full.clock.after(0.35, lambda: ask(full, LIVE))
    assert full.do("drain", role="primary") == "undone"
    assert "looking again" in " ".join(n["text"] for n in notes(full))


def test_the_journal_has_count_oldest_and_stalled_and_does_not_grow_with_each_look(full: World) -> None:
    ask(full, LIVE, STALLED, READS)
    assert full.do("drain", role="primary", timeout_s=60) == "undone"
    told = notes(full)
    first = {k: told[0][k] for k in ("in_flight", "stalled", "engine")}
    assert first == {"in_flight": 3, "stalled": 1, "engine": None}
    assert len(told) <= 60 / 5 + 2


@pytest.mark.parametrize("on_timeout", ["abort", "sever", "sever-stalled", "extend"])
def test_a_count_that_cannot_be_read_is_never_zero_and_nothing_is_cut(full: World, on_timeout: str) -> None:
    """O-76: fail closed, and after the deadline the route is admitted again."""
    full.gate.in_flight[A] = None
    assert full.do("promote", recipe="b", on_timeout=on_timeout, extend_s=2) == "undone"
    assert "drain_unknown: the gateway cannot tell" in why(full) and untouched(full)


def test_a_gateway_that_is_silent_during_the_drain_is_unknown(full: World) -> None:
    """O-76: the last count is not the count of now."""
    real, silent_from = full.gate.snapshot, full.clock.now + 0.4

    def snapshot() -> Gateway:
        if silent_from <= full.clock.now < silent_from + 1.2:
            raise Unreachable("cli.sock", "the gateway does not answer")
        return real()

    full.gate.snapshot = snapshot  # type: ignore[method-assign]
    ask(full, LIVE)
    assert full.do("promote", recipe="b", timeout_s=1) == "undone"
    assert "drain_unknown" in why(full) and "does not answer" in why(full) and untouched(full)


# the engine's own count


def test_an_engine_with_work_past_the_gateway_blocks_the_stop_until_the_deadline(full: World) -> None:
    full.counts[PORT] = (2, 0)
    assert full.do("promote", recipe="b", timeout_s=20) == "undone"
    assert untouched(full)
    assert "its engine has counted 2 for" in why(full) and "sent directly to port 9131, past the gateway" in why(
        full
    )
    said = [n["text"] for n in notes(full)]
    assert said[0] == "nothing in flight on primary-a; its engine still counts 2"
    assert any("nothing is stopped meanwhile" in text for text in said)


def test_an_engine_that_lags_behind_is_waited_for(full: World) -> None:
    full.counts[PORT] = (1, 0)
    full.clock.after(3.0, lambda: full.counts.update({PORT: (0, 0)}))
    assert full.do("promote", recipe="b", timeout_s=20) == "done"


def test_an_engine_that_counts_none_of_what_the_gateway_has_is_named(full: World) -> None:
    """vllm-project/vllm#46811: its gauge reads 0 while it is wedged. The gateway's count decides."""
    full.counts[PORT] = (0, 0)
    ask(full, LIVE)
    assert full.do("promote", recipe="b", timeout_s=20) == "undone"
    assert "1 in flight on primary-a" in why(full) and "its engine has counted none for" in why(full)


def test_an_engine_that_tells_no_count_is_said_to_be_unchecked_and_blocks_nothing(full: World) -> None:
    full.counts[PORT] = (0, None)
    ask(full, LIVE)
    full.clock.after(0.5, lambda: ask(full))
    assert full.do("promote", recipe="b") == "done"
    assert notes(full)[0]["text"].endswith("not cross-checked: its engine tells no count")


def test_a_former_incumbent_whose_engine_still_works_is_not_stopped(tmp_path: Path) -> None:
    spare = serving(World(tmp_path, recipe("a"), recipe("b")))
    spare.counts[PORT] = (1, 0)
    assert spare.do("promote", recipe="b") == "done"
    view = fold(spare.box.operations.journal(spare.last).records())
    assert view and "its engine" in view.residue[0] and len(spare.docker.running()) == 2


# the time is over


def test_extend_waits_once_more_and_no_longer(full: World) -> None:
    ask(full, LIVE)
    full.clock.after(2.5, lambda: ask(full))
    assert full.do("drain", role="primary", on_timeout="extend", extend_s=3) == "done"
    assert any("3 s more, as decided" in n["text"] for n in notes(full))
    assert full.do("readmit", role="primary") == "done"
    ask(full, LIVE)
    assert full.do("drain", role="primary", on_timeout="extend", extend_s=3) == "undone"
    assert "after 1 s and 3 s more; nothing was cut" in why(full)


def test_sever_lists_before_and_after_what_it_cuts(full: World) -> None:
    ask(full, LIVE, STALLED)
    assert full.do("promote", recipe="b", on_timeout="sever") == "done"
    assert full.gate.severed == ["7-1", "7-2"]
    before, after = (n for n in notes(full) if "to_cut" in n or "severed" in n)
    assert [r["id"] for r in before["to_cut"]] == ["7-2", "7-1"]
    assert {(r["id"], r["state"], r["bytes_out"], r["age_s"]) for r in after["severed"]} == {
        ("7-1", "flowing", 90_000, 100.0), ("7-2", "stalled", 18_200, 312.0),
    }  # fmt: skip


def test_severing_the_stalled_cuts_exactly_them_and_nothing_beside_a_live_one(full: World) -> None:
    ask(full, STALLED, LIVE)
    assert full.do("promote", recipe="b", on_timeout="sever-stalled") == "undone"
    assert untouched(full) and "nothing was cut" in why(full)
    ask(full, STALLED, dataclasses.replace(STALLED, id="7-9"))
    assert full.do("promote", recipe="b", on_timeout="sever-stalled") == "done"
    assert full.gate.severed == ["7-2", "7-9"]


def test_a_gauge_that_sticks_after_the_cut_does_not_hold_a_severing_up(full: World) -> None:
    """vllm-project/vllm#22545: after many requests were aborted at once its gauge may stay above zero."""
    full.counts[PORT] = (1, 0)
    ask(full, LIVE)
    assert full.do("promote", recipe="b", on_timeout="sever") == "done"
    assert "ends with its stop" in notes(full)[-1]["text"]


def test_what_an_engine_has_past_the_gateway_ends_with_the_stop_only_where_severing_was_decided(
    full: World,
) -> None:
    full.counts[PORT] = (1, 0)
    assert full.do("promote", recipe="b", on_timeout="sever-stalled", timeout_s=7) == "undone"
    assert full.do("promote", recipe="b", on_timeout="sever", timeout_s=7) == "done"
    assert full.gate.severed == []


def test_a_cancel_ends_a_drain_at_once(full: World) -> None:
    ask(full, LIVE)
    full.clock.after(0.5, lambda: full.box.operations.ask_cancel(full.last, "not today"))
    assert full.do("drain", role="primary", timeout_s=300) == "undone"
    assert why(full) == "not today" and full.clock.now < 100


@pytest.mark.parametrize(("deaf", "code", "said"), [(True, 137, "stopped (killed after 30 s)"), (False, 0, "")])
def test_a_stop_that_had_to_kill_says_so_and_keeps_the_last_words(
    full: World, deaf: bool, code: int, said: str
) -> None:
    """O-107: our own kill after the grace is no crash, and what the engine said on its way out is evidence."""
    full.docker.deaf |= {"a"} if deaf else set()
    full.docker.log = "serving"
    old = full.box.store.read().roles["primary"].incumbent
    assert full.do("promote", recipe="b") == "done"
    records = full.box.operations.journal(full.last).records()
    done = next(r.data for r in records if (r.kind, r.step) == ("done", "stop-incumbent"))
    assert (done["exit_code"], done.get("note", "")) == (code, said)
    view = fold(records)
    step = view.step("stop-incumbent") if view else None
    assert step and step.note == said
    kept = full.box.operations.read_kept(full.last, f"{old[:12]}.log")
    assert kept == ("still busy" if deaf else "shut down in good order")
