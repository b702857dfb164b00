"""A server of a test on a port of loopback, each request in a thread of its own, that can keep answers open."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        return


class Server(ThreadingHTTPServer):
    # With the five of its base class the kernel drops connections of a test with many clients.
    request_queue_size = 1024
    daemon_threads = True


class Threaded:
    """`go` lets the answers end that a test keeps open; closing does, too."""

    def __init__(self, name: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        self.name, self.port, self.go, self.broken = name, port, threading.Event(), 0
        self._server = Server(("127.0.0.1", port), handler)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.go.set()
        self._server.shutdown()
        self._server.server_close()
