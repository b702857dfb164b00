"""Rows of lanes against values worked out by hand: O-66, O-67, O-68, O-69 and what peers get wrong.

The streams are those of a server that sends 40 tokens, the first 200 ms after the request, then one each 20 ms.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from anvil_tui.core.chat import ChatAnswer, decode_seeds_tok_s, decode_tok_s
from anvil_tui.core.chat_stream import StreamAssembler
from anvil_tui.core.lanes import Instrument, LaneRow, Spread
from anvil_tui.core.measure import chunk_gaps_s, e2e_tok_s, nearest_rank, prefill_tok_s, row_of, spread
from anvil_tui.core.sse import SseEvent

CLEAN = Instrument(0.1, 0.2, 0.4, 0, 0.0, 0.1, 1.0, 14.0)


@dataclass(frozen=True)
class Timed:
    n: int
    began_s: float
    answer: ChatAnswer


@dataclass(frozen=True)
class Run:
    answers: Sequence[Timed]
    wall_s: float
    instrument: Instrument = CLEAN


Event = tuple[float, dict[str, Any]]


def delta(at: float, finish: str | None = None, **fields: Any) -> Event:
    return at, {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def usage(at: float, tokens: int, **rest: Any) -> Event:
    return at, {"choices": [], "usage": {"prompt_tokens": 64, "completion_tokens": tokens, **rest}}


def at(token: int) -> float:
    return 0.200 + 0.020 * token


def content(tokens: int = 40, first: int = 0, per_chunk: int = 1) -> list[Event]:
    return [delta(at(n), content="t " * per_chunk) for n in range(first, tokens, per_chunk)]


def answered(*events: Event, end: float = 0.981) -> ChatAnswer:
    taker = StreamAssembler()
    for number, (stamp, chunk) in enumerate(events):
        taker.event(SseEvent(json.dumps(chunk), number), stamp)
    return replace(taker.end("done", end), client_queue_s=0.0)


FINISH, USAGE = delta(0.98, "length"), usage(0.981, 40)
THINK = [delta(at(n), reasoning_content="h ") for n in range(16)]


def row(*answers: ChatAnswer, **rest: Any) -> LaneRow:
    """One stream, one answer after the other, each for a second."""
    timed = [Timed(n, float(n), a) for n, a in enumerate(answers)]
    return row_of(Run(timed, float(len(answers))), lane="c1", streams=1, **rest)


def p50(found: Spread | None) -> float | None:
    return None if found is None else found.p50


SCENARIOS: dict[str, tuple[list[Event], dict[str, float | None]]] = {
    "plain": ([*content(), FINISH, USAGE], {}),
    "role chunk at 20 ms": ([delta(0.02, role="assistant", content=""), *content(), FINISH, USAGE], {}),
    "reasoning_content first": ([*THINK, *content(first=16), FINISH, USAGE], {"visible": 0.520}),
    "reasoning first": (
        [*(delta(at(n), reasoning="h ") for n in range(16)), *content(first=16), FINISH, USAGE],
        {"visible": 0.520},
    ),
    "reasoning to the cap": (
        [*(delta(at(n), reasoning="h ") for n in range(40)), FINISH, USAGE],
        {"visible": None},
    ),
    "4 tokens a chunk": (
        [*content(per_chunk=4), FINISH, USAGE],
        {"e2e": 0.920, "seeds": 39 / 0.72, "gap": 0.080},
    ),
    "usage not asked for": ([*content(), (0.98, {**FINISH[1], "usage": USAGE[1]["usage"]})], {}),
    "usage never": ([*content(), FINISH], {"tokens": None, "decode": None, "seeds": None, "aggregate": None}),
    "stops at 20 of 40": (
        [*content(20), delta(0.58, "stop"), usage(0.581, 20)],
        {"tokens": 20, "e2e": 0.580, "aggregate": 20.0},
    ),
    "an empty chunk after every 5th": (
        [e for n, c in enumerate(content(), 1) for e in ([c] if n % 5 else [c, delta(c[0] + 0.001, content="")])]
        + [FINISH, USAGE],
        {},
    ),
}
TRUTH: dict[str, float | None] = {
    "any": 0.200, "visible": 0.200, "e2e": 0.980, "tokens": 40, "decode": 50.0, "seeds": 50.0, "gap": 0.020,
    "aggregate": 40.0,
}  # fmt: skip


@pytest.mark.parametrize(("events", "other"), SCENARIOS.values(), ids=SCENARIOS)
def test_the_truth_of_each_scenario(events: list[Event], other: dict[str, float | None]) -> None:
    """O-66: tokens come from usage. A figure that is not known is None, and what did not happen is not 0.0."""
    got = row(*[answered(*events)] * 3)
    found = {
        "any": p50(got.ttft_any_s), "visible": p50(got.ttft_visible_s), "e2e": p50(got.e2e_s),
        "tokens": p50(got.completion_tokens), "decode": p50(got.decode_tok_s),
        "seeds": p50(got.decode_seeds_tok_s), "gap": p50(got.chunk_gap_s), "aggregate": got.aggregate_tok_s,
    }  # fmt: skip
    wanted = TRUTH | other
    assert {k: v for k, v in found.items() if v is None} == {k: v for k, v in wanted.items() if v is None}
    assert {k: v for k, v in found.items() if v is not None} == pytest.approx(
        {k: v for k, v in wanted.items() if v is not None}
    )
    assert (got.requests, got.failed) == (3, 0)


def test_a_running_total_counts_once_and_tells_the_tokens_of_the_first_chunk() -> None:
    """O-67. Uneven chunks: 9 tokens at first, then one each 20 ms; the seeds' formula sees 67, equal shares 38."""
    sizes = [9, *[1] * 16]
    events = [
        (at(n), {**delta(0, content="t " * size)[1], "usage": {"completion_tokens": sum(sizes[: n + 1])}})
        for n, size in enumerate(sizes)
    ]
    got = answered(*events, delta(0.53, "stop"), usage(0.531, 25))
    assert (got.completion_tokens, got.first_tokens) == (25, 9)
    assert decode_tok_s(got) == pytest.approx(16 / 0.32)
    assert decode_seeds_tok_s(got) == pytest.approx(24 / 0.32)
    assert decode_tok_s(replace(got, first_tokens=None)) == pytest.approx(25 * 16 / 17 / 0.32)


