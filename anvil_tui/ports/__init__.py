"""What the rules need from the world, as Protocols named by ability. Readers and controls are apart:
read-only mode means that no control object was ever made.

Every method may raise the errors of `core.errors` (Unreachable, NotFound, EffectFailed) and nothing else
of its library. Every call has a deadline. All are synchronous; callers choose the thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from anvil_tui.core.box import (
    CgroupMemory,
    Container,
    Daemon,
    Engine,
    Expected,
    Gateway,
    GpuSnapshot,
    Host,
    Request,
    SharedFile,
)
from anvil_tui.core.chat import ChatAnswer as ChatAnswer
from anvil_tui.core.chat import ChatRequest as ChatRequest
from anvil_tui.core.chat import ToolCall as ToolCall
from anvil_tui.core.corpus import Corpus, MediaFile
from anvil_tui.core.discovery import Recognised
from anvil_tui.core.lanes import Instrument
from anvil_tui.core.reading import Reading
from anvil_tui.core.recipe import EngineKind
from anvil_tui.core.routing import Origin, Way


class Clock(Protocol):
    def monotonic_s(self) -> float: ...
    def utc(self) -> datetime: ...
    def sleep(self, seconds: float) -> None: ...


class EngineFinder(Protocol):
    """Asks one loopback port who answers there: without a credential, a redirect or anything that generates."""

    def recognise(self, port: int) -> Recognised:
        """Never raises; bounded to some seconds."""


class GpuReader(Protocol):
    def read(self) -> Reading[GpuSnapshot]:
        """The newest snapshot; never raises and never blocks longer than a few milliseconds."""

    def close(self) -> None: ...


class HostReader(Protocol):
    def read(self) -> Reading[Host]: ...


class HostInspector(HostReader, Protocol):
    """What gates look at on the machine itself. Unknown where this user may not look; nothing raises."""

    def shared_files(self, pid: int | None) -> Reading[tuple[SharedFile, ...]]:
        """Files of /dev/shm as process `pid` sees it; None = the host's own."""

    def kernel_mark(self) -> Reading[int]:
        """The number of the newest record of the kernel log; its clock drifts from every other, numbers do not."""

    def kernel_lines(self, after: int) -> Reading[tuple[str, ...]]:
        """Kernel log after the record of that number."""

    def cgroup_memory(self, pid: int) -> Reading[CgroupMemory]: ...

    def containers_of(self, pids: Iterable[int]) -> Mapping[int, str]:
        """The full id of the container that each process is in, "" = in none; what cannot be told is left out."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a container's log, sanitised of nothing but secrets: `text` is decoded, without line end.

    `at` is the daemon's RFC 3339 stamp or None; `stream` is stdout, stderr or tty.
    """

    text: str
    at: str | None = None
    stream: str = "stdout"


