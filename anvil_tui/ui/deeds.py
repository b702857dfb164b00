"""From a key to a started operation: freeze the target, plan in a thread, show the plan, start it.

Nothing here waits: what may block runs in a daemon thread, so that leaving the console never waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from anvil_tui.core.errors import AnvilError
from anvil_tui.core.journal import OperationView
from anvil_tui.core.plan import Plan
from anvil_tui.core.shelf import Disks
from anvil_tui.ui.actions import REGISTRY, Action
from anvil_tui.ui.modals.dialog import Dialog, sentence_panel
from anvil_tui.ui.modals.picker import Picker
from anvil_tui.ui.modals.plan_dialog import PlanDialog
from anvil_tui.ui.policies import Target, alarm_meant
from anvil_tui.ui.presenters import recipes, standing, storage
from anvil_tui.ui.presenters.cells import Cell, Panel, Row, spread
from anvil_tui.ui.presenters.operations import what_now
from anvil_tui.ui.seams import Control
from anvil_tui.ui.text import literal
from anvil_tui.ui.work import off_loop

if TYPE_CHECKING:
    from anvil_tui.ui.app import Console

T = TypeVar("T")


class Deeds:
    """One dialog at a time: `pending` is set in the same step that reads the key."""

    def __init__(self, app: Console, control: Control) -> None:
        self.app, self.control = app, control
        self.pending = False
        self._let_on = ("", "")

    def begin(self, action: Action, target: Target) -> None:
        """`target` is complete but for a recipe or a role that the operator has yet to choose."""
        if self.pending:
            return
        self.pending = True
        if action.kind == "alarm":
            self._acknowledge(action, target)
        elif action.kind == "operation":
            self._about_operation(action, target)
        elif action.kind in ("recipe", "role", "steps") and not target.role:
            self._choose_role(action, target)
        elif action.kind == "recipe" and not target.recipe:
            self._choose_recipe(action, target)
        elif action.kind == "suite":
            self._choose_suite(action, target)
        elif action.kind in ("client", "credential") and not target.target:
            self._choose_named(action, target)
        elif action.kind == "stored" and not target.target:
            self._look_at_disks(action, target)
        elif action.kind == "steps":
            self._again(REGISTRY["role.drill"], replace(target, stepwise=True))
        else:
            self._plan(action, target)

    def _again(self, action: Action, target: Target) -> None:
        """Go on with a more complete target, if the policy still says yes."""
        self.pending = False
        reason = action.policy(self.app.world, target)
        if reason:
            self.app.say(f"{action.label}: {reason}")
        else:
            self.begin(action, target)

    def _acknowledge(self, action: Action, target: Target) -> None:
        """At once: nothing of the box is changed, and the line says which one it was."""
        alarm = alarm_meant(self.app.world, target)
        if alarm is None:
            self.pending = False
            return

        def done(result: AnvilError | None) -> None:
            if isinstance(result, AnvilError):
                self._refused(action, result)
                return
            self.pending = False
            self.app.say(f"acknowledged: {literal(alarm.text, 300)}")

        self._call(partial(self.control.acknowledge, alarm), done)

    # what is still to be chosen

    def _choose_role(self, action: Action, target: Target) -> None:
        def rows(text: str, width: int) -> list[Row]:
            roles = self.app.world.workspace.roles
            return [spread([Cell(r.name, "strong"), Cell(f"  {', '.join(r.aliases)}", "dim")], [], width, r.name)
                    for r in roles if text.lower() in r.name]  # fmt: skip

        picker = Picker(f"{action.label}: for which role?", rows, lambda key: None)
        self.app.push_screen(picker, lambda key: self._chosen(action, target, role=key))

    def _choose_recipe(self, action: Action, target: Target) -> None:
        def rows(text: str, width: int) -> list[Row]:
            found = [f for f in self.app.world.recipes if text.lower() in recipes.haystack(f)]
            return [recipes.line(self.app.world, f, width) for f in found]

        def closed(key: str) -> str | None:
            return action.policy(self.app.world, Target(target.serve, target.role, key))

        title = f"{action.label} which recipe? for role {literal(target.role)}"
        serve = self.app.world.serve(target.serve)
        start = serve.name if serve and action.id == "recipe.promote" else ""
        if "recipe" in self.app.view.picked:
            start = self.app.view.recipe
        picker = Picker(title, rows, closed, start)
        self.app.push_screen(picker, lambda key: self._chosen(action, target, recipe=key))

    def _choose_suite(self, action: Action, target: Target) -> None:
        serve = self.app.world.serve(target.serve)
        usual = serve.recipe.suite if serve and serve.recipe else ""

        def rows(text: str, width: int) -> list[Row]:
            return [spread([Cell(name, "strong"), Cell("  the recipe's own" if name == usual else "", "dim")],
                           [], width, name) for name in self.app.world.suites if text.lower() in name]  # fmt: skip

        picker = Picker(f"{action.label} which suite?", rows, lambda key: None, usual)
        qualify = REGISTRY["serve.qualify"]
        self.app.push_screen(picker, lambda key: self._chosen(qualify, target, suite=key))

    def _choose_named(self, action: Action, target: Target) -> None:
        """A client or a credential, each with its state; the only one there is needs no choice."""
        kind = action.kind
        if len(standing.named(self.app.world, kind)) == 1:
            self._plan(action, target)
            return

        def closed(key: str) -> str | None:
            return action.policy(self.app.world, replace(target, target=_name(key)))

        def rows(text: str, width: int) -> list[Row]:
            return standing.choices(self.app.world, kind, text, width)

        title = f"{action.label} {'to which client' if kind == 'client' else 'which credential'}?"
        self.app.push_screen(Picker(title, rows, closed), lambda key: self._named(action, target, key))

    def _look_at_disks(self, action: Action, target: Target) -> None:
        self.app.say(f"{action.label}: looking at the disks")
        self._call(self.app.service.disks, partial(self._choose_stored, action, target))

    def _choose_stored(self, action: Action, target: Target, disks: Disks | AnvilError) -> None:
        self.app.say("")
        self.app.shelves.looked_at_disks(disks)
        if isinstance(disks, AnvilError):
            self._refused(action, disks)
            return
        if self._overtaken(action):
            return
        picker = Picker(
            f"{action.label} which? {storage.free(disks)}", partial(storage.choices, disks),
            partial(storage.why_kept, disks),
        )  # fmt: skip
        self.app.push_screen(picker, lambda key: self._named(action, target, key))

    def _named(self, action: Action, target: Target, key: str | None) -> None:
        """What was chosen by its name goes straight to its plan."""
        if key is None:
            self.pending = False
            return
        chosen = replace(target, target=_name(key))
        reason = action.policy(self.app.world, chosen)
        if reason:
            self.pending = False
            self.app.say(f"{action.label}: {reason}")
        else:
            self._plan(action, chosen)

    def _chosen(
        self,
        action: Action,
        target: Target,
        recipe: str | None = "",
        role: str | None = "",
        suite: str | None = "",
    ) -> None:
        if recipe is None or role is None or suite is None:
            self.pending = False
            return
        chosen: dict[str, Any] = {k: v for k, v in (("recipe", recipe), ("role", role), ("suite", suite)) if v}
        self._again(action, replace(target, **chosen))

    # plan, dialog, start

    def _plan(self, action: Action, target: Target) -> None:
        assert action.intent is not None
        intent = action.intent(target)
        self.app.say(f"{action.label}: planning")
        self._call(partial(self.control.plan, intent), partial(self._planned, action, target))

    def _planned(self, action: Action, target: Target, plan: Plan | AnvilError) -> None:
        self.app.say("")
        if isinstance(plan, AnvilError):
            self._refused(action, plan)
            return
        if self._overtaken(action):
            return

        def replan(done: Callable[[Plan | AnvilError], None]) -> None:
            self._call(partial(self.control.plan, plan.intent), done)

        dialog = PlanDialog(plan, action.label.capitalize(), replan)
        self.app.push_screen(dialog, lambda answer: self._answered(action, target, dialog, answer))

    def _overtaken(self, action: Action) -> bool:
        """One dialog at a time: what a person opened while this was made is what that person is at."""
        if not isinstance(self.app.screen, Dialog | Picker):
            return False
        self.pending = False
        self.app.say(f"{action.label}: dropped, another dialog was opened meanwhile; press {action.key} again")
        return True

    def _answered(self, action: Action, target: Target, dialog: PlanDialog, answer: str | None) -> None:
        """The box may have become closed to this deed while the dialog was open."""
        reason = action.policy(self.app.world, target)
        if answer is None or reason:
            self.pending = False
            if answer is not None:
                self.app.say(f"{action.label}: {reason}")
            return
        self._call(partial(self.control.start, dialog.plan), partial(self._started, action))

    def _started(self, action: Action, operation: str | AnvilError) -> None:
        if isinstance(operation, AnvilError):
            self._refused(action, operation)
            return
        self.pending = False
        # what was asked for is what the screen is about now, until a person moves the cursor
        self.app.look(replace(self.app.view, operation=operation, picked=self.app.view.picked - {"serve"}))
        self.app.say(f"{action.label} started: operation {operation}, it goes on without this console", operation)

    def _refused(self, action: Action, error: AnvilError) -> None:
        self.pending = False
        self._let_on = ("", "")
        self.app.push_screen(Dialog(sentence_panel(f"{action.label}: not done", literal(str(error), 4000))))

    # operations that exist already

    def _about_operation(self, action: Action, target: Target) -> None:
        operation = next(o for o in self.app.world.operations if o.id == target.operation)
        if action.id == "operation.resume" and operation.waits_for:
            self._one_step_on(action, operation)
            return
        head = f"{operation.kind} {literal(operation.target, 300)}\n{operation.id}"
        text = f"{head}\n\n{action.help}.\n{what_now(operation)}"
        draw = sentence_panel(f"{action.label} {operation.kind}", text)
        if action.id == "operation.cancel":  # two buttons that say Cancel would be a trap
            ask = "Why? The reason is kept in the journal:"
            dialog = Dialog(draw, f"Cancel the {operation.kind}", ask=ask, no="Let it go on")
        else:
            dialog = Dialog(draw, action.label.capitalize())
        self.app.push_screen(dialog, lambda answer: self._steer(action, target.operation, answer))

    def _one_step_on(self, action: Action, operation: OperationView) -> None:
        """The drill by steps was confirmed as a whole, and the strip shows the step: the key lets it go. Pressed
        again while nothing has moved yet it does not let the next one go, too."""
        self.pending = False
        waits = (operation.id, operation.waits_for)
        if waits == self._let_on:
            self.app.say(f"{action.label}: asked already")
            return
        self._let_on = waits
        self.pending = True
        self._steer(action, operation.id, "")

    def _steer(self, action: Action, operation: str, answer: str | None) -> None:
        if answer is None:
            self.pending = False
            return
        deeds: dict[str, Callable[[], None]] = {
            "operation.pause": partial(self.control.pause, operation, True),
            "operation.resume": self._resume(operation),
            "operation.undo": partial(self.control.undo, operation),
            "operation.cancel": partial(self.control.cancel, operation, answer or "no reason given"),
        }
        self._call(deeds[action.id], partial(self._steered, action))

    def _resume(self, operation: str) -> Callable[[], None]:
        """Let paused gates go on; start the process of an operation that has none again."""
        found = next((o for o in self.app.world.operations if o.id == operation), None)
        if found is not None and found.alive:
            return partial(self.control.pause, operation, False)
        return partial(self.control.resume, operation)

    def _steered(self, action: Action, result: AnvilError | None) -> None:
        if isinstance(result, AnvilError):
            self._refused(action, result)
            return
        self.pending = False
        self.app.say(f"{action.label}: asked")

    def _call(self, work: Callable[[], T], done: Callable[[T | AnvilError], None]) -> None:
        off_loop(self.app, work, done)


def _name(key: str) -> str:
    return "" if key == standing.ALL else key


def quit_dialog(text: str) -> Dialog:
    return Dialog(sentence_panel("Leave the console?", text), "Quit")


def help_dialog(rows: Callable[[int], list[Row]]) -> Dialog:
    return Dialog(lambda width: Panel("Help", tuple(rows(width))))
