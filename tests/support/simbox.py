"""A simulated box as a child process, for tests: started in an empty folder, ended by its pid."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from anvil_tui.adapters.box_file import BoxFile
from anvil_tui.adapters.toml_files import load_workspace

T = TypeVar("T")
SCALE = 400.0


def until(ask: Callable[[], T | None], what: str, seconds: float = 20.0) -> T:
    """The first true answer; an AssertionError that names what was waited for."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = ask()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class SimProcess:
    """`folder` is its workspace, `control` its control socket, `incumbent` the id of what serves."""

    def __init__(self, folder: Path, scale: float = SCALE, *more: str) -> None:
        argv = [
            sys.executable,
            "-m",
            "anvil_tui.simbox",
            "run",
            "--dir",
            str(folder),
            "--scale",
            str(scale),
            *more,
        ]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None and self.process.stderr is not None
        first = self.process.stdout.readline().strip()
        assert first == "READY", self.process.stderr.read()
        self.folder, self.workspace = folder, load_workspace(folder)
        reader = self.workspace.gpus.reader
        self.control = reader[reader.index("--socket") + 1]
        self.record = BoxFile(folder / "state").read()
        self.incumbent = self.record.roles["primary"].incumbent

    def ask(self, **request: Any) -> Any:
        """One control request; an AssertionError when the box says no."""
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(self.control)
            link.sendall(json.dumps(request).encode() + b"\n")
            reply = json.loads(link.makefile("rb").readline())
        assert reply["ok"], reply["text"]
        return reply["text"]

    def fault(self, name: str, /, **args: object) -> str:
        return str(self.ask(do="fault", name=name, args={k: str(v) for k, v in args.items()}))

    def clear(self) -> None:
        self.ask(do="clear")

    def end(self) -> str:
        """SIGTERM; returns what it wrote on stderr."""
        self.process.send_signal(signal.SIGTERM)
        _, err = self.process.communicate(timeout=20)
        return str(err)
