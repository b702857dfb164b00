"""What a start took: free memory before it, and pool, bytes a rank and free memory once the serve is ready."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from anvil_tui.core.box import Container, Engine, Gpu, KvCapacity
from anvil_tui.core.errors import AnvilError
from anvil_tui.core.kv_log import capacity, with_log
from anvil_tui.core.loads import CardLoad, MeasuredLoad, replicas_of, shape_of
from anvil_tui.core.plan import Step
from anvil_tui.core.recipe import Recipe
from anvil_tui.service.box import fresh_gpus
from anvil_tui.service.run import Run

STARTUP_LINES = 50_000


def note_before(run: Run, step: Step, container: Container) -> None:
    """Journal what is free before the start: the half of a load's figures that nothing can tell afterwards.

    Not on the way back: there nobody waits for a figure.
    """
    if container.gpus.effective != "none" and not step.name.startswith("undo:"):
        free = {uuid: g.free_bytes for uuid, g in _cards(run, container).items()}
        said = ", ".join(f"{u[:12]} {'n/a' if b is None else b // 1024**2} MiB" for u, b in free.items())
        run.note(step, f"free before the start: {said or 'the GPUs cannot be read'}", free_before=free)


def measured(run: Run, step: Step, engine: Engine) -> dict[str, Any]:
    """Record the load of a serve that this operation started; what is returned goes into the journal.

    A serve that ran before, whose memory is that of its work, gives nothing.
    """
    records, start = run.journal.records(), step.name.replace("ready", "start")
    if step.name.startswith("undo:") or not any(r.kind == "done" and r.step == start for r in records):
        return {}
    recipe, container = run.recipe(step.args), run.need_container(step.args)
    notes = [r.data["free_before"] for r in records if r.step == start and "free_before" in r.data]
    pool = engine.capacity
    if pool is None or pool.per_rank_bytes is None:
        pool = with_log(pool, _from_log(run, recipe, container.id))
    before = notes[-1] if notes else {}
    cards = tuple(
        CardLoad(uuid, g.total_bytes, before.get(uuid), g.free_bytes) for uuid, g in _cards(run, container).items()
    )
    load = MeasuredLoad(
        run.operation, run.box.clock.utc().isoformat(timespec="seconds"), recipe.id, recipe.digest(),
        shape_of(recipe), recipe.envelope.context_tokens, recipe.envelope.concurrency, replicas_of(recipe),
        cards=cards,
    )  # fmt: skip
    if pool:
        load = replace(
            load, pool_tokens=pool.tokens, pool_source=pool.source, rank_bytes=pool.per_rank_bytes,
            odd=pool.inconsistent,
        )  # fmt: skip
    run.box.store.keep_load(load)
    return {"load": asdict(load)}


def _from_log(run: Run, recipe: Recipe, container_id: str) -> KvCapacity | None:
    """None when the log cannot be read or says nothing; the load is recorded without a pool then."""
    try:
        lines = run.box.containers.logs(container_id, tail=STARTUP_LINES)
    except AnvilError as why:
        run.journal.append("note", text=f"pool of {container_id[:12]} not read: {why}")
        return None
    return capacity(recipe.engine, [line.text for line in lines])


def _cards(run: Run, container: Container) -> dict[str, Gpu]:
    """The container's GPUs in a reading taken after now, {} when there is none within the reader's deadline."""
    if container.gpus.effective in ("none", "unknown"):
        return {}
    asked = run.box.clock.monotonic_s()
    seen = fresh_gpus(run.box)
    if not seen.ok or seen.at_s is None or seen.at_s < asked:
        return {}
    mine = {u.lower() for u in container.gpus.uuids}
    every = container.gpus.effective == "all"
    gpus = seen.value.gpus if seen.value else ()
    return {g.uuid: g for g in gpus if g.uuid and g.state == "ok" and (every or g.uuid.lower() in mine)}
