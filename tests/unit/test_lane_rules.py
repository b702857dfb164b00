"""Lanes without a server: which rows are made, of which prompts, and what a measured row proves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from anvil_tui.core import lane_rules
from anvil_tui.core.box import KvCapacity
from anvil_tui.core.gates import FailureClass, Gate
from anvil_tui.core.lane_rules import Held, Shape, cache_state, judge_row, notes_of, output_state, planned, verdict
from anvil_tui.core.lanes import Instrument, LaneRow, Spread
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.verdicts import Judged, failed
from anvil_tui.service.gates.lane_prompts import WORDS, PromptSet

OK = Judged("ok")


def gate(kind: str = "capacity", **keys: Any) -> Gate:
    depths = {} if kind == "depth-sweep" else {"prompt_tokens": (4096,)}
    return Gate.model_validate({"id": "g", "kind": kind, **depths, **keys})


def recipe(context: int = 131_072, concurrency: int = 4, most: int = 16_384) -> Recipe:
    return Recipe.model_validate({
        "schema": "anvil.recipe/1", "id": "r", "family": "f", "engine": "vllm", "served_name": "r",
        "exclusive": False, "rollback": "none: test", "image": {"ref": "x@sha256:" + "a" * 64},
        "model": {"repo": "m"}, "launch": {"argv": ("{port}",)},
        "envelope": {"context_tokens": context, "max_output_tokens": most, "concurrency": concurrency},
    })  # fmt: skip


# planning


def labels(made: Sequence[Shape]) -> list[str]:
    return [shape.label for shape in made]


def test_capacity_makes_a_row_for_each_depth_and_number_of_streams_and_fills_its_streams() -> None:
    made = planned(gate(streams=(2, 16), prompt_tokens=(4096, 65_536), requests=8, completion_tokens=64), recipe())
    assert labels(made) == ["C2 4,096 unique", "C16 4,096 unique", "C2 65,536 unique", "C16 65,536 unique"]
    assert [(s.requests, s.completion) for s in made] == [(8, 64), (16, 64), (8, 64), (16, 64)]


def test_a_burst_is_one_wave() -> None:
    (made,) = planned(gate(streams=(6,), burst=True, requests=40), recipe())
    assert (made.requests, made.burst) == (6, True)


def test_a_sweep_without_depths_goes_to_the_end_of_the_context_one_stream_at_a_time() -> None:
    made = planned(gate("depth-sweep", completion_tokens=1000), recipe(context=101_000))
    assert [(s.streams, s.tokens) for s in made] == [(1, d) for d in (4096, 8192, 16384, 32768, 65536, 99_000)]
    assert [s.tokens for s in planned(gate("depth-sweep"), recipe(context=1024, most=512))] == [760], (
        "768 left, 99 % of it"
    )


def test_a_ladder_without_streams_climbs_to_the_recipes_concurrency() -> None:
    assert [s.streams for s in planned(gate("ladder"), recipe(concurrency=6))] == [1, 2, 4, 6]
    assert [s.streams for s in planned(gate("ladder"), recipe(concurrency=1))] == [1]
    assert [s.streams for s in planned(gate("ladder", streams=(1, 3)), recipe())] == [1, 3]


def test_unique_and_shared_prompts_are_two_rows() -> None:
    made = planned(gate("prefix-cache", streams=(2,)), recipe())
    assert labels(made) == ["C2 4,096 unique", "C2 4,096 shared"]
    assert labels(planned(gate("endurance", prefix="warm"), recipe())) == ["C1 4,096 warm"]


def test_what_does_not_fit_is_unrunnable_by_name_and_more_streams_than_promised_are_not() -> None:
    deep = gate("depth-sweep", prompt_tokens=(4096, 131_000, 200_000), completion_tokens=100)
    assert lane_rules.why_not(deep, recipe()) == (
        "prompts of 131,000, 200,000 and 100 tokens of answer exceed the recipe's context of 131,072"
    )
    long = gate(completion_tokens=8192)
    assert "max_output_tokens 4,096" in lane_rules.why_not(long, recipe(most=4096))
    huge = gate(prompt_tokens=(120_000,), requests=200)
    assert "200 requests exceed 16,777,216" in lane_rules.why_not(huge, recipe())
    assert lane_rules.why_not(gate(streams=(16,)), recipe(concurrency=2)) == ""


# prompts


def test_prompts_are_the_same_in_every_run_but_for_the_salt_at_their_head() -> None:
    one, same, other = (PromptSet("unique", 500, salt) for salt in ("run-1", "run-1", "run-2"))
    assert one.text(3) == same.text(3)
    assert one.text(3).split()[8:] == other.text(3).split()[8:]
    assert one.text(3).split()[:8] != other.text(3).split()[:8]
    assert one.digest(5) == other.digest(5) != one.digest(6)
    assert one.digest(5) != PromptSet("unique", 501, "run-1").digest(5) != PromptSet("warm", 501, "x").digest(5)


def common(a: str, b: str) -> int:
    """Words that two texts have in common at the head."""
    pairs = list(zip(a.split(), b.split(), strict=False))
    return next((n for n, (x, y) in enumerate(pairs) if x != y), len(pairs))


def test_unique_prompts_share_nothing_and_shared_ones_nine_tenths() -> None:
    unique, shared = (PromptSet(p, 1000, "s") for p in ("unique", "shared"))
    heads = [unique.text(n) for n in range(40)]
    assert max(common(a, b) for a in heads for b in heads if a is not b) < 8
    assert {common(shared.text(0), shared.text(n)) >= 908 for n in range(1, 20)} == {True}
    assert max(common(shared.text(0), shared.text(n)) for n in range(1, 20)) < 920
    assert shared.text(1) != shared.text(2)
    assert len(unique.text(1).split()) == len(shared.text(1).split())


def test_the_word_list_has_one_word_a_byte() -> None:
    assert len(WORDS) == len(set(WORDS)) == 256 and all(2 <= len(w) <= 6 for w in WORDS)


# cache and output

HELD = Held(base=30, head=900, whole=1000)


@pytest.mark.parametrize(
    ("prefix", "cached", "state", "says"),
    [
        ("unique", [0, 0], "cold", ""),
        ("unique", [16, 30], "cold", ""),
        ("unique", [0, 512], "unknown", "not cold: 0 to 512 tokens were cached"),
        ("shared", [896, 880], "shared", ""),
        ("shared", [0, 0], "cold", "arranged as shared, found cold: 0 tokens were cached"),
        ("shared", [0, 896], "unknown", "arranged as shared, found mixed: 0 to 896 tokens were cached"),
        ("warm", [992, 976], "warm", ""),
        ("warm", [600, 976], "unknown", "arranged as warm, found mixed"),
        ("warm", [None, 976], "unknown", "found mixed: 0 to 976"),
    ],
)
def test_a_cache_state_is_claimed_only_when_every_request_shows_it(
    prefix: Any, cached: list[int | None], state: str, says: str
) -> None:
    found, note = cache_state(prefix, cached, True, HELD)
    assert found == state and says in note and bool(note) == bool(says)


@pytest.mark.parametrize("prefix", ["unique", "shared", "warm"])
def test_an_engine_that_does_not_report_the_cache_leaves_it_unknown(prefix: Any) -> None:
    assert cache_state(prefix, [None], False, HELD) == ("unknown", "the engine does not report cached tokens")


def test_output_is_forced_only_when_asked_and_exactly_so_long() -> None:
    assert output_state(True, 64, [64, 64]) == ("forced", "")
    assert output_state(True, 64, [64, 17]) == ("not forced", "answers of 17 to 64 tokens, 64 asked")
    assert output_state(False, 64, [64, 64])[0] == "not forced"
    assert output_state(True, 64, [64, None])[0] == output_state(True, 64, [])[0] == "unknown"


# notes


def spread(p50: float) -> Spread:
    return Spread(5, p50 * 0.9, p50, p50 * 1.1)


def row(**more: Any) -> LaneRow:
    base: dict[str, Any] = {
        "label": "C4 4,096 unique", "running_peak": 4, "waiting_peak": 0, "prompt_tokens": spread(4096),
        "ttft_any_s": spread(1.5), "decode_tok_s": spread(38.0), "aggregate_tok_s": 120.0,
    }  # fmt: skip
    return LaneRow("g", 4, 8, **{**base, **more})


SHAPE = Shape(4, 4096, "unique", 8, 256)


def test_a_queue_within_the_promised_concurrency_is_said() -> None:
    assert notes_of(SHAPE, recipe(concurrency=4), row(waiting_peak=3), 9, 2) == [
        "up to 3 requests waited in the engine although C4 is within the recipe's concurrency 4"
    ]
    assert notes_of(SHAPE, recipe(concurrency=4), row(waiting_peak=1), 9, 1) == [], "one reading may be an arrival"
    assert notes_of(SHAPE, recipe(concurrency=2), row(waiting_peak=2), 9, 9) == [
        "C4 is above the recipe's concurrency 2",
        "up to 2 requests waited in the engine",
    ]


def test_other_traffic_preemptions_missing_metrics_and_wrong_lengths_are_said() -> None:
    promised = recipe(concurrency=4)
    assert notes_of(SHAPE, promised, row(running_peak=7), 9, 0) == [
        "other requests ran meanwhile: 7 at once, 4 were ours"
    ]
    assert "no metrics" in notes_of(SHAPE, promised, row(running_peak=None), 0, 0)[0]
    assert "no reading fell into the lane" in notes_of(SHAPE, promised, row(running_peak=None), 9, 0)[0]
    assert notes_of(SHAPE, promised, row(preempted=2), 9, 0) == ["2 preemptions"]
    assert notes_of(SHAPE, promised, row(prompt_tokens=spread(4000)), 9, 0) == [
        "prompts of 4,000 tokens, nominal 4,096"
    ]
    assert notes_of(SHAPE, promised, row(prompt_tokens=spread(4050)), 9, 0) == []


# rules


@pytest.mark.parametrize(
    ("rule", "outcome", "says"),
    [
        ({"ttft_at_most_s": 1.5}, "ok", "TTFT 1.500 s, decode 38.0 tok/s, aggregate 120.0 tok/s"),
        ({"ttft_at_most_s": 1.2}, "failed", "median TTFT 1.500 s, at most 1.2 asked (+25.0 %)"),
        ({"decode_at_least_tok_s": 40}, "failed", "median decode 38.0 tok/s, at least 40 asked (-5.0 %)"),
        ({"aggregate_at_least_tok_s": 160}, "failed", "aggregate 120.0 tok/s, at least 160 asked (-25.0 %)"),
        ({}, "ok", "8/8"),
    ],
)
def test_a_rule_is_kept_or_broken_by_so_much(rule: dict[str, float], outcome: str, says: str) -> None:
    judged = judge_row(gate("capacity", **{k: float(v) for k, v in rule.items()}), row(), [])
    assert judged.outcome == outcome and says in judged.note and judged.note.startswith("C4 4,096 unique: ")
    assert judged.failure == (FailureClass.CHECK if outcome == "failed" else None)


def test_a_rule_without_its_figure_is_unverified_not_kept() -> None:
    judged = judge_row(gate(decode_at_least_tok_s=1.0), row(decode_tok_s=None), [])
    assert judged == Judged("unverified", None, "C4 4,096 unique: no figure for median decode")


def test_incomplete_requests_decide_before_every_figure_and_keep_their_class() -> None:
    stalled = failed(FailureClass.STREAM, "timeout: silent")
    judged = judge_row(gate(), row(failed=2), [Judged("errored", None, "reset"), stalled])
    assert (judged.outcome, judged.failure) == ("failed", FailureClass.STREAM)
    assert judged.note == "C4 4,096 unique: 2 of 8 requests did not complete, first: timeout: silent"
    assert judge_row(gate(), row(failed=1), [Judged("errored", None, "401")]).outcome == "errored"
    assert judge_row(gate(failed_at_most=2), row(failed=2), [stalled]).outcome == "ok"


def test_a_bad_instrument_makes_the_row_errored_and_not_failed() -> None:
    lag = Instrument(1, 9, 20, 0, 0, 1, 1, 20, invalid="it looked 9.0 ms late")
    judged = judge_row(gate(ttft_at_most_s=0.1), row(instrument=lag), [])
    assert judged == Judged("errored", None, "C4 4,096 unique: it looked 9.0 ms late; its times cannot be used")


@pytest.mark.parametrize(
    ("label", "cache", "note", "outcome"),
    [
        ("C1 4,096 unique", "cold", (), "ok"),
        ("C1 4,096 shared", "shared", (), "ok"),
        ("C1 4,096 shared", "cold", ("arranged as shared, found cold: 0 tokens were cached",), "failed"),
        ("C1 4,096 unique", "unknown", ("not cold: 512 tokens were cached",), "errored"),
        ("C1 4,096 shared", "unknown", ("the engine does not report cached tokens",), "unverified"),
    ],
)
def test_a_prefix_cache_is_proven_by_the_engines_counts(
    label: str, cache: str, note: tuple[str, ...], outcome: str
) -> None:
    judged = judge_row(gate("prefix-cache"), row(label=label, cache=cache, notes=note), [])
    assert judged.outcome == outcome and all(n in judged.note for n in note)


def test_the_worst_row_decides_and_a_gate_cut_short_proves_nothing() -> None:
    slow, odd, good = (
        failed(FailureClass.CHECK, "C1: slow"),
        Judged("errored", None, "C2: lag"),
        Judged("ok", None, "C4"),
    )
    assert verdict([good, odd, slow], 3, False) == slow
    assert verdict([good, odd], 3, False) == odd
    assert verdict([good, good], 3, False).note == "C4; C4"
    assert verdict([good] * 5, 5, False).note == "C4; C4; C4; and 2 more rows"
    late = Judged("errored", None, f"C1: late; {lane_rules.UNUSABLE}")
    broken = Judged("errored", None, "the load generator died")
    assert verdict([late, late, late, broken], 4, False).note.startswith("the load generator died; C1: late;")
    assert verdict([good], 3, True) == Judged("cancelled", None, "after 1 of 3 rows")
    assert verdict([slow], 3, True) == slow
    assert verdict([], 3, True).outcome == "cancelled"


@pytest.mark.parametrize(
    ("pool", "limit", "layers", "odd", "words"),
    [
        (None, None, None, None, []),
        (KvCapacity(393_216, "log"), 1, None, None, ["can run C1 of these at once (running limit 1,"]),
        (KvCapacity(393_216, "log"), 16, None, None, ["running limit 16, room in its KV pool for 1)"]),
        (KvCapacity(600_000, "log"), None, (33, 33), None, []),
        (KvCapacity(600_000, "log", inconsistent="x"), 2, (20, 33), None, ["partly_on_gpu: 20 of 33 layers"]),
        (None, None, None, -0.1, ["a KV use of -10.0 %"]),
    ],
)
def test_what_the_engine_said_of_itself_stands_with_the_row(
    pool: KvCapacity | None, limit: int | None, layers: tuple[int, int] | None, odd: float | None, words: list[str]
) -> None:
    """O-36: two windows of 262,144 in a pool of 393,216, or one running request: one at once."""
    notes = lane_rules.notes_of_start(Shape(2, 262_000, "unique", 2, 144), pool, limit, layers, odd)
    assert len(notes) == len(words) and all(w in n for w, n in zip(words, notes, strict=True)), notes


def test_a_shared_head_is_held_once() -> None:
    """O-35: 2 x (1,000 + 100) tokens of which 900 are common are 1,300."""
    pool = KvCapacity(1_300, "log", 100, reported_windows=90.0, inconsistent="odd")
    shape = Shape(2, 1_000, "shared", 2, 100)
    assert lane_rules.doubt(gate(prefix="shared"), shape, pool, None) == ""
    assert "1,302 tokens" in lane_rules.doubt(gate(prefix="shared"), replace(shape, completion=101), pool, None)
    assert "2,200 tokens" in lane_rules.doubt(gate(), replace(shape, prefix="unique"), pool, None)
    assert lane_rules.doubt(gate("ladder"), replace(shape, completion=500), pool, 1.07) == ""
