"""One tool against a fresh server: what it reported, what was true, and what it cost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import psutil

from anvil_tui.adapters.load_generator import timing_stats
from benchmarks.timing.peers import Lane, Peer, Ranks, Said

LIMIT_S = 240
SAMPLE_S = 0.1
_MS, _S = 1e6, 1e9


@dataclass(frozen=True, slots=True)
class Truth:
    """Of the server's own record, by the same kind of percentiles; `late_ms` is its own worst lateness."""

    ttft_p50_ms: float
    ttft_p95_ms: float
    visible_p50_ms: float
    tok_s: float
    requests: int
    late_ms: float


@dataclass(frozen=True, slots=True)
class Cost:
    """While requests were under way: cores of the tool's processes and of everything else but the server; MiB.

    `rss_mib` counts shared pages once for each process; `own_mib` is what would be free without the tool.
    """

    cores: float
    other_cores: float
    rss_mib: float
    own_mib: float
    processes: int


@dataclass(frozen=True, slots=True)
class Measured:
    said: Said
    true: Truth
    cost: Cost

    @property
    def p50_error_ms(self) -> float:
        return self.said.ttft_p50_ms - self.true.ttft_p50_ms

    @property
    def p95_error_ms(self) -> float:
        return self.said.ttft_p95_ms - self.true.ttft_p95_ms


class Failed(Exception):
    """The tool did not measure the lane; the reason."""


def percentile(values: Sequence[float], share: float, ranks: Ranks) -> float:
    """`nearest`: the smallest value not exceeded by the share; `linear`: between the two neighbours."""
    ordered = sorted(values)
    if ranks == "nearest":
        return ordered[max(1, ceil(share * len(ordered) - 1e-9)) - 1]
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def measure(
    peer: Peer, scenario: str, streams: int, count: int, tokens: int, home: Path, tokenizer: Path
) -> Measured:
    """Raises Failed."""
    server = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.timing.server", scenario], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert server.stdin and server.stdout
    try:
        port = int(server.stdout.readline())
        with tempfile.TemporaryDirectory() as out:
            lane = Lane(f"http://127.0.0.1:{port}", streams, count, tokens, Path(out), home, tokenizer)
            samples = _run(peer, lane, server.pid)
            stats = timing_stats(port)
            try:
                said = peer.said(lane.out)
            except (OSError, LookupError, TypeError, ValueError, StopIteration) as why:
                raise Failed(f"its report cannot be read: {type(why).__name__} {why}") from why
    finally:
        server.stdin.close()
        server.wait(10)
    true = _truth(stats, count, tokens, peer.ranks)
    return Measured(said, true, samples.cost(min(r["start"] for r in stats), max(r["end"] for r in stats)))


def _run(peer: Peer, lane: Lane, server_pid: int) -> Samples:
    env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    env |= {"OPENAI_API_KEY": "x", "NO_PROXY": "*", **peer.env}
    log = lane.out / "log"
    with log.open("wb") as said:
        process = subprocess.Popen(
            peer.argv(lane), stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, env=env,
            start_new_session=True,
        )  # fmt: skip
        samples = Samples(process.pid, server_pid)
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired as why:
            raise Failed(f"not done within {LIMIT_S} s") from why
        finally:
            samples.stop()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code:
        lines = log.read_text(errors="replace").strip().splitlines()
        raise Failed(f"exit code {code}: {(lines or ['no output'])[-1][:160]}")
    return samples


def _truth(stats: list[dict[str, int]], count: int, tokens: int, ranks: Ranks) -> Truth:
    done = [r for r in stats if r["end"] and r["first"]]
    if len(done) < count:
        raise Failed(f"the server answered {len(done)} requests whole, {count} were asked for")
    first = [(r["first"] - r["start"]) / _MS for r in done]
    visible = [(r["visible"] - r["start"]) / _MS for r in done if r["visible"]]
    span_s = (max(r["end"] for r in done) - min(r["start"] for r in done)) / _S
    return Truth(
        percentile(first, 0.5, ranks), percentile(first, 0.95, ranks), percentile(visible, 0.5, ranks),
        tokens * len(done) / span_s, len(done), max(r["late_ns"] for r in done) / _MS,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Sample:
    at_ns: int
    tool_s: float
    server_s: float
    busy_s: float
    rss_mib: float
    own_mib: float
    processes: int


class Samples:
    """Looks every `SAMPLE_S` at a process with its descendants, at the server, and at the whole machine."""

    def __init__(self, pid: int, server_pid: int) -> None:
        self._tool, self._server = psutil.Process(pid), psutil.Process(server_pid)
        self._seen: dict[int, float] = {}
        self._samples: list[_Sample] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _follow(self) -> None:
        turn = 0
        while not self._stopped.wait(SAMPLE_S):
            with suppress(psutil.Error):
                self._samples.append(self._look(owned=turn % 10 == 0))
            turn += 1

    def _look(self, owned: bool) -> _Sample:
        rss = own = 0.0
        tree = [self._tool, *self._tool.children(recursive=True)]
        for process in tree:
            with suppress(psutil.Error):
                used = process.cpu_times()
                self._seen[process.pid] = used.user + used.system
                rss += process.memory_info().rss / 2**20
                own += process.memory_full_info().uss / 2**20 if owned else 0.0
        server, whole = self._server.cpu_times(), psutil.cpu_times()
        busy = sum(whole) - whole.idle - getattr(whole, "iowait", 0.0) - getattr(whole, "guest", 0.0)
        return _Sample(time.monotonic_ns(), sum(self._seen.values()), server.user + server.system, busy, rss, own,
                       len(tree))  # fmt: skip

    def cost(self, began_ns: int, ended_ns: int) -> Cost:
        inside = [s for s in self._samples if began_ns <= s.at_ns <= ended_ns]
        if len(inside) < 2:
            raise Failed("it was too quick for its cost to be seen")
        first, last = inside[0], inside[-1]
        wall_s = (last.at_ns - first.at_ns) / _S
        tool, server = last.tool_s - first.tool_s, last.server_s - first.server_s
        other = last.busy_s - first.busy_s - tool - server
        return Cost(tool / wall_s, max(0.0, other / wall_s), max(s.rss_mib for s in inside),
                    max(s.own_mib for s in inside), max(s.processes for s in inside))  # fmt: skip
