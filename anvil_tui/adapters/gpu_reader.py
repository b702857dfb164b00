"""GPU readings from a program that can be killed.

The program prints one JSON snapshot a line on stdout, newest last (`core.gpu_wire` documents the form, its
`schema` key included); it may be our own reader, the same over `ssh BOX anvil-tui gpu-reader`, or a simulated
box. It ends when its stdout closes. What it writes on stderr is kept only to say why it ended.

A line that takes longer than the deadline means that the driver hangs: the program's process group is killed
and the reading becomes an error that keeps the last value. A new one starts after a back-off, and only when
the old one is really gone, so that a process stuck in the kernel never gets company.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace

from anvil_tui.adapters.child_env import child_env
from anvil_tui.core.box import Gpu, GpuSnapshot
from anvil_tui.core.gpu_wire import GpuFault, keep_rows, snapshot_from_json
from anvil_tui.core.reading import Reading
from anvil_tui.ports import Clock

# Interpreter start, imports and nvmlInit: nvmlInit alone can take seconds with persistence mode off.
START_DEADLINE_S = 20.0
BACKOFF_S = (1.0, 30.0)
MAX_LINE = 1024 * 1024
END_GRACE_S = 1.0
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)


def nvml_argv(interval_s: float, library_dir: str = "") -> tuple[str, ...]:
    """Our own reader, as a child of this interpreter."""
    argv = (sys.executable, "-m", "anvil_tui.adapters.nvml_child", "--interval", str(interval_s))
    return (*argv, "--library-dir", library_dir) if library_dir else argv


class ChildGpuReader:
    """`ports.GpuReader` over a child program. `read` returns the newest reading at once and never blocks.

    The first `read` starts the child; `close` ends it within about a second. `deadline_s` is how long one
    line may take, `start_deadline_s` the first one.
    """

    def __init__(
        self,
        argv: Sequence[str],
        deadline_s: float,
        clock: Clock,
        *,
        source: str = "nvml",
        start_deadline_s: float = START_DEADLINE_S,
    ) -> None:
        self._argv, self._deadline_s, self._clock, self._source = tuple(argv), deadline_s, clock, source
        self._start_deadline_s = max(start_deadline_s, deadline_s)
        self._reading: Reading[GpuSnapshot] = Reading.unknown("GPU reader starting", source)
        self._last: GpuSnapshot | None = None
        self._known: tuple[Gpu, ...] = ()
        self._wake_out, self._wake_in = os.pipe()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def read(self) -> Reading[GpuSnapshot]:
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="gpu-reader", daemon=True)
                self._thread.start()
        return self._reading

    def close(self) -> None:
        """Ends the child. Safe to call twice."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
        os.write(self._wake_in, b"x")
        if self._thread is not None:
            self._thread.join(timeout=2 * END_GRACE_S)
        if self._thread is None or not self._thread.is_alive():
            os.close(self._wake_out)
            os.close(self._wake_in)

    def _run(self) -> None:
        wait_s = BACKOFF_S[0]
        while not self._closed.is_set():
            lines = self._one_child()
            wait_s = BACKOFF_S[0] if lines else min(wait_s * 2, BACKOFF_S[1])
            self._pause(wait_s)

    def _pause(self, seconds: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_out, selectors.EVENT_READ)
            selector.select(seconds)

    def _one_child(self) -> int:
        """One child from start to end; how many good lines it gave."""
        try:
            child = subprocess.Popen(
                self._argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                start_new_session=True, env=child_env(),
            )  # fmt: skip
        except OSError as error:
            self._fail(f"GPU reader {self._argv[0]!r} cannot be started: {error}")
            return 0
        stream = _Stream(child, self._wake_out)
        try:
            return self._follow(child, stream)
        finally:
            stream.close()
            self._reap(child)

    def _follow(self, child: subprocess.Popen[bytes], stream: _Stream) -> int:
        lines, due = 0, self._clock.monotonic_s() + self._start_deadline_s
        while not self._closed.is_set():
            limit_s = self._deadline_s if lines else self._start_deadline_s
            event = stream.next(due - self._clock.monotonic_s())
            if isinstance(event, bytes):
                if not self._take(event):
                    return lines
                lines += 1
                due = self._clock.monotonic_s() + self._deadline_s
            elif event == "late":
                _kill(child)
                self._fail(f"no GPU reading for {limit_s:g} s; GPU reader (pid {child.pid}) killed")
                return lines
            elif event == "end":
                self._fail(_epitaph(child, stream.said))
                return lines
        return lines

    def _take(self, line: bytes) -> bool:
        now_s = self._clock.monotonic_s()
        try:
            value = snapshot_from_json(json.loads(line, parse_constant=_no_constant))
        except (ValueError, RecursionError) as error:
            self._fail(f"GPU reader {self._argv[0]!r} printed a line that is no snapshot: {error}")
            return False
        if isinstance(value, GpuSnapshot):
            gpus = keep_rows(self._known, value.gpus)
            self._known = gpus
            self._last = replace(value, gpus=gpus)
            self._reading = Reading.known(self._last, now_s, self._source)
        else:
            self._reading = self._faulty(value, now_s)
        return True

    def _faulty(self, fault: GpuFault, now_s: float) -> Reading[GpuSnapshot]:
        if fault.kind == "unavailable" and self._last is None:
            return Reading.unknown(str(fault), self._source, now_s)
        return Reading.error(str(fault), now_s, self._source, self._last)

    def _fail(self, reason: str) -> None:
        if not self._closed.is_set():
            self._reading = Reading.error(reason, self._clock.monotonic_s(), self._source, self._last)

    def _reap(self, child: subprocess.Popen[bytes]) -> None:
        """Kill what is left of the child and wait until it is gone; a console that closes does not wait for it."""
        _kill(child)
        while True:
            try:
                child.wait(END_GRACE_S)
                return
            except subprocess.TimeoutExpired:
                if self._closed.is_set():
                    return
                self._fail(
                    f"GPU reader (pid {child.pid}) does not die: it is stuck in the driver; not started again"
                )


