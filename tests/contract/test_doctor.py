"""`doctor` and `paths` on folders of every kind: each line says ok, missing or unknown, and what to do."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.adapters import self_look
from anvil_tui.adapters.toml_files import write_workspace
from anvil_tui.cli.main import main
from tests.support.http_stub import serve

Told = Callable[..., tuple[int, dict[str, list[dict[str, Any]]]]]
DOCKER: dict[str, Any] = {
    "GET /version": (200, {"Version": "28.1", "ApiVersion": "1.45", "MinAPIVersion": "1.24"}),
    "GET /containers/json": (200, []), "GET /info": (200, {}),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory of a person whose home it lies in."""
    made = tmp_path / "here"
    made.mkdir()
    for name in ("ANVIL_TUI_WORKSPACE", "ANVIL_TUI_CONFIG", "TMUX", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    monkeypatch.chdir(made)
    return made


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    def ask(*argv: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
        code = main([*argv, "doctor", "--json"])
        found: dict[str, list[dict[str, Any]]] = {}
        for row in json.loads(capsys.readouterr().out):
            found.setdefault(row["part"], []).append(row)
        return code, found

    return ask


def test_without_a_workspace_it_says_what_the_box_lacks(folder: Path, told: Told) -> None:
    code, found = told()
    assert code == 4
    assert found["docker"][0]["state"] == "missing"
    assert found["docker"][0]["says"] == "~/docker.sock does not exist"
    assert "start the container engine" in found["docker"][0]["todo"]
    assert "no workspace" in found["workspace"][0]["says"]
    assert found["gpus"][0]["needed"] is False
    assert {"python", "settings", "gpus", "docker", "disk", "shm", "workspace", "terminal"} == set(found)
    assert list(folder.iterdir()) == []


def test_a_daemon_that_answers_is_ok(folder: Path, told: Told, tmp_path: Path) -> None:
    with serve(DOCKER, unix=tmp_path / "docker.sock"):
        code, found = told()
    assert found["docker"][0]["state"] == "ok"
    assert "version 28.1, 0 containers run" in found["docker"][0]["says"]
    assert code == 0


@pytest.mark.parametrize("url", ["ssh://ada@box.invalid", "tcp://box.invalid:2375"])
def test_a_docker_host_that_is_not_used_is_said(
    folder: Path, told: Told, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", url)
    found = told()[1]
    assert found["docker"][0]["state"] == "unknown"
    assert "which discovery does not read: give a workspace" in found["docker"][0]["says"]
    assert "box.invalid" not in json.dumps(found) and "ada@" not in json.dumps(found)


def test_without_a_workspace_the_name_of_the_machine_is_hidden_too(
    folder: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A box that nobody named is called after its machine."""
    monkeypatch.setattr(socket, "gethostname", lambda: "rack7.example")
    here = folder / "rack7"
    here.mkdir()
    monkeypatch.chdir(here)
    found = told()[1]
    assert "/(host): " in found["disk"][0]["says"], found["disk"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open everything")
def test_a_socket_that_this_user_may_not_open_names_the_group(folder: Path, told: Told, tmp_path: Path) -> None:
    with serve(DOCKER, unix=tmp_path / "docker.sock"):
        (tmp_path / "docker.sock").chmod(0)
        assert "usermod -aG docker" in told()[1]["docker"][0]["todo"]


def test_a_workspace_is_looked_at_part_by_part(folder: Path, told: Told) -> None:
    write_workspace(folder)
    (folder / "recipes" / "bad.toml").write_text('schema = "anvil.recipe/1"\nid = "other"\n')
    with socket.create_server(("127.0.0.1", 0)) as taken:
        text = (
            (folder / "anvil.toml").read_text().replace("9100", "1").replace("8001", str(taken.getsockname()[1]))
        )
        (folder / "anvil.toml").write_text(text.replace("unix:///var/run/docker.sock", "unix:///nowhere.sock"))
        code, found = told()
    assert code == 4
    assert "recipes/bad.toml" in found["files"][0]["says"]
    assert "it does not answer" in found["gateway"][-1]["says"]
    assert "anvil-tui gateway run" in found["gateway"][-1]["todo"]
    assert found["ports"][0]["state"] == "unknown"
    assert found["record"][-1]["says"] == "generation 0, 0 serves"


def test_a_taken_slot_is_named(folder: Path, told: Told, tmp_path: Path) -> None:
    write_workspace(folder)
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        serve(DOCKER, unix=tmp_path / "docker.sock"),
    ):
        port = str(taken.getsockname()[1])
        text = (folder / "anvil.toml").read_text().replace("9100", "1").replace("8001", port)
        (folder / "anvil.toml").write_text(text.replace("/var/run/docker.sock", f"{tmp_path}/docker.sock"))
        found = told()[1]
    assert f"slot primary-a: 127.0.0.1:{port} is" in found["ports"][0]["says"]
    assert "no serve of ours" in found["ports"][0]["says"]


def test_containers_elsewhere_say_that_engines_are_read_here(folder: Path, told: Told) -> None:
    write_workspace(folder)
    text = (folder / "anvil.toml").read_text()
    (folder / "anvil.toml").write_text(text.replace("unix:///var/run/docker.sock", "ssh://ada@box.invalid"))
    found = told()[1]
    assert found["engines"][0]["state"] == "unknown"
    assert "on this one's loopback" in found["engines"][0]["says"]
    assert "ssh -L" in found["engines"][0]["todo"]
    assert "box.invalid" not in json.dumps(found)
    assert "ada@" not in json.dumps(found)


def test_a_broken_workspace_is_an_error_and_no_discovery(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "anvil.toml").write_text("schema = 1")
    for verb in ("doctor", "status", "paths"):
        assert main([verb]) == 2
        assert "anvil.toml:1: schema" in capsys.readouterr().err
    (folder / "anvil.toml").unlink()
    (folder / "anvil.toml").symlink_to("nowhere")
    assert main(["status"]) == 2


def test_a_named_workspace_that_is_not_there_is_an_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--workspace", str(folder), "status"]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_bad_settings_are_said_and_mended_by_nobody(folder: Path, told: Told, tmp_path: Path) -> None:
    (tmp_path / "config" / "anvil-tui").mkdir(parents=True)
    (tmp_path / "config" / "anvil-tui" / "config.toml").write_text('thema = "x"\n')
    found = told()[1]
    assert found["settings"][0]["state"] == "missing"
    assert (
        "~/config/anvil-tui/config.toml:1: thema: unknown key; nearest known key: theme"
        in found["settings"][0]["says"]
    )


def test_paths_name_the_layer_of_everything(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_workspace(folder)
    monkeypatch.setenv("ANVIL_TUI_WORKSPACE", str(folder))
    monkeypatch.setenv("ANVIL_TUI_CONFIG", str(tmp_path / "mine.toml"))
    monkeypatch.setenv("ANVIL_TUI_UTC", "yes")
    (tmp_path / "mine.toml").write_text('theme = "light"\n[keys]\nview.filter = ["F"]\n')
    assert main(["--mouse", "no", "paths", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    places = {p["name"]: p for p in found["places"]}
    assert places["settings"] == {
        "name": "settings", "path": str(tmp_path / "mine.toml"), "layer": "env", "exists": True,
        "bytes": len('theme = "light"\n[keys]\nview.filter = ["F"]\n'),
    }  # fmt: skip
    assert (places["workspace"]["layer"], places["workspace"]["exists"]) == ("env", True)
    assert (places["record"]["exists"], places["record"]["bytes"]) == (False, None)
    assert (places["docker"]["layer"], places["gateway"]["layer"]) == ("file", "default")
    assert places["key"]["bytes"] == (folder / "state" / "client.key").stat().st_size
    layers = {name: (row["value"], row["layer"]) for name, row in found["settings"].items()}
    assert layers == {
        "theme": ("light", "file"), "ascii": ("auto", "default"), "utc": (True, "env"), "mouse": ("no", "flag"),
        "bell": (True, "default"), "keys.view.filter": ("F", "file"),
    }  # fmt: skip


def test_paths_without_a_workspace(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["paths"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("no workspace")
    assert f"env               absent {tmp_path}/docker.sock" in out


def test_a_read_only_init_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--read-only", "init", str(folder / "made"), "--bare"]) == 3
    assert "--read-only: nothing is written" in capsys.readouterr().err
    assert list(folder.iterdir()) == []


def test_tmux_is_asked_for_what_a_copy_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "tmux"
    fake.write_text('#!/bin/sh\ncase "$*" in -V) echo tmux 3.5;; *-sqv*set-clipboard) echo external;; esac\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert self_look.tmux_options({}) is None
    found = self_look.tmux_options({"TMUX": "/tmp/x,1,0"})
    assert found == {
        "version": "tmux 3.5",
        "set-clipboard": "external",
        "allow-passthrough": "",
        "default-terminal": "",
    }


def test_a_program_that_hangs_or_fails_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_look, "_TIMEOUT_S", 0.1)
    assert self_look.said_by(["sleep", "5"]) is None
    assert self_look.said_by(["false"]) is None
    assert self_look.said_by(["/nowhere/program"]) is None
