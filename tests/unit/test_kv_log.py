# ruff: noqa: E501 - engine and daemon lines stand as they are written
"""KV capacity from start-up logs, every form (field cases O-34 to O-37, O-102)."""

from __future__ import annotations

import pytest

from anvil_tui.core.box import KvCapacity
from anvil_tui.core.kv_log import capacity, running_limit
from anvil_tui.core.recipe import EngineKind

VLLM, SGLANG, LLAMA = EngineKind.VLLM, EngineKind.SGLANG, EngineKind.LLAMACPP


def found(kind: EngineKind, text: str, *, block_size: int | None = None) -> KvCapacity:
    value = capacity(kind, text.split("\n"), block_size=block_size)
    assert value is not None
    return value


@pytest.mark.parametrize(
    "text",
    [
        "INFO 09-02 10:00:01 kv_cache_utils.py:524] GPU KV cache size: 1,310,720 tokens\n"
        "INFO 09-02 10:00:01 kv_cache_utils.py:527] Maximum concurrency for 524,288 tokens per request: 2.50x",
        "(EngineCore pid=187) INFO 09-02 10:00:01 [kv_cache_utils.py:1148] GPU KV cache size: 1,310,720 tokens, "
        "Maximum concurrency for 524,288 tokens per request: 2.50x",
        "\x1b[0;36m(EngineCore_DP0 pid=187)\x1b[0;0m INFO 09-02 10:00:01 [core/kv_cache_utils.py:9] GPU + host KV cache "
        "size: 1,310,720 tokens, Maximum concurrency for 524,288 tokens per request: 2.50x\r",
        '{"level":"INFO","message":"XPU KV cache size: 1,310,720 tokens, Maximum concurrency for 524,288 tokens per '
        'request: 2.50x"}',
    ],
)
def test_vllm_token_forms(text: str) -> None:
    kv = found(VLLM, text)
    assert (kv.tokens, kv.per_request_tokens, kv.reported_windows, kv.inconsistent) == (
        1_310_720,
        524_288,
        2.5,
        "",
    )
    assert kv.windows(524_288) == pytest.approx(2.5)


BLOCKS = "INFO 09-02 10:00:01 kv_cache_utils.py:522] # GPU blocks: 81920, # CPU blocks: 2048"


def test_vllm_blocks_need_a_block_size() -> None:
    assert found(VLLM, BLOCKS, block_size=16).tokens == 1_310_720
    assert found(VLLM, "args: Namespace(block_size=16, x=1)\n" + BLOCKS).tokens == 1_310_720
    assert found(VLLM, BLOCKS).tokens is None


def test_vllm_last_start_wins() -> None:
    first = "vLLM API server version 0.12\nGPU KV cache size: 100 tokens\n"
    second = "vLLM API server version 0.12\nGPU KV cache size: 200 tokens\n"
    assert found(VLLM, first + second).tokens == 200
    two = "(EngineCore_DP0 pid=1) GPU KV cache size: 100 tokens\n(EngineCore_DP1 pid=2) GPU KV cache size: 110 tokens\n"
    assert found(VLLM, "vLLM API server version 0.12\n" + two + second).tokens == 200


def test_vllm_data_parallel_engines_add_up_and_their_repeats_do_not() -> None:
    line = "(EngineCore_DP{n} pid=1) INFO x GPU KV cache size: {t} tokens, Maximum concurrency for 50 tokens per request: {c}x"
    text = "\n".join(
        line.format(n=n, t=t, c=c) for n, t, c in ((0, 100, "2.00"), (0, 100, "2.00"), (1, 150, "3.00"))
    )
    kv = found(VLLM, text)
    assert (kv.tokens, kv.reported_windows, kv.inconsistent) == (250, 5.0, "")


def test_vllm_context_parallel_number_is_taken_as_printed() -> None:
    text = "Multiplying the GPU KV cache size by the dcp_world_size 2.\nGPU KV cache size: 412,656 tokens"
    assert found(VLLM, text).tokens == 412_656


def test_vllm_available_memory() -> None:
    text = (
        "(Worker_TP0 pid=1) Available KV cache memory: 35.72 GiB\n(Worker_TP1 pid=2) Available KV cache memory: 35.7 GiB\n"
        "GPU KV cache size: 10 tokens"
    )
    assert found(VLLM, text).per_rank_bytes == int(35.7 * 2**30)


def test_vllm_contradiction_keeps_both_and_claims_neither() -> None:
    kv = found(
        VLLM,
        "INFO [kv_cache_utils.py:1319] GPU KV cache size: 290,000 tokens\n"
        "INFO [kv_cache_utils.py:1324] Maximum concurrency for 32,768 tokens per request: 33.00x",
    )
    assert (kv.tokens, kv.reported_windows) == (290_000, 33.0)
    assert "8.85" in kv.inconsistent
    assert "33.00" in kv.inconsistent
    assert "1081344" in kv.inconsistent
    assert kv.windows(32_768) is None


