"""May this deed run now? None, or one sentence that says what stands in the way and what to do."""

from __future__ import annotations

from dataclasses import dataclass

from anvil_tui.core.alarms import Alarm, ordered
from anvil_tui.core.credentials import credentials_of, why_not_usable
from anvil_tui.core.gates import Verdict
from anvil_tui.core.readiness import Bind, refused
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.secrets import parse_reference
from anvil_tui.core.times import span
from anvil_tui.core.world import Lease, Phase, Serve, World
from anvil_tui.ui.keymap import key
from anvil_tui.ui.presenters.freshness import empty, why_unusable
from anvil_tui.ui.presenters.serves import incumbent
from anvil_tui.ui.text import literal, seconds_since, short_id


@dataclass(frozen=True, slots=True)
class Target:
    """What a deed is aimed at, frozen when the key is pressed. `recipe` "" = not chosen yet.

    `target` names a client or a credential, "" = not chosen yet, or all of them; or a stored thing.
    """

    serve: str = ""
    role: str = ""
    recipe: str = ""
    operation: str = ""
    suite: str = ""
    target: str = ""
    stepwise: bool = False


def _writable(world: World) -> str | None:
    return empty(world, "read-only: this console was started with --read-only") if world.read_only else None


def replay(world: World, target: Target) -> str | None:
    return None if world.replayed else f"there is no replay: {key('view.history')} shows what was recorded"


def _who(lease: Lease, world: World) -> str:
    at = f"@{literal(lease.host, 40)}" if lease.host else ""
    for_s = seconds_since(lease.since or None, world.now_utc)
    long = "" if for_s is None else f", for {span(for_s)}"
    return f"{literal(lease.user, 40)}{at}, process {lease.pid}{long}"


def _free(world: World) -> str | None:
    """Nothing else changes the box, and what a deed rests on can be read."""
    closed = _writable(world)
    if closed:
        return closed
    by = f" ({_who(world.lease, world)}); this console follows" if world.lease else ""
    for operation in world.operations:
        if operation.needs_person and operation.alive:
            return f"{operation.kind} {operation.id} is running: one operation at a time{by}"
        if operation.needs_person:
            was = "halted" if operation.outcome else "was interrupted"
            ways = f"{key('operation.resume')} resumes it, {key('operation.undo')} undoes it"
            return f"{operation.kind} {operation.id} {was}: {ways}"
    if world.lease is not None:
        return f"the lease is held by {_who(world.lease, world)}"
    return why_unusable(world.containers, world.now_s, "the container engine")


def _routed(world: World, role: str) -> str | None:
    closed = _free(world)
    if closed:
        return closed
    if not role:
        return "choose a serve of the role first"
    return why_unusable(world.gateway, world.now_s, "the gateway")


def _targets(world: World, role: str) -> set[str]:
    found, gateway = world.workspace.role(role), world.gateway.value
    return {gateway.aliases.get(a, "none") for a in found.aliases} if found and gateway else set()


def _recipe(world: World, target: Target) -> Recipe | str:
    recipe = world.recipe(target.recipe)
    if recipe is None:
        bad = next((f for f in world.recipes if f.path == target.recipe), None)
        return literal(bad.error) if bad else f"recipe {literal(target.recipe, 80)} is not there any more"
    if not recipe.loadable:
        return literal(recipe.not_loadable_because)
    return recipe


def _running_of(world: World, recipe_id: str) -> Serve | None:
    return next((s for s in world.serves if s.container.running and s.name == recipe_id), None)


def load(world: World, target: Target) -> str | None:
    closed = _free(world)
    if closed or not target.recipe:
        return closed
    recipe = _recipe(world, target)
    if isinstance(recipe, str):
        return recipe
    same = _running_of(world, recipe.id)
    if same:
        return f"{recipe.id} is already loaded: container {short_id(same.container.id)}"
    for other in world.serves:
        alone = recipe.exclusive or bool(other.record and other.record.exclusive)
        if other.container.running and other.record and alone:
            instead = f"{key('recipe.promote')} promotes {recipe.id} under held traffic"
            return f"{literal(other.name, 80)} holds the box: {instead}"
    return None


def promote(world: World, target: Target) -> str | None:
    closed = _routed(world, target.role)
    if closed or not target.recipe:
        return closed
    recipe = _recipe(world, target)
    if isinstance(recipe, str):
        return recipe
    now = incumbent(world, target.role)
    if now and now.phase is Phase.SERVING and now.name == recipe.id:
        return f"{recipe.id} already serves {target.role}"
    return None


def _own(world: World, target: Target) -> Serve | str:
    serve = world.serve(target.serve)
    if serve is None:
        return "choose a serve first" if not target.serve else "this serve is not there any more"
    if serve.record is None:
        return f"{literal(serve.name, 80)} is foreign: it was not made by a recipe of ours"
    return serve


def qualify(world: World, target: Target) -> str | None:
    closed = _free(world)
    if closed:
        return closed
    serve = _own(world, target)
    if isinstance(serve, str):
        return serve
    if serve.phase in (Phase.READY, Phase.SERVING, Phase.QUIESCED, Phase.DRAINED):
        return None
    return f"{literal(serve.name, 80)} is {serve.phase}: gates need it ready"


def unload(world: World, target: Target) -> str | None:
    closed = _free(world)
    if closed:
        return closed
    serve = _own(world, target)
    return serve if isinstance(serve, str) else None


