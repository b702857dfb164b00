"""Lanes on a real llama-server with SmolLM2: facts of the rows, never times.

Fixtures from the session's set-up: `llama_rootfs` (unpacked root with llama-server), `models_dir`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.adapters.clock import SystemClock
from anvil_tui.adapters.engine_http import HttpEngineReader
from anvil_tui.adapters.load_generator import ChildLoadGenerator
from anvil_tui.adapters.openai_client import OpenAIClient
from anvil_tui.core.gates import GateResult
from anvil_tui.core.lanes import LaneRow
from anvil_tui.service.gates.conductor import Conductor, GateTarget
from anvil_tui.service.gates.session import GateParts
from tests.real.test_gates import NoGpus, ProcessReader, recipe, suite
from tests.support.llama import Llama, llama_server

pytestmark = pytest.mark.real

SLOTS, CONTEXT = 2, 1024


@pytest.fixture(scope="module")
def results(llama_rootfs: Path, models_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One run of a sweep, two streams at once, and shared prompts, on one server."""
    log, model = tmp_path_factory.mktemp("lanes") / "log", models_dir / "smollm2-135m-instruct-q4_1.gguf"
    gates = suite(
        {"kind": "depth-sweep", "prompt_tokens": (96, 192), "completion_tokens": 12, "requests": 2},
        {"kind": "capacity", "prompt_tokens": (96,), "streams": (2,), "completion_tokens": 12, "requests": 4},
        {"kind": "prefix-cache", "prompt_tokens": (160,), "completion_tokens": 8, "requests": 2, "warmup": 0},
    )
    with llama_server(llama_rootfs, model, log, "-np", str(SLOTS), context=SLOTS * CONTEXT) as llama:
        yield run(llama, gates)


def run(llama: Llama, gates: Any) -> dict[str, GateResult]:
    reader: Any = ProcessReader(llama)
    gpus: Any = NoGpus()
    clock = SystemClock()
    parts = GateParts(
        OpenAIClient(time.monotonic), HttpEngineReader(clock), reader, gpus, clock, load=ChildLoadGenerator()
    )
    limits = {"context_tokens": CONTEXT, "max_output_tokens": 256, "concurrency": SLOTS}
    target = GateTarget(recipe(envelope=limits), "c" * 64, llama.url)
    assert Conductor(parts).unrunnable(gates, target) == {}
    return {r.gate: r for r in Conductor(parts).run(gates, target, lambda e: None, lambda: False)}


def check(row: LaneRow, requests: int, completion: int) -> None:
    """Every request complete, within 2 % of the nominal length by the engine's count, and of forced length."""
    assert (row.requests, row.failed, row.output) == (requests, 0, "forced"), row
    assert row.nominal_tokens and row.prompt_tokens and row.completion_tokens
    for tokens in (row.prompt_tokens.low, row.prompt_tokens.high):
        assert tokens is not None and abs(tokens - row.nominal_tokens) <= 0.02 * row.nominal_tokens
    assert (row.completion_tokens.low, row.completion_tokens.high) == (completion, completion)
    assert row.ttft_any_s and row.decode_tok_s and row.instrument
    assert row.instrument.error_p50_ms is not None


def test_a_depth_sweep_is_cold_by_the_engines_own_counts(results: dict[str, GateResult]) -> None:
    rows = results["depth-sweep"].rows
    assert [(r.label, r.cache) for r in rows] == [("C1 96 unique", "cold"), ("C1 192 unique", "cold")]
    for row in rows:
        check(row, 2, 12)
    requests = [o for o in results["depth-sweep"].observations if o.raw["purpose"] == "request"]
    assert [(o.raw["row"], o.ok) for o in requests] == [(r.label, True) for r in rows for _ in range(2)]
    assert all(o.raw["finish_reason"] == "length" and o.raw["cached_tokens"] is not None for o in requests)


def test_two_streams_run_at_once_in_the_engine(results: dict[str, GateResult]) -> None:
    (row,) = results["capacity"].rows
    check(row, 4, 12)
    assert (row.cache, row.running_peak, row.waiting_peak, row.kv_peak) == ("cold", 2, 0, None)


def test_a_shared_head_is_found_in_the_cache_and_a_unique_prompt_is_not(results: dict[str, GateResult]) -> None:
    unique, shared = results["prefix-cache"].rows
    assert (unique.cache, shared.cache) == ("cold", "shared")
    for row in (unique, shared):
        check(row, 2, 8)
    assert shared.cached_tokens and (shared.cached_tokens.low or 0) > 100
