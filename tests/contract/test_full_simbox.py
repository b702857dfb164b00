"""The shipped suite `full` on simulated vLLM- and SGLang-shaped serves with pictures, tools and GPUs.

Routed gates go through a real HAProxy. Then one fault of each class, each named by the gate that it concerns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from anvil_tui.adapters.clock import SystemClock
from anvil_tui.adapters.command_runner import ChildCommands
from anvil_tui.adapters.docker_engine import DockerControl, DockerReader
from anvil_tui.adapters.engine_http import HttpEngineReader
from anvil_tui.adapters.gpu_reader import ChildGpuReader
from anvil_tui.adapters.host_inspect import LinuxHost
from anvil_tui.adapters.media_files import MediaFolder
from anvil_tui.adapters.openai_client import OpenAIClient
from anvil_tui.adapters.sandbox import ChildSandbox
from anvil_tui.adapters.toml_files import load_suite
from anvil_tui.core.bundle import Bundle, Identity, prompts_digest, suite_digest
from anvil_tui.core.gate_kinds import LANES, LOOKS, VISION
from anvil_tui.core.gates import GateResult, Suite, Verdict
from anvil_tui.core.recipe import EngineKind, Recipe
from anvil_tui.core.verify import recompute
from anvil_tui.core.workspace import Slot
from anvil_tui.ports import ContainerSpec
from anvil_tui.service.gates.conductor import Conductor
from anvil_tui.service.gates.session import GateParts, GateTarget
from anvil_tui.simbox.workspace import read_recipes
from tests.support.gateway import KEY, front
from tests.support.load import CalmGenerator
from tests.support.simbox import SimProcess, free_port, until

pytestmark = pytest.mark.real
ROOT = Path(__file__).parents[2]
FULL = load_suite(ROOT / "gates" / "full.toml")
CONTEXT, IMAGES = 33_000, 4
LIMIT = f'{{"image": {IMAGES}, "video": 0}}'
SAME = ("--served-model-name", "tiny", "--reasoning-parser", "glm")
WORDS = {
    "vllm": ("vllm", "serve", "/m", *SAME, "--max-model-len", str(CONTEXT), "--max-num-seqs", "4",
             "--limit-mm-per-prompt", LIMIT, "--enable-prompt-tokens-details"),
    "sglang": ("python3", "-m", "sglang.launch_server", "--model-path", "/m", *SAME, "--max-running-requests", "4",
               "--context-length", str(CONTEXT), "--max-total-tokens", str(4 * CONTEXT),
               "--limit-mm-data-per-request", LIMIT, "--enable-metrics", "--enable-cache-report"),
}  # fmt: skip
CARDS = {"vllm": "compute-a", "sglang": "compute-b"}


def recipe(engine: str) -> Recipe:
    return Recipe.model_validate({
        "schema": "anvil.recipe/1", "id": "tiny", "family": "tiny", "engine": EngineKind(engine),
        "served_name": "tiny", "exclusive": False, "rollback": "none: test", "thinking": "off",
        "image": {"ref": "x@sha256:" + "a" * 64}, "model": {"repo": "tiny"},
        "launch": {"argv": ("{port}",), "ipc": "host"},
        "gpus": {"select": (CARDS[engine],)}, "reserve": {"mib_per_gpu": 512},
        "envelope": {"context_tokens": CONTEXT, "max_output_tokens": 5000, "concurrency": 4, "images": IMAGES,
                     "modalities": ("text", "image", "ocr", "tools")},
    })  # fmt: skip


@dataclass
class Bench:
    sim: SimProcess
    conductor: Conductor
    targets: dict[str, GateTarget]

    def run(self, engine: str, suite: Suite) -> tuple[GateResult, ...]:
        assert self.conductor.unrunnable(suite, self.targets[engine]) == {}
        return self.conductor.run(suite, self.targets[engine], lambda e: None, lambda: False)


def ready(engines: HttpEngineReader, slot: Slot) -> bool:
    return engines.read(EngineKind(slot.name), slot.port).http == "ready"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("full")
    sim = SimProcess(folder / "w")
    url, clock = sim.workspace.containers.url, SystemClock()
    control, engines, containers = DockerControl(url), HttpEngineReader(clock), DockerReader(url)
    control.stop(sim.incumbent, 30)
    image = next(iter(read_recipes(sim.folder).values())).image.ref
    cards, slots, made = sim.workspace.gpus.roles, [], {}
    for kind, (entry, *words) in WORDS.items():
        port = free_port()
        words += ["--host", "127.0.0.1", "--port", str(port)]
        card = (cards[CARDS[kind]],)
        made[kind] = control.create(ContainerSpec(kind, image, tuple(words), (entry,), gpu_uuids=card))
        control.start(made[kind])
        slots.append(Slot(name=kind, port=port))
    for slot in slots:
        until(partial(ready, engines, slot), f"{slot.name} is ready")
    gpus = ChildGpuReader((*sim.workspace.gpus.reader, "--interval", "0.05"), 5, clock)
    parts = GateParts(
        OpenAIClient(clock.monotonic_s), engines, containers, gpus, clock, LinuxHost(sim.folder, clock),
        load=CalmGenerator(), commands=ChildCommands(sim.folder), sandbox=ChildSandbox(),
        media=MediaFolder(sim.folder / "gates" / "media"),
    )  # fmt: skip
    with front(folder, tuple(slots)) as gateway:
        targets = {
            slot.name: GateTarget(
                recipe(slot.name), made[slot.name], f"http://127.0.0.1:{slot.port}",
                routed_url=f"http://127.0.0.1:{gateway.port}/@{slot.name}", routed_key=KEY, slot=slot.name,
            )
            for slot in slots
        }  # fmt: skip
        yield Bench(sim, Conductor(parts), targets)
    gpus.close()
    assert sim.end() == ""


@pytest.mark.parametrize("engine", WORDS)
def test_the_full_suite_passes_and_its_results_follow_from_its_observations(bench: Bench, engine: str) -> None:
    suite, left_out = FULL.for_recipe(recipe(engine))
    deep = ("long-tools", "needle", "needle-deep", "context-ladder", "context-ladder-deep", "two-long", "hashes")
    assert sorted(text.split(" ")[1] for text in left_out) == sorted(deep)
    results = bench.run(engine, suite)
    assert [(r.gate, r.verdict, r.reason) for r in results if r.verdict is not Verdict.PASSED] == []
    identity = Identity(
        suite="full", suite_digest=f"sha256:{suite_digest(suite)}", prompts=prompts_digest(results)
    )
    demand = suite.model_dump(mode="json", by_alias=True)
    bundle = Bundle("b", "measured", "2026-11-29", identity, True, results, suite=demand)
    assert recompute(bundle) == ((), ())
    kinds = {r.kind for r in results}
    assert {*VISION, *LANES, *LOOKS} - kinds == {"hashes"}, "its weights are no file in a simulated container"
    routed = [g for g in suite.gates if g.routed]
    assert len(routed) == 12 and all(g.proves for g in suite.gates)


FAULTS: tuple[tuple[str, dict[str, str], str, Verdict, str], ...] = (
    ("wrong_identity", {"name": "other"}, "identity", Verdict.FAILED, "identity_mismatch"),
    ("unauthorized", {}, "routed.smoke", Verdict.ERRORED, "401"),
    ("json_wrong", {"mode": "fenced"}, "json", Verdict.FAILED, "fenced_json"),
    ("tools_wrong", {"mode": "value"}, "routed.tools", Verdict.FAILED, "tool_call_failed"),
    ("needle_wrong", {}, "needle-short", Verdict.FAILED, "check_failed"),
    ("reasoning_leak", {}, "smoke", Verdict.FAILED, "reasoning_leak"),
    ("no_answer", {}, "smoke", Verdict.FAILED, "visible_answer_missing"),
    ("stream_cut", {}, "streaming-tools", Verdict.ERRORED, "truncated"),
    ("limit_ignored", {}, "length", Verdict.FAILED, "unexpected_finish_reason"),
    ("truncates", {}, "overlong", Verdict.FAILED, "cut silently?"),
    ("thinking_wrong", {"mode": "always"}, "thinking-off", Verdict.FAILED, "thinking is off"),
    ("image_dropped", {}, "ocr", Verdict.FAILED, "was it dropped?"),
    ("stupid", {}, "intelligence", Verdict.FAILED, "0/12"),
    ("stream_error", {}, "routed.streams", Verdict.FAILED, "failed"),
)


@pytest.mark.parametrize(("fault", "args", "gate", "verdict", "says"), FAULTS)
@pytest.mark.parametrize("engine", WORDS)
def test_a_fault_of_each_class_shows_in_the_gate_that_it_concerns(
    bench: Bench, engine: str, fault: str, args: dict[str, str], gate: str, verdict: Verdict, says: str
) -> None:
    bench.sim.fault(fault, container=engine, **args)
    try:
        (result,) = bench.run(engine, chosen(gate))
    finally:
        bench.sim.clear()
    assert result.verdict is verdict, result.reason
    assert says in result.reason


def chosen(*ids: str) -> Suite:
    return FULL.model_copy(update={"gates": tuple(g for g in FULL.gates if g.id in ids)})


def test_a_lost_card_and_an_engine_that_ends_show_in_what_looks_at_the_box(bench: Bench) -> None:
    bench.sim.fault("gpu_lost", gpu="1", engine="stays")
    (lost,) = bench.run("sglang", chosen("gpu-errors"))
    assert (lost.verdict, "is lost" in lost.reason) == (Verdict.FAILED, True), lost.reason
    bench.sim.fault("engine_dies", container="vllm", exit_code="1")
    smoke, state = bench.run("vllm", chosen("smoke", "container-state"))
    assert (smoke.verdict, state.verdict) == (Verdict.ERRORED, Verdict.FAILED), (smoke.reason, state.reason)


def test_a_wrong_key_is_our_trouble_and_no_fault_of_the_serve(bench: Bench) -> None:
    asked = Suite.model_validate(
        {"schema": "anvil.suite/1", "id": "s", "gates": ({"id": "smoke", "kind": "smoke", "routed": True},)}
    )
    target = replace(next(iter(bench.targets.values())), routed_key="another-key")
    (smoke,) = bench.conductor.run(asked, target, lambda e: None, lambda: False)
    assert (smoke.verdict, smoke.failures) == (Verdict.ERRORED, ())
    assert "http 401" in smoke.reason and "another-key" not in smoke.reason
