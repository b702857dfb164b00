"""A connected TCP socket with one deadline over all its calls."""

from __future__ import annotations

import socket
from collections.abc import Callable

_MIN_TIMEOUT_S = 0.001


class TimedSocket(socket.socket):
    """TimeoutError when `deadline_s` (of the clock `now`) has passed, or after `idle_s` of silence where given.
    `read_at_s` is when the last read returned."""

    now: Callable[[], float]
    deadline_s: float
    idle_s: float | None = None
    read_at_s: float = 0.0

    def left_s(self) -> float:
        left = self.deadline_s - self.now()
        if left <= 0:
            raise TimeoutError("deadline")
        return left

    def recv_into(self, *args: object, **kwargs: object) -> int:
        left = self.left_s()
        self.settimeout(max(_MIN_TIMEOUT_S, left if self.idle_s is None else min(left, self.idle_s)))
        got = super().recv_into(*args, **kwargs)  # type: ignore[arg-type]
        self.read_at_s = self.now()
        return got

    def sendall(self, *args: object, **kwargs: object) -> None:
        self.settimeout(max(_MIN_TIMEOUT_S, self.left_s()))
        super().sendall(*args, **kwargs)  # type: ignore[arg-type]


def connect(host: str, port: int, deadline_s: float, now: Callable[[], float]) -> TimedSocket:
    """OSError when nobody answers there, TimeoutError among them."""
    plain = socket.create_connection((host, port), timeout=max(_MIN_TIMEOUT_S, deadline_s - now()))
    sock = TimedSocket(plain.family, plain.type, plain.proto, fileno=plain.detach())
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.now, sock.deadline_s = now, deadline_s
    return sock
