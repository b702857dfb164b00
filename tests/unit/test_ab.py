"""An A/B as operations: in turn, one journal a run, taken up where it stopped, never on other terms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from anvil_tui.adapters.bundle_files import BundleFolders
from anvil_tui.cli.comparing import with_lanes
from anvil_tui.core.errors import Refused
from anvil_tui.core.gates import Suite
from anvil_tui.core.journal import OperationView
from anvil_tui.core.plan import Plan
from anvil_tui.service.ab import Series, carry_out, failed_tries, order, plan_run, result, standing
from anvil_tui.service.bundles import read_bundle
from anvil_tui.service.operation import prepare
from tests.support.membox import World, recipe


class Pair:
    """Two loaded serves, and the road on which the command line runs operations, in this process."""

    def __init__(self, tmp: Path) -> None:
        self.world = World(tmp, recipe("a"), recipe("b"))
        for name in ("a", "b"):
            assert self.world.do("load", recipe=name, role="primary") == "done"
        of = {s.recipe_id: s.container_id for s in self.world.box.store.read().serves.values()}
        self.series = Series("trial", of["a"], of["b"], "small", 2, "decode", 3.0, "arguments")
        self.ran: list[str] = []
        self.kill_at = ""

    def start(self, made: Plan) -> OperationView:
        self.ran.append(made.intent.reason)
        self.world.clock.sleep(1)
        self.world.last = prepare(self.world.box, made)
        return self.end("start")

    def resume(self, operation: str) -> OperationView:
        self.ran.append(f"resume {operation}")
        self.world.last = operation
        return self.end("resume")

    def end(self, mode: str) -> OperationView:
        if self.world.operate(mode, self.kill_at) == "killed":  # type: ignore[arg-type]
            raise InterruptedError
        return next(v for v in self.world.box.operations.views() if v.id == self.world.last)

    def go(self, series: Series | None = None) -> OperationView | None:
        return carry_out(self.world.box, series or self.series, self.start, self.resume)

    def standing(self) -> list[tuple[str, int, bool]]:
        runs = standing(self.world.box, self.series)
        return [(r.arm, r.n, bool(r.operation) and not r.open) for r in runs]


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """One that was run to its end; tests only look at it."""
    made = Pair(tmp_path_factory.mktemp("finished"))
    assert made.go() is None
    return made


@pytest.mark.parametrize(("runs", "said"), [(1, "AB"), (2, "ABBA"), (3, "ABBAAB"), (4, "ABBAABBA")])
def test_arms_come_in_turn_and_turned_about(runs: int, said: str) -> None:
    assert "".join(arm for arm, _ in order(runs)) == said
    assert sorted(order(runs)) == [(arm, n) for arm in "AB" for n in range(1, runs + 1)]


def test_each_run_is_an_ordinary_qualification_that_says_what_it_is_part_of(finished: Pair) -> None:
    terms = "decode, band 3 %, varies arguments"
    said = [f"A/B trial, arm {arm}, run {n} of 2: {terms}" for arm, n in order(2)]
    assert finished.ran == said
    views = [v for v in finished.world.box.operations.views() if v.kind == "qualify"]
    assert [v.outcome for v in views] == ["done"] * 4
    assert finished.go() is None
    assert finished.ran == said, "all was done already"


def test_bundles_of_all_runs_become_the_arms(finished: Pair) -> None:
    tmp, series = finished.world.tmp, finished.series
    folders = BundleFolders(tmp / "operations", tmp / "evidence")
    found = result(finished.world.box, series, lambda n: read_bundle(folders, folders.find(n)), ("A a", "B b"))
    runs = standing(finished.world.box, series)
    assert list(found.runs_a) == [f"{r.operation}/{series.a[:12]}" for r in runs if r.arm == "A"]
    assert list(found.runs_b) == [f"{r.operation}/{series.b[:12]}" for r in runs if r.arm == "B"]
    assert [r.field for r in found.refusals] == ["arguments", "lanes"], "this suite measures nothing"


def test_a_killed_run_is_taken_up_and_those_before_it_are_kept(pair: Pair) -> None:
    pair.start(plan_run(pair.world.box, pair.series, standing(pair.world.box, pair.series)[0]))
    pair.kill_at = "gates:acted"
    with pytest.raises(InterruptedError):
        pair.go()
    assert pair.world.points[-1] == "gates:acted"
    assert pair.standing() == [("A", 1, True), ("B", 1, False), ("B", 2, False), ("A", 2, False)]
    pair.kill_at = ""
    before = len(pair.ran)
    assert pair.go() is None
    assert pair.ran[before] == f"resume {pair.world.box.operations.views()[3].id}"
    assert len(pair.ran) == before + 3
    assert all(done for _, _, done in pair.standing())
    assert failed_tries(standing(pair.world.box, pair.series)) == ()


def test_a_run_that_fails_stops_the_series_is_kept_and_told_and_is_run_again(pair: Pair) -> None:
    pair.world.failing = {"b"}
    ended = pair.go()
    assert ended and (ended.outcome, "did not pass" in ended.why) == ("undone", True)
    assert pair.standing() == [("A", 1, True), ("B", 1, False), ("B", 2, False), ("A", 2, False)]
    pair.world.failing = set()
    assert pair.go() is None
    assert failed_tries(standing(pair.world.box, pair.series)) == (ended.id,)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"metric": "ttft"}, "terms decode, band 3 %, varies arguments, not ttft, band 3 %, varies arguments"),
        ({"band_pct": 5.0}, "terms decode, band 3 %, varies arguments, not decode, band 5 %, varies arguments"),
        ({"runs": 3}, "runs 2, not 3"),
        ({"suite": "other"}, "suite small, not other"),
    ],
)
def test_what_was_declared_before_the_first_run_cannot_be_changed_after_it(
    finished: Pair, change: dict[str, object], why: str
) -> None:
    with pytest.raises(Refused) as refused:
        finished.go(replace(finished.series, **change))  # type: ignore[arg-type]
    assert why in str(refused.value)
    assert "give another --id" in str(refused.value)


def test_another_serve_is_another_series(finished: Pair) -> None:
    series = finished.series
    with pytest.raises(Refused, match="serve A"):
        finished.go(replace(series, a=series.b))
    assert [r.operation for r in standing(finished.world.box, replace(series, id="next"))] == [""] * 4


def test_a_serve_that_does_not_run_is_refused_before_anything_starts(pair: Pair) -> None:
    pair.world.docker.stop(pair.series.a, 1)
    with pytest.raises(Refused, match="arm A, run 1: a is not running"):
        pair.go()
    assert pair.ran == []


def test_a_suite_without_lanes_is_refused_before_anything_runs() -> None:
    one = {"schema": "anvil.suite/1", "id": "s", "gates": ({"id": "g", "kind": "smoke"},)}
    with pytest.raises(Refused, match="suite s has no lanes"):
        with_lanes(Suite.model_validate(one))
    lane = {"id": "d", "kind": "depth-sweep", "prompt_tokens": (96,), "requests": 2}
    measured = Suite.model_validate({**one, "gates": ({"id": "g", "kind": "smoke"}, lane)})
    assert with_lanes(measured) is measured
