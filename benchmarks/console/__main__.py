"""`make bench-console`: our console beside the consoles that people keep open, on one box, in one terminal.

All readers of GPUs load the same stub NVML library. Ours also has what the others do not read: a container engine,
serves over HTTP, a gateway (HAProxy) and a followed log. Tools run one at a time, in an order that moves on by one
each round; figures are medians over the rounds, with the least and the most. CPU is that of every process of a
tool, its own NVML reader included, in per cent of one core; the box is not counted. It runs in namespaces of its
own, so that all see the same processes. `--quick` does one round. The last line is the result.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

from anvil_tui.cli.demo import gateway
from benchmarks.console import install, tools
from benchmarks.console.figures import last_line, percentile, ratio, spread
from benchmarks.console.terminal import Cost, Ended, Terminal
from benchmarks.console.tools import Tool
from tests.real import netns

GPUS, SERVES = 8, 12
SMALL, LARGE = (2, 2), (16, 64)
BUSY_LINES_S, CALM_LINES_S, FLOOD_LINES_S = 200, 4, 10_000
SETTLE_S, OURS_SETTLE_S, WINDOW_S, STILL_S = 3.0, 8.0, 6.0, 10.0
KEYS, KEY_PAUSE_S, KEY_LIMIT_S = 200, (0.04, 0.07, 0.11), 5.0
STATUS_RUNS, STATUS_LIMIT_S = 10, 20.0
ROUNDS, PEER_ROUNDS = 3, 2
RESULT = install.HOME / "result.json"

CALM, BUSY = "anvil-tui", "anvil-tui, 200 log lines/s"
PEER = "nvitop"


@dataclass(slots=True)
class Row:
    """Of one tool: milliseconds to its first picture and first reading, and its cost, a value a round."""

    paint: list[float] = field(default_factory=list)
    reads: list[float] = field(default_factory=list)
    cost: list[Cost] = field(default_factory=list)
    why: str = ""

    def of(self, name: str) -> list[float]:
        return [float(getattr(c, name)) for c in self.cost]


Rows = dict[str, Row]


class Box:
    """A running box with its gateway. `env` is what every tool on it gets."""

    def __init__(self, directory: Path, process: subprocess.Popen[bytes], env: Mapping[str, str]) -> None:
        self.directory, self.env, self._process = directory, env, process

    def log(self, lines_s: float) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"log %d\n" % lines_s)
        self._process.stdin.flush()


@contextlib.contextmanager
def box(folder: Path, gpus: int, serves: int, *, still: bool = False) -> Iterator[Box]:
    name = f"{gpus}{'-still' if still else ''}"
    directory, home, library = folder / f"box-{name}", folder / f"home-{name}", folder / f"nvml-{name}"
    directory.mkdir(mode=0o700)
    library.mkdir()
    shutil.copy(install.library(gpus, still=still) / install.SONAME, library)  # the box writes its pids beside it
    argv = [sys.executable, "-m", "benchmarks.console.box", "--dir", str(directory), "--gpus", str(gpus),
            "--serves", str(serves), "--library", str(library)]  # fmt: skip
    with subprocess.Popen(
        [*argv, *(["--still"] if still else [])], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=install.ROOT
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        try:
            if process.stdout.readline() != b"READY\n":
                raise SystemExit("the box did not start")
            with gateway(directory):
                yield Box(directory, process, tools.environment(home, library))
        finally:
            process.stdin.close()
            process.wait(30)


def visit(tool: Tool, on: Box, rows: Rows, settle_s: float, *then: tuple[str, float]) -> None:
    """One round of a tool; `then` are (row, log lines a second) measured in the same run afterwards."""
    row = rows.setdefault(tool.name, Row())
    try:
        with Terminal(tool.argv, {**on.env, **tool.env}, on.directory) as terminal:
            row.paint.append(terminal.until(tool.paints))
            row.reads.append(terminal.until(tool.reads))
            terminal.drain(settle_s)
            row.cost.append(terminal.cost(WINDOW_S))
            for name, lines_s in then:
                on.log(lines_s)
                terminal.drain(1.0)
                rows.setdefault(name, Row()).cost.append(terminal.cost(WINDOW_S))
    except (Ended, OSError) as why:
        row.why = str(why)
    if then:
        on.log(CALM_LINES_S)


def compare(on: Box, peers: Sequence[Tool], rounds: int) -> Rows:
    """Ours and nvitop in every round, the others in at most PEER_ROUNDS."""
    rows: Rows = {}
    every = [tools.ours(on.directory, CALM), tools.nvitop(PEER), *peers]
    for n in range(rounds):
        at = n % len(every)
        for tool in (*every[at:], *every[:at]):
            if tool.name == CALM:
                visit(tool, on, rows, OURS_SETTLE_S, (BUSY, BUSY_LINES_S))
            elif tool.name == PEER or n < PEER_ROUNDS:
                visit(tool, on, rows, SETTLE_S)
    return rows


def scale(folder: Path, rounds: int) -> Rows:
    """Ours and nvitop on a small and a large box."""
    rows: Rows = {}
    with box(folder, *SMALL) as small, box(folder, *LARGE) as large:
        for on in (small, large):
            on.log(CALM_LINES_S)
        for n in range(rounds):
            for on, (gpus, serves) in ((small, SMALL), (large, LARGE)):
                name = f"anvil-tui, {gpus} GPUs x {serves} serves"
                visit(tools.ours(on.directory, name), on, rows, OURS_SETTLE_S)
                if n == 0:
                    visit(tools.nvitop(f"nvitop, {gpus} GPUs"), on, rows, SETTLE_S)
    return rows


def keys(on: Box) -> dict[str, list[float]]:
    """Milliseconds from key to screen: ours with a calm and with a flooded log, and nvitop. KEY_LIMIT_S for a key
    that showed nothing by then."""
    found: dict[str, list[float]] = {}
    ours, peer = tools.ours(on.directory), tools.nvitop()
    with Terminal(ours.argv, on.env, on.directory) as terminal:
        terminal.until(ours.reads)
        os.write(terminal.fd, ours.keys[1][0] * SERVES)  # the cursor to the top, so that the first key can move it
        for name, lines_s in (("calm log", CALM_LINES_S), (f"{FLOOD_LINES_S:,} lines/s", FLOOD_LINES_S)):
            on.log(lines_s)
            terminal.drain(OURS_SETTLE_S)
            found[name] = [pressed(terminal, ours, n) for n in range(KEYS)]
        on.log(CALM_LINES_S)
    try:
        with Terminal(peer.argv, on.env, on.directory) as terminal:
            terminal.until(peer.reads)
            terminal.drain(SETTLE_S)
            found[PEER] = [pressed(terminal, peer, n) for n in range(KEYS // 4)]
    except Ended as why:
        print(f"{PEER}: {why}", flush=True)
    return found


def pressed(terminal: Terminal, tool: Tool, number: int) -> float:
    key, shows = tool.keys[number % len(tool.keys)]
    try:
        took = terminal.key_ms(key, shows, KEY_LIMIT_S)
    except Ended as why:
        print(f"{tool.name}: key {key!r}: {why}", flush=True)
        took = 1000 * KEY_LIMIT_S
    terminal.drain(KEY_PAUSE_S[number % len(KEY_PAUSE_S)])
    return took


def nothing(folder: Path) -> tuple[int, str]:
    """Bytes in STILL_S seconds of a box on which nothing changes, and what they said."""
    with box(folder, GPUS, SERVES, still=True) as on:
        tool = tools.ours(on.directory)
        with Terminal(tool.argv, on.env, on.directory) as terminal:
            terminal.until(tool.reads)
            terminal.drain(2 * OURS_SETTLE_S)
            if (second := time.time() % 60) > 60 - STILL_S:  # the clock in the header shows minutes
                terminal.drain(61 - second)
            terminal.tail.clear()
            sent = terminal.drain(STILL_S, keep=True)
            return sent, terminal.words()[:2000].decode(errors="replace")


def timed(argv: Sequence[str], directory: Path, env: Mapping[str, str]) -> list[float]:
    """Milliseconds that a command takes, a value a run, as many as STATUS_LIMIT_S allows; none if it failed."""
    took: list[float] = []
    while len(took) < STATUS_RUNS and sum(took) < 1000 * STATUS_LIMIT_S:
        began = time.perf_counter()
        try:
            ran = subprocess.run(argv, env=env, cwd=directory, capture_output=True, timeout=120)
        except OSError as why:
            print(f"{argv[0]}: {why}", flush=True)
            return []
        took.append(1000 * (time.perf_counter() - began))
        if ran.returncode:
            print(f"{' '.join(argv)}: ended with {ran.returncode}: {ran.stderr[-600:]!r}", flush=True)
            return []
    return took


def dead(on: Box) -> list[float]:
    """`status` when its box, its gateway and its GPU driver are gone."""
    file = on.directory / "anvil.toml"
    lines = file.read_text().splitlines()
    file.write_text("\n".join('library_dir = "/nonexistent"' if x.startswith("library_dir") else x for x in lines))
    bare = {k: v for k, v in on.env.items() if k != "LD_LIBRARY_PATH"}
    return timed(status(on.directory), on.directory, bare)


def status(directory: Path) -> tuple[str, ...]:
    return (tools.ANVIL, "--workspace", str(directory), "status")


def status_times(on: Box) -> dict[str, list[float]]:
    commands = {
        "status": status(on.directory), "nvitop --once": (str(install.HOME / "gpu/bin/nvitop"), "--once"),
        "python -c pass": (sys.executable, "-c", "pass"),
    }  # fmt: skip
    return {name: timed(argv, on.directory, on.env) for name, argv in commands.items()}


def table(rows: Rows) -> None:
    print(f"\n  {'':34} {'CPU %':>20} {'bytes/s':>24} {'PSS MiB':>8} {'first paint ms':>22} "
          f"{'first reading ms':>22} {'CPU x':>6} {'bytes x':>7}")  # fmt: skip
    base = rows.get(PEER)
    for name, row in rows.items():
        if not row.cost:
            print(f"  {name:34} FAILED: {row.why}")
            continue
        against = ""
        if base is not None:
            cpu, sent = ratio(row.of("cpu_pct"), base.of("cpu_pct")), ratio(row.of("bytes_s"), base.of("bytes_s"))
            against = f" {cpu:6.2f} {sent:7.2f}"
        print(
            f"  {name:34} {spread(row.of('cpu_pct'), 2):>20} {spread(row.of('bytes_s'), 0):>24} "
            f"{median(row.of('pss_mib')):8.1f} {spread(row.paint, 0):>22} {spread(row.reads, 0):>22}{against}"
            + (f"  failed once: {row.why}" if row.why else "")
        )
    sys.stdout.flush()


def said(what: str, values: Mapping[str, Sequence[float]], *shares: float) -> None:
    print(f"\n{what}")
    for name, each in values.items():
        if not each:
            print(f"  {name:34} FAILED")
            continue
        ranks = "  ".join(f"p{100 * s:g} {percentile(each, s):7.1f}" for s in shares)
        print(f"  {name:34} {ranks}  least {min(each):.1f}  most {max(each):.1f}  n {len(each)}")
    sys.stdout.flush()


def measure(rounds: int) -> int:
    began, load = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="bc-") as temporary:
        folder = Path(temporary)
        with box(folder, GPUS, SERVES) as on:
            on.log(CALM_LINES_S)
            print(f"{GPUS} GPUs, {SERVES} serves, {rounds} round(s) of {WINDOW_S:g} s; {os.cpu_count()} cores, "
                  f"load {load:.1f}, {len(list(Path('/proc').glob('[0-9]*')))} processes")  # fmt: skip
            rows = compare(on, tools.others(), rounds)
            table(rows)
            pressed_ms = keys(on)
            said("key to screen, ms", pressed_ms, 0.5, 0.99)
            walls = status_times(on)
        walls["status, every source dead"] = dead(on)
        said("wall time of a command, ms", walls, 0.5, 0.95)
        sizes = scale(folder, min(rounds, PEER_ROUNDS))
        table(sizes)
        still, words = nothing(folder)
    print(f"\nnothing changes for {STILL_S:g} s: {still} bytes" + (f": {words[:160]!r}" if still else ""))
    ours = [row for name, row in sizes.items() if name.startswith("anvil-tui")]
    grown = ratio(ours[1].of("cpu_pct"), ours[0].of("cpu_pct"))
    print(f"{LARGE[0]} GPUs x {LARGE[1]} serves against {SMALL[0]} x {SMALL[1]}: {grown:.2f} x CPU")
    print(f"first paint: {ratio(rows[CALM].paint, rows[PEER].paint):.2f} x nvitop; first reading: "
          f"{ratio(rows[CALM].reads, rows[PEER].reads):.2f} x")  # fmt: skip
    RESULT.write_text(json.dumps({
        "cores": os.cpu_count(), "load": load, "rounds": rounds, "took_s": round(time.monotonic() - began),
        "rows": {n: asdict(r) for n, r in (rows | sizes).items()}, "key_ms": pressed_ms, "wall_ms": walls,
        "still_bytes": still, "still_words": words,
    }, indent=1))  # fmt: skip
    print(f"all figures: {RESULT.relative_to(install.ROOT)}; load {os.getloadavg()[0]:.1f} at the end, "
          f"took {time.monotonic() - began:.0f} s")  # fmt: skip
    flood = percentile(pressed_ms[f"{FLOOD_LINES_S:,} lines/s"], 0.99)
    cpu, sent = (ratio(rows[CALM].of(what), rows[PEER].of(what)) for what in ("cpu_pct", "bytes_s"))
    print(last_line(GPUS, cpu, sent, flood, median(walls["status"] or [math.nan])))
    return 0


def main(argv: Sequence[str]) -> int:
    if set(argv) - {"--quick"}:
        sys.exit("usage: python -m benchmarks.console [--quick]")
    if not netns.inside():
        makers: tuple[Callable[[], Path], ...] = (partial(install.pypi, "gpu"), partial(install.pypi, "bpytop"))
        for make in (*makers, install.debian):
            try:
                make()
            except install.CannotInstall as why:
                print(f"left out: {why}", flush=True)
        netns.main([sys.executable, "-m", "benchmarks.console", *argv])
    return measure(1 if "--quick" in argv else ROUNDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
