"""A program on a pseudo-terminal that we read: its bytes, first paint and keys, and what its processes cost."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

COLUMNS, ROWS = 120, 40
CHUNK = 65536
END_S = 3.0
_SEQUENCE = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])"
)
_ANSWERS = (
    (b"\x1b[?2026$p", b"\x1b[?2026;2$y"),  # synchronized output: known, off
    (b"\x1b[c", b"\x1b[?62;22c"),
    (b"\x1b[0c", b"\x1b[?62;22c"),
    (b"\x1b[6n", b"\x1b[1;1R"),
)
_TICK = os.sysconf("SC_CLK_TCK")


class Ended(Exception):
    """The program ended, or did not show what was waited for; with the end of what it wrote."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a stretch of time: `cpu_pct` of one core by all processes of the tool, bytes to the terminal a second."""

    cpu_pct: float
    bytes_s: float
    writes_s: float
    pss_mib: float
    processes: int


class Terminal:
    """Use as a context: all processes of the program are ended with it, each by its id."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        self.tail, self.total, self.reads = bytearray(), 0, 0
        self.began = time.perf_counter()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:  # the child becomes the program
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
            os.chdir(cwd)
            os.execvpe(argv[0], list(argv), dict(env))

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        seen = tree(self.pid)
        deadline = time.monotonic() + END_S
        while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                break
            with contextlib.suppress(Ended):
                self._take(0.02)
        for pid in seen[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os.close(self.fd)

    def _take(self, seconds: float) -> bytes:
        """What comes within so long, b"" when nothing does; queries of the program are answered."""
        if not select.select([self.fd], [], [], max(0.0, seconds))[0]:
            return b""
        try:
            got = os.read(self.fd, CHUNK)
        except OSError as why:  # the other side is closed
            raise Ended(f"it ended: {self.words()[-600:]!r}") from why
        self.total, self.reads = self.total + len(got), self.reads + 1
        for query, answer in _ANSWERS:
            if query in got:
                os.write(self.fd, answer)
        return got

    def words(self) -> bytes:
        return _SEQUENCE.sub(b"", bytes(self.tail))

    def until(self, pattern: bytes, seconds: float = 20.0) -> float:
        """Milliseconds from the start until what was written since, without escape sequences, has the pattern."""
        return (self._wait(re.compile(pattern), seconds) - self.began) * 1000

    def _wait(self, pattern: re.Pattern[bytes], seconds: float) -> float:
        now = time.perf_counter()
        deadline = now + seconds
        while not pattern.search(self.words()):
            if now >= deadline:
                break
            got = self._take(deadline - now)
            now = time.perf_counter()
            self.tail += got
        else:
            return now
        raise Ended(f"no {pattern.pattern!r} within {seconds:g} s: {self.words()[-600:]!r}")

    def drain(self, seconds: float, *, keep: bool = False) -> int:
        """Read for so long; how many bytes came. They are dropped unless they are to be kept in `tail`."""
        before, deadline = self.total, time.perf_counter() + seconds
        while (left := deadline - time.perf_counter()) > 0:
            got = self._take(left)
            self.tail += got if keep else b""
        return self.total - before

    def key_ms(self, key: bytes, shows: bytes, seconds: float = 5.0) -> float:
        """From the key until bytes that hold `shows` are read; what was written before does not count."""
        while self._take(0):
            pass
        self.tail.clear()
        began = time.perf_counter()
        os.write(self.fd, key)
        return (self._wait(re.compile(shows), seconds) - began) * 1000

    def cost(self, seconds: float) -> Cost:
        before, reads, pids = self.total, self.reads, tree(self.pid)
        used, began = cpu_s(pids), time.perf_counter()
        self.drain(seconds)
        pids = tree(self.pid)
        took = time.perf_counter() - began
        return Cost(
            100 * (cpu_s(pids) - used) / took, (self.total - before) / took, (self.reads - reads) / took,
            sum(map(pss_mib, pids)), len(pids),
        )  # fmt: skip


def tree(pid: int) -> list[int]:
    """A process and all below it, as they are now."""
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        for children in Path(f"/proc/{found[-1]}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # the thread ended
                todo += map(int, children.read_text().split())
    return found


def cpu_s(pids: Sequence[int]) -> float:
    """Seconds on a processor of these processes, ended threads and reaped children included.

    The kernel's clock of a process counts nanoseconds; of reaped children only ticks are kept (10 ms mostly).
    """
    return sum(map(_cpu_s, pids))


def _cpu_s(pid: int) -> float:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return time.clock_gettime((~pid << 3) | 2) + (int(stat[13]) + int(stat[14])) / _TICK
    except (OSError, ProcessLookupError):
        return 0.0


def pss_mib(pid: int) -> float:
    """Its share of memory, what it shares divided among the sharers; 0 once it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0
