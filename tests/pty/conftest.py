"""The scripted console on a pseudo-terminal of its own, ended with the test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.pty.terminal_process import ROOT, TerminalProcess

Start = Callable[..., TerminalProcess]
READY = b"GPUs 2"


def environment(tmp: Path, **more: str) -> dict[str, str]:
    keep = {k: os.environ[k] for k in ("PATH", "LD_LIBRARY_PATH") if k in os.environ}
    base = {"HOME": str(tmp), "TERM": "xterm-256color", "LANG": "C.UTF-8", "TZ": "UTC", "PYTHONPATH": str(ROOT)}
    return {**keep, **base, **more}


def arguments(tmp: Path, world: str = "calm", hz: float = 4, *more: str) -> list[str]:
    return ["-m", "tests.pty.scripted_console", world, str(hz), str(tmp), *more]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[TerminalProcess] = []

    def begin(
        world: str = "calm",
        hz: float = 4,
        *more: str,
        size: tuple[int, int] = (80, 24),
        ignore_hup: bool = False,
        **env: str,
    ) -> TerminalProcess:
        args = arguments(tmp_path, world, hz, *more)
        made.append(TerminalProcess(args, environment(tmp_path, **env), size, ignore_hup=ignore_hup))
        return made[-1]

    yield begin
    for process in made:
        process.end()
