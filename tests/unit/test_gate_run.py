"""A long run of gates: paused, cancelled, killed and taken up again."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.core.gates import GateProgress, GateResult, Suite, SuiteFile, Verdict
from anvil_tui.core.journal import GateView, OperationView, usual_s
from anvil_tui.core.lane_rules import BUSY, UNUSABLE
from anvil_tui.core.lanes import LaneRow, Spread
from anvil_tui.ports import ChatAnswer, ChatRequest
from anvil_tui.service import gate_run
from anvil_tui.service.gates.conductor import Conductor
from anvil_tui.service.gates.session import GateParts, GateTarget
from anvil_tui.service.pasts import digests
from tests.support.membox import Clock, Killed, World, recipe

THREE = Suite.model_validate({
    "schema": "anvil.suite/1", "id": "small", "gates": tuple({"id": f"s{n}", "kind": "smoke"} for n in (1, 2, 3)),
})  # fmt: skip


class Chat:
    """Says pong; `before(n)` happens before the n-th answer."""

    def __init__(self, before: Callable[[int], None] = lambda n: None) -> None:
        self.asked, self.before, self.lock = 0, before, threading.Lock()
        self.says, self.error = "pong", ""

    def chat(self, base_url: str, request: ChatRequest, *, api_key: str | None, timeout_s: float) -> ChatAnswer:
        with self.lock:
            self.asked += 1
            n = self.asked
        self.before(n)
        if self.error:
            return ChatAnswer(None, error=self.error)
        return ChatAnswer(200, self.says, finish_reason="stop", model="a", completion_tokens=1, prompt_tokens=9)


def gated(tmp_path: Path, chat: Chat, suite: Suite = THREE) -> World:
    """A box whose serve `a` runs, with the real conductor over a scripted model."""
    world = World(tmp_path, recipe("a"))
    assert world.do("load", recipe="a", role="primary") == "done"
    parts = GateParts(chat, world, world.docker, world, world.clock)  # type: ignore[arg-type]
    world.box = dataclasses.replace(
        world.box, conductor=lambda: Conductor(parts), suites=lambda: (SuiteFile("small", suite),)
    )
    return world


def serve(world: World) -> str:
    return world.docker.running()[0].id


def qualify(world: World) -> str:
    return world.do("qualify", container_id=serve(world), suite="small")


def gates(world: World) -> list[tuple[str, str]]:
    view = next(v for v in world.box.operations.views() if v.id == world.last)
    return [(g.id, g.verdict) for g in view.gates]


def kill_at(k: int) -> Callable[[int], None]:
    def before(n: int) -> None:
        if n == k:
            raise Killed

    return before


def test_a_killed_run_is_taken_up_where_it_stood(tmp_path: Path) -> None:
    chat = Chat(kill_at(2))
    world = gated(tmp_path, chat)
    assert qualify(world) == "killed"
    (kept,) = tmp_path.rglob("gates-kept.json")
    assert set(json.loads(kept.read_text())["watch"]) == {"ecc", "kernel", "least_free", "host_low"}
    chat.before = lambda n: None
    assert world.operate("resume") == "done"
    assert chat.asked == 1 + 1 + 2, "s1 once, s2 killed, then s2 and s3"
    assert gates(world) == [("s1", "passed"), ("s2", "passed"), ("s3", "passed")]
    assert world.box.store.read().serves[serve(world)].qualified_by == world.last


def test_results_of_another_start_of_the_container_do_not_count(tmp_path: Path) -> None:
    chat = Chat(kill_at(3))
    world = gated(tmp_path, chat)
    assert qualify(world) == "killed"
    container = serve(world)
    world.docker.all[container] = dataclasses.replace(
        world.docker.all[container], started_at="2026-02-02T00:00:00Z"
    )
    assert world.operate("resume") == "done"
    assert chat.asked == 3 + 3


def test_results_of_another_program_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = Chat(kill_at(3))
    world = gated(tmp_path, chat)
    assert qualify(world) == "killed"
    monkeypatch.setattr(gate_run, "__version__", "another")
    assert world.operate("resume") == "done"
    assert chat.asked == 3 + 3


def test_undo_of_a_killed_run_ends_it_without_asking_the_model(tmp_path: Path) -> None:
    chat = Chat(kill_at(2))
    world = gated(tmp_path, chat)
    assert qualify(world) == "killed"
    assert world.operate("undo") == "undone"
    assert chat.asked == 2


def test_a_paused_run_sends_nothing_until_it_may_go_on(tmp_path: Path) -> None:
    chat = Chat()
    world = gated(tmp_path, chat)
    asked_while_paused: list[int] = []

    def slept(seconds: float) -> None:
        asked_while_paused.append(chat.asked)
        if len(asked_while_paused) == 5:
            world.box.operations.pause(world.last, on=False)

    _on_sleep(world, slept)
    chat.before = lambda n: world.box.operations.pause(world.last, on=True) if n == 1 else None
    assert qualify(world) == "done"
    assert asked_while_paused == [1] * 5
    said = [r.data["paused"] for r in world.box.operations.journal(world.last).records() if "paused" in r.data]
    assert said == [True, False]


def test_requests_at_once_that_are_paused_write_one_whole_journal(tmp_path: Path) -> None:
    one = {"id": "g", "kind": "smoke", "repeat": 24, "parallel": 8}
    suite = Suite.model_validate({"schema": "anvil.suite/1", "id": "small", "gates": (one,)})
    chat = Chat()
    world = gated(tmp_path, chat, suite)
    _on_sleep(world, lambda seconds: world.box.operations.pause(world.last, on=False))
    chat.before = lambda n: world.box.operations.pause(world.last, on=True) if n % 8 == 1 else None
    assert qualify(world) == "done"
    journal = world.box.operations.journal(world.last)
    assert journal.damage() == ""
    said = [r.data["paused"] for r in journal.records() if "paused" in r.data]
    assert said == [True, False] * (len(said) // 2), "one note a pause, and one that it goes on"
    assert [r.data["done"] for r in journal.records() if r.data.get("verdict") == "running"] == list(range(25))


def test_why_a_suite_did_not_pass_is_one_sentence_with_what_to_do() -> None:
    """The serve's fault first; one reason and the other names; a busy machine is told as such."""
    late = f"C1 96 unique: the load generator looked 2.1 ms late (p99), more than 1 ms; {UNUSABLE}"
    lanes = [GateResult(n, "capacity", Verdict.ERRORED, f"0/1; {late}", 0, 1, 1.0) for n in ("c", "d", "e")]
    passed = GateResult("s", "smoke", Verdict.PASSED, "1/1", 1, 1, 1.0)
    assert gate_run.why_not_passed("small", [passed, *lanes]) == (
        f"suite small did not pass: c errored: 0/1; {late}; errored, too: d, e; {BUSY}"
    )
    wrong = GateResult("n", "needle", Verdict.FAILED, "wrong answer", 0, 1, 1.0)
    assert gate_run.why_not_passed("small", [lanes[0], wrong]) == (
        f"suite small did not pass: n failed: wrong answer; errored: c; {BUSY}"
    )
    assert gate_run.why_not_passed("small", [wrong]) == "suite small did not pass: n failed: wrong answer"


