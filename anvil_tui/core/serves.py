"""What runs, seen as serves: phase, lights, position and requests in flight of each. Pure.

Recorded serves are always shown, also when their container is gone; containers that operations made and did
not record yet, and foreign containers that hold GPUs, are shown beside them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from anvil_tui.core.box import Container, Engine, Gpu
from anvil_tui.core.discovery import Found
from anvil_tui.core.drills import HOME
from anvil_tui.core.exit_cause import ExitCause, exit_cause, never_ran, stop_requested
from anvil_tui.core.journal import OperationView
from anvil_tui.core.lights import lights
from anvil_tui.core.ownership import owners, sight_of
from anvil_tui.core.problems import problems
from anvil_tui.core.progress import MISSES
from anvil_tui.core.readiness import readiness, returning
from anvil_tui.core.reading import Reading
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.times import age_s, parse_time
from anvil_tui.core.workspace import Workspace
from anvil_tui.core.world import (
    DIGEST_LABEL,
    OPERATION_LABEL,
    RECIPE_LABEL,
    Phase,
    Serve,
    ServeRecord,
    World,
)

_DRAINS, _RETIRES = ("drain", f"drain{HOME}"), ("retire", f"retire{HOME}")
_LEAVES = (*_DRAINS, *_RETIRES, f"hold{HOME}")
LOOP_RESTARTS, LOOP_UPTIME_S = 3, 60.0

Position = Literal["incumbent", "rollback", "candidate", "foreign"]
_ORDER: tuple[Position, ...] = ("incumbent", "candidate", "rollback", "foreign")


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a serve answers: its engine kind, loopback port, slot and role; `recipe` is the exact one."""

    recipe: Recipe
    port: int
    slot: str
    role: str


def derive(world: World) -> World:
    """The world with `serves`, `owners`, `rollbacks`, `problems` and `alive` of operations set from the rest."""
    holder = world.lease.operation if world.lease else ""
    alive = [bool(holder) and o.id == holder for o in world.operations]
    if any(o.alive != now for o, now in zip(world.operations, alive, strict=True)):
        operations = (replace(o, alive=now) for o, now in zip(world.operations, alive, strict=True))
        world = replace(world, operations=tuple(operations))
    serves = sorted(
        (_serve(world, c) for c in _shown(world)),
        key=lambda s: (_ORDER.index(s.position), not s.container.running),
    )
    world = replace(world, serves=tuple(serves), owners=owners(sight_of(world)))
    roles = world.workspace.roles
    world = replace(
        world,
        rollbacks={r.name: readiness(world, r) for r in roles},
        returns={r.name: returning(world, r) for r in roles},
    )
    return replace(world, problems=tuple(problems(world)))


def seat_of(world: World, container: Container) -> Seat | None:
    """The seat of one of our containers, recorded or not; None when its exact recipe or port is not known."""
    record = world.record.serves.get(container.id)
    if record:
        recipe = world.exact_recipe(record.recipe_digest, record.recipe_id)
        return Seat(recipe, record.port, record.slot, record.role) if recipe else None
    made = world.exact_recipe(container.labels.get(DIGEST_LABEL, ""), container.labels.get(RECIPE_LABEL, ""))
    return None if made is None else seat_in(world.workspace, made, container)


def seat_in(workspace: Workspace, recipe: Recipe, container: Container) -> Seat | None:
    """The seat for which a container was made, by its arguments."""
    for role in workspace.roles:
        for slot in role.slots:
            argv = recipe.filled_argv(slot.port, role.aliases)
            if argv and container.argv[-len(argv) :] == argv and str(slot.port) in " ".join(argv):
                return Seat(recipe, slot.port, slot.name, role.name)
    return None


def _shown(world: World) -> Iterable[Container]:
    seen = {c.id: c for c in world.containers.value or ()}
    for record in world.record.serves.values():
        status = "missing" if world.containers.ok else "unknown"
        absent = Container(record.container_id, record.recipe_id, status, record.image_id, "")
        yield seen.pop(record.container_id, absent)
    for c in seen.values():
        holds = c.gpus.effective != "none" and c.status not in ("created", "exited", "dead")
        if OPERATION_LABEL in c.labels or holds or c.id in world.found:
            yield c


def _serve(world: World, c: Container) -> Serve:
    record = world.record.serves.get(c.id)
    seat = seat_of(world, c)
    role = record.role if record else seat.role if seat else ""
    recipe = seat.recipe if seat else None
    engine = world.engines.get(c.id) if c.running else None
    engine = engine or Reading.unknown("not asked yet" if c.running else f"container is {c.status}", "engine")
    cause = exit_cause(c, stop_requested(c, world.operations, role)) if c.status in ("exited", "dead") else None
    trail = world.trails.get(c.id)
    serve = Serve(
        c, Phase.FOREIGN, lights(c, cause, engine, record, recipe, trail), record, recipe, engine,
        position_of(world, c), in_flight=_in_flight(world, c, record, seat),
    )  # fmt: skip
    phase, why = _phase(world, serve, role, cause)
    return replace(serve, phase=phase, why=why)


