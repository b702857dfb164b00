"""What loads are measured to take, and what plans make of it, on a box in memory with one card of 97,887 MiB."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.core.box import MIB, Engine, GpuSnapshot, KvCapacity
from anvil_tui.core.feasibility import FeasibilityClass
from anvil_tui.core.heaps import Behaviour
from anvil_tui.core.loads import (
    CardLoad,
    MeasuredLoad,
    left,
    newest_pool,
    per_token,
    replicas_of,
    rest,
    shape_of,
    whole,
)
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.screening import Ground, feasible, lines, warnings_for
from anvil_tui.core.waivers import Waiver, in_force, waivers_for
from tests.support import worlds
from tests.support.membox import GPU, World, recipe, workspace

GIB = 1024 * MIB
TOTAL = 97_887
ON_GPU = {"gpus": {"select": (GPU,), "need_free_mib": 60_000}}


def on_gpu(id_: str = "a", **more: Any) -> Recipe:
    return recipe(id_, **{**ON_GPU, **more})


class Box(World):
    """Its engines tell a pool."""

    pool: KvCapacity | None = None

    def read(self, kind: object = None, port: int = 0) -> Any:
        got = super().read(kind, port)
        return dataclasses.replace(got, capacity=self.pool) if isinstance(got, Engine) else got


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path, on_gpu(), on_gpu("b", exclusive=True))


def test_a_load_is_measured_and_read_back(box: Box) -> None:
    """The engine takes 60,000 of 97,887 MiB; 16.61 GiB of it hold 2,917,371 tokens."""
    rank = int(16.61 * GIB)
    box.pool = KvCapacity(2_917_371, "test", per_rank_bytes=rank)
    assert box.do("load", recipe="a") == "done"
    (load,) = box.box.store.loads()
    assert (load.operation, load.recipe, load.pool_tokens, load.rank_bytes) == (box.last, "a", 2_917_371, rank)
    assert load.cards == (CardLoad(GPU, TOTAL * MIB, TOTAL * MIB, (TOTAL - 60_000) * MIB),)
    done = [r for r in box.box.operations.journal(box.last).records() if r.kind == "done" and r.step == "ready"]
    assert done[-1].data["load"]["cards"][0]["before"] == TOTAL * MIB
    each = per_token(on_gpu(), [load])
    assert each is not None and each.low == each.high == pytest.approx(6113.3, abs=0.1)
    assert (each.status, each.source) == ("measured", box.last)
    took = whole(on_gpu(), [load])
    assert took is not None and (took.low, took.high) == ((60_000 - 256) * MIB, (60_000 + 256) * MIB)


def test_a_way_back_is_not_measured(box: Box) -> None:
    box.recipes = [on_gpu(exclusive=True), on_gpu("b", exclusive=True)]
    assert box.do("promote", recipe="a") == "done"
    box.failing.add("b")
    assert box.do("promote", recipe="b") == "undone"
    assert [x.recipe for x in box.box.store.loads()] == ["a", "b"]


def test_what_is_known_of_a_recipe_s_memory_does_not_make_it_another_recipe() -> None:
    figure = {"value": 9.0, "unit": "GiB", "status": "measured", "source": "engine log"}
    assert on_gpu(feasibility={"resident": {"runtime": figure}}).digest() == on_gpu().digest()


def test_figures_that_contradict_teach_nothing(box: Box) -> None:
    """O-35: the pool of a hybrid model."""
    box.pool = KvCapacity(
        290_000, "test", per_rank_bytes=GIB, inconsistent="290000 tokens are 8.85 windows, not 33"
    )
    assert box.do("load", recipe="a") == "done"
    assert per_token(on_gpu(), box.box.store.loads()) is None


def load(made: Recipe, taken: int = 60_000, free: int | None = None, **more: Any) -> MeasuredLoad:
    after = TOTAL - taken if free is None else free
    card = CardLoad(GPU, TOTAL * MIB, (after + taken) * MIB, after * MIB)
    fields: dict[str, Any] = {
        "operation": "op-1", "at": "2026-09-02T10:00:00+00:00", "recipe": made.id, "digest": made.digest(),
        "shape": shape_of(made), "context_tokens": 2048, "concurrency": made.envelope.concurrency,
        "cards": (card,), **more,
    }  # fmt: skip
    return MeasuredLoad(**fields)


def ground(box: World, *loads: MeasuredLoad, reserve: int = 0, **more: Any) -> Ground:
    snapshot = box.read().value
    snapshot = dataclasses.replace(
        snapshot, gpus=tuple(dataclasses.replace(g, reserved_bytes=600 * MIB) for g in snapshot.gpus)
    )
    return Ground(workspace(reserve_mib=reserve), snapshot, date(2026, 9, 3), loads, **more)


def test_two_loads_give_an_interval(box: Box) -> None:
    made = on_gpu()
    took = whole(made, [load(made, 59_000), load(made, 61_000, operation="op-2")])
    assert took is not None and (took.low, took.high) == (58_744 * MIB, 61_256 * MIB)
    assert took.source == "op-1, op-2"


def test_data_parallel_copies_share_the_pool() -> None:
    """Two copies of 100,000 tokens each: 1 GiB a rank for half of the 200,000 tokens told: 10,737.4 bytes."""
    made = on_gpu()
    got = per_token(made, [load(made, pool_tokens=200_000, rank_bytes=GIB, replicas=2)])
    assert got is not None and got.low == pytest.approx(10_737.4, abs=0.1)


def test_two_copies_of_one_pool_hold_half_of_it_each() -> None:
    """200,000 tokens told of two copies: one rank has room for 100,000, and its margin buys tokens of its own."""
    pool = newest_pool(on_gpu(), [load(on_gpu(), pool_tokens=200_000, rank_bytes=GIB, replicas=2)])
    assert (pool.low, pool.high) == (100_000, 100_000)


def test_other_arguments_are_only_assumed_to_take_as_much() -> None:
    made = on_gpu()
    other = on_gpu("a2", launch={"argv": ("--port", "{port}", "--chunk", "4096"), "start_deadline_s": 5})
    seen = [load(made, pool_tokens=1000, rank_bytes=GIB)]
    assert shape_of(made) == shape_of(other) and made.digest() != other.digest()
    assert whole(other, seen) is None and left(other, (GPU,), seen) == {}
    got = rest(other, seen)
    assert got is not None and (got.low, got.status) == ((60_000 - 1024) * MIB, "assumed")
    more = on_gpu("a3", envelope={"context_tokens": 2048, "max_output_tokens": 256, "concurrency": 8})
    assert rest(more, seen) is None


def test_what_was_left_speaks_only_of_the_same_cards() -> None:
    made = on_gpu()
    assert left(made, (GPU,), [load(made)])
    assert left(made, ("GPU-other",), [load(made)]) == {}
    assert left(made, (), [load(made)]) == {}


def test_what_was_left_beside_another_serve_is_not_what_a_card_of_its_own_leaves(box: Box) -> None:
    """20,000 MiB were another's when it took 60,000: alone it leaves 97,887 - 600 - 60,000 = 37,287, give or take
    the 256 of two readings, and not 17,287."""
    shared = load(on_gpu(), 60_000, free=17_287)
    got = feasible(on_gpu(), ground(box, shared, reserve=20_000))
    assert got.cls == "benchmark-survivor"
    assert got.screen.heaps[0].margin == (37_031 * MIB, 37_543 * MIB)


TWO = (worlds.UUIDS[0], worlds.UUIDS[1])


def two_cards(*totals: int, reserved: int = 600) -> Ground:
    """Empty cards of so many MiB, of which the driver keeps some for itself."""
    gpus = tuple(
        worlds.gpu(i, free_mib=size - reserved, total_bytes=size * MIB, reserved_bytes=reserved * MIB)
        for i, size in enumerate(totals)
    )
    return Ground(workspace(reserve_mib=3072), GpuSnapshot("580", gpus), date(2026, 9, 3))


def on_two(**more: Any) -> Recipe:
    return recipe("a", **{"engine": "vllm", "gpus": {"select": TWO, "tensor_parallel": 2}, **more})


def loaded_on_two(made: Recipe, *cards: tuple[int, int]) -> MeasuredLoad:
    """(MiB in all, MiB left free) of each card; 600 MiB are the driver's."""
    mine = [
        CardLoad(uuid, total * MIB, (total - 600) * MIB, after * MIB)
        for uuid, (total, after) in zip(TWO, cards, strict=True)
    ]
    return load(made, cards=tuple(mine))


