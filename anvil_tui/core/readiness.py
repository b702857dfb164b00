"""Whether a serve can be returned to: everything that the return would need, each thing a check of its own. Pure.

What is slow to look at (files, ports, gates) comes as proofs of `service/way_back.py`; the rest is read off here.
`missing` was looked at and is not as it must be; `unknown` could not be looked at, and is not ok. Plans refuse
when a check of the serve that they would return to is missing (M) or unknown (U):

| check         | needs                                        | promote over it | rollback to it  | drill to it |
|---------------|----------------------------------------------|-----------------|-----------------|-------------|
| record        | its exact recipe is kept                     | M               | M               | M           |
| image         | here, by digest                              | M U             | no              | M U         |
| container     | here, and as it was when it was recorded     | M U             | M               | M U         |
| weights       | there, whole, with the size or hash recorded | M U             | M               | M U         |
| configuration | mounts there; mounted and patched files same | M U             | M               | M U         |
| port          | free, or held by what stops first            | M U             | M               | M U         |
| gpus          | its own, by UUID; weights that the host fits | M U             | M U             | M U         |
| credential    | the gateway takes the client key             | as in every plan that verifies anything       |
| gates         | its own suite can run on it                  | M U             | of suite chosen | M U         |
| budgets       | room for the answers that its gates ask for  | M U             | no              | no          |
| drill         | young enough, if the policy asks for one     | M               | no              | no          |
| home          | the suite of what serves now can run on it   | no              | no              | M U         |

A rollback may be an emergency: what only makes it less comfortable is a warning. So is what could not be looked at
but is proven by the start itself, after which the former serve is started again if it fails. A kept container
starts without its image: Docker 20.10 did after `rmi --force`, for its layers stay. A waiver makes a
refusal a warning; record and credential are never waived.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Literal

from anvil_tui.core.box import MIB, Container, GpuSnapshot, Host
from anvil_tui.core.errors import Refused
from anvil_tui.core.facts import Facts
from anvil_tui.core.gpus import resolve_gpus
from anvil_tui.core.ownership import owner_text
from anvil_tui.core.reading import Reading
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.shape import changed, resurrects
from anvil_tui.core.standing import NEVER_WAIVED, Check, CheckName, CredentialState, DrillRecord
from anvil_tui.core.times import parse_time
from anvil_tui.core.vram import BASELINE_TOLERANCE_MIB, free_mib, label
from anvil_tui.core.waivers import CheckWaiver, check_waived, check_waiver_text
from anvil_tui.core.workspace import Role, Workspace
from anvil_tui.core.world import BoxRecord, Readiness, ServeRecord, World

Bind = Literal["promote", "rollback", "drill"]
PROVEN: tuple[CheckName, ...] = ("weights", "configuration", "port", "gates", "budgets")
"""Checks that arrive as proofs."""
_BOTH, _GONE = ("missing", "unknown"), ("missing",)
_ALL: dict[CheckName, tuple[str, ...]] = {
    "record": _GONE, "image": _BOTH, "container": _BOTH, "weights": _BOTH, "configuration": _BOTH, "port": _BOTH,
    "gpus": _BOTH, "gates": _BOTH,
}  # fmt: skip
BINDS: Mapping[Bind, Mapping[CheckName, tuple[str, ...]]] = {
    "promote": {**_ALL, "budgets": _BOTH, "drill": _GONE},
    "rollback": {
        "record": _GONE, "container": _GONE, "weights": _GONE, "configuration": _GONE, "port": _GONE,
        "gpus": _BOTH,
    },
    "drill": {**_ALL, "home": _BOTH},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Look:
    """What the checks of one serve rest on. `incumbent` is the container that stops before it starts, if any."""

    serve: ServeRecord
    incumbent: str
    recipe: Recipe | None
    workspace: Workspace
    record: BoxRecord
    images: Mapping[str, str | None]
    containers: Reading[tuple[Container, ...]]
    gpus: Reading[GpuSnapshot]
    host: Reading[Host]
    credentials: tuple[CredentialState, ...]
    drills: tuple[DrillRecord, ...]
    proofs: tuple[Check, ...]
    waivers: tuple[CheckWaiver, ...]
    today: date

    def container(self) -> Container | None:
        return next((c for c in self.containers.value or () if c.id == self.serve.container_id), None)


def readiness(world: World, role: Role) -> Readiness:
    """Of the role's way back; `target` is the recipe that a rollback returns to, "" = there is none by design."""
    held = world.record.roles.get(role.name)
    if held is None or not held.rollback:
        return Readiness("", ("nothing was promoted over an earlier serve",))
    back, now = world.record.serves.get(held.rollback[0]), world.record.serves.get(held.incumbent)
    if back is None:
        lost = Check(
            "record", "missing", f"container {held.rollback[0][:12]} is in the ladder and not in state/box.json"
        )
        return _of(held.rollback[0][:12], (lost,))
    look = _in_world(world, back, held.incumbent)
    full = _full(world, look)
    found = (full if full and c.name == "gpus" and c.state == "ok" else c for c in checks(look))
    return _of(back.recipe_id, (*found, *([_home(world, now)] if now else [])))


