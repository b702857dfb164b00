"""The dossier of the shipped family says what the seed dossier says; expectations were written from that text."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.adapters.toml_files import load_recipes
from anvil_tui.core.bundle import Identity
from anvil_tui.core.dossier import Dossier, dossier, dossier_json, dossier_lines, dossier_markdown
from anvil_tui.core.errors import NotFound
from anvil_tui.core.holding import Drift, Holding, Past
from anvil_tui.core.recipe import Recipe, Reserve
from anvil_tui.core.waivers import Waiver
from anvil_tui.core.world import BoxRecord, RoleRecord, ServeRecord
from tests.support import worlds

ROOT = Path(__file__).parents[2]
SHIPPED = tuple(f.recipe for f in load_recipes(ROOT / "recipes") if f.recipe)
TODAY = date(2026, 9, 20)


def made(recipes: tuple[Recipe, ...] = SHIPPED, **more: Any) -> Dossier:
    return dossier("glm53-flash", recipes, **{"today": TODAY, **more})


class TestGlm53Flash:
    """By the dossier of 2026-09-19 and the records it links."""

    def test_decision_snapshot(self) -> None:
        """EXL3 r10 APC is selected, "Exact r9 is the documented rollback"; reviewed 2026-09-19."""
        d = made()
        assert d.current == ("glm53-exl3-r10",)
        assert (d.reviewed, d.age_days, d.freshness) == (date(2026, 9, 19), 1, "current")
        assert [(r.recipe, r.status) for r in d.ladder] == [
            ("glm53-exl3-r10", "current"), ("glm53-exl3-r9", "rollback"), ("", ""),
        ]  # fmt: skip

    # The table "Engine, quantization, KV, context, and concurrency recipe", and the r9 and r10 of the snapshot.
    LANES = {
        "glm53-exl3-r10": (327_680, "current"),
        "glm53-exl3-r9": (327_680, "rollback"),
        "glm53-exl3-r7": (327_680, "historical"),
        "glm53-393k-c1": (393_216, "historical"),
        "glm53-524k-k5-xgfix": (524_288, "historical"),
        "glm53-245k-c1": (245_760, "fallback"),
        "glm53-524k-nospec": (524_288, "control"),
        "glm53-1m-k5": (1_048_576, "historical"),
        "glm53-1m-k3": (1_048_576, "historical"),
        "glm53-1m-k5-b4096": (1_048_576, "rejected"),
        "glm53-499k-c4": (499_712, "rejected"),
        "glm53-499k-c1": (499_712, "unverified"),
    }

    def test_every_lane_stands_where_the_record_puts_it(self) -> None:
        assert {x.recipe: (x.context_tokens, x.status) for x in made().lanes} == self.LANES
        assert made().lanes[0].recipe == "glm53-exl3-r10"

    # "Dated run history" and the promotion records, by day.
    HISTORY = {
        ("2026-08-30", "glm53-1m-k5", "current"), ("2026-08-30", "glm53-1m-k3", "alternate"),
        ("2026-08-30", "glm53-1m-k5-b4096", "rejected"), ("2026-08-31", "glm53-524k-k5-xgfix", "current"),
        ("2026-08-31", "glm53-1m-k5", "rollback"), ("2026-08-31", "glm53-524k-nospec", "control"),
        ("2026-09-02", "glm53-393k-c1", "current"), ("2026-09-02", "glm53-524k-k5-xgfix", "rollback"),
        ("2026-09-02", "glm53-245k-c1", "fallback"), ("2026-09-02", "glm53-499k-c4", "rejected"),
        ("2026-09-02", "glm53-499k-c1", "unverified"), ("2026-09-14", "glm53-exl3-r7", "current"),
        ("2026-09-19", "glm53-exl3-r10", "current"), ("2026-09-19", "glm53-exl3-r9", "rollback"),
    }  # fmt: skip

    def test_decisions_with_dates_reasons_and_evidence(self) -> None:
        d = made()
        have = {(str(x.date), x.recipe, x.status) for x in d.decisions}
        assert have >= self.HISTORY
        assert all(x.reason and x.evidence for x in d.decisions)
        dates = [x.date for x in d.decisions]
        assert dates == sorted(dates, reverse=True)

    def test_retained_negatives(self) -> None:
        """Batching of 4,096 "remains rejected", so does 499K/C4; the 393K first failed the reserve."""
        found = {(n.recipe, n.what.partition(";")[0]): n for n in made().negatives}
        assert {r for r, _ in found} == {"glm53-1m-k5-b4096", "glm53-499k-c4", "glm53-499k-c1", "glm53-393k-c1"}
        assert "62.5 tok/s" in found["glm53-1m-k5-b4096", "rejected"].reason
        assert "49 MiB" in found["glm53-499k-c4", "policy-infeasible"].reason
        assert "2,101 MiB" in found["glm53-393k-c1", "policy-infeasible"].reason
        assert found["glm53-393k-c1", "policy-infeasible"].what.endswith("historical now")

    def test_matched_control(self) -> None:
        lanes = {x.recipe: x for x in made().lanes}
        assert lanes["glm53-524k-k5-xgfix"].control == "glm53-524k-nospec"
        assert lanes["glm53-524k-nospec"].control_of == ("glm53-524k-k5-xgfix",)

    def test_the_waiver_of_the_393k(self) -> None:
        (said,) = made().waivers
        assert "reserve 0 MiB instead of 3,072 MiB, waived 2026-09-02 for glm53-393k-c1" in said
        assert "model-only" in said and "in force" in said

    def test_ladder_of_earlier_days(self) -> None:
        """393K went back to the 524K, that one to the 1M; the 1M's own rollback has no recipe here."""
        lanes = {x.recipe: x.rollback for x in made().lanes}
        assert (lanes["glm53-393k-c1"], lanes["glm53-524k-k5-xgfix"]) == ("glm53-524k-k5-xgfix", "glm53-1m-k5")
        assert lanes["glm53-1m-k5"].startswith("none: ")


