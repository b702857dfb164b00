"""Two real serves side by side, measured in turn and compared by command.

What comes out is this machine's affair: only that there is a verdict with its interval is asserted, never which.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.e2e.realbox import RealBox

pytestmark = [pytest.mark.real, pytest.mark.e2e]

SUITE = """schema = "anvil.suite/1"
id = "{id}"

[[gates]]
id = "decode"
kind = "depth-sweep"
prompt_tokens = [96]
completion_tokens = 8
requests = {requests}
warmup = 0
"""
BUSY = re.compile(r"load generator looked .* late")
TRIES = 8


@pytest.fixture
def pair(real_box: RealBox) -> RealBox:
    """smol-4k with a fifth of a core and with half of one, both loaded: the load generator has room."""
    recipes = real_box.dir / "recipes"
    one = (recipes / "smol-4k.toml").read_text()
    two = one.replace('"smol-4k"', '"smol-4k-half"').replace("smollm2-135m-4k", "smollm2-135m-4k-half")
    for name, text, cpus in (("smol-4k", one, 0.2), ("smol-4k-half", two, 0.5)):
        (recipes / f"{name}.toml").write_text(text.replace("[launch]\n", f"[launch]\ncpus = {cpus}\n"))
    for name, requests in (("lane", 5), ("longer", 6)):
        text = SUITE.format(id=name, requests=requests)
        (real_box.dir / "gates" / f"{name}.toml").write_text(text)
    real_box.do("load", "smol-4k", "--yes")
    real_box.do("load", "smol-4k-half", "--yes")
    return real_box


def until_done(box: RealBox, *words: str, code: int = 0) -> Any:
    """The same command until it ends with this code; only a load generator kept waiting excuses another."""
    for _ in range(TRIES):
        ran = box.anvil(*words, "--json")
        if ran.returncode == code:
            return ran.stdout
        assert ran.returncode == 1 and BUSY.search(ran.stdout + ran.stderr), f"{ran.stdout}\n{ran.stderr}"
    raise AssertionError(f"{TRIES} times the machine was too busy to measure: {words}")


def test_a_b_in_turn_gives_a_verdict_with_its_interval_and_an_unmatched_pair_is_refused(pair: RealBox) -> None:
    words = ("ab", "smol-4k", "smol-4k-half", "--suite", "lane", "--runs", "2", "--varies", "arguments")
    before = len(pair.operations.views())
    told = pair.do(*words)
    assert [r["arm"] for r in told["runs"]] == ["A", "B", "B", "A"]
    assert (told["refusals"], len(pair.operations.views())) == ([], before), "without --yes nothing is run"
    until_done(pair, *words, "--yes")
    found = pair.do(*words)
    assert (found["state"], found["varies"]) == ("matched", "arguments")
    (named,) = [r for r in found["rows"] if r["standing"] == "named"]
    assert (named["a"], named["b"]) == ("cpus 0.2", "cpus 0.5")
    (row,) = [m for lane in found["lanes"] for m in lane["metrics"] if m["primary"]]
    assert row["verdict"] in ("better", "worse", "undecided")
    assert row["low_pct"] <= row["delta_pct"] <= row["high_pct"]
    assert (row["metric"], row["pairs"], row["runs_a"], row["runs_b"]) == ("decode", 10, 2, 2)
    assert row["floor_pct"] is not None
    done = [v for v in pair.operations.views() if v.kind == "qualify" and v.outcome == "done"]
    assert [v.target.split(" ")[0] for v in done] == ["smol-4k", "smol-4k-half", "smol-4k-half", "smol-4k"]
    until_done(pair, "qualify", "smol-4k-half", "--suite", "longer", "--yes")
    other = next(v.id for v in reversed(pair.operations.views()) if v.outcome == "done")
    refused = pair.do("compare", done[0].id, other, code=3)
    assert [r["field"] for r in refused["refusals"]] == ["prompts"]
    assert [m for lane in refused["lanes"] for m in lane["metrics"]] == []
