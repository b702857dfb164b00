"""Capacity and performance gates against simulated engines of three kinds, by the real load generator.

Facts are asserted, never times: the instrument's own complaints about this machine are taken away.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.adapters.clock import SystemClock
from anvil_tui.adapters.docker_engine import DockerControl, DockerReader
from anvil_tui.adapters.engine_http import HttpEngineReader
from anvil_tui.adapters.gpu_reader import ChildGpuReader
from anvil_tui.adapters.openai_client import OpenAIClient
from anvil_tui.core.gates import FailureClass, GateProgress, GateResult, Suite, Verdict
from anvil_tui.core.lanes import Spread
from anvil_tui.core.recipe import EngineKind, Recipe
from anvil_tui.ports import ContainerSpec
from anvil_tui.service.gates.conductor import Conductor, GateTarget
from anvil_tui.service.gates.session import GateParts
from tests.support.gateway import BINARIES, KEY, rig
from tests.support.load import CalmGenerator
from tests.support.simbox import SimProcess, free_port, until

SCALE = 20.0
ARGV = {
    "vllm": ("serve", "/m", "--max-model-len", "32768", "--served-model-name", "tiny", "--max-num-seqs"),
    "sglang": ("--model-path", "/m", "--context-length", "32768", "--served-model-name", "tiny",
               "--enable-metrics", "--max-running-requests"),
    "llamacpp": ("-m", "/m.gguf", "--metrics", "--alias", "tiny", "-np"),
}  # fmt: skip
TELLS = {"vllm": ("--enable-prompt-tokens-details",), "sglang": ("--enable-cache-report",), "llamacpp": ()}


def recipe(kind: str) -> Recipe:
    return Recipe.model_validate({
        "schema": "anvil.recipe/1", "id": "tiny", "family": "tiny", "engine": EngineKind(kind),
        "served_name": "tiny", "exclusive": False, "rollback": "none: test",
        "image": {"ref": "x@sha256:" + "a" * 64}, "model": {"repo": "tiny"}, "launch": {"argv": ("{port}",)},
        "envelope": {"context_tokens": 32_768, "max_output_tokens": 8192, "concurrency": 4},
    })  # fmt: skip


class Bench:
    """A simulated box in which engines of any kind are started beside the incumbent, without GPUs."""

    def __init__(self, folder: Path) -> None:
        self.sim = SimProcess(folder, SCALE)
        url, clock = self.sim.workspace.containers.url, SystemClock()
        self.control, self.engines = DockerControl(url), HttpEngineReader(clock)
        self.gpus = ChildGpuReader((*self.sim.workspace.gpus.reader, "--interval", "0.1"), 5, clock)
        self.conductor = Conductor(
            GateParts(
                OpenAIClient(clock.monotonic_s),
                self.engines,
                DockerReader(url),
                self.gpus,
                clock,
                load=CalmGenerator(),
            )
        )
        self.started: dict[tuple[object, ...], GateTarget] = {}
        self.image = next(iter(DockerReader(url).list())).image_ref

    def serve(self, kind: str, *more: str, slots: int = 4) -> GateTarget:
        """An engine that several tests may use, none of which spoils it."""
        key = (kind, slots, *more)
        if key not in self.started:
            self.started[key] = self.start(kind, *more, slots=slots)
        return self.started[key]

    def start(self, kind: str, *more: str, slots: int = 4, port: int = 0) -> GateTarget:
        port = port or free_port()
        words = (*ARGV[kind], str(slots), "--port", str(port), *more)
        if kind == "llamacpp":
            words = (*words, "-c", str(32_768 * slots))
        self.sim.fault("slow_load", factor="0.05", next="1")
        made = self.control.create(ContainerSpec(f"{kind}-{port}", self.image, words))
        self.control.start(made)
        until(lambda: self.engines.read(EngineKind(kind), port).http == "ready", f"{kind} is ready")
        return GateTarget(recipe(kind), made, f"http://127.0.0.1:{port}")

    def run(
        self, target: GateTarget, gate: dict[str, Any], on_event: Callable[[Any], None] = lambda event: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> GateResult:  # fmt: skip
        suite = Suite.model_validate({"schema": "anvil.suite/1", "id": "s", "gates": ({"id": "lane", **gate},)})
        assert self.conductor.unrunnable(suite, target) == {}
        (result,) = self.conductor.run(suite, target, on_event, cancelled)
        return result

    def end(self) -> None:
        self.gpus.close()
        assert self.sim.end() == ""


def ends(spread: Spread | None) -> tuple[float, float]:
    assert spread and spread.low is not None and spread.high is not None
    return spread.low, spread.high


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("sim") / "w")
    yield made
    made.end()


@pytest.mark.parametrize("kind", list(ARGV))
def test_unique_and_shared_prompts_are_two_rows_proven_by_the_engines_counts(bench: Bench, kind: str) -> None:
    target = bench.serve(kind, *TELLS[kind])
    gate = {"kind": "prefix-cache", "prompt_tokens": (2000,), "completion_tokens": 40, "requests": 3}
    result = bench.run(target, gate)
    assert result.verdict is Verdict.PASSED, result.reason
    unique, shared = result.rows
    assert [(r.label, r.cache, r.output, r.failed) for r in result.rows] == [
        ("C1 2,000 unique", "cold", "forced", 0),
        ("C1 2,000 shared", "shared", "forced", 0),
    ]
    for row in result.rows:
        low, high = ends(row.prompt_tokens)
        assert 1960 <= low <= high <= 2040
        assert (ends(row.completion_tokens), row.lane, row.nominal_tokens) == ((40, 40), "lane", 2000)
    assert ends(unique.cached_tokens)[1] < 50 and ends(shared.cached_tokens)[0] > 1500
    assert unique.ttft_any_s and unique.instrument and unique.instrument.error_p50_ms == 0.0


def test_each_request_is_an_observation_and_the_prompts_are_those_of_every_other_run(bench: Bench) -> None:
    target = bench.serve("vllm", *TELLS["vllm"])
    gate = {"kind": "capacity", "streams": (2,), "prompt_tokens": (500,), "completion_tokens": 30, "requests": 5}
    first, second = (bench.run(target, gate) for _ in range(2))
    digests = [o.raw["prompts"] for r in (first, second) for o in r.observations if o.raw["purpose"] == "row"]
    assert len(digests) == 2 and digests[0] == digests[1] and digests[0].startswith("sha256:")
    requests = [o for o in first.observations if o.raw["purpose"] == "request"]
    assert [o.n for o in requests] == [1, 2, 3, 4, 5]
    assert {(o.ok, o.completion_tokens, o.raw["row"]) for o in requests} == {(True, 30, "C2 500 unique")}
    assert all(len(o.raw["gaps_ms"]) == o.raw["chunks"] - 1 for o in requests)
    purposes = [o.raw["purpose"] for o in first.observations]
    assert purposes.count("warm-up") == 1 and purposes.index("warm-up") < purposes.index("row")
    assert [r.cache for r in (*first.rows, *second.rows)] == ["cold", "cold"], "a second run is salted anew"


def test_a_prompt_that_was_sent_before_is_warm(bench: Bench) -> None:
    target = bench.serve("sglang", *TELLS["sglang"])
    gate = {"kind": "capacity", "prefix": "warm", "prompt_tokens": (2000,), "completion_tokens": 20, "requests": 3}
    (row,) = bench.run(target, gate).rows
    assert row.cache == "warm"
    assert ends(row.cached_tokens)[0] > 1700


def test_an_engine_that_does_not_tell_leaves_the_cache_unknown_and_proves_nothing(bench: Bench) -> None:
    target = bench.serve("vllm")
    gate = {"kind": "prefix-cache", "prompt_tokens": (600,), "completion_tokens": 20, "requests": 2, "warmup": 0}
    result = bench.run(target, gate)
    assert result.verdict is Verdict.UNVERIFIED and "does not report cached tokens" in result.reason
    assert [r.cache for r in result.rows] == ["unknown", "unknown"]
    capacity = bench.run(target, {**gate, "kind": "capacity"})
    assert (capacity.verdict, capacity.rows[0].cache) == (Verdict.PASSED, "unknown")


def test_a_cache_that_is_off_is_no_shared_row(bench: Bench) -> None:
    target = bench.start("llamacpp", "--no-cache-prompt")
    gate = {"kind": "prefix-cache", "prompt_tokens": (600,), "completion_tokens": 20, "requests": 2, "warmup": 0}
    result = bench.run(target, gate)
    assert (result.verdict, result.failures) == (Verdict.FAILED, (FailureClass.CHECK,))
    assert "arranged as shared, found cold" in result.reason
    assert [r.cache for r in result.rows] == ["cold", "cold"]


@pytest.mark.parametrize("kind", list(ARGV))
def test_a_queue_below_the_promised_concurrency_is_seen_and_said(bench: Bench, kind: str) -> None:
    target = bench.start(kind, slots=2)
    gate = {"kind": "capacity", "streams": (4,), "prompt_tokens": (300,), "completion_tokens": 600, "requests": 8,
            "warmup": 0}  # fmt: skip
    (row,) = bench.run(target, gate).rows
    assert (row.running_peak, row.failed, row.output) == (2, 0, "forced")
    assert (row.waiting_peak or 0) >= 1
    assert any("although C4 is within the recipe's concurrency 4" in note for note in row.notes)
    assert (row.kv_peak is None) == (kind == "llamacpp"), "llama.cpp tells no KV use"


def test_preemptions_of_a_pool_that_is_too_small_are_counted(bench: Bench) -> None:
    target = bench.start("sglang", "--max-total-tokens", "3000")
    gate = {"kind": "capacity", "streams": (2,), "prompt_tokens": (1000,), "completion_tokens": 1500,
            "requests": 2, "burst": True, "warmup": 0}  # fmt: skip
    (row,) = bench.run(target, gate).rows
    assert (row.loop, row.failed, (row.preempted or 0) >= 1) == ("burst", 0, True)
    assert row.kv_peak and row.kv_peak > 0.5 and any("preemptions" in note for note in row.notes)


def test_a_rule_that_is_broken_names_the_row_and_by_how_much(bench: Bench) -> None:
    target = bench.serve("vllm")
    gate = {"kind": "ladder", "prompt_tokens": (300,), "completion_tokens": 20, "requests": 2,
            "decode_at_least_tok_s": 1e9}  # fmt: skip
    result = bench.run(target, gate)
    assert [r.label for r in result.rows] == ["C1 300 unique", "C2 300 unique", "C4 300 unique"]
    assert (result.verdict, result.failures) == (Verdict.FAILED, (FailureClass.CHECK,))
    assert "C1 300 unique: median decode" in result.reason and "at least 1e+09 asked (-100.0 %)" in result.reason


def test_a_depth_that_its_answer_does_not_fit_beside_is_refused_before_anything_is_sent(bench: Bench) -> None:
    target = replace(bench.serve("vllm"), container_id="")
    gate = {"id": "g", "kind": "depth-sweep", "prompt_tokens": (4096, 40_000)}
    suite = Suite.model_validate({"schema": "anvil.suite/1", "id": "s", "gates": (gate,)})
    assert "prompts of 40,000" in bench.conductor.unrunnable(suite, target)["g"]
    bare = Conductor(GateParts(None, bench.engines, None, bench.gpus, SystemClock()))  # type: ignore[arg-type]
    assert bare.unrunnable(suite, target)["g"] == "there is no load generator"


def test_a_routed_lane_goes_through_the_gateway_and_each_answer_names_the_slot(
    bench: Bench, tmp_path: Path
) -> None:
    with rig(tmp_path, BINARIES["debian"] or BINARIES["index"]) as gateway:
        slot = gateway.engines.pop("a")
        slot.close()
        target = replace(
            bench.start("vllm", *TELLS["vllm"], port=slot.port),
            routed_url=f"http://{gateway.settings.bind}/@a", routed_key=KEY, slot="a",
        )  # fmt: skip
        gate = {"kind": "capacity", "streams": (4,), "prompt_tokens": (300,), "completion_tokens": 20,
                "requests": 12, "routed": True}  # fmt: skip
        result = bench.run(target, gate)
        assert (result.verdict, result.rows[0].cache) == (Verdict.PASSED, "cold"), result.reason
        requests = [o for o in result.observations if o.raw["purpose"] == "request"]
        assert [o.raw["backend"] for o in requests] == ["a"] * 12
        wrong = bench.run(replace(target, routed_key="another"), gate)
    assert (wrong.verdict, wrong.rows) == (Verdict.ERRORED, ()) and "401" in wrong.reason
    assert KEY not in str(result) and "another" not in str(wrong)


class Meanwhile:
    """Does something once, when the first request of the lane has ended."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act, self.done = act, False

    def __call__(self, event: Any) -> None:
        if isinstance(event, GateProgress) and event.done and event.row is None and not self.done:
            self.done = True
            self._act()


