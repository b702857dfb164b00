"""A program on a pseudo-terminal of its own: read it, press keys, resize, hang up, see how it ended."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
_SEQUENCE = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])"
)


class TerminalProcess:
    """`out` is everything read so far."""

    def __init__(
        self,
        args: Sequence[str],
        env: Mapping[str, str],
        size: tuple[int, int] = (80, 24),
        *,
        ignore_hup: bool = False,
    ) -> None:
        self.out = bytearray()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:  # pragma: no cover - the child becomes the program
            if ignore_hup:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
            os.chdir(ROOT)
            time.sleep(0.05)  # the size is set before the program asks for it
            os.execvpe(sys.executable, [sys.executable, *args], dict(env))
        self.resize(*size)
        self.status: int | None = None
        self.open = True

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds: float) -> None:
        """Read what comes for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._take(0.02)

    def _take(self, wait: float) -> None:
        if not self.open or not select.select([self.fd], [], [], wait)[0]:
            return
        try:
            self.out += os.read(self.fd, 65536)
        except OSError:  # the other side is closed
            self.open = False

    def until(self, text: bytes, seconds: float = 15) -> None:
        end = time.monotonic() + seconds
        while text not in self.words:
            if time.monotonic() > end or not self.alive():
                raise AssertionError(f"no {text!r} within {seconds} s; read {bytes(self.out[-2000:])!r}")
            self._take(0.02)

    @property
    def words(self) -> bytes:
        """What was written, without escape sequences."""
        return _SEQUENCE.sub(b"", bytes(self.out))

    def press(self, keys: bytes) -> None:
        os.write(self.fd, keys)

    def kill(self, number: int) -> None:
        os.kill(self.pid, number)

    def hang_up(self) -> None:
        self.open = False
        os.close(self.fd)

    def alive(self) -> bool:
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = status if pid else None
        return self.status is None

    def wait(self, seconds: float, *, read: bool = True) -> tuple[int, float]:
        """Exit code (negative for a signal) and how long it took from now on."""
        start = time.monotonic()
        while self.alive():
            if time.monotonic() - start > seconds:
                raise AssertionError(f"still running after {seconds} s")
            if read and self.open:
                self._take(0.02)
            else:
                time.sleep(0.02)
        took = time.monotonic() - start
        if read:
            self.read(0.1)
        assert self.status is not None
        return os.waitstatus_to_exitcode(self.status), took

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def sane(self) -> dict[str, bool]:
        """Whether the terminal is left as a shell wants it."""
        local = termios.tcgetattr(self.fd)[3]
        out = bytes(self.out)
        last = {
            mode: max(out.rfind(b"\x1b[?%bh" % mode), -1) < out.rfind(b"\x1b[?%bl" % mode)
            for mode in (b"1049", b"2004")
        }
        mouse = all(b"\x1b[?%bh" % m not in out or out.rfind(b"\x1b[?%bl" % m) > out.rfind(b"\x1b[?%bh" % m)
                    for m in (b"1000", b"1002", b"1003", b"1006"))  # fmt: skip
        return {
            "echo": bool(local & termios.ECHO),
            "canonical": bool(local & termios.ICANON),
            "alternate screen left": last[b"1049"],
            "bracketed paste off": last[b"2004"],
            "mouse off": mouse,
            "cursor shown": out.rfind(b"\x1b[?25h") > out.rfind(b"\x1b[?25l"),
        }

    def end(self) -> None:
        """Only this process, by its id."""
        if self.alive():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        if self.open:
            os.close(self.fd)