@pytest.mark.parametrize("first_tokens", [None, 2])
def test_chunks_that_came_in_one_read_are_the_first_together(first_tokens: int | None) -> None:
    times = (0.2, 0.2, *(0.2 + 0.02 * n for n in range(1, 9)))
    got = ChatAnswer(200, completion_tokens=10, token_times_s=times, first_tokens=first_tokens)
    assert decode_tok_s(got) == pytest.approx(8 / 0.16)
    assert chunk_gaps_s(got) == pytest.approx([0.02] * 8)


def test_all_text_in_one_chunk_has_an_end_to_end_rate_and_no_decode_rate() -> None:
    """O-68: it does not enter the decode median, and n says how many did."""
    one = ChatAnswer(200, completion_tokens=64, ttft_any_s=2.0, e2e_s=2.0, end_s=2.0, token_times_s=(2.0,))
    assert (decode_tok_s(one), e2e_tok_s(one)) == (None, 32.0)
    got = row(one, answered(*content(), FINISH, USAGE))
    assert got.decode_tok_s is not None and got.e2e_tok_s is not None
    assert (got.decode_tok_s.n, got.e2e_tok_s.n, got.requests) == (1, 2, 2)
    assert row(one).decode_tok_s is None


def test_a_step_of_the_wall_clock_changes_nothing() -> None:
    """O-69: an answer has no wall time at all, so none can enter a duration."""
    times = tuple(0.42 + n / 50 for n in range(51))
    got = ChatAnswer(200, completion_tokens=51, ttft_any_s=0.42, e2e_s=1.42, token_times_s=times)
    assert p50(row(got).ttft_any_s) == 0.42
    assert decode_tok_s(got) == pytest.approx(50.0)


def test_nearest_rank_gives_values_that_were_measured() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [nearest_rank(values, s) for s in (0.05, 0.5, 0.95, 0.99, 1.0)] == [5, 50, 95, 99, 100]
    assert nearest_rank([7.0], 0.95) == 7.0
    assert nearest_rank([2.0, 1.0], 0.5) == 1.0
    assert nearest_rank([float(n) for n in range(20)], 0.05) == 0.0
    with pytest.raises(ValueError, match="no values"):
        nearest_rank([], 0.5)


def test_no_tail_below_59_samples() -> None:
    assert spread([None, None]) is None
    assert spread(iter(range(58))) == Spread(58, 0.0, 28.0, 57.0)
    assert spread([*range(59), None]) == Spread(59, 0.0, 29.0, 58.0, 2.0, 56.0)


BROKEN = ChatAnswer(200, error="truncated", completion_tokens=5, ttft_any_s=0.01, end_s=0.5, client_queue_s=0.0)


