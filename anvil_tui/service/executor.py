"""Runs one operation: forward step by step, or back, always from what the journal says.

Before `decide forward` the only recovery is undo; after it, finish, unless the candidate no longer proves
its identity. At most one automatic undo; one that fails twice ends `halted` with what is true.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping
from typing import Any

from anvil_tui.core.drills import compared, differing
from anvil_tui.core.errors import AnvilError, EffectFailed, Stale
from anvil_tui.core.journal import Outcome, Record
from anvil_tui.core.plan import Step
from anvil_tui.service.drill import drill_deeds, keep
from anvil_tui.service.rotate import rotation_deeds
from anvil_tui.service.run import Run
from anvil_tui.service.traffic import all_deeds, lost, serving_now


class Executor:
    def __init__(self, run: Run) -> None:
        self.run = run
        self.deeds = {**all_deeds(), **drill_deeds(), **rotation_deeds()}

    def repeatable(self) -> bool:
        """Nothing was decided, and what comes before the decision only asks: a qualification is taken up again."""
        return self.run.plan.intent.verb == "qualify" and not _decision(self.run.journal.records())

    def recover(self, why: str) -> Outcome:
        """From wherever the journal of an interrupted operation stands, to an `end` record."""
        way = _decision(self.run.journal.records())
        if way == "forward":
            return self._finish()
        return self._undo() if way == "undo" else self._turn_back(why)

    # forward

    def forward(self) -> Outcome:
        """All steps from the first, to an `end` record."""
        for step in self.run.plan.steps:
            try:
                self.run.stop_if_asked()
                self.run.await_person(step)
                self._perform(step)
            except Exception as why:  # every failure, a bug included, must end in the way back
                self._failed(step, why)
                if self._decided():
                    return self._after_decision(step, why)
                return self._turn_back(_say(why))
        return self._end("done", "")

    def _finish(self) -> Outcome:
        """After the decision: repeat what follows it; each step looks first."""
        self.run.committed = True
        try:
            gone = self._candidate_lost()
        except AnvilError as why:
            return self._end("halted", f"whether the promoted serve lives cannot be told: {why}")
        if gone is not None:
            return self._turn_back(f"after the decision the candidate no longer proves itself: {gone}")
        names = [s.name for s in self.run.plan.steps]
        for step in self.run.plan.steps[names.index("decide") + 1 :]:
            try:
                self._perform(step)
            except Exception as why:  # as above: nothing may leave an operation without an end
                self._failed(step, why)
                return self._after_decision(step, why)
        return self._end("done", "")

    def _after_decision(self, step: Step, why: Exception) -> Outcome:
        if not self.run.memory.get("second try"):
            self.run.memory["second try"] = step.name
            return self._finish()
        return self._end("halted", f"decided forward, but {step.title} failed twice: {_say(why)}")

    def _candidate_lost(self) -> str | None:
        """Why the promoted serve is not proven any more; None when it is, or when there is none to prove."""
        record = next((s for s in self.run.plan.steps if s.deed == "record" and "incumbent" in s.args), None)
        if record is None or "serve" not in record.args:
            return None
        self.run.deadline_s = self.run.box.clock.monotonic_s() + 60
        return self.run.insist(record, lambda: lost(self.run, record.args["serve"]))

    # back

    def _turn_back(self, why: str) -> Outcome:
        self.run.journal.append("decide", way="undo", why=why)
        return self._undo()

    def _undo(self) -> Outcome:
        self.run.committed = True
        for step in self.run.plan.undo_steps:
            why = self._tried(step) and self._tried(step, pause_s=2.0)
            if why:
                self.run.residue += self._left_behind()
                return self._end("halted", f"{step.title} failed twice: {why}")
        self.run.residue += self._left_behind()
        return self._end("undone", _undo_reason(self.run.journal.records()))

    def _tried(self, step: Step, pause_s: float = 0.0) -> str:
        self.run.box.clock.sleep(pause_s)
        try:
            self._perform(step)
        except Exception as why:  # said in the journal; the second one ends the operation as halted
            self._failed(step, why)
            return _say(why)
        return ""

    # one step

    def _perform(self, step: Step) -> None:
        run, deed = self.run, self.deeds[step.deed]
        run.checkpoint(f"{step.name}:before")
        run.fence()
        run.journal.append("intent", step.name, title=step.title, deadline_s=step.deadline_s)
        run.checkpoint(f"{step.name}:intended")
        began_s = run.box.clock.monotonic_s()
        run.deadline_s = began_s + step.deadline_s
        seen = run.insist(step, lambda: deed.look(run, step))
        if seen is None:
            run.fence()
            run.insist(step, lambda: deed.act(run, step))
            run.checkpoint(f"{step.name}:acted")
            seen = run.insist(step, lambda: deed.look(run, step))
        if seen is None:
            raise EffectFailed(f"{step.title}: was done, but its effect cannot be read back")
        run.journal.append("done", step.name, **seen, took_s=round(run.box.clock.monotonic_s() - began_s, 3))
        run.committed = run.committed or step.deed == "decide"
        run.checkpoint(f"{step.name}:after")

    def _failed(self, step: Step, why: Exception) -> None:
        """Written down, unless somebody else writes this journal by now: then this process ends here."""
        if isinstance(why, Stale):
            raise why
        data: Mapping[str, Any] = {"why": _say(why)}
        if not isinstance(why, AnvilError):
            data = {**data, "trace": traceback.format_exception(why)[-3:]}
        self.run.journal.append("failed", step.name, **data)

    def _decided(self) -> bool:
        return _decision(self.run.journal.records()) == "forward"

    def _left_behind(self) -> list[str]:
        """A container that this operation made and could not take away."""
        if not any(s.deed == "create" for s in self.run.plan.steps):
            return []
        try:
            found = self.run.container({"created": True})
        except AnvilError as why:
            return [f"what this operation made cannot be listed: {why}"]
        return [f"container {found.id[:12]} ({found.status}) made by this operation"] if found else []

    def _end(self, outcome: Outcome, why: str) -> Outcome:
        if outcome == "halted":
            why = f"{why}; {serving_now(self.run)}"
        if outcome == "done":
            why = why or differing(compared(self.run.journal.records()))
        self._keep_drill(outcome, why)
        self.run.journal.append("end", outcome=outcome, why=why, residue=list(self.run.residue))
        return outcome

    def _keep_drill(self, outcome: Outcome, why: str) -> None:
        """Before the end is written, so that a process killed in between files it again; it hinders no end."""
        try:
            keep(self.run.box, self.run.operation, outcome, why)
        except AnvilError as trouble:
            self.run.residue.append(f"the drill is not on record: {trouble}")


def _decision(records: Iterable[Record]) -> str:
    """The last decision, "" = none yet."""
    ways = [str(r.data["way"]) for r in records if r.kind == "decide"]
    return ways[-1] if ways else ""


def _undo_reason(records: Iterable[Record]) -> str:
    whys = [str(r.data["why"]) for r in records if r.kind == "decide" and r.data["way"] == "undo"]
    return whys[-1] if whys else ""


def _say(why: Exception) -> str:
    return str(why) if isinstance(why, AnvilError) else f"{type(why).__name__}: {why}"
