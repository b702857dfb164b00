"""Runs the checks as stages, cheapest first; stops at the first that fails. One line a stage, with seconds.

`python -m tests.stages [NAME...]`. Private ones run as root in namespaces of their own (tests.real.netns).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from tests.support.environment import cut

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
PYTHON = (sys.executable, "-m")


@dataclass(frozen=True, slots=True)
class Stage:
    """`beside` runs next to the stages that follow it, and is waited for at the end. `in_memory` keeps its
    temporary files in memory: most of what its tests wait for is the disk."""

    name: str
    argv: tuple[str, ...]
    private: bool = False
    beside: bool = False
    in_memory: bool = False
    whole_environment: bool = False
    deadline_s: int = 300


def _pytest(name: str, *folders: str, private: bool = False, deadline_s: int = 300) -> Stage:
    argv = (*PYTHON, "pytest", "-q", *(f"tests/{folder}" for folder in folders))
    return Stage(name, argv, private, deadline_s=deadline_s)


KILL = "tests/e2e/test_kill.py"
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

STAGES = (
    Stage("format", (str(BIN / "ruff"), "format", "--check", ".")),
    Stage("lint", (str(BIN / "ruff"), "check", ".")),
    Stage("imports", (str(BIN / "lint-imports"),)),
    Stage("types", (str(BIN / "mypy"),)),
    Stage(
        "unit",
        (*PYTHON, "pytest", "-q", "tests/unit", "tests/hygiene"),
        beside=True,
        in_memory=True,
        deadline_s=900,
    ),
    _pytest("pilot", "pilot"),
    _pytest("snapshot", "snapshot"),
    _pytest("pty", "pty"),
    Stage("parts", (*PYTHON, "tests.real.parts", "smol", "qwen"), whole_environment=True),
    Stage("kill", (*PYTHON, "pytest", "-q", "-s", KILL), private=True, beside=True, deadline_s=2700),
    Stage("soak", (*PYTHON, "tests.soak", "600"), private=True, beside=True, deadline_s=2700),
    _pytest("contract", "contract", private=True, deadline_s=1800),
    _pytest("real", "real", private=True, deadline_s=1800),
    Stage("faults", (*PYTHON, "tests.faults"), private=True, deadline_s=1800),
    Stage("e2e", (*PYTHON, "pytest", "-q", "tests/e2e", f"--ignore={KILL}"), private=True, deadline_s=1800),
)


def main(names: Sequence[str]) -> int:
    unknown = sorted(set(names) - {s.name for s in STAGES})
    if unknown:
        sys.exit(f"no stage {unknown[0]}; there are {', '.join(s.name for s in STAGES)}")
    chosen = [s for s in STAGES if not names or s.name in names]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(dir=MEMORY) as memory:
        chosen = [
            replace(s, argv=(*s.argv, f"--basetemp={memory}/{s.name}")) if s.in_memory else s for s in chosen
        ]
        return 0 if _all_pass(chosen, Path(folder)) else 1


def _all_pass(chosen: Sequence[Stage], folder: Path) -> bool:
    """One after the other; what may run beside starts in its turn, and is waited for at the end."""
    reports = [folder / f"{s.name}.xml" for s in chosen if s.name in ("e2e", "kill")]
    with ThreadPoolExecutor() as pool:
        waiting: list[Future[bool]] = []
        for stage in chosen:
            if stage.beside:
                waiting.append(pool.submit(_passes, stage, folder / stage.name))
            elif not _passes(stage, folder / stage.name):
                return False
        if not all([w.result() for w in waiting]):
            return False
    return not reports or _e2e_figures(reports)


def _passes(stage: Stage, base: Path) -> bool:
    began, log, report = time.monotonic(), base.with_suffix(".log"), base.with_suffix(".xml")
    why = _run(stage, log, report)
    output = log.read_text(errors="replace")
    if why or stage.name in ("kill", "faults"):
        print(output)
    print(f"{stage.name:9} {time.monotonic() - began:6.1f} s  {why or 'ok'}  {_last(output)}", flush=True)
    return not why


def _run(stage: Stage, log: Path, report: Path) -> str:
    """Why it failed; "" when it passed. Output goes to a file: a pipe stays open while any descendant lives."""
    argv = (*stage.argv, f"--junitxml={report}") if "pytest" in stage.argv else stage.argv
    if stage.private:
        argv = (*PYTHON, "tests.real.netns", *argv)
    environment = dict(os.environ) if stage.whole_environment else cut(os.environ)
    with log.open("w") as out:
        try:
            ran = subprocess.run(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                cwd=ROOT, env=environment, timeout=stage.deadline_s, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"FAILED: not done within {stage.deadline_s} s"
    return f"FAILED with exit code {ran.returncode}" if ran.returncode else ""


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
    killed = any(r.stem == "kill" for r in reports)
    return bool(found["client_errors"]) and errors == 0 and right == tried and (tried > 0 or not killed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