def test_what_evidence_adds() -> None:
    past = Past("op/s", "2026-09-10T08:00:00Z", "measured", False, Identity(recipe="glm53-245k-c1"),
                failed=("needle failed: wrong answer",))  # fmt: skip
    stranger = replace(past, identity=Identity(recipe="other"))
    held = {"glm53-exl3-r10": Holding("glm53-exl3-r10", "drifted", "op/t", "2026-09-19", "promotion",
                                      (Drift("driver", "1", "2"),))}  # fmt: skip
    d = made(pasts=[past, stranger], holdings=held)
    gates = [n for n in d.negatives if n.what == "gate"]
    assert [(n.at, n.recipe, n.reason, n.evidence) for n in gates] == [
        ("2026-09-10", "glm53-245k-c1", "needle failed: wrong answer", "op/s"),
    ]  # fmt: skip
    assert (
        d.ladder[0].qualified == "qualified 2026-09-19, suite promotion (op/t), drifted since: driver was 1, is 2"
    )
    assert "drifted 09-19" in "\n".join(dossier_lines(d))


def test_what_the_box_adds() -> None:
    serve = ServeRecord("c" * 64, "glm53-245k-c1", "d", "i", "primary", "primary-a", 1, "n", "op")
    record = BoxRecord(1, {"c" * 64: serve}, {"primary": RoleRecord("primary", "c" * 64)})
    waiver = Waiver(
        "2026-09-05T00:00:00+00:00", "glm53-245k-c1", ("GPU-a", "GPU-b"), 3072, 1024, "soak", by="someone"
    )
    d = made(record=record, waivers=[waiver])
    assert [(x.recipe, x.live) for x in d.lanes if x.live] == [("glm53-245k-c1", ("primary",))]
    text = dossier_markdown(d)
    assert "reserve 1,024 MiB instead of 3,072 MiB, waived 2026-09-05" in text and "someone" not in text


def test_a_waiver_of_the_box_s_reserve_is_in_force_in_the_dossier_too() -> None:
    """The recipe asks for none itself, the box for 3,072: 1,024 is an exception, and so is its own file's 0."""
    bare = worlds.recipes()["glm53-245k-c1"].model_copy(update={"reserve": Reserve()})
    waiver = Waiver("2026-09-05T00:00:00+00:00", bare.id, ("GPU-a",), 3072, 1024, "soak")
    (said,) = made((bare,), waivers=[waiver], box_mib=3072).waivers
    assert "(in force" in said
    rule = Reserve(waived_on=date(2026, 9, 2), waiver="model-only", waiver_scope="pair")
    (own,) = made((bare.model_copy(update={"reserve": rule}),), box_mib=3072).waivers
    assert "reserve 0 MiB instead of 3,072 MiB" in own and "(in force" in own


@pytest.mark.parametrize(("today", "word"), [
    (date(2026, 11, 18), "current"), (date(2026, 11, 19), "aging"), (date(2027, 1, 17), "aging"),
    (date(2027, 1, 18), "stale"),
])  # fmt: skip
def test_a_dossier_grows_old(today: date, word: str) -> None:
    """Reviewed 2026-09-19: 60 days are 18 November, 120 are 17 January."""
    assert made(today=today).freshness == word


def test_a_way_back_that_leads_nowhere_or_round_is_said() -> None:
    known = worlds.recipes()
    a = known["glm53-exl3-r10"].model_copy(update={"rollback": "gone"})
    assert made((a,)).ladder[-1].why == "gone: no recipe of this name is here"
    family = known["glm53-exl3-r9"].model_copy(update={"id": "gone", "family": "another"})
    over = made((a, family)).ladder
    assert [r.recipe for r in over] == ["glm53-exl3-r10", "gone", ""], "a way back may lead to another family"
    b = known["glm53-exl3-r9"].model_copy(update={"rollback": "glm53-exl3-r10"})
    circle = made((known["glm53-exl3-r10"], b)).ladder
    assert [r.recipe for r in circle] == ["glm53-exl3-r10", "glm53-exl3-r9", ""] and "circle" in circle[-1].why


def test_unknown_family_names_those_that_are_here() -> None:
    with pytest.raises(NotFound, match="have: glm53-flash"):
        dossier("glm", SHIPPED, today=TODAY)


def test_renderings_hold_every_row() -> None:
    d = made()
    text, document = "\n".join(dossier_lines(d)), dossier_markdown(d)
    for decided in d.decisions:
        assert decided.reason in text and decided.reason in document
    assert document.startswith("# glm53-flash\n") and "| recipe | decision |" in document
    assert json.loads(json.dumps(dossier_json(d), default=str))["schema"] == "anvil.dossier/1"
