"""How an engine answers over HTTP: readiness, identity, metrics, capacity. One file for four kinds.

Never a request that generates: SGLang's /health does when it is idle (a second and more a call), so its
/ready or /model_info is asked instead. A refused connection is a state while an engine loads, not a failure.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from anvil_tui.adapters.http_get import Getter, Got
from anvil_tui.core.box import Engine, HttpLight, KvCapacity
from anvil_tui.core.metrics_text import EngineMetrics, engine_metrics
from anvil_tui.core.recipe import EngineKind
from anvil_tui.core.text import clean
from anvil_tui.ports import Clock

# Without this the engines' client library may answer OpenMetrics, in which the sample names differ.
_PROMETHEUS = "text/plain;version=0.0.4"
# Version, slots and pool do not change while an engine runs; SGLang's answer costs a scheduler round trip.
_FACTS_AGE_S = 30.0
_SLOW_S = 25.0

_Get = Callable[[str], Got]
_MetricsLight = Literal["on", "off", "error", "unknown"]
_Scraped = tuple[_MetricsLight, EngineMetrics, str]


@dataclass(frozen=True, slots=True)
class _Facts:
    """What stays true for one start of an engine."""

    version: str | None = None
    slots: int | None = None
    context_tokens: int | None = None
    capacity: KvCapacity | None = None


@dataclass(slots=True)
class _Seat:
    """What is remembered of one port: its connection, its facts, and which of two path names worked."""

    getter: Getter
    facts: _Facts | None = None
    facts_at_s: float = 0.0
    ready_path: str = ""
    served: tuple[str, ...] = ()
    was_ready: bool = False
    off_at_s: float | None = None


class HttpEngineReader:
    """Reads engines on `host` (loopback). `timeout_s` bounds each request."""

    def __init__(self, clock: Clock, *, host: str = "127.0.0.1", timeout_s: float = 5.0) -> None:
        self._clock, self._host, self._timeout_s = clock, host, timeout_s
        self._seats: dict[tuple[EngineKind, int], _Seat] = {}
        self._lock = threading.Lock()

    def read(self, kind: EngineKind, port: int) -> Engine:
        """Never raises: `http` and `reason` say what did not work."""
        seat = self._seat(kind, port)

        def get(path: str, accept: str = "application/json") -> Got:
            return seat.getter.get(path, api_key=None, timeout_s=self._timeout_s, accept=accept)

        def metrics() -> _Scraped:
            return self._metrics(kind, seat, lambda path: get(path, _PROMETHEUS))

        light, reason = _light(kind, get, seat)
        if light != "ready":
            return _not_ready(Engine(kind.value, light, reason), seat, metrics)
        seat.was_ready = True
        models = get("/v1/models")
        engine = Engine(kind.value, "ready", served=_served(models), context_tokens=_context(models))
        if not engine.served:
            engine = replace(engine, reason=f"/v1/models: {_models_problem(models)}")
        engine = _with_metrics(engine, *metrics())
        return _with_facts(engine, self._facts(kind, seat, engine, get))

    def _metrics(self, kind: EngineKind, seat: _Seat, get: _Get) -> _Scraped:
        """Where they are switched off they are asked for again at a slow rate: it is a setting of the start."""
        now = self._clock.monotonic_s()
        if seat.off_at_s is not None and now - seat.off_at_s < _FACTS_AGE_S:
            return "off", EngineMetrics(), ""
        found = _metrics(kind, get)
        seat.off_at_s = now if found[0] == "off" else None
        return found

    def health_generates(self, port: int) -> tuple[bool, str]:
        """SGLang's own /health, which generates a token; up to 25 s. For a check on demand, never for polling."""
        got = self._seat(EngineKind.SGLANG, port).getter.get("/health", api_key=None, timeout_s=_SLOW_S)
        return got.ok, "" if got.ok else got.said()

    def _seat(self, kind: EngineKind, port: int) -> _Seat:
        with self._lock:
            key = (kind, port)
            if key not in self._seats:
                self._seats[key] = _Seat(Getter(f"http://{self._host}:{port}", self._clock))
            return self._seats[key]

    def _facts(self, kind: EngineKind, seat: _Seat, engine: Engine, get: _Get) -> _Facts:
        now = self._clock.monotonic_s()
        if seat.facts is None or seat.served != engine.served or now - seat.facts_at_s > _FACTS_AGE_S:
            seat.facts, seat.facts_at_s, seat.served = _FACTS[kind](get), now, engine.served
        return seat.facts

    def close(self) -> None:
        with self._lock:
            for seat in self._seats.values():
                seat.getter.close()
            self._seats.clear()


