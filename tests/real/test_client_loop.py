"""The client loop itself: each way in which an answer can be wrong is an error, and so is a loop that ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from anvil_tui.adapters.toml_files import load_workspace
from tests.real.client_loop import MAX_S, ClientLoop
from tests.real.workspace import make_workspace
from tests.support.wait import wait_until

IMAGE = "registry.example/llama@sha256:" + "0" * 64


def chunk(model: str = "m", finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": "one"}, "finish_reason": finish}
    return {"model": model, "system_fingerprint": "b1", "choices": [choice], **more}


GOOD = [chunk(), chunk(finish="length"), "[DONE]"]
USAGE_LAST = [chunk(), chunk(finish="stop"), {"model": "m", "system_fingerprint": "b1", "choices": []}, "[DONE]"]


def serve(events: list[Any], port: int, status: int, backend: str) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            if backend:
                self.send_header("x-anvil-backend", backend)
            self.end_headers()
            for event in events:
                text = event if isinstance(event, str) else json.dumps(event)
                self.wfile.write(f"data: {text}\n\n".encode())

        def log_message(self, *args: Any) -> None:
            return

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


@contextmanager
def clients(
    folder: Path, events: list[Any], status: int = 200, backend: str = "primary-a", max_s: float = MAX_S
) -> Iterator[ClientLoop]:
    box = make_workspace(folder, "unix:///run/none.sock", IMAGE, folder)
    server = serve(events, int(load_workspace(box).gateway.bind.split(":")[1]), status, backend)
    thread = Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        with ClientLoop(box, max_s) as loop:
            yield loop
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("events", [GOOD, USAGE_LAST])
def test_whole_answers_of_one_engine_are_no_errors(tmp_path: Path, events: list[Any]) -> None:
    with clients(tmp_path / "box", events) as loop:
        loop.wait_answers(4)
    assert loop.errors() == []
    assert {(a["backend"], a["model"]) for a in loop.answers()} == {("primary-a", "m")}
    assert sorted(a["n"] for a in loop.answers()) == list(range(len(loop.answers())))
    assert all(a["ms"] > 0 for a in loop.answers())


@pytest.mark.parametrize(
    ("events", "backend", "words"),
    [
        ([chunk(), chunk()], "primary-a", "broke off (done False, finish '')"),
        ([chunk(), chunk(finish="stop")], "primary-a", "broke off (done False, finish 'stop')"),
        ([chunk(), "[DONE]"], "primary-a", "broke off (done True, finish '')"),
        ([chunk("m"), chunk("other", "stop"), "[DONE]"], "primary-a", "chunks of 2 engines"),
        ([chunk(), chunk(finish="stop", system_fingerprint="b2"), "[DONE]"], "primary-a", "chunks of 2 engines"),
        (GOOD, "", "from backend ''"),
        ([], "primary-a", "chunks of 0 engines"),
        ([chunk(), {"error": {"message": "no"}}], "primary-a", "error in the stream"),
        (["{broken"], "primary-a", "JSONDecodeError"),
    ],
)
def test_a_wrong_answer_is_an_error(tmp_path: Path, events: list[Any], backend: str, words: str) -> None:
    with clients(tmp_path / "box", events, backend=backend) as loop:
        loop.wait_answers(2)
    assert loop.answers() == []
    assert all(words in e["error"] for e in loop.errors())


def test_a_refusal_and_a_closed_port_are_errors(tmp_path: Path) -> None:
    with clients(tmp_path / "a", ["busy"], status=503) as loop:
        loop.wait_answers(1)
    assert loop.errors()[0]["error"].startswith("503: b'data: busy")
    closed = make_workspace(tmp_path / "b", "unix:///run/none.sock", IMAGE, tmp_path)
    with ClientLoop(closed) as loop:
        loop.wait_answers(1)
    assert "ConnectionRefusedError" in loop.errors()[0]["error"]


def test_a_loop_that_came_to_its_bound_is_an_error(tmp_path: Path) -> None:
    with clients(tmp_path / "box", GOOD, max_s=0.2) as loop:
        wait_until(loop.errors, "the bound is seen")
    assert loop.answers()
    assert [e["error"] for e in loop.errors()] == ["the client loop ended with 1, its clients stopped"]
