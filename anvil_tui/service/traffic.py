"""What steps do to traffic and ask of engines: point aliases, drain, prove ready, run gates, verify."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anvil_tui.core.box import Expected
from anvil_tui.core.engine_log import load_phase
from anvil_tui.core.errors import AnvilError, EffectFailed
from anvil_tui.core.plan import Step
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.times import is_before
from anvil_tui.core.world import ServeRecord
from anvil_tui.ports import ChatAnswer, ChatRequest
from anvil_tui.service.box import Box, engine_url
from anvil_tui.service.client_deeds import CLIENT_DEEDS
from anvil_tui.service.credentials import refused_now, wait_for_key
from anvil_tui.service.deeds import DEEDS, Deed, Seen, process_gone, unless_running
from anvil_tui.service.draining import drain, drained, retire, retired
from anvil_tui.service.gate_run import gates_passed, run_gates
from anvil_tui.service.load_measure import measured
from anvil_tui.service.run import Run
from anvil_tui.service.storage_deeds import STORAGE_DEEDS

PROBE_TIMEOUT_S = 60.0
PROBES = 3
LOADING_LINES = 400


# aliases


def pointed(run: Run, step: Step) -> Seen | None:
    if unless_running(run, step):
        return {"serves": step.args["unless_running"]}
    now = run.box.gateway.snapshot()
    wanted: Mapping[str, str] = step.args["targets"]
    if now.file_equal and all(now.aliases.get(a) == t for a, t in wanted.items()):
        return {"targets": dict(wanted), "generation": now.generation}
    return None


def point(run: Run, step: Step) -> None:
    """Never to an engine that has ended since it was proven: who is held stays held until the way back."""
    if "alive" in step.args:
        process_gone(run, run.need_container(step.args["alive"]).id)
    run.controls.gateway.point(
        step.args["targets"], run.generation, lambda at: run.checkpoint(f"{step.name}:{at}")
    )


def told(run: Run, step: Step) -> Seen | None:
    """Whether the gateway knows what the slot serves; one that takes whatever runs there knows enough."""
    backend = run.box.gateway.snapshot().backend(step.args["slot"])
    wanted = Expected(**step.args["expects"])
    if backend is None or backend.expects not in (None, wanted):
        return None
    return {"slot": step.args["slot"], "expects": step.args["expects"]}


def tell(run: Run, step: Step) -> None:
    run.controls.gateway.expect(step.args["slot"], Expected(**step.args["expects"]), run.generation)


# ready


def proven(run: Run, step: Step) -> Seen | None:
    """Ready, and what the load took, if this operation loaded it."""
    if not_ready(run, step.args):
        return None
    engine = run.box.engines.read(run.recipe(step.args).engine, step.args["port"])
    return {**run.memory[f"ready {step.args['port']}"], **measured(run, step, engine)}


def wait_ready(run: Run, step: Step) -> None:
    """Ends at once when the process has ended: the wait is for a load, not for a corpse."""
    container = run.need_container(step.args)
    try:
        run.wait(step, lambda: process_gone(run, container.id) or not_ready(run, step.args))
    except EffectFailed as why:
        if run.remaining_s() > 0:
            raise
        raise EffectFailed(f"start_timeout: {why}; {_last_progress(run, step, container.id)}") from None


def _last_progress(run: Run, step: Step, container_id: str) -> str:
    """Where the load stood when its time was over, and what to do about it."""
    try:
        began = run.box.containers.inspect(container_id).started_at
        told = run.box.containers.logs(container_id, tail=LOADING_LINES)
        lines = [line.text for line in told if not is_before(line.at, began)]
    except AnvilError as why:
        return f"its log cannot be read: {why}"
    phase = load_phase(run.recipe(step.args).engine, lines)
    return f"last progress {phase}; raise launch.start_deadline_s of the recipe if it only needs longer"


def not_ready(run: Run, args: Mapping[str, Any]) -> str | None:
    """Why a serve is not proven ready: HTTP, the exact id and context on its model card, one real answer."""
    recipe = run.recipe(args)
    engine = run.box.engines.read(recipe.engine, args["port"])
    if engine.http != "ready":
        return f"http {engine.http}: {engine.reason}" if engine.reason else f"http {engine.http}"
    if not engine.served:
        return (
            f"port {args['port']} does not tell what it serves: {engine.reason or 'its list of models is empty'}"
        )
    if recipe.served_name not in engine.served:
        raise EffectFailed(
            f"identity_mismatch: port {args['port']} serves {engine.served}, not {recipe.served_name}"
        )
    if engine.context_tokens is not None and engine.context_tokens < recipe.envelope.context_tokens:
        raise EffectFailed(
            f"identity_mismatch: context is {engine.context_tokens} tokens, "
            f"the recipe promises {recipe.envelope.context_tokens}"
        )
    run.memory[f"ready {args['port']}"] = {"served": list(engine.served), "context": engine.context_tokens}
    for stream in (False, True):
        url, left_s = engine_url(args["port"]), run.remaining_s()
        if why := unanswered(complete(run.box, url, recipe.served_name, None, stream=stream, limit_s=left_s)):
            return why
    return None


def complete(
    box: Box, url: str, model: str, key: str | None, *, stream: bool = False, limit_s: float = PROBE_TIMEOUT_S
) -> ChatAnswer:
    """One short answer; an engine that hangs costs no more than what the step has left."""
    request = ChatRequest(model, ({"role": "user", "content": "Say OK."},), max_tokens=16, stream=stream)
    return box.chat.chat(url, request, api_key=key, timeout_s=max(1.0, min(PROBE_TIMEOUT_S, limit_s)))


def unanswered(answer: ChatAnswer) -> str | None:
    """Why an answer is no proof of life; reasoning counts, an empty message does not."""
    if answer.error:
        return f"a real completion failed: {answer.error} {answer.status or ''} {answer.error_message}".strip()
    if not (answer.content or answer.reasoning):
        return f"a real completion came back empty (finish {answer.finish_reason})"
    return None


# verify


def verified(run: Run, step: Step) -> Seen | None:
    return run.memory.get(step.name)


def verify(run: Run, step: Step) -> None:
    """Every public alias answers from the serve, whose port shows its exact id. One bad probe does not decide.

    A refused client key is waited for; a way back does without it: its serve was proven ready at its own port.
    """
    recipe, aliases = run.recipe(step.args), step.args["aliases"]
    engine = run.box.engines.read(recipe.engine, step.args["port"])
    if recipe.served_name not in engine.served:
        raise EffectFailed(f"identity_mismatch: port {step.args['port']} serves {engine.served or engine.http}")
    if step.name.startswith("undo:") and (why := refused_now(run)):
        run.residue.append(f"not verified through the gateway: {why}")
        run.memory[step.name] = {"unverified": why, "slot": step.args["slot"]}
        return
    rounds = -(-step.args["requests"] // len(aliases))
    for alias in aliases * rounds:
        answered(run, step, alias, recipe)
    run.memory[step.name] = {"answered": len(aliases) * rounds, "slot": step.args["slot"]}


def answered(run: Run, step: Step, alias: str, recipe: Recipe) -> None:
    why: str | None = ""
    for _ in range(PROBES):
        wait_for_key(run, step)
        if (why := misrouted(run.box, alias, step.args["slot"], recipe)) is None:
            return
        run.note(step, f"{alias}: {why}")
        run.box.clock.sleep(0.5)
    raise EffectFailed(f"{alias} did not answer from {step.args['slot']} in {PROBES} probes: {why}")


def misrouted(box: Box, alias: str, slot: str, recipe: Recipe) -> str | None:
    """Why an answer through an alias is no proof that the serve gave it. What the answer calls its model never
    counts; the gateway's own account does."""
    way = box.gateway.way(alias, recipe.served_name)
    answer = complete(box, way.base_url, way.model, box.client_key(), stream=True)
    if why := unanswered(answer):
        return why
    return box.gateway.served_by(answer).unlike(slot, recipe.served_name)


