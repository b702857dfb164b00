"""Simulated engines over raw HTTP and through our readers; GPU lines through the child; every fault seen."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from anvil_tui.adapters.clock import SystemClock
from anvil_tui.adapters.docker_engine import DockerControl, DockerReader
from anvil_tui.adapters.engine_http import HttpEngineReader
from anvil_tui.adapters.gpu_reader import ChildGpuReader
from anvil_tui.adapters.openai_client import OpenAIClient
from anvil_tui.adapters.toml_files import load_suite, load_suites
from anvil_tui.core.box import MIB, Container, Engine, Gpu
from anvil_tui.core.errors import EffectFailed
from anvil_tui.core.gates import GateResult, Suite
from anvil_tui.core.recipe import EngineKind, Recipe
from anvil_tui.ports import ContainerSpec
from anvil_tui.service.gates.conductor import Conductor
from anvil_tui.service.gates.session import GateParts, GateTarget
from anvil_tui.simbox import traffic
from anvil_tui.simbox.faults import FAULTS
from anvil_tui.simbox.workspace import ALIASES, read_recipes
from tests.support.simbox import SimProcess, free_port, until

ROOT = Path(__file__).parents[2]
INCUMBENT, CANDIDATE = "glm53-524k-k5-xgfix", "glm53-393k-c1"
WEIGHTS_MIB = 65_372  # half of 137,095,744,155 bytes, in MiB


class Bench:
    """One simulated box with the real adapters around it."""

    def __init__(self, folder: Path) -> None:
        self.sim = SimProcess(folder)
        url, clock = self.sim.workspace.containers.url, SystemClock()
        self.reader, self.control = DockerReader(url), DockerControl(url)
        self.engines = HttpEngineReader(clock)
        self.gpus = ChildGpuReader((*self.sim.workspace.gpus.reader, "--interval", "0.02"), 5, clock)
        self.conductor = Conductor(
            GateParts(OpenAIClient(clock.monotonic_s), self.engines, self.reader, self.gpus, clock)
        )
        self.recipes = read_recipes(folder)
        self.suites = {f.id: f.suite for f in load_suites(folder / "gates") if f.suite}
        self.port = self.sim.record.serves[self.sim.incumbent].port
        until(self.cards, "GPU lines")

    def cards(self) -> tuple[Gpu, ...]:
        reading = self.gpus.read()
        return reading.value.gpus if reading.ok and reading.value else ()

    def free(self) -> list[int]:
        """MiB free on each card, 0 where it is n/a."""
        return [(g.free_bytes or 0) // MIB for g in self.cards()]

    def engine(self, kind: EngineKind = EngineKind.VLLM, port: int = 0) -> Engine:
        return self.engines.read(kind, port or self.port)

    def log(self, container_id: str) -> str:
        return "\n".join(line.text for line in self.reader.logs(container_id, tail=5000))

    def load(self, recipe: Recipe, port: int, name: str = "anvil-candidate") -> str:
        """Container of a recipe, started."""
        uuids = tuple(self.sim.workspace.gpus.roles[r] for r in recipe.gpus.select)
        launch = recipe.launch
        spec = ContainerSpec(name, recipe.image.ref, recipe.filled_argv(port), launch.entrypoint, gpu_uuids=uuids,
                             labels={"anvil.op": name})  # fmt: skip
        made = self.control.create(spec)
        self.control.start(made)
        return made

    def swap(self) -> tuple[str, int]:
        """The incumbent out, the candidate in and ready."""
        self.control.stop(self.sim.incumbent, 60)
        until(lambda: self.free() and min(self.free()) > 97_000, "memory is back")
        port = free_port()
        made = self.load(self.recipes[CANDIDATE], port)
        until(lambda: self.engine(EngineKind.SGLANG, port).http == "ready", "candidate ready")
        return made, port

    def run(self, suite: Suite, recipe: str, container: str, port: int) -> dict[str, GateResult]:
        target = GateTarget(self.recipes[recipe], container, f"http://127.0.0.1:{port}", aliases=ALIASES)
        results = self.conductor.run(suite, target, lambda _: None, lambda: False)
        return {r.gate: r for r in results}

    def end(self) -> None:
        self.gpus.close()
        assert self.sim.end() == ""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "w")
    yield made
    made.end()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """For tests that leave the incumbent as it was."""
    made = Bench(tmp_path_factory.mktemp("sim") / "w")
    yield made
    made.end()


def chat(port: int, text: str, **more: Any) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": text}], **more}
    return httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body, timeout=30)


def events(port: int, text: str, **more: Any) -> list[Any]:
    """The data of a streamed answer, [DONE] as text."""
    lines = chat(port, text, stream=True, **more).text.splitlines()
    data = [line.removeprefix("data: ") for line in lines if line]
    return [d if d == "[DONE]" else json.loads(d) for d in data]


def sample(port: int, name: str) -> float:
    text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    return next(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))


# vLLM


def test_vllm_identity_capacity_and_errors(shared: Bench) -> None:
    name = shared.recipes[INCUMBENT].served_name
    seen = shared.engine()
    assert (seen.http, seen.served, seen.context_tokens, seen.metrics) == (
        "ready",
        (name, *ALIASES),
        524_288,
        "on",
    )
    log = shared.log(shared.sim.incumbent)
    assert "GPU KV cache size: 2,493,817 tokens" in log and "524,288 tokens per request: 4.76x" in log
    assert "100% Completed | 96/96" in log and "Available KV cache memory: 19.18 GiB" in log
    unknown = chat(shared.port, "hi", model="nobody")
    assert unknown.status_code == 404 and unknown.json()["error"]["code"] == 404
    over = chat(shared.port, "hi", max_tokens=600_000)
    assert over.status_code == 400 and "maximum context length is 524288 tokens" in over.json()["error"]["message"]
    assert chat(shared.port, "hi", stream_options={"include_usage": True}).status_code == 400
    assert httpx.get(f"http://127.0.0.1:{shared.port}/health").content == b""


def test_vllm_answers_whole_and_streamed_alike_and_counts(shared: Bench) -> None:
    before = sample(shared.port, "vllm:generation_tokens_total")
    whole = chat(shared.port, "Reply with exactly the single word: pong").json()
    message, usage = whole["choices"][0]["message"], whole["usage"]
    assert message["content"] == "pong" and message["reasoning"] and usage["completion_tokens"] > 40
    parts = events(shared.port, "Reply with exactly the single word: pong", stream_options={"include_usage": True})
    deltas = [p["choices"][0]["delta"] for p in parts[:-2]]
    assert deltas[0] == {"role": "assistant", "content": ""} and parts[-1] == "[DONE]"
    assert "".join(d.get("content") or "" for d in deltas) == "pong"
    assert "".join(d.get("reasoning") or "" for d in deltas) == message["reasoning"]
    assert parts[-2]["choices"] == [] and parts[-2]["usage"] == usage
    assert sample(shared.port, "vllm:generation_tokens_total") - before == 2 * usage["completion_tokens"]


def test_a_budget_used_up_in_reasoning_leaves_nothing_visible(shared: Bench) -> None:
    choice = chat(shared.port, "Reply with exactly the single word: pong", max_tokens=10).json()["choices"][0]
    assert choice["finish_reason"] == "length" and not choice["message"]["content"]
    off = {"chat_template_kwargs": {"enable_thinking": False}}
    choice = chat(shared.port, "Reply with exactly the single word: pong", max_tokens=10, **off).json()["choices"][
        0
    ]
    assert choice["finish_reason"] == "stop" and choice["message"]["content"] == "pong"


def test_a_client_that_leaves_is_an_abort_and_frees_its_place(shared: Bench) -> None:
    shared.sim.fault("slow_drain", seconds=100_000)
    aborts = 'vllm:request_success_total{engine="0",finished_reason="abort"'
    before = sample(shared.port, aborts)
    body = {"stream": True, "messages": [{"role": "user", "content": "x"}]}
    with httpx.stream("POST", f"http://127.0.0.1:{shared.port}/v1/chat/completions", json=body):
        until(lambda: shared.engine().running == 1, "a request runs")
    until(lambda: shared.engine().running == 0 and sample(shared.port, aborts) == before + 1, "aborted")
    shared.sim.clear()


# the three kinds while they load, and what they refuse


def small(bench: Bench, words: tuple[str, ...], entry: str, port: int, **env: str) -> str:
    image, name = bench.recipes[INCUMBENT].image.ref, f"small-{port}"
    made = bench.control.create(ContainerSpec(name, image, words, (entry,), env, labels={"anvil.op": name}))
    bench.control.start(made)
    return made


LLAMA = ("-m", "/models/tiny.gguf", "--alias", "tiny", "-c", "4096", "-np", "2", "--metrics")
SGLANG = ("--model-path", "/m", "--served-model-name", "tiny", "--context-length", "4096", "--enable-metrics")


def test_vllm_and_sglang_refuse_while_loading_llama_says_503(shared: Bench) -> None:
    kinds: list[tuple[EngineKind, tuple[str, ...], str]] = [
        (EngineKind.SGLANG, SGLANG, "python3"), (EngineKind.LLAMACPP, LLAMA, "llama-server"),
    ]  # fmt: skip
    for kind, words, entry in kinds:
        port = free_port()
        shared.sim.fault("slow_load", factor=1000, next=1)
        made = small(shared, (*words, "--port", str(port)), entry, port)
        want = "starting" if kind is EngineKind.LLAMACPP else "refused"
        until(lambda k=kind, p=port, w=want: shared.engine(k, p).http == w, f"{kind} {want}")  # type: ignore[misc]
        assert shared.reader.inspect(made).running
        shared.control.stop(made, 1)
        shared.control.remove(made)
        shared.sim.clear()


def test_llama_slots_props_and_context_error(shared: Bench) -> None:
    port = free_port()
    made = small(shared, (*LLAMA, "--port", str(port)), "llama-server", port)
    until(lambda: shared.engine(EngineKind.LLAMACPP, port).http == "ready", "ready")
    seen = shared.engine(EngineKind.LLAMACPP, port)
    assert (seen.context_tokens, seen.slots, seen.served) == (2048, 2, ("tiny",))
    assert chat(port, "hi", model="whatever").status_code == 200
    long = chat(port, "word " * 3000).json()["error"]
    assert (long["type"], long["n_ctx"]) == ("exceed_context_size_error", 2048) and long["n_prompt_tokens"] > 3000
    last = events(port, "What is 2 + 2?")[-2]
    assert last["choices"][0]["finish_reason"] == "stop" and last["timings"]["predicted_n"] == 1
    shared.control.stop(made, 10)
    shared.control.remove(made)


def asked(port: int, path: str, key: str = "none") -> httpx.Response | None:
    """None while nobody answers."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}{path}", headers={"Authorization": f"Bearer {key}"}, timeout=5)
    except httpx.TransportError:
        return None


