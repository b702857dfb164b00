"""Two simulated serves of known, different pace, measured by the real load generator and compared by command.

Their paces are a factor of two apart; of equal ones it is asserted that the verdict follows from the interval, not
which interval this machine gives today.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.adapters.docker_engine import DockerControl
from anvil_tui.adapters.journal_file import OperationFolders
from anvil_tui.cli.main import main
from anvil_tui.cli.wiring import open_box
from anvil_tui.core.gates import Suite
from anvil_tui.core.recipe import EngineKind, Recipe
from anvil_tui.core.redact import redact
from anvil_tui.ports import ContainerSpec
from anvil_tui.service.evidence import basis_of, write_evidence
from anvil_tui.service.gates.conductor import Conductor, GateTarget
from anvil_tui.service.gates.session import GateParts
from tests.support.load import CalmGenerator
from tests.support.simbox import SimProcess, free_port, until

SCALE = 5.0
SPEC = "glm53-flash-exl3-k3-dflash2-k5-fp8-tp2-524k-vision-xgfix"
PLAIN = "glm53-flash-exl3-k3-nospec-fp8-tp2-524k-vision-xgfix"
LANE = {"id": "depth", "kind": "depth-sweep", "prompt_tokens": (500,), "completion_tokens": 30, "requests": 5}


class Arms:
    """A simulated box whose results are written as bundles of operations."""

    def __init__(self, folder: Path) -> None:
        self.sim = SimProcess(folder, SCALE)
        self.box = open_box(folder)
        self.control = DockerControl(self.sim.workspace.containers.url)
        self.image = next(iter(self.box.containers.list())).image_ref
        parts = GateParts(
            self.box.chat,
            self.box.engines,
            self.box.containers,
            self.box.gpus,
            self.box.clock,
            load=CalmGenerator(),
        )  # fmt: skip
        self.conductor = Conductor(parts)
        self.store = OperationFolders(folder / "state" / "operations", redact)

    def serve(self, name: str, speculation: dict[str, Any] | None) -> GateTarget:
        port = free_port()
        words = ("serve", "/m", "--max-model-len", "32768", "--max-num-seqs", "4", "--served-model-name", name,
                 "--enable-prompt-tokens-details", "--port", str(port))  # fmt: skip
        self.sim.fault("slow_load", factor="0.02", next="1")
        made = self.control.create(ContainerSpec(f"vllm-{port}", self.image, words))
        self.control.start(made)
        until(lambda: self.box.engines.read(EngineKind.VLLM, port).http == "ready", f"{name} is ready")
        recipe = Recipe.model_validate({
            "schema": "anvil.recipe/1", "id": name, "family": "glm", "engine": EngineKind.VLLM,
            "served_name": name, "exclusive": False, "rollback": "none: test", "speculation": speculation,
            "image": {"ref": "x@sha256:" + "a" * 64}, "model": {"repo": "glm"}, "launch": {"argv": ("{port}",)},
            "envelope": {"context_tokens": 32_768, "max_output_tokens": 8192, "concurrency": 4},
        })  # fmt: skip
        return GateTarget(recipe, made, f"http://127.0.0.1:{port}")

    def measure(self, target: GateTarget, **lane: Any) -> str:
        """One run as a bundle; its operation."""
        suite = Suite.model_validate({"schema": "anvil.suite/1", "id": "s", "gates": ({**LANE, **lane},)})
        operation = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-qualify"
        self.store.create(operation, {"title": "qualify"})
        basis = basis_of(self.box, suite, target)
        results = self.conductor.run(suite, target, lambda event: None, lambda: False)
        name, digest = write_evidence(self.store, operation, basis, results, datetime.now(UTC).isoformat())
        self.store.journal(operation).append("note", text="evidence kept", evidence={name: digest})
        return operation

    def end(self) -> None:
        self.box.gpus.close()
        assert self.sim.end() == ""


class Measured:
    """Three runs of either serve, in turn."""

    def __init__(self, arms: Arms) -> None:
        self.arms = arms
        self.plain, self.spec = arms.serve(PLAIN, None), arms.serve(SPEC, {"method": "dflash", "tokens": "5"})
        self.a: list[str] = []
        self.b: list[str] = []
        for _ in range(3):
            self.a.append(arms.measure(self.plain))
            self.b.append(arms.measure(self.spec))

    def compare(self, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
        code = main(["--workspace", str(self.arms.sim.folder), "compare", *words, "--json"])
        out = capsys.readouterr()
        return code, json.loads(out.out) if out.out else {"error": out.err}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    arms = Arms(tmp_path_factory.mktemp("sim") / "w")
    try:
        yield Measured(arms)
    finally:
        arms.end()


def primary(found: dict[str, Any]) -> dict[str, Any]:
    (row,) = [m for lane in found["lanes"] for m in lane["metrics"] if m["primary"]]
    return dict(row)


def test_twice_the_pace_is_better_and_the_other_way_round_worse(
    measured: Measured, capsys: pytest.CaptureFixture[str]
) -> None:
    """83.08 against 42.61 tok/s; by how much it comes out is this machine's affair, and not asserted."""
    a, b = ",".join(measured.a), ",".join(measured.b)
    code, found = measured.compare(capsys, a, b, "--varies", "speculation")
    assert [(r["field"], r["a"], r["b"], r["why"]) for r in found["refusals"]] == []
    assert (code, found["state"], found["varies"]) == (0, "matched", "speculation")
    row = primary(found)
    assert (row["verdict"], row["pairs"], row["runs_a"], row["runs_b"]) == ("better", 15, 3, 3)
    assert 3 < row["low_pct"] <= row["delta_pct"] <= row["high_pct"]
    assert row["floor_pct"] is not None
    code, turned = measured.compare(capsys, b, a)
    assert (code, primary(turned)["verdict"]) == (0, "worse")


