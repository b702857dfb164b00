"""Quality and command gates on the simulated box: right when it is well, wrong and named when it is not."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.adapters.clock import SystemClock
from anvil_tui.adapters.command_runner import ChildCommands
from anvil_tui.adapters.docker_engine import DockerReader
from anvil_tui.adapters.engine_http import HttpEngineReader
from anvil_tui.adapters.gpu_reader import ChildGpuReader
from anvil_tui.adapters.openai_client import OpenAIClient
from anvil_tui.adapters.sandbox import ChildSandbox
from anvil_tui.adapters.toml_files import load_recipe
from anvil_tui.core.gate_kinds import RETRIEVALS
from anvil_tui.core.gates import FailureClass, GateProgress, GateResult, Suite, Verdict
from anvil_tui.service.gates.conductor import Conductor, GateTarget
from anvil_tui.service.gates.session import GateParts
from anvil_tui.simbox.workspace import ALIASES
from tests.support.simbox import SimProcess

CHECK, TOOL = FailureClass.CHECK, FailureClass.TOOL_CALL
CLIENT_KEY = "client-Key-0123456789"


@dataclasses.dataclass
class Bench:
    sim: SimProcess
    conductor: Conductor
    target: GateTarget
    folder: Path
    events: list[GateProgress | GateResult] = dataclasses.field(default_factory=list)

    def run(self, *gates: dict[str, Any], cancel_after: int | None = None) -> dict[str, GateResult]:
        full = tuple({"id": g["kind"], "timeout_s": 30, **g} for g in gates)
        suite = Suite.model_validate({"schema": "anvil.suite/1", "id": "s", "gates": full})
        assert self.conductor.unrunnable(suite, self.target) == {}
        self.events = []

        def cancelled() -> bool:
            done = max((e.done for e in self.events if isinstance(e, GateProgress)), default=0)
            return cancel_after is not None and done >= cancel_after

        return {r.gate: r for r in self.conductor.run(suite, self.target, self.events.append, cancelled)}

    def why_not(self, **gate: Any) -> str:
        suite = Suite.model_validate({"schema": "anvil.suite/1", "id": "s", "gates": ({"id": "g", **gate},)})
        return self.conductor.unrunnable(suite, self.target).get("g", "")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("sim")
    sim, clock = SimProcess(folder), SystemClock()
    gpus = ChildGpuReader(sim.workspace.gpus.reader, 5.0, clock)
    held = sim.record.serve_in("primary")
    assert held is not None
    environ = {"PATH": "/usr/bin:/bin", "CLIENT": CLIENT_KEY}
    parts = GateParts(
        OpenAIClient(time.monotonic), HttpEngineReader(clock), DockerReader(sim.workspace.containers.url, 10),
        gpus, clock, commands=ChildCommands(folder, environ), sandbox=ChildSandbox(),
    )  # fmt: skip
    recipe = load_recipe(folder / "recipes" / f"{held.recipe_id}.toml")
    target = GateTarget(recipe, held.container_id, f"http://127.0.0.1:{held.port}", aliases=ALIASES)
    yield Bench(sim, Conductor(parts), target, folder)
    gpus.close()
    sim.end()


ITEMS = (
    {"kind": "intelligence", "repeat": 12, "parallel": 4},
    {"kind": "recall", "repeat": 3},
    {"kind": "tool-use", "repeat": 4, "parallel": 2},
    {"kind": "coding", "repeat": 8, "parallel": 2, "visible_tokens": 2048},
)


def test_a_serve_that_is_well_answers_all_of_them(bench: Bench) -> None:
    results = bench.run(*ITEMS)
    assert [(r.gate, r.verdict, r.reason) for r in results.values() if r.verdict is not Verdict.PASSED] == []
    assert results["intelligence"].reason == "12/12, ≥ 77.9 % at 95 %"
    asked = [o.raw["item"] for o in results["intelligence"].observations]
    assert sorted(asked) == sorted(["arithmetic", "time", "ordering", "calendar", "sets", "letters"] * 2)
    assert len(results["recall"].observations) == 3 * 5, "every turn is an observation"
    assert {o.raw["item"] for o in results["coding"].observations} == {"query", "pattern", "diff", "document"}
    steps = [o for o in results["tool-use"].observations if o.n == 1]
    assert [len(o.raw["tool_calls"]) for o in steps] == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("gate", "failure", "words"),
    [
        (ITEMS[0], CHECK, "arithmetic: expected"),
        (ITEMS[1], CHECK, "turn 5 of 5: "),
        (ITEMS[2], TOOL, "request 1: tool_call_failed: step 1: count_crates names"),
        (ITEMS[3], CHECK, "query: "),
    ],
    ids=lambda v: v["kind"] if isinstance(v, dict) else "",
)
def test_one_that_is_stupid_fails_each_and_is_well_again_after(
    bench: Bench, gate: dict[str, Any], failure: FailureClass, words: str
) -> None:
    bench.sim.fault("stupid")
    try:
        (result,) = bench.run(gate).values()
    finally:
        bench.sim.clear()
    assert (result.verdict, result.passed, result.failures) == (Verdict.FAILED, 0, (failure,)), result.reason
    assert words in result.reason
    assert f"0/{result.of};" in result.reason


@pytest.mark.parametrize(
    ("fault", "kind", "failure", "words"),
    [
        ("reasoning_leak", "intelligence", FailureClass.REASONING_LEAK, "</think>"),
        ("no_answer", "recall", FailureClass.NO_ANSWER, "turn 1 of 5"),
        ("tools_wrong mode=double", "tool-use", TOOL, "double_encoded_arguments"),
        ("tools_wrong mode=name", "tool-use", TOOL, "which is no tool"),
        ("tools_wrong mode=text", "tool-use", TOOL, "no call: "),
    ],
)
def test_how_an_answer_came_is_judged_before_what_it_says(
    bench: Bench, fault: str, kind: str, failure: FailureClass, words: str
) -> None:
    """O-60 in a task of several steps: arguments that are encoded twice."""
    name, *keys = fault.split()
    bench.sim.fault(name, **dict(k.split("=") for k in keys))
    try:
        result = bench.run({"kind": kind})[kind]
    finally:
        bench.sim.clear()
    assert (result.verdict, result.failures) == (Verdict.FAILED, (failure,)), result.reason
    assert words in result.reason


def test_an_answer_that_its_budget_cut_is_a_matter_of_budget_and_the_unchanged_item_passes_with_more(
    bench: Bench,
) -> None:
    """O-57 and the coding suite of the records: failed at 768 visible tokens, passed unchanged at 2,048."""
    tight = bench.run({"kind": "coding", "repeat": 4, "visible_tokens": 8, "reasoning_tokens": 0})["coding"]
    assert (tight.verdict, tight.passed) == (Verdict.FAILED, 0)
    assert CHECK not in tight.failures
    assert set(tight.failures) <= {
        FailureClass.VISIBLE_BUDGET, FailureClass.REASONING_BUDGET, FailureClass.BUDGET_AFTER_VISIBLE,
    }  # fmt: skip
    assert bench.run({"kind": "coding", "repeat": 4, "visible_tokens": 2048})["coding"].verdict is Verdict.PASSED


LADDER = {
    "kind": "context-ladder",
    "prompt_tokens": (4000, 800, 2000),
    "positions_pct": (5, 50, 95),
    "parallel": 4,
}


def curve(result: GateResult) -> list[dict[str, Any]]:
    (last,) = [o for o in result.observations if o.raw.get("purpose") == "curve"]
    rows: list[dict[str, Any]] = last.raw["curve"]
    return rows


def test_a_ladder_tells_every_depth_by_the_engines_own_count(bench: Bench) -> None:
    result = bench.run(LADDER)["context-ladder"]
    assert result.verdict is Verdict.PASSED, result.reason
    rows = curve(result)
    assert [r["nominal_tokens"] for r in rows] == [800, 2000, 4000]
    assert [(r["right"], r["asked"]) for r in rows] == [(12, 12)] * 3
    for row in rows:
        least, most = row["prompt_tokens"]
        assert row["nominal_tokens"] <= least <= most <= row["nominal_tokens"] * 1.1
        assert row["lower_bound"] == pytest.approx(0.05 ** (1 / 12))
    least, most = rows[1]["prompt_tokens"]
    assert "36/36 found; tokens (by the engine)" in result.reason
    assert f"2,000 ({least:,} to {most:,}): 12/12 (≥ 77.9 %)" in result.reason
    asked = {(o.raw["retrieval"], o.raw["position_pct"]) for o in result.observations if "retrieval" in o.raw}
    assert asked == {(r, at) for r in RETRIEVALS for at in (5, 50, 95)}
    assert [e.done for e in bench.events if isinstance(e, GateProgress)][-1] == 36


def test_a_curve_that_falls_and_rises_again_is_shown_whole(bench: Bench) -> None:
    """128 of 150 with a hole in the middle was once told as a context of 8,192: here every depth is told."""
    bench.sim.fault("stupid", **{"from": 1500, "to": 3000})
    try:
        result = bench.run(LADDER)["context-ladder"]
        loose = bench.run({**LADDER, "pass_at_least": 1, "prompt_tokens": (800, 4000)})["context-ladder"]
    finally:
        bench.sim.clear()
    assert (result.verdict, result.failures) == (Verdict.FAILED, (CHECK,))
    assert [(r["right"], r["asked"]) for r in curve(result)] == [(12, 12), (0, 12), (12, 12)]
    assert "fewer than 12 of 12 at 2,000; 24/36 found" in result.reason
    assert "not monotone: more found at 4,000 than at 2,000" in result.reason
    assert loose.verdict is Verdict.PASSED and "monotone" not in loose.reason


def test_a_ladder_that_is_cancelled_keeps_what_it_measured(bench: Bench) -> None:
    result = bench.run({**LADDER, "parallel": 1}, cancel_after=14)["context-ladder"]
    assert result.verdict is Verdict.CANCELLED
    whole, cut = curve(result)
    assert (whole["nominal_tokens"], whole["asked"], cut["nominal_tokens"]) == (800, 12, 2000)
    assert 2 <= cut["asked"] < 12 and f"): {cut['right']}/{cut['asked']}" in result.reason


def test_a_depth_beyond_the_recipe_is_refused_before_anything_starts(bench: Bench) -> None:
    limit = bench.target.recipe.envelope.context_tokens
    assert "the deepest prompt" in bench.why_not(kind="context-ladder", prompt_tokens=(1000, limit))


ASKS = """
import json, os, sys, urllib.request
base, model, out = sys.argv[1:4]
body = {"model": model, "max_tokens": 4000, "messages": [{"role": "user", "content": "What is 17 + 25?"}]}
sent = urllib.request.Request(base + "/v1/chat/completions", json.dumps(body).encode(),
                              {"Content-Type": "application/json"})