def _not_ready(engine: Engine, seat: _Seat, metrics: Callable[[], _Scraped]) -> Engine:
    """Of an engine that was ready and does not answer as such now, only its counters tell whether it works."""
    seat.facts, seat.ready_path, seat.served = None, "", ()
    seat.off_at_s = None
    if engine.http == "refused":
        seat.was_ready = False
    return _with_metrics(engine, *metrics()) if seat.was_ready else engine


def _light(kind: EngineKind, get: _Get, seat: _Seat) -> tuple[HttpLight, str]:
    """Readiness by the kind's own rule."""
    got = _ready_answer(kind, get, seat)
    if got.failure in ("refused", "empty"):
        return "refused", got.reason
    if got.ok:
        return "ready", ""
    if got.status == 503 and kind is EngineKind.VLLM:
        return _vllm_unavailable(get)
    if got.status == 503:
        return "starting", got.said()
    return "error", got.said()


def _ready_answer(kind: EngineKind, get: _Get, seat: _Seat) -> Got:
    if kind is EngineKind.OPENAI:
        return get("/v1/models")
    if kind is not EngineKind.SGLANG:
        return get("/health")
    # /ready is new; /get_model_info is the name that the oldest builds know and newer ones warn about.
    paths = (seat.ready_path,) if seat.ready_path else ("/ready", "/model_info", "/get_model_info")
    for path in paths:
        got = get(path)
        if got.status != 404:
            seat.ready_path = path if got.ok else ""
            break
    return got


def _vllm_unavailable(get: _Get) -> tuple[HttpLight, str]:
    """vLLM never says 503 while it loads: with a model list it is dead, without one a supervisor waits."""
    if get("/v1/models").status in (200, 401):
        return "error", "engine dead: the API server answers, /health says 503"
    return "starting", "HTTP 503: a supervisor waits for its engines"


def _models(got: Got) -> list[dict[str, Any]]:
    data = got.object().get("data")
    return [card for card in data if isinstance(card, dict)] if got.ok and isinstance(data, list) else []


def _served(got: Got) -> tuple[str, ...]:
    """Names on the model cards of base models (a LoRA's card names its parent) and their aliases."""
    names: dict[str, None] = {}
    for card in _models(got):
        if not card.get("parent"):
            aliases = card.get("aliases")
            for name in (card.get("id"), *(aliases if isinstance(aliases, list) else ())):
                if isinstance(name, str) and name:
                    names[name] = None
    return tuple(names)


def _context(got: Got) -> int | None:
    """The longest context of one request as the first base card tells it (llama.cpp: of one slot)."""
    for card in _models(got):
        if not card.get("parent"):
            return _count(card.get("max_model_len")) or _count(_map(card.get("meta")).get("n_ctx"))
    return None


def _models_problem(got: Got) -> str:
    if not got.ok:
        return got.said()
    return clean(f"no model in the answer: {got.text[:120]}", 200)


