"""Comparisons: what refuses and what warns, each by itself; what is named, confounded, paired and judged."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from anvil_tui.core.bundle import Bundle, Identity
from anvil_tui.core.compare import NAMES, Comparison, compare, rows_compared
from anvil_tui.core.compare_text import lines
from anvil_tui.core.gates import GateResult, Observation, Verdict
from anvil_tui.core.lanes import Instrument, LaneRow, Spread
from anvil_tui.core.matching import VARIABLES, Arm, FieldRow
from anvil_tui.core.recipe import Recipe
from tests.unit.test_recipe import recipe

IDENTITY = Identity(
    recipe="a", recipe_digest="sha256:a", model="m", revision="r", quantization="q4", served_name="a",
    engine="vllm", engine_version="0.9", image="x@sha256:1", image_id="sha256:1",
    container="c1", config="sha256:1",
    context_tokens=4096, max_output_tokens=512, concurrency=2, kv_type="auto", speculation="none", thinking="none",
    gpus=("card",), gpu_uuids=("GPU-1",), driver="580", cuda="13", kernel="6", docker="28", harness="anvil-tui 1",
    suite="s", suite_digest="sha256:s",
)  # fmt: skip
GOOD = Instrument(0.1, 0.5, 1.0, 0, 0.0, 0.1, 10.0, 30.0)
FACTS = {"purpose": "row", "prompts": "sha256:p", "completion_tokens": 64, "request": {"temperature": 0.0}}
RATES = (50.0, 51.0, 49.0, 50.5, 49.5)


def spread(values: tuple[float, ...]) -> Spread:
    ordered = sorted(values)
    return Spread(len(values), ordered[0], ordered[len(values) // 2], ordered[-1])


def run(
    factor: float = 1.0, *, at: str = "2026-11-29T10:00:00+00:00", identity: Mapping[str, Any] = {},
    row: Mapping[str, Any] = {}, facts: Mapping[str, Any] = {}, gate: Mapping[str, Any] = {},
    request: Mapping[str, Any] = {}, raw: Mapping[str, Any] = {}, kind: Any = "measured",
    label: str = "C1 1,000 unique",
) -> Bundle:  # fmt: skip
    """One run of one lane of five requests; decode is `RATES` times `factor`."""
    rates = tuple(r * factor for r in RATES)
    seen = [Observation(0, True, raw={**FACTS, "row": label, **facts})]
    for n, rate in enumerate(rates, 1):
        given = {
            "prompt_tokens": 1000 + n, "completion_tokens": 64, "ttft_any_s": 0.5, "ttft_visible_s": 0.5,
            "e2e_s": 0.5 + 63 / rate, "decode_tok_s": rate, **request,
        }  # fmt: skip
        facts_of_it = {"purpose": "request", "row": label, "prompt": n, "finish_reason": "length", **raw}
        seen.append(Observation(n, True, raw=facts_of_it, **given))
    measured = LaneRow(
        "depth", 1, 5, label=label, nominal_tokens=1000, prompt_tokens=spread((1001, 1002, 1003, 1004, 1005)),
        completion_tokens=spread((64.0,)), output="forced", cache="cold", cached_tokens=spread((0.0,)),
        ttft_any_s=spread((0.5,)), e2e_s=spread((1.8,)), decode_tok_s=spread(rates), aggregate_tok_s=30.0 * factor,
        instrument=GOOD,
    )  # fmt: skip
    result = GateResult(
        "depth", "depth-sweep", Verdict.PASSED, "1/1", 1, 1, 9.0,
        observations=() if kind == "historical" else tuple(seen), rows=(replace(measured, **row),),
    )  # fmt: skip
    gates = [{"id": "depth", "kind": "depth-sweep", "routed": False, **gate}]
    suite = {} if kind == "historical" else {"id": "s", "gates": gates}
    return Bundle(f"{at}/{factor}", kind, at, replace(IDENTITY, **identity), True, (result,), suite=suite)


def at(minute: int) -> str:
    return f"2026-11-29T10:{minute:02}:00+00:00"


def arms(factor: float, runs: int, wobble: float = 0.004) -> tuple[Arm, Arm]:
    """Arms measured in turn, whose runs differ by `wobble`."""
    a = [run(1 + wobble * (n % 2), at=at(4 * n)) for n in range(runs)]
    b = [run(factor * (1 + wobble * (n % 2)), at=at(4 * n + 1 + n % 2)) for n in range(runs)]
    return Arm("A", tuple(a)), Arm("B", tuple(b))


def one(b: Bundle, **options: Any) -> Comparison:
    return compare(Arm("A", (run(at=at(0)),)), Arm("B", (b,)), **options)


def fields(found: Comparison, standing: str) -> dict[str, str]:
    rows = (*found.rows, *(r for lane in found.lanes for r in lane.rows))
    return {r.field: r.why for r in rows if r.standing == standing}


@pytest.mark.parametrize(
    ("field", "b"),
    [
        ("prompts", run(facts={"prompts": "sha256:other"})),
        ("prompts", run(facts={"prompts": None})),
        ("sampling", run(facts={"request": {"temperature": 0.7}})),
        ("sampling", run(facts={"request": {"temperature": 0.0, "seed": 1}})),
        ("max_tokens", run(facts={"completion_tokens": 65})),
        ("thinking", run(identity={"thinking": "low"})),
        ("thinking", run(gate={"thinking": "on"})),
        ("streams", run(row={"streams": 2}, label="C2 1,000 unique")),
        ("nominal tokens", run(row={"nominal_tokens": 2000}, label="C1 2,000 unique")),
        ("loop", run(row={"loop": "burst"})),
        ("through the gateway", run(gate={"routed": True})),
        ("harness", run(identity={"harness": "anvil-tui 2"})),
        ("harness", run(identity={"harness": None})),
        ("prompt tokens", run(request={"prompt_tokens": 1100})),
        ("cache", run(row={"cache": "warm"})),
        ("cached tokens", run(row={"cached_tokens": spread((900.0,))})),
        ("failures", run(row={"failed": 1})),
        ("instrument", run(row={"instrument": replace(GOOD, invalid="lag p99 7.1 ms")})),
        ("instrument", run(row={"instrument": None})),
        ("lanes", replace(run(), results=())),
    ],
)
def test_what_refuses_does_so_by_itself_and_no_difference_is_shown(field: str, b: Bundle) -> None:
    found = one(b)
    assert list(fields(found, "blocking")) == [field]
    assert found.state == "refused"
    assert [r.field for r in found.refusals] == [field]
    assert [m for lane in found.lanes for m in lane.metrics] == []


def test_the_fault_may_be_in_either_arm() -> None:
    bad = run(row={"failed": 2}, at=at(1))
    found = compare(Arm("A", (bad,)), Arm("B", (run(),)))
    assert [(r.field, r.a, r.b) for r in found.refusals] == [("failures", "2 of 5", "")]


_TWINS = {"ttft-visible", "decode-seeds"}
"""Of a model that does not think, measured by us, they say nothing that `ttft` and `decode` do not."""


@pytest.mark.parametrize(
    ("field", "b", "gone"),
    [
        ("output length", run(request={"completion_tokens": 60}), {"e2e", "aggregate"}),
        ("output", run(row={"output": "not forced"}), {"e2e", "aggregate"}),
        ("finish", run(raw={"finish_reason": "stop"}), set()),
        ("cache", run(row={"cache": "unknown"}), set()),
        ("failures", run(row={"failed": 1}, gate={"failed_at_most": 1}), set()),
        ("driver", run(identity={"driver": None}), set()),
    ],
)
def test_what_warns_still_compares_what_can_be_compared(field: str, b: Bundle, gone: set[str]) -> None:
    found = one(b)
    assert list(fields(found, "warning")) == [field]
    assert found.state == "matched"
    assert {m.metric for lane in found.lanes for m in lane.metrics} == {*NAMES} - _TWINS - gone


@pytest.mark.parametrize(("more", "state"), [(4, "matched"), (5, "refused")])
def test_of_a_short_prompt_a_few_tokens_are_its_salts_and_more_are_another_template(more: int, state: str) -> None:
    short = Arm("A", (run(request={"prompt_tokens": 96}),)), Arm("B", (run(request={"prompt_tokens": 96 + more}),))
    assert compare(*short).state == state


def test_a_salt_moves_single_counts_and_is_not_another_tokenizer() -> None:
    salted = run()
    result = salted.results[0]
    moved = tuple(
        replace(o, prompt_tokens=o.prompt_tokens + (o.n % 3)) if o.prompt_tokens else o
        for o in result.observations
    )
    assert one(replace(salted, results=(replace(result, observations=moved),))).state == "matched"


VARIED: Mapping[str, Mapping[str, Any]] = {
    "model": {"revision": "r2"},
    "image": {"image": "x@sha256:2", "image_id": "sha256:2"},
    "gpus": {"gpu_uuids": ("GPU-2",)},
    "driver": {"driver": "590"},
    "host": {"kernel": "7"},
    "envelope": {"context_tokens": 8192},
    "kv": {"kv_type": "fp8"},
    "speculation": {"speculation": "mtp 3"},
    "arguments": {"config": "sha256:2", "recipe_digest": "sha256:b"},
}


@pytest.mark.parametrize("group", VARIABLES)
def test_the_one_group_that_differs_is_the_variable_under_test(group: str) -> None:
    found = one(run(1.5, identity=VARIED[group]))
    assert (found.state, found.varies, found.confounded) == ("matched", group, ())
    assert set(fields(found, "named")) == {*VARIED[group]} - {"recipe_digest", "config"} or group == "arguments"
    assert one(run(1.5, identity=VARIED[group]), varies=group).state == "matched"


@pytest.mark.parametrize("group", VARIABLES)
def test_a_variable_that_does_not_differ_is_refused(group: str) -> None:
    found = one(run(1.5), varies=group)
    assert (found.state, [r.field for r in found.refusals]) == ("refused", [group])


def test_two_groups_are_confounded_and_said_to_be() -> None:
    found = one(run(1.5, identity={**VARIED["image"], **VARIED["model"]}), varies="image")
    assert (found.state, found.varies, found.confounded) == ("confounded", "image", ("revision",))
    assert found.primary[0][1].delta_pct == pytest.approx(50)


def test_several_differences_of_which_none_is_named_are_all_confounded() -> None:
    found = one(run(1.5, identity={**VARIED["kv"], **VARIED["model"]}))
    assert (found.state, found.varies, found.confounded) == ("confounded", "model + kv", ("revision", "kv_type"))
    assert fields(found, "named") == {}
    head = "confounded: B against A, varies model + kv; revision, kv_type differ, "
    assert lines(found)[0] == head + "so the effect cannot be laid to one thing"


def test_another_card_of_the_same_kind_confounds() -> None:
    """An apparent win once followed the physical card and not the setting."""
    found = one(run(1.5, identity={**VARIED["speculation"], "gpu_uuids": ("GPU-2",)}), varies="speculation")
    assert found.confounded == ("gpu_uuids",)


def test_nothing_differs_in_an_a_a_comparison() -> None:
    found = one(run())
    assert (found.varies, found.state, found.confounded) == ("", "matched", ())


def test_recipes_tell_which_arguments_differ() -> None:
    mine = recipe(launch={"argv": ("--port", "{port}", "--threads", "2"), "env": {"X": "1"}})
    theirs = recipe(launch={"argv": ("--port", "{port}", "--threads", "1", "--mlock"), "env": {}})
    known: dict[str, Recipe] = {"a": mine, "b": theirs}
    found = one(run(identity=VARIED["arguments"]), recipes=known)
    row = next(r for r in found.rows if r.field == "arguments")
    assert (row.a, row.b, row.standing) == (
        "argv --threads 2; env X=1", "argv --threads 1 --mlock; env (nothing more)", "named",
    )  # fmt: skip
    same = one(run(identity=VARIED["arguments"]), recipes={"a": mine, "b": mine})
    assert same.varies == "", "served name and port alone are no arguments that differ"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gpus": {"select": ("GPU-1", "GPU-2"), "tensor_parallel": 2}},
         ("tensor_parallel 1", "tensor_parallel 2")),
        ({"envelope": {"context_tokens": 2048, "max_output_tokens": 256, "concurrency": 2, "images": 4}},
         ("images 0", "images 4")),
    ],
    ids=["ranks", "images"],
)  # fmt: skip
def test_typed_fields_that_no_identity_holds_are_arguments_that_differ(
    change: dict[str, Any], said: tuple[str, str]
) -> None:
    """Two ranks against two copies on the same two cards: argv is the same text, `{tensor_parallel}` is not."""
    same = {
        "gpus": {"select": ("GPU-1", "GPU-2"), "tensor_parallel": 1},
        "envelope": {"context_tokens": 2048, "max_output_tokens": 256, "concurrency": 2},
    }
    known: dict[str, Recipe] = {"a": recipe(**same), "b": recipe(**{**same, **change})}
    found = one(run(identity=VARIED["arguments"]), recipes=known)
    row = next(r for r in found.rows if r.field == "arguments")
    assert ((row.a, row.b), row.standing, found.varies) == (said, "named", "arguments")


def test_runs_of_one_arm_must_be_runs_of_one_thing() -> None:
    mixed = Arm("B", (run(), run(identity={"container": "c2"}), run(identity={"image_id": "sha256:2"})))
    found = compare(Arm("A", (run(),)), mixed)
    assert [(r.field, r.why) for r in found.refusals] == [("image_id", "runs of arm B are not of one thing")]


def test_what_only_some_runs_of_an_arm_know_is_a_warning() -> None:
    some = Arm("B", (run(at=at(1)), run(identity={"docker": None}, at=at(2))))
    assert fields(compare(Arm("A", (run(at=at(0)),)), some), "warning") == {
        "docker": "not known of every run of arm B",
    }  # fmt: skip


def test_a_lane_that_one_arm_lacks_is_named_and_the_rest_is_compared() -> None:
    both = run()
    more = run(label="C4 1,000 unique", row={"streams": 4})
    result = replace(both.results[0], rows=(*both.results[0].rows, *more.results[0].rows))
    found = compare(Arm("A", (replace(both, results=(result,)),)), Arm("B", (run(),)))
    assert found.alone == ("A: depth C4 1,000 unique",)
    assert len(found.primary) == 1


@pytest.mark.parametrize(
    ("factor", "runs", "verdict"),
    [
        (1.10, 3, "better"),
        (0.90, 3, "worse"),
        (1.00, 3, "equivalent"),
        (1.03, 3, "undecided"),
        (1.00, 1, "undecided"),
        (1.00, 2, "undecided"),
        (2.00, 1, "better"),
    ],
)
def test_the_verdict_on_decode(factor: float, runs: int, verdict: str) -> None:
    found = compare(*arms(factor, runs))
    ((lane, row),) = found.primary
    assert (row.verdict, row.runs_a, row.runs_b, row.pairs) == (verdict, runs, runs, 5 * runs)
    assert row.delta_pct == pytest.approx((factor - 1) * 100, abs=0.5)
    assert row.low_pct is not None and row.high_pct is not None
    assert row.low_pct <= row.delta_pct <= row.high_pct
    assert (row.band_pct, lane.label) == (3.0, "C1 1,000 unique")
    assert row.floor_pct == (None if runs == 1 else pytest.approx(0.4))
    assert ("between-run variance not measured" in row.reason) == (runs == 1)


def test_lower_is_better_for_times() -> None:
    slow = run(request={"ttft_any_s": 0.6, "ttft_visible_s": 0.6})
    found = one(slow, metric="ttft")
    assert [(m.metric, m.verdict, round(m.delta_pct)) for _, m in found.primary] == [("ttft", "worse", 20)]


def test_a_wider_band_must_be_named_beforehand() -> None:
    a, b = arms(1.04, 3, wobble=0.0)
    assert compare(a, b).primary[0][1].verdict == "better"
    assert compare(a, b, band_pct=5).primary[0][1].verdict == "equivalent"


def test_exploratory_metrics_must_hold_after_holms_correction() -> None:
    """Five pairs of one run reach p = 1/32; with two such claims Holm asks twice that, which is above 0.05."""
    found = one(run(1.2, request={"ttft_any_s": 0.4, "ttft_visible_s": 0.4}), metric="e2e")
    told = {m.metric: (m.verdict, m.reason) for m in found.lanes[0].metrics}
    assert told["e2e"][0] == "better", "the primary metric stands for itself"
    assert told["decode"] == ("undecided", "one of 3 exploratory metrics: p 0.09")


def test_the_order_of_runs_and_days_is_told() -> None:
    a = Arm("A", (run(at=at(0)), run(at=at(1))))
    later = Arm("B", (run(at=at(2)), run(at=at(3))))
    assert compare(a, later).warnings == (
        "measured in the order AABB, not in turn: what drifts is in the difference",
    )
    turns = Arm("A", (run(at=at(0)), run(at=at(3)))), Arm("B", (run(at=at(1)), run(at=at(2))))
    assert compare(*turns).warnings == ()
    (days,) = compare(a, Arm("B", (run(at="2026-12-01"),))).warnings
    assert "2026-11-29 to 2026-12-01" in days


def historical(decode: float, **identity: Any) -> Bundle:
    unsaid = {f: None for f in ("harness", "thinking", "config", "driver", "cuda", "docker", "kernel")}
    row = {"decode_seeds_tok_s": Spread(5, None, decode, None), "cache": "unknown", "output": "unknown"}
    gone = (
        "decode_tok_s", "aggregate_tok_s", "ttft_any_s", "e2e_s", "cached_tokens", "prompt_tokens",
        "completion_tokens", "instrument",
    )  # fmt: skip
    return run(kind="historical", identity={**unsaid, **identity}, row={**row, **dict.fromkeys(gone)})


def test_a_historical_record_gives_an_effect_and_no_verdict() -> None:
    """43.63 against two runs with medians 64.51 and 70.50: pooled as ten they were called +60.4 %."""
    control = Arm("no spec", (historical(43.63),))
    spec = Arm("K5", (historical(64.51, speculation="k5"), historical(70.50, speculation="k5")))
    found = compare(control, spec)
    ((_, row),) = found.primary
    assert (found.state, found.varies) == ("matched", "speculation")
    assert (row.metric, row.verdict, row.low_pct, row.pairs) == ("decode-seeds", "undecided", None, 0)
    assert "without an interval" in row.reason
    assert row.delta_pct == pytest.approx(54.6, abs=0.1), "sqrt(64.51 * 70.50) / 43.63"
    assert row.floor_pct == pytest.approx(9.3, abs=0.05)
    assert {"harness", "instrument", "prompts"} <= set(fields(found, "warning"))


def test_a_record_measured_by_another_harness_is_not_compared_with_ours() -> None:
    found = compare(Arm("A", (historical(43.63, harness="anvil-serving capacity-v4"),)), Arm("B", (run(),)))
    assert "harness" in [r.field for r in found.refusals]


def test_a_refused_comparison_in_words_has_a_reason_and_no_figure() -> None:
    said = lines(one(run(facts={"prompts": "sha256:" + "b" * 64})))
    assert [line for line in said if "REFUSED" in line] == [
        "  REFUSED    prompts: A sha256:p, B sha256:bbbbbbbbbbbb (must be the same)"
    ]
    assert not [line for line in said if "%" in line]


def test_a_verdict_in_words_has_interval_n_band_and_noise_floor() -> None:
    a, b = arms(1.10, 3)
    said = next(line for line in lines(compare(a, b)) if " decode: " in line)
    assert re.fullmatch(
        r"  better     decode: 50 to 55 tok/s, \+10\.0 % \[\+9\.\d, \+10\.\d\], n 15, runs 3\+3, band 3 %, "
        r"A/A within 0\.4 %: the interval lies outside the band",
        said,
    )


def test_what_nobody_knows_of_either_arm_is_one_line() -> None:
    said = lines(compare(Arm("A", (historical(43.63),)), Arm("B", (historical(50.0),))))
    assert sum("not known to be the same" in line for line in said) == 2, "one of the serves, one of the lane"


@pytest.mark.parametrize("metric", ["decode-seeds", "ttft-visible"])
def test_the_metric_that_was_asked_for_is_judged_and_not_its_twin(metric: str) -> None:
    found = one(run(1.5, raw={"decode_seeds_tok_s": 50.0}), metric=metric)
    if metric == "decode-seeds":
        both = [run(raw={"decode_seeds_tok_s": 50.0}, at=at(n)) for n in range(2)]
        found = compare(Arm("A", (both[0],)), Arm("B", (both[1],)), metric=metric)
    assert [m.metric for _, m in found.primary] == [metric]


def test_a_record_without_requests_is_compared_with_a_run_by_their_medians_and_gets_no_verdict() -> None:
    """One harness, one arm kept no single requests: 50 against 60 tok/s by their rows, and no interval."""
    record = historical(50.0, harness=IDENTITY.harness)
    mine = run(1.2, row={"decode_seeds_tok_s": spread((60.0,))})
    ((_, row),) = compare(Arm("A", (record,)), Arm("B", (mine,))).primary
    assert (row.metric, row.a, row.b, row.verdict, row.low_pct, row.pairs) == (
        "decode-seeds", 50.0, 60.0, "undecided", None, 0,
    )  # fmt: skip
    assert row.delta_pct == pytest.approx(20)


def test_cold_and_warm_runs_are_no_repeats_of_each_other() -> None:
    mixed = [run(at=at(n), row={"cache": state}) for n, state in enumerate(("cold", "warm"))]
    found = compare(Arm("A", tuple(mixed)), Arm("B", tuple(mixed)))
    assert [(r.field, r.why) for r in found.refusals][:1] == [("cache", "runs of arm A differ")]
    shares = [run(at=at(n), row={"cached_tokens": spread((c,))}) for n, c in enumerate((0.0, 900.0))]
    found = compare(Arm("A", (shares[0],)), Arm("B", tuple(shares)))
    assert ("cached tokens", "runs of arm B differ") in [(r.field, r.why) for r in found.refusals]


def test_a_known_cache_state_that_differs_refuses_even_beside_an_unknown_one() -> None:
    a = Arm("A", (run(at=at(0)), run(at=at(3), row={"cache": "unknown"})))
    b = Arm("B", tuple(run(at=at(n), row={"cache": "warm"}) for n in (1, 2)))
    assert "cache" in [r.field for r in compare(a, b).refusals]


def test_a_lane_that_only_some_runs_of_an_arm_have_is_named() -> None:
    a, b = arms(1.0, 2)
    more = replace(run(at=at(9)).results[0], gate="extra", rows=(replace(run().results[0].rows[0], lane="extra"),))
    a = replace(a, runs=(replace(a.runs[0], results=(*a.runs[0].results, more)), a.runs[1]))
    assert compare(a, b).alone == ("A: extra C1 1,000 unique (in 1 of 2 runs)",)


def test_a_named_variable_that_one_arm_does_not_tell_is_not_called_the_same() -> None:
    (row,) = one(run(identity={"driver": None, "cuda": None}), varies="driver").refusals
    assert (row.a, row.b, "same" in row.why, "not known to differ" in row.why) == ("580", "not known", False, True)


def test_serves_of_which_something_is_not_known_are_not_called_an_a_a() -> None:
    assert "varies nothing (A/A)" in lines(one(run()))[0]
    assert "varies nothing that is known" in lines(one(run(identity={"revision": None})))[0]


def test_a_lane_that_is_refused_is_not_drawn_beside_the_one_that_is_compared() -> None:
    """Gate `extra` was measured by a client that was late in arm B: its times must not be used."""

    def two(bundle: Bundle, **row: Any) -> Bundle:
        (result,) = bundle.results
        more = replace(result, gate="extra", rows=(replace(result.rows[0], lane="extra", **row),))
        return replace(bundle, results=(result, more))

    a, b = Arm("A", (two(run()),)), Arm("B", (two(run(1.1), instrument=replace(GOOD, invalid="lag")),))
    found = compare(a, b)
    assert [bool(lane.refusals) for lane in found.lanes] == [False, True]
    drawn = rows_compared([found], [a, b])
    assert {name: [r.lane for r in rows] for name, rows in drawn.items()} == {"A": ["depth"], "B": ["depth"]}


def test_a_field_of_one_arm_names_that_arm_alone() -> None:
    assert str(FieldRow("instrument", "", "invalid", "blocking", "late")) == "instrument: B invalid (late)"
    assert str(FieldRow("model", "x", "y", "blocking", "differs")) == "model: A x, B y (differs)"
