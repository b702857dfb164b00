"""What is imported when: headless verbs never pay for the console, asked of real child processes."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import anvil_tui
from anvil_tui.adapters.toml_files import write_workspace

ROOT = Path(__file__).parents[2]
# Rich is not asked for: httpx loads it for its own command line when click happens to be installed.
DRAWING = {"textual"}
HEADLESS = ("core", "ports", "service", "adapters", "simbox", "cli")


def modules(layer: str) -> list[str]:
    return [
        m.name for m in pkgutil.walk_packages(anvil_tui.__path__, "anvil_tui.") if m.name.split(".")[1] == layer
    ]


def loaded_by(program: str) -> set[str]:
    """Top-level packages that a fresh interpreter has loaded after the program."""
    tell = "\nimport json, sys\nprint(json.dumps(sorted({m.partition('.')[0] for m in sys.modules})))"
    ran = subprocess.run(
        [sys.executable, "-c", program + tell], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert ran.returncode == 0, ran.stderr
    return set(json.loads(ran.stdout.splitlines()[-1]))


@pytest.mark.parametrize("layer", HEADLESS)
def test_no_module_below_the_console_imports_what_draws(layer: str) -> None:
    names = [m for m in modules(layer) if not m.endswith("__main__")]
    assert names
    assert not DRAWING & loaded_by("\n".join(f"import {name}" for name in names))


def test_the_console_does_import_it() -> None:
    """So that the other tests here can fail."""
    assert loaded_by("import anvil_tui.ui.app") >= DRAWING


def run_verb(*argv: str) -> str:
    return f"from anvil_tui.cli.main import main\ntry:\n    main({list(argv)!r})\nexcept SystemExit:\n    pass"


@pytest.mark.parametrize("verb", [("status", "--json"), ("paths",), ("recipes", "list"), ("operations", "list")])
def test_a_headless_verb_never_loads_the_console(verb: tuple[str, ...], tmp_path: Path) -> None:
    write_workspace(tmp_path / "box")
    assert not DRAWING & loaded_by(run_verb("--workspace", str(tmp_path / "box"), *verb))


def test_status_imports_no_http_client_no_gates_and_no_history(tmp_path: Path) -> None:
    """People and prompts wait for it: what it does not use was half of its time."""
    write_workspace(tmp_path / "box")
    tell = "\nimport sys\nfor m in sys.modules: print('module', m)"
    program = run_verb("--workspace", str(tmp_path / "box"), "status") + tell
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=ROOT)
    loaded = {line.removeprefix("module ") for line in ran.stdout.splitlines() if line.startswith("module ")}
    assert "anvil_tui.core.status" in loaded, ran.stderr
    never = {"httpx", "anvil_tui.service.gates.conductor", "anvil_tui.service.recorder", "anvil_tui.cli.judging"}
    assert not never & loaded


def test_help_and_version_load_no_library_at_all() -> None:
    heavy = {"pydantic", "docker", "httpx", "tomlkit", "psutil", "pynvml", "textual"}
    assert not heavy & loaded_by(run_verb("--version"))
    assert not heavy & loaded_by(run_verb("promote", "--help"))
