"""The shipped promotion suite against the simulated box: vLLM-shaped answers, real adapters, faults included.

Only these readers and the chat client are used; the suite, the recipe and their figures are the shipped ones.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from anvil_tui.adapters.box_file import BoxFile
from anvil_tui.adapters.clock import SystemClock
from anvil_tui.adapters.docker_engine import DockerControl, DockerReader
from anvil_tui.adapters.engine_http import HttpEngineReader
from anvil_tui.adapters.gpu_reader import ChildGpuReader
from anvil_tui.adapters.media_files import MediaFolder
from anvil_tui.adapters.openai_client import OpenAIClient
from anvil_tui.adapters.toml_files import load_recipe, load_suite, load_workspace
from anvil_tui.core.gates import FailureClass, GateResult, Suite, Verdict
from anvil_tui.core.recipe import Recipe
from anvil_tui.ports import ContainerSpec
from anvil_tui.service.gates.conductor import Conductor, GateTarget, suite_passed
from anvil_tui.service.gates.session import GateParts
from anvil_tui.simbox.workspace import ALIASES

ROOT = Path(__file__).parents[2]


class Sim:
    """The simulated box of the records, its incumbent as the target of the gates."""

    def __init__(self, folder: Path) -> None:
        argv = (sys.executable, "-m", "anvil_tui.simbox", "run", "--dir", str(folder))
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None and self.process.stdout.readline().strip() == "READY"
        workspace = load_workspace(folder)
        self.folder, self.url, self.roles = folder, workspace.containers.url, workspace.gpus.roles
        reader, clock = workspace.gpus.reader, SystemClock()
        self.socket = reader[reader.index("--socket") + 1]
        self.gpus = ChildGpuReader(reader, 5.0, clock)
        containers = DockerReader(self.url, 10)
        chat, media = OpenAIClient(time.monotonic), MediaFolder(folder / "gates" / "media")
        parts = GateParts(chat, HttpEngineReader(clock), containers, self.gpus, clock, media=media)
        self.conductor = Conductor(parts)
        held = BoxFile(folder / "state").read().serve_in(workspace.roles[0].name)
        assert held is not None
        recipe = load_recipe(folder / "recipes" / f"{held.recipe_id}.toml")
        self.target = GateTarget(recipe, held.container_id, f"http://127.0.0.1:{held.port}", aliases=ALIASES)

    def start(self, recipe: Recipe) -> GateTarget:
        """Put another recipe in the incumbent's place and wait until it is ready."""
        control = DockerControl(self.url)
        control.stop(self.target.container_id, 30)
        spec = ContainerSpec(
            f"{recipe.id}-test", recipe.image.ref, recipe.filled_argv(self.target.port, ALIASES),
            recipe.launch.entrypoint,
            env=recipe.launch.env, gpu_uuids=tuple(self.roles[role] for role in recipe.gpus.select),
        )  # fmt: skip
        container_id = control.create(spec)
        control.start(container_id)
        engines, end = HttpEngineReader(SystemClock()), time.monotonic() + 60
        while engines.read(recipe.engine, self.target.port).http != "ready":
            assert time.monotonic() < end, f"{recipe.id} is not ready"
            time.sleep(0.1)
        return GateTarget(recipe, container_id, self.target.base_url, aliases=ALIASES)

    def fault(self, name: str, *pairs: str) -> None:
        argv = (sys.executable, "-m", "anvil_tui.simbox", "fault", "--socket", self.socket, name, *pairs)
        subprocess.run(argv, check=True, timeout=20, stdout=subprocess.DEVNULL)

    def run(self, suite: Suite) -> dict[str, GateResult]:
        assert self.conductor.unrunnable(suite, self.target) == {}
        return {r.gate: r for r in self.conductor.run(suite, self.target, lambda e: None, lambda: False)}

    def end(self) -> None:
        self.gpus.close()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(10)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def sim(tmp_path: Path) -> Iterator[Sim]:
    made = Sim(tmp_path)
    yield made
    made.end()


def test_the_recorded_incumbent_passes_the_promotion_suite(sim: Sim) -> None:
    results = sim.run(load_suite(ROOT / "gates" / "promotion.toml"))
    assert [(r.gate, r.verdict, r.reason) for r in results.values() if r.verdict is not Verdict.PASSED] == []
    assert suite_passed(list(results.values()))
    needle = results["needle"].observations[-1]
    assert 180_000 <= (needle.prompt_tokens or 0) <= 184_000
    assert len(needle.raw["token_times_s"]) >= 1


