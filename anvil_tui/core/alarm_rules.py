"""Which alarms there are: what each kind says of each of its targets in one world. Pure; reads a derived world.

| kind        | on                                                                | severity          |
|-------------|-------------------------------------------------------------------|-------------------|
| failed      | a serve failed or is gone, or what should serve does not run      | bad, warn beside  |
| wedged      | an engine misses its health checks, or makes no tokens            | bad, warn beside  |
| restart     | an engine began anew by itself (15 minutes), or in a loop         | warn, loop bad    |
| kv          | KV pool nearly full while requests wait                           | warn              |
| gpu         | a GPU is lost or cannot be read                                   | bad               |
| ecc         | uncorrectable errors since the driver was loaded                  | bad               |
| row-remap   | rows are remapped at the next reset, or cannot be any more        | warn, failed bad  |
| xid         | the driver told of an Xid (15 minutes)                            | by its code       |
| throttle    | slowed down by heat, the board or the power brake                 | warn              |
| reserve     | less memory free on a GPU than its serve must leave               | warn              |
| unreachable | gateway, containers or GPUs cannot be read                        | gateway bad       |
| rollback    | the way back of a role would fail                                 | warn              |
| drift       | alias file and running map, a tag's image, a client's catalog     | warn              |
| operation   | halted, or interrupted                                            | bad               |
| credential  | the gateway does not take a client key                            | bad               |

What an operation at work stops it has stopped on purpose. Of foreign containers only engines that discovery found
are watched, and never for having ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anvil_tui.core.alarms import Alarm, Level, LevelState, Marks, Severity, adopted, step, with_acks
from anvil_tui.core.box import MIB, Gpu
from anvil_tui.core.gpu_wire import APPLICATION_XIDS
from anvil_tui.core.journal import OperationView
from anvil_tui.core.reading import Reading
from anvil_tui.core.serves import lost_gpus, restart_loop, tag_drift
from anvil_tui.core.status import STALE_S
from anvil_tui.core.times import is_before
from anvil_tui.core.waivers import in_force
from anvil_tui.core.world import Phase, Serve, World

KV_MARGIN, RESERVE_MARGIN_MIB = 0.10, 256
"""By how much a level must have come back to be clear."""
EVENT_S = 900.0
"""An event is an alarm for so long after the last of its kind."""
THROTTLES = ("hw-slowdown", "sw-thermal", "hw-thermal", "hw-power-brake")
_OF_GPUS = ("gpu", "ecc", "row-remap", "xid", "throttle", "reserve")
_OF_SERVES = ("failed", "wedged", "restart", "kv", "drift")


def alarms_after(old: World, new: World) -> tuple[tuple[Alarm, ...], Marks]:
    """The alarms of `new`, which follows `old`, and its marks. A replayed world keeps what was recorded."""
    if new.replayed:
        return new.alarms, new.alarm_marks
    have, kept = new.alarms, new.kept_alarms
    if kept is not None:
        have = with_acks(have if old.kept_alarms is not None else adopted(have, kept), kept)
    settings = new.workspace.alarms
    return step(
        have, new.alarm_marks, levels(old, new), frozenset(_unsure(new)), new.now_s, new.now_utc, settings.clear_s
    )


def levels(old: World, new: World) -> Iterator[Level]:
    yield from _serves(old, new)
    yield from _gpus(old, new)
    yield from _sources(new)
    yield from _rollbacks(new)
    yield from _drifts(new)
    yield from _operations(new)
    yield from _credentials(new)


def _fresh(world: World, reading: Reading[Any], source: str) -> bool:
    limit = STALE_S[source]
    if source == "gpus":
        limit = max(limit, 3 * world.workspace.gpus.interval_s)
    return reading.ok and not reading.is_stale(world.now_s, limit)


def _unsure(world: World) -> Iterator[str]:
    if not _fresh(world, world.gpus, "gpus"):
        yield from _OF_GPUS
    if not _fresh(world, world.containers, "containers"):
        yield from _OF_SERVES
    if "operations" in world.source_errors:
        yield "operation"
    if not world.credentials:
        yield "credential"
    if world.workspace.clients and not world.clients:
        yield "drift"


def _level(
    world: World, kind: str, target: str, state: LevelState, text: str, severity: Severity = "warn", *,
    measured: bool = True, grade: int = 0,
) -> Level:  # fmt: skip
    """A `measured` level must hold for a while; what is a fact is raised at once."""
    settings = world.workspace.alarms
    hold_s = settings.hold_s if measured else 0
    return Level(kind, target, state, severity, text, hold_s, settings.clear_s, grade)


def _event(world: World, kind: str, target: str, happened: bool, text: str, severity: Severity) -> Level:
    return Level(kind, target, "on" if happened else "off", severity, text, 0, EVENT_S, event=True)


def _state(on: bool, off: bool) -> LevelState:
    return "on" if on else "off" if off else "between"


# serves


def _serves(old: World, new: World) -> Iterator[Level]:
    if not _fresh(new, new.containers, "containers"):
        return
    busy = {o.role for o in new.operations if o.outcome is None and o.alive}
    for s in new.serves:
        foreign = s.position == "foreign"
        if foreign and s.container.id not in new.found:
            continue
        severity: Severity = "bad" if s.position == "incumbent" else "warn"
        name = f"{s.name} ({s.container.id[:12]})"
        if not foreign:
            yield _failed(new, s, name, severity, busy)
        yield _wedged(new, s, name, severity)
        yield _restart(old, new, s, name)
        yield _kv(new, s, name)


def _failed(world: World, s: Serve, name: str, severity: Severity, busy: set[str]) -> Level:
    down = s.position == "incumbent" and s.phase in (Phase.STOPPED, Phase.CREATED)
    gone = s.phase in (Phase.FAILED, Phase.LOST, Phase.ABSENT) and not s.why.startswith("gpu_lost")
    ill = "bad" in (s.lights.http.state, s.lights.progress.state) or restart_loop(s.container, world)
    state: LevelState = "on" if (down or gone) and not ill else "off"
    if s.record and s.record.role in busy:
        state = "unknown"
    why = f": {s.why}" if s.why and s.why != s.phase else ""
    return _level(world, "failed", s.container.id, state, f"{name} {s.phase}{why}", severity)


def _wedged(world: World, s: Serve, name: str, severity: Severity) -> Level:
    http, progress = s.lights.http, s.lights.progress
    on = "bad" in (http.state, progress.state)
    off = not s.container.running or (http.state == "ok" and progress.state != "wait")
    state = _state(on, off)
    if s.container.running and not _fresh(world, s.engine, "engine"):
        state = "unknown"
    what = "makes no tokens while requests run" if progress.state == "bad" else f"http {http.word}"
    return _level(world, "wedged", s.container.id, state, f"{name} {what}", severity)


def _restart(old: World, new: World, s: Serve, name: str) -> Level:
    if loop := restart_loop(s.container, new):
        return _level(new, "restart", s.container.id, "on", f"{name}: {loop}", "bad", measured=False, grade=1)
    now, was = new.trails.get(s.container.id), old.trails.get(s.container.id)
    again = now is not None and was is not None and now.restarts > was.restarts and not _ours(new, s)
    return _event(new, "restart", s.container.id, again, f"{name}: its engine began anew", "warn")


def _ours(world: World, s: Serve) -> bool:
    """Whether an operation started the container: its start lies within one."""
    start = s.container.started_at
    return any(
        o.started_at
        and not is_before(start, o.started_at)
        and (not o.ended_at or not is_before(o.ended_at, start))
        for o in world.operations
        if start and s.record and o.role == s.record.role
    )


def _kv(world: World, s: Serve, name: str) -> Level:
    engine = s.engine.value if _fresh(world, s.engine, "engine") else None
    text = ""
    state: LevelState = "unknown" if s.container.running else "off"
    if engine is not None and engine.kv_used is not None and engine.waiting is not None:
        full = world.workspace.alarms.kv_percent / 100
        on = engine.kv_used >= full and engine.waiting > 0
        state = _state(on, engine.waiting == 0 or engine.kv_used < full - KV_MARGIN)
        text = f"{name}: KV pool {100 * engine.kv_used:.0f} % in use, {engine.waiting} requests wait"
    return _level(world, "kv", s.container.id, state, text)


# GPUs


def _gpus(old: World, new: World) -> Iterator[Level]:
    snapshot = new.gpus.value if _fresh(new, new.gpus, "gpus") else None
    if snapshot is None:
        return
    before = {g.uuid: g for g in old.gpus.value.gpus} if old.gpus.value else {}
    names = {uuid: f" {role}" for role, uuid in new.workspace.gpus.roles.items()}
    for gpu in snapshot.gpus:
        name = f"GPU {gpu.index}{names.get(gpu.uuid or '', '')} ({(gpu.uuid or 'UUID n/a')[:12]})"
        yield from _gpu(new, gpu, before.get(gpu.uuid), name)


def _gpu(world: World, gpu: Gpu, before: Gpu | None, name: str) -> Iterator[Level]:
    key, bad = gpu.uuid or f"index-{gpu.index}", gpu.state != "ok"
    text = f"{name} is {gpu.state}: {gpu.reason}"
    yield _level(world, "gpu", key, "on" if bad else "off", text, "bad", measured=gpu.state == "error")
    ecc = gpu.ecc_uncorrected
    text = f"{name}: {ecc} uncorrectable ECC errors since the driver was loaded"
    state: LevelState = "unknown" if ecc is None else "on" if ecc else "off"
    yield _level(world, "ecc", key, state, text, "bad", measured=False, grade=ecc or 0)
    yield _remap(world, gpu, key, name)
    yield _xid(world, gpu, before, key, name)
    slow = [t for t in gpu.throttle or () if t in THROTTLES]
    state = "unknown" if gpu.throttle is None else "on" if slow else "off"
    yield _level(world, "throttle", key, state, f"{name} is slowed down: {', '.join(slow)}")
    yield _reserve(world, gpu, key, name)


def _remap(world: World, gpu: Gpu, key: str, name: str) -> Level:
    if gpu.remap_failed:
        text = f"{name}: memory rows cannot be remapped any more: have it replaced"
        return _level(world, "row-remap", key, "on", text, "bad", measured=False, grade=1)
    state: LevelState = "unknown" if gpu.remap_pending is None else "on" if gpu.remap_pending else "off"
    text = f"{name}: memory rows are remapped at its next reset: drain it and reset it"
    return _level(world, "row-remap", key, state, text, measured=False)


def _xid(world: World, gpu: Gpu, before: Gpu | None, key: str, name: str) -> Level:
    """A reader that was started again counts from 0: what it told of before is no news, and neither is what a GPU
    has told of when it answers again."""
    if gpu.xids is None:
        return _level(world, "xid", key, "unknown", "")
    told = before.xids if before else 0
    what = "which a program on it can cause" if gpu.xid in APPLICATION_XIDS else "look in the kernel log"
    text = f"{name}: Xid {gpu.xid}: {what}"
    new = told is not None and gpu.xids > told
    return _event(world, "xid", key, new, text, "warn" if gpu.xid in APPLICATION_XIDS else "bad")


def _reserve(world: World, gpu: Gpu, key: str, name: str) -> Level:
    if gpu.free_bytes is None or not _fresh(world, world.containers, "containers"):
        return _level(world, "reserve", key, "unknown", "")
    free, asked = gpu.free_bytes // MIB, _asked_mib(world, gpu)
    state = _state(free < asked, not asked or free >= asked + RESERVE_MARGIN_MIB)
    return _level(world, "reserve", key, state, f"{name}: {free:,} MiB free, {asked:,} MiB must stay free")


def _asked_mib(world: World, gpu: Gpu) -> int:
    """The largest reserve of the serves that were given this GPU, with what was waived; 0 = none runs on it."""
    box_mib, asked = world.workspace.policies.reserve_mib, 0
    for s in world.serves:
        grant = s.container.gpus
        if (
            s.recipe is None
            or not s.container.running
            or not (grant.effective == "all" or gpu.uuid in grant.uuids)
        ):
            continue
        waiver = in_force(s.recipe, grant.uuids, world.waivers, world.now_utc.date(), box_mib)
        asked = max(asked, waiver.reserve_mib if waiver else s.recipe.reserve.needed_mib(box_mib))
    return asked


# the rest of the box


def _sources(world: World) -> Iterator[Level]:
    """A box on which nothing was promoted yet may have no gateway."""
    used = any(held.incumbent for held in world.record.roles.values())
    readings: tuple[tuple[str, Reading[Any], Severity], ...] = (
        ("gateway", world.gateway, "bad"), ("containers", world.containers, "warn"), ("gpus", world.gpus, "warn"),
    )  # fmt: skip
    for name, reading, severity in readings:
        on = reading.state == "error" and (used or name != "gateway")
        state = _state(on, True) if on or _fresh(world, reading, name) else "unknown"
        yield _level(world, "unreachable", name, state, f"{name} cannot be read: {reading.reason}", severity)


def _rollbacks(world: World) -> Iterator[Level]:
    """What has an alarm of its own is not told twice."""
    busy = {o.role for o in world.operations if o.outcome is None}
    told = {"credential", *(["gpus"] if lost_gpus(world) else [])}
    for role, way in world.rollbacks.items():
        against = [f"{c.name}: {c.why}" for c in way.checks if c.state == "missing" and c.name not in told]
        known = not way.target or all(c.state != "unknown" for c in way.checks)
        state: LevelState = "on" if against else "off" if known else "unknown"
        if role in busy:
            state = "unknown"
        text = f"rollback of {role} to {way.target} not ready: {'; '.join(against)}"
        yield _level(world, "rollback", role, state, text)


def _drifts(world: World) -> Iterator[Level]:
    gateway = world.gateway.value if _fresh(world, world.gateway, "gateway") and not world.lease else None
    state: LevelState = "unknown" if gateway is None else "off" if gateway.file_equal else "on"
    yield _level(world, "drift", "gateway", state, "the gateway's running aliases differ from the durable file")
    for c in world.clients:
        state = {"drift": "on", "converged": "off"}.get(c.state, "unknown") if not world.lease else "unknown"  # type: ignore[assignment]
        yield _level(world, "drift", f"client {c.name}", state, f"client {c.name}: {'; '.join(c.differences)}")
    if not _fresh(world, world.containers, "containers"):
        return
    for s in world.serves:
        if s.position == "foreign":
            moved = tag_drift(world, s.container)
            state = "on" if moved else "off" if s.container.image_ref in world.images else "unknown"
            text = f"foreign container {s.container.name} ({s.container.id[:12]}): {moved}"
            yield _level(world, "drift", s.container.id, state, text)


def _operations(world: World) -> Iterator[Level]:
    """Only those that wait for a person. Of any other the alarm ends, and of one that goes on or has its end at
    once: that is a fact, and "resume or undo it" is wrong from then on."""
    open_ones = {a.target for a in world.alarms if a.kind == "operation"}
    newest = {o.role: o.id for o in world.operations}
    for o in world.operations:
        if o.outcome == "halted" and not o.accepted and newest[o.role] == o.id:
            yield _waits(world, o, f"is halted: {o.why or 'no reason recorded'}", measured=False)
        elif o.outcome is None and o.started_at and not o.alive:
            yield _waits(world, o, "was interrupted: resume or undo it", measured=True)
        elif o.id in open_ones:
            yield Level("operation", o.id, "off")


def _waits(world: World, o: OperationView, what: str, *, measured: bool) -> Level:
    text = f"operation {o.id} ({o.kind} {o.target}) {what}"
    return _level(world, "operation", o.id, "on", text, "bad", measured=measured)


def _credentials(world: World) -> Iterator[Level]:
    known = world.gateway.ok and not world.lease
    for c in world.credentials:
        state: LevelState = (
            "on" if c.state in ("refused", "absent") else "off" if c.state == "accepted" else "unknown"
        )
        text = f"credential {c.name} is {c.state}: {c.why}"
        yield _level(world, "credential", c.name, state if known else "unknown", text, "bad")