def all_deeds() -> dict[str, Deed]:
    return {
        **DEEDS,
        "point": Deed(pointed, point),
        "expect": Deed(told, tell),
        "drain": Deed(drained, drain),
        "retire": Deed(retired, retire),
        "ready": Deed(proven, wait_ready),
        "gates": Deed(gates_passed, run_gates),
        "verify": Deed(verified, verify),
        **CLIENT_DEEDS,
        **STORAGE_DEEDS,
    }


def serving_now(run: Run) -> str:
    """What clients of the role reach now, for an operation that ends without a good end; "" without a role."""
    role = run.box.workspace.role(str(run.plan.facts.get("role", "")))
    if role is None:
        return ""
    try:
        targets = sorted({run.box.gateway.snapshot().aliases.get(a, "none") for a in role.aliases})
        serves = run.box.store.read().serves.values()
        up = {s.slot: s for s in serves if (c := run.container({"container": s.container_id})) and c.running}
    except AnvilError as why:
        return f"what serves {role.name} now cannot be read: {why}"
    return "; ".join(_reached(role.name, target, up.get(target)) for target in targets)


def _reached(role: str, target: str, serve: ServeRecord | None) -> str:
    if target == "hold":
        return f"{role} is held: nothing serves it"
    if serve is None:
        return f"{role} is at {target}, where nothing runs"
    return f"{role} is at {target}: {serve.recipe_id} ({serve.container_id[:12]}) serves it"


def lost(run: Run, args: Mapping[str, Any]) -> str | None:
    """Why a serve is proven lost: it does not run, it is another one, or it answers none of three probes.

    Unreachable is no proof of anything and is raised.
    """
    found, why = run.container(args), None
    if found is None or not found.running:
        return "its container does not run"
    for _ in range(PROBES):
        try:
            if (why := not_ready(run, args)) is None:
                return None
        except EffectFailed as mismatch:
            return str(mismatch)
        run.box.clock.sleep(2.0)
    return why
