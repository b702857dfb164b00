"""The shipped suites on a real llama-server with real small models: what passes does so honestly, and so what fails.

Fixtures from the session's set-up: `llama_rootfs` (unpacked root with llama-server), `models_dir`.
"""

# ruff: noqa: E501
from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.adapters.clock import SystemClock
from anvil_tui.adapters.engine_http import HttpEngineReader
from anvil_tui.adapters.openai_client import OpenAIClient
from anvil_tui.adapters.toml_files import load_suite
from anvil_tui.core.box import Container, GpuSnapshot
from anvil_tui.core.chat import ChatRequest, decode_tok_s
from anvil_tui.core.gates import FailureClass, GateResult, Suite, Verdict
from anvil_tui.core.reading import Reading
from anvil_tui.core.recipe import Recipe
from anvil_tui.ports import LogLine
from anvil_tui.service.gates.conductor import Conductor, GateTarget, suite_passed
from anvil_tui.service.gates.session import GateParts
from tests.support.llama import Llama, llama_server

pytestmark = pytest.mark.real

GATES = Path(__file__).parents[2] / "gates"
FIXTURES = Path(__file__).parents[1] / "fixtures"
CONTEXT = 1024


@dataclass
class ProcessReader:
    """The server process in the place of its container: real state, real log."""

    llama: Llama

    def inspect(self, container_id: str) -> Container:
        code = self.llama.process.poll()
        status = "running" if code is None else "exited"
        return Container(
            container_id,
            "llama",
            status,
            "img",
            "ref",
            started_at="2026-11-29T00:00:00Z",
            exit_code=code,
            oom_killed=False,
            restart_count=0,
        )

    def logs(self, container_id: str, *, tail: int = 2000) -> tuple[LogLine, ...]:
        stamp = datetime.now(UTC).isoformat()
        return tuple(LogLine(t, stamp) for t in self.llama.log.read_text(errors="replace").splitlines()[-tail:])


class NoGpus:
    def read(self) -> Reading[GpuSnapshot]:
        return Reading.unknown("no GPU here", "test")


def recipe(**more: Any) -> Recipe:
    fields: dict[str, Any] = {
        "schema": "anvil.recipe/1", "id": "tiny", "family": "tiny", "engine": "llamacpp", "served_name": "tiny",
        "exclusive": False, "rollback": "none: test", "image": {"ref": "x@sha256:" + "a" * 64},
        "model": {"repo": "tiny"}, "launch": {"argv": ("{port}",)},
        "envelope": {"context_tokens": CONTEXT, "max_output_tokens": 256, "concurrency": 1},
        "budgets": {"visible_tokens": 128}, **more,
    }  # fmt: skip
    return Recipe.model_validate(fields)


class SameSecond(SystemClock):
    """Gates salt their prompts with the time: one moment gives one prompt, and so one answer of the model."""

    def utc(self) -> datetime:
        return datetime(2026, 9, 2, 12, tzinfo=UTC)


def run(llama: Llama, suite: Suite, **more: Any) -> dict[str, GateResult]:
    reader: Any = ProcessReader(llama)
    gpus: Any = NoGpus()
    clock = SameSecond()
    conductor = Conductor(GateParts(OpenAIClient(time.monotonic), HttpEngineReader(clock), reader, gpus, clock))
    target = GateTarget(recipe(**more), "c" * 64, llama.url)
    assert conductor.unrunnable(suite, target) == {}
    return {r.gate: r for r in conductor.run(suite, target, lambda e: None, lambda: False)}


def shipped(name: str) -> Suite:
    return load_suite(GATES / f"{name}.toml")


def suite(*gates: dict[str, Any]) -> Suite:
    return Suite.model_validate(
        {"schema": "anvil.suite/1", "id": "s", "gates": tuple({"id": g["kind"], **g} for g in gates)}
    )


@pytest.fixture(scope="module")
def smol(llama_rootfs: Path, models_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Llama]:
    log = tmp_path_factory.mktemp("smol") / "log"
    with llama_server(llama_rootfs, models_dir / "smollm2-135m-instruct-q4_1.gguf", log) as made:
        yield made


@pytest.mark.parametrize("name", ["small", "quick", "smoke"])
def test_smollm2_passes_its_own_suites(smol: Llama, name: str) -> None:
    results = run(smol, shipped(name))
    assert [(r.gate, r.verdict, r.reason) for r in results.values() if r.verdict is not Verdict.PASSED] == []
    assert suite_passed(list(results.values()))
    assert all(r.observations for r in results.values())


def test_smollm2_cannot_call_tools_and_fails_for_that(smol: Llama) -> None:
    tools = run(smol, shipped("tools"))["tools"]
    assert (tools.verdict, tools.passed) == (Verdict.FAILED, 0)
    assert FailureClass.TOOL_CALL in tools.failures
    assert "it said" in tools.reason


def test_a_needle_is_measured_by_the_engine_and_smollm2_does_not_find_it_exactly(smol: Llama) -> None:
    needle = run(smol, suite({"kind": "needle", "prompt_tokens_at_least": 500}))["needle"]
    last = needle.observations[-1]
    assert 500 <= (last.prompt_tokens or 0) <= 560
    assert (needle.verdict, last.failure) == (Verdict.FAILED, FailureClass.CHECK)


