"""The operation process is killed with SIGKILL at every point; what the journal decided is what happens.

Points are taken from an unharmed run of the same plan, so a new step is tested without touching this file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from anvil_tui.adapters.journal_file import OperationFolders
from tests.e2e.realbox import RealBox
from tests.e2e.worker import Worker
from tests.real.client_loop import ClientLoop
from tests.real.workspace import fast_recipe, keep_suites

pytestmark = [pytest.mark.real, pytest.mark.e2e]

ROLE = {"role": "primary", "suite": "quick"}
A, B, DEAD = "kill-a", "kill-b", "kill-dead"  # A and B want the whole box
C, D = "kill-c", "kill-d"  # these two may run side by side


@dataclass(frozen=True)
class Place:
    """What runs, what the public aliases reach, and who holds the role."""

    running: tuple[str, ...]
    aliases: str
    incumbent: str


def serving(recipe: str) -> Place:
    return Place((recipe,), recipe, recipe)


@dataclass(frozen=True)
class Case:
    """`before` -> `after` by `intent`. `back` brings the box from `after` to `before`; "" = another way is known
    to the rig. `outage` = clients are answered 503 afterwards, so none are there. `only` picks points by their
    ends: those of a drill are twice a promotion's, and all of them are tried in memory (tests/unit)."""

    before: Place
    after: Place
    intent: dict[str, Any]
    back: dict[str, Any] = field(default_factory=dict)
    outage: bool = False
    at_least: int = 20
    only: tuple[str, ...] = ()


