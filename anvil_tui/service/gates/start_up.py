"""What an engine said of itself when it started, and which gates that makes pointless before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from anvil_tui.core import lane_rules
from anvil_tui.core.box import KvCapacity
from anvil_tui.core.capacity import refused_by_pool
from anvil_tui.core.engine_log import gpu_layers
from anvil_tui.core.errors import AnvilError
from anvil_tui.core.gate_kinds import LANES
from anvil_tui.core.gates import Gate
from anvil_tui.core.kv_log import capacity, running_limit, with_log
from anvil_tui.core.recipe import EngineKind, Recipe
from anvil_tui.ports import ContainerReader, EngineReader

STARTUP_LINES = 50_000


@dataclass(frozen=True, slots=True)
class StartUp:
    """`pool` of KV tokens, `limit` of requests at once, `layers` (on GPUs, all); None = nobody said."""

    pool: KvCapacity | None = None
    limit: int | None = None
    layers: tuple[int, int] | None = None


def matters(gates: Iterable[Gate]) -> bool:
    """Whether any of the gates depends on it; reading a long log takes its time."""
    return any(g.kind in LANES or g.prompt_tokens or g.prompt_tokens_at_least for g in gates)


def start_of(
    recipe: Recipe,
    port: int,
    container_id: str,
    engines: EngineReader,
    containers: ContainerReader,
) -> StartUp:
    """By HTTP, and what only the log tells by the log; a log that cannot be read says nothing."""
    engine = engines.read(recipe.engine, port)
    try:
        lines = [line.text for line in containers.logs(container_id, tail=STARTUP_LINES)]
    except AnvilError:
        lines = []
    limit = running_limit(lines) if recipe.engine is EngineKind.SGLANG else None
    return StartUp(
        with_log(engine.capacity, capacity(recipe.engine, lines)), engine.slots or limit, gpu_layers(lines)
    )


def why_not(start: StartUp, gate: Gate, recipe: Recipe, longest: int) -> str:
    """Why a gate whose longest request has so many tokens, answer included, could prove nothing; "" = it can."""
    fallen = start.layers is not None and start.layers[0] == 0 and bool(recipe.gpus.select)
    if fallen and start.layers and gate.kind in LANES:
        return (
            f"not_on_gpu: 0 of {start.layers[1]} layers are on GPUs, says its start-up log, so its times and its "
            "capacity are those of the CPU: repair the driver or the GPU grant, and start it again"
        )
    return refused_by_pool(start.pool, longest)


def longest_request(gate: Gate, recipe: Recipe, answer: int) -> int:
    """Prompt and answer of the gate's longest request, in tokens; 0 for a gate that names no length."""
    if gate.kind in LANES:
        return max(shape.tokens + shape.completion for shape in lane_rules.planned(gate, recipe))
    prompt = max((gate.prompt_tokens_at_least, *gate.prompt_tokens))
    return prompt + answer if prompt else 0
