"""What steps do to containers and records. Each deed can look, so a repeat changes nothing.

`look` returns what was read back when the world already is as the step wants it, else None; `act` makes it
so. A step is done only when `look` says so after `act`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from anvil_tui.core.box import Container
from anvil_tui.core.errors import AnvilError, EffectFailed
from anvil_tui.core.ownership import pid_words
from anvil_tui.core.plan import Step
from anvil_tui.core.recipe import EngineKind
from anvil_tui.core.vram import fit, gpus_free
from anvil_tui.core.world import (
    DIGEST_LABEL,
    GENERATION_LABEL,
    OPERATION_LABEL,
    RECIPE_LABEL,
    BoxRecord,
    RoleRecord,
    ServeRecord,
)
from anvil_tui.ports import ContainerSpec
from anvil_tui.service.load_measure import note_before
from anvil_tui.service.release import released, sight_now, steadily, wait_released
from anvil_tui.service.run import Run
from anvil_tui.service.way_back import recorded, with_suite

Seen = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Deed:
    look: Callable[[Run, Step], Seen | None]
    act: Callable[[Run, Step], None]


# pull


def image_here(run: Run, step: Step) -> Seen | None:
    found = run.box.containers.image_id(step.args["ref"])
    return {"image": found} if found else None


def pull(run: Run, step: Step) -> None:
    run.controls.containers.pull(step.args["ref"], lambda text: run.note(step, text))


# create, start, stop, remove


def created(run: Run, step: Step) -> Seen | None:
    found = run.container({"created": True})
    return {"container": found.id, "image": found.image_id} if found else None


def create(run: Run, step: Step) -> None:
    """A port that somebody has is found here, before anything that serves is touched."""
    _free_port(run, step.args["port"], "nothing was created")
    recipe, role = run.recipe(step.args), run.box.workspace.role(step.args["role"])
    launch = recipe.launch
    mounts = tuple((run.box.mount_source(m.source), m.target, m.read_only) for m in launch.mounts)
    run.controls.containers.create(
        ContainerSpec(
            name=f"anvil-{recipe.id}-{run.operation.split('-')[0][4:].lower()}",
            image_ref=recipe.image.ref,
            argv=recipe.filled_argv(step.args["port"], role.aliases if role else ()),
            entrypoint=launch.entrypoint,
            env=launch.env,
            mounts=mounts,
            labels={
                OPERATION_LABEL: run.operation,
                RECIPE_LABEL: recipe.id,
                DIGEST_LABEL: recipe.digest(),
                GENERATION_LABEL: str(run.generation),
            },
            gpu_uuids=tuple(step.args["gpus"]),
            shm_mib=launch.shm_mib,
            ipc=launch.ipc,
            memory_limit_mib=launch.memory_limit_mib,
            cpus=launch.cpus,
            stop_grace_s=launch.stop_grace_s,
        )
    )


def started(run: Run, step: Step) -> Seen | None:
    found = run.container(step.args)
    return {"container": found.id, "started": found.started_at} if found and found.running else None


def start(run: Run, step: Step) -> None:
    found, port = run.need_container(step.args), step.args["port"]
    _free_port(run, port, f"{found.id[:12]} does not run")
    note_before(run, step, found)
    run.controls.containers.start(found.id)
    process_gone(run, found.id)


def _free_port(run: Run, port: int, so: str) -> None:
    if (light := run.box.engines.read(EngineKind.OPENAI, port).http) != "refused":
        raise EffectFailed(f"port {port} answers already ({light}) and {so}: {_who_has(run, port)}")


def _who_has(run: Run, port: int) -> str:
    """The process behind a port, and its container, as far as this machine can tell."""
    look = run.box.listeners.look(port) if run.box.listeners else None
    if look is None or look.pid is None:
        return "whose is it?"
    container = run.box.host.containers_of([look.pid]).get(look.pid, "")
    of = f" of container {container[:12]}" if container else ""
    return f"{look.name} (pid {look.pid}){of} has it"


def process_gone(run: Run, container_id: str) -> str | None:
    """Raises when the process has ended; never an answer of its own."""
    now = run.box.containers.inspect(container_id)
    if now.status in ("exited", "dead", "restarting"):
        tail = [line.text for line in run.box.containers.logs(container_id, tail=8)]
        oom = ", OOM-killed" if now.oom_killed else ""
        cause = now.error or " / ".join(t for t in tail[-3:] if t.strip())
        raise EffectFailed(
            f"container {container_id[:12]} {now.status}, exit code {now.exit_code}{oom}: {cause[:600]}"
        )
    return None


def stopped(run: Run, step: Step) -> Seen | None:
    found = run.container(step.args)
    if found is None:
        return {"container": "absent"} if step.args.get("absent_ok") else None
    if found.running:
        return None
    seen = {"container": found.id, "exit_code": found.exit_code, "oom": found.oom_killed}
    ours = f"stop {found.id}" in run.memory and found.exit_code == 137 and not found.oom_killed
    return seen | ({"note": f"stopped (killed after {step.args['grace_s']} s)"} if ours else {})


def stop(run: Run, step: Step) -> None:
    """The log is kept before, should the stop never return, and after, with the engine's last words."""
    found = run.need_container(step.args)
    keep_log(run, found)
    run.memory[f"stop {found.id}"] = step.name
    run.controls.containers.stop(found.id, step.args["grace_s"])
    keep_log(run, found)