def test_each_of_two_different_cards_keeps_its_own_figures() -> None:
    """TP=2 on 97,887 and 48,000 MiB: 9,000 and 4,000 were left free: 88,287 and 43,400 MiB are the ranks'."""
    made = on_two()
    there = dataclasses.replace(
        two_cards(97_887, 48_000), loads=(loaded_on_two(made, (97_887, 9000), (48_000, 4000)),)
    )
    heaps = feasible(made, there).screen.heaps
    assert [(h.demand.low, h.margin[0], h.policy_margin[0]) for h in heaps] == [
        (43_400 * MIB, 4000 * MIB, 928 * MIB), (88_287 * MIB, 9000 * MIB, 5928 * MIB),
    ]  # fmt: skip


def test_a_share_of_a_large_card_proves_nothing_of_a_small_one() -> None:
    """vLLM took 90 % of 97,887 MiB, as told; of 48,000 it takes 90 % as well. No load is refused for it."""
    made = on_two()
    there = loaded_on_two(made, (97_887, 9000), (97_887, 9000))
    large = dataclasses.replace(there, cards=tuple(dataclasses.replace(c, uuid=c.uuid + "x") for c in there.cards))
    small = dataclasses.replace(two_cards(48_000, 48_000), loads=(large,))
    assert warnings_for(made, small, alone=True)[0] == []
    assert feasible(made, small).cls == "unresolved"


