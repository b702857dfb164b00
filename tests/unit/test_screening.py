"""The shipped profiles on a box of their own hardware: the classes that their records arrived at, and why."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.adapters.toml_files import load_recipe
from anvil_tui.core.box import MIB, GpuSnapshot
from anvil_tui.core.screening import Ground, as_json, feasible, lines, sentence, warnings_for
from tests.support import worlds

ROOT = Path(__file__).parents[2]


def ground(*, name: str = "", read: bool = True, reserve: int = 3072) -> Ground:
    """Two cards of 97,887 MiB, 1,100 of them the driver's, empty."""
    change = {"name": name} if name else {}
    cards = tuple(worlds.gpu(i, free_mib=96_787, **change) for i in range(2))
    space = worlds.workspace()
    space = space.model_copy(update={"policies": space.policies.model_copy(update={"reserve_mib": reserve})})
    return Ground(space, GpuSnapshot("580.95.05", cards) if read else None, date(2026, 9, 3))


def screened(recipe: str, **more: Any) -> Any:
    return feasible(load_recipe(ROOT / "recipes" / f"{recipe}.toml"), ground(**more))


@pytest.mark.parametrize(
    ("recipe", "cls", "margin"),
    [
        # "49 MiB/card after startup": 3,023 short of the standing 3,072.
        ("glm53-499k-c4", "policy-infeasible", -3023),
        # "2,347 MiB/card after startup": 725 short.
        ("glm53-499k-c1", "policy-infeasible", -725),
        # "3,351 MiB idle, 2,101 MiB after workload": 971 short, and waived: "from policy-infeasible to verified".
        ("glm53-393k-c1", "verified-by-waiver", -971),
        # "4,733 MiB idle, 3,487 MiB after workload": 415 over; "verified challenger".
        ("glm53-245k-c1", "math-qualified", 415),
    ],
)
@pytest.mark.parametrize("read", [True, False], ids=["cards-read", "no-card-read"])
def test_the_records_classes(recipe: str, cls: str, margin: int, read: bool) -> None:
    got = screened(recipe, read=read)
    assert got.cls == cls
    assert got.screen.heaps[0].policy_margin == (margin * MIB, margin * MIB)


def test_the_waiver_is_told_and_the_standing_class_kept() -> None:
    got = screened("glm53-393k-c1")
    assert got.standing_class == "policy-infeasible" and got.standing_mib == 3072
    assert "2,101 MiB measured left free" in got.screen.why and "becomes verified" in got.screen.why
    assert got.waiver is not None and got.waiver.source == "recipe"


def test_the_245k_could_hold_more_tokens() -> None:
    """415 MiB over the reserve at 9,886 to 9,827 bytes a token: 44,018 to 44,282 above 245,760."""
    heap = screened("glm53-245k-c1").screen.heaps[0]
    assert heap.max_tokens == (289_777, 290_041)


def test_on_other_cards_the_record_proves_nothing() -> None:
    got = screened("glm53-393k-c1", name="NVIDIA GeForce RTX 5090")
    assert got.cls == "unresolved" and not any(h.measured for h in got.screen.heaps)
    assert {b.outcome for b in got.screen.behaviours} == {"unproven"}
    assert {b.projected for b in got.screen.behaviours} == {"pass"}


def test_kv_of_the_1m_profile() -> None:
    """16.61 GiB / 2,917,371 tokens = 6,113.3 bytes; the draft's size is in no record, so it stays unresolved."""
    got = screened("glm53-1m-k5")
    kv = next(p for p in got.screen.parts if p.name.startswith("kv"))
    assert kv.low is not None and kv.high is not None
    assert kv.low <= 16.61 * 1024**3 / 2_917_371 * 1_048_576 <= kv.high
    assert got.cls == "unresolved"
    assert [a.name for a in got.screen.load_bearing_unknowns] == ["draft", "runtime and graphs"]


def test_words_and_json_hold_the_same() -> None:
    got = screened("glm53-499k-c4")
    obj, text = as_json(got), "\n".join(lines(got))
    assert obj["class"] == "policy-infeasible" and obj["promotion_authority"] is False
    assert obj["cards"][0]["policy_margin"] == (-3023 * MIB, -3023 * MIB)
    assert "49 MiB" in text and "short by 3,023 MiB" in text and "qualification" in text
    assert sentence(got).startswith(
        "feasibility policy-infeasible (whole card): 49 MiB measured left free on GPU 0"
    )


def test_a_full_card_is_short_now_and_not_for_ever() -> None:
    """Weights of 84,906 MiB on cards with 10,000 free: on the size on disk alone, so a warning."""
    made = load_recipe(ROOT / "recipes" / "glm53-245k-c1.toml")
    cards = tuple(worlds.gpu(i, free_mib=10_000) for i in range(2))
    full = replace(ground(), snapshot=GpuSnapshot("580.95.05", cards))
    assert warnings_for(made, full, alone=True) == ([], [])
    refused, warned = warnings_for(made, full, alone=False)
    # 84,906 of weights and 245,760 x 9,827 B = 2,303 MiB of KV against 10,000.
    assert refused == [] and "modeled-infeasible (free now)" in warned[0] and "short by at least 77,2" in warned[0]


def test_a_recipe_without_gpus_is_not_screened() -> None:
    made = worlds.recipes()["glm53-245k-c1"].model_copy(
        update={"gpus": type(worlds.recipes()["glm53-245k-c1"].gpus)()}
    )
    assert warnings_for(made, ground(), alone=False) == ([], [])
    assert feasible(made, ground()).note == "the recipe names no GPU: host memory is not modelled"