def removed(run: Run, step: Step) -> Seen | None:
    return {"container": "absent"} if run.container(step.args) is None else None


def remove(run: Run, step: Step) -> None:
    found = run.need_container(step.args)
    keep_log(run, found)
    run.controls.containers.remove(found.id)


def keep_log(run: Run, container: Container) -> None:
    """The log is evidence of why something is taken down; a log that cannot be read is said, not fatal."""
    try:
        lines = run.box.containers.logs(container.id, tail=5000)
        run.box.operations.save(run.operation, f"{container.id[:12]}.log", "\n".join(line.text for line in lines))
    except AnvilError as why:
        run.journal.append("note", text=f"log of {container.id[:12]} not kept: {why}")


# GPUs


def freed(run: Run, step: Step) -> Seen | None:
    if unless_running(run, step):
        return {"held_by": "the incumbent, which runs"}
    reading = run.box.gpus.read()
    if not reading.ok or reading.value is None or held_by(run, step):
        return None
    free = {g.uuid: g.free_bytes for g in reading.value.gpus if g.uuid in step.args["gpus"]}
    return {"free_bytes": free}


def held_by(run: Run, step: Step) -> str | None:
    reading = run.box.gpus.read()
    if not reading.ok or reading.value is None:
        return f"GPUs cannot be read: {reading.reason}"
    uuids, need = tuple(step.args["gpus"]), step.args["need_free_mib"]
    if not step.args["alone"]:
        return "; ".join(fit(reading, uuids, need).reasons) or None
    return "; ".join(gpus_free(reading.value, uuids, need, whose=pid_words(sight_now(run)))) or None


def unless_running(run: Run, step: Step) -> bool:
    """Whether the serve for whose sake the step would be done runs anyway."""
    named = step.args.get("unless_running")
    found = run.container({"container": named}) if named else None
    return bool(found and found.running)


def wait_free(run: Run, step: Step) -> None:
    steadily(run, step, held_by)


# the box record


def record_holds(run: Run, step: Step) -> Seen | None:
    now = run.box.store.read()
    return {"generation": now.generation} if applied(run, step, now) == now else None


def record(run: Run, step: Step) -> None:
    now = run.fenced(run.box.store.read())
    run.box.store.write(applied(run, step, now), now)