def test_an_sglang_candidate_passes_it_too(sim: Sim) -> None:
    recipe = load_recipe(sim.folder / "recipes" / "glm53-393k-c1.toml")
    target = sim.start(recipe)
    results = sim.conductor.run(
        load_suite(ROOT / "gates" / "promotion.toml"), target, lambda e: None, lambda: False
    )
    assert [(r.gate, r.verdict, r.reason) for r in results if r.verdict is not Verdict.PASSED] == []
    sent = results[2].observations[0].raw["thinking"]
    assert sent == {"chat_template_kwargs": {"enable_thinking": False}}


CHECK, TOOL, STREAM = FailureClass.CHECK, FailureClass.TOOL_CALL, FailureClass.STREAM
FAULTS: tuple[tuple[str, tuple[str, ...], str, Verdict, FailureClass | None, str], ...] = (
    ("json_wrong", ("mode=value",), "json", Verdict.FAILED, CHECK, " is "),
    ("json_wrong", ("mode=fenced",), "json", Verdict.FAILED, CHECK, "fenced_json"),
    ("json_wrong", ("mode=prose",), "json", Verdict.FAILED, CHECK, "not_json"),
    ("json_wrong", ("mode=broken",), "json", Verdict.FAILED, CHECK, "not_json"),
    ("tools_wrong", ("mode=value",), "tools", Verdict.FAILED, TOOL, " is "),
    ("tools_wrong", ("mode=double",), "tools", Verdict.FAILED, TOOL, "double_encoded_arguments"),
    ("tools_wrong", ("mode=text",), "streaming-tools", Verdict.FAILED, TOOL, "0 tool calls"),
    ("tools_wrong", ("mode=name",), "tool-result", Verdict.FAILED, TOOL, "not find_order"),
    ("needle_wrong", (), "needle", Verdict.FAILED, CHECK, "expected"),
    ("reasoning_leak", (), "smoke", Verdict.FAILED, FailureClass.REASONING_LEAK, "</think>"),
    ("no_answer", (), "smoke", Verdict.FAILED, FailureClass.NO_ANSWER, "no visible answer"),
    ("stream_cut", (), "smoke", Verdict.ERRORED, STREAM, "truncated"),
    ("stream_error", (), "smoke", Verdict.FAILED, STREAM, "stream_error"),
    ("unauthorized", (), "smoke", Verdict.ERRORED, None, "401"),
    ("wrong_identity", ("name=other",), "identity", Verdict.FAILED, FailureClass.IDENTITY, "other"),
    ("wrong_identity", ("context=4096",), "identity", Verdict.FAILED, FailureClass.IDENTITY, "4,096"),
    ("engine_dead", (), "identity", Verdict.ERRORED, None, "503"),
)


def gate(kind: str) -> dict[str, object]:
    floor = {"prompt_tokens_at_least": 2000} if kind == "needle" else {}
    return {"id": kind, "kind": kind, "timeout_s": 20, **floor}


def one(kind: str) -> Suite:
    return Suite.model_validate({"schema": "anvil.suite/1", "id": "one", "gates": (gate(kind),)})


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sim]:
    """One box for all faults that can be taken back."""
    made = Sim(tmp_path_factory.mktemp("sim"))
    yield made
    made.end()


@pytest.mark.parametrize(("name", "keys", "kind", "verdict", "failure", "words"), FAULTS)
def test_each_fault_gets_its_verdict_and_class(
    standing: Sim,
    name: str,
    keys: tuple[str, ...],
    kind: str,
    verdict: Verdict,
    failure: FailureClass | None,
    words: str,
) -> None:
    standing.fault(name, *keys)
    try:
        result = standing.run(one(kind))[kind]
    finally:
        standing.fault("clear")
    assert (result.verdict, result.failures) == (verdict, (failure,) if failure else ()), result.reason
    assert words in result.reason
    assert standing.run(one(kind))[kind].verdict is Verdict.PASSED, "the fault is gone"


def test_an_engine_that_dies_between_gates_is_named_and_its_log_told(sim: Sim) -> None:
    sim.fault("engine_dies", "exit_code=137", "oom=true")
    suite = Suite.model_validate(
        {"schema": "anvil.suite/1", "id": "s", "gates": (gate("smoke"), gate("json"), gate("container-state"))}
    )
    results = sim.run(suite)
    assert [r.verdict for r in results.values()] == [Verdict.ERRORED, Verdict.ERRORED, Verdict.FAILED]
    assert "the engine died: container exited, exit code 137, killed for memory" in results["smoke"].reason
    assert "killed for memory" in results["container-state"].reason


def test_a_lost_gpu_is_no_passed_reserve(standing: Sim) -> None:
    standing.fault("gpu_lost", "engine=stays")
    try:
        result = standing.run(one("reserve"))["reserve"]
    finally:
        standing.fault("clear")
    assert (result.verdict, "cannot be read" in result.reason) == (Verdict.ERRORED, True)