def quiesce(world: World, target: Target) -> str | None:
    closed = _routed(world, target.role)
    if closed:
        return closed
    return f"{target.role} is already quiesced" if _targets(world, target.role) == {"hold"} else None


def drain(world: World, target: Target) -> str | None:
    closed = _routed(world, target.role)
    if closed:
        return closed
    return None if incumbent(world, target.role) else f"nothing serves {target.role}"


def readmit(world: World, target: Target) -> str | None:
    closed = drain(world, target)
    if closed:
        return closed
    now = incumbent(world, target.role)
    if now and now.record and _targets(world, target.role) == {now.record.slot}:
        return f"{target.role} is admitted already"
    return None


def rollback(world: World, target: Target) -> str | None:
    return _return(world, target, "rollback")


def _return(world: World, target: Target, verb: Bind) -> str | None:
    closed = _routed(world, target.role)
    if closed:
        return closed
    way_back = world.rollbacks.get(target.role)
    if way_back is None or not way_back.target:
        return f"{target.role} has no rollback yet: the next promotion keeps one"
    # What was not looked at yet the plan looks at itself; what stands in no rollback's way does not close the key.
    against = [f"{c.name}: {c.why}" for c in refused(verb, way_back.checks) if c.state == "missing" or c.at]
    missing = literal("; ".join(against))
    return f"the {verb} of {target.role} is not ready, missing {missing}" if against else None


def drill(world: World, target: Target) -> str | None:
    """A rollback that comes home: what it needs, and an incumbent that serves."""
    closed = _return(world, target, "drill")
    now = incumbent(world, target.role)
    if closed or (now and now.container.running):
        return closed
    return f"{target.role} has no serve that runs: there is nothing to come home to"


def apply(world: World, target: Target) -> str | None:
    closed = _free(world)
    if closed:
        return closed
    if not world.workspace.clients:
        return "no client is known: [[clients]] of anvil.toml names them"
    looked = [c for c in world.clients if target.target in ("", c.name)]
    if looked and all(c.state == "converged" for c in looked):
        return f"{target.target or 'every client'} is converged"
    return None


def rotate(world: World, target: Target) -> str | None:
    closed = _free(world) or why_unusable(world.gateway, world.now_s, "the gateway")
    if closed:
        return closed
    known = credentials_of(world.workspace)
    if len(known) > 1 and not target.target:
        return None
    named = [c for c in known if target.target in ("", c.name)]
    if not named:
        return f"no such credential, there are: {literal(', '.join(c.name for c in known)) or 'none'}"
    if parse_reference(named[0].ref).env:
        return f"{named[0].name} is a variable of the environment: only a key in a file can be rotated"
    seen = next((s for s in world.credentials if s.name == named[0].name), None)
    why = why_not_usable(seen) if seen else None
    return literal(why) if why else None


def alarm_meant(world: World, target: Target) -> Alarm | None:
    """The chosen alarm, else the one that concerns a person most."""
    alarms = ordered(world.alarms)
    return next((a for a in alarms if a.id == target.target), None if target.target else next(iter(alarms), None))


def acknowledge(world: World, target: Target) -> str | None:
    closed = _writable(world)
    if closed:
        return closed
    meant = alarm_meant(world, target)
    if meant is None:
        return "this alarm is not open any more" if target.target else "no alarm is open"
    if meant.acked_by:
        which = "it" if target.target else "every alarm"
        return f"{which} is acknowledged: {literal(meant.kind, 40)} by {literal(meant.acked_by, 40)}"
    return None


def remove(world: World, target: Target) -> str | None:
    """What refers to a stored thing is on no World: the picker and the plan look."""
    return _free(world)


def _operation(world: World, target: Target, states: tuple[str, ...], nothing: str) -> str | None:
    closed = _writable(world)
    if closed:
        return closed
    found = next((o for o in world.operations if o.id == target.operation), None)
    if found and found.state == "halted" and found.accepted:
        return f"{found.kind} was accepted as it is"
    return None if found and found.state in states else nothing


OPEN = ("interrupted", "halted")


def resume(world: World, target: Target) -> str | None:
    return _operation(world, target, (*OPEN, "paused"), "no operation is paused, interrupted or halted")


def pause(world: World, target: Target) -> str | None:
    closed = _operation(world, target, ("running",), "no operation is running")
    found = next((o for o in world.operations if o.id == target.operation), None)
    if closed is None and found and all(g.verdict in set(Verdict) for g in found.gates):
        return f"{found.kind} has no gate before it: only gates can wait"
    return closed


def undo(world: World, target: Target) -> str | None:
    closed = _operation(world, target, OPEN, "no operation is interrupted or halted")
    found = next((o for o in world.operations if o.id == target.operation), None)
    if closed is None and found and found.decision == "forward":
        finish, back = key("operation.resume"), key("role.rollback")
        return f"{found.kind} has decided to go forward: {finish} finishes it; afterwards {back} rolls back"
    return closed


def cancel(world: World, target: Target) -> str | None:
    closed = _operation(world, target, ("running", "paused"), "no operation is running")
    found = next((o for o in world.operations if o.id == target.operation), None)
    if closed is None and found and found.decision:
        return f"{found.kind} has decided ({found.decision}): it ends by itself"
    return closed
