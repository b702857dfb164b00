"""Timed requests from a process of their own (`adapters.load_child`), read and judged when they are over.

A console in the same process takes the p99 lateness of a chunk from 2 ms to over 100 ms. The child dies with this
process: its stdin closes.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from anvil_tui.adapters.child_env import child_env
from anvil_tui.adapters.load_answers import Frames
from anvil_tui.adapters.openai_client import endpoint, header_safe
from anvil_tui.core.errors import EffectFailed, Unreachable
from anvil_tui.core.measure import nearest_rank
from anvil_tui.ports import LoadLane, LoadRequest, LoadRun

MARGIN_S = 30.0
"""How long after the time-out of a request the child may say nothing before it is taken for stuck."""

_POLL_S = 0.1
_NS = 1e9
_CHILD = (sys.executable, "-m", "anvil_tui.adapters.load_child")
_TIMING = (sys.executable, "-m", "anvil_tui.adapters.timing_server")


class ChildLoadGenerator:
    """`ports.LoadGenerator`."""

    def __init__(self, argv: Sequence[str] = _CHILD) -> None:
        self._argv = tuple(argv)

    def run(self, lane: LoadLane, on_done: Callable[[int], None], cancelled: Callable[[], bool]) -> LoadRun:
        """As the port says. Raises Unreachable for a URL that is none."""
        plan = _plan(lane)
        with _Child(self._argv) as child:
            child.give(plan)
            frames, stopping = Frames(lane.requests), False
            while not frames.over:
                if not stopping and cancelled():
                    stopping = True
                    child.ask_to_end()
                before = frames.count
                frames.take(child.read(lane.timeout_s + MARGIN_S))
                for k in range(before, frames.count):
                    on_done(k + 1)
        return frames.run()

    def error_ms(self, streams: int) -> tuple[float, float]:
        """Against `adapters.timing_server`. Of fewer than 20 requests p95 is the largest."""
        count = max(2 * streams, 20)
        body = {"model": "timing", "messages": [], "max_tokens": 2, "stream": True}
        with timing_server() as port:
            url = f"http://127.0.0.1:{port}"
            lane = LoadLane(url, tuple(LoadRequest(n, body) for n in range(count)), streams, 30.0)
            run = self.run(lane, lambda done: None, lambda: False)
            read = [a.answer.ttft_any_s for a in run.answers if a.answer.ttft_any_s is not None]
            true = [(r["first"] - r["start"]) / _NS for r in timing_stats(port) if r["first"]]
        if not len(read) == len(true) == count:
            raise EffectFailed(
                f"the load generator read {len(read)} of {count} known answers: do not measure here"
            )
        p50, p95 = (1000 * (nearest_rank(read, q) - nearest_rank(true, q)) for q in (0.5, 0.95))
        return p50, p95


@contextmanager
def timing_server(argv: Sequence[str] = _TIMING) -> Iterator[int]:
    """The port of a fresh one. Raises EffectFailed when it cannot be started."""
    with _Child(argv) as child:
        said = b""
        while not said.endswith(b"\n"):
            said += child.read(MARGIN_S)
        yield int(said)


def timing_stats(port: int) -> list[dict[str, int]]:
    """What the timing server wrote, request by request, in nanoseconds."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/stats")
        return list(json.loads(connection.getresponse().read())["requests"])
    except (OSError, http.client.HTTPException) as why:
        raise EffectFailed(f"the timing server does not tell what it did: {why}") from why
    finally:
        connection.close()


def _plan(lane: LoadLane) -> bytes:
    try:
        url, key = endpoint(lane.base_url), header_safe(lane.api_key)
    except ValueError as why:
        raise Unreachable(lane.base_url, str(why)) from why
    host = url.hostname or ""
    fields = {
        "Host": f"[{host}]:{url.port or 80}" if ":" in host else f"{host}:{url.port or 80}",
        "Content-Type": "application/json",
        "Accept": "text/event-stream, application/json",
    } | ({"Authorization": f"Bearer {key}"} if key else {})
    head = f"POST {url.path.rstrip('/')}/v1/chat/completions HTTP/1.1\r\n"
    plan = {
        "host": host, "port": url.port or 80, "streams": lane.streams, "burst": lane.burst,
        "head": head + "".join(f"{k}: {v}\r\n" for k, v in fields.items()),
        "timeout_s": lane.timeout_s, "requests": len(lane.requests),
    }  # fmt: skip
    lines = [json.dumps(plan), *(json.dumps(dict(r.body), separators=(",", ":")) for r in lane.requests)]
    return "\n".join(lines).encode() + b"\n"


class _Child:
    """A child program in a session of its own, killed on the way out; its stderr says why it ended."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._name = argv[-1].rpartition(".")[2]
        try:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                start_new_session=True, bufsize=0, env=child_env(),
            )  # fmt: skip
        except OSError as why:
            raise EffectFailed(f"{self._name} cannot be started: {why}") from why
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._in, self._out, self._err = self._process.stdin, self._process.stdout, self._process.stderr
        self._said = b""
        self._selector = selectors.DefaultSelector()
        for source in (self._out, self._err):
            self._selector.register(source, selectors.EVENT_READ)
        self._silent_s = 0.0

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.wait()
        self._selector.close()
        for pipe in (self._in, self._out, self._err):
            pipe.close()

    def give(self, data: bytes) -> None:
        """To its stdin. Raises EffectFailed when it reads no more."""
        left = memoryview(data)
        try:
            while left:
                left = left[self._in.write(left) or 0 :]
        except OSError as why:
            raise self._ended() from why

    def ask_to_end(self) -> None:
        """One that has ended already is told nothing: what it wrote before is still to be read."""
        with contextlib.suppress(BrokenPipeError):
            self._in.write(b"end\n")

    def read(self, silence_s: float) -> bytes:
        """What it wrote within `_POLL_S`. Raises EffectFailed when it ended, or wrote nothing for `silence_s`."""
        began = time.monotonic()
        ready = [key.fileobj for key, _ in self._selector.select(_POLL_S)]
        if self._err in ready:
            said = os.read(self._err.fileno(), 65536)
            self._said = (self._said + said)[-4096:]
            if not said:
                self._selector.unregister(self._err)
        if self._out in ready:
            self._silent_s = 0.0
            found = os.read(self._out.fileno(), 1 << 20)
            if not found:
                raise self._ended()
            return found
        self._silent_s += time.monotonic() - began
        if self._silent_s > silence_s:
            raise EffectFailed(
                f"{self._name} (pid {self._process.pid}) said nothing for {silence_s:.0f} s: killed"
            )
        return b""

    def _ended(self) -> EffectFailed:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        if self._err in {key.fileobj for key in self._selector.get_map().values()}:
            os.set_blocking(self._err.fileno(), False)
            self._said += self._err.read() or b""
        lines = self._said.decode(errors="replace").strip().splitlines()
        return EffectFailed(
            f"{self._name} ended with status {self._process.returncode}: {(lines or ['?'])[-1][:200]}"
        )