def test_a_serve_may_be_equal_to_itself_with_three_runs_and_never_with_one(
    measured: Measured, capsys: pytest.CaptureFixture[str]
) -> None:
    again = [measured.arms.measure(measured.plain) for _ in range(3)]
    code, found = measured.compare(capsys, ",".join(measured.a), ",".join(again), "--band", "45")
    row = primary(found)
    inside = row["low_pct"] >= -45 and row["high_pct"] <= 45
    assert (code, found["varies"], row["verdict"]) == (0, "", "equivalent" if inside else "undecided")
    code, found = measured.compare(capsys, measured.a[0], again[0], "--band", "45")
    row = primary(found)
    assert (code, row["verdict"], row["floor_pct"]) == (0, "undecided", None)
    assert "between-run variance not measured" in row["reason"]


def test_another_prompt_set_is_refused_and_no_difference_is_shown(
    measured: Measured, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    other = measured.arms.measure(measured.spec, requests=6)
    picture = tmp_path / "plot.svg"
    code, found = measured.compare(capsys, measured.a[0], other, "--svg", str(picture))
    assert (code, found["state"]) == (3, "refused")
    assert [r["field"] for r in found["refusals"]] == ["prompts"]
    assert [m for lane in found["lanes"] for m in lane["metrics"]] == []
    assert not picture.exists()


def test_a_bundle_that_was_altered_is_not_compared(measured: Measured, capsys: pytest.CaptureFixture[str]) -> None:
    operations = measured.arms.sim.folder / "state" / "operations"
    folder = operations / "copy"
    shutil.copytree(operations / measured.b[0], folder)
    (results,) = folder.glob("*-results.json")
    results.write_text(results.read_text().replace('"requests": 5', '"requests": 6'))
    code, found = measured.compare(capsys, measured.a[0], "copy")
    assert code == 2
    assert "cannot be compared" in found["error"] and "results.json" in found["error"]


def test_text_and_picture_say_the_same(
    measured: Measured, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    picture = tmp_path / "plot.svg"
    words = ["compare", ",".join(measured.a), ",".join(measured.b), "--svg", str(picture)]
    assert main(["--workspace", str(measured.arms.sim.folder), *words]) == 0
    text = capsys.readouterr().out
    assert text.startswith("matched: B against A, varies speculation\n")
    assert "named      speculation: A none, B dflash 5 (the variable under test)" in text
    assert picture.read_text().count("<circle") == 2, "one row, whatever the number of runs, and its legend"


def test_every_further_arm_is_compared_with_the_first(
    measured: Measured, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = measured.compare(capsys, measured.a[0], measured.b[0], measured.b[1], "--metric", "ttft")
    found: list[Any] = list(told)
    assert code == 0
    assert [(f["a"], f["b"], primary(f)["metric"]) for f in found] == [("A", "B", "ttft"), ("A", "C", "ttft")]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--metric", "speed"), "no metric 'speed': decode, decode-seeds, ttft,"),
        (("--varies", "colour"), "--varies 'colour' is none of model, image,"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_can(
    measured: Measured, capsys: pytest.CaptureFixture[str], words: tuple[str, str], told: str
) -> None:
    code, found = measured.compare(capsys, measured.a[0], measured.b[0], *words)
    assert (code, told in found["error"]) == (2, True), found


def test_one_run_is_not_two(measured: Measured, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = measured.compare(capsys, f"{measured.a[0]},{measured.a[0]}", measured.b[0])
    assert (code, "named twice" in found["error"]) == (2, True)