def position_of(world: World, c: Container) -> Position:
    for held in world.record.roles.values():
        if held.incumbent == c.id:
            return "incumbent"
        if c.id in held.rollback:
            return "rollback"
    ours = OPERATION_LABEL in c.labels and c.id not in world.found
    return "candidate" if c.id in world.record.serves or ours else "foreign"


def _in_flight(world: World, c: Container, record: ServeRecord | None, seat: Seat | None) -> int | None:
    slot = record.slot if record else seat.slot if seat else ""
    if not c.running or not slot or not world.gateway.ok or world.gateway.value is None:
        return None
    backend = world.gateway.value.backend(slot)
    return backend.in_flight if backend else None


def _phase(world: World, serve: Serve, role: str, cause: ExitCause | None) -> tuple[Phase, str]:
    c = serve.container
    if not world.containers.ok:
        return Phase.LOST, f"containers cannot be read: {world.containers.reason}"
    if c.status == "missing":
        return Phase.ABSENT, f"missing: container {c.id[:12]} was removed behind the console; its record is kept"
    looping = restart_loop(c, world)
    if serve.position == "foreign" and c.id in world.found and c.running and not looping:
        return _discovered(world, serve, world.found[c.id])
    if serve.position == "foreign":
        return Phase.FOREIGN, looping or c.going or "; ".join(t for t in (_holds(c), tag_drift(world, c)) if t)
    if looping:
        return Phase.FAILED, looping
    if not c.running:
        return _not_running(c, cause)
    lost = [g for g in lost_gpus(world) if g.uuid in c.gpus.uuids or c.gpus.effective == "all"]
    if lost:
        return Phase.LOST, f"gpu_lost: GPU {lost[0].index} ({lost[0].uuid}): {lost[0].reason}"
    if c.status == "paused":
        return Phase.FAILED, "paused: the process is frozen"
    return _alive(world, serve, role)


def _discovered(world: World, serve: Serve, found: Found) -> tuple[Phase, str]:
    """An engine that no workspace names: what it says of itself, with nothing promised to compare it with."""
    c, engine, drift = serve.container, serve.engine.value, tag_drift(world, serve.container)
    if found.engine is None:
        given = _holds(c) if c.gpus.effective != "none" else ""
        return Phase.FOREIGN, "; ".join(t for t in (found.why, given, drift) if t)
    said = [f"{found.engine} on 127.0.0.1:{found.port}", drift]
    if engine is None:
        return Phase.LOADING, "; ".join(t for t in (*said, serve.engine.reason) if t)
    trail = world.trails.get(c.id)
    if engine.http != "ready" and not (trail and trail.was_ready and trail.misses < MISSES):
        phase, why = _not_ready(world, serve, engine)
        return phase, "; ".join(t for t in (why, *said) if t)
    if serve.lights.progress.state == "bad":
        return Phase.FAILED, "; ".join(t for t in (f"{serve.lights.progress.word}, no token progress", *said) if t)
    names = f"serves {', '.join(engine.served)}" if engine.served else engine.reason
    return Phase.READY, "; ".join(t for t in (names, *said) if t)


def restart_loop(c: Container, world: World) -> str:
    """A sentence for a container that its restart policy keeps starting; "" for any other.

    Between two restarts it looks healthy for a moment, so a short run after several restarts counts too.
    """
    count = c.restart_count or 0
    up = age_s(parse_time(c.started_at), world.now_utc)
    short = c.status == "running" and up is not None and up < LOOP_UPTIME_S
    if c.status == "restarting" or (count >= LOOP_RESTARTS and short):
        last = f", last exit {c.exit_code}" if c.exit_code is not None else ""
        return f"restart_loop: restarted {count} times by its policy{last}; stop it"
    return ""


def lost_gpus(world: World) -> tuple[Gpu, ...]:
    snapshot = world.gpus.value if world.gpus.ok else None
    return tuple(g for g in snapshot.gpus if g.state != "ok") if snapshot else ()


def tag_drift(world: World, c: Container) -> str:
    """A sentence for a container whose tag names another image by now; "" where it does not, or was not looked up.
    What runs is the image of its start, so a restart changes nothing."""
    if c.image_ref not in world.images or world.images[c.image_ref] == c.image_id or "@" in c.image_ref:
        return ""
    now = world.images[c.image_ref]
    named = f"{now[:19]} now" if now else "no image here now"
    return (
        f"tag_drift: it runs {c.image_id[:19]}, {c.image_ref} names {named}: a restart keeps the same image, "
        "a re-create would change image"
    )


