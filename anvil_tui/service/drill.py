"""What a drill does beside what promote and rollback do: take facts of the box, compare them, keep the record."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict

from anvil_tui.core.box import Container, Gateway, Gpu
from anvil_tui.core.drills import (
    Comparison,
    Fact,
    compare,
    differing,
    drill_record,
    facts_json,
    rechecked,
    start_facts,
)
from anvil_tui.core.errors import AnvilError, EffectFailed, NotFound, Refused
from anvil_tui.core.journal import Outcome
from anvil_tui.core.plan import Step
from anvil_tui.core.standing import DrillRecord
from anvil_tui.core.world import ServeRecord
from anvil_tui.service.box import Box, fresh_gpus
from anvil_tui.service.deeds import Deed, Seen, unless_running
from anvil_tui.service.draining import drain, drained
from anvil_tui.service.run import Run

SETTLE_S = 5.0
# what a stop and a start change in a container that is otherwise the same
_LIVE = frozenset({
    "status", "started_at", "finished_at", "exit_code", "oom_killed", "restart_count", "error", "health", "pid",
})  # fmt: skip


# the facts


def facts_of(box: Box, role: str, incumbent: str, way_back: str) -> tuple[Fact, ...]:
    """Everything that a drill must leave as it was, read now. What cannot be read is a fact without a value."""
    parts: tuple[tuple[str, Callable[[], Iterator[Fact]]], ...] = (
        ("incumbent", lambda: _container(box.containers.inspect(incumbent), "")),
        ("way back", lambda: _way_back(box, way_back)),
        ("engine", lambda: _engine(box, incumbent)),
        ("gateway", lambda: _gateway(box, role)),
        ("record", lambda: _record(box, role, incumbent, way_back)),
        ("GPUs", lambda: _gpus(box, (incumbent, way_back))),
        ("shared memory", lambda: _shared_memory(box, incumbent)),
    )
    found: list[Fact] = []
    for name, read in parts:
        try:
            found += read()
        except (AnvilError, KeyError) as why:
            found.append(Fact(name, None, str(why)))
    return tuple(found)


def _container(c: Container, prefix: str) -> Iterator[Fact]:
    def fact(name: str, value: object, *, moves: bool = False) -> Fact:
        said = None if value is None else str(value)
        return Fact(prefix + name, said, "" if said is not None else "the daemon does not tell it", moves)

    yield fact("container", c.id)
    yield fact("image", c.image_id)
    yield fact("status", c.status)
    yield fact("restart count", c.restart_count)
    yield fact("configuration", fingerprint(c))
    yield fact("started", c.started_at or "never", moves=True)
    yield fact("process", c.pid or "none", moves=True)


def _way_back(box: Box, container_id: str) -> Iterator[Fact]:
    c = box.containers.inspect(container_id)
    yield from _container(c, "way back ")
    yield Fact("way back exit code", "none" if c.exit_code is None else str(c.exit_code), moves=True)


def fingerprint(c: Container) -> str:
    """First 12 hex digits of the SHA-256 over all of a container that a stop and a start leave alone."""
    kept = {k: v for k, v in asdict(c).items() if k not in _LIVE}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()[:12]


def _engine(box: Box, incumbent: str) -> Iterator[Fact]:
    serve = box.store.read().serves[incumbent]
    recipe = box.store.kept_recipes().get(serve.recipe_digest)
    if recipe is None:
        raise NotFound(f"recipe {serve.recipe_id} ({serve.recipe_digest[:12]}) is not in state/recipes/")
    engine = box.engines.read(recipe.engine, serve.port)
    silent = "" if engine.http == "ready" else f"http {engine.http} on port {serve.port}: {engine.reason}"
    yield Fact("port", str(serve.port) if not silent else None, silent)
    yield Fact("served name", ", ".join(engine.served) if engine.served else None, silent or "no model card")
    context = None if engine.context_tokens is None else str(engine.context_tokens)
    yield Fact("context", context, silent or "the engine does not tell it")


def _gateway(box: Box, role: str) -> Iterator[Fact]:
    now: Gateway = box.gateway.snapshot()
    settings = box.workspace.role(role)
    for alias in settings.aliases if settings else ():
        yield Fact(f"alias {alias}", now.aliases.get(alias, "none"))
    for slot in settings.slots if settings else ():
        backend = now.backend(slot.name)
        yield Fact(f"slot {slot.name}", backend.address if backend else "not there")
    yield Fact("gateway file", "as the process" if now.file_equal else "not as the process")
    yield Fact("gateway generation", str(now.generation), moves=True)


def _record(box: Box, role: str, incumbent: str, way_back: str) -> Iterator[Fact]:
    now = box.store.read()
    held = now.roles.get(role)
    yield Fact("record", f"{held.incumbent} over {', '.join(held.rollback) or 'nothing'}" if held else "none")
    for name, container_id in (("incumbent", incumbent), ("way back", way_back)):
        serve: ServeRecord | None = now.serves.get(container_id)
        text = json.dumps(asdict(serve), sort_keys=True) if serve else "none"
        yield Fact(f"record of the {name}", hashlib.sha256(text.encode()).hexdigest()[:12] if serve else text)


def _gpus(box: Box, ids: tuple[str, ...]) -> Iterator[Fact]:
    """Who holds each GPU that one of the two was given: running containers by id, processes by their number."""
    all_of_them = box.containers.list()
    grants = [c.gpus for c in all_of_them if c.id in ids and c.gpus.effective != "none"]
    if not grants:
        return
    asked = box.clock.monotonic_s()
    reading = fresh_gpus(box)
    if reading.value is None or not reading.ok or reading.at_s is None or reading.at_s < asked:
        raise NotFound(reading.reason or "no reading since it was asked")
    uuids = {u.lower() for g in grants for u in g.uuids}
    every = any(g.effective in ("all", "unknown") for g in grants)
    for gpu in reading.value.gpus:
        if gpu.uuid and (every or gpu.uuid.lower() in uuids):
            yield Fact(f"GPU {gpu.uuid}", _owners(gpu, all_of_them))


def _owners(gpu: Gpu, containers: tuple[Container, ...]) -> str:
    if gpu.state != "ok":
        return f"{gpu.state}: {gpu.reason}"
    uuid = (gpu.uuid or "").lower()
    mine = [
        c.id[:12]
        for c in containers
        if c.running and (c.gpus.effective in ("all", "unknown") or uuid in {u.lower() for u in c.gpus.uuids})
    ]
    count = "an unknown number of" if gpu.processes is None else str(len(gpu.processes))
    return f"{', '.join(sorted(mine)) or 'nobody'}, {count} processes"


def _shared_memory(box: Box, incumbent: str) -> Iterator[Fact]:
    """Files of /dev/shm as the engine sees it: how many are in use, and which nobody uses any more."""
    seen = box.host.shared_files(box.containers.inspect(incumbent).pid)
    if seen.value is None:
        yield Fact("shared memory", None, seen.reason)
        return
    blind = [f.name for f in seen.value if f.users is None]
    why = f"{len(blind)} files without a known user, and not every process may be looked at" if blind else ""
    used, left = [f for f in seen.value if f.users], sorted(f.name for f in seen.value if f.users == ())
    yield Fact("shared memory in use", None if blind else f"{len(used)} files", why)
    yield Fact("shared memory left unused", None if blind else ", ".join(left) or "none", why)


# the deeds


def taken(run: Run, step: Step) -> Seen | None:
    return run.memory.get(step.name)


def take(run: Run, step: Step) -> None:
    run.memory[step.name] = {"facts": facts_json(_now(run.box, step))}


def _now(box: Box, step: Step) -> tuple[Fact, ...]:
    return facts_of(box, step.args["role"], step.args["incumbent"], step.args["way_back"])


def compare_facts(run: Run, step: Step) -> None:
    """Compare, and again for a while when something differs: one probe may be slow, and a driver forgets a process
    that has ended only some time later."""
    start, began_s = start_facts(run.journal.records()), run.box.clock.monotonic_s()
    if not start:
        run.memory[step.name] = {"note": "nothing was done before the facts of the start"}
        return
    said: tuple[str, ...] = ()
    while True:
        end = _now(run.box, step)
        found = compare(start, end)
        if not found.differences or run.box.clock.monotonic_s() >= began_s + _settle_s(run, found):
            break
        if found.differences != said:
            said = found.differences
            run.note(step, "; ".join(said))
        run.stop_if_asked()
        run.box.clock.sleep(run.box.workspace.gpus.interval_s)
    run.memory[step.name] = {"facts": facts_json(end), **asdict(found), "note": differing(found)}


def _settle_s(run: Run, found: Comparison) -> float:
    late = all(d.startswith("GPU ") for d in found.differences)
    return run.box.workspace.policies.gpu_release_timeout_s if late else SETTLE_S


def left(run: Run, step: Step) -> Seen | None:
    """Nothing is in flight on the way back's slot; not asked when the incumbent runs, since then it is held."""
    return {"runs": step.args["unless_running"]} if unless_running(run, step) else drained(run, step)


