"""The load generator program: runs one lane and writes what came back, with the nanosecond of every read.

`python -m anvil_tui.adapters.load_child`, used by `adapters.load_generator` alone. On stdin: one line of JSON
(host, port, head, streams, burst, timeout_s, requests), then one line a request, its body. A further line `end`
means that no other request begins; when stdin closes it ends at once. On stdout, for each finished request: a line
of JSON, then `reads` stamps (int64 ns), `reads` lengths (uint32), and that many bytes of the message body; at the
end one line `{"lane": ...}` about the instrument.

One thread and one epoll: with a thread a stream, threads wake each other for the interpreter lock. Whatever is
ready is read and stamped first and looked at later. No message is parsed here, and little is imported.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import gc
import json
import os
import resource
import select
import socket
import sys
import time
from collections import deque
from errno import EINPROGRESS
from typing import Any

from anvil_tui.core.http_body import Head

_now = time.monotonic_ns
_MS = 1_000_000
TICK_NS = 5 * _MS
CONNECT_NS = 5000 * _MS
DRAIN_NS = 50 * _MS
STALE_NS = 100 * _MS
READ_BYTES = 64 * 1024
ERROR_BYTES = 64 * 1024
MESSAGE_BYTES = 64 * 1024 * 1024
FLYING_BYTES = 512 * 1024 * 1024
IN, OUT = select.POLLIN, select.POLLOUT
_NOTHING = memoryview(b"")
_SET_PIPE_SIZE = 1031


class Stream:
    """One connection that makes one request after another; `n` is the request under way, -1 for none.

    `state` is closed, connect, idle, send, read or drain (the rest of a message whose end marker was seen).
    """

    __slots__ = (
        "began", "deadline", "head", "held", "mask", "n", "parts", "request", "sent", "size", "sock", "stale",
        "stamps", "state", "unsent",
    )  # fmt: skip

    def __init__(self) -> None:
        self.sock: socket.socket | None = None
        self.state, self.mask = "closed", 0
        self.take(-1, b"", b"", 0)

    def take(self, n: int, head: bytes, body: bytes, timeout_ns: int) -> None:
        self.n, self.size = n, len(body)
        self.request = memoryview(b"%sContent-Length: %d\r\n\r\n%s" % (head, len(body), body))
        self.unsent = _NOTHING
        self.began = _now()
        self.deadline = self.began + timeout_ns
        self.sent = self.held = self.stale = 0
        self.head = Head()
        self.stamps = array.array("q")
        self.parts: list[bytes] = []


class Lane:
    """All streams, the pipes to the parent, and the tick that tells how late this loop looks."""

    def __init__(self, plan: dict[str, Any], bodies: list[bytes], ended: bool) -> None:
        self.head = plan["head"].encode("latin-1")
        self.timeout_ns = int(plan["timeout_s"] * 1e9)
        self.waiting = deque(enumerate(() if ended else bodies))
        count = len(bodies) if plan["burst"] else min(plan["streams"], len(bodies))
        try:
            found = socket.getaddrinfo(plan["host"], plan["port"], type=socket.SOCK_STREAM)
        except OSError as why:
            sys.exit(f"{plan['host']}: {why.strerror}")
        self.family, self.address = found[0][0], found[0][4]
        self.streams = [Stream() for _ in range(count)]
        self.free = deque(self.streams)
        self.by_fd: dict[int, Stream] = {}
        self.poll: Any = select.epoll() if hasattr(select, "epoll") else select.poll()
        self.unit = 1e-9 if hasattr(select, "epoll") else 1e-6
        self.out: deque[memoryview] = deque()
        self.out_watched = False
        self.under_way = self.flying = self.last = self.ticks = 0
        self.lags = array.array("I")
        self.due = _now() + TICK_NS
        self.collected: list[int] = []
        _allow_files(count + 16)
        os.set_blocking(1, False)
        self.poll.register(0, IN)

    def run(self) -> None:
        """Connect all; then send, and go on until every request ended; then tell about the instrument."""
        for stream in self.streams:
            self._connect(stream)
        until = _now() + CONNECT_NS
        while any(s.state == "connect" for s in self.streams) and _now() < until:
            self._turn()
        gc.collect()
        gc.freeze()
        gc.disable()
        gc.callbacks.append(lambda phase, info: self.collected.append(_now()))
        self.lags = array.array("I")
        cpu, start = time.process_time_ns(), _now()
        self.last, self.due = start, start + TICK_NS
        self._begin_free()
        while self.under_way or self.waiting:
            self._turn()
            self._begin_free()
        self._tell_lane(start, time.process_time_ns() - cpu)

    def _begin_free(self) -> None:
        """One request for each stream that is free now; one that fails at once is free again in the next turn."""
        for _ in range(min(len(self.free), len(self.waiting))):
            self._begin(self.free.popleft())

    def _turn(self) -> None:
        """Wait for what is ready; read and stamp all of it; only then look at it."""
        asked = _now()
        wait = 0 if self.free and self.waiting else max(0, self.due - asked)
        wait += -wait % _MS  # the poll knows whole milliseconds only
        found, writable = [], []
        ready = self.poll.poll(max(0, wait - 1000) * self.unit)
        woken = min(_now(), asked + wait)
        for fd, what in ready:
            stream = self.by_fd.get(fd)
            if stream is None or stream.sock is None:
                self._pipe(fd)
            elif stream.state == "connect" or not what & ~OUT:
                writable.append(stream)
            else:
                try:
                    data: bytes | OSError = stream.sock.recv(READ_BYTES)
                except BlockingIOError:
                    continue
                except OSError as why:
                    data = why
                found.append((stream, _now(), data))
        for stream, stamp, data in found:
            self._take(stream, stamp, data)
        for stream in writable:
            self._writable(stream)
        if (now := _now()) >= self.due:
            self._tick(now, now - max(self.due, woken))

    def _tick(self, now: int, late: int) -> None:
        self.lags.append(min(max(0, late) // 1000, 0xFFFFFFFF))
        self.due = now + TICK_NS
        self.ticks += 1
        for stream in self.streams if self.ticks % 4 == 0 else ():
            if now >= stream.deadline and stream.state == "drain":
                self._close(stream)
                self.free.append(stream)
            elif now >= stream.deadline and stream.n >= 0:
                self._end(stream, now, "unreachable" if stream.state == "connect" else "deadline")

    def _connect(self, stream: Stream) -> None:
        stream.sock = sock = socket.socket(self.family, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.state, stream.mask = "connect", OUT
        self.by_fd[sock.fileno()] = stream
        self.poll.register(sock.fileno(), OUT)
        code = sock.connect_ex(self.address)
        if code not in (0, EINPROGRESS):
            self._end(stream, _now(), "unreachable", os.strerror(code))

    def _writable(self, stream: Stream) -> None:
        if stream.sock is None:
            return
        if stream.state == "send":
            self._push(stream)
        elif stream.state == "connect":
            code = stream.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                return self._end(stream, _now(), "unreachable", os.strerror(code))
            stream.state = "idle"
            self._watch(stream, IN)
            if stream.n >= 0:
                self._send(stream)

    def _watch(self, stream: Stream, mask: int) -> None:
        if stream.mask != mask and stream.sock is not None:
            stream.mask = mask
            self.poll.modify(stream.sock.fileno(), mask)

    def _close(self, stream: Stream) -> None:
        if stream.sock is not None:
            self.by_fd.pop(stream.sock.fileno(), None)
            self.poll.unregister(stream.sock.fileno())
            stream.sock.close()
        stream.sock, stream.state = None, "closed"

    def _begin(self, stream: Stream) -> None:
        n, body = self.waiting.popleft()
        stream.take(n, self.head, body, self.timeout_ns)
        self.under_way += 1
        if stream.state == "idle" and _still_open(stream.sock):
            stream.stale = _now() + STALE_NS
            self._send(stream)
        elif stream.state != "connect":
            self._close(stream)
            self._connect(stream)

    def _send(self, stream: Stream) -> None:
        stream.unsent, stream.state = stream.request, "send"
        self._push(stream)

    def _push(self, stream: Stream) -> None:
        assert stream.sock is not None
        try:
            stream.unsent = stream.unsent[stream.sock.send(stream.unsent) :]
        except BlockingIOError:
            pass  # the send buffer is full: epoll says when there is room, `unsent` keeps the rest
        except OSError:
            stream.unsent = _NOTHING  # a proxy may answer 413 and close before the body is through: read that
        if stream.unsent:
            return self._watch(stream, IN | OUT)
        stream.sent, stream.unsent, stream.state = _now(), _NOTHING, "read"
        self._watch(stream, IN)

    def _take(self, stream: Stream, stamp: int, data: bytes | OSError) -> None:
        if stream.state == "drain":
            self._drain(stream, data)
        elif stream.n < 0:
            self._close(stream)  # it closed, or spoke unasked, between two requests
        elif stamp < stream.stale and (not data or isinstance(data, OSError)):
            stream.stale = stream.sent = 0  # the server had closed the idle connection when the request came
            self._close(stream)
            self._connect(stream)
        elif isinstance(data, OSError):
            self._end(stream, stamp, "reset", os.strerror(data.errno or 0))
        elif not data:
            self._end(stream, stamp, "eof")
        else:
            stream.sent = stream.sent or stamp  # it answered before the request was through
            stream.stale, stream.request = 0, _NOTHING
            try:
                self._bytes(stream, stamp, data)
            except ValueError as why:
                self._end(stream, stamp, "not_http" if stream.head.framing is None else "unclean", str(why))

    def _bytes(self, stream: Stream, stamp: int, data: bytes) -> None:
        head = stream.head
        if head.framing is None:
            data = head.feed(data)
            if head.framing is None:
                return
        part = head.framing.feed(data)
        if part:
            stream.stamps.append(stamp)
            stream.parts.append(part)
            stream.held += len(part)
            self.flying += len(part)
        limit = MESSAGE_BYTES if head.status == 200 else ERROR_BYTES
        if head.framing.done:
            self._end(stream, stamp, "whole")
        elif head.marker is not None and head.marker.seen(part):
            self._end(stream, stamp, "marker")
        elif stream.held > limit:
            self._end(stream, stamp, "too_large", f"the message is longer than {limit} bytes")
        elif self.flying > FLYING_BYTES:
            self._end(stream, stamp, "too_large", f"the messages under way are longer than {FLYING_BYTES} bytes")

    def _drain(self, stream: Stream, data: bytes | OSError) -> None:
        framing = stream.head.framing
        with contextlib.suppress(ValueError):
            if framing is not None and isinstance(data, bytes) and data:
                framing.feed(data)
                if not framing.done:
                    return
                stream.state = "idle"
        if stream.state == "drain":
            self._close(stream)
        self.free.append(stream)

    def _end(self, stream: Stream, stamp: int, how: str, message: str = "") -> None:
        """Tell what came of the request and free the stream; its connection is kept where both sides can."""
        if stream.n < 0:
            return self._close(stream)  # it failed before any request: the request will try again
        self._tell(stream, stamp, how, message)
        self.last = max(self.last, stamp)
        self.under_way -= 1
        self.flying -= stream.held
        stream.n, head = -1, stream.head
        if how == "marker" and head.keep:
            stream.state, stream.deadline = "drain", _now() + DRAIN_NS
            return
        if how == "whole" and head.keep and head.status == 200:
            stream.state = "idle"
        else:
            self._close(stream)
        self.free.append(stream)

    def _pipe(self, fd: int) -> None:
        if fd == 1:
            self._flush()
        elif not os.read(0, 4096):
            os._exit(3)  # the parent is gone
        else:
            self.waiting.clear()

    def _tell(self, stream: Stream, stamp: int, how: str, message: str) -> None:
        framing = stream.head.framing
        told = {
            "n": stream.n, "began": stream.began, "sent": stream.sent, "end": stamp,
            "how": how, "message": message,
            "status": stream.head.status, "head": stream.head.raw.decode("latin-1"), "reads": len(stream.stamps),
            "bytes": stream.held, "chunked": framing is not None and framing.chunked,
            "missing": framing.length if framing else None, "sent_bytes": stream.size,
        }  # fmt: skip
        lengths = array.array("I", map(len, stream.parts))
        line = json.dumps(told).encode() + b"\n"
        self._write(b"".join((line, stream.stamps.tobytes(), lengths.tobytes(), *stream.parts)))

    def _write(self, data: bytes) -> None:
        self.out.append(memoryview(data))
        self._flush()

    def _flush(self) -> None:
        while self.out:
            try:
                wrote = os.write(1, self.out[0])
            except BlockingIOError:
                break
            self.out[0] = self.out[0][wrote:]
            if not self.out[0]:
                self.out.popleft()
        if bool(self.out) != self.out_watched:
            self.out_watched = bool(self.out)
            if self.out_watched:
                self.poll.register(1, OUT)
            else:
                self.poll.unregister(1)

    def _tell_lane(self, start: int, cpu: int) -> None:
        lags, seen = sorted(self.lags) or [0], self.collected
        told = {
            "start": start, "wall": self.last - start, "cpu": cpu, "rss_kib": _peak_rss_kib(),
            "lag_us": [lags[len(lags) // 2], lags[len(lags) * 99 // 100], lags[-1]],
            "collections": len(seen) // 2,
            "collection_max": max((b - a for a, b in zip(seen[::2], seen[1::2], strict=False)), default=0),
        }  # fmt: skip
        os.set_blocking(1, True)
        self._write(json.dumps({"lane": told}).encode() + b"\n")


def _still_open(sock: socket.socket | None) -> bool:
    """False when the server closed the connection, or left bytes on it that no request asked for."""
    try:
        if sock is not None:
            sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count if hard == resource.RLIM_INFINITY else hard, hard))


def _peak_rss_kib() -> int:
    """Of this program. ru_maxrss, where there is no /proc, also counts the larger parent before exec."""
    try:
        with open("/proc/self/status") as status:  # noqa: PTH123 - pathlib costs a megabyte
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "darwin" else 1)


def main() -> int:
    with contextlib.suppress(OSError):
        fcntl.fcntl(1, _SET_PIPE_SIZE, 1 << 20)  # a parent that is busy holds nothing up
    with open(0, "rb", closefd=False) as given:
        plan = json.loads(given.readline())
        bodies = [given.readline().rstrip(b"\n") for _ in range(plan["requests"])]
        os.set_blocking(0, False)
        lane = Lane(plan, bodies, ended=bool(given.peek(1)))
        del bodies
    lane.run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
