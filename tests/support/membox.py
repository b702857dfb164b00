"""A whole box in memory, for tests of planning and execution: real journal, record and lease on disk.

Containers, gateway and engines are small state machines; `Killed` at a checkpoint stands for SIGKILL (it is
no Exception, so nothing in the product can catch it).
"""

from __future__ import annotations

import builtins
import dataclasses
import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from anvil_tui.adapters.box_file import BoxFile
from anvil_tui.adapters.config_files import ConfigFileControl, ConfigFileReader
from anvil_tui.adapters.hf_cache import HubCaches
from anvil_tui.adapters.journal_file import OperationFolders
from anvil_tui.adapters.lease import FileLease
from anvil_tui.adapters.secrets import find
from anvil_tui.core.box import (
    MIB,
    Backend,
    Container,
    Daemon,
    Engine,
    Expected,
    Gateway,
    Gpu,
    GpuGrant,
    GpuProcess,
    GpuSnapshot,
    Host,
    Request,
    SharedFile,
)
from anvil_tui.core.credentials import Proof
from anvil_tui.core.errors import EffectFailed, NotFound, Refused, Unreachable
from anvil_tui.core.gates import Gate, GateResult, Suite, SuiteFile, Verdict
from anvil_tui.core.plan import Intent, Plan
from anvil_tui.core.reading import Reading
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.routing import Origin, Way, origin_by_header
from anvil_tui.core.secrets import Secret
from anvil_tui.core.storage import StoredImage
from anvil_tui.core.workspace import Workspace
from anvil_tui.core.world import RecipeFile
from anvil_tui.ports import ChatAnswer, ChatRequest, ContainerSpec, LogLine
from anvil_tui.ports.surroundings import FileLook, HashLook, PortLook
from anvil_tui.service.box import Box, Controls
from anvil_tui.service.gates.session import GateTarget
from anvil_tui.service.operation import Mode, operate, prepare
from anvil_tui.service.planning import plan

GPU = "GPU-aaaa0000-0000-0000-0000-000000000001"
IMAGE = "registry.invalid/engine@sha256:" + "a" * 64


class Killed(BaseException):
    """The process is gone."""


def recipe(id_: str, *, exclusive: bool = False, **more: Any) -> Recipe:
    fields: dict[str, Any] = {
        "schema": "anvil.recipe/1", "id": id_, "family": "smol", "engine": "llamacpp", "served_name": id_,
        "exclusive": exclusive, "rollback": "none: test", "suite": "small",
        "image": {"ref": IMAGE}, "model": {"repo": "r", "path": "/m"},
        "launch": {"argv": ("--port", "{port}", "--alias", "{served_name}"), "start_deadline_s": 5},
        "envelope": {"context_tokens": 2048, "max_output_tokens": 256, "concurrency": 2},
        **more,
    }  # fmt: skip
    return Recipe.model_validate(fields)


def workspace(**policies: Any) -> Workspace:
    return Workspace.model_validate({
        "schema": "anvil.workspace/1",
        "box": {"name": "testbox", "kind": "lab"},
        "gateway": {"client_keys": ("env:KEY",), "bind": "127.0.0.1:9100"},
        "policies": {"drain_timeout_s": 1, "verify_requests": 2, **policies},
        "roles": ({
            "name": "primary", "aliases": ("llm.primary", "llm.secondary"), "promotion_suite": "small",
            "slots": ({"name": "primary-a", "port": 9131}, {"name": "primary-b", "port": 9132}),
        },),
    })  # fmt: skip


SMALL = Suite.model_validate(
    {"schema": "anvil.suite/1", "id": "small", "gates": ({"id": "smoke", "kind": "smoke"},)}
)