def test_failures_are_counted_and_are_infinitely_late() -> None:
    good = [replace(answered(*content(), FINISH, USAGE), ttft_any_s=0.2 + n / 1000) for n in range(96)]
    three = row(*good, *[BROKEN] * 3)
    assert (three.requests, three.failed) == (99, 3)
    assert three.ttft_any_s is not None
    assert (three.ttft_any_s.n, three.ttft_any_s.low) == (96, 0.2)
    assert three.ttft_failed_p95_s == pytest.approx(0.2 + 94 / 1000)  # rank ceil(0.95 * 99) = 95
    assert row(*good, *[BROKEN] * 6).ttft_failed_p95_s is None  # rank 97 of 96 that came
    assert row(*good[:50]).ttft_failed_p95_s is None
    assert row(*good[:2], failed=lambda a: a.ttft_any_s == 0.2).failed == 1


def test_nothing_good_is_a_row_without_figures() -> None:
    got = row(BROKEN, BROKEN)
    assert (got.requests, got.failed, got.ttft_any_s, got.aggregate_tok_s, got.steady_tok_s) == (
        2,
        2,
        None,
        None,
        None,
    )
    empty = row_of(Run((), 0.0), lane="c1", streams=4)
    assert (empty.requests, empty.first_wave_ttft_s, empty.aggregate_tok_s) == (0, None, None)


def even(tokens: int, seconds: float, began: float, n: int) -> Timed:
    """`tokens` chunks, the last at the end."""
    times = tuple(seconds * (k + 1) / tokens for k in range(tokens))
    got = ChatAnswer(
        200, completion_tokens=tokens, token_times_s=times, ttft_any_s=times[0], e2e_s=seconds, end_s=seconds,
        client_queue_s=0.0,
    )  # fmt: skip
    return Timed(n, began, got)


def test_the_aggregate_of_the_whole_lane_and_of_its_steady_part() -> None:
    """Two streams for 2 s, then one alone for 2 s: 10 tok/s each."""
    both = [even(20, 2.0, 0.0, 0), even(40, 4.0, 0.0, 1)]
    got = row_of(Run(both, 4.0), lane="c2", streams=2)
    assert got.aggregate_tok_s == pytest.approx(60 / 4)
    assert got.steady_tok_s == pytest.approx(40 / 2)
    assert row_of(Run(both, 4.0), lane="c9", streams=9).steady_tok_s is None


def test_steady_means_nine_of_ten_and_counts_failures_as_load() -> None:
    nine = [even(10, 1.0, 0.0, n) for n in range(9)]
    assert row_of(Run(nine, 1.0), lane="c10", streams=10).steady_tok_s == pytest.approx(90.0)
    assert row_of(Run(nine[:8], 1.0), lane="c10", streams=10).steady_tok_s is None
    with_broken = [*nine[:8], Timed(8, 0.0, replace(BROKEN, end_s=0.5))]
    assert row_of(Run(with_broken, 1.0), lane="c10", streams=10).steady_tok_s == pytest.approx(80.0)


def test_gaps_between_requests_are_not_steady() -> None:
    one_after_other = [even(10, 1.0, 0.0, 0), even(10, 1.0, 3.0, 1)]
    got = row_of(Run(one_after_other, 4.0), lane="c1", streams=1)
    assert got.aggregate_tok_s == 5.0
    assert got.steady_tok_s == pytest.approx(10.0)


def test_the_first_wave_is_shown_apart_and_not_dropped() -> None:
    late = [even(10, 10.0, 0.0, n) for n in range(2)]
    got = row_of(Run([*late, *(even(10, 1.0, 10.0 + n, n + 2) for n in range(6))], 17.0), lane="c2", streams=2)
    assert got.first_wave_ttft_s == Spread(2, 1.0, 1.0, 1.0)
    assert got.ttft_any_s == Spread(8, 0.1, 0.1, 1.0)


def test_prefill_only_where_the_cache_is_known() -> None:
    known = ChatAnswer(200, prompt_tokens=1000, cached_tokens=0, ttft_any_s=0.5)
    assert prefill_tok_s(known) == 2000.0
    assert prefill_tok_s(replace(known, cached_tokens=200)) == 1600.0
    assert prefill_tok_s(replace(known, cached_tokens=None)) is None
    assert prefill_tok_s(replace(known, cached_tokens=1000)) is None


def test_what_is_given_goes_into_the_row() -> None:
    got = row(
        answered(*content(), FINISH, USAGE), label="depth 64K", nominal_tokens=65536, output="forced",
        cache="cold", error_ms=(0.2, 0.6),
    )  # fmt: skip
    assert (got.label, got.nominal_tokens, got.output, got.cache) == ("depth 64K", 65536, "forced", "cold")
    assert got.instrument == replace(CLEAN, error_p50_ms=0.2, error_p95_ms=0.6)
    assert got.prompt_tokens == Spread(1, 64.0, 64.0, 64.0)