def status(port: int, path: str, key: str = "none") -> int:
    reply = asked(port, path, key)
    return reply.status_code if reply else 0


LLAMA_401 = {"error": {"code": 401, "message": "Invalid API Key", "type": "authentication_error"}}


@pytest.mark.parametrize(
    ("words", "entry", "body"),
    [(LLAMA, "llama-server", LLAMA_401), (SGLANG, "python3", {"error": "Unauthorized"})],
)
def test_keys_guard_what_each_engine_guards(
    shared: Bench, words: tuple[str, ...], entry: str, body: dict[str, Any]
) -> None:
    port = free_port()
    made = small(shared, (*words, "--port", str(port), "--api-key", "k1"), entry, port)
    until(lambda: status(port, "/v1/models") == 401, "guarded")
    refused = asked(port, "/v1/models")
    assert refused is not None and refused.json() == body
    assert status(port, "/v1/models", "k1") == 200 == status(port, "/health")
    shared.control.stop(made, 10)
    shared.control.remove(made)


# gates


def test_the_incumbent_passes_promotion(shared: Bench) -> None:
    results = shared.run(shared.suites["promotion"], INCUMBENT, shared.sim.incumbent, shared.port)
    assert {g: r.verdict.value for g, r in results.items()} == dict.fromkeys(results, "passed")
    assert any((o.prompt_tokens or 0) >= 180_000 for o in results["needle"].observations)


