"""The plan preview: it holds one frozen plan, and says so when the facts under it move."""

from __future__ import annotations

import math
from collections.abc import Callable

from textual.widgets import Input

from anvil_tui.core.errors import AnvilError
from anvil_tui.core.plan import Plan
from anvil_tui.core.world import World
from anvil_tui.ui.modals.dialog import Body, Dialog
from anvil_tui.ui.presenters import plans
from anvil_tui.ui.presenters.cells import View

_REPLAN_S = 2.0
Replan = Callable[[Callable[[Plan | AnvilError], None]], None]


class PlanDialog(Dialog):
    """Confirms `plan`. `replan` makes the plan again in a thread and calls back on the loop."""

    def __init__(self, plan: Plan, yes: str, replan: Replan) -> None:
        super().__init__(lambda width: plans.panel(self.plan, width), yes, word=plan.confirm_word)
        self.plan = plan
        self.closed = _closed(plan)
        self._replan = replan
        self._asking = False
        self._asked_s: float | None = None
        self._seen: World | None = None
        self._moved: tuple[str, str] | None = None

    def world_changed(self, world: World, view: View) -> None:
        if self._asked_s is None:
            self._asked_s = world.now_s
        self._seen = self._seen or self.console.world
        self._name_mover()
        if self._asking or world.now_s - self._asked_s < _REPLAN_S:
            return
        self._asking, self._asked_s = True, world.now_s
        self._replan(self._replanned)

    def _replanned(self, fresh: Plan | AnvilError) -> None:
        self._asking = False
        if not self.is_mounted or not self.is_attached:
            return
        if isinstance(fresh, AnvilError):
            self.closed = f"No plan any more: {fresh}"
            self._say()
        elif fresh.hash != self.plan.hash or fresh.refusals != self.plan.refusals:
            self._take(fresh)

    def _take(self, fresh: Plan) -> None:
        """Show the new plan, forget what was typed for the old one, focus Cancel again."""
        self._moved = (self.plan.hash, fresh.hash)
        self._name_mover()
        self.plan, self.closed = fresh, _closed(fresh)
        for box in self.query(Input):
            with box.prevent(Input.Changed):
                box.value = ""
        body = self.query_one(Body)
        body.show(self.console.world, View())
        body.refresh(layout=True)
        self._say()
        self.home()
        self.armed_at = math.inf
        self.call_after_refresh(self._arm)

    def _name_mover(self) -> None:
        """An operation of another console shows in the World a moment after it moved the facts of the plan."""
        if self._moved is None:
            return
        said = plans.moved_note(*self._moved, plans.mover(self._seen, self.console.world) if self._seen else "")
        if said != self.note:
            self.note = said
            self._say()


def _closed(plan: Plan) -> str:
    return "This plan is refused: nothing can be confirmed." if plan.refusals else ""
