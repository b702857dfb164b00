"""The four lights of a serve: process, http, identity, progress. Each from its own source, never merged."""

from __future__ import annotations

from anvil_tui.core.box import Container, Engine
from anvil_tui.core.exit_cause import ExitCause
from anvil_tui.core.progress import MISSES, Trail
from anvil_tui.core.reading import Reading
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.world import Light, Lights, ServeRecord

OFF = Light("unknown", "n/a")


def lights(
    container: Container,
    cause: ExitCause | None,
    engine: Reading[Engine],
    record: ServeRecord | None,
    recipe: Recipe | None,
    trail: Trail | None,
) -> Lights:
    process = process_light(container, cause)
    if not container.running:
        return Lights(process, OFF, OFF, OFF)
    if engine.value is None:
        return Lights(process, Light("unknown", "not read"), OFF, OFF)
    served = recipe.served_name if recipe else record.served_name if record else ""
    return Lights(
        process,
        http_light(engine.value, trail),
        identity_light(engine.value, served, recipe),
        progress_light(engine.value, trail, recipe),
    )


def process_light(container: Container, cause: ExitCause | None) -> Light:
    """The daemon's own word, with what it means where the word alone says too little."""
    status = container.status
    if status == "running":
        return Light("ok", "running") if container.health != "unhealthy" else Light("bad", "unhealthy")
    if status == "created":
        return Light("bad", "not started") if container.error else Light("wait", "created")
    if status == "restarting":
        return Light("bad", f"restarting, {container.restart_count or 0} times")
    if status == "exited":
        return Light("bad" if cause and cause.alarm else "wait", f"exited {container.exit_code}")
    if status in ("removing", "dead", "paused"):
        return Light("bad", status)
    return Light("unknown", status or "n/a")


def http_light(engine: Engine, trail: Trail | None) -> Light:
    if engine.http == "ready":
        return Light("ok", "ready")
    if engine.http == "unknown":
        return Light("unknown", "n/a")
    if trail and trail.was_ready:
        if trail.misses < MISSES:
            return Light("wait", f"slow, {trail.misses} missed" if trail.misses else "slow, at work")
        return Light("bad", f"{engine.http}, {trail.misses} missed")
    return Light("bad", "error") if engine.http == "error" else Light("wait", "loading")


def identity_light(engine: Engine, served_name: str, recipe: Recipe | None) -> Light:
    """The exact name on the model card, and a context at least as long as the recipe promises."""
    if engine.http != "ready" or not engine.served or not served_name:
        return Light("unknown", "n/a")
    if served_name not in engine.served:
        return Light("bad", "other model")
    if engine.context_tokens is None or recipe is None:
        return Light("ok", "name, ctx n/a")
    if engine.context_tokens < recipe.envelope.context_tokens:
        return Light("bad", "short context")
    return Light("ok", "exact")


def progress_light(engine: Engine, trail: Trail | None, recipe: Recipe | None) -> Light:
    if engine.http != "ready" or engine.progress is None or engine.running is None or trail is None:
        return Light("unknown", "n/a")
    if not engine.running and not engine.waiting:
        return Light("ok", "idle")
    if trail.stalled(recipe.envelope.context_tokens if recipe else engine.context_tokens):
        return Light("bad", f"stalled {trail.flat_s:.0f} s")
    if trail.flat_s:
        return Light("wait", f"flat {trail.flat_s:.0f} s")
    return Light("ok", "moving")