@pytest.mark.parametrize("name", ["functional", "thinking"])
def test_the_incumbent_passes_the_shipped_suites_of_functions(shared: Bench, name: str) -> None:
    suite, left_out = load_suite(ROOT / "gates" / f"{name}.toml").for_recipe(shared.recipes[INCUMBENT])
    results = shared.run(suite, INCUMBENT, shared.sim.incumbent, shared.port)
    assert ({g: r.verdict.value for g, r in results.items()}, left_out) == (dict.fromkeys(results, "passed"), ())
    deep = [o.prompt_tokens or 0 for r in results.values() for o in r.observations]
    assert name == "thinking" or sum(n >= 100_000 for n in deep) >= 4


SPOILT: tuple[tuple[str, Mapping[str, str], str], ...] = (
    ("json_wrong", {"mode": "value"}, "json"),
    ("json_wrong", {"mode": "fenced"}, "json"),
    ("json_wrong", {"mode": "prose"}, "json"),
    ("json_wrong", {"mode": "broken"}, "json"),
    ("tools_wrong", {"mode": "value"}, "tools"),
    ("tools_wrong", {"mode": "double"}, "tools"),
    ("tools_wrong", {"mode": "text"}, "tools"),
    ("tools_wrong", {"mode": "name"}, "streaming-tools"),
    ("needle_wrong", {}, "needle"),
    ("reasoning_leak", {}, "smoke"),
    ("no_answer", {}, "smoke"),
    ("stream_cut", {}, "streaming-tools"),
    ("stream_error", {}, "streaming-tools"),
    ("wrong_identity", {"name": "somebody-else"}, "identity"),
    ("wrong_identity", {"context": "262144"}, "identity"),
)


