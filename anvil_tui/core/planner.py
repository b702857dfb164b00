"""Plans: an intent and the facts become ordered steps, with the way back beside them.

Pure and deterministic: the same intent over the same facts gives the same hash. What forbids a plan is
collected in `refusals`, so that a preview shows every reason at once and fails where the real run would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anvil_tui.core.admission import admit, evict, record_evicted, released, tell_evicted, undo_evicted
from anvil_tui.core.apply import plan_apply
from anvil_tui.core.credentials import unproven, why_not_usable
from anvil_tui.core.draft import Draft
from anvil_tui.core.drill_plan import plan_drill
from anvil_tui.core.facts import Facts, alias_text
from anvil_tui.core.gates import Suite
from anvil_tui.core.gateway_plan import fit
from anvil_tui.core.plan import Intent, Plan
from anvil_tui.core.problems import evicted_text
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.removal import plan_remove
from anvil_tui.core.rotation import plan_rotate
from anvil_tui.core.switch import plan_promote, plan_rollback
from anvil_tui.core.world import OPERATION_LABEL

Unrunnable = Callable[[Suite, Recipe], Mapping[str, str]]


def make_plan(intent: Intent, facts: Facts, unrunnable: Unrunnable) -> Plan:
    """The plan for one intent. NotFound or Refused when the target itself cannot be named."""
    draft = Draft(intent, facts, unrunnable)
    if facts.unfinished:
        draft.refuse(
            f"operation {facts.unfinished} has no good end: `anvil-tui operations resume {facts.unfinished}` or "
            "`undo` it; when you have seen to it yourself, `operations accept` it"
        )
    if intent.verb in ("load", "promote", "rollback", "drill"):
        for stray in facts.strays():
            draft.refuse(
                f"container {stray.name} ({stray.id[:12]}) runs, made by {stray.labels[OPERATION_LABEL]}, "
                "and is not on record: resume or undo that operation, or stop the container"
            )
    if not facts.gateway.file_equal:
        draft.refuse("the gateway's alias file and its running map differ: run `anvil-tui gateway install`")
    _PLANS[intent.verb](draft)
    fit(draft)
    _prove_key(draft)
    return draft.plan()


def _prove_key(d: Draft) -> None:
    """Before anything is touched the key must be good with which the result will be verified. Other keys, and one
    that only the way back will need, are warned of."""
    first, others = d.facts.credentials[:1], d.facts.credentials[1:]
    verifies = any(s.deed == "verify" or s.args.get("routed") for s in (*d.steps, *d.undo))
    for credential in first:
        why = why_not_usable(credential)
        if why and verifies:
            d.refuse(f"{why}; nothing was touched")
        elif why and d.intent.verb in ("load", "unload", "quiesce", "drain"):
            d.warnings.append(f"what is promoted or readmitted next could not be verified: {why}")
    if verifies:
        d.warnings += unproven(others)


def _load(d: Draft) -> None:
    recipe, role = d.facts.recipe(d.intent.recipe), d.facts.role(d.intent.role)
    d.title = f"load {recipe.id} for {role.name}"
    d.target(role=role.name, recipe=recipe)
    kept = d.facts.made_from(recipe, role)
    if kept and d.facts.running(kept):
        d.refuse(f"{recipe.id} is already loaded: container {kept.container_id[:12]} in slot {kept.slot}")
    candidate = d.candidate(recipe, role, kept, taken_slot="")
    victims = admit(d, candidate)
    d.prepare(candidate)
    evict(d, victims)
    if victims:
        d.free(recipe)
    d.start(candidate)
    d.decide("the serve is ready")
    d.record_serve(candidate)
    record_evicted(d, victims, recipe)
    d.undo_candidate(candidate)
    undo_evicted(d, victims)
    if not candidate.kept:
        d.undo_step("record", "record", "forget the serve", 30, forget_made=True)
    d.undo_created(candidate)
    d.interrupts = "nothing: no alias moves"
    d.outage = "none"
    d.rollback = "unload stops it; its container is removed if the load fails"
    d.on_failure = "the container's log is kept with the operation, then it is stopped and removed"
    tell_evicted(d, victims)


def _unload(d: Draft) -> None:
    serve = d.facts.record.serves[d.intent.container_id]
    role = d.facts.role(serve.role)
    d.title = f"unload {serve.recipe_id} ({serve.container_id[:12]})"
    d.target(role=role.name, serve=serve)
    d.on_failure = "undone: aliases back, the serve keeps serving; nothing is cut"
    seen = d.facts.container(serve)
    if seen and seen.status == "removing":
        return d.refuse(f"{seen.going}; there is nothing to stop")
    if not d.facts.running(serve):
        return _remove_kept(d)
    holds = d.facts.incumbent(role) == serve
    live = holds or any(target == serve.slot for target in d.facts.aliases(role).values())
    if live:
        d.hold(role)
        d.confirm_word = serve.served_name
        d.interrupts = f"{alias_text(role.aliases)}: 503 with Retry-After from then on; nothing else serves them"
        d.outage = "until something is promoted to the role"
    else:
        d.interrupts, d.outage = "nothing: no alias points at it; what it still answers may finish", "none"
    d.drain(serve)
    d.undo_aliases(role)
    d.decide("nothing is in flight")
    if live:
        d.point(role, "none", "close-aliases", "answer 503: nothing serves this role")
    d.stop(serve, "stop")
    released(d, serve)
    if holds:
        d.record_role(role, incumbent="", ladder=(serve.container_id, *d.ladder(role)))
    d.rollback = f"the container is kept: `load {serve.recipe_id}` or `rollback` starts it again"


def _remove_kept(d: Draft) -> None:
    """A container that is gone already is on no ladder any more; one that exists is never taken off it."""
    serve = d.facts.record.serves[d.intent.container_id]
    gone = d.facts.container(serve) is None
    for name, held in d.facts.record.roles.items():
        if serve.container_id == held.incumbent or (serve.container_id in held.rollback and not gone):
            d.refuse(f"{serve.recipe_id} ({serve.container_id[:12]}) is the way back of role {name}: it is kept")
    d.title = f"unload: remove the stopped container of {serve.recipe_id} ({serve.container_id[:12]})"
    d.decide("it is stopped and nothing refers to it")
    d.step("remove", "remove", "remove the container", 60, container=serve.container_id)
    d.step("record", "record", "forget the serve", 30, forget=serve.container_id)
    d.interrupts, d.outage, d.rollback = (
        "nothing: it is stopped",
        "none",
        "none: this container is gone afterwards",
    )


def _qualify(d: Draft) -> None:
    serve = d.facts.record.serves[d.intent.container_id]
    recipe = d.exact(serve)
    suite = d.facts.suite(d.intent.suite or recipe.suite)
    d.title = f"qualify {serve.recipe_id} ({serve.container_id[:12]}) with suite {suite.id}"
    d.target(role=serve.role, serve=serve, suite=suite)
    if not d.facts.running(serve):
        d.refuse(f"{serve.recipe_id} is not running: `load {serve.recipe_id}` first")
    d.gates(suite, recipe, container=serve.container_id)
    d.undo_step(
        "record",
        "record",
        "end the earlier qualification if a gate failed",
        30,
        unqualified=serve.container_id,
    )
    d.decide("every gate passed")
    d.step("record", "record", "record the qualification", 30, qualified=serve.container_id, suite=suite.id)
    d.interrupts = "nothing; requests of the gates share the engine with whatever it serves"
    d.outage, d.rollback = "none", "not needed: nothing is changed but the record"
    d.on_failure = "the verdict is recorded with its observations; the serve keeps running"


def _quiesce(d: Draft) -> None:
    role = d.facts.role(d.intent.role)
    d.title = f"quiesce {role.name}"
    d.target(role=role.name, serve=d.facts.incumbent(role))
    if set(d.facts.aliases(role).values()) == {"hold"}:
        d.refuse(f"{role.name} is already quiesced")
    d.decide("quiesce is one reversible switch")
    d.hold(role)
    d.interrupts = f"new requests to {alias_text(role.aliases)} are held; running ones go on"
    d.outage = (
        f"until readmit; a request is held {d.facts.workspace.gateway.hold_max_s} s, then 503 with Retry-After"
    )
    d.rollback = f"`readmit {role.name}`"
    d.on_failure = "halted with the aliases as they are"


def _drain(d: Draft) -> None:
    role = d.facts.role(d.intent.role)
    serve = d.facts.incumbent(role)
    d.title = f"drain {role.name}"
    d.target(role=role.name, serve=serve)
    if serve is None:
        return d.refuse(f"nothing serves {role.name}")
    d.hold(role)
    d.drain(serve)
    d.undo_aliases(role)
    d.decide("nothing is in flight")
    d.confirm_word = serve.served_name
    d.interrupts = (
        f"new requests to {alias_text(role.aliases)} are held; running ones may finish until the deadline"
    )
    d.outage = "until readmit"
    d.rollback = f"`readmit {role.name}`"
    d.on_failure = f"time-out: {d.then}"


def _readmit(d: Draft) -> None:
    role = d.facts.role(d.intent.role)
    serve = d.facts.incumbent(role)
    d.title = f"readmit {role.name}"
    d.target(role=role.name, serve=serve)
    if serve is None:
        held = d.facts.record.roles.get(role.name)
        why = f"; {evicted_text(held)}" if held and held.evicted_for else ""
        return d.refuse(f"nothing to readmit: {role.name} has no incumbent; promote a recipe{why}")
    if set(d.facts.aliases(role).values()) == {serve.slot}:
        d.refuse(f"{role.name} is admitted already")
    if not d.facts.running(serve):
        d.refuse(f"the incumbent {serve.recipe_id} is not running: promote a recipe or roll back")
    d.ready(serve, "ready")
    d.undo_aliases(role)
    d.decide("the incumbent proved its identity and answered")
    d.point(role, serve.slot, "flip", f"aliases back to {serve.slot}", alive={"container": serve.container_id})
    d.verify(role, serve)
    d.interrupts, d.outage = "nothing; held requests go on", "none"
    d.rollback, d.on_failure = f"`quiesce {role.name}`", "the aliases stay held"


_PLANS: Mapping[str, Callable[[Draft], None]] = {
    "load": _load,
    "unload": _unload,
    "qualify": _qualify,
    "quiesce": _quiesce,
    "drain": _drain,
    "readmit": _readmit,
    "promote": plan_promote,
    "rollback": plan_rollback,
    "rotate": plan_rotate,
    "apply": plan_apply,
    "remove": plan_remove,
    "drill": plan_drill,
}
