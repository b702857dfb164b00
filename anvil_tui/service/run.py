"""The context of one running operation, shared by its deeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from anvil_tui.core.box import Container
from anvil_tui.core.errors import AnvilError, BadFile, EffectFailed, NotFound, Stale, Unreachable
from anvil_tui.core.journal import WAITS
from anvil_tui.core.plan import Plan, Step
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.world import OPERATION_LABEL, BoxRecord
from anvil_tui.ports.operations import Journal
from anvil_tui.service.box import Box, Controls

POLL_S, PERSON_POLL_S = 0.1, 0.2
T = TypeVar("T")


class Cancelled(AnvilError):
    """Somebody asked the operation to stop; it goes back."""


@dataclass(slots=True)
class Run:
    """`memory` holds what a deed proved in this process; it is never trusted across a restart.

    `committed` = the decision was made, or the operation goes back: a cancel no longer turns it around.
    """

    operation: str
    generation: int
    begun_at: str
    plan: Plan
    box: Box
    controls: Controls
    journal: Journal
    checkpoint: Callable[[str], None]
    interrupted: Callable[[], str | None]
    deadline_s: float = 0.0
    committed: bool = False
    memory: dict[str, Any] = field(default_factory=dict)
    residue: list[str] = field(default_factory=list)

    def note(self, step: Step, text: str, **data: Any) -> None:
        """`waiting=True`: what the step waits for now, which says nothing of it once it is done."""
        self.journal.append("progress", step.name, text=text, **data)

    def remaining_s(self) -> float:
        return max(0.0, self.deadline_s - self.box.clock.monotonic_s())

    def wait(self, step: Step, ask: Callable[[], str | None], pause_s: float = POLL_S) -> None:
        """Ask until the answer is None. The last answer names what was missing when the deadline passed."""
        said = ""
        while (missing := self._asked(ask)) is not None:
            if missing != said:
                self.note(step, missing, waiting=True)
                said = missing
            if self.remaining_s() <= 0:
                raise EffectFailed(f"{step.title}: not within {step.deadline_s:.0f} s: {missing}")
            self.stop_if_asked()
            self.box.clock.sleep(pause_s)

    @staticmethod
    def _asked(ask: Callable[[], str | None]) -> str | None:
        """A source that is silent for a moment is not known yet: no reason to give up before the deadline."""
        try:
            return ask()
        except Unreachable as why:
            return str(why)

    def insist(self, step: Step, call: Callable[[], T]) -> T:
        """Call until the source answers or the step's deadline passes; the first silence is noted."""
        said = False
        while True:
            try:
                return call()
            except Unreachable as why:
                if self.remaining_s() <= 0:
                    raise
                if not said:
                    self.note(step, f"no answer, asking again: {why}", waiting=True)
                said = True
                self.stop_if_asked()
                self.box.clock.sleep(0.5)

    def await_person(self, step: Step) -> None:
        """Step by step: wait before it, with the lease held and no deadline, until somebody lets it go on."""
        if self.committed or not self.plan.intent.stepwise:
            return
        asked = self.box.operations
        asked.pause(self.operation, on=True)
        self.note(step, f"{WAITS}{step.title}", paused=True, waiting=True)
        try:
            while asked.paused(self.operation):
                self.stop_if_asked()
                self.box.clock.sleep(PERSON_POLL_S)
        finally:
            asked.pause(self.operation, on=False)
            self.note(step, "let go on", paused=False, waiting=True)

    def fence(self) -> None:
        """Stale when a newer operation, or a newer process of this one, has raised the record's generation."""
        try:
            self.fenced(self.box.store.read())
        except BadFile:
            return  # proves nothing; what needs the record fails there, and a way back must not need it

    def fenced(self, now: BoxRecord) -> BoxRecord:
        """The record, unless a newer process has raised its generation: then Stale."""
        if now.generation > self.generation:
            raise Stale(
                f"the box is of generation {now.generation}, {self.operation} here is {self.generation}: another "
                "process has taken over, so this one stops where it is"
            )
        return now

    def stop_if_asked(self) -> None:
        why = None if self.committed else self.interrupted()
        if why:
            raise Cancelled(why)

    def container(self, args: Mapping[str, Any]) -> Container | None:
        """The container that a step means: by full id, or the one that this operation made."""
        if args.get("container"):
            try:
                return self.box.containers.inspect(args["container"])
            except NotFound:
                return None
        mine = [c for c in self.box.containers.list() if c.labels.get(OPERATION_LABEL) == self.operation]
        if len(mine) > 1:
            raise EffectFailed(
                f"{len(mine)} containers carry the label {OPERATION_LABEL}={self.operation}; there may be one"
            )
        return mine[0] if mine else None

    def need_container(self, args: Mapping[str, Any]) -> Container:
        found = self.container(args)
        if found is None:
            raise NotFound(f"container {args.get('container') or 'made by ' + self.operation} does not exist")
        return found

    def recipe(self, args: Mapping[str, Any]) -> Recipe:
        """The exact recipe by digest, from the kept copies."""
        kept = self.box.store.kept_recipes().get(args["digest"])
        if kept is None:
            raise NotFound(f"recipe {args['recipe']} with digest {args['digest'][:12]} is not in state/recipes/")
        return kept