class Clock:
    """Time moves only by sleeping. `later` holds what happens when it comes to a time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.later: list[tuple[float, Callable[[], object]]] = []

    def after(self, seconds: float, do: Callable[[], object]) -> None:
        self.later.append((self.now + seconds, do))

    def monotonic_s(self) -> float:
        return self.now

    def utc(self) -> datetime:
        return datetime.fromtimestamp(1_790_000_000 + self.now, UTC)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        due = [each for each in self.later if each[0] <= self.now]
        self.later = [each for each in self.later if each not in due]
        for _, do in due:
            do()


class Docker:
    """Reader and control over one dict. `dies` holds recipe ids whose container exits at start, `deaf` those
    that SIGTERM does not end."""

    def __init__(self) -> None:
        self.all: dict[str, Container] = {}
        self.dies: set[str] = set()
        self.deaf: set[str] = set()
        self.refuses_start: set[str] = set()
        self.hashes: dict[str, str] = {}
        self.started: list[str] = []
        self.silent_calls = 0
        self.log = "fatal: no such model"

    def list(self) -> tuple[Container, ...]:
        return tuple(self.all.values())

    def inspect(self, container_id: str) -> Container:
        if self.silent_calls:
            self.silent_calls -= 1
            raise Unreachable("unix:///docker.sock", "connection refused")
        if container_id not in self.all:
            raise NotFound(f"no container {container_id}")
        return self.all[container_id]

    def image_id(self, ref: str) -> str | None:
        return "sha256:" + "b" * 64 if ref == IMAGE else None

    def size_of(self, container_id: str, path: str) -> int | None:
        raise NotFound(f"{path} does not exist")

    def sha256(self, container_id: str, path: str, timeout_s: float) -> str:
        if path not in self.hashes:
            raise NotFound(f"{path} is no file")
        return self.hashes[path]

    def daemon(self) -> Daemon:
        if self.silent_calls:
            raise Unreachable("unix:///docker.sock", "connection refused")
        return Daemon("27.0", "6.8.0")

    def logs(self, container_id: str, *, tail: int = 2000) -> tuple[LogLine, ...]:
        return (LogLine(self.log),)

    def create(self, spec: ContainerSpec) -> str:
        id_ = hashlib.sha256(f"{spec.name}{len(self.all)}".encode()).hexdigest()
        self.all[id_] = Container(
            id_, spec.name, "created", "sha256:" + "b" * 64, spec.image_ref, dict(spec.labels),
            argv=spec.argv, restart_policy="no", restart_count=0, mounts=tuple(spec.mounts),
            gpus=GpuGrant(spec.gpu_uuids, "uuids", spec.gpu_uuids) if spec.gpu_uuids else GpuGrant(),
        )  # fmt: skip
        return id_

    def start(self, container_id: str) -> None:
        seen = self.inspect(container_id)
        if container_id in self.refuses_start:
            raise EffectFailed("daemon: cannot start")
        dead = seen.labels.get("anvil.recipe") in self.dies
        changes: dict[str, Any] = {"status": "exited", "exit_code": 1} if dead else {"status": "running"}
        self.all[container_id] = dataclasses.replace(seen, started_at="2026-01-01T00:00:00Z", **changes)
        self.started.append(container_id)

    def stop(self, container_id: str, grace_s: int) -> None:
        deaf = self.inspect(container_id).labels.get("anvil.recipe") in self.deaf
        code, self.log = (137, "still busy") if deaf else (0, "shut down in good order")
        self.all[container_id] = dataclasses.replace(self.inspect(container_id), status="exited", exit_code=code)

    def remove(self, container_id: str) -> None:
        self.all.pop(container_id, None)

    def pull(self, ref: str, on_progress: Callable[[str], None]) -> None:
        raise EffectFailed("not needed")

    def running(self) -> builtins.list[Container]:
        return [c for c in self.all.values() if c.running]

    def sneak(self, recipe_id: str, port: int) -> Container:
        """A running container that carries our label and is on nobody's record."""
        labels = {"anvil.op": "x", "anvil.recipe": recipe_id}
        made = self.create(ContainerSpec("stray", IMAGE, (str(port),), labels=labels))
        self.start(made)
        return self.all[made]

    def on_port(self, port: int) -> Container | None:
        return next((c for c in self.running() if str(port) in c.argv), None)