LONG = {"kind": "capacity", "streams": (2,), "prompt_tokens": (300,), "completion_tokens": 600, "requests": 12,
        "warmup": 0}  # fmt: skip


def test_a_stalled_stream_fails_its_row(bench: Bench) -> None:
    target = bench.start("vllm")
    wedge = Meanwhile(lambda: bench.sim.fault("engine_wedged", container=target.container_id))
    result = bench.run(target, {**LONG, "timeout_s": 2, "requests": 4}, wedge)
    assert wedge.done and (result.verdict, result.failures) == (Verdict.FAILED, (FailureClass.STREAM,))
    assert "requests did not complete, first: timeout" in result.reason
    (row,) = result.rows
    assert row.requests == 4 and 1 <= row.failed <= 3
    broken = [o for o in result.observations if o.raw["purpose"] == "request" and not o.ok]
    assert len(broken) == row.failed and {o.failure for o in broken} == {FailureClass.STREAM}


def test_an_engine_that_dies_under_a_lane_fails_it_and_is_named(bench: Bench) -> None:
    target = bench.start("sglang")
    dies = Meanwhile(
        lambda: bench.sim.fault("engine_dies", container=target.container_id, exit_code=137, oom="true")
    )
    result = bench.run(target, LONG, dies)
    assert dies.done and (result.verdict, result.failures) == (Verdict.FAILED, (FailureClass.STREAM,))
    assert "the engine died: container exited, exit code 137, killed for memory" in result.reason
    assert result.rows[0].failed >= 10