@pytest.mark.parametrize(("fault", "args", "gate"), SPOILT)
def test_a_fault_of_answers_fails_its_gate(shared: Bench, fault: str, args: Mapping[str, str], gate: str) -> None:
    shared.sim.fault(fault, **args)
    chosen = tuple(g for g in shared.suites["promotion"].gates if g.id == gate)
    result = shared.run(shared.suites["promotion"].model_copy(update={"gates": chosen}), INCUMBENT,
                        shared.sim.incumbent, shared.port)[gate]  # fmt: skip
    shared.sim.clear()
    assert result.verdict.value in ("failed", "errored") and result.passed < result.of, result.reason


# faults of engines


def test_wedged_health_stays_and_nothing_moves(shared: Bench) -> None:
    shared.sim.fault("engine_wedged")
    asking = threading.Thread(target=lambda: _try_chat(shared.port))
    asking.start()
    until(lambda: shared.engine().running == 1, "a request hangs")
    first = shared.engine()
    assert httpx.get(f"http://127.0.0.1:{shared.port}/health").status_code == 200
    second = shared.engine()
    assert (first.http, second.http, second.running) == ("ready", "ready", 1)
    assert first.progress == second.progress is not None
    shared.sim.clear()
    asking.join(10)
    until(lambda: (shared.engine().progress or 0) > (first.progress or 0), "tokens move again")


def _try_chat(port: int) -> int:
    try:
        return chat(port, "What is 2 + 2?").status_code
    except httpx.TransportError:
        return 0


