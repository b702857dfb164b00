"""An A/B of two loaded serves: ordinary qualifications one after the other, in turn, then one comparison.

What it is stands in the frozen plan of each of its operations, so that it can be taken up by naming it again: the
journals are its only memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from anvil_tui.core.bundle import Bundle
from anvil_tui.core.compare import Comparison, compare
from anvil_tui.core.errors import Refused
from anvil_tui.core.facts import Facts
from anvil_tui.core.journal import OperationView
from anvil_tui.core.matching import Arm
from anvil_tui.core.plan import Intent, Plan
from anvil_tui.core.recipe import Recipe
from anvil_tui.service.box import Box
from anvil_tui.service.planning import plan

ArmName = Literal["A", "B"]

_REASON = re.compile(r"A/B (?P<id>\S+), arm (?P<arm>[AB]), run (?P<n>\d+) of (?P<runs>\d+): (?P<terms>.+)")


@dataclass(frozen=True, slots=True)
class Series:
    """What is compared, and by what: `metric`, `band_pct` and `varies` are declared before the first run.

    `a`, `b` are full container ids.
    """

    id: str
    a: str
    b: str
    suite: str
    runs: int
    metric: str
    band_pct: float
    varies: str = ""

    @property
    def terms(self) -> str:
        return f"{self.metric}, band {self.band_pct:g} %" + (f", varies {self.varies}" if self.varies else "")

    def serve(self, arm: ArmName) -> str:
        return self.a if arm == "A" else self.b

    def reason(self, arm: ArmName, n: int) -> str:
        return f"A/B {self.id}, arm {arm}, run {n} of {self.runs}: {self.terms}"


@dataclass(frozen=True, slots=True)
class Run:
    """One place in the order. `operation` "" = still to be run; `failed` are earlier tries of the same place."""

    arm: ArmName
    n: int
    operation: str = ""
    open: bool = False
    failed: tuple[str, ...] = ()


def order(runs: int) -> tuple[tuple[ArmName, int], ...]:
    """Arms and the number of their run, in turn and turned about, so that a steady drift falls on both alike.

    >>> "".join(arm for arm, _ in order(4))
    'ABBAABBA'
    """
    pairs: list[tuple[ArmName, int]] = []
    for n in range(1, runs + 1):
        pairs += [("A", n), ("B", n)] if n % 2 else [("B", n), ("A", n)]
    return tuple(pairs)


def standing(box: Box, series: Series) -> tuple[Run, ...]:
    """Every run of the series in its order, with what was run of it so far.

    Refused when a series of this id was begun with other serves, another suite or on other terms.
    """
    found = {run: Run(*run) for run in order(series.runs)}
    for view in box.operations.views():
        if view.kind != "qualify":
            continue
        intent = Plan.from_json(box.operations.plan(view.id)).intent
        told = _REASON.fullmatch(intent.reason)
        if told is None or told["id"] != series.id:
            continue
        arm: ArmName = "A" if told["arm"] == "A" else "B"
        _must_agree(series, intent, told["runs"], told["terms"], arm)
        at = (arm, int(told["n"]))
        found[at] = _with(found[at], view)
    return tuple(found.values())


def _must_agree(series: Series, intent: Intent, runs: str, terms: str, arm: ArmName) -> None:
    begun = {
        "runs": (runs, str(series.runs)),
        "terms": (terms, series.terms),
        "suite": (intent.suite, series.suite),
        f"serve {arm}": (intent.container_id[:12], series.serve(arm)[:12]),
    }
    other = [f"{name} {was}, not {now}" for name, (was, now) in begun.items() if was != now]
    if other:
        raise Refused(f"A/B {series.id} was begun with {'; '.join(other)}: give another --id")


def _with(run: Run, view: OperationView) -> Run:
    if view.outcome == "done":
        return replace(run, operation=view.id, open=False)
    if view.outcome == "undone" or view.accepted:
        return replace(run, failed=(*run.failed, view.id))
    return replace(run, operation=view.id, open=True) if view.started_at else run


def plan_run(box: Box, series: Series, run: Run, facts: Facts | None = None) -> Plan:
    """The plan of one run: a qualification like any other."""
    intent = Intent(
        "qualify", container_id=series.serve(run.arm), suite=series.suite, reason=series.reason(run.arm, run.n)
    )
    return plan(box, intent, facts)


def carry_out(
    box: Box, series: Series, start: Callable[[Plan], OperationView], resume: Callable[[str], OperationView]
) -> OperationView | None:
    """Run what is left, each run an operation; the first that does not end well, None = all are done.

    `start` and `resume` run one operation to its end.
    """
    for run in standing(box, series):
        if run.operation and not run.open:
            continue
        if run.open:
            ended = resume(run.operation)
        else:
            made = plan_run(box, series, run)
            if made.refusals:
                raise Refused(f"arm {run.arm}, run {run.n}: {'; '.join(made.refusals)}")
            ended = start(made)
        if ended.outcome != "done":
            return ended
    return None


def known_recipes(box: Box) -> Mapping[str, Recipe]:
    """By digest: those that made serves, and those of the workspace as they are now."""
    files = {f.recipe.digest(): f.recipe for f in box.recipes() if f.recipe}
    return {**files, **box.store.kept_recipes()}


def result(box: Box, series: Series, read: Callable[[str], Bundle], names: tuple[str, str]) -> Comparison:
    """The comparison of B with A over all runs. `read` finds a bundle by OPERATION/SERVE; `names` of the arms."""
    runs = standing(box, series)

    def arm(which: ArmName, name: str) -> Arm:
        mine = [r for r in runs if r.arm == which]
        return Arm(name, tuple(read(f"{r.operation}/{series.serve(which)[:12]}") for r in mine))

    return compare(
        arm("A", names[0]), arm("B", names[1]), metric=series.metric, band_pct=series.band_pct,
        varies=series.varies, recipes=known_recipes(box),
    )  # fmt: skip


def failed_tries(runs: Sequence[Run]) -> tuple[str, ...]:
    """Operations of the series that did not end well and were run again: kept, and told beside the result."""
    return tuple(operation for run in runs for operation in run.failed)
