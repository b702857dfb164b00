"""The operation process is killed with SIGKILL at every point; what the journal decided is what happens.

Points are taken from an unharmed run of the same plan, so a new step is tested without touching this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from anvil_tui.adapters.journal_file import OperationFolders
from tests.e2e.realbox import RealBox
from tests.e2e.worker import Worker
from tests.real.client_loop import ClientLoop

pytestmark = [pytest.mark.real, pytest.mark.e2e]

PRIMARY, OTHER = "smol-x4k", "smol-x8k"
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "promote good": (PRIMARY, {"verb": "promote", "recipe": OTHER, "role": "primary", "suite": "quick"}),
    "promote bad": (PRIMARY, {"verb": "promote", "recipe": "smol-dead", "role": "primary", "suite": "quick"}),
    "rollback": (OTHER, {"verb": "rollback", "role": "primary", "suite": "quick"}),
}


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as made:
        yield made


@dataclass
class Row:
    case: str
    point: str
    recover: str
    decision: str
    outcome: str
    right: bool
    why: str = ""


class KillRig:
    """Brings the box to the start of a case, runs it with a kill, recovers, and compares."""

    def __init__(self, box: RealBox, worker: Worker, case: str) -> None:
        self.box, self.worker, self.case = box, worker, case
        self.start, self.intent = CASES[case]
        self.former = ""

    def run(self, intent: dict[str, Any], kill_at: str = "") -> dict[str, Any]:
        made = self.worker.call("plan", workspace=str(self.box.dir), intent=intent)
        assert "operation" in made, made
        self.operation = made["operation"]
        return self.worker.call(
            "operate", workspace=str(self.box.dir), operation=self.operation, mode="start", kill_at=kill_at
        )

    def reset(self) -> None:
        """PRIMARY serves and nothing else exists; for a rollback OTHER serves over it."""
        incumbent = self.box.incumbent()
        if self.start == OTHER:
            if incumbent != OTHER:
                self.reset_to_primary(incumbent)
                assert self.run(CASES["promote good"][1])["exit"] == 0
            return
        self.reset_to_primary(incumbent)
        self.box.drop(keep=[self.box.record().roles["primary"].incumbent])

    def reset_to_primary(self, incumbent: str) -> None:
        if incumbent == OTHER:
            assert self.run(CASES["rollback"][1])["exit"] == 0
        elif incumbent != PRIMARY:
            assert self.run({**CASES["promote good"][1], "recipe": PRIMARY})["exit"] == 0

    def decision(self) -> str:
        journal = OperationFolders(self.box.dir / "state" / "operations").journal(self.operation)
        ways = [r.data["way"] for r in journal.records() if r.kind == "decide"]
        return str(ways[-1]) if ways else "none"

    def killed_at(self, point: str, recover: str) -> Row:
        self.reset()
        before, goal = self.box.incumbent(), OTHER if self.case == "promote good" else PRIMARY
        assert self.run(self.intent, kill_at=point)["killed"], f"{point} was not reached"
        decision = self.decision()
        mode = "resume" if decision == "forward" else recover
        ended = self.worker.call("operate", workspace=str(self.box.dir), operation=self.operation, mode=mode)
        expected = goal if decision == "forward" else before
        outcome = {0: "done", 1: "undone", 5: "halted"}.get(ended.get("exit", -1), str(ended))
        row = Row(self.case, point, mode, decision, outcome, True)
        row.right, row.why = self._judge(expected, outcome, "done" if decision == "forward" else "undone")
        return row

    def _judge(self, expected: str, outcome: str, wanted: str) -> tuple[bool, str]:
        if outcome != wanted:
            return False, f"ended {outcome}, prescribed {wanted}"
        try:
            self.box.settled(expected)
        except AssertionError as why:
            return False, str(why).splitlines()[0]
        return True, ""


@pytest.fixture
def rig(real_box: RealBox, worker: Worker) -> Callable[[str], KillRig]:
    return lambda case: KillRig(real_box, worker, case)


@pytest.mark.parametrize("case", CASES)
def test_every_kill_point_ends_as_the_journal_decided(
    case: str, rig: Callable[[str], KillRig], record_property: Callable[[str, object], None]
) -> None:
    made = rig(case)
    made.reset()
    points = distinct(list(made.run(made.intent)["points"]))
    assert len(points) >= 20
    rows = []
    with ClientLoop(made.box.dir) as clients:
        for number, point in enumerate(points):
            rows.append(made.killed_at(point, ("resume", "undo")[number % 2]))
    print(table(rows))
    wrong = [r for r in rows if not r.right]
    record_property("kill_points", f"{len(rows) - len(wrong)}/{len(rows)}")
    record_property("client_errors", len(clients.errors()))
    assert len(clients.answers()) > len(rows)
    assert wrong == []
    assert clients.errors() == []


TWO_PARTS = ("create", "start", "stop", "remove", "flip", "undo:st", "undo:remove")


def distinct(points: list[str]) -> list[str]:
    """Before, after and inside, once each: `X:before` is what `W:after` left, and `X:acted` differs from
    `X:after` only where the effect is outside (a container, an alias) and the record of it is not."""

    def own(number: int, point: str) -> bool:
        step, _, at = point.rpartition(":")
        return number == 0 or at not in ("before", "acted") or (at == "acted" and step.startswith(TWO_PARTS))

    return [p for n, p in enumerate(points) if own(n, p)]


def table(rows: list[Row]) -> str:
    head = f"{'case':13} {'killed at':28} {'by':7} {'decided':8} {'ended':8} right"
    lines = [
        f"{r.case:13} {r.point:28} {r.recover:7} {r.decision:8} {r.outcome:8} {'yes' if r.right else r.why}"
        for r in rows
    ]
    return "\n".join([head, *lines])