def test_metrics_faults(shared: Bench) -> None:
    shared.sim.fault("metrics", mode="off")
    # a reader of its own: what is switched off at the start is remembered, and asked for again after a while only
    assert HttpEngineReader(SystemClock()).read(EngineKind.VLLM, shared.port).metrics == "off"
    shared.sim.fault("metrics", mode="error")
    assert shared.engine().metrics == "error"
    shared.sim.fault("metrics", mode="bad")
    seen = shared.engine()
    assert (seen.running, seen.waiting, seen.kv_used) == (0, None, None) and seen.progress is not None
    shared.sim.clear()
    shared.sim.fault("kv_usage", value=1.07)
    assert shared.engine().kv_used == 1.07
    shared.sim.clear()
    assert shared.engine().kv_used == 0.0


def test_unauthorized_dead_and_slow(shared: Bench) -> None:
    shared.sim.fault("unauthorized")
    assert chat(shared.port, "hi").status_code == 401
    shared.sim.clear()
    shared.sim.fault("engine_dead")
    assert shared.engine().http == "error"
    shared.sim.clear()
    shared.sim.fault("fsm_error")
    chat(shared.port, 'Return only this JSON object: {"a": 1}', response_format={"type": "json_object"})
    assert "Failed to advance FSM for request" in shared.log(shared.sim.incumbent)
    shared.sim.clear()


def test_load_fails_and_inconsistent_windows(shared: Bench) -> None:
    words = ("serve", "m", "--served-model-name", "tiny", "--max-model-len", "4096")
    port = free_port()
    shared.sim.fault("load_fails", next=1, text="torch.OutOfMemoryError: CUDA out of memory.", exit_code=1)
    made = small(shared, (*words, "--port", str(port)), "vllm", port)
    until(lambda: shared.reader.inspect(made).status == "exited", "exit")
    assert shared.reader.inspect(made).exit_code == 1 and "CUDA out of memory" in shared.log(made)
    shared.control.remove(made)
    shared.sim.fault("kv_inconsistent", next=1, windows=9.99)
    made = small(shared, (*words, "--port", str(port)), "vllm", port)
    until(lambda: "4,096 tokens per request: 9.99x" in shared.log(made), "the log")
    shared.control.stop(made, 30)
    shared.control.remove(made)


@pytest.mark.parametrize("name", ["start_fails", "create_fails", "stop_fails"])
def test_the_daemon_refuses_once(shared: Bench, name: str) -> None:
    port = free_port()
    words = ("serve", "m", "--served-model-name", "t", "--max-model-len", "4096", "--port", str(port))

    def life() -> str:
        made = small(shared, words, "vllm", port)
        shared.control.stop(made, 30)
        return made

    shared.sim.fault(name, text="daemon says no")
    with pytest.raises(EffectFailed, match="daemon says no"):
        life()
    for c in shared.reader.list():
        if c.name.startswith("small-"):
            shared.control.stop(c.id, 30)
            shared.control.remove(c.id)
    shared.control.remove(life())


# faults that take something away


def gone(bench: Bench, container_id: str) -> Container:
    until(lambda: bench.reader.inspect(container_id).status == "exited", "exit")
    return bench.reader.inspect(container_id)


def test_engine_dies_with_and_without_the_oom_mark(bench: Bench) -> None:
    bench.sim.fault("engine_dies", oom=1)
    seen = gone(bench, bench.sim.incumbent)
    assert (seen.exit_code, seen.oom_killed) == (137, True) and bench.engine().http == "refused"
    bench.control.start(bench.sim.incumbent)
    until(lambda: bench.engine().http == "ready", "it can start again")
    assert bench.engine().progress == 0  # counters begin anew
    bench.sim.fault("engine_dies", exit_code=1)
    seen = gone(bench, bench.sim.incumbent)
    assert (seen.exit_code, seen.oom_killed) == (1, False) and "CUDA error" in bench.log(bench.sim.incumbent)


