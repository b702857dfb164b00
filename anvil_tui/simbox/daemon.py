"""The container engine's rules: containers and images, their life, and the words of its refusals."""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
import socket
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anvil_tui.simbox.dialects import DIALECTS
from anvil_tui.simbox.engine import Engine, Seat
from anvil_tui.simbox.gpus import Board, Card
from anvil_tui.simbox.logbook import LogBook
from anvil_tui.simbox.pace import Pace, stamp_ns
from anvil_tui.simbox.profile import read_profile

API, MIN_API, VERSION = "1.51", "1.24", "28.5.2"
FIRST_PID = 5_000_000  # above any kernel's pid_max: never a process of this machine
DEFAULT_GRACE_S = 10
VOLUMES = "/var/lib/docker/volumes"


class DockerError(Exception):
    """The daemon says no: `status` and the text of its `message`."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


@dataclass(slots=True)
class Image:
    """`ref` is `repo@sha256:…`; the id is the pinned digest, as with the containerd store."""

    ref: str
    entrypoint: tuple[str, ...] = ()
    size: int = 9_000_000_000

    @property
    def id(self) -> str:
        return self.ref.partition("@")[2]

    @property
    def repo(self) -> str:
        return self.ref.partition("@")[0]


@dataclass(slots=True)
class SimContainer:
    """One container. `config` and `host` are what create was given; times are wall clock ns, 0 = never."""

    id: str
    name: str
    image: Image
    config: dict[str, Any]
    host: dict[str, Any]
    created_ns: int
    logs: LogBook
    status: str = "created"
    pid: int = 0
    exit_code: int = 0
    error: str = ""
    oom_killed: bool = False
    started_ns: int = 0
    finished_ns: int = 0
    restart_count: int = 0
    engine: Engine | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    killed: bool = False
    by_hand: bool = False
    volumes: str = VOLUMES

    @property
    def running(self) -> bool:
        return self.status == "running"

    @property
    def words(self) -> tuple[str, ...]:
        """Entry point and arguments as executed."""
        entry = self.config.get("Entrypoint") or list(self.image.entrypoint)
        return (*entry, *(self.config.get("Cmd") or ()))

    @property
    def env(self) -> dict[str, str]:
        pairs = (e.partition("=") for e in self.config.get("Env") or ())
        return {k: v for k, _, v in pairs}


class Daemon:
    """State persists while the process runs. `pending` holds faults that the next call meets,
    `next_engine` switches that the next engine starts with."""

    def __init__(self, board: Board, pace: Pace, seed: int) -> None:
        self.board, self.pace = board, pace
        self.images: dict[str, Image] = {}
        self.catalogue: dict[str, Image] = {}
        self.containers: dict[str, SimContainer] = {}
        self.pending: dict[str, dict[str, str]] = {}
        self.next_engine: dict[str, dict[str, str]] = {}
        self.gpu_driver = True
        self.volumes = VOLUMES
        self._rng = random.Random(f"{seed}-daemon")
        self._pid = FIRST_PID
        self._events: deque[dict[str, Any]] = deque(maxlen=1000)
        self._event_count = 0
        self._happened = asyncio.Event()
        self._lives: set[asyncio.Task[None]] = set()

    # looking

    def find(self, name: str) -> SimContainer:
        """By full id, name, or unique id prefix, in that order."""
        if name in self.containers:
            return self.containers[name]
        wanted = name.removeprefix("/")
        named = [c for c in self.containers.values() if c.name == wanted]
        found = named or [c for c in self.containers.values() if len(name) >= 2 and c.id.startswith(name)]
        if len(found) > 1:
            raise DockerError(400, f"Multiple IDs found with provided prefix: {name}")
        if not found:
            raise DockerError(404, f"No such container: {name}")
        return found[0]

    def image(self, ref: str) -> Image:
        """By pinned reference, id, or repository where only one image has it."""
        for image in self.images.values():
            if ref in (image.ref, image.id, image.id.removeprefix("sha256:")):
                return image
        same = [i for i in self.images.values() if i.repo == ref.partition("@")[0]] if "@" not in ref else []
        if len(same) == 1:
            return same[0]
        raise DockerError(404, f"No such image: {ref}")

    # making and ending

    def create(self, name: str, body: Mapping[str, Any], container_id: str = "") -> SimContainer:
        self._fail("create_fails", 500)
        image = self.image(str(body.get("Image", "")))
        name = name or f"sim_{self._rng.getrandbits(32):08x}"
        if not re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+", name):
            raise DockerError(400, f"Invalid container name ({name}), only [a-zA-Z0-9][a-zA-Z0-9_.-] are allowed")
        self._free_name(name)
        config = {k: v for k, v in body.items() if k not in ("HostConfig", "NetworkingConfig")}
        made = SimContainer(
            id=container_id or hashlib.sha256(self._rng.randbytes(32)).hexdigest(),
            name=name,
            image=image,
            config=config,
            host=dict(body.get("HostConfig") or {}),
            created_ns=stamp_ns(),
            logs=LogBook(bool(config.get("Tty"))),
            volumes=self.volumes,
        )
        self.containers[made.id] = made
        self.event("create", made)
        return made

    def rename(self, container: SimContainer, name: str) -> None:
        self._free_name(name)
        container.name = name
        self.event("rename", container)

    def start(self, container: SimContainer) -> bool:
        """False when it runs already. A refusal leaves it `created`, code 128, with the text in `error`."""
        if container.running:
            return False
        try:
            cards = self._checked(container)
        except DockerError as why:
            container.error = why.message
            container.exit_code = 128
            raise
        self._pid += 100
        container.pid, container.status, container.error = self._pid, "running", ""
        container.exit_code, container.oom_killed, container.killed, container.by_hand = 0, False, False, False
        container.started_ns, container.finished_ns = stamp_ns(), 0
        container.ended.clear()
        container.logs.begin()
        self.event("start", container)
        life = asyncio.ensure_future(self._live(container, cards))
        self._lives.add(life)
        life.add_done_callback(self._lives.discard)
        return True

    async def stop(self, container: SimContainer, grace_s: float | None) -> bool:
        """SIGTERM, the grace, SIGKILL. False when it was not running."""
        self._fail("stop_fails", 500)
        if not container.running:
            return False
        grace = container.config.get("StopTimeout") or DEFAULT_GRACE_S if grace_s is None else grace_s
        self.kill(container, str(container.config.get("StopSignal") or "SIGTERM"))
        try:
            await asyncio.wait_for(container.ended.wait(), max(0.05, grace / self.pace.scale))
        except TimeoutError:
            self.kill(container, "SIGKILL")
            await container.ended.wait()
        self.event("stop", container)
        return True

    def kill(self, container: SimContainer, signal: str) -> None:
        if not container.running:
            raise DockerError(
                409, f"cannot kill container: {container.id}: container {container.id} is not running"
            )
        container.by_hand = True
        name = {"9": "KILL", "15": "TERM", "2": "INT"}.get(signal, signal.removeprefix("SIG"))
        self.event("kill", container, signal=name)
        container.killed = container.killed or name == "KILL"
        if container.engine is not None:
            container.engine.signal(name)
        elif name in ("KILL", "TERM", "INT"):
            container.exit_code = 137 if name == "KILL" else 143
            container.ended.set()

    async def remove(self, container: SimContainer, force: bool) -> None:
        if container.running:
            if not force:
                raise DockerError(
                    409,
                    f'cannot remove container "/{container.name}": container is running: stop the '
                    "container before removing or force remove",
                )
            self.kill(container, "SIGKILL")
            await container.ended.wait()
        del self.containers[container.id]
        self.event("destroy", container)

    async def close(self) -> None:
        """Every process ends, as when the host goes down."""
        for container in [c for c in self.containers.values() if c.running]:
            self.kill(container, "SIGKILL")
        await asyncio.gather(*self._lives, return_exceptions=True)

    # events

    def event(self, action: str, container: SimContainer, **more: str) -> None:
        now = stamp_ns()
        labels = {str(k): str(v) for k, v in (container.config.get("Labels") or {}).items()}
        attributes = {**labels, "image": container.image.ref, "name": container.name, **more}
        self._event_count += 1
        self._events.append(
            {
                "status": action,
                "id": container.id,
                "from": container.image.ref,
                "Type": "container",
                "Action": action,
                "Actor": {"ID": container.id, "Attributes": attributes},
                "scope": "local",
                "time": now // 1_000_000_000,
                "timeNano": now,
                "number": self._event_count,
            }
        )
        self._happened.set()

    async def events(self, since_ns: int, until_ns: int) -> AsyncGenerator[dict[str, Any], None]:
        """Past events from `since`, then new ones, until `until` where that is given."""
        seen = 0 if since_ns else self._event_count
        while True:
            for event in [e for e in self._events if e["number"] > seen]:
                seen = event["number"]
                if event["timeNano"] >= since_ns and not (until_ns and event["timeNano"] > until_ns):
                    yield {k: v for k, v in event.items() if k != "number"}
            if until_ns and until_ns <= stamp_ns():
                return
            self._happened.clear()
            wait = (until_ns - stamp_ns()) / 1e9 if until_ns else None
            try:
                await asyncio.wait_for(self._happened.wait(), wait)
            except TimeoutError:
                return

    # inside

    def _free_name(self, name: str) -> None:
        holder = next((c for c in self.containers.values() if c.name == name), None)
        if holder is not None:
            raise DockerError(
                409,
                f'Conflict. The container name "/{name}" is already in use by container '
                f'"{holder.id}". You have to remove (or rename) that container to be able to reuse that name.',
            )

    def _fail(self, name: str, status: int) -> None:
        """A one-shot fault of the daemon."""
        fault = self.pending.pop(name, None)
        if fault is not None:
            raise DockerError(int(fault.get("status", status)), fault.get("text", f"simulated fault {name}"))

    def _checked(self, container: SimContainer) -> Sequence[Card]:
        """The cards a start gets. Every refusal is in the daemon's words."""
        self._fail("start_fails", 500)
        for host_ip, port in _published(container.host):
            if not _port_free(host_ip, port):
                raise DockerError(
                    500,
                    "failed to set up container networking: driver failed programming external "
                    f"connectivity on endpoint {container.name} ({container.id}): failed to bind host port "
                    f"{host_ip}:{port}/tcp: address already in use",
                )
        requests = container.host.get("DeviceRequests") or []
        if requests and not self.gpu_driver:
            driver = requests[0].get("Driver") or ""
            wanted = " ".join(f"[{' '.join(c)}]" for c in requests[0].get("Capabilities") or [])
            raise DockerError(500, f'could not select device driver "{driver}" with capabilities: [{wanted}]')
        cards = self.board.select(requests)
        if isinstance(cards, str):
            raise DockerError(
                500,
                "failed to create task for container: failed to create shim task: OCI runtime create "
                "failed: runc create failed: unable to start container process: error during container init: "
                "error running prestart hook #0: exit status 1, stdout: , stderr: "
                f"nvidia-container-cli: device error: {cards}: unknown device: unknown",
            )
        return cards

    async def _live(self, container: SimContainer, cards: Sequence[Card]) -> None:
        profile = read_profile(container.image.ref, container.words, container.env, len(cards))
        kind = DIALECTS.get(profile.kind)
        if kind is None:
            await container.ended.wait()
        else:
            seat = Seat(container.id, container.pid, cards, bool(container.host.get("Init")))
            container.engine = Engine(profile, kind(), container.logs, self.board, self.pace, seat)
            container.engine.faults.update(self.next_engine)
            self.next_engine = {}
            container.exit_code = await container.engine.run()
        self._ended(container)
        if _restarts(container):
            await self._again(container)

    async def _again(self, container: SimContainer) -> None:
        """As its restart policy says: after 0.1 s, then twice as long each time."""
        container.status = "restarting"
        await self.pace.sleep(0.1 * 2 ** min(container.restart_count, 9))
        if container.status == "restarting" and container.id in self.containers:
            container.status = "exited"
            container.restart_count += 1
            self.start(container)

    def _ended(self, container: SimContainer) -> None:
        container.status, container.pid = "exited", 0
        container.finished_ns = stamp_ns()
        container.engine = None
        container.logs.end()
        container.ended.set()
        if container.oom_killed:
            self.event("oom", container)
        self.event("die", container, exitCode=str(container.exit_code))


def _restarts(container: SimContainer) -> bool:
    """Whether the daemon starts it again by itself; never what a person stopped or killed."""
    policy = container.host.get("RestartPolicy") or {}
    name, most = policy.get("Name") or "no", policy.get("MaximumRetryCount") or 0
    if container.by_hand or name == "no":
        return False
    return name != "on-failure" or (container.exit_code != 0 and (not most or container.restart_count < most))


def _published(host: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Host address and port of every published port."""
    bindings = host.get("PortBindings") or {}
    found = [b for rows in bindings.values() for b in rows or ()]
    return [(b.get("HostIp") or "0.0.0.0", int(b["HostPort"])) for b in found if b.get("HostPort")]


def _port_free(host_ip: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host_ip, port))
        except OSError:
            return False
    return True