OVER_A = ("rollback", "drill")
HELD = Place((C,), "hold", C)
CASES = {
    "promote good": Case(serving(A), serving(B), {"verb": "promote", "recipe": B, **ROLE}),
    "promote bad": Case(serving(A), serving(A), {"verb": "promote", "recipe": DEAD, **ROLE}),
    "rollback": Case(
        serving(B), serving(A), {"verb": "rollback", **ROLE}, {"verb": "promote", "recipe": B, **ROLE}
    ),
    "drill": Case(serving(B), serving(B), {"verb": "drill", **ROLE}, at_least=6, only=(":acted", "decide:after")),
    "load": Case(serving(C), Place((C, D), C, C), {"verb": "load", "recipe": D, "role": "primary"}, at_least=10),
    "quiesce": Case(
        serving(C),
        HELD,
        {"verb": "quiesce", "role": "primary"},
        {"verb": "readmit", "role": "primary"},
        at_least=4,
    ),
    "drain": Case(
        serving(C), HELD, {"verb": "drain", "role": "primary"}, {"verb": "readmit", "role": "primary"}, at_least=6
    ),
    "unload": Case(
        serving(C),
        Place((), "none", ""),
        {"verb": "unload"},
        {"verb": "rollback", **ROLE},
        outage=True,
        at_least=9,
    ),
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
    why: str = ""
    seconds: float = 0.0


class KillRig:
    """Brings the box to the start of a case, runs it with a kill, recovers, and compares."""

    def __init__(self, box: RealBox, worker: Worker, name: str) -> None:
        self.box, self.worker, self.name, self.case = box, worker, name, CASES[name]
        self.before, self.after, self.intent = self.case.before, self.case.after, self.case.intent

    def run(self, intent: dict[str, Any], kill_at: str = "") -> dict[str, Any]:
        if intent["verb"] == "unload":
            intent = {**intent, "container_id": self.box.record().roles["primary"].incumbent}
        made = self.worker.call("plan", workspace=str(self.box.dir), intent=intent)
        assert "operation" in made, made
        self.operation = made["operation"]
        return self.worker.call(
            "operate", workspace=str(self.box.dir), operation=self.operation, mode="start", kill_at=kill_at
        )

    def place(self) -> Place:
        return Place(tuple(self.box.running()), self.box.slot_recipe(), self.box.incumbent())

    def reset(self) -> None:
        """The box is at `before`, with nothing else on it. A promotion that was done is next tried the other way
        round, which costs no way back."""
        now = self.place()
        if self.name == "promote good" and now == self.after:
            self.before, self.after = self.after, self.before
            self.intent = {**self.intent, "recipe": self.after.incumbent}
        elif now == self.after != self.before and self.case.back and self.box.record().roles:
            assert self.run(self.case.back)["exit"] == 0
        elif self.box.incumbent() != self.before.incumbent:
            self._from_elsewhere()
        if self.name not in OVER_A:
            self.box.drop(keep=[self.box.record().roles["primary"].incumbent])
        assert self.place() == self.before

    def _from_elsewhere(self) -> None:
        """As the first row of a case finds the box; the start of a rollback is a promotion over A."""
        promotion = {"verb": "promote", **ROLE}
        for recipe in (A, B) if self.name in OVER_A else (self.before.incumbent,):
            assert self.run({**promotion, "recipe": recipe})["exit"] == 0

    def decision(self) -> str:
        journal = OperationFolders(self.box.dir / "state" / "operations").journal(self.operation)
        ways = [r.data["way"] for r in journal.records() if r.kind == "decide"]
        return str(ways[-1]) if ways else "none"

    def killed_at(self, point: str, recover: str) -> Row:
        began = time.monotonic()
        self.reset()
        assert self.run(self.intent, kill_at=point)["killed"], f"{point} was not reached"
        decision = self.decision()
        mode = "resume" if decision == "forward" else recover
        ended = self.worker.call("operate", workspace=str(self.box.dir), operation=self.operation, mode=mode)
        outcome = {0: "done", 1: "undone", 5: "halted"}.get(ended.get("exit", -1), str(ended))
        wanted = ("done", self.after) if decision == "forward" else ("undone", self.before)
        why = self._wrong(outcome, *wanted)
        return Row(self.name, point, mode, decision, outcome, why, time.monotonic() - began)

    def _wrong(self, outcome: str, wanted: str, place: Place) -> str:
        if outcome != wanted:
            return f"ended {outcome}, prescribed {wanted}"
        if (now := self.place()) != place:
            return f"{now}, prescribed {place}"
        return "" if self.box.gateway().file_equal else "the gateway's file and process differ"


@pytest.fixture
def rig(real_box: RealBox, worker: Worker) -> Callable[[str], KillRig]:
    keep_suites(real_box.dir, "quick", "small")
    fast_recipe(real_box.dir, A)
    fast_recipe(real_box.dir, B, context_tokens="1536")
    fast_recipe(real_box.dir, DEAD, of="smol-dead")
    fast_recipe(real_box.dir, C, exclusive="false")
    fast_recipe(real_box.dir, D, exclusive="false", context_tokens="1536")
    return lambda case: KillRig(real_box, worker, case)


@pytest.mark.parametrize("case", CASES)
def test_every_kill_point_ends_as_the_journal_decided(
    case: str, rig: Callable[[str], KillRig], record_property: Callable[[str, object], None]
) -> None:
    made = rig(case)
    made.reset()
    points = distinct(list(made.run(made.intent)["points"]))
    if made.case.only:
        points = [p for p in points if p.endswith(made.case.only)]
    assert len(points) >= made.case.at_least
    rows = []
    with ExitStack() as clients:
        loop = None if made.case.outage else clients.enter_context(ClientLoop(made.box.dir))
        for number, point in enumerate(points):
            rows.append(made.killed_at(point, ("resume", "undo")[number % 2]))
        made.reset()  # nobody may be left on hold when the clients are told to stop
    print(table(rows))
    wrong = [r for r in rows if r.why]
    record_property("kill_points", f"{len(rows) - len(wrong)}/{len(rows)}")
    assert wrong == []
    if loop:
        record_property("client_errors", len(loop.errors()))
        assert len(loop.answers()) > len(rows)
        assert loop.errors() == []


TWO_PARTS = ("create", "start", "stop", "remove", "flip", "undo:st", "undo:remove")


def distinct(points: list[str]) -> list[str]:
    """Before, after and inside, once each: `X:before` is what `W:after` left, and `X:acted` differs from
    `X:after` only where the effect is outside (a container, an alias) and the record of it is not."""

    def own(number: int, point: str) -> bool:
        step, _, at = point.rpartition(":")
        return number == 0 or at not in ("before", "acted") or (at == "acted" and step.startswith(TWO_PARTS))

    return [p for n, p in enumerate(points) if own(n, p)]


def table(rows: list[Row]) -> str:
    head = f"{'case':13} {'killed at':28} {'by':7} {'decided':8} {'ended':8} {'s':>5} right"
    lines = [
        f"{r.case:13} {r.point:28} {r.recover:7} {r.decision:8} {r.outcome:8} {r.seconds:5.1f} {r.why or 'yes'}"
        for r in rows
    ]
    return "\n".join([head, *lines])