def test_a_cancel_ends_a_pause(tmp_path: Path) -> None:
    chat = Chat()
    world = gated(tmp_path, chat)
    _on_sleep(world, lambda seconds: world.box.operations.ask_cancel(world.last, "enough"))
    chat.before = lambda n: world.box.operations.pause(world.last, on=True)
    assert qualify(world) == "undone"
    assert gates(world) == [("s1", "passed"), ("s2", "cancelled"), ("s3", "cancelled")]
    assert chat.asked == 1


def _on_sleep(world: World, what: Callable[[float], None]) -> None:
    class Watched(Clock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            what(seconds)

    clock = Watched()
    clock.now = world.clock.now
    world.clock = clock
    world.box = dataclasses.replace(world.box, clock=clock)


@pytest.mark.parametrize(("parallel", "repeat"), [(4, 12), (3, 2), (1, 3)])
def test_repeats_are_in_flight_together_and_counted_once(tmp_path: Path, parallel: int, repeat: int) -> None:
    together = min(parallel, repeat)
    barrier = threading.Barrier(together)
    chat = Chat(lambda n: None if n > together else void(barrier.wait(10)))
    one = {"id": "g", "kind": "smoke", "repeat": repeat, "parallel": parallel}
    suite = Suite.model_validate({"schema": "anvil.suite/1", "id": "small", "gates": (one,)})
    world = gated(tmp_path, chat, suite)
    events: list[Any] = []
    (result,) = world.box.conductor().run(suite, target(world), events.append, lambda: False)
    assert (result.verdict, result.passed, chat.asked) == (Verdict.PASSED, repeat, repeat)
    assert [o.n for o in result.observations] == list(range(1, repeat + 1))
    assert [e.done for e in events[:-1]] == list(range(repeat + 1))


def void(value: object) -> None:
    """For a callback that must return nothing."""


def target(world: World) -> GateTarget:
    return GateTarget(world.recipes[0], serve(world), "http://127.0.0.1:9131")


@pytest.mark.parametrize(
    ("needs", "says"),
    [
        ({"modalities": ("image",)}, "suite small needs image (the recipe has text)"),
        ({"context_tokens": 4096}, "suite small needs context_tokens 4,096 (the recipe has 2,048)"),
        ({"gpus": 1, "concurrency": 3}, "needs concurrency 3 (the recipe has 2), gpus 1 (the recipe has 0)"),
    ],
)
def test_what_a_suite_needs_is_checked_before_anything_starts(
    tmp_path: Path, needs: dict[str, Any], says: str
) -> None:
    chat = Chat()
    suite = Suite.model_validate({
        "schema": "anvil.suite/1", "id": "small", "needs": needs, "gates": ({"id": "s", "kind": "smoke"},),
    })  # fmt: skip
    world = gated(tmp_path, chat, suite)
    made = world.plan("qualify", container_id=serve(world), suite="small")
    assert any(says in refusal for refusal in made.refusals), made.refusals
    assert chat.asked == 0


def test_a_run_without_the_gates_that_were_left_out_holds_for_the_suite_as_it_stands(tmp_path: Path) -> None:
    big = {"id": "big", "kind": "smoke", "needs": {"gpus": 1}}
    suite = Suite.model_validate(
        {"schema": "anvil.suite/1", "id": "small", "gates": ({"id": "s", "kind": "smoke"}, big)}
    )
    world = gated(tmp_path, Chat(), suite)
    assert qualify(world) == "done"
    (identity,) = tmp_path.rglob("*-identity.json")
    kept = json.loads(identity.read_text())
    assert [g["id"] for g in kept["suite"]["gates"]] == ["s"]
    assert kept["identity"]["suite_digest"] == f"sha256:{digests(world.box.suites())['small']}"
    assert kept["notes"] == ["gate big is left out: needs gpus 1 (the recipe has 0)"]


def test_the_usual_time_of_a_gate_is_the_median_of_its_newest_passes_on_the_recipe() -> None:
    def view(recipe: str, seconds: float, verdict: str = "passed") -> OperationView:
        return OperationView(
            "id", "qualify", "t", gates=(GateView("g", "smoke", verdict, 1, 1, "", seconds, recipe),)
        )

    ran = [view("a", s) for s in (99.0, 4.0, 8.0, 2.0, 6.0, 10.0)] + [view("b", 50.0), view("a", 1.0, "failed")]
    now = GateView("g", "smoke", of=1, recipe="a")
    assert usual_s(now, ran) == 6.0, "of 4, 8, 2, 6, 10; 99 is the sixth from the end"
    assert usual_s(dataclasses.replace(now, of=2), ran) is None
    assert usual_s(dataclasses.replace(now, recipe="c"), ran) is None


def test_rows_of_a_running_lane_are_told_by_the_journal(tmp_path: Path) -> None:
    row = LaneRow("depth", 1, 5, nominal_tokens=4096, decode_tok_s=Spread(5, 80.0, 82.1, 84.0))

    class Lane:
        def run(self, suite: Any, at: Any, on_event: Any, *more: Any) -> tuple[GateResult, ...]:
            on_event(GateProgress("s1", "smoke", 1, 2, row))
            on_event(GateProgress("s1", "smoke", 0, 2))
            on_event(GateProgress("s1", "smoke", 1, 2, row))
            on_event(GateProgress("s1", "smoke", 2, 2))
            result = GateResult("s1", "smoke", Verdict.PASSED, "", 2, 2, 0.1, rows=(row,))
            on_event(result)
            return (result,)

    world = gated(tmp_path, Chat())
    real = world.box.conductor()
    lane: Any = Lane()
    lane.unrunnable = real.unrunnable
    world.box = dataclasses.replace(world.box, conductor=lambda: lane)
    assert qualify(world) == "done"
    view = next(v for v in world.box.operations.views() if v.id == world.last)
    assert view.gates[0].rows == (row,)
    assert view.gates[0].recipe == "a"


def test_only_a_failed_gate_takes_an_earlier_qualification_away(tmp_path: Path) -> None:
    chat = Chat()
    world = gated(tmp_path, chat)
    assert qualify(world) == "done"
    first = world.last

    def counts() -> str:
        return world.box.store.read().serves[serve(world)].qualified_by

    chat.before = lambda n: world.box.operations.ask_cancel(world.last, "enough")
    assert (qualify(world), counts()) == ("undone", first)
    chat.before, chat.error = (lambda n: None), "timeout"
    assert (qualify(world), counts()) == ("undone", first), "errored: ours or the network's"
    chat.error, chat.says = "", "wrong"
    assert (qualify(world), counts()) == ("undone", "")
