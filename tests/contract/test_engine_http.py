"""Readiness, identity, metrics and capacity of engines that are not here, from their own answers
(engine facts §1 and §2; field cases O-40, O-46, O-47, O-80). llama.cpp itself is in tests/real."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from anvil_tui.adapters.clock import SystemClock
from anvil_tui.adapters.engine_http import HttpEngineReader
from anvil_tui.core.box import Engine
from anvil_tui.core.recipe import EngineKind
from tests.support.http_stub import Handler, HttpStub, serve
from tests.unit.test_metrics_text import SGLANG_PAGE, VLLM_PAGE

VLLM, SGLANG, LLAMA, OPENAI = EngineKind.VLLM, EngineKind.SGLANG, EngineKind.LLAMACPP, EngineKind.OPENAI


@dataclass
class SteppedClock:
    """Runs only when told to, so that ages are exact."""

    now: float = 0.0

    def monotonic_s(self) -> float:
        return self.now

    def utc(self) -> datetime:
        return datetime(2026, 9, 2, tzinfo=UTC)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def engine() -> Iterator[HttpStub]:
    with serve({}) as stub:
        yield stub


@pytest.fixture
def reader() -> Iterator[HttpEngineReader]:
    made = HttpEngineReader(SystemClock())
    yield made
    made.close()


def card(model: str, **more: Any) -> dict[str, Any]:
    return {"id": model, "object": "model", "created": int(time.time()), **more}


def vllm(stub: HttpStub) -> None:
    cards = [
        card("glm", parent=None, max_model_len=524_288, root="/models/glm"),
        card("glm-alias", parent=None, max_model_len=524_288),
        card("lora-1", parent="glm", max_model_len=None),
    ]
    stub.routes.update(
        {
            "GET /health": (200, ""),
            "GET /v1/models": (200, {"object": "list", "data": cards}),
            "GET /metrics": (200, VLLM_PAGE),
            "GET /version": (200, {"version": "0.33.0"}),
        }
    )


def sglang(stub: HttpStub) -> None:
    stub.routes.update(
        {
            "GET /ready": (200, ""),
            "GET /v1/models": (200, {"data": [card("glm", root="glm", parent=None, max_model_len=393_216)]}),
            "GET /metrics": (200, SGLANG_PAGE),
            "GET /server_info": (200, SERVER_INFO),
        }
    )


SERVER_INFO = {
    "api_key": "k-secret",
    "version": "0.5.23",
    "context_length": 393_216,
    "max_total_num_tokens": 612_345,
    "internal_states": [
        {"memory_usage": {"token_capacity": 612_345}},
        {"memory_usage": {"token_capacity": 600_000}},
    ],
}


def paths(stub: HttpStub) -> list[str]:
    return [name.removeprefix("GET ") for name, *_ in stub.seen]


def test_vllm_ready(engine: HttpStub, reader: HttpEngineReader) -> None:
    vllm(engine)
    got = reader.read(VLLM, engine.port)
    assert (got.http, got.reason, got.served, got.context_tokens) == ("ready", "", ("glm", "glm-alias"), 524_288)
    assert (got.running, got.waiting, got.kv_used, got.progress, got.preempted) == (6, 2, 0.3721, 55310.0, 1.0)
    assert (got.version, got.metrics) == ("0.33.0", "on")
    assert got.capacity is not None
    assert (got.capacity.tokens, got.capacity.source) == (412_656, "vllm /metrics")


def test_metrics_are_asked_for_in_the_classic_text_form(engine: HttpStub, reader: HttpEngineReader) -> None:
    vllm(engine)
    reader.read(VLLM, engine.port)
    [accept] = [headers["Accept"] for name, _, _, headers in engine.seen if name == "GET /metrics"]
    assert accept == "text/plain;version=0.0.4"


@pytest.mark.parametrize("kind", list(EngineKind))
def test_nothing_listens(kind: EngineKind, reader: HttpEngineReader) -> None:
    with serve({}) as stub:
        port = stub.port
    got = reader.read(kind, port)
    assert (got.http, got.served, got.running, got.metrics) == ("refused", (), None, "unknown")


def test_published_port_of_a_loading_engine_is_refused_too(engine: HttpStub, reader: HttpEngineReader) -> None:
    def hang_up(handler: Handler) -> None:
        handler.close_connection = True

    engine.routes["GET /health"] = hang_up
    assert reader.read(VLLM, engine.port).http == "refused"


@pytest.mark.parametrize(
    ("health", "models", "light"),
    [(503, 200, "error"), (503, 401, "error"), (500, 200, "error"), (503, 404, "starting")],
)
def test_vllm_dead_engine_or_waiting_supervisor(
    engine: HttpStub, reader: HttpEngineReader, health: int, models: int, light: str
) -> None:
    vllm(engine)
    engine.routes.update({"GET /health": (health, ""), "GET /v1/models": (models, {})})
    assert reader.read(VLLM, engine.port).http == light


def test_sglang_ready_without_a_generation(engine: HttpStub, reader: HttpEngineReader) -> None:
    sglang(engine)
    for _ in range(3):
        got = reader.read(SGLANG, engine.port)
    assert (got.http, got.served, got.context_tokens, got.running) == ("ready", ("glm",), 393_216, 5)
    assert got.version == "0.5.23"
    assert got.capacity is not None
    assert got.capacity.tokens == 612_345
    assert not {"/health", "/health_generate"} & set(paths(engine))
    assert paths(engine).count("/server_info") == 1, "a scheduler round trip is not for every poll"


def test_sglang_without_metrics_takes_the_pool_from_server_info(
    engine: HttpStub, reader: HttpEngineReader
) -> None:
    sglang(engine)
    del engine.routes["GET /metrics"]
    got = reader.read(SGLANG, engine.port)
    assert (got.http, got.metrics, got.running, got.kv_used) == ("ready", "off", None, None)
    assert got.capacity is not None
    assert (got.capacity.tokens, got.capacity.source) == (1_212_345, "sglang /server_info")
    assert "k-secret" not in repr(got)


@pytest.mark.parametrize(("limits", "slots"), [((16, 16), 32), ((1,), 1), ((16, None), None), ((), None)])
def test_sglang_tells_how_many_requests_its_scheduler_runs_at_once(
    engine: HttpStub, reader: HttpEngineReader, limits: tuple[int | None, ...], slots: int | None
) -> None:
    """O-36: the smaller of this limit and of the windows is what may be claimed."""
    sglang(engine)
    states = [{"effective_max_running_requests_per_dp": limit} for limit in limits]
    engine.routes["GET /server_info"] = (200, {**SERVER_INFO, "internal_states": states})
    assert reader.read(SGLANG, engine.port).slots == slots


@pytest.mark.parametrize(
    ("known", "asked"),
    [
        (("/model_info", "/server_info"), ["/ready", "/model_info", "/v1/models", "/metrics", "/server_info"]),
        (
            ("/get_model_info", "/get_server_info"),
            [
                "/ready",
                "/model_info",
                "/get_model_info",
                "/v1/models",
                "/metrics",
                "/server_info",
                "/get_server_info",
            ],
        ),
    ],
)
def test_sglang_older_names(
    engine: HttpStub, reader: HttpEngineReader, known: tuple[str, str], asked: list[str]
) -> None:
    sglang(engine)
    del engine.routes["GET /ready"], engine.routes["GET /server_info"]
    engine.routes[f"GET {known[0]}"] = (200, {"model_path": "/m"})
    engine.routes[f"GET {known[1]}"] = (200, SERVER_INFO)
    got = reader.read(SGLANG, engine.port)
    assert (got.http, got.version) == ("ready", "0.5.23")
    assert paths(engine) == asked
    engine.seen.clear()
    reader.read(SGLANG, engine.port)
    assert paths(engine) == [known[0], "/v1/models", "/metrics"], "the name that works is remembered"


def test_sglang_warm_up_and_pause_are_starting(engine: HttpStub, reader: HttpEngineReader) -> None:
    sglang(engine)
    engine.routes["GET /ready"] = (503, "")
    assert reader.read(SGLANG, engine.port).http == "starting"


def test_model_list_while_loading_is_not_ready(engine: HttpStub, reader: HttpEngineReader) -> None:
    """O-46: /health decides; a model list alone is no readiness."""
    engine.routes.update(
        {
            "GET /health": (
                503,
                {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}},
            ),
            "GET /v1/models": (200, {"object": "list", "data": [{"id": "m", "object": "model", "meta": None}]}),
        }
    )
    got = reader.read(LLAMA, engine.port)
    assert (got.http, got.reason, got.served) == ("starting", "HTTP 503: Loading model", ())


@pytest.mark.parametrize("status", [404, 501])
def test_metrics_switched_off_is_a_setting(engine: HttpStub, reader: HttpEngineReader, status: int) -> None:
    """O-40: what nobody listens for, hangs or answers otherwise is no setting."""
    vllm(engine)
    engine.routes["GET /metrics"] = (
        status,
        {"error": {"code": status, "message": "This server does not support"}},
    )
    got = reader.read(VLLM, engine.port)
    assert (got.http, got.metrics, got.reason, got.running) == ("ready", "off", "", None)


def test_metrics_that_are_off_are_asked_for_seldom_and_found_when_they_come(engine: HttpStub) -> None:
    """O-40: once in 30 s, and at once after a new start of the engine."""
    vllm(engine)
    clock = SteppedClock()
    reader = HttpEngineReader(clock)
    engine.routes["GET /metrics"] = (404, "")
    for _ in range(5):
        assert reader.read(VLLM, engine.port).metrics == "off"
        clock.sleep(2)
    assert paths(engine).count("/metrics") == 1
    engine.routes["GET /metrics"] = (200, VLLM_PAGE)
    clock.sleep(30)
    assert reader.read(VLLM, engine.port).metrics == "on"
    engine.routes["GET /metrics"] = (501, "")
    assert reader.read(VLLM, engine.port).metrics == "off"
    engine.routes.update({"GET /metrics": (200, VLLM_PAGE), "GET /health": (500, "")})
    assert reader.read(VLLM, engine.port).metrics == "on", "it did not answer as before: it may be another start"
    reader.close()


def test_metrics_without_series_are_switched_off(engine: HttpStub, reader: HttpEngineReader) -> None:
    vllm(engine)
    engine.routes["GET /metrics"] = (200, 'python_info{version="3.12"} 1.0\n')
    assert reader.read(VLLM, engine.port).metrics == "off"


def test_metrics_that_break_are_an_error_beside_a_ready_engine(engine: HttpStub, reader: HttpEngineReader) -> None:
    def hang_up(handler: Handler) -> None:
        handler.close_connection = True

    vllm(engine)
    engine.routes["GET /metrics"] = hang_up
    got = reader.read(VLLM, engine.port)
    assert (got.http, got.metrics, got.served) == ("ready", "error", ("glm", "glm-alias"))
    assert got.reason.startswith("/metrics: ")


def test_slow_health_is_an_error_of_this_reading_and_bounded(engine: HttpStub) -> None:
    def slow(handler: Handler) -> None:
        handler.rfile.read(1)

    vllm(engine)
    engine.routes["GET /health"] = slow
    reader = HttpEngineReader(SystemClock(), timeout_s=0.3)
    started = time.monotonic()
    got = reader.read(VLLM, engine.port)
    assert time.monotonic() - started < 3
    assert (got.http, got.reason) == ("error", "no answer to /health within 0.3 s")
    vllm(engine)
    assert reader.read(VLLM, engine.port).http == "ready", "one miss is not kept"
    reader.close()


@pytest.mark.parametrize(("kind", "health"), [(VLLM, "/health"), (SGLANG, "/ready")])
@pytest.mark.parametrize("status", [500, 503, None])
def test_an_engine_that_answers_late_is_still_asked_for_its_counters(
    engine: HttpStub, kind: EngineKind, health: str, status: int | None
) -> None:
    """O-47: they tell a busy engine from a dead one. One that never was ready, or is gone, is not asked."""

    def slow(handler: Handler) -> None:
        handler.rfile.read(1)

    (vllm if kind is VLLM else sglang)(engine)
    miss = slow if status is None else (status, "")
    reader = HttpEngineReader(SystemClock(), timeout_s=0.2)
    engine.routes[f"GET {health}"] = miss
    assert (reader.read(kind, engine.port).running, "/metrics" in paths(engine)) == (None, False)
    engine.routes[f"GET {health}"] = (200, "")
    ready = reader.read(kind, engine.port)
    engine.routes[f"GET {health}"] = miss
    late = reader.read(kind, engine.port)
    assert late.http in ("error", "starting") and late.reason and late.served == ()
    assert (late.running, late.progress, late.prompt) == (ready.running, ready.progress, ready.prompt)
    del engine.routes["GET /metrics"]
    assert (reader.read(kind, engine.port).running, late.metrics) == (None, "on")
    reader.close()


def test_a_gone_engine_is_not_asked_for_counters(reader: HttpEngineReader) -> None:
    with serve({}) as first:
        vllm(first)
        port = first.port
        assert reader.read(VLLM, port).http == "ready"
    assert reader.read(VLLM, port).http == "refused"
    with serve({"GET /health": (500, ""), "GET /metrics": (200, VLLM_PAGE)}, port=port) as second:
        assert (reader.read(VLLM, port).running, paths(second)) == (None, ["/health"])


def test_body_that_drips_is_cut_at_the_deadline(engine: HttpStub) -> None:
    def drip(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(b"x")
                time.sleep(0.02)
        except OSError:
            handler.close_connection = True

    vllm(engine)
    engine.routes["GET /v1/models"] = drip
    reader = HttpEngineReader(SystemClock(), timeout_s=0.3)
    started = time.monotonic()
    got = reader.read(VLLM, engine.port)
    assert time.monotonic() - started < 3
    assert (got.served, got.reason) == ((), "/v1/models: no answer to /v1/models within 0.3 s")
    reader.close()


def test_endless_body_is_cut(engine: HttpStub, reader: HttpEngineReader) -> None:
    vllm(engine)
    engine.routes["GET /metrics"] = (200, b"x" * (9 * 1024 * 1024))
    got = reader.read(VLLM, engine.port)
    assert (got.metrics, got.running) == ("error", None)
    assert "over 8388608 bytes" in got.reason


def test_redirects_stay_on_the_host(engine: HttpStub, reader: HttpEngineReader) -> None:
    def onward(handler: Handler) -> None:
        handler.answer(307, "", Location="/metrics/")

    def away(handler: Handler) -> None:
        handler.answer(307, "", Location=f"http://127.0.0.1:{engine.port + 1}/metrics")

    vllm(engine)
    engine.routes.update({"GET /metrics": onward, "GET /metrics/": (200, VLLM_PAGE)})
    assert reader.read(VLLM, engine.port).running == 6
    engine.routes["GET /metrics"] = away
    got = reader.read(VLLM, engine.port)
    assert got.metrics == "error"
    assert "not followed" in got.reason


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((401, {"error": "Unauthorized"}), "/v1/models: HTTP 401: Unauthorized"),
        ((200, {"object": "error", "message": "bad"}), "/v1/models: no model in the answer"),
        ((200, '{"data": [1, null, {"id": 5}]}'), "/v1/models: no model in the answer"),
        ((200, "<html>\x1b[31m"), "/v1/models: no model in the answer: <html>"),
        ((500, {"object": "error", "message": "x\x1b]0;t\x07y"}), "/v1/models: HTTP 500: xy"),
    ],
)
def test_identity_that_cannot_be_read_says_why(
    engine: HttpStub, reader: HttpEngineReader, answer: tuple[int, Any], reason: str
) -> None:
    vllm(engine)
    engine.routes["GET /v1/models"] = answer
    got = reader.read(VLLM, engine.port)
    assert (got.http, got.served, got.context_tokens) == ("ready", (), None)
    assert got.reason.startswith(reason)


def test_no_key_is_sent_and_facts_are_read_anew_after_a_while(engine: HttpStub) -> None:
    vllm(engine)
    clock = SteppedClock()
    reader = HttpEngineReader(clock)
    reader.read(VLLM, engine.port)
    assert {headers.get("Authorization") for _, _, _, headers in engine.seen} == {None}
    reader.read(VLLM, engine.port)
    assert paths(engine).count("/version") == 1
    clock.sleep(31)
    engine.routes["GET /version"] = (200, {"version": "0.34.0"})
    assert reader.read(VLLM, engine.port).version == "0.34.0"
    reader.close()


def test_facts_do_not_outlive_their_engine(engine: HttpStub, reader: HttpEngineReader) -> None:
    vllm(engine)
    assert reader.read(VLLM, engine.port).version == "0.33.0"
    engine.routes["GET /version"] = (200, {"version": "0.34.0"})
    engine.routes["GET /v1/models"] = (200, {"data": [card("other", max_model_len=8)]})
    assert reader.read(VLLM, engine.port).version == "0.34.0", "another identity on the port"


def test_engine_that_restarts_between_polls_is_reached_again(reader: HttpEngineReader) -> None:
    with serve({}) as first:
        vllm(first)
        port = first.port
        assert reader.read(VLLM, port).http == "ready"
    with serve({}, port=port) as second:
        vllm(second)
        assert reader.read(VLLM, port).http == "ready"
    assert reader.read(VLLM, port).http == "refused"


def test_openai_is_ready_with_its_model_list(engine: HttpStub, reader: HttpEngineReader) -> None:
    engine.routes["GET /v1/models"] = (200, {"data": [card("m")]})
    got = reader.read(OPENAI, engine.port)
    assert got == Engine("openai", "ready", served=("m",))


def test_sglang_health_generates_only_on_demand(engine: HttpStub, reader: HttpEngineReader) -> None:
    engine.routes["GET /health"] = (503, "")
    assert reader.health_generates(engine.port) == (False, "HTTP 503")
    engine.routes["GET /health"] = (200, "")
    assert reader.health_generates(engine.port) == (True, "")
