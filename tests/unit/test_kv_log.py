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
    """O-34: one record or two, with what stands around it in a container's log."""
    kv = found(VLLM, text)
    assert (kv.tokens, kv.per_request_tokens, kv.reported_windows, kv.inconsistent) == (
        1_310_720,
        524_288,
        2.5,
        "",
    )
    assert kv.windows(524_288) == pytest.approx(2.5)


BLOCKS = "INFO 09-02 10:00:01 kv_cache_utils.py:522] # GPU blocks: 81920, # CPU blocks: 2048"


@pytest.mark.parametrize("device", ["GPU", "CUDA", "cuda", "rocm", "HPU", "xpu"])
@pytest.mark.parametrize("host", [", # CPU blocks: 2048", " # CPU blocks: 2048", "", ", # CPU blocks: 0"])
def test_vllm_blocks_of_every_device_without_those_of_the_host(device: str, host: str) -> None:
    """O-34: builds of two years name the device differently."""
    kv = found(VLLM, f"INFO 06-26 16:55:19 [executor_base.py:112] # {device} blocks: 81920{host}", block_size=16)
    assert kv.tokens == 1_310_720
    assert capacity(VLLM, ["INFO # CPU blocks: 2048"], block_size=16) is None


def test_vllm_blocks_that_contradict_their_concurrency_claim_neither() -> None:
    """O-35: in the old form too."""
    line = "Maximum concurrency for 32768 tokens per request: {}x"
    assert found(VLLM, f"{BLOCKS}\n{line.format('40.00')}", block_size=16).inconsistent == ""
    odd = found(VLLM, f"{BLOCKS}\n{line.format('20.00')}", block_size=16)
    assert "40.00 windows" in odd.inconsistent and odd.windows(32_768) is None
    assert found(VLLM, f"{BLOCKS}\n{line.format('20.00')}").inconsistent == ""


def test_vllm_blocks_of_an_earlier_start_are_not_this_starts() -> None:
    """O-34: last start wins, also when it did not come so far."""
    start = "INFO 09-02 10:00:00 api_server.py:840] vLLM API server version 0.6.3\n"
    assert capacity(VLLM, (start + BLOCKS + "\n" + start).split("\n"), block_size=16) is None
    again = start + BLOCKS + "\n" + start + BLOCKS.replace("81920", "100")
    assert found(VLLM, again, block_size=16).tokens == 1600


def test_vllm_blocks_need_a_block_size() -> None:
    """O-34: without it the tokens are unknown, not 0."""
    assert found(VLLM, BLOCKS, block_size=16).tokens == 1_310_720
    assert found(VLLM, "args: Namespace(block_size=16, x=1)\n" + BLOCKS).tokens == 1_310_720
    assert found(VLLM, BLOCKS).tokens is None


def test_vllm_last_start_wins() -> None:
    """O-34."""
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
    """O-35."""
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
    """O-36."""
    kv = found(SGLANG, text)
    assert (kv.tokens, kv.per_request_tokens) == (393_216, 262_144)
    assert kv.windows(262_144) == pytest.approx(1.5)
    assert running_limit(text.split("\n")) == 1


@pytest.mark.parametrize("day", ["2026-09-02 ", ""])
@pytest.mark.parametrize("paint", ["", "\x1b[0m", "\x1b[2K", "\x1b[1;36m", "\x1b]0;t\x07"])
def test_sglang_ranks_in_every_prefix(day: str, paint: str) -> None:
    """O-36: older builds print the time without the day; data-parallel pools add up, repeats do not."""
    lines = [f"{paint}[{day}10:00:09 DP{dp} TP{tp}] {SG_SUM.partition('] ')[2]}" for dp in (0, 1) for tp in (0, 1)]
    assert found(SGLANG, "".join(lines)).tokens == 786_432


@pytest.mark.parametrize("text", [SG_SUM, SG_SUM.replace(", available_gpu_mem=3.27 GB", "")])
def test_sglang_summary_with_and_without_its_later_parts(text: str) -> None:
    """O-36."""
    assert found(SGLANG, text.replace("chunked_prefill_size=4096, ", "")).tokens == 393_216
    assert found(SGLANG, text.replace("4096", "None")).tokens == 393_216
    assert found(SGLANG, text.replace("[2026-09-02 10:00:09]", "[gpu=0]") * 2).tokens == 393_216


def test_sglang_before_the_summary() -> None:
    kv = found(SGLANG, SG_RANKS + SG_DRAFT)
    assert (kv.tokens, kv.per_request_tokens, kv.per_rank_bytes) == (393_216, None, 6 * 2**30)


def test_sglang_data_parallel_ranks_add_up() -> None:
    text = SG_SUM.replace("09]", "09 DP0 TP0]") + SG_SUM.replace("09]", "09 DP1 TP0]")
    assert found(SGLANG, text).tokens == 786_432


def test_sglang_pool_smaller_than_context_does_not_promise_the_context() -> None:
    """O-102."""
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
    """O-37."""
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
    """O-37."""
    kv = found(LLAMA, line)
    assert (kv.tokens, kv.per_request_tokens) == (tokens, per_request)


@pytest.mark.parametrize(
    ("slot", "unified", "pool"),
    [
        ("slot   load_model: id  0 | task -1 | new slot, n_ctx = 16384", "false", 65_536),
        ("slot         init: id  0 | task -1 | new slot n_ctx_slot = 16384", "false", 65_536),
        ("0.07.146.887 I slot   load_model: id  3 | task -1 | new slot, n_ctx = 65536", "true", 65_536),
    ],
)
def test_llamacpp_a_slots_context_is_not_the_pool(slot: str, unified: str, pool: int) -> None:
    """O-37: the newest builds call both `n_ctx`; the slots' lines come last."""
    kv = found(
        LLAMA,
        "llama_context: n_seq_max     = 4\nllama_context: n_ctx         = 65536\n"
        f"llama_context: kv_unified    = {unified}\nsrv    load_model: initializing slots, n_slots = 4\n{slot}",
    )
    assert (kv.tokens, kv.per_request_tokens) == (pool, int(slot.rpartition(" ")[2]))


def test_llamacpp_slots_alone_tell_the_pool_unless_it_is_shared() -> None:
    """O-37: at the default verbosity nothing else is printed."""
    lines = "srv    load_model: initializing slots, n_slots = 4\nslot load_model: id 0 | new slot, n_ctx = 8192"
    assert (found(LLAMA, lines).tokens, found(LLAMA, lines).per_request_tokens) == (32_768, 8192)
    capped = lines.replace("8192", "32768") + "\nslot context (131072) exceeds the training context of the model"
    assert found(LLAMA, capped).per_request_tokens == 32_768


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
