"""The engine reader on a real llama.cpp server in a container."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.adapters.clock import SystemClock
from anvil_tui.adapters.engine_http import HttpEngineReader
from anvil_tui.core.box import Engine
from tests.support.docker_box import LLAMA, MODEL, Box, free_port
from tests.support.wait import wait_until

pytestmark = pytest.mark.real


class Server:
    """One llama.cpp container and where it answers."""

    def __init__(self, box: Box, host: str) -> None:
        self.box, self.host, self.port, self.container_id = box, host, free_port(), ""
        self.reader = HttpEngineReader(SystemClock(), host=host)

    def start(self, *more: str, **fields: Any) -> None:
        argv = (
            "-m",
            MODEL,
            "--host",
            "0.0.0.0",
            "--port",
            str(self.port),
            "-t",
            "1",
            "--alias",
            "tiny,tiny-b",
            *more,
        )
        self.container_id = self.box.started(self.box.spec(argv, **fields))

    def read(self) -> Engine:
        return self.reader.read(LLAMA, self.port)

    def ready(self) -> Engine:
        return wait_until(lambda: e if (e := self.read()).http == "ready" else None, "engine ready")

    def stream(self, tokens: int) -> None:
        body = json.dumps(
            {"prompt": "Once upon a time", "n_predict": tokens, "ignore_eos": True, "stream": True}
        ).encode()
        request = urllib.request.Request(f"http://{self.host}:{self.port}/completion", body)
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()


@pytest.fixture
def server(real_docker: Any, llama_image: str, models_dir: Path) -> Iterator[Server]:
    box = Box(real_docker.url, llama_image, models_dir)
    made = Server(box, getattr(real_docker, "host", "127.0.0.1"))
    yield made
    made.reader.close()
    box.close()


def test_refused_then_starting_then_ready_then_refused(server: Server) -> None:
    assert server.read().http == "refused"
    server.start("-c", "512", cpus=0.1)
    loading = wait_until(lambda: e if (e := server.read()).http == "starting" else None, "loading seen")
    assert loading.reason == "HTTP 503: Loading model"
    assert (loading.served, loading.running, loading.context_tokens) == ((), None, None)
    assert server.ready().served == ("tiny", "tiny-b")
    server.box.control.stop(server.container_id, 5)
    assert server.read().http == "refused"


def test_ready_engine_tells_identity_and_figures(server: Server) -> None:
    server.start("-c", "1024", "-np", "2", "--metrics")
    engine = server.ready()
    assert (engine.served, engine.context_tokens, engine.slots) == (("tiny", "tiny-b"), 512, 2)
    assert (engine.metrics, engine.running, engine.waiting, engine.progress) == ("on", 0, 0, 0.0)
    assert engine.kv_used is None
    assert engine.capacity is None, "two slots: whether they share one pool is in the log only"
    assert engine.version
    assert engine.reason == ""


def test_one_slot_is_the_pool(server: Server) -> None:
    server.start("-c", "512", "-np", "1")
    engine = server.ready()
    assert engine.metrics == "off"
    assert engine.running is None
    assert engine.capacity is not None
    assert (engine.capacity.tokens, engine.capacity.per_request_tokens) == (512, 512)


def test_progress_moves_while_one_request_streams(server: Server) -> None:
    server.start("-c", "2048", "-np", "1", "--metrics")
    server.ready()
    thread = threading.Thread(target=server.stream, args=(600,))
    thread.start()
    try:
        first = wait_until(lambda: e if (e := server.read()).running == 1 and e.progress else None, "request seen")
        assert first.progress is not None
        more = wait_until(lambda: e if (e := server.read()).progress != first.progress else None, "progress")
        assert thread.is_alive(), "the counter moved before the request ended"
        assert (more.progress or 0) > first.progress
    finally:
        thread.join()


def test_an_engine_that_asks_for_a_key_is_ready_without_an_identity(server: Server) -> None:
    server.start("-c", "512", "--metrics", "--api-key", "k-right")
    bare = server.ready()
    assert (bare.http, bare.served, bare.metrics) == ("ready", (), "error")
    assert bare.reason == "/v1/models: HTTP 401: Invalid API Key"
