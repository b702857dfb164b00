"""Whether a qualification still holds: everything it rested on, changed one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from anvil_tui.core.bundle import Bundle, Identity
from anvil_tui.core.gates import GateResult, Verdict
from anvil_tui.core.heaps import Behaviour
from anvil_tui.core.holding import GONE, Drift, Holding, Past, behaviour, holding, past_of, proven_for, word, words
from anvil_tui.core.lanes import LaneRow, Spread
from anvil_tui.core.present import holdings, identity_now, proven
from anvil_tui.core.reading import Reading
from anvil_tui.core.serves import derive
from tests.support import worlds

RECIPE = worlds.recipes()[worlds.CANDIDATE]
WRONG = ("needle failed: wrong answer",)
SUITES = {"promotion": "5" * 64}
NOW = identity_now(RECIPE, worlds.calm(), SUITES, None)


def identity(**change: Any) -> Identity:
    """Of the recipe that serves in `worlds.calm`, as its qualification wrote it."""
    base = replace(
        identity_now(RECIPE, worlds.calm(), SUITES, past(Identity(suite="promotion"))),
        recipe_digest="sha256:" + RECIPE.digest(), suite_digest="sha256:" + "5" * 64,
    )  # fmt: skip
    return replace(base, **change)


def past(of: Identity, at: str = "2026-09-02T10:40:00+00:00", passed: bool | None = True, **more: Any) -> Past:
    return Past("op/serve", at, "measured", passed, of, **more)


def found(was: Identity, world: Any = None, **more: Any) -> Holding:
    return holdings(world or worlds.calm(), [past(was, **more)], SUITES)[RECIPE.id]


def test_a_run_that_failed_by_our_own_trouble_takes_nothing_away() -> None:
    """Only a failed gate does: a busy machine or a cancel says nothing of the serve."""
    results = (
        GateResult("depth", "depth-sweep", Verdict.ERRORED, "the load generator looked late", 0, 1, 9.0),
        GateResult("smoke", "smoke", Verdict.CANCELLED, "asked to stop", 0, 1, 9.0),
    )
    errored = past_of(Bundle("op/later", "measured", "2026-09-03T10:40:00Z", identity(), False, results))
    assert errored.failed == (), "a negative is what the serve did wrong"
    got = holdings(worlds.calm(), [past(identity()), errored], SUITES)[RECIPE.id]
    assert (got.state, got.bundle) == ("holds", "op/serve")
    assert holdings(worlds.calm(), [errored], SUITES)[RECIPE.id].state == "never"


def test_it_holds_when_nothing_moved() -> None:
    got = found(identity())
    assert (got.state, got.drift, got.untold) == ("holds", (), ())
    assert words(got) == "qualified 2026-09-02, suite promotion (op/serve) and it still holds"
    assert word(got) == "holds 09-02"


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("recipe", {"recipe_digest": "sha256:" + "9" * 64}),
        ("revision", {"revision": "1" * 40}),
        ("suite", {"suite_digest": "6" * 64}),
        ("engine version", {"engine_version": "0.5.3rc13"}),
        ("container", {"container": "f" * 64}),
        ("driver", {"driver": "570.00"}),
        ("GPUs", {"gpu_uuids": ("GPU-x", "GPU-y")}),
        ("image id", {"image_id": "sha256:" + "9" * 64, "image": "other@sha256:" + "9" * 64}),
    ],
)
def test_each_thing_that_moved_is_named(name: str, change: dict[str, Any]) -> None:
    got = found(identity(**change))
    assert got.state == "drifted" and name in [d.name for d in got.drift]
    assert f"{name} was " in words(got)


def test_a_tag_that_names_the_same_image_is_no_drift() -> None:
    assert found(identity(image="mirror.invalid/other@sha256:" + "1" * 64)).state == "holds"


@pytest.mark.parametrize("key", ["recipe_digest", "revision", "suite_digest", "container", "driver", "gpu_uuids"])
def test_what_the_record_does_not_say_is_not_equal(key: str) -> None:
    got = found(identity(**{key: None}))
    assert got.state == "cannot-tell" and "not in the record" in got.untold[0]


def test_what_cannot_be_read_now_is_not_equal() -> None:
    blind = replace(worlds.calm(), gpus=Reading.error("no driver", 1.0, "nvml", None))
    got = found(identity(), blind)
    assert got.state == "cannot-tell"
    assert got.untold == ("GPUs: cannot be read now", "driver: cannot be read now")
    deaf = derive(replace(worlds.calm(), containers=Reading.error("no daemon", 1.0, "docker", None)))
    assert "container: cannot be read now" in found(identity(), deaf).untold


def test_drift_is_told_even_when_something_else_cannot_be() -> None:
    got = found(identity(driver="570.00", suite_digest=None))
    assert got.state == "drifted" and got.untold == ("suite: not in the record",)


def test_a_container_that_is_gone() -> None:
    none = derive(replace(worlds.calm(), containers=Reading.known((), worlds.NOW_S, "docker")))
    got = found(identity(), none)
    assert Drift("container", worlds.cid(RECIPE.id), GONE) in got.drift


def test_a_suite_that_is_gone_is_not_called_a_recipe() -> None:
    held = holdings(worlds.calm(), [past(identity())], {})[RECIPE.id]
    assert [(d.name, d.now) for d in held.drift] == [("suite", "no longer here")]


def test_a_stopped_engine_s_version_follows_from_its_image() -> None:
    quiet = replace(worlds.calm(), engines={})
    assert found(identity(), quiet).state == "holds"


def test_never_failed_and_without_verdict() -> None:
    assert holding(RECIPE, [], NOW).state == "never"
    assert word(holding(RECIPE, [], NOW)) == "never"
    assert found(identity(), passed=False, failed=WRONG).state == "failed"
    undecided = found(identity(), passed=None)
    assert undecided.state == "cannot-tell" and "no verdict" in undecided.untold[0]


def test_the_newest_counts_whatever_its_order() -> None:
    old = past(identity(), "2026-08-30", passed=True)
    new = past(identity(), "2026-09-02T00:00:01+02:00", passed=False, failed=WRONG)
    for order in ([old, new], [new, old]):
        assert holding(RECIPE, order, NOW).state == "failed"
    assert holding(RECIPE, [past(identity(recipe="other"))], NOW).state == "never"


def test_only_a_qualification_that_holds_counts_for_feasibility() -> None:
    def outcome(h: Holding) -> str | None:
        got = behaviour(h)
        return got.outcome if isinstance(got, Behaviour) else None

    assert outcome(found(identity())) == "pass"
    assert outcome(found(identity(driver="1"))) == "unproven"
    assert outcome(found(identity(), passed=False, failed=WRONG)) == "miss"
    assert outcome(holding(RECIPE, [], NOW)) is None


def test_a_bundle_is_kept_small() -> None:
    row = LaneRow(
        "capacity", 2, 2, prompt_tokens=Spread(2, 206_630, 206_640, 206_650), waiting_peak=0, running_peak=2
    )
    results = (
        GateResult("lane", "capacity", Verdict.PASSED, "2/2", 1, 1, 9.0, rows=(row,)),
        GateResult("needle", "needle", Verdict.FAILED, "wrong answer", 0, 1, 9.0),
        GateResult("think", "thinking", Verdict.UNVERIFIED, "no proof", 0, 1, 9.0, accepted=True),
    )
    kept = past_of(Bundle("op/s", "measured", "2026-09-02", identity(), False, results, notes=("waived",)))
    assert kept.failed == ("needle failed: wrong answer",) and kept.notes == ("waived",)
    assert [(p.streams, p.prompt_tokens, p.bundle) for p in kept.proven] == [(2, 206_630, "op/s")]
    assert proven_for(RECIPE, [kept]) == kept.proven
    assert proven(worlds.calm(), [kept]) == {RECIPE.digest(): kept.proven}
    assert proven_for(RECIPE, [replace(kept, identity=identity(recipe_digest="sha256:0"))]) == ()