SG_RANKS = """\
[2026-09-02 10:00:03 TP0] KV Cache is allocated. #tokens: 393216, K size: 3.00 GB, V size: 3.00 GB
[2026-09-02 10:00:03 TP1] KV Cache is allocated. #tokens: 393216, K size: 3.00 GB, V size: 3.00 GB
"""
SG_SUM = (
    "[2026-09-02 10:00:09] max_total_num_tokens=393216, chunked_prefill_size=4096, max_prefill_tokens=16384, "
    "max_running_requests=1, context_len=262144, available_gpu_mem=3.27 GB\n"
)
SG_DRAFT = (
    "[2026-09-02 10:00:11 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 99, KV size: 0.50 GB\n"
)


@pytest.mark.parametrize("text", [SG_RANKS + SG_SUM, SG_RANKS + SG_SUM + SG_DRAFT, SG_SUM])
def test_sglang_ranks_are_not_summed_and_the_summary_rules(text: str) -> None:
    kv = found(SGLANG, text)
    assert (kv.tokens, kv.per_request_tokens) == (393_216, 262_144)
    assert kv.windows(262_144) == pytest.approx(1.5)
    assert running_limit(text.split("\n")) == 1


def test_sglang_before_the_summary() -> None:
    kv = found(SGLANG, SG_RANKS + SG_DRAFT)
    assert (kv.tokens, kv.per_request_tokens, kv.per_rank_bytes) == (393_216, None, 6 * 2**30)


def test_sglang_data_parallel_ranks_add_up() -> None:
    text = SG_SUM.replace("09]", "09 DP0 TP0]") + SG_SUM.replace("09]", "09 DP1 TP0]")
    assert found(SGLANG, text).tokens == 786_432


def test_sglang_pool_smaller_than_context_does_not_promise_the_context() -> None:
    kv = found(
        SGLANG,
        "[2026-09-02 10:00:03] KV Cache is allocated. #tokens: 73472, K size: 4.21 GB, V size: 4.21 GB\n"
        "[2026-09-02 10:00:09] max_total_num_tokens=73472, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        "max_running_requests=16, context_len=131072",
    )
    assert (kv.tokens, kv.per_request_tokens) == (73_472, 73_472)
    windows = kv.windows(131_072)
    assert windows is not None
    assert round(windows, 2) == 0.56


def test_sglang_upper_bound_is_no_allocation() -> None:
    bound = "[2026-01-02 03:04:05 TP0] KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 900, KV size: 9.00 GB\n"
    after = (
        "[2026-01-02 03:04:06 TP0] Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: 700, "
        "KV size: 7.00 GB, avail mem=1.00 GB\n"
        "[2026-01-02 03:04:06 TP0] Post-capture KV sizing: draft KV cache allocated. dtype: torch.bfloat16, "
        "#tokens: 70, KV size: 0.70 GB, avail mem=1.00 GB\n"
    )
    assert capacity(SGLANG, [bound]) is None
    assert found(SGLANG, bound + after).tokens == 700


def test_sglang_restart_replaces() -> None:
    start = "[2026-01-02 03:04:05] server_args=ServerArgs(model_path='/m')\n"
    assert found(SGLANG, start + SG_SUM + start + SG_RANKS.replace("393216", "5000")).tokens == 5000


def test_llamacpp_slots_share_the_total() -> None:
    kv = found(
        LLAMA,
        "llama_context: n_seq_max     = 4\nllama_context: n_ctx         = 65536\n"
        "llama_context: n_ctx_per_seq = 16384\nllama_context: kv_unified    = false",
    )
    assert (kv.tokens, kv.per_request_tokens) == (65_536, 16_384)


@pytest.mark.parametrize(
    ("line", "tokens", "per_request"),
    [
        ("load_model: initializing, n_slots = 4, n_ctx_slot = 8192, kv_unified = 'true'", 8192, 8192),
        ("load_model: initializing, n_slots = 2, n_ctx_slot = 2048, kv_unified = 'false'", 4096, 2048),
        ("initializing slots, n_slots = 4\nslot init: new slot n_ctx_slot = 8192", 32_768, 8192),
        ("llama_new_context_with_model: n_ctx         = 4096\nllama_context: n_seq_max = 2", 4096, 2048),
        ("llama_context: n_ctx                 = 4096\nllama_context: n_ctx_seq            = 4096", 4096, 4096),
    ],
)
def test_llamacpp_forms(line: str, tokens: int, per_request: int) -> None:
    kv = found(LLAMA, line)
    assert (kv.tokens, kv.per_request_tokens) == (tokens, per_request)


def test_llamacpp_two_caches_add_their_sizes_not_their_cells() -> None:
    kv = found(
        LLAMA,
        "llama_context: n_ctx = 4096\nllama_context: n_ctx_seq = 4096\n"
        "llama_kv_cache: size =  512.00 MiB (  4096 cells,  32 layers,  1/1 seqs), K (f16):  256.00 MiB\n"
        "llama_kv_cache: size =  128.00 MiB (  1024 cells,  8 layers,  1/1 seqs), K (f16):  64.00 MiB",
    )
    assert (kv.tokens, kv.per_rank_bytes) == (4096, 640 * 2**20)


@pytest.mark.parametrize("kind", list(EngineKind))
def test_a_log_that_says_nothing_is_unknown(kind: EngineKind) -> None:
    assert capacity(kind, ["INFO hello", "n_ctx_train = 8192", ""]) is None
