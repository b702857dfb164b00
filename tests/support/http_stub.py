"""A small HTTP server that answers from a table, on loopback or on a Unix socket; every request is recorded."""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import unquote

Answer = tuple[int, Any]
Route = Answer | Callable[["Handler"], Answer | None]


class Handler(BaseHTTPRequestHandler):
    """Looks up `METHOD PATH` (without query, without /vX.Y); a callable route may write the answer itself."""

    protocol_version = "HTTP/1.1"
    stub: HttpStub

    def setup(self) -> None:
        super().setup()
        self.stub.connections.append(self.connection)

    def address_string(self) -> str:
        return "client"

    def log_message(self, *args: Any) -> None:
        return

    def _serve(self) -> None:
        path = unquote(self.path.partition("?")[0])
        if path.startswith("/v1.") and path.count("/") > 1:
            path = path[path.index("/", 1) :]
        length = int(self.headers.get("Content-Length") or 0)
        self.body = json.loads(self.rfile.read(length) or b"null") if length else None
        self.stub.seen.append(
            (f"{self.command} {path}", self.path.partition("?")[2], self.body, dict(self.headers))
        )
        route = self.stub.routes.get(f"{self.command} {path}", (404, {"message": f"no route {path}"}))
        answer = route(self) if callable(route) else route
        if answer is not None:
            self.answer(*answer)

    do_GET = do_POST = do_DELETE = _serve

    def answer(self, status: int, body: Any, **headers: str) -> None:
        data = (
            body
            if isinstance(body, bytes)
            else body.encode()
            if isinstance(body, str)
            else json.dumps(body).encode()
        )
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", "0" if status == 204 else str(len(data)))
        self.end_headers()
        if status != 204:
            self.wfile.write(data)

    def chunks(self, *parts: bytes, whole: bool = True) -> None:
        """A 200 in chunks; without its end when not `whole`."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in parts:
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        if whole:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = not whole


class _Tcp(socketserver.ThreadingTCPServer):
    daemon_threads, allow_reuse_address = True, True


class _Unix(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


class HttpStub:
    """`routes` may be changed while it runs; `seen` holds (route, query, body, headers) of each request."""

    def __init__(self, routes: dict[str, Route]) -> None:
        self.routes = routes
        self.seen: list[tuple[str, str, Any, dict[str, str]]] = []
        self.connections: list[socket.socket] = []
        self.port = 0

    def count(self, route: str) -> int:
        return sum(1 for name, *_ in self.seen if name == route)


@contextlib.contextmanager
def serve(routes: dict[str, Route], *, unix: Path | None = None, port: int = 0) -> Iterator[HttpStub]:
    stub = HttpStub(routes)
    handler = type("BoundHandler", (Handler,), {"stub": stub})
    server: socketserver.BaseServer
    if unix is None:
        server = tcp = _Tcp(("127.0.0.1", port), handler)
        stub.port = tcp.server_address[1]
    else:
        server = _Unix(str(unix), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        for connection in stub.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        thread.join(2)
