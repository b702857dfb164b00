"""Runs the checks as stages: the cheap ones in turn, then the others side by side; stops at the first that fails.

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
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from tests.support.environment import cut

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
PYTHON = (sys.executable, "-m")
PYTEST = (*PYTHON, "pytest", "-q")
AT_ONCE = 4  # each waits for a third of its time; more than twice as many as cores would meet the tests' deadlines


@dataclass(frozen=True, slots=True)
class Stage:
    """`first` = runs in turn before all that are not, as we are. `urgent` goes before the others on the machine:
    it asserts or measures times, and would say no when it was kept waiting."""

    name: str
    argv: tuple[str, ...]
    private: bool = False
    first: bool = False
    urgent: bool = False
    whole_environment: bool = False
    deadline_s: int = 2700


def _first(name: str, *argv: str, whole_environment: bool = False) -> Stage:
    return Stage(name, argv, first=True, whole_environment=whole_environment, deadline_s=600)


def _tests(name: str, *words: str, private: bool = False, urgent: bool = False) -> Stage:
    return Stage(name, (*PYTEST, *words), private=private, urgent=urgent)


KILL = "tests/e2e/test_kill.py"

# The long ones begin; those that most often fail come next; what is short fills the end.
STAGES = (
    _first("format", str(BIN / "ruff"), "format", "--check", "."),
    _first("lint", str(BIN / "ruff"), "check", "."),
    _first("imports", str(BIN / "lint-imports")),
    _first("types", str(BIN / "mypy")),
    _first("parts", *PYTHON, "tests.real.parts", "smol", "qwen", whole_environment=True),
    Stage("soak", (*PYTHON, "tests.soak", "600"), private=True),
    _tests("unit", "tests/unit", "tests/hygiene"),
    Stage("faults", (*PYTHON, "tests.faults"), private=True),
    _tests("kill", "-s", KILL, "-k", "promote", private=True),
    _tests("contract", "tests/contract", private=True),
    _tests("pilot", "tests/pilot", urgent=True),
    _tests("kill-2", "-s", KILL, "-k", "not promote", private=True),
    _tests("e2e", "tests/e2e", f"--ignore={KILL}", private=True, urgent=True),
    _tests("real", "tests/real", private=True),
    _tests("snapshot", "tests/snapshot"),
    _tests("pty", "tests/pty", urgent=True),
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
        if not all(self._passes(s) for s in chosen if s.first):
            return False
        with ThreadPoolExecutor(AT_ONCE) as pool:
            waiting = [pool.submit(self._passes, s) for s in chosen if not s.first]
            try:
                return all([w.result() for w in waiting])
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
        root = os.geteuid() == 0
        if stage.private or (root and not stage.first):
            argv = (*PYTHON, "tests.real.netns", *argv)
        if stage.urgent and root:
            argv = ("nice", "-n", "-5", *argv)
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