def _full(world: World, look: _Look) -> Check | None:
    """Who came since it was stopped and leaves it no room, also without the incumbent; None = nobody, or unknown.
    Plans need none of this: their admission says it of everything that starts."""
    seen, recipe, back = look.container(), look.recipe, look.serve
    if recipe is None or seen is None or seen.running or not world.containers.ok:
        return None
    up = {c.id for c in world.containers.value or () if c.running} - {look.incumbent}
    alone = (s for s in world.record.serves.values() if s.container_id in up and (s.exclusive or back.exclusive))
    why = next((f"{s.recipe_id} runs, and one of the two needs the whole box" for s in alone), "")
    short = (w for u in _granted(look) if (w := _short(world, look.incumbent, u, recipe.gpus.need_free_mib)))
    why = why or next(short, "")
    full = Check("gpus", "missing", why)
    return _waived(back.recipe_id, full, world.check_waivers, world.now_utc.date()) if why else None


def _short(world: World, incumbent: str, uuid: str, need_mib: int) -> str:
    """Why one GPU has too little memory even when the incumbent has left it; "" = it has enough, or unknown."""
    card = next((g for g in world.gpus.value.gpus if g.uuid == uuid), None) if world.gpus.value else None
    free = free_mib(card) if card and world.gpus.ok else None
    leaving = [o.mib for o in world.owners if (o.gpu, o.id) == (uuid, incumbent)]
    if card is None or free is None or None in leaving:
        return ""
    room = free + sum(mib or 0 for mib in leaving)
    if room + BASELINE_TOLERANCE_MIB >= need_mib:
        return ""
    stay = ", ".join(owner_text(o) for o in world.owners if o.gpu == uuid and o.id != incumbent)
    held = f"; held by {stay}" if stay else ""
    return f"{label(card)}: {room:,} MiB at most are free for it, {need_mib:,} needed{held}"


def returning(world: World, role: Role) -> Readiness:
    """Of the role's incumbent: whether it could be the way back of a promotion; "" = nothing serves the role."""
    serve = world.record.serve_in(role.name)
    if serve is None:
        return Readiness("", ("nothing serves it",))
    return _of(serve.recipe_id, checks(_in_world(world, serve, serve.container_id)))


def _of(target: str, found: tuple[Check, ...]) -> Readiness:
    return Readiness(target, tuple(f"{c.name}: {c.why}" for c in found if c.state in _BOTH), found)


def _home(world: World, now: ServeRecord) -> Check:
    """The other direction: whether what serves now could be judged again when a drill returns to it."""
    proof = next((c for c in world.proofs.get(now.container_id, ()) if c.name == "gates"), None)
    found = proof or Check("gates", "unknown", "not looked at yet")
    home = replace(found, name="home", why=f"{now.recipe_id}: {found.why}")
    return _waived(now.recipe_id, home, world.check_waivers, world.now_utc.date())


def in_facts(facts: Facts, serve: ServeRecord, incumbent: str) -> tuple[Check, ...]:
    """The checks of one serve for a plan; `incumbent` stops before that serve would start."""
    here = Reading.known(tuple(facts.containers.values()), 0.0, "docker")
    return checks(_Look(
        serve, incumbent, facts.exact_recipe(serve), facts.workspace, facts.record, facts.images, here, facts.gpus,
        facts.host, facts.credentials, facts.drills, facts.proofs.get(serve.container_id, ()),
        facts.check_waivers, facts.today,
    ))  # fmt: skip


def _in_world(world: World, serve: ServeRecord, incumbent: str) -> _Look:
    return _Look(
        serve, incumbent, world.exact_recipe(serve.recipe_digest, serve.recipe_id), world.workspace, world.record,
        world.images, world.containers, world.gpus, world.host, world.credentials, world.drills,
        world.proofs.get(serve.container_id, ()), world.check_waivers, world.now_utc.date(),
    )  # fmt: skip


def refused(verb: Bind, found: Iterable[Check]) -> tuple[Check, ...]:
    """The checks for which this verb may not go on."""
    binds = BINDS[verb]
    return tuple(c for c in found if c.state in binds.get(c.name, ()))


