"""A log faster than anybody reads, over a real socket (derailed/k9s#1019, #1483; docker/compose#2870)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.adapters.clock import SystemClock
from anvil_tui.adapters.docker_engine import DockerReader
from anvil_tui.core.world import LogView
from anvil_tui.service import log_follow
from anvil_tui.service.log_follow import MAX_BYTES, MAX_LINES, LogFollow
from tests.support.http_stub import Handler, HttpStub, serve
from tests.support.wait import wait_until

A = "a1" * 32
TAIL, BURST = 500, 30_000


def stamp(n: int) -> str:
    return f"2026-09-02T10:{n // 60_000_000:02d}:{n // 1_000_000 % 60:02d}.{n % 1_000_000:06d}000Z"


def lines(first: int, end: int, pad: str = "") -> bytes:
    made = (f"{stamp(n)} line {n}{pad}\n".encode() for n in range(first, end))
    return b"".join(b"\1\0\0\0" + len(text).to_bytes(4, "big") + text for text in made)


class Daemon:
    """One container whose log is a tail, then a burst, then silence until its process ends; it may start again."""

    def __init__(self, stub: HttpStub, end: int, pad: str) -> None:
        self.status, self.more, self.pad = "running", lines(TAIL, end, pad), pad
        self.over = threading.Event()
        stub.routes["GET /version"] = (200, {"ApiVersion": "1.45"})
        stub.routes["GET /images/sha256:1/json"] = (200, {"Id": "sha256:1"})
        stub.routes[f"GET /containers/{A}/json"] = lambda handler: (200, self.inspect())
        stub.routes[f"GET /containers/{A}/logs"] = self.log

    def inspect(self) -> dict[str, Any]:
        return {
            "Id": A, "Name": "/a", "Image": "sha256:1", "Config": {"Tty": False}, "State": {"Status": self.status},
            "HostConfig": {"LogConfig": {"Type": "json-file"}},
        }  # fmt: skip

    def log(self, handler: Handler) -> tuple[int, bytes] | None:
        if "follow=0" in handler.path:
            return 200, lines(0, TAIL, self.pad)
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(self.more)
        handler.wfile.flush()
        self.over.wait(30)
        handler.close_connection = True
        return None


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[HttpStub]:
    with serve({}, unix=tmp_path / "d.sock") as made:
        yield made


@pytest.mark.parametrize(
    ("pad", "kept"), [("", MAX_LINES), ("x" * 4096, MAX_BYTES // 4096)], ids=["short", "long"]
)
def test_a_burst_is_kept_within_bounds_and_every_line_is_counted(
    stub: HttpStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pad: str, kept: int
) -> None:
    """The newest lines in their order; kept and dropped make the whole; the next start of it goes on."""
    monkeypatch.setattr(log_follow, "RETRY_S", 0.05)
    end = TAIL + (BURST // 20 if pad else BURST)
    daemon = Daemon(stub, end, pad)
    views: list[LogView] = []
    follow = LogFollow(A, DockerReader(f"unix://{tmp_path}/d.sock"), SystemClock(), views.append)
    follow.start()
    wait_until(lambda: views and views[-1].lines[-1] == f"line {end - 1}{pad}", "the burst is read", 60)
    view = views[-1]
    assert kept * 0.98 <= len(view.lines) <= kept and sum(map(len, view.lines)) <= MAX_BYTES
    assert len(view.lines) + view.dropped == end
    assert view.lines == tuple(f"line {n}{pad}" for n in range(view.dropped, end))
    assert all(len(v.lines) <= MAX_LINES and len(v.lines) + v.dropped <= end for v in views)
    daemon.status, daemon.more = "exited", b""
    daemon.over.set()
    wait_until(lambda: views[-1].note == "the container has ended", "its end is told")
    daemon.over.clear()
    daemon.status, daemon.more = "running", lines(end, end + 1, pad)
    wait_until(lambda: views[-1].lines[-1] == f"line {end}{pad}", "its next start is shown")
    assert len(views[-1].lines) + views[-1].dropped == end + 1
    daemon.over.set()
    follow.stop()
    assert follow.join(5)
