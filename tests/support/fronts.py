"""The same small box behind each kind of gateway: real gateway processes, started as an operator starts them, and
tiny OpenAI-style upstreams on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx

from anvil_tui.adapters.haproxy_socket import socket_dir
from anvil_tui.adapters.toml_files import load_workspace
from anvil_tui.cli.wiring import gateway_control, gateway_reader
from anvil_tui.core.box import Expected, Gateway
from anvil_tui.core.chat import ChatAnswer
from anvil_tui.core.errors import AnvilError
from anvil_tui.core.gateway_routes import ROUTES_FILE, Routes
from anvil_tui.core.workspace import Workspace
from anvil_tui.ports import GatewayControl, GatewayReader
from tests.support.ports import free_ports
from tests.support.threaded import Handler, Threaded
from tests.support.wait import wait_until

CLIENT, ADMIN = "client-key-of-the-tests", "admin-key-of-the-tests"
KINDS = ("haproxy", "anvil-serving")
CONTEXT = 4096


class Upstream(Threaded):
    """Streams two chunks that hold its name, and echoes whatever model it was asked for. A message `wait` keeps
    the answer open after the first chunk until `go`. Its headers claim to be a gateway's, as none may."""

    def __init__(self, name: str, port: int) -> None:
        self.served = [f"model-{name}", "llm.primary"]
        self.asked: list[str] = []
        super().__init__(name, port, _handler(self))


def _handler(up: Upstream) -> type[Handler]:
    class Answering(Handler):
        def do_GET(self) -> None:
            body = json.dumps(
                {"object": "list", "data": [{"id": n, "object": "model"} for n in up.served]}
            ).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            up.asked.append(body["model"])
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("X-Anvil-Backend", "z")
            self.send_header("X-Anvil-Request-Id", "req_" + "0" * 32)
            self.send_header("Connection", "close")
            self.end_headers()
            try:
                self._say(body["model"], {"content": up.name})
                if body["messages"][-1]["content"] == "wait":
                    up.go.wait(30)
                self._say(body["model"], {"content": up.name})
                self._say(body["model"], {}, "stop")
                self.wfile.write(b"data: [DONE]\n\n")
            except OSError:
                up.broken += 1

        def _say(self, model: str, delta: dict[str, str], finish: str | None = None) -> None:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            chunk = {"id": "c", "object": "chat.completion.chunk", "model": model, "choices": [choice]}
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.flush()

    return Answering


@dataclass(frozen=True)
class Told:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def by(self) -> str:
        """The name of the upstream whose answer arrived whole, else ""."""
        lines = [line[6:] for line in self.text.splitlines() if line.startswith("data: ")]
        if self.status != 200 or not lines or lines[-1] != "[DONE]":
            return ""
        choices = [c for line in lines[:-1] for c in json.loads(line)["choices"]]
        names = [c["delta"]["content"] for c in choices if c["delta"].get("content")]
        return names[0] if len(names) == 2 and len(set(names)) == 1 else ""

    @property
    def answer(self) -> ChatAnswer:
        return ChatAnswer(self.status, headers=self.headers)


@dataclass
class Front:
    """Two roles: `a`, `b` for llm.primary and llm.fast; `c`, `d` for other."""

    directory: Path
    workspace: Workspace
    ups: dict[str, Upstream]
    generation: int = 0
    process: subprocess.Popen[bytes] | None = None
    streams: list[Stream] = field(default_factory=list)

    @property
    def kind(self) -> str:
        return self.workspace.gateway.kind

    @property
    def folder(self) -> Path:
        return self.directory / self.workspace.gateway.dir

    @cached_property
    def reader(self) -> GatewayReader:
        return gateway_reader(self.directory, self.workspace)

    @cached_property
    def control(self) -> GatewayControl:
        return gateway_control(self.directory, self.workspace)

    def seen(self) -> Gateway:
        return self.reader.snapshot()

    def point(self, **targets: str) -> None:
        """Keywords with `_` for `.`, as a new operation: point(llm_primary="a")."""
        self.generation += 1
        self.control.point({k.replace("_", "."): v for k, v in targets.items()}, self.generation, lambda at: None)

    def home(self) -> None:
        """Everything points at the first slots."""
        self.point(llm_primary="a", llm_fast="a", other="c")

    def ask(self, to: str, content: str = "hi", key: str = CLIENT) -> Told:
        with self.stream(to, content, key) as stream:
            return stream.end()

    def stream(self, to: str, content: str = "wait", key: str = CLIENT) -> Stream:
        way = self.reader.way(to, "model-of-the-engine")
        return Stream(way.base_url, way.model, content, key)

    def start(self) -> None:
        argv = [sys.executable, "-m", "anvil_tui.cli.main", "--workspace", str(self.directory), "gateway", "run"]
        env = {**os.environ, "CLIENT_KEY": CLIENT, "ADMIN_KEY": ADMIN}
        with (self.directory / "gateway.log").open("ab") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True, env=env)
        wait_until(self._answers, "the gateway answers")

    def _answers(self) -> Gateway | None:
        assert self.process is not None and self.process.poll() is None, (
            self.directory / "gateway.log"
        ).read_text()
        with contextlib.suppress(AnvilError):
            return self.seen()
        return None

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(30)
            self.process = None
            wait_until(self._gone, "nobody listens any more")

    def _gone(self) -> bool:
        try:
            httpx.get(f"http://{self.workspace.gateway.bind}/", trust_env=False, timeout=1)
        except httpx.ConnectError:
            return True
        except httpx.HTTPError:
            return False
        return False