def test_the_protocol_of_a_real_engine(smol: Llama) -> None:
    """O-70 on a real engine: refused with both numbers, and alive after it. Stop, cut and Responses as they come."""
    gates = ({"kind": k} for k in ("responses", "stop", "length", "overlong", "liveness", "container-state"))
    results = run(smol, suite(*gates))
    assert [(r.gate, r.verdict, r.reason) for r in results.values() if r.verdict is not Verdict.PASSED] == []
    assert f"tokens asked, {CONTEXT} allowed" in results["overlong"].reason
    made = next(o for o in results["overlong"].observations if o.raw["status"] == 400)
    assert made.raw["outcome"] == "ok" and made.excerpt.startswith('{"error"')
    assert "visible_answer_budget_exhausted" in results["length"].reason
    assert [o.raw["stream"] for o in results["responses"].observations] == [False, True]


def test_a_long_answer_is_forced_and_counted_by_a_real_engine(smol: Llama) -> None:
    shape = {"kind": "client-shape", "prompt_tokens_at_least": 120, "completion_tokens": 24}
    result = run(smol, suite(shape))["client-shape"]
    seen = result.observations[-1]
    assert (result.verdict, seen.completion_tokens, seen.raw["finish_reason"]) == (Verdict.PASSED, 24, "length")
    assert 120 <= (seen.prompt_tokens or 0) <= 180


def test_the_grammar_holds_where_the_model_does_not(smol: Llama) -> None:
    """A small model may write another value; what it writes is held to the schema all the same."""
    result = run(smol, suite({"kind": "json-schema"}))["json-schema"]
    assert "schema_violated" not in result.reason
    assert set(json.loads(result.observations[0].excerpt)) == {"room", "celsius", "mode", "valves"}


def test_smollm2_names_a_code_that_was_not_asked_for(smol: Llama) -> None:
    result = run(smol, suite({"kind": "needle-absent", "prompt_tokens_at_least": 160}))["needle-absent"]
    assert (result.verdict, result.failures) == (Verdict.FAILED, (FailureClass.CHECK,))
    assert "expected 'absent'" in result.reason


def test_a_model_that_cannot_think_is_not_taken_for_one(smol: Llama) -> None:
    result = run(smol, suite({"kind": "thinking", "thinking": "on"}))["thinking"]
    assert (result.verdict, "no reasoning channel" in result.reason) == (Verdict.FAILED, True)


def test_another_name_or_context_is_not_this_serve(smol: Llama) -> None:
    only = suite({"kind": "identity"})
    assert "serves tiny, not other" in run(smol, only, served_name="other")["identity"].reason
    larger = {"context_tokens": 2048, "max_output_tokens": 256, "concurrency": 1}
    assert run(smol, only, envelope=larger)["identity"].failures == (FailureClass.IDENTITY,)


def ask(llama: Llama, text: str, **more: Any) -> Any:
    request = ChatRequest("tiny", ({"role": "user", "content": text},), max_tokens=24, **more)
    return OpenAIClient(time.monotonic).chat(llama.url, request, api_key=None, timeout_s=30)


def test_a_real_stream_and_its_rates(smol: Llama) -> None:
    got = ask(smol, "Count from 1 to 20.", stream=True)
    assert (got.error, got.notes, got.model) == (None, (), "tiny")
    assert got.completion_tokens and got.prompt_tokens
    assert len(got.token_times_s) <= got.completion_tokens
    assert 0 < got.ttft_any_s == got.ttft_visible_s < got.e2e_s <= got.end_s
    assert 0 < (decode_tok_s(got) or 0) < 5000
    whole = ask(smol, "Count from 1 to 20.")
    assert (whole.content, whole.completion_tokens) == (got.content, got.completion_tokens)


def test_a_prompt_beyond_the_context_is_refused_with_both_numbers(smol: Llama) -> None:
    got = ask(smol, "word " * 2000)
    assert (got.status, got.error, got.error_code) == (400, "http", "context_overflow")
    assert got.overflow and got.overflow[0] >= 2000 and got.overflow[1] == CONTEXT


def test_a_killed_engine_is_named(llama_rootfs: Path, models_dir: Path, tmp_path: Path) -> None:
    model = models_dir / "smollm2-135m-instruct-q4_1.gguf"
    with llama_server(llama_rootfs, model, tmp_path / "log") as llama:
        llama.process.kill()
        llama.process.wait(10)
        results = run(llama, suite({"kind": "smoke", "repeat": 3}, {"kind": "container-state"}))
    assert results["smoke"].verdict is Verdict.ERRORED
    assert "the engine died: container exited, exit code -9" in results["smoke"].reason
    assert len(results["smoke"].observations) == 1
    assert results["container-state"].verdict is Verdict.FAILED


@pytest.fixture(scope="module")
def qwen(llama_rootfs: Path, models_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Llama]:
    model = models_dir / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
    if not model.exists():
        pytest.skip(f"{model.name} was not fetched")
    log = tmp_path_factory.mktemp("qwen") / "log"
    template = FIXTURES / "qwen-plain-tools.jinja"
    with llama_server(llama_rootfs, model, log, "--jinja", "--chat-template-file", str(template)) as made:
        yield made


def test_a_model_that_can_call_tools_passes_them_whole_streamed_and_behind_a_long_prompt(qwen: Llama) -> None:
    long = {"kind": "tools", "id": "long", "prompt_tokens_at_least": 300, "repeat": 2, "parallel": 2}
    asked = suite({"kind": "streaming-tools", "repeat": 2}, {"kind": "json-schema"}, long)
    assert suite_passed(list(run(qwen, shipped("tools")).values()))
    results = run(qwen, asked)
    assert [(r.gate, r.verdict, r.reason) for r in results.values() if r.verdict is not Verdict.PASSED] == []
    assert results["streaming-tools"].observations[0].ttft_visible_s is not None
    assert sorted(o.prompt_tokens or 0 for o in results["long"].observations)[-2] >= 300