def applied(run: Run, step: Step, now: BoxRecord) -> BoxRecord:
    """The record as the step wants it; applying twice changes nothing."""
    args, serves, roles = step.args, dict(now.serves), dict(now.roles)
    if "serve" in args:
        made = serve_record(run, args["serve"], serves, args.get("suite", ""))
        serves[made.container_id] = made
    if "qualified" in args:
        serves[args["qualified"]] = _proven(run, serves[args["qualified"]], args["suite"])
    if "unqualified" in args and a_gate_failed(run):
        serves[args["unqualified"]] = qualified(serves[args["unqualified"]], "", "", "")
    if "forget" in args:
        serves.pop(args["forget"], None)
        roles = {n: replace(r, rollback=tuple(i for i in r.rollback if i in serves)) for n, r in roles.items()}
    if args.get("forget_made"):
        serves = {k: v for k, v in serves.items() if v.made_by != run.operation}
    if "role" in args:
        holder = args["incumbent"]
        incumbent = run.need_container(holder).id if isinstance(holder, Mapping) else holder
        roles[args["role"]] = RoleRecord(
            args["role"], incumbent, tuple(args["ladder"]), args.get("evicted_for", "")
        )
    return replace(now, serves=serves, roles=roles)


def serve_record(run: Run, args: Mapping[str, Any], have: Mapping[str, ServeRecord], suite: str) -> ServeRecord:
    container, recipe = run.need_container(args), run.recipe(args)
    old = have.get(container.id)
    fresh = old or ServeRecord(
        container_id=container.id,
        recipe_id=recipe.id,
        recipe_digest=args["digest"],
        image_id=container.image_id,
        role=args["role"],
        slot=args["slot"],
        port=args["port"],
        served_name=recipe.served_name,
        made_by=container.labels.get(OPERATION_LABEL, run.operation),
        exclusive=recipe.exclusive,
    )
    if not fresh.shape:
        fresh = replace(fresh, shape=recorded(run.box, container, recipe))
    return _proven(run, fresh, suite) if suite else fresh


def _proven(run: Run, serve: ServeRecord, suite: str) -> ServeRecord:
    """Qualified by this operation; a lesser suite takes nothing from a serve that passed its role's own.

    A record from before shapes were kept gets one: what passed is what it is.
    """
    if not serve.shape:
        recipe = run.recipe({"recipe": serve.recipe_id, "digest": serve.recipe_digest})
        serve = replace(
            serve, shape=recorded(run.box, run.need_container({"container": serve.container_id}), recipe)
        )
    role = run.box.workspace.role(serve.role)
    if role and serve.qualified_suite == role.promotion_suite != suite:
        return serve
    judged = replace(serve, shape=with_suite(run.box, serve.shape, suite))
    return qualified(judged, suite, run.operation, run.begun_at)


def a_gate_failed(run: Run) -> bool:
    """The serve did wrong. A cancel, or trouble of our own, takes nothing away from what was proven before."""
    verdicts = {r.data["id"]: r.data["verdict"] for r in run.journal.records() if r.kind == "gate"}
    return "failed" in verdicts.values()


def qualified(serve: ServeRecord, suite: str, by: str, at: str) -> ServeRecord:
    return replace(serve, qualified_by=by, qualified_at=at, qualified_suite=suite)


# decide


def decided(run: Run, step: Step) -> Seen | None:
    ways = [r.data["way"] for r in run.journal.records() if r.kind == "decide"]
    return {"way": "forward"} if ways and ways[-1] == "forward" else None


def decide(run: Run, step: Step) -> None:
    run.journal.append("decide", way="forward", why=step.args["why"])


# the way back


def startable(run: Run, step: Step) -> Seen | None:
    """The incumbent can start again, or runs: its container exists, and with it the image it was made from."""
    found = run.container(step.args)
    return {"container": found.id} if found and found.status not in ("dead", "removing") else None


def no_way_back(run: Run, step: Step) -> None:
    raise EffectFailed(
        f"container {step.args['container'][:12]} does not exist any more, so nothing else is stopped; "
        "what serves now goes on"
    )


DEEDS: dict[str, Deed] = {
    "pull": Deed(image_here, pull),
    "create": Deed(created, create),
    "start": Deed(started, start),
    "stop": Deed(stopped, stop),
    "remove": Deed(removed, remove),
    "free": Deed(freed, wait_free),
    "record": Deed(record_holds, record),
    "released": Deed(released, wait_released),
    "decide": Deed(decided, decide),
    "way-back": Deed(startable, no_way_back),
}