def test_llamacpp_cuts_one_model_over_its_cards_and_makes_no_copies() -> None:
    """30,000 MiB of weights on two cards of 24,000: each holds a part that nobody tells beforehand."""
    made = on_two(
        engine="llamacpp", gpus={"select": TWO}, kv={"pool_tokens": 4096},
        model={"repo": "r", "path": "/m", "bytes": 30_000 * MIB},
    )  # fmt: skip
    assert replicas_of(made) == 1
    found = feasible(made, two_cards(24_000, 24_000))
    assert found.cls == "unresolved"
    weights = next(p for p in found.screen.parts if p.name == "weights")
    assert (weights.low, weights.high) == (0, 30_000 * MIB)


@pytest.mark.parametrize(
    ("free", "reserve", "cls"),
    [
        pytest.param(37_887, 3072, "benchmark-survivor", id="room"),
        pytest.param(2101, 3072, "policy-infeasible", id="short-by-971"),
        pytest.param(2101, 0, "benchmark-survivor", id="no-reserve"),
    ],
)
def test_screen_on_a_measured_load(box: Box, free: int, reserve: int, cls: FeasibilityClass) -> None:
    made = on_gpu()
    got = feasible(made, ground(box, load(made, TOTAL - 600 - free, free=free), reserve=reserve))
    assert got.cls == cls
    assert got.screen.heaps[0].policy_margin == ((free - reserve) * MIB,) * 2


def test_without_any_figure_it_is_unresolved_and_says_what_is_missing(box: Box) -> None:
    got = feasible(on_gpu(), ground(box))
    assert got.cls == "unresolved"
    assert [a.name for a in got.screen.load_bearing_unknowns] == ["weights", "runtime and graphs", "KV"]
    assert "this screen authorises no promotion" in lines(got)[-1]


def test_weights_are_divided_among_the_ranks_and_only_assumed(box: Box) -> None:
    """200,000 MiB on one card of 97,887 less 600: too large on the size on disk alone, which is no measurement."""
    got = feasible(on_gpu(model={"repo": "r", "path": "/m", "bytes": 200_000 * MIB}), ground(box))
    assert got.cls == "modeled-infeasible"
    assert "short by at least 102,713 MiB" in got.screen.why


def test_a_plan_refuses_only_what_is_proven(box: Box) -> None:
    made = on_gpu()
    big = load(made, 99_000, free=10)
    refused, _ = warnings_for(made, ground(box, dataclasses.replace(big, cards=())), alone=True)
    assert refused == []
    other_cards = dataclasses.replace(big, cards=(CardLoad("GPU-big", None, 99_010 * MIB, 10 * MIB),))
    refused, warned = warnings_for(made, ground(box, other_cards), alone=True)
    # Measured 99,000 MiB less 256 of slack; the card has 97,887 less 600 of the driver.
    assert (
        warned == [] and "needs at least 98,744 MiB" in refused[0] and "short by at least 1,457 MiB" in refused[0]
    )
    guessed = on_gpu(model={"repo": "r", "path": "/m", "bytes": 200_000 * MIB})
    refused, warned = warnings_for(guessed, ground(box), alone=True)
    assert refused == [] and warned[0].startswith("feasibility modeled-infeasible (whole card): ")


