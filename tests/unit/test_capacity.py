"""Configured, resident, measured: three numbers of different origin (O-34 to O-37, O-102, the seeds)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from anvil_tui.core.box import Engine, KvCapacity
from anvil_tui.core.capacity import (
    Capacity,
    Proven,
    capacity_json,
    capacity_of,
    capacity_text,
    fits_pool,
    frontier,
    pool_doubt,
    refused_by_pool,
)
from anvil_tui.core.capacity import proven_by as rows_prove
from anvil_tui.core.kv_log import capacity, running_limit, with_log
from anvil_tui.core.lanes import LaneRow, Spread
from anvil_tui.core.recipe import EngineKind
from tests.support import worlds

VLLM = (
    "INFO 09-02 10:00:01 kv_cache_utils.py:524] GPU KV cache size: 1,310,720 tokens",
    "INFO 09-02 10:00:01 kv_cache_utils.py:527] Maximum concurrency for 524,288 tokens per request: 2.50x",
)
OLD_VLLM = ("INFO 09-02 10:00:01 kv_cache_utils.py:522] # GPU blocks: 81920, # CPU blocks: 2048",)
HYBRID = (
    "INFO [kv_cache_utils.py:1319] GPU KV cache size: 290,000 tokens",
    "INFO [kv_cache_utils.py:1324] Maximum concurrency for 32,768 tokens per request: 33.00x",
)
SGLANG = (
    "[2026-09-02 10:00:03 TP0] KV Cache is allocated. #tokens: 393216, K size: 3.00 GB, V size: 3.00 GB",
    "[2026-09-02 10:00:03 TP1] KV Cache is allocated. #tokens: 393216, K size: 3.00 GB, V size: 3.00 GB",
    "[2026-09-02 10:00:09] max_total_num_tokens=393216, chunked_prefill_size=4096, max_prefill_tokens=16384, "
    "max_running_requests=1, context_len=262144, available_gpu_mem=3.27 GB",
)
SMALL_POOL = (
    "[2026-09-02 10:00:03] KV Cache is allocated. #tokens: 73472, K size: 4.21 GB, V size: 4.21 GB",
    "[2026-09-02 10:00:09] max_total_num_tokens=73472, chunked_prefill_size=8192, max_prefill_tokens=16384, "
    "max_running_requests=16, context_len=131072",
)
LLAMA = (
    "llama_context: n_seq_max     = 4", "llama_context: n_ctx         = 65536",
    "llama_context: n_ctx_per_seq = 16384", "llama_context: kv_unified    = false",
)  # fmt: skip


def of(kind: EngineKind, lines: tuple[str, ...], context: int | None, **more: Any) -> Capacity:
    engine = Engine(str(kind), "ready", context_tokens=context, capacity=capacity(kind, lines), **more)
    return capacity_of(None, engine)


def test_o34_both_forms_of_vllm() -> None:
    """O-34: 1,310,720 / 524,288 = 2.5 windows; blocks of unknown size are no tokens."""
    new = of(EngineKind.VLLM, VLLM, 524_288)
    assert (new.pool_tokens, new.windows, new.longest_request) == (1_310_720, 2.5, 524_288)
    old = of(EngineKind.VLLM, OLD_VLLM, 524_288)
    assert (old.pool_tokens, old.windows, old.longest_request, old.concurrent) == (None, None, None, None)


def test_o35_figures_that_contradict_claim_nothing() -> None:
    """O-35: 290,000 tokens are 8.85 windows, the engine says 33 (1,081,344 tokens)."""
    got = of(EngineKind.VLLM, HYBRID, 32_768)
    assert (got.windows, got.concurrent, got.longest_request) == (None, None, None)
    assert "8.85" in got.inconsistent and "33.00" in got.inconsistent and "inconsistent" in capacity_text(got)
    kv = capacity(EngineKind.VLLM, HYBRID)
    needs = {8 * 32_768: "yes", 9 * 32_768: "inconclusive", 33 * 32_768: "inconclusive", 34 * 32_768: "no"}
    assert {n: fits_pool(kv, n) for n in needs} == needs


def test_o36_one_pool_and_the_smaller_of_two_limits() -> None:
    """O-36: 393,216 / 262,144 = 1.5 windows, one request at once: one may be claimed. 6 GiB a rank, not 12."""
    assert running_limit(SGLANG) == 1
    got = of(EngineKind.SGLANG, SGLANG, 262_144, slots=1)
    assert (got.pool_tokens, got.windows, got.running_limit, got.concurrent) == (393_216, 1.5, 1, 1)
    assert got.rank_bytes == 6 * 1024**3
    assert of(EngineKind.SGLANG, SGLANG, 262_144, slots=16).concurrent == 1


def test_bytes_of_a_rank_come_from_the_log_when_only_it_tells_them() -> None:
    """The metrics of SGLang give the pool; the same pool in the log has 3 + 3 GiB a rank; another says nothing."""
    told = KvCapacity(393_216, "sglang /metrics", at="2026-09-02T10:01:00Z")
    log = capacity(EngineKind.SGLANG, SGLANG)
    both = with_log(told, log)
    assert both is not None and (both.source, both.per_rank_bytes) == ("sglang /metrics", 6 * 1024**3)
    other = replace(told, tokens=400_000)
    assert with_log(other, log) == other and with_log(None, log) == log and with_log(told, None) == told


def test_o37_slots_cut_one_pool() -> None:
    """O-37: 65,536 in four slots: no request may be longer than 16,384."""
    got = of(EngineKind.LLAMACPP, LLAMA, 16_384, slots=4)
    assert (got.pool_tokens, got.longest_request, got.windows, got.concurrent) == (65_536, 16_384, 4.0, 4)


def test_o102_a_pool_smaller_than_the_context() -> None:
    """O-102: 73,472 / 131,072 = 0.56 windows: no complete one, and no request of more than 73,472."""
    got = of(EngineKind.SGLANG, SMALL_POOL, 131_072, slots=16)
    assert got.windows is not None and f"{got.windows:.2f}" == "0.56"
    assert (got.longest_request, got.concurrent) == (73_472, 0)
    kv = capacity(EngineKind.SGLANG, SMALL_POOL)
    assert (fits_pool(kv, 73_472), fits_pool(kv, 131_072), fits_pool(kv, 262_144)) == ("yes", "no", "no")


@pytest.mark.parametrize(("pool", "context", "windows"), [
    (2_493_817, 524_288, "4.76"), (2_917_371, 1_048_576, "2.78"), (565_898, 524_288, "1.08"),
])  # fmt: skip
def test_windows_of_the_records(pool: int, context: int, windows: str) -> None:
    got = capacity_of(None, Engine("vllm", "ready", context_tokens=context, capacity=KvCapacity(pool, "log")))
    assert f"{got.windows:.2f}" == windows


def test_the_recipe_s_context_is_never_resident() -> None:
    recipe = worlds.recipes()[worlds.CANDIDATE]
    for engine in (None, Engine("sglang", "ready"), Engine("sglang", "ready", context_tokens=393_216)):
        got = capacity_of(recipe, engine)
        assert (got.configured, got.recipe_context, got.pool_tokens, got.windows) == (1, 393_216, None, None)
        assert got.longest_request is None
    assert fits_pool(None, 1) == fits_pool(KvCapacity(None, "log"), 1) == "unknown"


def lane(streams: int, low: float | None, **more: Any) -> LaneRow:
    fields: dict[str, Any] = {
        "prompt_tokens": None if low is None else Spread(streams, low, low + 500, low + 900),
        "requests": streams, "waiting_peak": 0, "running_peak": streams, **more,
    }  # fmt: skip
    return LaneRow("capacity", streams, **fields)


def test_only_complete_rows_without_a_queue_prove_a_concurrency() -> None:
    rows = (
        lane(2, 206_630), lane(16, 2_969, requests=32), lane(4, 206_630, failed=1), lane(32, None),
        lane(8, 206_630, waiting_peak=3), lane(8, 206_630, waiting_peak=None), lane(64, 2_969, requests=31),
    )  # fmt: skip
    found = frontier(rows_prove(rows, "op/serve", "2026-09-02"))
    assert [(p.streams, p.prompt_tokens) for p in found] == [(2, 206_630), (16, 2_969)]


def test_the_frontier_drops_what_another_row_beats_in_both() -> None:
    found = [
        Proven(s, t, s, "b", "2026") for s, t in ((1, 300_000), (2, 206_630), (2, 100_000), (1, 4_000), (4, 4_000))
    ]
    assert [(p.streams, p.prompt_tokens) for p in frontier(found)] == [(1, 300_000), (2, 206_630), (4, 4_000)]


def test_measured_stands_beside_the_record() -> None:
    recipe = worlds.recipes()[worlds.INCUMBENT]
    engine = worlds.engine(recipe)
    recorded = capacity_of(recipe, engine)
    assert "configured C16, resident 4.76 windows of 524,288, measured n/a, the record says C2 at 206,630" in (
        capacity_text(recorded)
    )
    measured = replace(recorded, proven=(Proven(2, 206_630, 2, "op/serve", "2026-09-02"),))
    assert "measured C2 at 206,630;" in capacity_text(measured) and "record" not in capacity_text(measured)
    obj = json.loads(json.dumps(capacity_json(measured)))
    assert (obj["configured"], obj["windows"], obj["proven"][0]["streams"]) == (16, 4.7566, 2)


def test_o35_a_contradiction_of_the_log_stands_beside_the_pool_that_http_tells() -> None:
    told = KvCapacity(290_000, "vllm /metrics")
    both = with_log(told, capacity(EngineKind.VLLM, HYBRID))
    assert both is not None and (both.tokens, both.source) == (290_000, "vllm /metrics")
    assert (both.reported_windows, both.per_request_tokens, "8.85" in both.inconsistent) == (33.0, 32_768, True)
    assert pool_doubt(both, 8 * 32_768) == ""
    assert "294,912 tokens at once" in pool_doubt(both, 9 * 32_768) and pool_doubt(both, 34 * 32_768)
    assert pool_doubt(told, 34 * 32_768) == "" and pool_doubt(None, 1) == ""


def test_o102_and_o37_a_request_that_can_never_be_served_is_refused() -> None:
    small, slots = capacity(EngineKind.SGLANG, SMALL_POOL), capacity(EngineKind.LLAMACPP, LLAMA)
    assert refused_by_pool(small, 73_472) == "" and "pool of 73,472" in refused_by_pool(small, 73_473)
    assert refused_by_pool(slots, 16_384) == "" and "16,384 tokens that the engine" in refused_by_pool(
        slots, 16_385
    )
    assert refused_by_pool(None, 10**9) == "" and refused_by_pool(KvCapacity(None, "log"), 10**9) == ""


def test_a_row_whose_streams_were_never_seen_at_once_proves_no_concurrency() -> None:
    row = LaneRow("c", 2, 4, prompt_tokens=Spread(4, 100, 100, 100), waiting_peak=0, running_peak=1)
    assert rows_prove([row], "b", "t") == []
    for unseen in (None, 0):
        assert rows_prove([replace(row, running_peak=unseen)], "b", "t") == []
    assert [p.streams for p in rows_prove([replace(row, running_peak=2)], "b", "t")] == [2]
