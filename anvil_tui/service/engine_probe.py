"""One reading of one serve's engine: HTTP first, then its log for what HTTP does not tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from anvil_tui.core.box import Container, Engine, KvCapacity
from anvil_tui.core.engine_log import LoadPhase, gpu_layers, load_phase
from anvil_tui.core.errors import AnvilError
from anvil_tui.core.kv_log import capacity, with_log
from anvil_tui.core.progress import advance
from anvil_tui.core.reading import Reading
from anvil_tui.core.recipe import EngineKind
from anvil_tui.core.serves import seat_of
from anvil_tui.core.times import is_before, utc_text
from anvil_tui.core.world import World
from anvil_tui.ports import Clock, ContainerReader, EngineReader
from anvil_tui.service.store import Store

ENGINE_S = 2.0
LOADING_LINES = 200
# The start-up lines of a serve that has logged requests for days lie far back; read once for each start.
STARTUP_LINES = 50_000


@dataclass(frozen=True, slots=True)
class Spot:
    """Where an engine is asked, and how: its kind, its loopback port, whether it was given GPUs."""

    engine: EngineKind
    port: int
    gpus: bool


def spot_of(world: World, container: Container) -> Spot | None:
    """By its recipe where one made it, else as discovery found it; None = it cannot be asked."""
    if seat := seat_of(world, container):
        return Spot(seat.recipe.engine, seat.port, bool(seat.recipe.gpus.select))
    found = world.found.get(container.id)
    if found is None or found.engine is None or found.port is None:
        return None
    return Spot(found.engine, found.port, container.gpus.effective != "none")


@dataclass(frozen=True, slots=True)
class _StartUp:
    """What only the start-up log tells of one start."""

    pool: KvCapacity | None = None
    layers: tuple[int, int] | None = None


class EngineProbe:
    """Reads engines into the store: the reading, its trail over time, and where a load is."""

    def __init__(self, store: Store, engines: EngineReader, containers: ContainerReader, clock: Clock) -> None:
        self._store, self._engines, self._containers, self._clock = store, engines, containers, clock
        self._starts: dict[tuple[str, str | None], _StartUp] = {}

    def seated(self) -> dict[str, tuple[Container, Spot]]:
        """Running containers whose port and kind are known, by id."""
        world = self._store.world
        running = [s.container for s in world.serves if s.container.running]
        return {c.id: (c, seat) for c in running if (seat := spot_of(world, c))}

    def read(self, container_id: str) -> bool:
        """True when it went from answering to not answering or back."""
        world = self._store.world
        container = next((s.container for s in world.serves if s.container.id == container_id), None)
        seat = spot_of(world, container) if container and container.running else None
        if container is None or seat is None:
            return False
        engine = self._engines.read(seat.engine, seat.port)
        now_s = self._clock.monotonic_s()
        phase = None
        if engine.capacity:
            engine = replace(engine, capacity=replace(engine.capacity, at=utc_text(self._clock.utc())))
        if engine.http != "ready":
            phase = self._phase(container, seat)
        elif _wants_log(engine, seat):
            start = self._start_up(container, seat)
            pool = replace(start.pool, at=container.started_at) if start.pool else None
            engine = replace(engine, capacity=with_log(engine.capacity, pool), gpu_layers=start.layers)
        last = world.engines.get(container_id)
        same = last is not None and last.value is not None and last.value.http == engine.http and phase is None
        self._store.change(lambda w: _changed(w, container, engine, phase, now_s), soon=same)
        return (engine.http == "ready") != bool(last and last.ok and last.value and last.value.http == "ready")

    def forget(self, kept: Mapping[str, object]) -> None:
        """Drop what is known of engines that do not run any more."""
        self._starts = {k: v for k, v in self._starts.items() if k[0] in kept}
        self._store.change(
            lambda w: {
                name: {i: v for i, v in getattr(w, name).items() if i in kept}
                for name in ("engines", "trails", "loads")
            }
        )

    def _phase(self, container: Container, seat: Spot) -> LoadPhase | None:
        lines = self._lines(container.id, LOADING_LINES, container.started_at)
        return None if lines is None else load_phase(seat.engine, lines)

    def _start_up(self, container: Container, seat: Spot) -> _StartUp:
        """Asked once for each start of the container."""
        key = (container.id, container.started_at)
        if key not in self._starts:
            lines = self._lines(container.id, STARTUP_LINES)
            if lines is None:
                return _StartUp()
            self._starts[key] = _StartUp(capacity(seat.engine, lines), gpu_layers(lines))
        return self._starts[key]

    def _lines(self, container_id: str, tail: int, since: str | None = None) -> list[str] | None:
        """None when the log cannot be read; the engine's HTTP answers stand on their own. `since` leaves out what
        an earlier start of the same container wrote."""
        try:
            lines = self._containers.logs(container_id, tail=tail)
            return [line.text for line in lines if not is_before(line.at, since)]
        except AnvilError:
            return None


def _wants_log(engine: Engine, seat: Spot) -> bool:
    """Whether its start-up log tells something of use that it does not tell over HTTP."""
    pool = engine.capacity
    if pool is None or (pool.per_rank_bytes is None and seat.gpus):
        return True
    return _may_fall_back(seat)


def _may_fall_back(seat: Spot) -> bool:
    """llama.cpp goes on without its GPUs; the others end when theirs are missing."""
    return seat.engine is EngineKind.LLAMACPP and seat.gpus


def _changed(
    world: World, container: Container, engine: Engine, phase: LoadPhase | None, now_s: float
) -> Mapping[str, object]:
    i = container.id
    trail = advance(world.trails.get(i), now_s, engine, ENGINE_S, container.started_at)
    loads = {k: v for k, v in world.loads.items() if k != i}
    return {
        "engines": {**world.engines, i: Reading.known(engine, now_s, engine.kind)},
        "trails": {**world.trails, i: trail},
        "loads": loads if phase is None else {**loads, i: phase},
    }
