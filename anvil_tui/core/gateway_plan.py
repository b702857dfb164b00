"""What a gateway that can do less makes of a plan: what policies refuse, the steps it needs, and what clients see.

Plans are written for a gateway that holds requests and moves aliases in one transaction. One that reads its routes
when it starts restarts to move an alias, and to learn what a slot serves; each restart interrupts every alias.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace

from anvil_tui.core.box import Expected
from anvil_tui.core.draft import Draft
from anvil_tui.core.facts import alias_text
from anvil_tui.core.gateway_config import HOLD, NONE
from anvil_tui.core.plan import Step

# Seen: 0.6 s of a trial, 0.8 s from the old process's end to the new one's first answer.
RESTART_S = 60
_MEANS = {
    "holds": "hold requests while a role is quiesced", "atomic": "move aliases without a restart",
    "severs": "cut running requests", "counts": "count what is in flight", "durable": "remember over a restart",
    "strong_reads": "prove its state by one reading",
}  # fmt: skip


def fit(d: Draft) -> None:
    """Refuse what policies or the plan demand of the gateway in vain; for one that can do less than all, add the
    steps it needs and say what they interrupt."""
    can = d.facts.gateway.can
    if any(s.deed in ("point", "drain") for s in d.steps):
        for ability in d.facts.workspace.policies.gateway_must:
            if not getattr(can, ability):
                d.refuse(f"the gateway cannot {_MEANS[ability]}, and policies.gateway_must has {ability}")
    if not can.severs and d.on_timeout.startswith("sever") and any(s.deed == "drain" for s in d.steps):
        d.refuse(f"the gateway cannot cut requests, so a drain cannot end with {d.on_timeout}: abort or extend")
    if not can.errors:
        _judge_words(d)
    if can.holds and can.atomic:
        return
    walk = _Walk(d)
    d.steps = [made for step in d.steps for made in walk.over(step)]
    forth, walk.restarts = walk.restarts, []
    d.undo = [made for step in d.undo for made in walk.over(step)]
    _say(d, forth, [n for n in walk.restarts if "route-" in n])


def _judge_words(d: Draft) -> None:
    """A gate that judges how an engine refuses cannot do so through a gateway that keeps the words to itself."""
    for step in (s for s in d.steps if s.deed == "gates"):
        suite = d.facts.suite(step.args["suite"])
        for gate in (g for g in suite.gates if g.routed and g.kind == "overlong"):
            d.refuse(
                f"suite {suite.id}, gate {gate.id} cannot be run: the gateway does not pass on how an engine "
                "refuses a prompt; let it not be routed"
            )


@dataclass(slots=True)
class _Walk:
    """Follows the steps with what the gateway will have been told by then; `restarts` names those that restart
    it."""

    d: Draft
    restarts: list[str] = field(default_factory=list)
    told: dict[str, Expected] = field(default_factory=dict)
    at: dict[str, str] = field(default_factory=dict)
    serve: dict[str, Expected] = field(default_factory=dict)

    def __post_init__(self) -> None:
        gateway = self.d.facts.gateway
        self.told = {b.name: b.expects for b in gateway.backends if b.expects}
        self.at = dict(gateway.at)

    def over(self, step: Step) -> Iterable[Step]:
        self._learn(step)
        if step.deed == "point":
            yield from self._pointed(step)
        elif step.deed == "gates":
            yield from self._routed(self._slot(step), step.name)
            yield step
        else:
            yield step

    def _slot(self, step: Step) -> str:
        if "slot" in step.args:
            return str(step.args["slot"])
        serve = self.d.facts.record.serves.get(str(step.args.get("container", "")))
        return serve.slot if serve else ""

    def _learn(self, step: Step) -> None:
        """Steps that prove or judge a serve say what its slot will serve."""
        if step.deed not in ("ready", "gates"):
            return
        facts, serve = self.d.facts, self.d.facts.record.serves.get(str(step.args.get("container", "")))
        digest = step.args.get("digest") or (serve.recipe_digest if serve else "")
        recipe = facts.stored.get(digest) or facts.recipes.get(step.args.get("recipe", ""))
        if recipe and (slot := self._slot(step)):
            self.serve[slot] = Expected(recipe.served_name, recipe.envelope.context_tokens)

    def _routed(self, slot: str, before: str) -> Iterable[Step]:
        wanted = self.serve.get(slot)
        if wanted is None or slot not in self.told or self.told[slot] == wanted:
            return
        self.told[slot] = wanted
        prefix = "undo:" if before.startswith("undo:") else ""
        name = f"{prefix}route-{before.removeprefix(prefix)}"
        self.restarts.append(name)
        title = f"tell the gateway that {slot} serves {wanted.model}: it restarts"
        yield Step(name, "expect", title, self._limit_s, {"slot": slot, "expects": asdict(wanted)})

    def _pointed(self, step: Step) -> Iterable[Step]:
        targets = {a: str(t) for a, t in step.args["targets"].items()}
        for slot in sorted(set(targets.values()) - {HOLD, NONE}):
            yield from self._routed(slot, step.name)
        if set(targets.values()) <= {HOLD, NONE}:
            closes = "quiesce" if HOLD in targets.values() else "close"
            yield replace(step, title=f"{closes} {alias_text(targets)} at the gateway: 503 from then on")
            return
        moved = {a: t for a, t in targets.items() if t not in (HOLD, NONE, self.at.get(a))}
        if not moved:
            yield step
            return
        self.at |= moved
        self.restarts.append(step.name)
        where = ", ".join(sorted(set(targets.values())))
        title = f"{alias_text(targets)} to {where}: the gateway restarts, then admits what it finds itself"
        yield replace(step, title=title, deadline_s=self._limit_s)

    @property
    def _limit_s(self) -> int:
        return self.d.facts.workspace.policies.drain_timeout_s + RESTART_S


def _say(d: Draft, restarts: list[str], told_back: list[str]) -> None:
    parts = []
    held = [s for s in d.steps if s.deed == "point" and set(s.args["targets"].values()) == {HOLD}]
    for step in held:
        later = d.steps[d.steps.index(step) + 1 :]
        end = next((s.name for s in later if s.deed == "point" and s not in held), "readmit")
        parts.append(f"{alias_text(step.args['targets'])}: 503 from `{step.name}` to `{end}`, no request is held")
    if restarts:
        every = alias_text(sorted(d.facts.gateway.aliases))
        limit = d.facts.workspace.policies.drain_timeout_s
        at = ", ".join(f"`{name}`" for name in restarts)
        parts.append(
            f"the gateway restarts at {at}: each time every alias ({every}) answers 503 while what is in flight "
            f"finishes, at most {limit} s, then connections are refused for about a second; nothing is cut"
        )
    if parts:
        d.interrupts = "; ".join(parts)
    elif d.intent.verb == "readmit":
        d.interrupts = "nothing: requests are answered again"
    if restarts and d.outage == "none":
        d.outage = "the restarts of the gateway"
    if d.intent.verb == "quiesce":
        d.outage = "until readmit: 503"
    if told_back:
        d.on_failure += "; the gateway restarts for that, too"
    d.warnings = [w for w in d.warnings if not w.startswith("clients wait while a person thinks")]
