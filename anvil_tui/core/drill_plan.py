"""The drill: one operation that rolls back and comes home, by the pieces of promote and rollback.

The record of who holds the role does not move: until `decide` the only way to go is back to the incumbent.
"""

from __future__ import annotations

from anvil_tui.core.admission import admit
from anvil_tui.core.draft import Candidate, Draft
from anvil_tui.core.drills import END, HOME, START
from anvil_tui.core.facts import alias_text
from anvil_tui.core.gates import Suite
from anvil_tui.core.readiness import in_facts, judged
from anvil_tui.core.switch import must_stop_first, prove_return, retire, stays_stopped, way_back
from anvil_tui.core.workspace import Role
from anvil_tui.core.world import ServeRecord

FACTS_S = 30


def plan_drill(d: Draft) -> None:
    role = d.facts.role(d.intent.role)
    old, ladder = d.facts.incumbent(role), d.ladder(role)
    d.title = f"drill {role.name}"
    if old is None or not ladder:
        d.target(role=role.name)
        had = "nothing serves it" if old is None else "nothing was promoted over an earlier serve"
        return d.refuse(f"{role.name} has no way back to drill: {had}")
    back = d.facts.record.serves[ladder[0]]
    d.title = f"drill {role.name} to {back.recipe_id} ({back.container_id[:12]}) and home"
    _refusals(d, role, old, back)
    c = Candidate(d.exact(back), role, back.slot, back.port, back, d.facts.running(back))
    home = Candidate(d.exact(old), role, old.slot, old.port, old, running=False)
    full = must_stop_first(d, old, c)
    admit(d, c, leaving=(old,) if full else (), beside=old)
    suite, suite_home = _suite(d, c), _suite(d, home)
    d.target(role=role.name, serve=back, suite=suite)
    d.rests_on["suite home"] = suite_home.model_dump(mode="json", by_alias=True)
    d.rests_on["drill"] = {
        "incumbent": old.container_id, "incumbent_name": old.recipe_id,
        "way_back": back.container_id, "way_back_name": back.recipe_id,
    }  # fmt: skip
    _facts(d, START, "take the facts of the start")
    _prove(d, back, "prove")
    _leg(d, c, leaving=old, suite=suite, full=full)
    _prove(d, old, f"prove{HOME}")
    _leg(d, home, leaving=back, suite=suite_home, full=full, suffix=HOME, keeps=c.running)
    _facts(d, END, "compare the end with the start, fact by fact")
    d.decide("the incumbent serves again, and the end was compared with the start")
    way_back(d, role, old, c, full, lambda: _leave(d, c, full, old))
    _facts(d, f"undo:{END}", "compare what is with the start, fact by fact")
    _describe(d, role, old, back, full)


def _suite(d: Draft, c: Candidate) -> Suite:
    """The gates by which this serve was qualified; a suite that the operator names judges both."""
    qualified = c.kept.qualified_suite if c.kept else ""
    return d.facts.suite(d.intent.suite or qualified or c.recipe.suite)


def _refusals(d: Draft, role: Role, old: ServeRecord, back: ServeRecord) -> None:
    if not d.facts.running(old):
        d.refuse(f"the incumbent {old.recipe_id} is not running: promote a recipe or roll back")
    stays_stopped(d, old)
    prove_return(d, "drill", back, old)
    for why in judged("drill", old.recipe_id, in_facts(d.facts, old, old.container_id))[0]:
        d.refuse(why)
    at = set(d.facts.aliases(role).values())
    if at != {old.slot}:
        d.refuse(f"the aliases of {role.name} are at {alias_text(sorted(at))}, not all at {old.slot}: "
                 f"`readmit {role.name}` first")  # fmt: skip


def _facts(d: Draft, name: str, title: str) -> None:
    limit = d.facts.workspace.policies.gpu_release_timeout_s + FACTS_S
    who = d.rests_on["drill"]
    args = {"role": d.rests_on["role"], "incumbent": who["incumbent"], "way_back": who["way_back"]}
    if name.startswith("undo:"):
        d.undo_step(END, END, title, limit, **args)
    else:
        d.step(name, name, title, limit, **args)


def _prove(d: Draft, serve: ServeRecord, name: str) -> None:
    d.step(name, "way-back", f"prove that {serve.recipe_id} can start", 30, container=serve.container_id)


def _leg(
    d: Draft,
    c: Candidate,
    *,
    leaving: ServeRecord,
    suite: Suite,
    full: bool,
    suffix: str = "",
    keeps: bool = False,
) -> None:
    """One way: `leaving` goes, `c` comes. With room for both it comes first and nobody waits; `keeps` = what is
    left ran before the drill beside the incumbent, and goes on."""
    if full:
        d.point(c.role, "hold", f"hold{suffix}", f"hold {alias_text(c.role.aliases)} at the gateway")
        d.drain(leaving, f"drain{suffix}")
        d.stop(leaving, f"stop{suffix}")
        d.free(c.recipe, f"free{suffix}")
    if not c.running:
        d.start(c, suffix)
    d.gates(suite, c.recipe, f"gates{suffix}", **c.serve_args)
    d.point(c.role, c.slot, f"flip{suffix}", f"{alias_text(c.role.aliases)} to {c.slot}, in one transaction")
    d.verify(c.role, c, f"verify{suffix}")
    if full or keeps:
        return
    if suffix:
        return retire(d, leaving, f"retire{suffix}")
    d.drain(leaving, "drain")
    d.stop(leaving, "stop")


def _leave(d: Draft, c: Candidate, full: bool, old: ServeRecord) -> None:
    """On the way back clients may be at the way back's serve: what they asked is finished before it stops."""
    if c.running or c.kept is None:
        return
    args, grace = d.drain_args(c.kept), c.recipe.launch.stop_grace_s
    limit = args["timeout_s"] + args["extend_s"] + 60
    if not full:
        return d.undo_step("retire", "retire", f"let {c.recipe.id} finish, then stop it, keep its container",
                           limit + grace, **args, container=c.kept.container_id, grace_s=grace)  # fmt: skip
    title = f"wait until {c.slot} has nothing in flight unless {old.recipe_id} runs"
    d.undo_step("drain", "leave", title, limit, **args, unless_running=old.container_id,
                targets=dict.fromkeys(c.role.aliases, c.slot))  # fmt: skip


def _describe(d: Draft, role: Role, old: ServeRecord, back: ServeRecord, full: bool) -> None:
    aliases, hold = alias_text(role.aliases), d.facts.workspace.gateway.hold_max_s
    d.confirm_word = old.served_name
    d.rollback = (
        f"this is its rehearsal: {back.recipe_id}, container {back.container_id[:12]}; the record does not move"
    )
    if full:
        d.interrupts = f"{aliases}: held twice, from `hold` to `flip` of each leg, at most {hold} s each, then 503"
        d.outage = (
            f"two loads with their gates: of {back.recipe_id}, then of {old.recipe_id}; "
            "no engine runs between stop and ready"
        )
        d.on_failure = (
            f"before the decision: {old.recipe_id} is started again, judged ready, and gets the aliases back"
        )
    else:
        d.interrupts = f"nothing: {aliases} move in one transaction after the gates, there and home"
        d.outage = "none"
        d.on_failure = f"before the decision: {old.recipe_id} runs again before the aliases return to it"
    if d.intent.stepwise:
        d.warnings.append(
            "step by step: nothing is done before a person lets it, and the lease stays held meanwhile"
        )
    if d.intent.stepwise and full:
        d.warnings.append(
            f"clients wait while a person thinks: from `hold` to `flip` a request waits {hold} s at most, then it "
            "gets 503 with Retry-After"
        )