def _metrics(kind: EngineKind, get: _Get) -> _Scraped:
    """501 and 404 mean that metrics are switched off, which is a setting; so is an endpoint without series."""
    if kind is EngineKind.OPENAI:
        return "unknown", EngineMetrics(), ""
    got = get("/metrics")
    if got.status in (404, 501):
        return "off", EngineMetrics(), ""
    if not got.ok:
        return "error", EngineMetrics(), f"/metrics: {got.said()}"
    found = engine_metrics(kind, got.text)
    reason = f"/metrics: {found.bad_lines} bad lines, first {found.first_bad!r}" if found.bad_lines else ""
    return ("on" if found.series else "off"), found, clean(reason, 300)


def _with_metrics(engine: Engine, light: _MetricsLight, found: EngineMetrics, reason: str) -> Engine:
    source = f"{engine.kind} /metrics"
    return replace(
        engine,
        metrics=light,
        reason=engine.reason or reason,
        running=found.running,
        waiting=found.waiting,
        kv_used=found.kv_used,
        progress=found.progress,
        prompt=found.prompt,
        preempted=found.preempted,
        context_tokens=engine.context_tokens or found.context_tokens,
        capacity=KvCapacity(found.capacity_tokens, source) if found.capacity_tokens else None,
    )


def _with_facts(engine: Engine, facts: _Facts) -> Engine:
    return replace(
        engine,
        version=facts.version,
        slots=facts.slots,
        context_tokens=engine.context_tokens or facts.context_tokens,
        capacity=engine.capacity or facts.capacity,
    )


def _vllm_facts(get: _Get) -> _Facts:
    return _Facts(version=_word(get("/version").object().get("version")))


def _llamacpp_facts(get: _Get) -> _Facts:
    """/props tells slots and the context of one slot; whether slots share one pool is only in the log, so the
    pool is known from here when there is one slot."""
    props = get("/props").object()
    slots = _count(props.get("total_slots"))
    context = _count(_map(props.get("default_generation_settings")).get("n_ctx"))
    pool = KvCapacity(context, "llamacpp /props", context) if slots == 1 and context else None
    return _Facts(_word(props.get("build_info")), slots, context, pool)


def _sglang_facts(get: _Get) -> _Facts:
    """/server_info (older name on 404) repeats every argument, API keys included: only figures are taken out."""
    got = get("/server_info")
    info = (get("/get_server_info") if got.status == 404 else got).object()
    context = _count(info.get("context_length"))
    return _Facts(_word(info.get("version")), _sglang_limit(info), context, _sglang_pool(info))


def _sglang_limit(info: Mapping[str, Any]) -> int | None:
    """Requests at once over all data-parallel ranks, as the scheduler allows; None when a rank is silent."""
    states = info.get("internal_states")
    ranks = states if isinstance(states, list) else []
    limits = [_count(_map(s).get("effective_max_running_requests_per_dp")) for s in ranks]
    known = [limit for limit in limits if limit]
    return sum(known) if known and len(known) == len(limits) else None


def _sglang_pool(info: Mapping[str, Any]) -> KvCapacity | None:
    """The pool over all data-parallel ranks; without a list of ranks the figure is of one rank."""
    states = info.get("internal_states")
    ranks = [_map(_map(s).get("memory_usage")) for s in states] if isinstance(states, list) else []
    tokens = [count for rank in ranks if (count := _count(rank.get("token_capacity")))]
    one = _count(info.get("max_total_num_tokens"))
    if tokens and len(tokens) == len(ranks):
        return KvCapacity(sum(tokens), "sglang /server_info")
    return KvCapacity(one, "sglang /server_info") if one else None


_FACTS: Mapping[EngineKind, Callable[[_Get], _Facts]] = {
    EngineKind.VLLM: _vllm_facts,
    EngineKind.SGLANG: _sglang_facts,
    EngineKind.LLAMACPP: _llamacpp_facts,
    EngineKind.OPENAI: lambda get: _Facts(),
}


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _word(value: Any) -> str | None:
    return clean(value, 80) if isinstance(value, str) and value else None