def judged(verb: Bind, recipe: str, found: tuple[Check, ...]) -> tuple[list[str], list[str]]:
    """Refusals and warnings for a plan that has the serve of `recipe` as its way back, or returns to it."""
    against = refused(verb, found)
    refusals = [_refusal(recipe, c) for c in against]
    left = (c for c in found if c not in against and c.state in (*_BOTH, "waived") and c.name != "credential")
    return refusals, [f"way back {recipe}: {c.name}: {c.why}" for c in left]


def rested_on(verb: Bind, recipe: str, found: Iterable[Check], facts: Facts) -> dict[str, str]:
    """What a plan rests on, by check: its state, or the waiver. Left out is what the plan does not hang on, such
    as a hash that is not read to its end yet: it must not make the plan another one by being read on."""
    states: dict[str, str] = {}
    for c in found:
        waiver = check_waived(recipe, c.name, facts.check_waivers, facts.today) if c.state == "waived" else None
        if waiver or BINDS[verb].get(c.name) == _BOTH:
            states[c.name] = check_waiver_text(waiver) if waiver else c.state
    return states


def _refusal(recipe: str, c: Check) -> str:
    lead = f"no way back to {recipe}" if c.state == "missing" else f"the way back to {recipe} is not proven"
    if why := NEVER_WAIVED.get(c.name):
        return f"{lead}: {c.name}: {c.why}; {why}"
    form = f"`anvil-tui waive {recipe} --way-back {c.name} --reason ...`"
    return f"{lead}: {c.name}: {c.why}; mend it, or go on without it by {form}"


def checks(look: _Look) -> tuple[Check, ...]:
    """Every check of one serve, waivers applied. Without its exact recipe only what needs none is looked at, and
    without its container not what is looked at through it."""
    found = [_record(look)]
    if look.recipe:
        found.append(_image(look, look.recipe))
    found.append(_container(look))
    if look.recipe and (look.container() or not look.containers.ok):
        found += [_proof(look, "weights"), _proof(look, "configuration")]
    if look.recipe:
        found += [_port(look), _gpus(look, look.recipe)]
        found += [_credential(look), _proof(look, "gates"), _proof(look, "budgets"), _drill(look)]
    return tuple(_waived(look.serve.recipe_id, c, look.waivers, look.today) for c in found)


def _waived(recipe: str, c: Check, waivers: Iterable[CheckWaiver], today: date) -> Check:
    waiver = check_waived(recipe, c.name, waivers, today) if c.state in _BOTH else None
    if waiver is None or c.name in NEVER_WAIVED:
        return c
    return replace(c, state="waived", why=f"{c.why}; {check_waiver_text(waiver)}")


def _proof(look: _Look, name: CheckName) -> Check:
    found = next((c for c in look.proofs if c.name == name), None)
    return found or Check(name, "unknown", "not looked at yet")


def _record(look: _Look) -> Check:
    exact = f"{look.serve.recipe_id} ({look.serve.recipe_digest[:12]})"
    if look.recipe is None:
        return Check("record", "missing", f"the exact recipe {exact} is not known any more")
    return Check("record", "ok", f"exact recipe {exact}")


def _image(look: _Look, recipe: Recipe) -> Check:
    ref = recipe.image.ref
    if ref not in look.images:
        return Check("image", "unknown", "the image was not looked up yet")
    if look.images[ref] is None:
        return Check("image", "missing", f"the image {ref} is not here")
    return Check("image", "ok", f"{ref} is here")


def _container(look: _Look) -> Check:
    short, back = look.serve.container_id[:12], look.serve
    if not look.containers.ok:
        return Check("container", "unknown", f"containers cannot be read: {look.containers.reason}")
    seen = look.container()
    if seen is None:
        return Check("container", "missing", f"the retained container {short} does not exist{_namesake(look)}")
    if seen.image_id != back.image_id:
        other = f"container {short} has image {seen.image_id[:19]}, recorded is {back.image_id[:19]}"
        return Check("container", "missing", other)
    if seen.status in ("removing", "dead"):
        return Check("container", "missing", f"container {short} is {seen.status}")
    if seen.status == "unknown":
        return Check("container", "unknown", f"container {short} cannot be inspected: {seen.error}")
    if not back.shape:
        again = f"`anvil-tui qualify {short}` while it runs records it"
        return Check("container", "unknown", f"container {short} was recorded without its configuration; {again}")
    now = [name for name in changed(back.shape, seen) if name != "restart" or resurrects(seen)]
    if now:
        return Check("container", "missing", f"container {short} is not as recorded: {', '.join(now)} changed")
    return Check("container", "ok", f"container {short} is as recorded")