def _holds(c: Container) -> str:
    what = ", ".join(c.gpus.uuids) if c.gpus.effective == "uuids" else f"{c.gpus.effective} GPUs"
    return f"was given {what} ({c.gpus.via})"


def _not_running(c: Container, cause: ExitCause | None) -> tuple[Phase, str]:
    if c.status == "created":
        return (Phase.FAILED, never_ran(c)) if c.error else (Phase.CREATED, "")
    if c.going:
        return Phase.FAILED, f"{c.going.partition(' is ')[2]}; the name {c.name} stays taken"
    if c.status == "exited" and cause:
        return (Phase.FAILED if cause.alarm else Phase.STOPPED), cause.text
    return Phase.LOST, c.error or f"the daemon says {c.status!r}"


def _alive(world: World, serve: Serve, role: str) -> tuple[Phase, str]:
    engine, trail = serve.engine.value, world.trails.get(serve.container.id)
    if engine is None:
        return Phase.LOADING, serve.engine.reason
    if engine.http != "ready":
        if trail and trail.was_ready and trail.misses < MISSES:
            return _routed(world, serve, role, f"one slow answer: {engine.reason or engine.http}")
        return _not_ready(world, serve, engine)
    if serve.lights.identity.state == "bad":
        have = ", ".join(engine.served)
        return Phase.FAILED, f"identity_mismatch ({serve.lights.identity.word}): it serves {have}"
    if serve.lights.identity.state == "unknown":
        return Phase.LOADING, engine.reason or "no model card yet"
    if serve.lights.progress.state == "bad":
        load = f"{engine.running} running, {_count(engine.waiting)} waiting"
        return Phase.FAILED, f"{serve.lights.progress.word}: {load}, no token progress"
    return _routed(world, serve, role, "")


def _not_ready(world: World, serve: Serve, engine: Engine) -> tuple[Phase, str]:
    trail, c = world.trails.get(serve.container.id), serve.container
    said = f": {engine.reason}" if engine.reason else ""
    if trail and trail.misses >= MISSES and (trail.was_ready or engine.http == "error"):
        return Phase.FAILED, f"unhealthy: http {engine.http}, {trail.misses} times in a row{said}"
    limit = serve.recipe.launch.start_deadline_s if serve.recipe else None
    up = age_s(parse_time(c.started_at), world.now_utc)
    if limit is not None and up is not None and up > limit:
        last = f"; last progress: {load_text(world, c.id)}" if c.id in world.loads else ""
        return Phase.FAILED, f"start_timeout: not ready {up:.0f} s after its start (deadline {limit} s){last}"
    return Phase.LOADING, load_text(world, c.id) or f"http {engine.http}{said}"


def load_text(world: World, container_id: str) -> str:
    """Where a load is, as its log tells it: `weights 7/9 (78 %)`; "" when nothing is known."""
    at = world.loads.get(container_id)
    return "" if at is None else str(at)


def _routed(world: World, serve: Serve, role: str, why: str) -> tuple[Phase, str]:
    """A ready engine: its phase is what the gateway does with it."""
    gateway = world.gateway.value if world.gateway.ok else None
    if gateway is None:
        return Phase.READY, why or f"gateway cannot be read: {world.gateway.reason}"
    settings = world.workspace.role(role)
    targets = {gateway.aliases.get(a, "none") for a in settings.aliases} if settings else set()
    seat = seat_of(world, serve.container)
    slot = serve.record.slot if serve.record else seat.slot if seat else ""
    step, state = _drain_step(world.operations, role)
    if slot and slot in targets:
        return Phase.SERVING, why
    if step in _RETIRES and state == "running":
        return Phase.DRAINING, why or f"finishing {_count(serve.in_flight)} requests"
    if serve.position != ("rollback" if step.endswith(HOME) else "incumbent"):
        return Phase.READY, why
    if step in _DRAINS and state == "running":
        return Phase.DRAINING, why or f"{_count(serve.in_flight)} in flight"
    if targets == {"hold"}:
        done = step in _DRAINS and state == "done" and serve.in_flight == 0
        return (Phase.DRAINED if done else Phase.QUIESCED), why
    return Phase.READY, why


def _count(number: int | None) -> str:
    return "n/a" if number is None else str(number)


def _drain_step(operations: tuple[OperationView, ...], role: str) -> tuple[str, str]:
    """Name and state of the step of the newest operation of this role that takes the requests off a serve. A drill
    does so twice: on its way home the serve that it takes them off is the way back."""
    moving = ("quiesce", "drain", "readmit", "promote", "rollback", "drill", "unload")
    newest = next((o for o in reversed(operations) if o.role == role and o.kind in moving), None)
    if newest is None:
        return "", ""
    steps = [s for s in newest.steps if s.name in _LEAVES and s.state in ("running", "done")]
    if not steps or (newest.outcome is not None and steps[-1].name != "drain"):
        return "", ""
    return steps[-1].name, steps[-1].state