class Stream:
    """One streamed request, begun in its own thread so that a gateway may hold it."""

    def __init__(self, url: str, model: str, content: str, key: str) -> None:
        body = {"model": model, "stream": True, "messages": [{"role": "user", "content": content}]}
        self._request: dict[str, Any] = {
            "url": f"{url}/v1/chat/completions", "json": body, "headers": {"Authorization": f"Bearer {key}"},
        }  # fmt: skip
        self.told: Told | None = None
        self.error = ""
        self.begun = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        text = ""
        try:
            with (
                httpx.Client(trust_env=False, verify=False, timeout=60) as client,
                client.stream("POST", **self._request) as got,
            ):
                for part in got.iter_text():
                    text += part
                    self.begun.set()
                self.told = Told(got.status_code, {k.lower(): v for k, v in got.headers.items()}, text)
        except httpx.HTTPError as why:
            self.error = type(why).__name__
        self.begun.set()

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def end(self) -> Told:
        self._thread.join(60)
        assert self.told is not None, self.error or "it goes on"
        return self.told

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(60)


@contextlib.contextmanager
def front(directory: Path, kind: str, *, binary: str = "", **policies: Any) -> Iterator[Front]:
    """Running, with every alias at its role's first slot; `binary` is the program of anvil.toml."""
    ports = free_ports(5)
    more = f'kind = "{kind}"\nadmin_key = "env:ADMIN_KEY"\n' if kind == "anvil-serving" else "hold_max_s = 30\n"
    roles = "".join(
        f'[[roles]]\nname = "{name}"\naliases = {json.dumps(aliases)}\nslots = ['
        + ", ".join(f'{{ name = "{s}", port = {p} }}' for s, p in slots) + "]\n"
        for name, aliases, slots in (
            ("primary", ["llm.primary", "llm.fast"], list(zip("ab", ports, strict=False))),
            ("other", ["other"], list(zip("cd", ports[2:], strict=False))),
        )
    )  # fmt: skip
    more += f"binary = {json.dumps(binary)}\n"
    rules = "".join(f"{k} = {json.dumps(v)}\n" for k, v in {"drain_timeout_s": 20, **policies}.items())
    (directory / "anvil.toml").write_text(
        'schema = "anvil.workspace/1"\n[box]\nname = "b"\nkind = "lab"\n[gateway]\n'
        f'bind = "127.0.0.1:{ports[4]}"\nclient_keys = ["env:CLIENT_KEY"]\n{more}[policies]\n{rules}{roles}'
    )
    made = Front(
        directory, load_workspace(directory), {s: Upstream(s, p) for s, p in zip("abcd", ports, strict=False)}
    )
    try:
        if kind == "anvil-serving":  # as a box is that has run before: each change of this would be a restart
            at = {"llm.primary": "a", "llm.fast": "a", "other": "c"}
            made.folder.mkdir(parents=True)
            expects = {s: Expected(f"model-{s}", CONTEXT) for s in made.ups}
            (made.folder / ROUTES_FILE).write_text(Routes(at, at, expects).text())
        made.start()
        made.home()
        yield made
    finally:
        for up in made.ups.values():
            up.close()
        made.stop()
        if (place := socket_dir(made.folder)) != made.folder:
            shutil.rmtree(place, ignore_errors=True)