def test_replaced_and_removed(bench: Bench) -> None:
    name = bench.reader.inspect(bench.sim.incumbent).name
    bench.sim.fault("replaced", container=bench.sim.incumbent)
    new = next(c for c in bench.reader.list() if c.name == name)
    assert new.id != bench.sim.incumbent and new.running
    bench.sim.fault("removed", container=new.id)
    assert new.id not in {c.id for c in bench.reader.list()}


def test_gpu_lost_takes_its_engine_and_keeps_the_other_row(bench: Bench) -> None:
    before = bench.cards()
    bench.sim.fault("gpu_lost", gpu=before[1].uuid)
    until(lambda: bench.cards()[1].state == "lost", "lost")
    after = bench.cards()
    assert (after[0].state, after[1].uuid, after[1].used_bytes) == ("ok", before[1].uuid, None)
    assert gone(bench, bench.sim.incumbent).exit_code == 1
    with pytest.raises(EffectFailed, match="unknown device"):
        bench.control.start(bench.sim.incumbent)
    bench.sim.clear()
    bench.control.start(bench.sim.incumbent)


def test_driver_fault_and_a_silent_reader(bench: Bench) -> None:
    bench.sim.fault("gpu_driver_fault")
    until(lambda: bench.gpus.read().state == "error", "error")
    assert "18" in bench.gpus.read().reason
    bench.sim.clear()
    until(lambda: bench.gpus.read().ok, "well again")
    hasty = ChildGpuReader(bench.sim.workspace.gpus.reader, 0.7, SystemClock())
    until(lambda: hasty.read().ok, "first line")
    bench.sim.fault("gpu_reader_hangs")
    until(lambda: hasty.read().state == "error", "deadline")
    hasty.close()


def test_port_taken(shared: Bench) -> None:
    port = free_port()
    shared.sim.fault("port_taken", port=port)
    made = small(shared, ("serve", "m", "--max-model-len", "4096", "--port", str(port)), "vllm", port)
    assert gone(shared, made).exit_code == 1 and "address already in use" in shared.log(made)
    shared.control.remove(made)
    shared.sim.clear()


# GPUs follow what is loaded


def test_memory_follows_load_kernels_media_and_release(bench: Bench) -> None:
    assert bench.free() == [4_362, 4_362]
    pid = bench.reader.inspect(bench.sim.incumbent).pid
    assert [[p.pid for p in g.processes or ()] for g in bench.cards()] == [[pid], [pid]]
    made, port = bench.swap()
    seen = bench.engine(EngineKind.SGLANG, port)
    assert seen.capacity is not None and seen.capacity.tokens == 393_216 and seen.context_tokens == 393_216
    assert "max_total_num_tokens=393216, chunked_prefill_size=4096" in bench.log(made)
    until(lambda: bench.free() == [3_351, 3_351], "idle, as on record")
    chat(port, "Reply with exactly the single word: pong").raise_for_status()
    chat(port, "word " * 5000).raise_for_status()
    until(lambda: bench.free() == [3_101, 3_101], "kernels for long prompts")
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    ask = {"role": "user", "content": [{"type": "text", "text": "What is on it?"}, picture]}
    httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", json={"messages": [ask]}).raise_for_status()
    until(lambda: bench.free() == [2_101, 2_101], "lazy allocation after the first image, as on record")
    bench.control.stop(made, 60)
    until(lambda: bench.free() and min(bench.free()) > 97_000, "released")


def test_weights_fill_the_cards_while_loading(bench: Bench) -> None:
    bench.control.stop(bench.sim.incumbent, 60)
    until(lambda: bench.free() and min(bench.free()) > 97_000, "memory is back")
    bench.sim.fault("slow_load", factor=5, next=1)
    bench.control.start(bench.sim.incumbent)
    seen: list[int] = []

    def ready() -> bool:
        seen.append(bench.free()[0])
        return bench.engine().http == "ready"

    until(ready, "loaded")
    assert sorted(seen, reverse=True) == seen and len(set(seen)) > 5
    until(lambda: bench.free() == [4_362, 4_362], "as before")
    assert any(abs(97_245 - WEIGHTS_MIB - f) < 3000 for f in seen)  # the weights alone stood there for a while


