"""Promote and rollback: one machine, the roles exchanged.

On a full box the incumbent stops before the candidate starts, with requests held at the gateway; with room
for both, the candidate starts first and the aliases move in one transaction while nobody waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from anvil_tui.core.admission import admit, evict, record_evicted, tell_evicted, undo_evicted
from anvil_tui.core.apply import tell_clients
from anvil_tui.core.draft import Candidate, Draft
from anvil_tui.core.facts import alias_text
from anvil_tui.core.gates import Suite
from anvil_tui.core.readiness import Bind, in_facts, judged, rested_on
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.shape import resurrects
from anvil_tui.core.workspace import Role
from anvil_tui.core.world import ServeRecord


def plan_promote(d: Draft) -> None:
    recipe, role = d.facts.recipe(d.intent.recipe), d.facts.role(d.intent.role)
    old = d.facts.incumbent(role)
    suite = d.facts.suite(d.intent.suite or role.promotion_suite)
    kept = d.facts.made_from(recipe, role)
    if kept and old and kept.container_id == old.container_id:
        if d.facts.running(kept):
            d.refuse(f"{recipe.id} is what serves {role.name} now")
        kept = None
    d.title = f"promote {recipe.id} to {role.name}"
    d.target(role=role.name, recipe=recipe, serve=kept, suite=suite)
    rollback_exists(d, old)
    candidate = d.candidate(recipe, role, kept, taken_slot=old.slot if old else "")
    asked = candidate.running and d.facts.workspace.policies.require_qualified
    if asked and kept and kept.qualified_suite != suite.id:
        had = f"qualified only by suite {kept.qualified_suite}" if kept.qualified_by else "not qualified"
        d.refuse(f"{recipe.id} is loaded but {had}: `qualify {recipe.id} --suite {suite.id}` first")
    ladder = d.ladder(role)
    after = (old.container_id, *(x for x in ladder if x != old.container_id)) if old else ladder
    _switch(d, role, old, candidate, suite, [x for x in after if not kept or x != kept.container_id])
    tell_clients(d, role.name)


def plan_rollback(d: Draft) -> None:
    role = d.facts.role(d.intent.role)
    old, ladder = d.facts.incumbent(role), d.ladder(role)
    d.title = f"rollback {role.name}"
    if not ladder:
        d.target(role=role.name)
        return d.refuse(f"{role.name} has no rollback: nothing was promoted over an earlier serve")
    back = d.facts.record.serves[ladder[0]]
    recipe = d.exact(back)
    suite = d.facts.suite(d.intent.suite or back.qualified_suite or recipe.suite)
    d.title = f"rollback {role.name} to {back.recipe_id} ({back.container_id[:12]})"
    d.target(role=role.name, serve=back, suite=suite)
    if not d.intent.suite and suite.id != recipe.suite:
        d.warnings.append(
            f"judged by suite {suite.id}, which qualified it last; its recipe names {recipe.suite}: "
            f"`rollback --role {role.name} --suite {recipe.suite}` judges by that"
        )
    prove_return(d, "rollback", back, old)
    if d.facts.container(back) is None:
        then = d.facts.record.serves.get(ladder[1]) if len(ladder) > 1 else None
        after = f", and `rollback` returns to {then.recipe_id} ({then.container_id[:12]})" if then else ""
        d.refuse(
            f"the retained container {back.container_id[:12]} of {back.recipe_id} does not exist any more, and no "
            f"waiver mends that: `unload {back.container_id[:12]}` takes it off the ladder{after}"
        )
    candidate = Candidate(recipe, role, back.slot, back.port, back, d.facts.running(back))
    _switch(d, role, old, candidate, suite, ladder[1:])
    tell_clients(d, role.name)


def rollback_exists(d: Draft, old: ServeRecord | None) -> None:
    """The incumbent will be the way back: refuse if it could not be started again."""
    if old is None:
        return d.warnings.append("nothing serves this role: there is no way back but `unload`")
    prove_return(d, "promote", old, old)
    stays_stopped(d, old)


def stays_stopped(d: Draft, old: ServeRecord) -> None:
    seen = d.facts.container(old)
    if seen and resurrects(seen):
        d.refuse(
            f"container {seen.name} has restart policy {seen.restart_policy}: it would resurrect after a stop"
        )


def prove_return(d: Draft, verb: Bind, back: ServeRecord, incumbent: ServeRecord | None) -> None:
    """What `core/readiness.py` finds of a return to `back`, as refusals and warnings; the plan rests on what binds
    it, and the journal's `begin` has that."""
    found = in_facts(d.facts, back, incumbent.container_id if incumbent else "")
    refusals, warnings = judged(verb, back.recipe_id, found)
    for why in refusals:
        d.refuse(why)
    d.warnings += warnings
    states = rested_on(verb, back.recipe_id, found, d.facts)
    d.rests_on["way_back"] = {"recipe": back.recipe_id, "container": back.container_id, "checks": states}


