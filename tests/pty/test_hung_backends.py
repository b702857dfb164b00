"""The whole console before sources that take every question and answer none (Syllo/nvtop#189)."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pty.terminal_process import ROOT, TerminalProcess
from tests.support.wait import wait_until
from tests.support.workspace import WORKSPACE, box

SILENT = """\
[containers]
url = "unix://{folder}/docker.sock"
[gpus]
reader = ["/bin/sleep", "30"]
[[clients]]
name = "far"
host = "far"
file = "/catalog.json"
format = "json"
role = "primary"
entries = {{ "url" = "{{base_url}}" }}
"""


@pytest.fixture
def console(tmp_path: Path) -> Iterator[TerminalProcess]:
    docker = socket.socket(socket.AF_UNIX)
    docker.bind(str(tmp_path / "docker.sock"))
    docker.listen(64)
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(f"#!/bin/sh\n: > {tmp_path}/asked\nexec sleep 30\n")
    ssh.chmod(0o755)
    box(tmp_path, WORKSPACE + SILENT.format(folder=tmp_path))
    env = {
        "HOME": str(tmp_path), "TERM": "xterm-256color", "LANG": "C.UTF-8", "TZ": "UTC", "PYTHONPATH": str(ROOT),
        "PATH": f"{ssh.parent}:{os.environ['PATH']}", "KEY": "k",
    }  # fmt: skip
    process = TerminalProcess(["-m", "anvil_tui", "--workspace", str(tmp_path)], env, (100, 30))
    yield process
    process.end()
    docker.close()


def test_keys_are_answered_and_the_end_comes_while_every_source_hangs(
    console: TerminalProcess, tmp_path: Path
) -> None:
    """Syllo/nvtop#189, derailed/k9s#3471: the screen is drawn, says what it waits for, helps, and lets go."""
    console.until(b"GPU reader starting", 60)
    wait_until((tmp_path / "asked").exists, "the client's host is asked")
    console.press(b"?")
    console.until(b"What every key does")
    console.press(b"\x1b")
    console.read(0.5)
    console.press(b"q")
    assert console.wait(15)[0] == 0
    assert console.sane() == dict.fromkeys(console.sane(), True)


def test_a_vanished_terminal_ends_it_while_every_source_hangs(console: TerminalProcess) -> None:
    """Textualize/textual#6690: nothing is left behind that burns a core beside the models."""
    console.until(b"GPU reader starting", 60)
    console.hang_up()
    assert console.wait(15, read=False)[0] == 129
