"""The functional gates against simulated engines of three dialects: what passes, what each fault makes fail."""

# ruff: noqa: E501
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from anvil_tui.adapters.clock import SystemClock
from anvil_tui.adapters.docker_engine import DockerControl, DockerReader
from anvil_tui.adapters.engine_http import HttpEngineReader
from anvil_tui.adapters.gpu_reader import ChildGpuReader
from anvil_tui.adapters.openai_client import OpenAIClient
from anvil_tui.core.gates import FailureClass, GateResult, Suite, Verdict
from anvil_tui.core.recipe import EngineKind, Recipe
from anvil_tui.core.workspace import Slot
from anvil_tui.ports import ContainerSpec
from anvil_tui.service.gates.conductor import Conductor
from anvil_tui.service.gates.session import GateParts, GateTarget
from anvil_tui.simbox.workspace import read_recipes
from tests.support.gateway import KEY, Rig, front
from tests.support.simbox import SimProcess, free_port, until

CONTEXT = 4096
WORDS: Mapping[str, tuple[str, ...]] = {
    "vllm": ("vllm", "serve", "/m", "--served-model-name", "tiny", "--max-model-len", str(CONTEXT),
             "--reasoning-parser", "glm"),
    "sglang": ("python3", "--model-path", "/m", "--served-model-name", "tiny", "--context-length", str(CONTEXT),
               "--reasoning-parser", "glm", "--enable-metrics"),
    "llamacpp": ("llama-server", "-m", "/models/tiny.gguf", "--alias", "tiny", "-c", str(CONTEXT), "--metrics",
                 "--reasoning-parser", "glm"),
}  # fmt: skip


def recipe(engine: str, **more: Any) -> Recipe:
    fields: dict[str, Any] = {
        "schema": "anvil.recipe/1", "id": "tiny", "family": "tiny", "engine": engine, "served_name": "tiny",
        "exclusive": False, "rollback": "none: test", "image": {"ref": "x@sha256:" + "a" * 64},
        "model": {"repo": "tiny"}, "launch": {"argv": ("{port}",)},
        "envelope": {"context_tokens": CONTEXT, "max_output_tokens": 1024, "concurrency": 4},
        "budgets": {"visible_tokens": 128, "reasoning_tokens": 256}, "thinking": "off", **more,
    }  # fmt: skip
    return Recipe.model_validate(fields)


@dataclass
class Box:
    """One simulated box with a small engine of each dialect, and the real adapters around it."""

    sim: SimProcess
    conductor: Conductor
    serves: Mapping[str, tuple[str, int]]

    def run(
        self, engine: str, *gates: dict[str, Any], gateway: Rig | None = None, **more: Any
    ) -> dict[str, GateResult]:
        made = Suite.model_validate(
            {"schema": "anvil.suite/1", "id": "s", "gates": tuple({"id": g["kind"], **g} for g in gates)}
        )
        container, port = self.serves[engine]
        way: dict[str, Any] = (
            {"routed_url": f"http://127.0.0.1:{gateway.port}/@{engine}", "routed_key": KEY, "slot": engine}
            if gateway
            else {}
        )
        target = GateTarget(recipe(engine, **more), container, f"http://127.0.0.1:{port}", **way)
        assert self.conductor.unrunnable(made, target) == {}
        return {r.gate: r for r in self.conductor.run(made, target, lambda e: None, lambda: False)}


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    sim = SimProcess(tmp_path_factory.mktemp("sim") / "w")
    url, clock = sim.workspace.containers.url, SystemClock()
    control, engines = DockerControl(url), HttpEngineReader(clock)
    gpus = ChildGpuReader((*sim.workspace.gpus.reader, "--interval", "0.05"), 5, clock)
    image = next(iter(read_recipes(sim.folder).values())).image.ref
    serves = {}
    for kind, (entry, *words) in WORDS.items():
        port = free_port()
        made = control.create(ContainerSpec(kind, image, (*words, "--port", str(port)), (entry,)))
        control.start(made)
        serves[kind] = (made, port)
    for kind, (_, port) in serves.items():
        until(lambda k=kind, p=port: engines.read(EngineKind(k), p).http == "ready", f"{kind} ready")  # type: ignore[misc]
    parts = GateParts(OpenAIClient(clock.monotonic_s), engines, DockerReader(url), gpus, clock)
    yield Box(sim, Conductor(parts), serves)
    gpus.close()
    assert sim.end() == ""


