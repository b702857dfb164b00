"""What a person should know now, as sentences, most urgent first. Pure; reads a world whose serves are derived."""

from __future__ import annotations

from collections.abc import Iterator

from anvil_tui.core.journal import OperationView
from anvil_tui.core.world import Phase, Serve, World


def problems(world: World) -> Iterator[str]:
    yield from _operations(world)
    yield from _roles(world)
    yield from _serves(world)
    yield from _gateway(world)
    yield from _sources(world)
    yield from _gpus(world)
    yield from (f"{f.path}: {f.error}" for f in world.recipes if f.error)


def _operations(world: World) -> Iterator[str]:
    newest = {o.role: o.id for o in world.operations}
    for o in world.operations:
        if o.torn:
            yield f"operation {o.id}: its journal is damaged: {o.torn}"
        if o.outcome is None and not o.alive and o.started_at:
            yield f"operation {o.id} ({o.kind} {o.target}) was interrupted: resume or undo it"
        elif o.outcome == "halted" and newest[o.role] == o.id:
            yield _halted(o)


def _halted(o: OperationView) -> str:
    left = f"; left behind: {', '.join(o.residue)}" if o.residue else ""
    return f"operation {o.id} ({o.kind} {o.target}) is halted: {o.why or 'no reason recorded'}{left}"


def _roles(world: World) -> Iterator[str]:
    """An incumbent that is gone or down, unless an operation is at work on its role."""
    busy = {o.role for o in world.operations if o.outcome is None}
    for name, held in world.record.roles.items():
        if not held.incumbent or name in busy:
            continue
        serve = world.serve(held.incumbent)
        if serve is None:
            yield f"{name}: the incumbent {held.incumbent[:12]} is not recorded as a serve"
        elif serve.phase in (Phase.ABSENT, Phase.STOPPED, Phase.CREATED):
            yield f"{name}: the incumbent {serve.name} is {serve.phase}: {serve.why or serve.container.status}"


def _serves(world: World) -> Iterator[str]:
    roles = {u for u in world.workspace.gpus.roles.values()}
    unreadable = not world.containers.ok
    for s in world.serves:
        if s.phase is Phase.FAILED or (s.phase is Phase.LOST and not unreadable):
            yield f"{s.name} ({s.container.id[:12]}) {s.phase}: {s.why}"
        elif s.phase is Phase.ABSENT and s.position != "incumbent":
            yield f"{s.name} ({s.container.id[:12]}): {s.why}"
        elif s.phase is Phase.FOREIGN and (s.why.startswith("restart_loop") or _takes(s, roles)):
            yield f"foreign container {s.container.name} ({s.container.id[:12]}): {s.why}"
        if s.container.oom_killed and s.container.running:
            yield f"{s.name}: a process in it was OOM-killed since its start"
        if fallen := _fell_back(s):
            yield f"{s.name} ({s.container.id[:12]}) {fallen}"


def _fell_back(serve: Serve) -> str:
    """An engine that was given GPUs and computes on the CPU instead: it answers, far too slowly."""
    engine = serve.engine.value
    if engine is None or engine.gpu_layers is None or serve.recipe is None or not serve.recipe.gpus.select:
        return ""
    on, of = engine.gpu_layers
    if on >= of:
        return ""
    return f"{'partly_on_gpu' if on else 'not_on_gpu'}: {on} of {of} layers are on GPUs, says its start-up log"


def _takes(serve: Serve, uuids: set[str]) -> bool:
    grant = serve.container.gpus
    return grant.effective in ("all", "unknown") or bool(uuids & set(grant.uuids))


def _gateway(world: World) -> Iterator[str]:
    if not world.gateway.ok or world.gateway.value is None:
        if world.gateway.state == "error":
            yield f"gateway cannot be read: {world.gateway.reason}"
        return
    gateway = world.gateway.value
    if not gateway.file_equal:
        yield "gateway: the running aliases differ from the durable file"
    up = {s.record.slot for s in world.serves if s.record and s.container.running}
    known = {slot.name for role in world.workspace.roles for slot in role.slots}
    for target in dict.fromkeys(gateway.aliases.values()):
        if target in known and target not in up and world.containers.ok:
            aliases = [a for a, t in gateway.aliases.items() if t == target]
            words = f"alias {aliases[0]} points" if len(aliases) == 1 else f"aliases {', '.join(aliases)} point"
            yield f"gateway: {words} at {target}, where no serve of ours runs"


def _sources(world: World) -> Iterator[str]:
    if world.containers.state == "error":
        yield f"containers cannot be read: {world.containers.reason}"
    if world.host.state == "error":
        yield f"host cannot be read: {world.host.reason}"
    yield from (f"{source}: {why}" for source, why in world.source_errors.items())


def _gpus(world: World) -> Iterator[str]:
    if world.gpus.state == "error" or (world.gpus.state == "unknown" and world.gpus.at_s is not None):
        if world.gpus.state == "error" or world.workspace.gpus.roles:
            yield f"GPUs cannot be read: {world.gpus.reason}"
        return
    snapshot = world.gpus.value
    if snapshot is None:
        return
    for gpu in snapshot.gpus:
        if gpu.state != "ok":
            yield f"GPU {gpu.index} ({gpu.uuid or 'UUID n/a'}) is {gpu.state}: {gpu.reason}"
    here = {g.uuid for g in snapshot.gpus}
    for role, uuid in world.workspace.gpus.roles.items():
        if uuid not in here and snapshot.complete:
            yield f"GPU role {role}: no GPU of this box has UUID {uuid}"
