"""A killed promotion on a full GPU box: the simulated one, whose incumbent holds both cards; HAProxy is real."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from anvil_tui.adapters.box_file import BoxFile
from anvil_tui.adapters.haproxy import HaproxyReader
from anvil_tui.adapters.toml_files import load_workspace
from tests.e2e.worker import Worker
from tests.support.tmux import anvil

pytestmark = pytest.mark.e2e

INTENT = {"verb": "promote", "recipe": "glm53-393k-c1", "role": "primary"}


@pytest.fixture
def gpu_box(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "box"
    command = anvil("demo", "--serve", "--dir", str(folder), "--scale", "150")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline().startswith("workspace")
    yield folder
    process.terminate()
    assert process.wait(60) == 0


def test_every_way_back_returns_the_incumbent_to_its_cards(gpu_box: Path) -> None:
    workspace = load_workspace(gpu_box)
    before = BoxFile(gpu_box / "state").read().roles["primary"]
    reader = HaproxyReader(gpu_box, workspace.gateway, workspace.roles)
    with Worker() as worker:
        for point in ("hold:after", "drain:after", "stop-incumbent:acted", "start:acted", "gates:intended"):
            made = worker.call("plan", workspace=str(gpu_box), intent=INTENT)
            job = {"workspace": str(gpu_box), "operation": made["operation"]}
            assert worker.call("operate", **job, mode="start", kill_at=point)["killed"], point
            assert worker.call("operate", **job, mode="resume")["exit"] == 1, point
            assert BoxFile(gpu_box / "state").read().roles["primary"] == before
            assert set(reader.snapshot().aliases.values()) == {"slot-a"}, point
