# ruff: noqa: E501 - engine and daemon lines stand as they are written
"""Metrics of engines (field cases O-38, O-39, O-41, O-42, O-44)."""

from __future__ import annotations

import pytest

from anvil_tui.core.metrics_text import engine_metrics
from anvil_tui.core.recipe import EngineKind

VLLM, SGLANG, LLAMA = EngineKind.VLLM, EngineKind.SGLANG, EngineKind.LLAMACPP

VLLM_PAGE = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="acme/m-8b"} 6.0
vllm:num_requests_waiting{engine="0",model_name="acme/m-8b"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="acme/m-8b"} 0.3721
vllm:num_preemptions_total{engine="0",model_name="acme/m-8b"} 1.0
vllm:prompt_tokens_total{engine="0",model_name="acme/m-8b"} 91204.0
vllm:generation_tokens_total{engine="0",model_name="acme/m-8b"} 55310.0
# TYPE vllm:generation_tokens_created gauge
vllm:generation_tokens_created{engine="0",model_name="acme/m-8b"} 1.7959624170568166e+09
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="acme/m-8b"} 213.0
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",gpu_memory_utilization="0.9",\
kv_cache_size_tokens="412656",kv_cache_max_concurrency="12.59",num_gpu_blocks="25791"} 1.0
"""

SGLANG_PAGE = """\
sglang:num_running_reqs{engine_type="unified",model_name="acme/m-8b",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 5.0
sglang:num_queue_reqs{engine_type="unified",model_name="acme/m-8b",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 1.0
sglang:token_usage{engine_type="unified",model_name="acme/m-8b",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 0.28
sglang:max_total_num_tokens{engine_type="unified",model_name="acme/m-8b",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 612345.0
sglang:num_retracted_reqs{model_name="acme/m-8b",pid="412",tp_rank="0"} 7.0
sglang:generation_tokens_total{model_name="acme/m-8b"} 88213.0
"""

LLAMA_PAGE = """\
llamacpp:prompt_tokens_total 1200
llamacpp:tokens_predicted_total 3400
llamacpp:requests_processing 1
llamacpp:requests_deferred 0
llamacpp:n_busy_slots_per_decode 1.2
"""


def test_vllm_page() -> None:
    m = engine_metrics(VLLM, VLLM_PAGE)
    assert (m.running, m.waiting, m.kv_used, m.preempted) == (6, 2, 0.3721, 1.0)
    assert (m.progress, m.generated, m.prompt, m.capacity_tokens) == (55310.0, 55310.0, 91204.0, 412_656)
    assert m.bad_lines == 0


def test_sglang_page() -> None:
    m = engine_metrics(SGLANG, SGLANG_PAGE)
    assert (m.running, m.waiting, m.kv_used, m.capacity_tokens) == (5, 1, 0.28, 612_345)
    assert m.progress == 88213.0
    assert m.preempted is None, "the gauge of now-retracted requests is no counter of preemptions"


def test_llamacpp_without_kv_gauges_has_unknown_kv() -> None:
    """O-39: neither 0 % nor a guess; older builds have the gauge."""
    assert engine_metrics(LLAMA, LLAMA_PAGE + "llamacpp:kv_cache_usage_ratio 0.25\n").kv_used == 0.25
    m = engine_metrics(LLAMA, LLAMA_PAGE)
    assert (m.running, m.waiting, m.generated, m.progress) == (1, 0, 3400.0, 3400.0)
    assert m.kv_used is None
    assert m.capacity_tokens is None
    assert m.preempted is None


def test_llamacpp_decode_calls_are_the_progress_where_they_exist() -> None:
    m = engine_metrics(LLAMA, "llamacpp:tokens_predicted_total 1.23457e+06\nllamacpp:n_decode_total 42\n")
    assert m.progress == 42
    assert m.generated == 1_234_570


OLD_KV = 'vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.40\n'
NEW_KV = 'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.42\n'


@pytest.mark.parametrize(
    ("page", "used"),
    [
        (OLD_KV + NEW_KV, 0.42),
        (NEW_KV + OLD_KV, 0.42),
        (NEW_KV, 0.42),
        (OLD_KV, 0.40),
        (OLD_KV + NEW_KV.replace("0.42", "0.0"), 0.0),
        (OLD_KV.replace("gpu", "cpu"), None),
        ("", None),
    ],
)
def test_old_and_new_kv_names_are_never_added(page: str, used: float | None) -> None:
    """O-38: with neither name it is n/a; a new name that measures 0 is 0."""
    m = engine_metrics(VLLM, page + 'vllm:num_requests_running{engine="0",model_name="m"} 2.0\n')
    assert (m.kv_used, m.kv_mean, m.running) == (used, used, 2)


RANKS = [
    'vllm:num_requests_running{engine="0",model_name="m"} 3.0',
    'vllm:num_requests_running{engine="1",model_name="m"} 5.0',
    'vllm:num_requests_waiting{engine="0",model_name="m"} 0.0',
    'vllm:num_requests_waiting{engine="1",model_name="m"} 2.0',
    'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.90',
    'vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.10',
    'vllm:cache_config_info{engine="0",kv_cache_size_tokens="1000"} 1.0',
    'vllm:cache_config_info{engine="1",kv_cache_size_tokens="1100"} 1.0',
]


@pytest.mark.parametrize("lines", [RANKS, RANKS[::-1]])
def test_data_parallel_counts_are_summed_and_usage_is_the_fullest(lines: list[str]) -> None:
    """O-41: in any order."""
    m = engine_metrics(VLLM, "\n".join(lines))
    assert (m.running, m.waiting, m.capacity_tokens) == (8, 2, 2100)
    assert m.kv_used == 0.90
    assert m.kv_mean == pytest.approx(0.50)


@pytest.mark.parametrize("broken", ["NaN", "", "three", "+Inf", "-1.0"])
def test_what_one_rank_does_not_tell_is_no_zero_in_the_sum(broken: str) -> None:
    """O-41, O-44: a drain ends at a sum of 0, so a sum with a hole in it is unknown; other names are whole."""
    lines = [RANKS[0].replace("3.0", broken), RANKS[1].replace("5.0", "0.0"), *RANKS[2:]]
    m = engine_metrics(VLLM, "\n".join(lines))
    assert (m.running, m.waiting, m.kv_used) == (None, 2, 0.90)


def test_the_same_series_twice_counts_once() -> None:
    """O-41: two processes that write one series, or a page that was joined from two; the later one stands."""
    page = 'vllm:num_requests_running{engine="0",model_name="m"} 3.0\n'
    again = 'vllm:num_requests_running{model_name="m",engine="0"} 4.0\n'
    assert engine_metrics(VLLM, page + again).running == 4
    other = 'vllm:num_requests_running{engine="0",model_name="n"} 2.0\n'
    assert engine_metrics(VLLM, page + page + other).running == 5


def test_a_count_below_nothing_is_unknown_and_a_part_of_a_request_is_one() -> None:
    """O-42: -1 and 1 are not an empty engine, and neither is 0.4."""
    negative = "\n".join(RANKS).replace("3.0", "-5.0")
    assert engine_metrics(VLLM, negative).running is None
    assert engine_metrics(VLLM, "vllm:num_requests_running 0.4\n").running == 1


@pytest.mark.parametrize(
    "line",
    [
        'vllm:num_requests_running{engine="0"} 3.0\r',
        "vllm:num_requests_running\t3.0",
        "  vllm:num_requests_running 3.0",
        "vllm:num_requests_running   3 1395066363000",
        'vllm:num_requests_running { engine = "0" , } 3e0',
        'vllm:num_requests_running{model_name="a\\"b},c d\\\\",engine="0"} 3',
    ],
)
def test_every_spelling_that_the_text_form_allows(line: str) -> None:
    """O-44."""
    m = engine_metrics(VLLM, f"# TYPE x gauge\n{line}\nvllm:num_requests_waiting 1")
    assert (m.running, m.waiting, m.bad_lines) == (3, 1, 0)


def test_sglang_tensor_parallel_ranks_count_once_and_data_parallel_ranks_add_up() -> None:
    def line(dp: int, tp: int, value: int) -> str:
        return f'sglang:num_running_reqs{{dp_rank="{dp}",model_name="m",pp_rank="0",tp_rank="{tp}"}} {value}\n'

    same = "".join(f'sglang:num_running_reqs{{model_name="m",tp_rank="{tp}"}} 5.0\n' for tp in (1, 0, 2))
    assert engine_metrics(SGLANG, same).running == 5
    # With attention data parallelism rank 1 of the data-parallel group starts at tensor rank 2.
    assert engine_metrics(SGLANG, line(0, 0, 3) + line(0, 1, 3) + line(1, 2, 4) + line(1, 3, 4)).running == 7


def test_sglang_progress_is_the_realtime_counter_over_modes() -> None:
    page = SGLANG_PAGE + (
        'sglang:realtime_tokens_total{mode="prefill_compute",tp_rank="0"} 100\n'
        'sglang:realtime_tokens_total{mode="decode",tp_rank="0"} 11\n'
    )
    m = engine_metrics(SGLANG, page)
    assert (m.progress, m.generated) == (111, 88213.0)


@pytest.mark.parametrize(("usage", "flag"), [(1.07, True), (-0.1, True), (1.0, False), (0.0, False)])
def test_usage_out_of_range_is_kept_and_flagged(usage: float, flag: bool) -> None:
    """O-42."""
    m = engine_metrics(SGLANG, f'sglang:token_usage{{model_name="m",tp_rank="0"}} {usage}')
    assert m.kv_used == usage
    assert m.kv_out_of_range is flag


def test_bad_samples_lose_themselves_only() -> None:
    """O-44."""
    page = (
        'vllm:num_requests_running{model_name="m"} 2.0\n'
        'vllm:num_requests_waiting{model_name="m"} \n'
        'vllm:kv_cache_usage_perc{model_name="m"} NaN\n'
        'vllm:num_preemptions_total{model_name="m} 3\n'
        'vllm:generation_tokens_total{model_name="m"} 77'
    )
    m = engine_metrics(VLLM, page)
    assert (m.running, m.waiting, m.kv_used, m.preempted, m.generated) == (2, None, None, None, 77)
    assert not m.kv_out_of_range
    assert m.bad_lines == 2
    assert m.first_bad == 'vllm:num_requests_waiting{model_name="m"} '


def test_endless_values_are_unknown() -> None:
    assert engine_metrics(VLLM, "vllm:num_requests_running +Inf\n").running is None


def test_stats_switched_off_leaves_no_series() -> None:
    m = engine_metrics(VLLM, 'python_info{version="3.12"} 1.0\nprocess_cpu_seconds_total 2.0\n')
    assert (m.series, m.running) == (0, None)
    assert engine_metrics(EngineKind.OPENAI, VLLM_PAGE).running is None
