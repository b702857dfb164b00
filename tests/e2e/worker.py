"""Runs product operations in forked processes, so that a test of many operations pays for imports once.

`python -m tests.e2e.worker` reads one JSON job a line and answers one JSON line. Each job runs in a child of
its own; a job with `kill_at` gets SIGKILL from itself when the operation reaches that point, one with `pause_at`
waits there until the parent lets it go on.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from anvil_tui.cli import operate
from anvil_tui.cli.wiring import open_box
from anvil_tui.core.plan import Intent
from anvil_tui.service.operation import prepare
from anvil_tui.service.planning import plan
from tests.support.wait import wait_until

PAUSED_AT_MOST_S = 60.0


def _plan(workspace: str, intent: dict[str, Any]) -> dict[str, Any]:
    box = open_box(Path(workspace))
    try:
        made = plan(box, Intent(**intent))
        if made.refusals:
            return {"refusals": list(made.refusals)}
        return {"operation": prepare(box, made)}
    finally:
        box.gpus.close()


def _operate(
    workspace: str, operation: str, mode: str, kill_at: str = "", pause_at: str = "", pause: str = ""
) -> dict[str, Any]:
    points: list[str] = []

    def checkpoint(at: str) -> None:
        points.append(at)
        if at == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if at == pause_at and points.count(at) == 1:
            _wait_for(Path(pause), at)

    return {"exit": operate.main([workspace, operation, mode], checkpoint), "points": points}


def _wait_for(folder: Path, at: str) -> None:
    (folder / "reached").write_text(at)
    until = time.monotonic() + PAUSED_AT_MOST_S
    while not (folder / "go").exists():
        if time.monotonic() > until:
            raise AssertionError(f"nobody let the operation go on at {at}")
        time.sleep(0.01)


def _serve() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        with tempfile.NamedTemporaryFile("r+") as answer:
            child = os.fork()
            if child == 0:
                _child(job, Path(answer.name))
            _, status = os.waitpid(child, 0)
            got = answer.read()
        result = json.loads(got) if got else {}
        print(json.dumps({**result, "killed": os.WIFSIGNALED(status)}), flush=True)


def _child(job: dict[str, Any], answer: Path) -> None:
    jobs: dict[str, Callable[..., dict[str, Any]]] = {"plan": _plan, "operate": _operate}
    try:
        answer.write_text(json.dumps(jobs[job.pop("job")](**job)))
    except BaseException as why:  # the parent reports it as this job's failure
        answer.write_text(json.dumps({"error": f"{type(why).__name__}: {why}"}))
    os._exit(0)


class Worker:
    """The parent's handle. `call` returns the child's answer; an error in it raises. `env` is added to its own."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self._env = {**os.environ, **(env or {})}

    def __enter__(self) -> Worker:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=self._env,
        )  # fmt: skip
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(20)

    def call(self, job: str, **args: Any) -> dict[str, Any]:
        self._send(job, args)
        return self._answer()

    @contextlib.contextmanager
    def paused(self, at: str, answer: dict[str, Any], **args: Any) -> Iterator[None]:
        """Inside the block the operation stands at point `at`. Afterwards it goes on to its end, and what it
        answered is in `answer`."""
        with tempfile.TemporaryDirectory() as folder:
            self._send("operate", {**args, "pause_at": at, "pause": folder})
            reached = Path(folder) / "reached"
            try:
                wait_until(lambda: reached.exists() or self._ended(), f"the operation reaches {at}", 90)
                assert reached.exists(), f"the operation ended without reaching {at}"
                yield
            finally:
                (Path(folder) / "go").touch()
                answer |= self._answer()

    def _send(self, job: str, args: dict[str, Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"job": job, **args}) + "\n")
        self._process.stdin.flush()

    def _ended(self) -> bool:
        assert self._process.stdout
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise AssertionError(answer["error"])
        return answer


if __name__ == "__main__":
    _serve()
