"""Feasibility by intervals. Every expected figure is worked out by hand beside its assertion (O-14, the seeds)."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from pydantic import ValidationError

from anvil_tui.core.feasibility import ORDER, Screen, by_waiver, compared, screen
from anvil_tui.core.heaps import Behaviour, Card, Need
from anvil_tui.core.quantity import Amount, Feasibility, Quantity, Standing, exactly, product, total, unknown

MIB = 1_048_576
GIB = 1_073_741_824


def mib(name: str, low: float, high: float | None = None, status: Standing = "measured") -> Amount:
    return Amount(name, low * MIB, (low if high is None else high) * MIB, status, "test")


def card(size: float, name: str = "GPU 0", held: Amount | None = None) -> Card:
    return Card(name, mib("card", size), (held,) if held else ())


def need(*resident: Amount, tokens: int = 1000, c: int = 1, **more: Any) -> Need:
    return Need(exactly("tokens", tokens), c, resident, **more)


PROVEN = Behaviour("suite", "pass", "passed")


class TestArithmetic:
    def test_o14_each_card_is_a_heap_and_the_smallest_decides(self) -> None:
        """O-14: 13,312 MiB a rank on cards with 23,900 and 7,900 MiB free: GPU 1 is short by 5,412 MiB."""
        got = screen(need(mib("rank", 13_312)), [card(23_900), card(7_900, "GPU 1")], 0)
        assert got.cls == "proven-infeasible"
        assert [(h.card, h.physical) for h in got.heaps] == [("GPU 1", "fail"), ("GPU 0", "pass")]
        assert got.heaps[0].margin == (-5_412 * MIB, -5_412 * MIB)
        assert "GPU 1 has 7,900 MiB, short by at least 5,412 MiB" in got.why

    def test_every_term_of_the_need(self) -> None:
        """100 + 3 x 7 + 2,000 tokens x 1.5 x 0.01 MiB = 151 MiB; 200 less 9 held leave 40, less 10 reserve 30."""
        asked = need(
            mib("weights", 100), tokens=2000, c=3, per_sequence=(mib("state", 7),),
            per_token=(mib("kv", 0.01),), multiplier=exactly("KV multiplier", 1.5),
        )  # fmt: skip
        got = screen(asked, [card(200, held=mib("driver", 9))], 10 * MIB)
        heap = got.heaps[0]
        assert heap.demand.low == pytest.approx(151 * MIB)
        assert heap.margin == pytest.approx((40 * MIB, 40 * MIB))
        assert heap.policy_margin == pytest.approx((30 * MIB, 30 * MIB))
        # (200 - 9 - 10 - 100 - 21) / 0.015 = 4,000 tokens
        assert heap.max_tokens == pytest.approx((4000, 4000), abs=1)

    def test_bounds_are_kept_apart(self) -> None:
        """Need 80 to 120 on 150 less 10: 20 to 60 left; beside a reserve of 30, -10 to 30: unresolved."""
        got = screen(need(mib("a", 50, 70), mib("b", 30, 50)), [card(150, held=mib("driver", 10))], 30 * MIB)
        assert got.heaps[0].margin == (20 * MIB, 60 * MIB)
        assert got.heaps[0].policy_margin == (-10 * MIB, 30 * MIB)
        assert got.cls == "unresolved" and "-10 MiB to 30 MiB" in got.why

    def test_most_tokens_with_bounds(self) -> None:
        """Left for tokens: 100 - 60 = 40 at least, 100 - 50 = 50 at most; a token costs 0.1 to 0.2: 200 to 500."""
        asked = need(mib("a", 50, 60), tokens=1, per_token=(mib("kv", 0.1, 0.2),))
        assert screen(asked, [card(100)], 0).heaps[0].max_tokens == pytest.approx((200, 500), abs=1)

    def test_unknown_is_never_zero(self) -> None:
        sum_ = total("x", (mib("a", 5), unknown("b", "nobody looked")))
        assert (sum_.low, sum_.high, sum_.status) == (None, None, "unknown")
        assert product("y", exactly("n", 3), unknown("b", "?")).low is None
        got = screen(need(mib("weights", 50), unknown("runtime", "nobody looked")), [card(100)], 0)
        assert got.cls == "unresolved" and [a.name for a in got.load_bearing_unknowns] == ["runtime"]
        assert got.heaps[0].demand.low is None and got.heaps[0].margin == (None, None)

    def test_the_known_parts_alone_may_prove_that_it_cannot_fit(self) -> None:
        """What is unknown can only add to 120 MiB, which 100 MiB do not hold."""
        got = screen(need(mib("weights", 120), unknown("runtime", "nobody looked")), [card(100)], 0)
        assert got.cls == "proven-infeasible" and "short by at least 20 MiB" in got.why

    def test_an_unknown_card_proves_nothing(self) -> None:
        blind = Card("GPU 0", unknown("card", "n/a"))
        assert screen(need(mib("weights", 120)), [blind], 0).cls == "unresolved"
        assert screen(need(mib("weights", 120)), [], 0).cls == "unresolved"

    def test_what_a_driver_holds_may_be_unknown(self) -> None:
        """Without it a pass cannot be shown; a need beyond the whole card is proven all the same."""
        held = unknown("driver", "old driver")
        assert screen(need(mib("a", 90)), [card(100, held=held)], 0).cls == "unresolved"
        assert screen(need(mib("a", 101)), [card(100, held=held)], 0).cls == "proven-infeasible"


class TestClasses:
    """The precedence, one step at a time: each case adds what ranks above the last."""

    CASES = (
        ("math-qualified", need(mib("a", 50), behaviours=(PROVEN,))),
        ("benchmark-survivor", need(mib("a", 50))),
        ("benchmark-survivor", need(mib("a", 50), behaviours=(PROVEN, Behaviour("q", "unproven", "")))),
        ("unresolved", need(mib("a", 50, 200, "estimated"))),
        ("unresolved", need(mib("a", 70, 90), behaviours=(PROVEN,))),
        ("requirements-disqualified", need(mib("a", 70, 90), behaviours=(Behaviour("q", "miss", "q 0.5"),))),
        ("policy-infeasible", need(mib("a", 90), behaviours=(Behaviour("q", "miss", "q 0.5"),))),
        ("policy-infeasible", need(mib("a", 85, 99, "estimated"))),
        ("modeled-infeasible", need(mib("a", 101, 110, "estimated"))),
        ("modeled-infeasible", need(mib("a", 60), mib("b", 41, 41, "assumed"))),
        ("proven-infeasible", need(mib("a", 101), mib("b", 1, 2, "estimated"))),
        ("empirically-disqualified", need(mib("a", 101), hard_failures=("tool calls are corrupted",))),
    )

    @pytest.mark.parametrize(("wanted", "asked"), CASES, ids=[f"{n}-{w}" for n, (w, _) in enumerate(CASES)])
    def test_the_first_that_applies(self, wanted: str, asked: Need) -> None:
        assert screen(asked, [card(100)], 20 * MIB).cls == wanted

    def test_order_is_the_one_of_the_cases(self) -> None:
        seen = list(dict.fromkeys(w for w, _ in reversed(self.CASES)))
        assert tuple(seen) == ORDER

    def test_context(self) -> None:
        limit = exactly("limit", 4096, "confirmed")
        asked = need(mib("a", 50), tokens=5000, context_limit=limit)
        got = screen(asked, [card(100)], 0)
        assert got.cls == "proven-infeasible" and "5,000 tokens are required" in got.why and "4,096" in got.why
        guessed = replace(asked, context_limit=Amount("limit", 4000, 4096, "estimated", "x"))
        assert screen(guessed, [card(100)], 0).cls == "modeled-infeasible"
        blind = replace(asked, context_limit=unknown("limit", "?"))
        assert screen(blind, [card(100)], 0).cls == "unresolved"

    def test_stable_context(self) -> None:
        stable = exactly("stable", 8192, "measured")
        asked = need(mib("a", 50), tokens=32_768, stable_context=stable)
        assert screen(asked, [card(100)], 0).cls == "empirically-disqualified"
        guess = replace(asked, stable_context=replace(stable, status="assumed"))
        assert screen(guess, [card(100)], 0).cls == "benchmark-survivor"

    def test_only_measured_and_confirmed_results_count(self) -> None:
        for status, outcome in (("measured", "pass"), ("confirmed", "pass"), ("assumed", "unproven")):
            got = compared("rate", exactly("rate", 1.0, status), 1.0, None)  # type: ignore[arg-type]
            assert (got.outcome, got.projected) == (outcome, "" if outcome == "pass" else "pass")
        assert compared("rate", exactly("rate", 0.95, "measured"), 1.0, None).outcome == "miss"
        assert compared("loss", Amount("loss", 0.01, 0.05, "measured"), None, 0.03).outcome == "unproven"
        assert compared("loss", unknown("loss", "not run"), None, 0.03).outcome == "unproven"


class TestSeeds:
    """Two cards of 97,887 MiB; the standing reserve is 3,072 MiB."""

    CARDS = (card(97_887), card(97_887, "GPU 1"))
    RESERVE = 3072 * MIB

    def left(self, *points: int) -> Screen:
        asked = need(
            tokens=393_216, left=mib("left", min(points)), loaded_tokens=exactly("pool", 393_216),
            per_token=(Amount("kv", 9827, 9886, "estimated", "x"),), behaviours=(PROVEN,),
        )  # fmt: skip
        return screen(asked, self.CARDS, self.RESERVE)

    @pytest.mark.parametrize(
        ("free", "cls", "margin"),
        [
            pytest.param((49,), "policy-infeasible", -3023, id="499K-C4-idle"),
            pytest.param((2347,), "policy-infeasible", -725, id="499K-C1-idle"),
            pytest.param((3351, 2101), "policy-infeasible", -971, id="393K-C1-after-work"),
            pytest.param((4733, 3487), "math-qualified", 415, id="245K-C1-after-work"),
        ],
    )
    def test_what_was_left_decides(self, free: tuple[int, ...], cls: str, margin: int) -> None:
        got = self.left(*free)
        assert got.cls == cls and got.heaps[0].policy_margin == (margin * MIB, margin * MIB)
        assert f"{min(free):,} MiB measured left free" in got.why or cls == "math-qualified"

    def test_idle_is_not_after_work(self) -> None:
        """393K keeps 3,351 MiB idle, 279 more than the reserve; lazy allocation takes 1,250 of them."""
        assert self.left(3351).cls == "math-qualified" and self.left(3351, 2101).cls == "policy-infeasible"

    def test_kv_bytes_of_the_1m(self) -> None:
        """16.61 GiB a card hold 2,917,371 tokens: 6,113.3 bytes a token and rank; one window needs 6,113 MiB."""
        each = 16.61 * GIB / 2_917_371
        assert each == pytest.approx(6113.3, abs=0.1)
        kv = exactly("kv", each, "measured")
        weights = mib("weights", 137_095_744_155 / 2 / MIB)
        asked = need(weights, tokens=1_048_576, c=16, per_token=(kv,))
        heap = screen(asked, self.CARDS, self.RESERVE).heaps[0]
        assert heap.demand.low == pytest.approx((65_372.3 + 6113.3) * MIB, rel=1e-5)
        # 97,887 - 3,072 - 65,372.3 = 29,442.7 MiB for tokens of 6,113.3 bytes: 5,050,114 of them
        assert heap.max_tokens[0] == pytest.approx(5_050_100, abs=500)

    def test_sequences_of_the_499k(self) -> None:
        """C1 left 2,347 MiB, C4 49: three more sequences cost 2,298, one 766. C4 is 3,023 short of the reserve."""
        kv = Amount("kv", 9827, 9886, "estimated", "differences of the records")
        state = mib("state", 766)
        # What one sequence and 499,712 tokens leave beside everything else: 97,887 - 2,347 = 95,540 in all.
        rest = mib("rest", 95_540 - 766 - 499_712 * 9886 / MIB)
        for c, left in ((1, 2347), (4, 49)):
            asked = need(rest, tokens=499_712, c=c, per_sequence=(state,), per_token=(kv,))
            got = screen(asked, self.CARDS, self.RESERVE)
            assert got.heaps[0].margin[0] == pytest.approx(left * MIB, rel=1e-6)
            assert got.cls == "policy-infeasible"

    def test_tokens_that_the_margin_buys(self) -> None:
        """415 MiB over the reserve at 9,886 to 9,827 bytes a token: 44,018 to 44,282 tokens above the pool."""
        asked = need(
            tokens=245_760, left=mib("left", 3487), loaded_tokens=exactly("pool", 245_760),
            per_token=(Amount("kv", 9827, 9886, "estimated", "x"),),
        )  # fmt: skip
        assert screen(asked, self.CARDS, self.RESERVE).heaps[0].max_tokens == (289_777, 290_041)

    def test_a_waiver_moves_policy_infeasible_and_nothing_else(self) -> None:
        standing = self.left(3351, 2101)
        asked = need(left=mib("left", 2101), behaviours=(PROVEN,))
        waived = by_waiver(standing, screen(asked, self.CARDS, 0), "reserve 0 MiB")
        assert waived.cls == "verified-by-waiver"
        assert waived.heaps == standing.heaps and waived.reserve_bytes == standing.reserve_bytes
        assert "policy-infeasible becomes verified" in waived.why
        unproven = by_waiver(standing, screen(replace(asked, behaviours=()), self.CARDS, 0), "reserve 0 MiB")
        assert unproven.cls == "benchmark-survivor"
        still = by_waiver(standing, screen(asked, self.CARDS, 2500 * MIB), "reserve 2,500 MiB")
        assert still == standing

    def test_a_waiver_cannot_make_room(self) -> None:
        short = screen(need(mib("a", 98_000)), self.CARDS, self.RESERVE)
        assert by_waiver(short, screen(need(mib("a", 1)), self.CARDS, 0), "x").cls == "proven-infeasible"


def quantity(**fields: Any) -> Quantity:
    return Quantity.model_validate({"status": "measured", "source": "s", **fields})


class TestRecords:
    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"value": -1.0}, "greater than or equal to 0"),
            ({}, "give value, or min and max"),
            ({"value": 1, "min": 1, "max": 2}, "give value, or min and max"),
            ({"min": 1}, "give value, or min and max"),
            ({"min": 3, "max": 2}, "min 3 is larger than max 2"),
            ({"value": 3, "status": "estimated"}, "min and max that differ"),
            ({"min": 3, "max": 3, "status": "estimated"}, "min and max that differ"),
            ({"value": 3, "source": ""}, "status measured needs a source"),
            ({"status": "unknown", "source": ""}, "status unknown needs notes"),
            ({"status": "unknown", "value": 0, "notes": "n"}, "what is unknown is not a number"),
        ],
    )
    def test_refused(self, fields: dict[str, Any], said: str) -> None:
        with pytest.raises(ValidationError, match=said):
            quantity(**fields)

    def test_units_become_bytes(self) -> None:
        got = quantity(value=16.61, unit="GiB", observed_at=date(2026, 8, 30)).amount("kv")
        assert got.low == pytest.approx(17_834_851_697, abs=1) and got.at == "2026-08-30"
        assert quantity(min=1, max=2, unit="GB").amount("x").high == 2_000_000_000
        gone = quantity(status="unknown", source="", notes="nobody looked").amount("x")
        assert (gone.low, gone.high, gone.source) == (None, None, "nobody looked")

    @pytest.mark.parametrize(
        ("table", "said"),
        [
            ({"resident": {"runtime": quantity(value=1, unit="tokens")}}, "resident.runtime.unit is tokens"),
            ({"tokens": quantity(value=1)}, "tokens.unit is MiB: it must be tokens"),
            ({"kv_multiplier": quantity(value=1)}, "kv_multiplier.unit is MiB"),
            ({"free": {"idle": quantity(value=1)}}, "hardware is missing"),
        ],
    )
    def test_units_that_do_not_fit(self, table: dict[str, Any], said: str) -> None:
        with pytest.raises(ValidationError, match=said):
            Feasibility.model_validate(table)