class _Stream:
    """The child's output as events: a line, `late`, `end`, or `woken` by close."""

    def __init__(self, child: subprocess.Popen[bytes], wake: int) -> None:
        assert child.stdout is not None and child.stderr is not None
        self._out, self._err, self._wake = child.stdout, child.stderr, wake
        self._selector = selectors.DefaultSelector()
        for source in (self._out, self._err, wake):
            self._selector.register(source, selectors.EVENT_READ)
        self._buffer = bytearray()
        self._ready: list[bytes] = []
        self._said = bytearray()

    @property
    def said(self) -> str:
        """The last line of stderr."""
        lines = self._said.decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:200] if lines else ""

    def next(self, timeout_s: float) -> bytes | str:
        if self._ready:
            return self._ready.pop(0)
        events = self._selector.select(max(0.0, timeout_s)) if timeout_s > 0 else []
        if not events:
            return "late"
        sources = [key.fileobj for key, _ in events]
        if self._err in sources:
            self._read_stderr()
        if self._out in sources:
            return self._read_stdout()
        return "woken"

    def _read_stderr(self) -> None:
        chunk = os.read(self._err.fileno(), 65536)
        if not chunk:
            self._selector.unregister(self._err)
        self._said = (self._said + chunk)[-4096:]

    def _read_stdout(self) -> bytes | str:
        chunk = os.read(self._out.fileno(), 65536)
        if not chunk or len(self._buffer) > MAX_LINE:
            return "end"
        self._buffer += chunk
        *lines, rest = self._buffer.split(b"\n")
        self._buffer = bytearray(rest)
        self._ready += [bytes(line) for line in lines if line.strip()]
        return self._ready.pop(0) if self._ready else "woken"

    def close(self) -> None:
        self._selector.close()
        self._out.close()
        self._err.close()


def _kill(child: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the child's own process group, by its id; a group that is gone already is what we want."""
    if child.returncode is None:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def _epitaph(child: subprocess.Popen[bytes], said: str) -> str:
    try:
        code: int | None = child.wait(END_GRACE_S)
    except subprocess.TimeoutExpired:
        code = None
    how = "closed its output or printed an endless line" if code is None else f"ended with status {code}"
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):  # a number without a name
            how = f"was ended by {signal.Signals(-code).name}"
        how += ", as by a fault of the driver's library" if -code in _CRASHES else ""
    return f"GPU reader {how}" + (f": {said}" if said else "")


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")