class Images:
    """Images of the daemon over one dict; each has layers of its own."""

    def __init__(self) -> None:
        self.all: dict[str, StoredImage] = {}

    def images(self) -> tuple[StoredImage, ...]:
        return tuple(self.all.values())

    def disk_bytes(self) -> int:
        return sum(i.bytes or 0 for i in self.all.values())

    def remove(self, image_id: str, names: Iterable[str]) -> None:
        found, gone = self.all.pop(image_id), set(names)
        pins, tags = (tuple(n for n in some if n not in gone) for some in (found.pins, found.tags))
        if pins or tags:
            self.all[image_id] = dataclasses.replace(found, pins=pins, tags=tags)


class Gate_:
    """The gateway: a durable map, a running map, counts."""

    def __init__(self, ports: Mapping[str, int]) -> None:
        self.ports = ports
        self.file = {"llm.primary": "none", "llm.secondary": "none"}
        self.live = dict(self.file)
        self.generation = 0
        self.in_flight: dict[str, int | None] = dict.fromkeys(ports, 0)
        self.requests: dict[str, list[Request]] = {}
        self.severed: list[str] = []
        self.accepted = {"key-of-the-clients"}
        self.silent_calls = 0
        self.history: list[dict[str, str]] = []

    def snapshot(self) -> Gateway:
        if self.silent_calls:
            self.silent_calls -= 1
            raise Unreachable("gateway", "connection refused")
        backends = tuple(Backend(n, f"127.0.0.1:{p}", self.in_flight[n]) for n, p in self.ports.items())
        known = [b.name for b in backends if b.in_flight is not None]
        requests = tuple(r for n in known for r in self.listed(n)) if len(known) == len(backends) else None
        return Gateway(dict(self.live), backends, 0, self.generation, self.file == self.live, requests=requests)

    def point(self, targets: Mapping[str, str], generation: int, checkpoint: Callable[[str], None]) -> None:
        assert generation >= self.generation, "a stale actor reached the gateway"
        self.generation = generation
        self.file |= targets
        checkpoint("gateway:between")
        self.live = dict(self.file)
        self.history.append(dict(self.live))

    def way(self, to: str, served_name: str) -> Way:
        return Way(f"http://127.0.0.1:9100/{to}", served_name)

    def served_by(self, answer: ChatAnswer) -> Origin:
        return origin_by_header(answer)

    def expect(self, slot: str, serve: Expected, generation: int) -> None:
        raise AssertionError("this gateway expects nothing")

    def would_interrupt(self) -> str:
        return ""

    def sever(self, backend: str, ids: Collection[str] | None = None) -> tuple[Request, ...]:
        found = [r for r in self.listed(backend) if ids is None or r.id in ids]
        self.in_flight[backend] = (self.in_flight[backend] or 0) - len(found)
        self.requests[backend] = [r for r in self.listed(backend) if r not in found]
        self.severed += [r.id for r in found]
        return tuple(found)

    def listed(self, backend: str) -> list[Request]:
        """The requests a test gave, else as many flowing ones as are counted."""
        many = self.in_flight[backend] or 0
        flowing = [Request(f"{backend}-{n}", backend, 9.0, 9_000, 0.1) for n in range(many)]
        return self.requests.get(backend, flowing)

    def accept_key(self, key: str) -> None:
        self.accepted.add(key)

    def expel_key(self, key: str) -> None:
        self.accepted.discard(key)

    def install(self) -> bool:
        return False

    def restart(self) -> None:
        self.live = dict(self.file)


class Files:
    """Files that containers mount: what a look gives and what is hashed, by path; anything else is absent."""

    def __init__(self) -> None:
        self.looks: dict[str, FileLook] = {}
        self.hashes: dict[str, HashLook] = {}

    def look(self, path: str, *, below: bool = True) -> FileLook:
        return self.looks.get(path, FileLook("absent"))

    def sha256(self, path: str, budget_s: float, *, keep: bool) -> HashLook:
        return self.hashes[path]


