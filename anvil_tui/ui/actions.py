"""The one registry of everything an operator can do: keys, hints, help and palette all read it.

An action with an intent changes the box. Its policy answers None, or the sentence why it cannot run now;
the planner and the operation itself ask again, so a policy that is too kind does no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from anvil_tui.core.plan import Intent
from anvil_tui.core.world import World
from anvil_tui.ui import keymap, policies
from anvil_tui.ui.policies import Target

Tier = Literal["read", "note", "reversible", "traffic"]
Kind = Literal[
    "none", "serve", "suite", "role", "steps", "recipe", "credential", "operation", "client", "stored", "alarm"
]
Policy = Callable[[World, Target], str | None]
Make = Callable[[Target], Intent]


def _always(world: World, target: Target) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Action:
    """`id` is public: `[keys]` of the settings names it. `keys` are its own; a person may have given it others."""

    id: str
    label: str
    keys: tuple[str, ...]
    help: str
    tier: Tier = "read"
    kind: Kind = "none"
    policy: Policy = _always
    intent: Make | None = None

    def __post_init__(self) -> None:
        keymap.own(self.id, self.keys)

    @property
    def key(self) -> str:
        """Its first key in this console, as a person writes it."""
        return keymap.key(self.id)

    @property
    def mutates(self) -> bool:
        return self.tier != "read"


ACTIONS: tuple[Action, ...] = (
    Action("view.help", "help", ("question_mark",), "What every key does, and why one is closed"),
    Action("view.palette", "commands", ("colon", "ctrl+p"), "Find a command or a thing by its name, and go there"),
    Action("view.filter", "filter", ("slash",), "Show only rows with a text; empty shows all"),
    Action("view.overview", "overview", ("1",), "The whole box on one screen"),
    Action("view.recipes", "recipes", ("2",), "All recipes with decision, envelope and licence"),
    Action("view.operations", "operations", ("3",), "Journal of each operation, step by step"),
    Action("view.gates", "gates", ("4",), "Every gate of a qualification"),
    Action("view.logs", "logs", ("5",), "The log of the selected serve on the whole screen"),
    Action("view.compare", "compare", ("6",), "Bundles of evidence against each other"),
    Action("view.gateway", "gateway", ("7",), "Where aliases point, and every request in progress"),
    Action("view.standing", "standing", ("8",), "Problems, ways back, drills, owners of GPUs, credentials"),
    Action("view.storage", "storage", ("9",), "Images, model caches and stopped containers, with who needs each"),
    Action("view.history", "history", ("0",), "What was recorded of the box; enter replays it"),
    Action("view.arm", "mark", ("space",), "Mark two recipes, put a bundle in arm A or B, play a replay"),
    Action("view.verify", "verify", ("v",), "Check the selected bundles by their hashes"),
    Action("view.detail", "detail", ("enter",), "The selected thing in full, with its whole id"),
    Action("view.back", "back", ("escape",), "Clear the filter, or go back one screen"),
    Action("view.next", "next pane", ("tab",), "Move to the next pane"),
    Action("view.previous", "previous pane", ("shift+tab",), "Move to the previous pane"),
    Action("view.pause", "pause log", ("f",), "Stop the log, or follow again; on gates the running one"),
    Action("view.zone", "UTC or local", ("t",), "Show times in UTC or in local time"),
    Action("view.theme", "theme", ("T",), "The next theme: dark, light, high contrast, colour-blind"),
    Action("view.copy", "copy", ("y",), "The selected full id, or the log, to the terminal's clipboard"),
    Action("view.export", "export", ("E",), "Write the last 15 minutes and now as one redacted file"),
    Action("view.redraw", "redraw", ("ctrl+l",), "Draw everything again; on storage, look at the disks again"),
    Action("view.suspend", "suspend", ("ctrl+z",), "Back to the shell; `fg` takes the console up again"),
    Action("view.quit", "quit", ("q", "ctrl+c"), "Leave the console; operations and serves go on"),
    Action("replay.before", "event before", ("left_square_bracket",), "To one event back", policy=policies.replay),
    Action("replay.after", "next event", ("right_square_bracket",), "To the next event", policy=policies.replay),
    Action("replay.back", "step back", ("comma",), "One frame back", policy=policies.replay),
    Action("replay.on", "step on", ("full_stop",), "One frame on", policy=policies.replay),
    Action("replay.slower", "slower", ("less_than_sign",), "Play more slowly", policy=policies.replay),
    Action("replay.faster", "faster", ("greater_than_sign",), "Play faster, up to 240 ×", policy=policies.replay),
    Action("replay.jump", "jump to a time", ("at",), "To the frame of a time", policy=policies.replay),
    Action(
        "recipe.load", "load", ("l",), "Start a serve from a recipe beside what serves",
        "reversible", "recipe", policies.load, lambda t: Intent("load", recipe=t.recipe, role=t.role),
    ),
    Action(
        "serve.qualify", "qualify", ("g",), "Run the gates of its suite on the selected serve",
        "reversible", "serve", policies.qualify,
        lambda t: Intent("qualify", container_id=t.serve, suite=t.suite),
    ),
    Action(
        "serve.suite", "qualify with", ("G",), "Choose a suite, and run its gates on the selected serve",
        "reversible", "suite", policies.qualify,
    ),
    Action(
        "role.quiesce", "quiesce", ("u",), "New requests wait, or get 503 if the gateway cannot hold",
        "reversible", "role", policies.quiesce, lambda t: Intent("quiesce", role=t.role),
    ),
    Action(
        "role.drain", "drain", ("d",), "Quiesce, and wait until nothing is in flight",
        "traffic", "role", policies.drain, lambda t: Intent("drain", role=t.role),
    ),
    Action(
        "role.readmit", "readmit", ("a",), "Let new and waiting requests through again",
        "reversible", "role", policies.readmit, lambda t: Intent("readmit", role=t.role),
    ),
    Action(
        "recipe.promote", "promote", ("p",), "Make a recipe what serves, under held traffic",
        "traffic", "recipe", policies.promote, lambda t: Intent("promote", recipe=t.recipe, role=t.role),
    ),
    Action(
        "role.rollback", "rollback", ("b",), "Return to the exact retained container",
        "traffic", "role", policies.rollback, lambda t: Intent("rollback", role=t.role),
    ),
    Action(
        "role.drill", "drill", ("D",), "Roll back and come home, timed and compared fact by fact",
        "traffic", "role", policies.drill, lambda t: Intent("drill", role=t.role, stepwise=t.stepwise),
    ),
    Action(
        "role.steps", "drill by steps", ("S",), "A drill that waits for you before each step",
        "traffic", "steps", policies.drill,
    ),
    Action(
        "serve.unload", "unload", ("x",), "Stop the selected serve; its container is kept",
        "traffic", "serve", policies.unload, lambda t: Intent("unload", container_id=t.serve),
    ),
    Action(
        "client.apply", "apply", ("A",), "Write what serves into the catalogs of clients",
        "reversible", "client", policies.apply, lambda t: Intent("apply", target=t.target),
    ),
    Action(
        "credential.rotate", "rotate", ("K",), "A new client key in the gateway and in every copy of it",
        "reversible", "credential", policies.rotate, lambda t: Intent("rotate", target=t.target),
    ),
    Action(
        "storage.remove", "remove", ("X",), "Remove an image or a cached model to which nothing refers",
        "traffic", "stored", policies.remove, lambda t: Intent("remove", target=t.target),
    ),
    Action(
        "operation.pause", "pause", ("w",), "Hold the gates before their next request; the lease stays held",
        "reversible", "operation", policies.pause,
    ),
    Action(
        "operation.resume", "resume", ("r",), "Let paused gates, or an interrupted operation, go on",
        "reversible", "operation", policies.resume,
    ),
    Action(
        "operation.undo", "undo", ("z",), "Take an interrupted operation back, before its decision",
        "reversible", "operation", policies.undo,
    ),
    Action(
        "operation.cancel", "cancel", ("c",), "Ask the running operation to stop and undo itself",
        "reversible", "operation", policies.cancel,
    ),
    Action(
        "alarm.ack", "acknowledge", ("exclamation_mark",),
        "You have seen the alarm; every console shows who and when", "note", "alarm", policies.acknowledge,
    ),
)  # fmt: skip
REGISTRY: dict[str, Action] = {a.id: a for a in ACTIONS}
BY_VERB: dict[str, Action] = {a.id.split(".")[1]: a for a in ACTIONS if a.intent}