def test_a_lane_is_cancelled_inside_and_what_it_measured_is_kept(bench: Bench) -> None:
    target = bench.serve("llamacpp")
    stop = Meanwhile(lambda: None)
    result = bench.run(target, {**LONG, "streams": (2, 4)}, stop, lambda: stop.done)
    assert (result.verdict, len(result.rows)) == (Verdict.CANCELLED, 1), result.reason
    (row,) = result.rows
    assert 1 <= row.requests < 12 and row.failed == 0
    assert row.notes[0] == f"cut short after {row.requests} of 12 requests"


def test_a_row_that_a_pause_fell_into_is_measured_anew(bench: Bench) -> None:
    target = bench.serve("vllm", *TELLS["vllm"])
    began, pauses = Meanwhile(lambda: None), list[int]()

    def cancelled() -> bool:
        if began.done and not pauses:
            pauses.append(1)
            threading.Event().wait(1.2)  # the operator's pause: nobody reads what the load generator says
        return False

    result = bench.run(target, LONG, began, cancelled)
    assert (pauses, result.verdict) == ([1], Verdict.PASSED), result.reason
    (row,) = result.rows
    assert (row.requests, row.failed, row.cache) == (12, 0, "cold")
    assert len([o for o in result.observations if o.raw["purpose"] == "request"]) == 12


