"""Engines are recognised by what they answer, whatever they are called; nothing is sent that they need not see."""

from __future__ import annotations

from typing import Any

import pytest

from anvil_tui.adapters.clock import SystemClock
from anvil_tui.adapters.engine_find import HttpEngineFinder
from anvil_tui.core.recipe import EngineKind
from tests.support.http_stub import Handler, Route, serve
from tests.support.simbox import free_port

LOADING = {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}
NO_KEY = {"error": {"message": "Invalid API Key", "type": "authentication_error", "code": 401}}


def cards(owner: str) -> Route:
    return 200, {"object": "list", "data": [{"id": "acme/m-8b", "object": "model", "owned_by": owner}]}


def redirect(handler: Handler) -> None:
    handler.answer(302, "", Location="/v1/models/")


VERSION: Route = (200, {"version": "0.33.0"})
CASES: dict[str, tuple[dict[str, Route], str, EngineKind | None]] = {
    "vllm": ({"GET /v1/models": cards("vllm"), "GET /version": VERSION}, "engine", EngineKind.VLLM),
    "sglang": (
        {"GET /v1/models": cards("sglang"), "GET /model_info": (200, {"model_path": "/m"})},
        "engine", EngineKind.SGLANG,
    ),
    "sglang, older": (
        {"GET /v1/models": cards("sglang"), "GET /get_model_info": (200, {"model_path": "/m"})},
        "engine", EngineKind.SGLANG,
    ),
    "llama.cpp": (
        {"GET /v1/models": cards("llamacpp"), "GET /props": (200, {"total_slots": 2})},
        "engine", EngineKind.LLAMACPP,
    ),
    "a proxy before vLLM": ({"GET /v1/models": cards("vllm")}, "engine", EngineKind.OPENAI),
    "another of the kind": ({"GET /v1/models": cards("library")}, "engine", EngineKind.OPENAI),
    "no model yet": ({"GET /v1/models": (200, {"data": []})}, "engine", EngineKind.OPENAI),
    "vllm with a key": (
        {"GET /v1/models": (401, {"error": "Unauthorized"}), "GET /version": VERSION}, "engine", EngineKind.VLLM,
    ),
    "sglang with a key": (
        {"GET /v1/models": (401, {"error": "Unauthorized"}), "GET /version": (401, {}),
         "GET /metrics": (200, "# HELP x\nsglang:num_running_reqs 1\n")}, "engine", EngineKind.SGLANG,
    ),
    "llama.cpp with a key": ({"GET /v1/models": (401, NO_KEY)}, "engine", EngineKind.LLAMACPP),
    "somebody with a key": ({"GET /v1/models": (401, {"error": "Unauthorized"})}, "engine", EngineKind.OPENAI),
    "llama.cpp loads": ({"GET /v1/models": (503, LOADING)}, "engine", EngineKind.LLAMACPP),
    "not yet": ({"GET /v1/models": (503, {"error": "starting"})}, "silent", None),
    "a proxy whose engine is not up": ({"GET /v1/models": (502, "<html>bad gateway</html>")}, "silent", None),
    "an owner that is no text": (
        {"GET /v1/models": (200, {"data": [{"id": "m", "owned_by": ["vllm"]}]})}, "engine", EngineKind.OPENAI,
    ),
    "a web server": ({"GET /v1/models": (404, "<html>no</html>")}, "other", None),
    "a page for all": ({"GET /v1/models": (200, "<html>hello</html>")}, "other", None),
    "a login page": ({"GET /v1/models": (401, "<html>who?</html>")}, "other", None),
    "a redirect": ({"GET /v1/models": redirect}, "other", None),
    "a list of lists": ({"GET /v1/models": (200, [[]])}, "other", None),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_who_answers(name: str) -> None:
    routes, state, engine = CASES[name]
    with serve(routes) as stub:
        told = HttpEngineFinder(SystemClock()).recognise(stub.port)
        assert (told.state, told.engine) == (state, engine)
        assert bool(told.why) is (engine is None)
        assert len(stub.seen) <= 4
        headers: list[dict[str, Any]] = [h for _, _, _, h in stub.seen]
        assert not any("Authorization" in h or "Cookie" in h for h in headers)
        assert {route.partition(" ")[0] for route, *_ in stub.seen} == {"GET"}
        assert not any("health" in route for route, *_ in stub.seen)


def test_nobody_there_is_silence() -> None:
    told = HttpEngineFinder(SystemClock()).recognise(free_port())
    assert told.state == "silent"
    assert "refused" in told.why


def test_who_never_answers_is_left_after_its_time() -> None:
    held = []

    def hold(handler: Handler) -> None:
        held.append(handler.rfile.readline())

    with serve({"GET /v1/models": hold}) as stub:
        assert HttpEngineFinder(SystemClock(), timeout_s=0.2).recognise(stub.port).state == "silent"


def test_a_flood_is_cut() -> None:
    with serve({"GET /v1/models": (200, b"x" * (2 * 1024 * 1024))}) as stub:
        told = HttpEngineFinder(SystemClock()).recognise(stub.port)
    assert told.state == "other"
    assert "over 1048576 bytes" in told.why
