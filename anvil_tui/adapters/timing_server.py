"""A streaming chat server without a model, whose timing is exactly known: load generators are checked against it.

`python -m anvil_tui.adapters.timing_server` prints its port on stdout, listens on 127.0.0.1, and ends when its
stdin closes. Each request gets a script of writes on an absolute schedule: a late write delays no later one.

The truth is what it did, not what it meant to do. GET /stats gives, in nanoseconds of CLOCK_MONOTONIC, when the
last byte of each request came in (as the kernel stamped it, so that a queue in here is no error of the client) and
when each token-bearing chunk was written; POST /reset forgets. One thread over select(2), whose time-out is exact
to microseconds; epoll's is a millisecond.
"""

from __future__ import annotations

import heapq
import json
import select
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

TTFT_S, TOKEN_S = 0.200, 0.020
_NS = 1_000_000_000
_SO_TIMESTAMPNS = 35
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_END = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Write:
    """One write, `at_s` after the request. `kind` is `token` (of reasoning), `visible` (another) or `other`."""

    at_s: float
    kind: str
    data: bytes


Script = tuple[Write, ...]


def event(value: Mapping[str, object] | str) -> bytes:
    """One server-sent event as one transfer chunk."""
    data = b"data: " + (value if isinstance(value, str) else json.dumps(value)).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