def test_plans_carry_the_sentence_and_a_rollback_is_never_refused_by_arithmetic(box: Box) -> None:
    made = on_gpu(exclusive=True)
    box.recipes = [made, on_gpu("b", exclusive=True)]
    assert box.do("promote", recipe="a") == "done"
    assert box.do("promote", recipe="b") == "done"
    first = box.box.store.loads()[0].operation
    big = load(made, 99_000, free=10, operation=first)  # the last line of an operation counts
    box.box.store.keep_load(dataclasses.replace(big, cards=(CardLoad("GPU-big", None, 99_010 * MIB, 10 * MIB),)))
    back = box.plan("rollback")
    assert back.refusals == () and any("a cannot fit" in w for w in back.warnings)
    assert any("a cannot fit" in r for r in box.plan("promote", recipe="a").refusals)


class TestWaivers:
    STANDING: Mapping[str, Any] = {"reserve": {"mib_per_gpu": 3072}}

    def waiver(self, **more: Any) -> Waiver:
        fields = {"at": "2026-09-02T12:00:00+00:00", "recipe": "a", "gpus": (GPU,), "standing_mib": 3072,
                  "reserve_mib": 0, "reason": "model-only pair", "by": "operator", **more}  # fmt: skip
        return Waiver(**fields)

    def test_it_changes_the_class_and_no_measurement(self, box: Box) -> None:
        made = on_gpu(**self.STANDING)
        passed = Behaviour("suite promotion", "pass", "passed")
        seen = load(made, TOTAL - 600 - 2101, free=2101)
        before = feasible(made, ground(box, seen, qualified=passed))
        after = feasible(made, ground(box, seen, qualified=passed, waivers=(self.waiver(),)))
        assert (before.cls, after.cls, after.standing_class) == (
            "policy-infeasible", "verified-by-waiver", "policy-infeasible",
        )  # fmt: skip
        assert before.screen.heaps == after.screen.heaps and after.standing_mib == 3072

    @pytest.mark.parametrize(
        ("change", "counts"),
        [
            ({}, True),
            ({"recipe": "b"}, False),
            ({"gpus": (GPU, "GPU-2")}, False),
            ({"gpus": (GPU.upper(),)}, True),
            ({"until": "2026-09-03"}, True),
            ({"until": "2026-09-02"}, False),
            ({"reserve_mib": 3072}, False),
        ],
    )
    def test_scope_and_date(self, change: dict[str, Any], counts: bool) -> None:
        got = in_force(on_gpu(**self.STANDING), (GPU,), (self.waiver(**change),), date(2026, 9, 3))
        assert (got is not None) is counts

    def test_the_newest_decides_whoever_wrote_it(self) -> None:
        own = {"mib_per_gpu": 3072, "waived_on": date(2026, 9, 2), "waiver": "model-only", "waiver_scope": "pair"}
        made, today = on_gpu(reserve=own), date(2026, 9, 10)
        first = in_force(made, (GPU,), (), today)
        assert first is not None and (first.source, first.reserve_mib, first.reason) == (
            "recipe", 0, "model-only; scope: pair",
        )  # fmt: skip
        older = self.waiver(at="2026-09-01T00:00:00+00:00", reserve_mib=1000)
        newer = self.waiver(at="2026-09-05T00:00:00+00:00", reserve_mib=1000, until="2026-09-07")
        assert in_force(made, (GPU,), (older,), today) == first
        assert in_force(made, (GPU,), (older, newer), date(2026, 9, 6)) == newer
        assert in_force(made, (GPU,), (older, newer), today) is None
        said = waivers_for(made, (GPU,), (older, newer), today)
        assert [s.rsplit(" (", 1)[1] for s in said] == [
            "no longer in force)", "no longer in force)", "expired 2026-09-07)",
        ]  # fmt: skip
        assert not any("operator" in s for s in said)

    def test_a_change_of_class_is_told(self) -> None:
        w = self.waiver(was="policy-infeasible", became="verified-by-waiver")
        (said,) = waivers_for(on_gpu(**self.STANDING), (GPU,), (w,), date(2026, 9, 3))
        assert "reserve 0 MiB instead of 3,072 MiB, waived 2026-09-02" in said
        assert "class policy-infeasible became verified-by-waiver" in said and "in force" in said
