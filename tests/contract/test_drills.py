"""Drills through the command line: on a simulated copy of a workspace, and step by step on the box itself.

The box is the demo's, behind a real HAProxy; for the copy it stands for the operator's own, which stays as it is.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.adapters.docker_engine import DockerControl, DockerReader
from anvil_tui.adapters.haproxy import HaproxyControl, HaproxyReader
from anvil_tui.adapters.journal_file import OperationFolders
from anvil_tui.adapters.toml_files import load_workspace
from anvil_tui.cli.main import main
from tests.support.simbox import until
from tests.support.tmux import anvil

SERVES, BACK = "glm53-524k-k5-xgfix", "glm53-1m-k5"


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("drill") / "box"
    command = anvil("demo", "--serve", "--dir", str(folder), "--scale", "400")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline().startswith("workspace")
    yield folder
    process.terminate()
    assert process.wait(60) == 0


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder for the copies, short enough for their sockets."""
    with tempfile.TemporaryDirectory(prefix="av", dir="/tmp") as folder:
        yield Path(folder)


def state(box: Path) -> dict[str, Any]:
    """What a change of the box would change: containers, routing, the record, operations."""
    workspace = load_workspace(box)
    gateway = HaproxyReader(box, workspace.gateway, workspace.roles).snapshot()
    containers = DockerReader(workspace.containers.url).list()
    return {
        "containers": sorted((c.id, c.status, c.started_at, c.restart_count) for c in containers),
        "gateway": (gateway.aliases, gateway.generation),
        "record": (box / "state" / "box.json").read_bytes(),
        "operations": [v.id for v in OperationFolders(box / "state" / "operations").views()],
    }


def test_a_copy_is_drilled_and_the_box_is_only_read(
    box: Path, short: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    made: list[str] = []
    for control in (DockerControl, HaproxyControl):
        init = control.__init__

        def noted(self: Any, where: Any, *more: Any, _init: Any = init, **named: Any) -> None:
            made.append(str(where))
            _init(self, where, *more, **named)

        monkeypatch.setattr(control, "__init__", noted)
    monkeypatch.setattr("tempfile.tempdir", str(short))
    reached = box / "reached"
    quick = box / "gates" / "quick.toml"
    quick.write_text(
        quick.read_text()
        + f'''
[[gates]]
id = "own-program"
kind = "command"
argv = ["/usr/bin/touch", "{reached}"]
'''
    )
    (box / "gates" / "broken.toml").write_text("gates = 1\n")
    (box / "gates" / "half.toml").write_text("schema =\n")
    before = state(box)
    argv = ["--workspace", str(box), "drill", "primary", "--copy", "--yes", "--suite", "quick", "--scale", "400"]
    assert main(argv) == 0, capfd.readouterr().err
    assert state(box) == before
    real = load_workspace(box).containers.url
    assert not reached.exists(), "a program of the operator's own was run for the copy"
    assert made and real not in made and all(str(box) not in where for where in made)
    assert list(short.iterdir()) == [], "the copy's folder goes with it"
    told = capfd.readouterr().err
    assert "left out of the copy: 1 command gates of quick.toml" in told
    assert "left out of the copy: broken.toml, which cannot be read" in told and "half.toml, which cannot" in told
    assert "load times are simulated, no weights are read" in told and "no GPU and no image of this box" in told
    assert main(["--workspace", str(box), "drills", "--json"]) == 0
    kept = json.loads(capfd.readouterr().out)
    (drill,) = kept["drills"]
    assert (drill["place"], drill["outcome"], drill["differences"]) == ("copy", "restored", [])
    assert (drill["incumbent_name"], drill["way_back_name"]) == (SERVES, BACK)
    assert {p["leg"] for p in drill["phases"]} == {"away", "home"}
    assert kept["trends"] == [], "times of a copy are no times of the box"
    assert main(["--workspace", str(box), "drills", "recheck", drill["operation"]]) == 3
    assert "simulated copy, which is gone" in capfd.readouterr().err


def test_the_folder_of_a_copy_that_fails_is_kept_and_named(
    box: Path, short: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(short))
    argv = ["--workspace", str(box), "drill", "--copy", "--yes", "--suite", "no-such-suite", "--scale", "400"]
    assert main(argv) != 0
    (folder,) = short.iterdir()
    assert f"the copy's folder is kept: {folder}" in capfd.readouterr().err
    assert str(box) not in (folder / "anvil.toml").read_text(), "nothing in it leads to the box"
    cards = json.loads((folder / "sheet.json").read_text())["cards"]
    assert {c["uuid"] for c in cards} == set(load_workspace(box).gpus.roles.values())
    assert {(c["total_mib"], c["lost"]) for c in cards} == {(97_887, "")}


def test_step_by_step_waits_for_the_command_line_and_a_cancel_goes_home(
    box: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    operations = OperationFolders(box / "state" / "operations")
    workspace = ("--workspace", str(box))
    before = state(box)
    drill = subprocess.Popen(anvil(*workspace, "drill", "primary", "--step", "--yes", "--suite", "quick"))

    def waiting() -> tuple[str, str]:
        def now() -> tuple[str, str] | None:
            view = next(iter(reversed(operations.views())), None)
            if view is None or not view.paused or not operations.paused(view.id):
                return None
            return view.id, next(s.name for s in view.steps if s.state == "pending")

        return until(now, "the drill waits", 30)

    assert waiting()[1] == "facts"
    assert main([*workspace, "operations", "show", waiting()[0]]) == 0
    shown = capfd.readouterr().out
    assert "paused" in shown and "take the facts of the start — waits for you" in shown
    assert main([*workspace, "operations", "resume", waiting()[0]]) == 0
    assert "goes one step further" in capfd.readouterr().out
    for expected in ("prove", "hold", "drain", "stop"):
        operation, step = until(lambda e=expected: (w := waiting())[1] == e and w, f"waits before {expected}")  # type: ignore[misc]
        if step != "stop":
            operations.pause(operation, on=False)
    assert (
        HaproxyReader(box, (w := load_workspace(box)).gateway, w.roles).snapshot().aliases["llm.primary"] == "hold"
    )
    assert main([*workspace, "operations", "cancel", operation, "--reason", "seen enough"]) == 0
    assert drill.wait(60) == 1
    after = state(box)
    assert after["containers"] == before["containers"] and after["gateway"][0] == before["gateway"][0]
    capfd.readouterr()
    assert main([*workspace, "drills", "show", operation, "--json"]) == 0
    (record,) = json.loads(capfd.readouterr().out)
    assert (record["outcome"], record["why"], record["differences"]) == ("undone", "seen enough", [])