def delta(fields: Mapping[str, object], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": fields, "finish_reason": finish}
    return event(
        {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "timing", "choices": [choice]}
    )


def ending(at_s: float, tokens: int, prompt_tokens: int) -> Write:
    """Finish reason, usage, end marker, in one write."""
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": tokens, "total_tokens": prompt_tokens + tokens}
    used = event({"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "timing", "choices": [],
                  "usage": usage})  # fmt: skip
    return Write(at_s, "other", delta({}, "length") + used + event("[DONE]") + _END)


def plain_script(path: str, asked: Mapping[str, object]) -> Script:
    """The first token after `TTFT_S`, then one each `TOKEN_S`, as many as asked for."""
    limit = asked.get("max_tokens")
    return _plain(limit if isinstance(limit, int) and limit > 0 else 16)


@cache
def _plain(tokens: int) -> Script:
    times = [TTFT_S + n * TOKEN_S for n in range(tokens)]
    return (*(Write(at, "visible", delta({"content": " t"})) for at in times), ending(times[-1], tokens, 8))


@dataclass(slots=True)
class Record:
    """One request as it was: nanoseconds. `late_ns` is how late the latest write was."""

    start: int
    first: int = 0
    visible: int = 0
    last: int = 0
    end: int = 0
    chunks: int = 0
    late_ns: int = 0


@dataclass(slots=True)
class _Peer:
    sock: socket.socket
    data: bytearray = field(default_factory=bytearray)
    arrived: int = 0
    script: Script = ()
    at: int = 0
    record: Record | None = None
    unsent: bytes = b""


class TimingServer:
    """`script(path, body)` says what is written for a POST; `get` answers other paths with JSON."""

    def __init__(
        self,
        script: Callable[[str, Mapping[str, object]], Script] = plain_script,
        get: Mapping[str, object] | None = None,
    ) -> None:
        self._script, self._get = script, dict(get or {})
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._listener.setblocking(False)
        _stamp(self._listener)
        self._peers: dict[socket.socket, _Peer] = {}
        self._due: list[tuple[int, int, _Peer]] = []
        self._count = 0
        self._records: list[Record] = []

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def run(self, until_readable: int) -> None:
        """Serve until that descriptor has something to read, or its other end closed."""
        while True:
            wait_s = max(0.0, (self._due[0][0] - time.monotonic_ns()) / _NS) if self._due else None
            watched: list[int | socket.socket] = [until_readable, self._listener, *self._peers]
            ready, _, _ = select.select(watched, [], [], wait_s)
            self._write_due()
            if until_readable in ready:
                return
            if self._listener in ready:
                self._accept()
            for sock in ready:
                if sock in self._peers:
                    self._read(self._peers[sock])

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _stamp(sock)
            self._peers[sock] = _Peer(sock)

    def _read(self, peer: _Peer) -> None:
        try:
            data, told, _, _ = peer.sock.recvmsg(1 << 18, 64)
        except BlockingIOError:
            return
        except OSError:
            data, told = b"", []
        if not data:
            return self._drop(peer)
        peer.arrived = _arrival(told)
        peer.data += data
        self._requests(peer)

    def _requests(self, peer: _Peer) -> None:
        """Begin the next whole request of a peer that has none under way."""
        end = peer.data.find(b"\r\n\r\n")
        if peer.script or end < 0:
            return
        lines = peer.data[:end].decode("latin-1").split("\r\n")
        method, path = lines[0].split(" ")[:2]
        named = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
        whole = end + 4 + int(named.get("content-length", 0))
        if len(peer.data) < whole:
            return
        body = bytes(peer.data[end + 4 : whole])
        del peer.data[:whole]
        if method == "POST" and path != "/reset":
            return self._begin(peer, path, body)
        if method == "POST":
            self._records = []
        found = self._get.get(path, {"requests": [_as_json(r) for r in self._records]} if path == "/stats" else {})
        raw = json.dumps(found).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(raw)
        self._send(peer, head + raw)
        self._requests(peer)

    def _begin(self, peer: _Peer, path: str, body: bytes) -> None:
        peer.script, peer.at = self._script(path, json.loads(body)), 0
        peer.record = Record(peer.arrived)
        self._records.append(peer.record)
        self._send(peer, _HEAD)
        self._plan(peer)

    def _plan(self, peer: _Peer) -> None:
        assert peer.record is not None
        self._count += 1
        due = peer.record.start + round(peer.script[peer.at].at_s * _NS)
        heapq.heappush(self._due, (due, self._count, peer))

    def _write_due(self) -> None:
        while self._due and self._due[0][0] <= time.monotonic_ns():
            due, _, peer = heapq.heappop(self._due)
            record = peer.record
            if record is None:
                continue  # the client went away
            write = peer.script[peer.at]
            now = time.monotonic_ns()
            self._send(peer, write.data)
            _note(record, write.kind, now, due)
            peer.at += 1
            if peer.record is None:
                continue
            if peer.at < len(peer.script):
                self._plan(peer)
            else:
                record.end, peer.record, peer.script = now, None, ()
                self._requests(peer)

    def _send(self, peer: _Peer, data: bytes) -> None:
        """A client that does not read for so long that its buffer fills is dropped: its timing means nothing."""
        try:
            sent = peer.sock.send(data)
        except OSError:
            sent = -1
        if sent != len(data):
            self._drop(peer)

    def _drop(self, peer: _Peer) -> None:
        self._peers.pop(peer.sock, None)
        peer.sock.close()
        peer.record, peer.script = None, ()


def _note(record: Record, kind: str, now: int, due: int) -> None:
    record.late_ns = max(record.late_ns, now - due)
    if kind == "other":
        return
    record.first, record.last = record.first or now, now
    record.visible = record.visible or (now if kind == "visible" else 0)
    record.chunks += 1


def _as_json(record: Record) -> dict[str, int]:
    return {name: getattr(record, name) for name in Record.__slots__}


def _stamp(sock: socket.socket) -> None:
    """Ask the kernel for arrival times where it knows how (Linux)."""
    if sys.platform == "linux":
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


def _arrival(told: list[tuple[int, int, bytes]]) -> int:
    """When the bytes just read came in, by the kernel's stamp where it gave one."""
    now = time.monotonic_ns()
    for level, kind, data in told:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS and len(data) == 16:
            seconds, nanoseconds = int.from_bytes(data[:8], sys.byteorder), int.from_bytes(data[8:], sys.byteorder)
            came = seconds * _NS + nanoseconds - _wall_ahead()
            return came if 0 <= now - came < _NS else now
    return now


def _wall_ahead() -> int:
    """Nanoseconds from the monotonic clock to the wall clock, by which the kernel stamps."""
    best, ahead = _NS, 0
    for _ in range(5):
        before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        if after - before < best:
            best, ahead = after - before, wall - before
        if best < 5000:
            break
    return ahead


def main() -> int:
    server = TimingServer()
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    server.run(sys.stdin.fileno())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
