"""An HTTP server on a real socket that plays back exact bytes, for the answers no well-behaved engine gives."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

Step = bytes | float | str
"""Bytes to send; seconds to wait; `reset` to drop the connection hard; `hold` to keep it open until the end."""

SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


@dataclass(slots=True)
class Seen:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True)
class Scripted:
    """`url` is where it listens; `seen` holds the requests in order of arrival."""

    url: str
    seen: list[Seen] = field(default_factory=list)


Script = Sequence[Step] | Callable[[Seen], Sequence[Step]]


@contextmanager
def scripted(*scripts: Script, read_body: bool = True) -> Iterator[Scripted]:
    """Serve each connection with the next script, the last one for ever."""
    listener = socket.create_server(("127.0.0.1", 0))
    closing = threading.Event()
    server = Scripted(f"http://127.0.0.1:{listener.getsockname()[1]}")
    threads: list[threading.Thread] = []

    def accept() -> None:
        turn = 0
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            script = scripts[min(turn, len(scripts) - 1)]
            turn += 1
            threads.append(threading.Thread(target=_play, args=(peer, script, server, closing, read_body)))
            threads[-1].start()

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield server
    finally:
        closing.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join(5)
        for thread in threads:
            thread.join(5)


def _play(
    peer: socket.socket, script: Script, server: Scripted, closing: threading.Event, read_body: bool
) -> None:
    with peer:
        peer.settimeout(10)
        try:
            seen = _request(peer, read_body)
            server.seen.append(seen)
            for step in script(seen) if callable(script) else script:
                if isinstance(step, bytes):
                    peer.sendall(step)
                elif isinstance(step, float):
                    closing.wait(step)
                elif step == "reset":
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                elif step == "hold":
                    closing.wait(30)
        except OSError:
            return  # the client went away, which some scripts are about


def _some(peer: socket.socket) -> bytes:
    if not (data := peer.recv(65536)):
        raise ConnectionError("the client closed before its request was whole")
    return data


def _request(peer: socket.socket, read_body: bool) -> Seen:
    data = b""
    while b"\r\n\r\n" not in data:
        data += _some(peer)
    head, body = data.split(b"\r\n\r\n", 1)
    first, *rest = head.decode().split("\r\n")
    headers = {k.lower(): v.strip() for k, v in (line.split(":", 1) for line in rest)}
    while read_body and len(body) < int(headers.get("content-length", 0)):
        body += _some(peer)
    return Seen(first.split(" ")[1], headers, body)


def answer(
    body: bytes | dict[str, Any], status: str = "200 OK", kind: str = "application/json", **headers: str
) -> bytes:
    """A whole response with a length."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    extra = "".join(f"{k.replace('_', '-')}: {v}\r\n" for k, v in headers.items())
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(raw)}\r\n{extra}\r\n".encode() + raw


def chunk(**delta: Any) -> bytes:
    """One event with one delta; `finish` is its finish reason."""
    finish = delta.pop("finish", None)
    return (
        b"data: "
        + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}).encode()
        + b"\n\n"
    )


DONE = b"data: [DONE]\n\n"
