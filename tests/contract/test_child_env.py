"""Each child of the product is asked for its environment: a built one, without what happened to be set."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from anvil_tui.adapters.child_env import NAMES, child_env
from anvil_tui.adapters.clock import SystemClock
from anvil_tui.adapters.config_files import ConfigFileReader
from anvil_tui.adapters.docker_link import SshTunnel
from anvil_tui.adapters.gpu_reader import ChildGpuReader
from anvil_tui.adapters.haproxy_files import install_files
from anvil_tui.adapters.load_generator import ChildLoadGenerator
from anvil_tui.cli import setup
from anvil_tui.cli.launch import operation_env
from anvil_tui.core.errors import AnvilError
from anvil_tui.core.gates import Suite, SuiteFile
from anvil_tui.core.workspace import GatewaySettings, Role, Slot
from anvil_tui.ports import LoadLane, LoadRequest
from tests.support.scripted import DONE, SSE_HEAD, Seen, chunk, scripted
from tests.support.wait import wait_until

PLANTED = {"HF_TOKEN": "planted-1", "OPENAI_API_KEY": "planted-2", "ROUTER_TOKEN": "planted-3"}
TELL = "import json,os,sys; open({out!r}, 'w').write(json.dumps(dict(os.environ)))"


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in PLANTED.items():
        monkeypatch.setenv(name, value)


def program(folder: Path, name: str, code: int = 0) -> tuple[Path, Path]:
    """A program that writes its environment down and ends; (program, what it wrote)."""
    out, path = folder / f"{name}.json", folder / name
    path.write_text(f"#!{sys.executable}\n{TELL.format(out=str(out))}\nsys.exit({code})\n")
    path.chmod(0o755)
    return path, out


def built(out: Path) -> dict[str, str]:
    text = wait_until(lambda: out.read_text() if out.exists() else None, f"{out.name} told")
    env: dict[str, str] = json.loads(text)
    # Python itself sets LC_CTYPE in the C locale.
    assert set(env) - {"LC_CTYPE"} <= set(NAMES), "a name that nobody built"
    assert env["PATH"] and not set(PLANTED.values()) & set(env.values())
    return env


def test_gpu_reader(tmp_path: Path) -> None:
    path, out = program(tmp_path, "reader")
    reader = ChildGpuReader((str(path),), 5, SystemClock())
    reader.read()
    built(out)
    reader.close()


def test_ssh_to_a_file_and_to_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, out = program(tmp_path, "ssh", 255)
    with pytest.raises(AnvilError):
        ConfigFileReader(tmp_path, str(path)).read("elsewhere", "/x")
    built(out)
    out.unlink()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(AnvilError):
        SshTunnel("ssh://elsewhere")
    assert built(out)["PATH"].startswith(str(tmp_path))


def test_haproxy_that_checks_and_haproxy_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, out = program(tmp_path, "haproxy")
    settings = GatewaySettings.model_validate({"client_keys": ("env:ROUTER_TOKEN",), "binary": str(path)})
    role = Role(name="r", aliases=("a",), slots=(Slot(name="x", port=9001), Slot(name="y", port=9002)))
    install_files(tmp_path, settings, (role,), ("k" * 20,))
    built(out)
    (tmp_path / "anvil.toml").write_text(
        f'schema = "anvil.workspace/1"\nbox = {{name = "b", kind = "lab"}}\n[gateway]\nbinary = "{path}"\n'
        'client_keys = ["env:ROUTER_TOKEN"]\n[[roles]]\nname = "r"\naliases = ["a"]\n'
        'slots = [{name = "x", port = 9001}, {name = "y", port = 9002}]\n'
    )
    ran: list[Any] = []
    monkeypatch.setattr(os, "execve", lambda *args: ran.append(args))
    setup.gateway(SimpleNamespace(read_only=False, action="run", workspace=tmp_path))  # type: ignore[arg-type]
    ((_, argv, env),) = ran
    assert set(env) <= set(NAMES) and not [a for a in argv if "planted" in a]


def test_load_child() -> None:
    seen: list[tuple[list[str], dict[str, str]]] = []

    def script(request: Seen) -> tuple[bytes, ...]:
        for child in psutil.Process().children(recursive=True):
            seen.append((child.cmdline(), child.environ()))
        return SSE_HEAD, chunk(content="x", finish="stop"), DONE

    with scripted(script) as server:
        lane = LoadLane(server.url, (LoadRequest(1, {"messages": []}),), 1, 20.0, api_key="the-client-key-itself")
        ChildLoadGenerator().run(lane, lambda k: None, lambda: False)
    (found,) = [s for s in seen if any("load_child" in a for a in s[0])]
    assert set(found[1]) - {"LC_CTYPE"} <= set(NAMES)
    assert not [a for a in found[0] if "the-client-key" in a]


def test_an_operation_gets_the_secrets_that_are_named_and_no_other() -> None:
    suite = Suite.model_validate({
        "schema": "anvil.suite/1", "id": "s",
        "gates": ({"id": "c", "kind": "command", "argv": ("x",), "env": ("HF_TOKEN",)},),
    })  # fmt: skip
    settings = GatewaySettings.model_validate({"client_keys": ("env:ROUTER_TOKEN", "file:key")})
    box: Any = SimpleNamespace(
        workspace=SimpleNamespace(gateway=settings), suites=lambda: (SuiteFile("s", suite), SuiteFile("bad", None))
    )
    env = operation_env(box)
    assert set(env) <= {*NAMES, "ROUTER_TOKEN", "HF_TOKEN"}
    assert env["ROUTER_TOKEN"] == "planted-3" and "OPENAI_API_KEY" not in env


def test_only_what_is_set_and_named() -> None:
    assert child_env(("B",), {"PATH": "/bin", "A": "1", "B": "2"}) == {"PATH": "/bin", "B": "2"}