def test_figures_that_contradict_prove_no_capacity_beyond_the_smaller_of_them(bench: Bench) -> None:
    """O-35: the pool says 65,536 tokens, the start-up log 0.02 windows of 32,768 (655 tokens)."""
    bench.sim.fault("kv_inconsistent", windows="0.02", next="1")
    target = bench.start("vllm")
    gate = {"kind": "capacity", "streams": (2,), "prompt_tokens": (200, 400), "completion_tokens": 20,
            "requests": 2, "warmup": 0}  # fmt: skip
    result = bench.run(target, gate)
    assert [(r.label, r.failed) for r in result.rows] == [("C2 200 unique", 0), ("C2 400 unique", 0)]
    assert result.verdict is Verdict.UNVERIFIED, result.reason
    assert "C2 400" in result.reason and "840 tokens at once" in result.reason and "0.02" in result.reason
    assert "C2 200" not in result.reason, "440 tokens are within both figures"
    assert bench.run(target, {**gate, "kind": "ladder"}).verdict is Verdict.PASSED, "a rate is no capacity"


def test_a_kv_use_that_cannot_be_proves_no_capacity(bench: Bench) -> None:
    """O-42: shown as measured, flagged, and the capacity gate proves nothing."""
    target = bench.start("sglang")
    bench.sim.fault("kv_usage", container=target.container_id, value="1.07")
    result = bench.run(target, LONG)
    assert (result.verdict, result.rows[0].kv_peak, result.rows[0].failed) == (Verdict.UNVERIFIED, 1.07, 0)
    assert "a KV use of 107.0 % cannot be" in result.reason
    assert any("107.0 %" in note for note in result.rows[0].notes)


def test_what_the_engine_can_run_at_once_is_the_smaller_of_its_limit_and_its_pool(bench: Bench) -> None:
    """O-36 and O-102: one at once by the limit; and no request, of any gate, that its pool cannot hold."""
    target = bench.start("sglang", "--max-total-tokens", "3000", slots=1)
    gate = {"kind": "capacity", "streams": (2,), "prompt_tokens": (300,), "completion_tokens": 20,
            "requests": 2, "warmup": 0}  # fmt: skip
    result = bench.run(target, gate)
    assert result.verdict is Verdict.PASSED, result.reason
    assert any("can run C1 of these at once (running limit 1, room in its KV pool for 9)" in n
               for n in result.rows[0].notes)  # fmt: skip
    before = bench.engines.read(EngineKind.SGLANG, target.port).progress
    for deep in (
        {**gate, "streams": (1,), "prompt_tokens": (4000,)}, {**gate, "prompt_tokens": (4000,)},
        {"kind": "depth-sweep"}, {"kind": "needle", "prompt_tokens_at_least": 4000},
    ):  # fmt: skip
        refused = bench.run(target, deep)
        assert (refused.verdict, refused.observations) == (Verdict.UNRUNNABLE, ()), deep
        assert "policy-infeasible" in refused.reason and "KV pool of 3,000 tokens" in refused.reason
    assert bench.engines.read(EngineKind.SGLANG, target.port).progress == before
