"""Intents and plans: what will be done, to which exact target, in which order, and what it rests on.

A plan is made by pure functions of `Facts` and hashed; the operation process makes it again under the
lease and refuses if the hash is another.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from anvil_tui.core.workspace import OnDrainTimeout

Verb = Literal[
    "load", "unload", "qualify", "quiesce", "drain", "readmit", "promote", "rollback", "drill", "rotate", "apply",
    "remove",
]  # fmt: skip
VERBS: tuple[Verb, ...] = (
    "load", "unload", "qualify", "quiesce", "drain", "readmit", "promote", "rollback", "drill", "apply", "rotate",
    "remove",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Intent:
    """What an operator asked for, with its target frozen.

    `recipe` for load and promote; `container_id` for unload and qualify; `role` for quiesce, drain,
    readmit, promote, rollback and drill; `target` names a credential (rotate), a client (apply) or a stored
    thing (remove). `timeout_s`, `on_timeout` and `extend_s` bound a drain, "" and None = as the policies say;
    `suite` chooses gates; `evict` lets evictable serves be stopped for it; `stepwise` waits for a person before
    each step.
    """

    verb: Verb
    recipe: str = ""
    container_id: str = ""
    role: str = ""
    slot: str = ""
    suite: str = ""
    timeout_s: int | None = None
    on_timeout: OnDrainTimeout | Literal[""] = ""
    extend_s: int | None = None
    target: str = ""
    evict: bool = False
    stepwise: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a plan. `name` is unique in the plan; `deed` names its implementation; `args` are JSON.

    `title` is what a person reads.
    """

    name: str
    deed: str
    title: str
    deadline_s: float
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """Ordered steps with what they rest on and what they interrupt.

    `facts` is the JSON-able extract of the world that the plan depends on; `hash` covers intent, steps and
    facts. `refusals` is non-empty when the plan must not run; it is shown, and run nothing. `decide_at` is
    the name of the step before which recovery means undo. `details` are texts of several lines, such as a diff.
    """

    intent: Intent
    title: str
    steps: tuple[Step, ...]
    undo_steps: tuple[Step, ...]
    facts: Mapping[str, Any]
    interrupts: str
    outage: str
    rollback: str
    on_failure: str
    memory: str = ""
    confirm_word: str = ""
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    gates: tuple[Mapping[str, Any], ...] = ()
    details: tuple[str, ...] = ()

    @property
    def hash(self) -> str:
        """First 12 hex digits of the SHA-256 over intent, steps and facts."""
        body = {
            "intent": asdict(self.intent),
            "steps": [asdict(s) for s in self.steps],
            "undo": [asdict(s) for s in self.undo_steps],
            "facts": self.facts,
        }
        return hashlib.sha256(json.dumps(body, sort_keys=True, default=str).encode()).hexdigest()[:12]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "hash": self.hash}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Plan:
        """The plan as `to_json` wrote it."""
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in raw.items() if k != "hash"}
        intent = dict(raw["intent"])
        if intent.pop("sever", False):  # what plans said before there were more outcomes than two
            intent["on_timeout"] = "sever"
        fields["intent"] = Intent(**intent)
        fields["steps"] = tuple(Step(**s) for s in raw["steps"])
        fields["undo_steps"] = tuple(Step(**s) for s in raw["undo_steps"])
        return cls(**fields)
