"""The whole world as text and as JSON, for the headless `status`. Pure.

Unknown, zero, stale and error are told apart in both: `n/a` and null are unknown, a stale value has its age
beside it, an error its reason (with the last value, marked). Times are UTC and say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, is_dataclass
from datetime import UTC
from typing import Any

from anvil_tui.core.alarms import alarm_text, ordered
from anvil_tui.core.box import MIB, Engine, Gpu, GpuSnapshot, KvCapacity
from anvil_tui.core.capacity import Capacity, capacity_json, capacity_of, capacity_text
from anvil_tui.core.credentials import copy_text, credential_text
from anvil_tui.core.discovery import NO_WORKSPACE
from anvil_tui.core.drills import drill_line, last_drill, trend_line, trends
from anvil_tui.core.holding import words as holding_words
from anvil_tui.core.inflight import SHOWN, on_slot, request_json, request_text
from anvil_tui.core.ownership import mode, owner_text, pid_words, sight_of
from anvil_tui.core.reading import Reading
from anvil_tui.core.text import clean
from anvil_tui.core.times import parse_time, utc_text, with_zone
from anvil_tui.core.vram import holder
from anvil_tui.core.world import Lights, Readiness, Serve, World

STATUS_SCHEMA = "anvil.status/1"
# Three missed cadences of each source.
STALE_S = {"gpus": 6.0, "host": 15.0, "containers": 6.0, "gateway": 3.0, "engine": 9.0}


def status_json(world: World) -> dict[str, Any]:
    """JSON-able. Each reading is an object with state, value, age_s, stale, reason, source."""
    return {
        "schema": STATUS_SCHEMA,
        "at": utc_text(world.now_utc),
        "box": {
            "name": world.workspace.box.name,
            "kind": world.workspace.box.kind,
            "read_only": world.read_only,
            "workspace": bool(world.workspace.roles),
        },
        "lease": asdict(world.lease) if world.lease else None,
        "gpus": _reading(world, world.gpus, "gpus"),
        "credentials": [asdict(c) for c in world.credentials],
        "owners": [asdict(o) for o in world.owners],
        "gpu_mode": mode(sight_of(world), world.owners),
        "host": _reading(world, world.host, "host"),
        "containers": {**_reading(world, world.containers, "containers"), "value": _count(world)},
        "gateway": _gateway_json(world),
        "serves": [_serve_json(world, s) for s in world.serves],
        "roles": {n: asdict(r) for n, r in world.record.roles.items()},
        "rollbacks": {n: {**asdict(r), "ready": r.ready} for n, r in world.rollbacks.items()},
        "returns": {n: {**asdict(r), "ready": r.ready} for n, r in world.returns.items()},
        "operations": [{**asdict(o), "state": o.state} for o in world.operations[-5:]],
        "recipes": {"usable": sum(f.recipe is not None for f in world.recipes), "errors": _recipe_errors(world)},
        "qualified": {name: asdict(h) for name, h in sorted(world.qualified.items())},
        "drills": {"last": _last_drills(world), "trends": [asdict(t) for t in trends(world.drills)]},
        "clients": [asdict(c) for c in world.clients],
        "watcher": asdict(world.watcher) if world.watcher else None,
        "alarms": [asdict(a) for a in ordered(world.alarms)],
        "problems": list(world.problems),
    }


def _count(world: World) -> int | None:
    return None if world.containers.value is None else len(world.containers.value)


def _recipe_errors(world: World) -> dict[str, str]:
    return {f.path: f.error for f in world.recipes if f.error}


def _reading(world: World, reading: Reading[Any], source: str) -> dict[str, Any]:
    age = reading.age_s(world.now_s)
    raw = reading.value
    value = asdict(raw) if is_dataclass(raw) and not isinstance(raw, type) else raw
    return {
        "state": reading.state,
        "value": value,
        "age_s": None if age is None else round(age, 3),
        "stale": reading.is_stale(world.now_s, STALE_S[source]),
        "reason": reading.reason,
        "source": reading.source,
    }


def _gateway_json(world: World) -> dict[str, Any]:
    """The reading, with the state and the rate of each request beside its figures."""
    made, gateway = _reading(world, world.gateway, "gateway"), world.gateway.value
    if gateway is not None and gateway.requests is not None:
        listed = [request_json(r, world.workspace.policies) for r in gateway.requests]
        made["value"] = {**made["value"], "requests": listed}
    return made


def _serve_json(world: World, s: Serve) -> dict[str, Any]:
    trail = world.trails.get(s.container.id)
    return {
        "name": s.name,
        "container": asdict(s.container),
        "phase": str(s.phase),
        "why": s.why,
        "position": s.position,
        "lights": asdict(s.lights),
        "in_flight": s.in_flight,
        "recipe": s.recipe.id if s.recipe else None,
        "record": asdict(s.record) if s.record else None,
        "engine": _reading(world, s.engine, "engine"),
        "capacity": capacity_json(serve_capacity(world, s)),
        "rate_per_s": trail.rate if trail else None,
    }


def status_lines(world: World) -> list[str]:
    """A page for people, widest facts first."""
    lines = [_head(world), _lease(world)]
    lines += _section("GPUs", _gpus(world))
    lines += _section("Host", _host(world))
    lines += _section("Gateway", _gateway(world))
    lines += _section("Serves", _serves(world))
    if world.workspace.roles:
        lines += _of_roles(world)
    lines += _section("Alarms", _alarms(world))
    lines += _section("Problems", iter(world.problems or ("none",)))
    return [clean(line, 400) for line in lines]


def _of_roles(world: World) -> list[str]:
    """What only a workspace has."""
    lines = _section("Rollback", _rollbacks(world))
    lines += _section("Drills", _drills(world))
    lines += _section("Credentials", _credentials(world))
    if world.workspace.clients:
        lines += _section("Clients", _clients(world))
    return lines + _section("Qualified", _qualified(world))


def _section(title: str, rows: Iterator[str]) -> list[str]:
    return ["", title, *(f"  {row}" for row in rows)]


def _head(world: World) -> str:
    box = world.workspace.box
    kind = box.kind if world.workspace.roles else NO_WORKSPACE
    return f"{box.name} · {kind} · {with_zone(world.now_utc, UTC)}"


def _lease(world: World) -> str:
    if world.lease is None:
        return "lease free"
    since = with_zone(parse_time(world.lease.since), UTC)
    return f"lease held by {world.lease.operation}, pid {world.lease.pid}, {world.lease.user}, since {since}"


def _alarms(world: World) -> Iterator[str]:
    """Those that are kept, and what is one at once: no level can hold in the moment of one `status`."""
    if world.watcher is None:
        how = (
            "`anvil-tui watch`, or an open console" if world.workspace.roles else "alarms are kept in a workspace"
        )
        yield f"nobody watches this box: {how}"
    yield from (f"{a.since[:19]}Z {alarm_text(a)}" for a in ordered(world.alarms))
    if not world.alarms:
        yield "none"


def _unread(world: World, reading: Reading[Any], source: str) -> Iterator[str]:
    """A line for a reading that is not a fresh value; nothing for one that is."""
    age = reading.age_s(world.now_s)
    if reading.state == "unknown":
        yield f"unknown: {reading.reason}"
    elif reading.state == "error":
        last = "; last value below" if reading.value is not None else ""
        yield f"error: {reading.reason}{last}"
    elif reading.is_stale(world.now_s, STALE_S[source]) and age is not None:
        yield f"stale: read {age:.0f} s ago"


def _gpus(world: World) -> Iterator[str]:
    yield from _unread(world, world.gpus, "gpus")
    snapshot: GpuSnapshot | None = world.gpus.value
    if snapshot is None:
        return
    if not snapshot.gpus:
        yield "0 GPUs"
    roles = {uuid: role for role, uuid in world.workspace.gpus.roles.items()}
    seen = sight_of(world)
    words = pid_words(seen)
    if snapshot.gpus:
        yield f"owned: {mode(seen, world.owners)}"
    for gpu in snapshot.gpus:
        yield _gpu(gpu, roles.get(gpu.uuid or "", ""))
        yield from (f"    owner {owner_text(o)}" for o in world.owners if o.gpu == gpu.uuid)
        yield from (f"    {holder(p)} {words.get(p.pid, '')}".rstrip() for p in gpu.processes or ())
        if gpu.processes is None and gpu.state == "ok":
            yield "    process list not available here"


def _gpu(gpu: Gpu, role: str) -> str:
    who = f"{gpu.index} {role or '-'} {gpu.name or 'name n/a'} {gpu.uuid or 'UUID n/a'}"
    if gpu.state != "ok":
        return f"{who}: {gpu.state}: {gpu.reason}"
    memory = f"used {_mib(gpu.used_bytes)} free {_mib(gpu.free_bytes)} of {_mib(gpu.total_bytes)} MiB"
    if gpu.used_includes_reserved:
        memory += " (used includes reserved)"
    util, temp, watt = _text(gpu.utilization_pct), _text(gpu.temperature_c), _text(gpu.power_w)
    return f"{who}: {memory}, {util} %, {temp} C, {watt} W"


def _mib(value: int | None) -> str:
    return "n/a" if value is None else f"{value // MIB:,}"


def _text(value: float | None) -> str:
    return "n/a" if value is None else f"{value:g}"


def _host(world: World) -> Iterator[str]:
    yield from _unread(world, world.host, "host")
    h = world.host.value
    if h is None:
        return
    yield f"memory available {_mib(h.memory_available)} of {_mib(h.memory_total)} MiB"
    yield f"swap used {_mib(h.swap_used)} of {_mib(h.swap_total)} MiB"
    yield f"disk free {_mib(h.disk_free)} of {_mib(h.disk_total)} MiB"
    yield f"shm used {_mib(h.shm_used)} of {_mib(h.shm_total)} MiB"


def _gateway(world: World) -> Iterator[str]:
    yield from _unread(world, world.gateway, "gateway")
    g = world.gateway.value
    if g is None:
        return
    yield from (f"{alias} -> {target}" for alias, target in sorted(g.aliases.items()))
    for b in g.backends:
        yield f"{b.name} {b.address}: in flight {_text(b.in_flight)}, queued {_text(b.queued)}"
        requests = on_slot(g, b.name)
        if requests is None and b.in_flight:
            yield "    requests cannot be listed"
        policies = world.workspace.policies
        yield from (f"    {request_text(r, policies)}" for r in (requests or ())[:SHOWN])
        if requests and len(requests) > SHOWN:
            yield f"    and {len(requests) - SHOWN} more"
    yield f"held {_text(g.held)}, generation {g.generation}, file {'equal' if g.file_equal else 'DIFFERS'}"


def _serves(world: World) -> Iterator[str]:
    if not world.containers.ok:
        yield from _unread(world, world.containers, "containers")
    elif not world.serves:
        yield "0 serves"
    for s in world.serves:
        why = f": {s.why}" if s.why and s.why != s.phase else ""
        yield f"{s.name} {s.container.id[:12]} {s.position} {s.phase}{why}"
        yield f"    {_lights(s.lights)}; in flight {_text(s.in_flight)}"
        if s.engine.value is not None:
            yield f"    {_engine(world, s.engine.value, s)}"
            yield f"    {capacity_text(serve_capacity(world, s))}"


def _lights(lights: Lights) -> str:
    pairs: Mapping[str, Any] = {
        "process": lights.process, "http": lights.http, "identity": lights.identity, "progress": lights.progress,
    }  # fmt: skip
    return ", ".join(f"{name} {light.state} ({light.word})" for name, light in pairs.items())


def _engine(world: World, engine: Engine, serve: Serve) -> str:
    trail = world.trails.get(serve.container.id)
    kv = "n/a" if engine.kv_used is None else f"{100 * engine.kv_used:.1f} %"
    rate = "n/a" if trail is None or trail.rate is None else f"{trail.rate:.1f}/s"
    counts = f"running {_text(engine.running)}, waiting {_text(engine.waiting)}"
    context = f"context {_text(engine.context_tokens)}"
    return f"{counts}, KV used {kv}, {context}, {_pool(engine.capacity)}, progress {rate}"


def _pool(kv: KvCapacity | None) -> str:
    if kv is None or kv.tokens is None:
        return "KV pool n/a"
    rank = f", {_mib(kv.per_rank_bytes)} MiB a rank" if kv.per_rank_bytes is not None else ""
    return f"KV pool {kv.tokens:,} tokens ({kv.source}, {kv.at or 'time n/a'}{rank})"


def serve_capacity(world: World, s: Serve) -> Capacity:
    """Configured, resident and measured concurrency of one serve, by the exact recipe that made it."""
    digest = s.record.recipe_digest if s.record else s.recipe.digest() if s.recipe else ""
    return capacity_of(s.recipe, s.engine.value, world.proven.get(digest, ()))


def _qualified(world: World) -> Iterator[str]:
    if not world.qualified:
        yield "evidence not read"
    yield from (f"{name}: {holding_words(h)}" for name, h in sorted(world.qualified.items()) if h.state != "never")
    never = sum(h.state == "never" for h in world.qualified.values())
    if never:
        yield f"{never} recipes never qualified"


def _last_drills(world: World) -> dict[str, Any]:
    """By role, the newest drill on this box; None = never drilled."""
    found = {r.name: last_drill(world.drills, r.name) for r in world.workspace.roles}
    return {name: asdict(d) if d else None for name, d in found.items()}


def _credentials(world: World) -> Iterator[str]:
    if not world.credentials:
        yield "not looked at"
    for c in world.credentials:
        yield credential_text(c, world.now_utc)
        yield from (f"    copy {copy_text(copy)}" for copy in c.copies)


def _drills(world: World) -> Iterator[str]:
    if "drills" in world.source_errors:
        yield f"drills cannot be read: {world.source_errors['drills']}"
        return
    for role in world.workspace.roles:
        drill = last_drill(world.drills, role.name)
        yield drill_line(drill) if drill else f"{role.name}: never drilled"
    yield from map(trend_line, trends(world.drills))


def _clients(world: World) -> Iterator[str]:
    if not world.clients:
        yield "not looked at"
    for c in world.clients:
        said = "; ".join((*c.differences, *([c.why] if c.why else [])))
        yield f"{c.name} {c.state} {c.where}" + (f": {said}" if said else "")


def _rollbacks(world: World) -> Iterator[str]:
    for role, r in world.rollbacks.items():
        yield f"{role} -> {r.target or 'nothing'}: {_ready(r)}"
        yield from (f"    {c.name:13} {c.state:7} {c.why}" for c in r.checks)
    for role, r in world.returns.items():
        if r.target:
            yield f"{role}, once promoted over -> {r.target}: {_ready(r)}"
            yield from (f"    {c.name:13} {c.state:7} {c.why}" for c in r.checks if c.state != "ok")


def _ready(r: Readiness) -> str:
    return r.word if r.ready else f"{r.word}: {'; '.join(r.missing)}"