ALL: tuple[dict[str, Any], ...] = (
    {"kind": "identity"}, {"kind": "smoke"}, {"kind": "json"}, {"kind": "json-schema", "repeat": 3},
    {"kind": "stop", "repeat": 2}, {"kind": "length"}, {"kind": "responses"},
    {"kind": "tools", "repeat": 6, "parallel": 3},
    {"kind": "tools", "id": "long-tools", "prompt_tokens_at_least": 2500},
    {"kind": "streaming-tools", "id": "long-streamed", "prompt_tokens_at_least": 1500, "repeat": 2, "parallel": 2},
    {"kind": "tool-result"},
    {"kind": "needle", "prompt_tokens_at_least": 2000, "repeat": 2, "positions_pct": (10, 90)}, {"kind": "needle-absent", "prompt_tokens_at_least": 2000}, {"kind": "thinking"},
    {"kind": "thinking", "id": "thinking-on", "thinking": "on"}, {"kind": "overlong"},
    {"kind": "client-shape", "prompt_tokens_at_least": 1900, "completion_tokens": 500, "timeout_s": 30},
    {"kind": "liveness"}, {"kind": "container-state"},
)  # fmt: skip


@pytest.mark.parametrize("engine", WORDS)
def test_each_dialect_passes_every_functional_gate(box: Box, engine: str) -> None:
    """O-70 for all three engines by its gate: a prompt above the context is refused with both numbers."""
    results = box.run(engine, *ALL)
    assert [(r.gate, r.verdict, r.reason) for r in results.values() if r.verdict is not Verdict.PASSED] == []
    assert f"{CONTEXT} allowed" in results["overlong"].reason
    shape = results["client-shape"].observations[-1]
    assert (shape.completion_tokens, shape.raw["finish_reason"]) == (500, "length")
    assert 1900 <= (shape.prompt_tokens or 0) <= 2100
    long = [o.prompt_tokens or 0 for g in ("long-tools", "long-streamed") for o in results[g].observations]
    assert sum(n >= 1500 for n in long) >= 3
    needles = {o.n: o for o in results["needle"].observations if o.raw.get("purpose") != "calibration"}
    assert [2000 <= (o.prompt_tokens or 0) <= 2100 for o in needles.values()] == [True, True]


@pytest.fixture
def gateway(box: Box, tmp_path: Path) -> Iterator[Rig]:
    """A real HAProxy in front of the three engines."""
    slots = tuple(Slot(name=kind, port=port) for kind, (_, port) in box.serves.items())
    with front(tmp_path, slots) as made:
        yield made


@pytest.mark.real
@pytest.mark.parametrize("engine", WORDS)
def test_each_dialect_passes_them_routed_through_a_real_gateway(box: Box, gateway: Rig, engine: str) -> None:
    routed = [{**gate, "routed": True} for gate in ALL if gate["kind"] != "container-state"]
    results = box.run(engine, *routed, gateway=gateway)
    assert [(r.gate, r.verdict, r.reason) for r in results.values() if r.verdict is not Verdict.PASSED] == []
    asked = [o.raw for r in results.values() for o in r.observations if "sent_at" in o.raw]
    assert len(asked) > 30 and all(raw["routed"] for raw in asked)


@pytest.mark.parametrize(("engine", "verdict"), [("vllm", Verdict.UNVERIFIED), ("sglang", Verdict.PASSED)])
def test_an_effort_is_proven_only_where_reasoning_tokens_are_told(box: Box, engine: str, verdict: Verdict) -> None:
    result = box.run(engine, {"kind": "thinking", "thinking": "high"})["thinking"]
    assert result.verdict is verdict, result.reason
    assert "reasoning tokens" in result.reason


def test_effort_reaches_the_responses_route_and_no_chat_field_does(box: Box) -> None:
    """SGLang refuses chat_template_kwargs there; a recipe that thinks `off` sends nothing of it."""
    result = box.run("sglang", {"kind": "responses", "thinking": "low"})["responses"]
    assert (result.verdict, result.observations[0].raw["thinking"]) == (
        Verdict.PASSED,
        {"reasoning": {"effort": "low"}},
    )
    body = {
        "model": "tiny",
        "input": "hi",
        "max_output_tokens": 8,
        "chat_template_kwargs": {"enable_thinking": False},
    }
    refused = httpx.post(f"http://127.0.0.1:{box.serves['sglang'][1]}/v1/responses", json=body, timeout=10)
    assert refused.status_code == 400 and "chat_template_kwargs" in refused.text