def test_memory_that_stays_is_held_by_a_named_process(bench: Bench) -> None:
    bench.sim.fault("vram_not_released")
    pid = bench.reader.inspect(bench.sim.incumbent).pid
    bench.control.stop(bench.sim.incumbent, 60)
    assert not any(c.running for c in bench.reader.list())
    until(lambda: (bench.cards()[0].power_w or 300) < 60, "idle")
    orphan = (bench.cards()[0].processes or ())[0]
    assert orphan.pid == pid and orphan.name == "VLLM::Worker" and bench.free()[0] < 5_000
    bench.sim.clear()
    until(lambda: min(bench.free()) > 97_000, "released")


def test_cards_work_while_requests_run(shared: Bench) -> None:
    assert all(g.utilization_pct == 0 for g in shared.cards())
    shared.sim.fault("slow_drain", seconds=100_000)
    asking = threading.Thread(target=lambda: _try_chat(shared.port))
    asking.start()
    until(lambda: shared.cards()[0].utilization_pct, "busy")
    busy = shared.cards()[0]
    assert (busy.power_w or 0) > 200 and busy.throttle != ("idle",)
    shared.sim.fault("engine_dies", exit_code=0)
    asking.join(10)
    shared.sim.clear()
    shared.control.start(shared.sim.incumbent)
    until(lambda: shared.engine().http == "ready", "back")


# command line


def cli(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "anvil_tui.simbox", *words], capture_output=True, text=True, timeout=30
    )


def test_faults_by_command(shared: Bench) -> None:
    control = shared.sim.control
    listed = json.loads(cli("fault", "--socket", control, "list").stdout)
    assert set(listed) == set(FAULTS) and all(row["help"] for row in listed.values())
    assert cli("fault", "--socket", control, "kv_usage", "value=0.5").returncode == 0
    assert json.loads(cli("status", "--socket", control).stdout)["faults"] == {"kv_usage": {"value": "0.5"}}
    assert cli("fault", "--socket", control, "clear").returncode == 0
    wrong = cli("fault", "--socket", control, "kv_usage", "valu=0.5")
    assert wrong.returncode == 1 and "takes *value" in wrong.stderr
    assert "there are: " in cli("fault", "--socket", control, "nonsense").stderr
    assert cli("status", "--socket", "/nonexistent.sock").returncode == 4


def test_an_idle_box_is_light(tmp_path: Path) -> None:
    quiet, ticks = SimProcess(tmp_path / "w", 40), os.sysconf("SC_CLK_TCK")

    def used_s() -> float:
        fields = Path(f"/proc/{quiet.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / ticks

    before = used_s()
    threading.Event().wait(3)
    spent = used_s() - before
    assert quiet.end() == "" and spent < 0.06  # 2 % of 3 s


def test_the_demo_client_goes_on_after_its_key_was_changed(tmp_path: Path) -> None:
    """As a client that reads its key for each request: after a rotation the demo still shows traffic."""
    seen: list[str] = []

    def reply(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["authorization"])
        return httpx.Response(200, text="data: [DONE]\n\n")

    async def ask_thrice() -> list[str]:
        key, told = tmp_path / "client.key", []
        async with httpx.AsyncClient(base_url="http://gateway", transport=httpx.MockTransport(reply)) as http:
            for value in ("first", "second", None):
                key.unlink() if value is None else key.write_text(f"{value}\n")
                told.append(await traffic.one(http, key, random.Random(0)))
        return told

    assert asyncio.run(ask_thrice()) == ["ok", "ok", "no key"]
    assert seen == ["Bearer first", "Bearer second"]