said = json.load(urllib.request.urlopen(sent, timeout=20))["choices"][0]["message"]["content"]
print("log line", os.environ["CLIENT"], file=sys.stderr)
result = {"score": {"exact": float(said.strip() == "42"), "n": 1}, "key": os.environ["CLIENT"]}
open(out, "w").write(json.dumps(result)) if out != "-" else print(json.dumps(result))
"""


def client(bench: Bench, out: str, **more: Any) -> dict[str, Any]:
    (bench.folder / "client.py").write_text(ASKS)
    argv = (sys.executable, "client.py", "{base_url}", "{model}", out)
    return {"kind": "command", "argv": argv, "env": ("CLIENT",), **more}


@pytest.mark.parametrize("out", ["{out}", "-"])
def test_a_client_of_its_own_is_judged_by_the_rule_that_stood_before(bench: Bench, out: str) -> None:
    rule = {"score.exact": {"min": 1.0}, "score.n": 1}
    result = bench.run(client(bench, out, json_expect=rule, repeat=2))["command"]
    assert (result.verdict, result.passed) == (Verdict.PASSED, 2), result.reason
    assert "score.exact = 1.0, score.n = 1" in result.reason
    seen = result.observations[0]
    assert seen.raw["exit_code"] == 0 and seen.raw["result"]["score"] == {"exact": 1.0, "n": 1}
    assert seen.raw["argv"][2:4] == [bench.target.base_url, bench.target.recipe.served_name]
    assert CLIENT_KEY not in json.dumps([dataclasses.asdict(o) for o in result.observations])
    wrong = bench.run(client(bench, out, json_expect={"score.n": {"min": 100}}))["command"]
    assert (wrong.verdict, wrong.failures) == (Verdict.FAILED, (CHECK,))
    assert "score.n is 1, less than 100" in wrong.reason


ENDS: tuple[tuple[str, dict[str, Any], Verdict, str], ...] = (
    ("true", {}, Verdict.PASSED, "exit code 0"),
    ("exit 3", {}, Verdict.FAILED, "exit code 3; it wrote nothing"),
    ("echo why >&2; exit 1", {}, Verdict.FAILED, "exit code 1; last of stderr: 'why'"),
    ("no-such-program", {}, Verdict.ERRORED, "a program in it was not found"),
    ("kill -9 $$", {}, Verdict.ERRORED, "ended by signal 9"),
    ("echo hello", {"json_expect": {"a": 1}}, Verdict.ERRORED, "exit code 0, but the output holds no JSON"),
    ("echo '{\"b\": 1}'", {"json_expect": {"a": 1}}, Verdict.ERRORED, "the result has no a"),
    ("sleep 60", {"timeout_s": 1}, Verdict.ERRORED, "not over within 1 s; its process group was ended"),
)  # fmt: skip


@pytest.mark.parametrize(("shell", "more", "verdict", "words"), ENDS, ids=[e[0] for e in ENDS])
def test_how_a_program_ends_decides_whose_fault_it_is(
    bench: Bench, shell: str, more: dict[str, Any], verdict: Verdict, words: str
) -> None:
    result = bench.run({"kind": "command", "argv": ("sh", "-c", shell), "env": ("PATH",), **more})["command"]
    assert result.verdict is verdict, result.reason
    assert words in result.reason


def test_a_command_that_cannot_run_is_said_before_anything_starts(bench: Bench) -> None:
    """O-78's kind: what is missing is found before the incumbent is touched."""
    assert "no program 'not-here'" in bench.why_not(kind="command", argv=("not-here",))
    assert "env: NOT_SET is not set" in bench.why_not(kind="command", argv=("true",), env=("NOT_SET",))
    assert "no way through the gateway" in bench.why_not(kind="command", argv=("true", "{routed_url}"))
    assert "client key is not found" in bench.why_not(kind="command", argv=("true",), env=("ANVIL_GATEWAY_KEY",))
    missing = bench.why_not(kind="command", argv=("true",), fixture_sha256={"f.json": "0" * 64})
    assert "fixture_sha256: f.json cannot be read" in missing


def test_the_key_of_the_gateway_goes_by_environment_and_nowhere_else(bench: Bench) -> None:
    target = dataclasses.replace(
        bench.target,
        routed_url="http://127.0.0.1:1/@a",
        routed_key="gateway-Key-654321",
    )
    shell = 'echo "{\\"same\\": \\"$ANVIL_GATEWAY_KEY\\", \\"n\\": ${#ANVIL_GATEWAY_KEY}}"'
    gate = {"id": "g", "kind": "command", "argv": ("sh", "-c", shell, "{routed_url}", "{context}"),
            "env": ("ANVIL_GATEWAY_KEY",), "json_expect": {"n": 18}}  # fmt: skip
    suite = Suite.model_validate({"schema": "anvil.suite/1", "id": "s", "gates": (gate,)})
    assert bench.conductor.unrunnable(suite, target) == {}
    (result,) = bench.conductor.run(suite, target, lambda e: None, lambda: False)
    assert result.verdict is Verdict.PASSED, result.reason
    kept = json.dumps(dataclasses.asdict(result.observations[0]))
    assert "gateway-Key" not in kept
    assert result.observations[0].raw["argv"][3:] == [
        "http://127.0.0.1:1/@a",
        str(target.recipe.envelope.context_tokens),
    ]
