"""Runs the checks as stages: what is cheap or asserts times in turn, the others side by side, until one fails.

`python -m tests.stages [NAME...]`. As root every test stage has namespaces of its own (tests.real.netns), so they
meet in nothing but the machine's time; private ones cannot do without. One line a stage as it ends, with seconds.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Literal

from tests.support.environment import cut

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
PYTHON = (sys.executable, "-m")
PYTEST = (*PYTHON, "pytest", "-q")
AT_ONCE = 3  # each waits for a third of its time; with more, engines and consoles of two cores come too late


@dataclass(frozen=True, slots=True)
class Stage:
    """`when`: "first" = in turn before all others; "long" = begins then; "timed" = in turn beside the long one
    alone, for it asserts how fast something is; "beside" = AT_ONCE of them, the long one among them.

    `nice` is no way to be timed: Linux weighs sessions against each other, and niceness within one only.
    """

    name: str
    argv: tuple[str, ...]
    when: Literal["first", "long", "timed", "beside"] = "beside"
    private: bool = False
    whole_environment: bool = False
    deadline_s: int = 2700


def _pytest(name: str, *words: str, private: bool = False) -> Stage:
    return Stage(name, (*PYTEST, *words), private=private)


KILL = "tests/e2e/test_kill.py"

# What most often fails begins, and what is short fills the end.
STAGES = (
    Stage("format", (str(BIN / "ruff"), "format", "--check", "."), "first"),
    Stage("lint", (str(BIN / "ruff"), "check", "."), "first"),
    Stage("imports", (str(BIN / "lint-imports"),), "first"),
    Stage("parts", (*PYTHON, "tests.real.parts", "smol", "qwen"), "first", whole_environment=True),
    Stage("soak", (*PYTHON, "tests.soak", "600"), "long", private=True),
    Stage("types", (str(BIN / "mypy"),), "timed"),
    Stage("pty", (*PYTEST, "tests/pty"), "timed"),
    _pytest("unit", "tests/unit", "tests/hygiene"),
    Stage("faults", (*PYTHON, "tests.faults"), private=True),
    _pytest("kill", "-s", KILL, "-k", "promote", private=True),
    _pytest("pilot", "tests/pilot"),
    _pytest("contract", "tests/contract", private=True),
    _pytest("e2e", "tests/e2e", f"--ignore={KILL}", private=True),
    _pytest("kill-2", "-s", KILL, "-k", "not promote", private=True),
    _pytest("real", "tests/real", private=True),
    _pytest("snapshot", "tests/snapshot"),
)
PRINTED = ("kill", "kill-2", "faults")


def main(names: Sequence[str]) -> int:
    unknown = sorted(set(names) - {s.name for s in STAGES})
    if unknown:
        sys.exit(f"no stage {unknown[0]}; there are {', '.join(s.name for s in STAGES)}")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda got, _frame: sys.exit(128 + got))
    chosen = [s for s in STAGES if not names or s.name in names]
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder))
        return 0 if run.all_pass(chosen) and run.figures(chosen) else 1


@dataclass
class Run:
    """`folder` gets each stage's output and report. A stage that begins after one failed is not started."""

    folder: Path
    failed: bool = False
    going: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def all_pass(self, chosen: Sequence[Stage]) -> bool:
        if not all(self._passes(s) for s in chosen if s.when == "first"):
            return False
        with ThreadPoolExecutor(AT_ONCE) as pool:
            try:
                waiting = [pool.submit(self._passes, s) for s in chosen if s.when == "long"]
                if all(self._passes(s) for s in chosen if s.when == "timed"):
                    waiting += [pool.submit(self._passes, s) for s in chosen if s.when == "beside"]
                wait(waiting)
                return all([w.result() for w in waiting]) and not self.failed
            except BaseException:  # Ctrl-C, or a signal: sessions of their own do not get it
                self._end_all()
                raise

    def _passes(self, stage: Stage) -> bool:
        began = time.monotonic()
        why = self._run(stage)
        seconds = time.monotonic() - began
        with self.lock:
            if self.failed:  # it was ended, or not begun: the one that failed is the news
                return False
            self.failed = bool(why)
            output = self._log(stage.name)
            if why or stage.name in PRINTED:
                print(output)
            print(f"{stage.name:9} {seconds:6.1f} s  {why or 'ok'}  {_last(output)}", flush=True)
            if why and self.going:
                print(f"ended for it: {', '.join(sorted(self.going))}", flush=True)
        if why:
            self._end_all()
        return not why

    def _run(self, stage: Stage) -> str:
        """Why it failed; "" when it passed. Output goes to a file: a pipe stays open while a descendant lives."""
        argv = stage.argv
        if "pytest" in argv:
            argv = (*argv, f"--junitxml={self.folder / stage.name}.xml")
        if stage.private or ("pytest" in argv and os.geteuid() == 0):
            argv = (*PYTHON, "tests.real.netns", *argv)
        environment = dict(os.environ) if stage.whole_environment else cut(os.environ)
        with (self.folder / f"{stage.name}.log").open("wb") as out:
            with self.lock:
                if self.failed:
                    return "not begun"
                self.going[stage.name] = process = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                    cwd=ROOT, env=environment, start_new_session=True,
                )  # fmt: skip
            try:
                code = process.wait(stage.deadline_s)
            except subprocess.TimeoutExpired:
                _end(process)
                return f"FAILED: not done within {stage.deadline_s} s"
            finally:
                with self.lock:
                    del self.going[stage.name]
        return f"FAILED with exit code {code}" if code else ""

    def _end_all(self) -> None:
        """What still runs has nothing to say any more. Its namespaces end with it, and all that is in them."""
        with self.lock:
            self.failed = True
            for process in self.going.values():
                _end(process)

    def _log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def figures(self, chosen: Sequence[Stage]) -> bool:
        """The last lines: what clients met in operations, in faults and in the soak."""
        names = [s.name for s in chosen]
        reports = [self.folder / f"{name}.xml" for name in names if name in ("e2e", "kill", "kill-2")]
        right = not reports or _e2e_figures(reports)
        for name in ("faults", "soak"):
            if name in names:
                print(_last(self._log(name)), flush=True)
        return right


def _end(process: subprocess.Popen[bytes]) -> None:
    """Its whole session, by the leader's process id; unshare itself is deaf to SIGTERM."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last(output: str) -> str:
    lines = output.strip().splitlines()
    return lines[-1].strip("= ") if lines else ""


def _e2e_figures(reports: Sequence[Path]) -> bool:
    """The line that the whole is about; a run that recorded nothing has shown nothing."""
    found: dict[str, list[str]] = {"client_errors": [], "kill_points": []}
    for prop in (p for report in reports for p in ElementTree.parse(report).iter("property")):
        found.get(prop.get("name", ""), []).append(prop.get("value", ""))
    errors = sum(int(n) for n in found["client_errors"])
    points = [tuple(map(int, text.split("/"))) for text in found["kill_points"]]
    right, tried = sum(p[0] for p in points), sum(p[1] for p in points)
    print(f"e2e: client_errors={errors} kill_points={right}/{tried}", flush=True)
    killed = any(r.stem.startswith("kill") for r in reports)
    return bool(found["client_errors"]) and errors == 0 and right == tried and (tried > 0 or not killed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