class ContainerReader(Protocol):
    def list(self) -> tuple[Container, ...]:
        """Every container of the daemon, running or not; one that vanishes meanwhile is left out."""

    def inspect(self, container_id: str) -> Container:
        """By full id. NotFound when it does not exist."""

    def image_id(self, ref: str) -> str | None:
        """The local image id for a pinned reference, None when it is not here."""

    def daemon(self) -> Daemon:
        """Which container engine this is, and on which kernel."""

    def sha256(self, container_id: str, path: str, timeout_s: float) -> str:
        """Hash of one file as the container sees it. NotFound without it; EffectFailed when it takes longer."""

    def size_of(self, container_id: str, path: str) -> int | None:
        """Bytes of one file as the container sees it, None = a folder. NotFound without it."""

    def logs(self, container_id: str, *, tail: int = 2000) -> tuple[LogLine, ...]: ...

    def follow(self, container_id: str, *, since: str | None = None) -> Iterator[LogLine]:
        """Lines as they come, until the container ends or the iterator is closed from another thread."""


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """What `create` makes. `gpu_uuids` are full UUIDs; never privileged; restart policy is always `no`."""

    name: str
    image_ref: str
    argv: tuple[str, ...]
    entrypoint: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[tuple[str, str, bool], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    gpu_uuids: tuple[str, ...] = ()
    shm_mib: int | None = None
    ipc: str = "private"
    memory_limit_mib: int | None = None
    cpus: float | None = None
    stop_grace_s: int = 30


class ContainerControl(Protocol):
    def pull(self, ref: str, on_progress: Callable[[str], None]) -> None:
        """By digest; on_progress gets one short line at a time."""

    def create(self, spec: ContainerSpec) -> str:
        """Full id of the created container. EffectFailed carries the daemon's own text."""

    def start(self, container_id: str) -> None: ...

    def stop(self, container_id: str, grace_s: int) -> None:
        """Returns when the container has exited (also when it had already)."""

    def remove(self, container_id: str) -> None:
        """Removes a stopped container; absent is success."""


class EngineReader(Protocol):
    def read(self, kind: EngineKind, port: int) -> Engine:
        """Health, identity, metrics of the engine on 127.0.0.1:port. Never raises: `http` says how it is."""


class GatewayReader(Protocol):
    def snapshot(self) -> Gateway:
        """Aliases and counts of the running gateway, compared with the durable file."""

    def way(self, to: str, served_name: str) -> Way:
        """How a request reaches alias `to`, or a slot by its private name `@SLOT`; `served_name` is what the
        engine there calls its model. Asks nobody."""

    def served_by(self, answer: ChatAnswer) -> Origin:
        """Which slot gave an answer that has just come through the gateway, without any fallback. Never raises."""


class GatewayControl(Protocol):
    def point(self, targets: Mapping[str, str], generation: int, checkpoint: Callable[[str], None]) -> None:
        """Point aliases at backends or at `hold`, in one transaction: file, then process, then read back.

        Idempotent. `checkpoint("gateway:between")` is called between the durable and the running half.
        """

    def expect(self, slot: str, serve: Expected, generation: int) -> None:
        """Tell the gateway what a slot serves from now on, where it must know (`Backend.expects`). Idempotent."""

    def would_interrupt(self) -> str:
        """What `install` would interrupt now, as a sentence; "" = nothing."""

    def sever(self, backend: str, ids: Collection[str] | None = None) -> tuple[Request, ...]:
        """Cut these requests of one backend, None = every one in progress; returns those that were cut.

        One that has ended meanwhile is not cut and not returned. EffectFailed when one goes on after it was cut.
        """

    def accept_key(self, key: str) -> None:
        """Take this client key, too: durable list, then process, then read back. Idempotent."""

    def expel_key(self, key: str) -> None:
        """Refuse this client key from now on; as `accept_key`."""

    def install(self) -> bool:
        """Render, have the gateway validate, write atomically, load, read back. False when nothing changed."""


class ChatClient(Protocol):
    def chat(self, base_url: str, request: ChatRequest, *, api_key: str | None, timeout_s: float) -> ChatAnswer:
        """One request to its route under BASE_URL/v1. Never raises; no redirects; sizes and times capped."""


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """One request of a lane: `body` is the complete JSON object to POST."""

    n: int
    body: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class LoadLane:
    """A closed loop of `streams` threads over `requests`, or all of them at once (`burst`).

    POSTed to BASE_URL/v1/chat/completions; `timeout_s` bounds each request.
    """

    base_url: str
    requests: tuple[LoadRequest, ...]
    streams: int
    timeout_s: float
    api_key: str | None = None
    burst: bool = False


@dataclass(frozen=True, slots=True)
class LoadAnswer:
    """`began_s` is when its stream decided to send it, in seconds from the start of the lane."""

    n: int
    began_s: float
    answer: ChatAnswer


@dataclass(frozen=True, slots=True)
class LoadRun:
    """What a lane gave. `answers` are those that were begun, in the order of `n`."""

    answers: tuple[LoadAnswer, ...]
    wall_s: float
    instrument: Instrument


class LoadGenerator(Protocol):
    def run(self, lane: LoadLane, on_done: Callable[[int], None], cancelled: Callable[[], bool]) -> LoadRun:
        """The lane in a process of its own; `on_done(k)` after k requests. Cancelled: requests under way end, no
        other begins. Raises EffectFailed when the process cannot be started or dies."""

    def error_ms(self, streams: int) -> tuple[float, float]:
        """(p50, p95) of what it reads too much of a known 200.0 ms TTFT at so many streams, now and here."""


OUT = "{out}"
"""Stands in a command's arguments for the file, in a folder of its own, that the command may write."""


@dataclass(frozen=True, slots=True)
class Command:
    """A program to run. `env` names the variables it gets from the operator; `given` are values of ours.

    Every value of either is a secret unless its name is a plain one (PATH, HOME, ...). `fixtures` are files,
    relative to the workspace, and the SHA-256 that each must have. `stdin` is all that it can read there.
    """

    argv: tuple[str, ...]
    timeout_s: float
    env: tuple[str, ...] = ()
    given: Mapping[str, str] = field(default_factory=dict)
    fixtures: Mapping[str, str] = field(default_factory=dict)
    stdin: str = ""


class MediaReader(Protocol):
    def corpus(self) -> Corpus:
        """The pictures of the workspace and what is asked about them. BadFile when there are none."""

    def read(self, file: MediaFile) -> bytes:
        """Exactly the bytes that the corpus lists; BadFile names a file that is missing or changed."""


@dataclass(frozen=True, slots=True)
class CommandRun:
    """`exit_code` None = killed, negative = ended by that signal. Texts are redacted, streams cut to their ends.

    `written` is what it wrote to its `{out}`, None = no such file; `trouble` is why that file cannot be used.
    """

    exit_code: int | None
    ended: Literal["exit", "deadline", "cancelled"]
    stdout: str
    stderr: str
    elapsed_s: float
    written: str | None = None
    trouble: str = ""


class CommandRunner(Protocol):
    def why_not(self, command: Command) -> str:
        """Why it cannot be started: no such program, a variable that is not set, a fixture of another hash."""

    def run(self, command: Command, cancelled: Callable[[], bool]) -> CommandRun:
        """In a group of its own, in the workspace, stdin empty, with exactly the named environment. At the
        deadline or when cancelled the group gets TERM, then KILL; nothing of it is left when this returns."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What a piece of foreign text came to in the sandbox: `value`, or in `wrong` why there is none."""

    value: tuple[Any, ...] = ()
    wrong: str = ""


class Sandbox(Protocol):
    """Tries text that a model wrote, without running it as a program. Raises EffectFailed when it cannot try."""

    def query(self, script: str, sql: str) -> Trial:
        """The rows that one SELECT gives on a database that `script` makes; limited in steps, memory and rows."""

    def matches(self, pattern: str, texts: tuple[str, ...]) -> Trial:
        """For each text whether Python's re.fullmatch fits; a pattern that takes too long is wrong."""