CHECK, TOOL, LEAK = FailureClass.CHECK, FailureClass.TOOL_CALL, FailureClass.REASONING_LEAK
NEEDLE = {"prompt_tokens_at_least": 1000}
FAULTS: tuple[tuple[str, dict[str, str], dict[str, Any], Verdict, FailureClass | None, str], ...] = (
    ("schema_ignored", {}, {"kind": "json-schema"}, Verdict.FAILED, CHECK, "schema_violated"),
    ("json_wrong", {"mode": "value"}, {"kind": "json-schema"}, Verdict.FAILED, CHECK, "schema_violated"),
    ("json_wrong", {"mode": "fenced"}, {"kind": "json-schema"}, Verdict.FAILED, CHECK, "fenced_json"),
    ("stop_ignored", {}, {"kind": "stop"}, Verdict.FAILED, CHECK, "is in the text"),
    ("limit_ignored", {}, {"kind": "length"}, Verdict.FAILED, FailureClass.FINISH_REASON, "not length"),
    ("truncates", {}, {"kind": "overlong"}, Verdict.FAILED, CHECK, "cut silently?"),
    ("thinking_wrong", {"mode": "always"}, {"kind": "thinking", "thinking": "off"}, Verdict.FAILED, CHECK, "thinking is off"),
    ("thinking_wrong", {"mode": "never"}, {"kind": "thinking", "thinking": "on"}, Verdict.FAILED, CHECK, "no reasoning channel"),
    ("thinking_wrong", {"mode": "never"}, {"kind": "json", "thinking": "on"}, Verdict.UNVERIFIED, None, "no reasoning came back"),
    ("reasoning_leak", {}, {"kind": "thinking", "thinking": "on"}, Verdict.FAILED, LEAK, "</think>"),
    ("reasoning_leak", {}, {"kind": "responses"}, Verdict.FAILED, LEAK, "</think>"),
    ("no_answer", {}, {"kind": "responses"}, Verdict.FAILED, FailureClass.NO_ANSWER, "completion tokens: 26"),
    ("thinking_wrong", {"mode": "always"}, {"kind": "responses", "thinking": "off"}, Verdict.UNVERIFIED, None, "no control"),
    ("no_responses", {}, {"kind": "responses"}, Verdict.UNSUPPORTED, None, "no Responses route"),
    ("stream_cut", {}, {"kind": "responses"}, Verdict.ERRORED, FailureClass.STREAM, "truncated"),
    ("stream_error", {}, {"kind": "responses"}, Verdict.FAILED, CHECK, "EngineCore"),
    ("unauthorized", {}, {"kind": "responses"}, Verdict.ERRORED, None, "401"),
    ("needle_wrong", {}, {"kind": "needle-absent", **NEEDLE}, Verdict.FAILED, CHECK, "expected 'absent'"),
    ("tools_wrong", {"mode": "double"}, {"kind": "tools"}, Verdict.FAILED, TOOL, "malformed call"),
    ("tools_wrong", {"mode": "text"}, {"kind": "streaming-tools"}, Verdict.FAILED, TOOL, "malformed call"),
    ("tools_wrong", {"mode": "value"}, {"kind": "tools", **NEEDLE}, Verdict.FAILED, TOOL, "wrong call"),
    ("no_answer", {}, {"kind": "tools"}, Verdict.FAILED, FailureClass.NO_ANSWER, "no visible answer"),
    ("engine_wedged", {}, {"kind": "liveness", "timeout_s": 1}, Verdict.ERRORED, None, "timeout"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "keys", "gate", "verdict", "failure", "words"), FAULTS)
def test_each_fault_gets_its_verdict_and_class(
    box: Box,
    name: str,
    keys: dict[str, str],
    gate: dict[str, Any],
    verdict: Verdict,
    failure: FailureClass | None,
    words: str,
) -> None:
    box.sim.fault(name, container="vllm", **keys)
    try:
        result = box.run("vllm", gate)[gate["kind"]]
    finally:
        box.sim.clear()
    assert (result.verdict, result.failures) == (verdict, (failure,) if failure else ()), result.reason
    assert words in result.reason


def test_a_grammar_engine_error_is_named_with_the_failed_structured_gate(box: Box) -> None:
    """O-65: the constrained decoder's own words stand with the gate that failed meanwhile."""
    box.sim.fault("fsm_error", container="vllm")
    box.sim.fault("json_wrong", container="vllm", mode="broken")
    try:
        result = box.run("vllm", {"kind": "json-schema"})["json-schema"]
    finally:
        box.sim.clear()
    assert result.verdict is Verdict.FAILED
    assert "probable cause in its log" in result.reason and "Failed to advance FSM for request" in result.reason