def _namesake(look: _Look) -> str:
    """Another container of the same recipe that is on nobody's record: most likely it was made again by hand."""
    from_it = (c for c in look.containers.value or () if look.serve.recipe_digest in c.labels.values())
    other = next((c for c in from_it if c.id not in look.record.serves), None)
    return f"; {other.name} ({other.id[:12]}) is another one of its recipe, not on record" if other else ""


def _port(look: _Look) -> Check:
    """Free, its own already, or that of the serve that stops first."""
    taken = next(_others_on(look), None)
    return Check("port", "missing", taken) if taken else _proof(look, "port")


def _others_on(look: _Look) -> Iterator[str]:
    back = look.serve
    for c in look.containers.value or ():
        if not c.running or c.id in (back.container_id, look.incumbent):
            continue
        other = look.record.serves.get(c.id)
        if (other and other.port == back.port) or publishes(c, back.port):
            yield f"port {back.port} of {back.slot} is taken by container {c.name} ({c.id[:12]})"


def publishes(c: Container, port: int) -> bool:
    return any(p.split("->")[0].endswith(f":{port}") for p in c.ports)


def _gpus(look: _Look, recipe: Recipe) -> Check:
    """Its own GPUs and no others, and a host that can hold what no GPU will."""
    if not recipe.gpus.select:
        return _host(look, recipe)
    if not look.gpus.ok or look.gpus.value is None:
        return Check("gpus", "unknown", f"GPUs cannot be read: {look.gpus.reason or look.gpus.state}")
    here = {g.uuid: g for g in look.gpus.value.gpus}
    try:
        uuids = _granted(look) or resolve_gpus(recipe.gpus.select, look.workspace.gpus.roles, look.gpus.value)
    except Refused as why:
        return Check("gpus", "missing", str(why))
    for uuid in uuids:
        if uuid not in here:
            return Check("gpus", "missing", f"GPU {uuid} is not on this box")
        if here[uuid].state != "ok":
            return Check("gpus", "missing", f"GPU {here[uuid].index} ({uuid}) is {here[uuid].state}")
    return Check("gpus", "ok", f"{len(uuids)} GPUs here and readable")


def _granted(look: _Look) -> tuple[str, ...]:
    seen = look.container()
    return seen.gpus.uuids if seen and seen.gpus.effective == "uuids" else ()


def _host(look: _Look, recipe: Recipe) -> Check:
    total, need = look.host.value.memory_total if look.host.value else None, recipe.model.bytes
    if total is not None and need is not None and need > total:
        figures = f"weights of {need // MIB:,} MiB, the host has {total // MIB:,} MiB of memory"
        return Check("gpus", "missing", f"it needs no GPU, but does not fit the host: {figures}")
    return Check("gpus", "ok", "it needs no GPU")


def _credential(look: _Look) -> Check:
    """The first key: the one that plans are verified with."""
    first = next(iter(look.credentials), None)
    if first is None:
        return Check("credential", "unknown", "not asked yet")
    state: Literal["ok", "missing", "unknown"] = (
        "ok" if first.state == "accepted" else "missing" if first.state in ("refused", "absent") else "unknown"
    )
    return Check(
        "credential", state, f"{first.name} {first.state}{f': {first.why}' if first.why else ''}", first.at
    )


def _started(drill: DrillRecord, container_id: str) -> bool:
    """One that ran already was walked to, not proven to start."""
    leg = {drill.way_back: "away", drill.incumbent: "home"}.get(container_id)
    return any(p.leg == leg and p.name == "start" for p in drill.phases)


def _drill(look: _Look) -> Check:
    """The newest drill on the box, not on a copy, that started this container: on its way there, or home."""
    days, mine = look.workspace.policies.drill_max_age_days, look.serve.container_id
    made = [d for d in look.drills if d.place == "box" and not d.recheck and _started(d, mine)]
    last = max(made, key=lambda d: d.at, default=None)
    when = parse_time(last.at) if last else None
    told = f"last drill on the box {last.at[:10]}: {last.outcome}" if last else "never drilled on the box"
    if not days:
        return Check("drill", "ok", f"{told}; the policies ask for none")
    if last is None or when is None or last.outcome != "restored":
        return Check("drill", "missing", f"{told}; drill_max_age_days = {days} asks for one that restored it")
    age = max(0, (look.today - when.date()).days)
    return Check(
        "drill", "ok" if age <= days else "missing", f"{told}, {age} days ago; at most {days} are allowed"
    )