def must_stop_first(d: Draft, old: ServeRecord | None, c: Candidate) -> bool:
    if old is None or not d.facts.running(old) or c.running:
        return False
    shared = set(d.gpu_uuids(c.recipe)) & set(d.gpu_uuids(d.exact(old)))
    return c.recipe.exclusive or old.exclusive or old.slot == c.slot or bool(shared)


def _switch(
    d: Draft, role: Role, old: ServeRecord | None, c: Candidate, suite: Suite, ladder: Iterable[str]
) -> None:
    full = must_stop_first(d, old, c)
    victims = admit(d, c, leaving=(old,) if full else (), beside=old)
    d.prepare(c)
    evict(d, victims)
    if full and old:
        _leave_first(d, role, old, c.recipe)
    elif victims:
        d.free(c.recipe)
    if not c.running:
        d.start(c)
    d.gates(suite, c.recipe, **c.serve_args)
    d.decide(f"suite {suite.id} passed")
    d.point(role, c.slot, "flip", f"{alias_text(role.aliases)} to {c.slot}, in one transaction", alive=c.ref)
    d.verify(role, c)
    d.record_role(role, incumbent=c.ref, ladder=ladder, serve=c.serve_args, suite=suite.id)
    record_evicted(d, victims, c.recipe)
    if not full and old and d.facts.running(old) and not (c.kept and c.kept.container_id == old.container_id):
        retire(d, old)
    way_back(d, role, old, c, full)
    undo_evicted(d, victims)
    d.undo_record(role, c)
    d.undo_created(c)
    _describe(d, role, old, c, full)
    tell_evicted(d, victims)


def _leave_first(d: Draft, role: Role, old: ServeRecord, need: Recipe) -> None:
    d.hold(role)
    d.drain(old)
    d.stop(old, "stop-incumbent")
    d.free(need)


def retire(d: Draft, old: ServeRecord, name: str = "retire") -> None:
    """After the flip the former incumbent finishes what it has, then stops; it is never cut."""
    limit = d.intent.timeout_s or d.facts.workspace.policies.drain_timeout_s
    grace = d.exact(old).launch.stop_grace_s
    d.step(name, "retire", f"let {old.recipe_id} finish, then stop it, keep its container", limit + grace + 60,
           **d.seat_args(old), container=old.container_id, timeout_s=limit, grace_s=grace)  # fmt: skip


def way_back(
    d: Draft,
    role: Role,
    old: ServeRecord | None,
    c: Candidate,
    full: bool,
    leave: Callable[[], None] | None = None,
) -> None:
    """Nothing that serves is stopped before the incumbent is known to be able to; aliases never point at
    what is being stopped. `leave` writes how a candidate that clients may have reached is left.
    """
    runs = old if old and d.facts.running(old) else None
    if runs:
        d.undo_step("way-back", "way-back", f"prove that {runs.recipe_id} can start again", 30,
                    container=runs.container_id)  # fmt: skip
    if full and runs:
        d.undo_step("hold", "point", f"hold {alias_text(role.aliases)} unless {runs.recipe_id} runs", 30,
                    targets=dict.fromkeys(role.aliases, "hold"), unless_running=runs.container_id)  # fmt: skip
        if leave:
            leave()
        d.undo_candidate(c)
        d.undo_free(runs)
    if runs:
        d.undo_start(runs)
    d.undo_aliases(role)
    if runs and set(d.facts.aliases(role).values()) == {runs.slot}:
        d.verify(role, runs, "undo:verify")
    if not (full and runs):
        leave() if leave else d.undo_candidate(c)


def _describe(d: Draft, role: Role, old: ServeRecord | None, c: Candidate, full: bool) -> None:
    aliases, hold = alias_text(role.aliases), d.facts.workspace.gateway.hold_max_s
    d.confirm_word = c.recipe.served_name
    if full and old:
        d.interrupts = f"{aliases}: requests are held from `hold` to `flip`, at most {hold} s each, then 503"
        d.outage = f"drain, stop, load of {c.recipe.id} and its gates: no engine runs between stop and ready"
        d.rollback = f"{old.recipe_id}, container {old.container_id[:12]}, kept"
        d.on_failure = (
            f"before the decision: {old.recipe_id} is started again, judged ready, and gets the aliases back"
        )
    else:
        d.interrupts = f"nothing: {aliases} move in one transaction after the gates"
        d.outage = "none"
        d.rollback = f"{old.recipe_id}, container {old.container_id[:12]}, kept" if old else "none yet"
        d.on_failure = "before the decision: the aliases stay where they are"
