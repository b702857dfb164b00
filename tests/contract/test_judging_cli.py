"""Feasibility, waivers, dossier and capacity on the command line, against a simulated box with two cards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from anvil_tui.adapters.box_file import BoxFile
from anvil_tui.cli.main import main
from tests.support.simbox import SimProcess

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimProcess]:
    made = SimProcess(tmp_path_factory.mktemp("judged"))
    toml = made.folder / "anvil.toml"
    toml.write_text(toml.read_text().replace("reserve_mib = 0", "reserve_mib = 3072"))
    yield made
    made.end()


def test_feasibility_by_what_was_left(run: Any) -> None:
    """The record left 49 MiB on each card; the reserve is 3,072: short by 3,023."""
    (found,) = json.loads(run("recipes", "feasibility", "glm53-499k-c4", "--json"))
    assert found["class"] == "policy-infeasible" and len(found["gpus"]) == 2
    assert [c["policy_margin"] for c in found["cards"]] == [[-3023 * MIB, -3023 * MIB]] * 2
    assert found["promotion_authority"] is False
    assert "49 MiB measured left free on GPU 0" in found["why"] and "short by 3,023 MiB" in found["why"]
    assert "no recipe 'gone'" in run("recipes", "feasibility", "gone", want=2)
    assert "needs a recipe id" in run("recipes", "feasibility", want=2)


def test_a_waiver_is_recorded_with_scope_and_change_of_class(box: SimProcess, run: Any) -> None:
    """499K/C1 left 2,347 MiB: under a reserve of 2,048 it is no longer short of the policy."""
    words = (
        "waive",
        "glm53-499k-c1",
        "--reserve",
        "2048",
        "--reason",
        "model-only cards Bearer abcdefghijklmnop1234",
    )
    said = json.loads(run(*words, "--until", "2999-12-31", "--json"))
    assert (said["was"], said["became"]) == ("policy-infeasible", "benchmark-survivor")
    (kept,) = BoxFile(box.folder / "state").waivers()
    assert (kept.recipe, kept.standing_mib, kept.reserve_mib, kept.until) == (
        "glm53-499k-c1",
        3072,
        2048,
        "2999-12-31",
    )
    assert (kept.was, kept.became) == (said["was"], said["became"])
    assert len(kept.gpus) == 2 and kept.by and kept.by not in said["waiver"]
    assert "abcdefghijklmnop1234" not in (box.folder / "state" / "waivers.ndjson").read_text()
    (found,) = json.loads(run("recipes", "feasibility", "glm53-499k-c1", "--json"))
    assert (found["class"], found["standing_class"]) == ("benchmark-survivor", "policy-infeasible")
    assert found["cards"][0]["margin"] == [2347 * MIB, 2347 * MIB] and "by" not in found["waiver"]
    assert "2,048 MiB instead of 3,072 MiB" in run("dossier", "glm53-flash")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("glm53-245k-c1", "--reserve", "3072", "--reason", "x"), "nothing to waive"),
        (("glm53-245k-c1", "--reserve", "0", "--reason", "  "), "--reason is empty"),
        (("glm53-245k-c1", "--reserve", "0", "--reason", "x", "--until", "2020-01-01"), "in the past"),
    ],
)
def test_a_waiver_that_makes_no_sense_is_refused(
    box: SimProcess, run: Any, words: tuple[str, ...], said: str
) -> None:
    before = BoxFile(box.folder / "state").waivers()
    assert said in run("waive", *words, want=3)
    assert BoxFile(box.folder / "state").waivers() == before


def test_read_only_waives_nothing(box: SimProcess, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [
        "--workspace",
        str(box.folder),
        "--read-only",
        "waive",
        "glm53-245k-c1",
        "--reserve",
        "0",
        "--reason",
        "x",
    ]
    assert main(argv) == 3
    assert "--read-only" in capsys.readouterr().err


def test_dossier_and_list(run: Any) -> None:
    found = json.loads(run("dossier", "glm53-flash", "--json"))
    assert found["current"] == ["glm53-exl3-r10"]
    live = {x["recipe"]: x["live"] for x in found["lanes"] if x["live"]}
    assert list(live.values()) == [["primary"]]
    assert run("dossier", "glm53-flash", "--markdown").startswith("# glm53-flash")
    assert "have: glm53-flash" in run("dossier", "nobody", want=2)
    rows = json.loads(run("recipes", "list", "--json"))
    assert {r["qualified"] for r in rows} == {"never"}


def test_status_has_three_concurrencies(run: Any) -> None:
    """The incumbent's engine tells 2,493,817 tokens, 4.7566 windows of 524,288; nothing was gated."""
    serves = json.loads(run("status", "--json"))["serves"]
    (c,) = [s["capacity"] for s in serves if s["position"] == "incumbent"]
    assert (c["configured"], c["pool_tokens"], c["windows"], c["proven"]) == (16, 2_493_817, 4.7566, [])
    assert c["recorded"].startswith("C2 at 206,630") and c["pool_at"] and c["rank_bytes"]


def test_an_operation_that_was_not_named_is_asked_for(run: Any) -> None:
    assert "operations pause needs an operation" in run("operations", "pause", want=2)