def leave(run: Run, step: Step) -> None:
    """Drain the way back before it stops. What does not end in time is not cut: the aliases return to it."""
    try:
        drain(run, step)
    except EffectFailed as why:
        answered = any(r.kind == "done" and r.step == "verify" for r in run.journal.records())
        if not answered:
            raise
        run.controls.gateway.point(
            step.args["targets"], run.generation, lambda at: run.checkpoint(f"{step.name}:{at}")
        )
        raise EffectFailed(f"{why}; the aliases are at {step.args['slot']} again, which goes on serving") from None


def drill_deeds() -> dict[str, Deed]:
    return {"facts": Deed(taken, take), "compare": Deed(taken, compare_facts), "leave": Deed(left, leave)}


# the record


def keep(box: Box, operation: str, outcome: Outcome, why: str) -> DrillRecord | None:
    """File what the journal says of the drill; a later end of the same operation replaces it. None = no drill."""
    at = box.clock.utc().isoformat(timespec="seconds")
    made = drill_record(box.operations.journal(operation).records(), at, outcome, why)
    if made is not None:
        box.store.keep_drill(made)
    return made


def recheck(box: Box, drill: DrillRecord) -> DrillRecord:
    """The box now against the start of that drill, filed as a later record. Refused for a copy, which is gone."""
    if drill.place == "copy":
        raise Refused(
            f"{drill.operation} ran on a simulated copy, which is gone: `drill {drill.role} --copy` again"
        )
    start = start_facts(box.operations.journal(drill.operation).records())
    if not start:
        raise NotFound(f"the journal of {drill.operation} holds no facts of a start: nothing to compare with")
    found = compare(start, facts_of(box, drill.role, drill.incumbent, drill.way_back))
    made = rechecked(drill, box.clock.utc().isoformat(timespec="seconds"), found)
    box.lease.take("recheck")
    try:
        box.store.keep_drill(made)
    finally:
        box.lease.release()
    return made
