"""What a person should know now, as sentences, most urgent first. Pure; reads a world whose serves are derived."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from anvil_tui.core.clients import words as client_words
from anvil_tui.core.credentials import copy_text, unproven
from anvil_tui.core.inflight import findings
from anvil_tui.core.journal import OperationView
from anvil_tui.core.ownership import card_label, needed_by, owner_text, sight_of, unreturned_mib
from anvil_tui.core.times import parse_time, skew
from anvil_tui.core.world import Phase, RoleRecord, Serve, World


def problems(world: World) -> Iterator[str]:
    yield from _operations(world)
    yield from _roles(world)
    yield from _drills(world)
    yield from _serves(world)
    yield from _rollbacks(world)
    yield from _gateway(world)
    yield from _requests(world)
    yield from _sources(world)
    yield from _gpus(world)
    yield from _owners(world)
    yield from _clients(world)
    yield from _credentials(world)
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
        if not held.incumbent and held.evicted_for and name not in busy:
            yield evicted_text(held)
        if not held.incumbent or name in busy:
            continue
        serve = world.serve(held.incumbent)
        if serve is None:
            yield f"{name}: the incumbent {held.incumbent[:12]} is not recorded as a serve"
        elif serve.phase in (Phase.ABSENT, Phase.STOPPED, Phase.CREATED):
            yield f"{name}: the incumbent {serve.name} is {serve.phase}: {serve.why or serve.container.status}"


def _drills(world: World) -> Iterator[str]:
    """What the newest drill, or a recheck of it, found not to be as it was."""
    for role in world.workspace.roles:
        mine = [d for d in world.drills if d.role == role.name and d.place == "box"]
        if mine and mine[-1].differences and mine[-1].outcome != "halted":
            found = "; ".join(mine[-1].differences)
            yield f"{role.name}: since drill {mine[-1].operation} something is not as it was: {found}"


def _serves(world: World) -> Iterator[str]:
    wanted = set(needed_by(world))
    unreadable = not world.containers.ok
    for s in world.serves:
        if s.phase is Phase.FAILED or (s.phase is Phase.LOST and not unreadable):
            yield f"{s.name} ({s.container.id[:12]}) {s.phase}: {s.why}"
        elif s.phase is Phase.ABSENT and s.position != "incumbent":
            yield f"{s.name} ({s.container.id[:12]}): {s.why}"
        elif s.phase is Phase.FOREIGN and (
            s.why.startswith("restart_loop")
            or "tag_drift: " in s.why
            or _takes(s, wanted, world.workspace.gpus.monitors)
        ):
            yield f"foreign container {s.container.name} ({s.container.id[:12]}): {s.why}"
        if s.container.oom_killed and s.container.running:
            yield f"{s.name}: a process in it was OOM-killed since its start"
        if ahead := skew(parse_time(s.container.started_at), world.now_utc):
            started = f"container {s.container.id[:12]} started at {s.container.started_at}"
            yield f"{s.name}: {ahead}: {started}, which is still to come here"
        if fallen := _fell_back(s):
            yield f"{s.name} ({s.container.id[:12]}) {fallen}"


def _rollbacks(world: World) -> Iterator[str]:
    """A way back that would fail. What was not looked at yet, or has its own sentence here, is not said twice."""
    busy = {o.role for o in world.operations if o.outcome is None}
    for role, way in world.rollbacks.items():
        against = [
            f"{c.name}: {c.why}" for c in way.checks
            if (c.state == "missing" or (c.state == "unknown" and c.at)) and c.name not in ("gpus", "credential")
        ]  # fmt: skip
        if way.target and against and role not in busy:
            yield f"rollback of {role} not ready: {'; '.join(against)}"


def _fell_back(serve: Serve) -> str:
    """An engine that was given GPUs and computes on the CPU instead: it answers, far too slowly."""
    engine = serve.engine.value
    if engine is None or engine.gpu_layers is None or serve.recipe is None or not serve.recipe.gpus.select:
        return ""
    on, of = engine.gpu_layers
    if on >= of:
        return ""
    return f"{'partly_on_gpu' if on else 'not_on_gpu'}: {on} of {of} layers are on GPUs, says its start-up log"


def _takes(serve: Serve, uuids: set[str], monitors: Iterable[str]) -> bool:
    grant = serve.container.gpus
    if serve.container.name in monitors:
        return False  # what one of them holds all the same is told with the owners
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


def _requests(world: World) -> Iterator[str]:
    if world.gateway.ok and world.gateway.value is not None:
        yield from findings(world.gateway.value, world.workspace.policies)


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


def evicted_text(held: RoleRecord) -> str:
    return (
        f"{held.name}: nothing serves it: its serve was evicted for {held.evicted_for}; "
        f"`rollback --role {held.name}` returns it when there is room"
    )


def _credentials(world: World) -> Iterator[str]:
    """Keys that the gateway does not take, and stale copies; while it cannot be read, that is said instead."""
    if world.gateway.ok:
        yield from unproven(world.credentials)
    for c in world.credentials:
        yield from (f"credential {c.name}: copy {copy_text(copy)}" for copy in c.copies if copy.state != "same")


def _clients(world: World) -> Iterator[str]:
    """Catalogs that do not say what serves. Not while an operation works: its end tells."""
    if not world.lease:
        for c in world.clients:
            if c.state == "drift":
                yield f"{client_words(c)}: `apply {c.name}` writes what serves"
            elif c.state not in ("converged", "unknown"):
                yield client_words(c)


def _owners(world: World) -> Iterator[str]:
    """Who holds a GPU beside somebody, or without anybody's leave. Not while an operation works: then a process
    that has just ended is named a moment longer than its container."""
    if any(o.alive and o.outcome is None for o in world.operations) or not world.containers.ok:
        return
    seen, needs = sight_of(world), needed_by(world)
    nobodys: list[str] = []
    for uuid, card in seen.cards.items():
        here = [o for o in world.owners if o.gpu == uuid]
        certain = [o for o in here if o.certain]
        alone = next((o for o in certain if (r := world.record.serves.get(o.id)) and r.exclusive), None)
        others = [o for o in certain if alone and o.id != alone.id]
        if alone and others:
            told = "; ".join(owner_text(o) for o in others)
            yield f"{card_label(seen, uuid)}: {alone.name} is exclusive, and it is also held by {told}"
        for o in certain:
            if o.kind == "process" and uuid in needs and o not in others:
                yield f"{card_label(seen, uuid)}: {owner_text(o)}; {needs[uuid]} needs this GPU"
        for o in here:
            if o.kind == "ours" and o.id in seen.gone:
                yield f"{card_label(seen, uuid)}: {owner_text(o)}"
        if not here and card.state == "ok" and card.processes is not None and (mib := unreturned_mib(card, None)):
            nobodys.append(f"{card_label(seen, uuid)} {mib:,} MiB")
    if nobodys:
        yield f"memory in use that nobody owns: {', '.join(nobodys)}"