class HostOf:
    """A host of 64 GiB that knows the containers of the processes in `pids`."""

    def __init__(self, world: World) -> None:
        self._world, self.memory = world, 64 * 1024 * MIB

    def read(self) -> Reading[Host]:
        host = Host(self.memory, self.memory // 2, 0, 0, 10**12, 10**11, 10**9, 0, 0.1, 8)
        return Reading.known(host, self._world.clock.now, "host")

    def shared_files(self, pid: int | None) -> Reading[tuple[SharedFile, ...]]:
        return Reading.known(self._world.shared, self._world.clock.now, "host")

    def containers_of(self, pids: Iterable[int]) -> dict[int, str]:
        return {p: self._world.pids[p] for p in pids if p in self._world.pids}


class Listeners:
    """Ports of running containers are taken, and those of strangers, by pid."""

    def __init__(self, world: World) -> None:
        self._world = world

    def look(self, port: int) -> PortLook:
        if port in self._world.strangers:
            return PortLook("taken", self._world.strangers[port], "nginx")
        return PortLook("taken", 1, "engine") if self._world.docker.on_port(port) else PortLook("free")


class World:
    """The box, its parts, and shorthand to run operations in this process."""

    def __init__(self, tmp: Path, *recipes: Recipe, **policies: Any) -> None:
        self.tmp, self.recipes, self.clock, self.docker = tmp, list(recipes), Clock(), Docker()
        self.gate = Gate_({"primary-a": 9131, "primary-b": 9132})
        self.images = Images()
        self.failing: set[str] = set()
        self.wrong_identity: set[str] = set()
        self.silent: set[str] = set()
        self.dead_aliases: set[str] = set()
        self.slow_answers = 0
        self.counts: dict[int, tuple[int | None, int | None]] = {}
        self.pids: dict[int, str] = {}
        self.shared: tuple[SharedFile, ...] = ()
        self.files = Files()
        self.strangers: dict[int, int] = {}
        self.unrunnable_gates: dict[str, dict[str, str]] = {}
        self.key, self.accepted = "key-of-the-clients", self.gate.accepted
        self.refusals: list[str] = []
        self.hooks: dict[str, Callable[[], object]] = {}
        self.box = Box(
            str(tmp), workspace(**policies), self.clock, self.docker, self, self.gate, self, HostOf(self),  # type: ignore[arg-type]
            self, lambda: cast(Any, self),
            BoxFile(tmp), OperationFolders(tmp / "operations"), FileLease(tmp / "lease"),
            lambda: tuple(RecipeFile(r.id, r) for r in self.recipes), lambda: (SuiteFile("small", SMALL),),
            lambda: self.secret("").value, str, ConfigFileReader(tmp), self.images, HubCaches(),
            secret=self.secret, prove_key=self.prove,
            mounted=self.files, listeners=Listeners(self),
        )  # fmt: skip
        self.controls = Controls(
            self.docker, self.gate, ConfigFileControl(tmp, tmp / "clients"), self.images, HubCaches()
        )

    # credentials

    def secret(self, ref: str) -> Secret:
        if ref.startswith("file:"):
            return find(ref, self.tmp, {})
        if not self.key:
            raise Refused("no secret found; looked in: environment variable KEY: is not set")
        return Secret(self.key, "environment variable KEY")

    def prove(self, key: str) -> Proof:
        return Proof("accepted") if key in self.accepted else Proof("refused", "HTTP 401: unknown token")

    # engines, GPUs, chat, conductor

    def read(self, kind: object = None, port: int = 0) -> Any:
        if kind is None:
            return Reading.known(GpuSnapshot("1", (self._gpu(),)), self.clock.now, "test")
        found = self.docker.on_port(port)
        if found is None:
            return Engine("llamacpp", "refused")
        name = found.labels["anvil.recipe"]
        served = "someone-else" if name in self.wrong_identity else name
        running, waiting = self.counts.get(port, (None, None))
        return Engine("llamacpp", "ready", served=(served,), context_tokens=2048, running=running, waiting=waiting)

    def _gpu(self) -> Gpu:
        """One card; a running serve whose recipe selects it holds it as a process with its need."""
        by_id = {r.id: r for r in self.recipes}
        holders = [c for c in self.docker.running() if by_id[c.labels["anvil.recipe"]].gpus.select]
        used = sum(by_id[c.labels["anvil.recipe"]].gpus.need_free_mib for c in holders) * MIB
        processes = tuple(GpuProcess(100 + n, "engine", None) for n, _ in enumerate(holders))
        total = 97_887 * MIB
        return Gpu(
            0, GPU, "card", total_bytes=total, used_bytes=used, free_bytes=total - used, processes=processes
        )

    def close(self) -> None:
        self.clock.sleep(0)

    def chat(self, base_url: str, request: ChatRequest, *, api_key: str | None, timeout_s: float) -> ChatAnswer:
        direct = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(?:/(.+))?", base_url)
        assert direct
        port, alias = int(direct[1]), direct[2]
        if alias and api_key not in self.accepted:
            self.refusals.append(alias)
            return ChatAnswer(401, error="http", error_code="unauthorized", error_message="unknown token")
        slot = self.gate.live.get(alias, "") if alias else ""
        found = self.docker.on_port(self.gate.ports.get(slot, 0) if alias else port)
        slow, self.slow_answers = self.slow_answers > 0, max(0, self.slow_answers - 1)
        if slow or alias in self.dead_aliases:
            return ChatAnswer(None, error="timeout")
        if found is None or found.labels["anvil.recipe"] in self.silent:
            return ChatAnswer(503, error="http", error_message="nothing answers")
        return ChatAnswer(200, "OK", finish_reason="stop", headers={"x-anvil-backend": slot})

    def unrunnable(self, suite: Suite, target: GateTarget) -> dict[str, str]:
        return self.unrunnable_gates.get(target.recipe.id, {})

    def run(
        self, suite: Suite, target: Any, on_event: Callable[[Any], None], cancelled: Callable[[], bool],
        kept: Mapping[str, GateResult] | None = None, watch: dict[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        gate: Gate = suite.gates[0]
        bad = (
            target.recipe.id in self.failing or self.docker.on_port(int(target.base_url.rsplit(":", 1)[1])) is None
        )
        verdict = Verdict.FAILED if bad else Verdict.PASSED
        result = GateResult(gate.id, gate.kind, verdict, "as the test says", 0 if bad else 1, 1, 0.1)
        on_event(result)
        return (result,)

    # doing

    def plan(self, verb: str, **target: Any) -> Plan:
        return plan(self.box, Intent(verb, **target))  # type: ignore[arg-type]

    def do(self, verb: str, kill_at: str = "", **target: Any) -> str:
        """Plan and run; "killed" when the process died at the checkpoint. The id is in `self.last`."""
        self.last = prepare(self.box, self.plan(verb, **target))
        return self.operate("start", kill_at)

    def operate(self, mode: Mode, kill_at: str = "") -> str:
        self.points: list[str] = []

        def checkpoint(at: str) -> None:
            self.points.append(at)
            self.hooks.pop(at, int)()
            if at == kill_at:
                raise Killed(at)

        def interrupted() -> str | None:
            return self.box.operations.cancel_asked(self.last)

        try:
            return operate(
                self.box, self.controls, self.last, mode, pid=1, interrupted=interrupted, checkpoint=checkpoint
            )
        except Killed:
            return "killed"

    def decision(self) -> str:
        ways = [r.data["way"] for r in self.box.operations.journal(self.last).records() if r.kind == "decide"]
        return ways[-1] if ways else ""

    def serving(self) -> str:
        """The recipe that the public aliases reach, "" = none."""
        slots = set(self.gate.live.values())
        assert len(slots) == 1, f"aliases are split: {self.gate.live}"
        found = self.docker.on_port(self.gate.ports.get(slots.pop(), 0))
        return found.labels["anvil.recipe"] if found else ""

    def incumbent(self) -> str:
        held = self.box.store.read().serve_in("primary")
        return held.recipe_id if held else ""
