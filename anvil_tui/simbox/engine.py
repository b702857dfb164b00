"""One simulated engine: a process in a container that loads, listens on loopback, answers and dies."""

from __future__ import annotations

import asyncio
import errno
import random
import socket
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from anvil_tui.simbox.gpus import IDLE_MIB, USABLE_MIB, Board, Card
from anvil_tui.simbox.http import Listener, Reply, Request
from anvil_tui.simbox.logbook import STDERR, LogBook
from anvil_tui.simbox.metrics import Histogram
from anvil_tui.simbox.pace import Pace
from anvil_tui.simbox.prefix import PrefixCache
from anvil_tui.simbox.profile import Profile

if TYPE_CHECKING:
    from anvil_tui.simbox.dialects.base import Dialect

BUSY_LOAD = 0.95
LOADING_LOAD = 0.08


class EngineExit(Exception):
    """The engine's process ends with `code`; `lines` are its last words."""

    def __init__(self, code: int, *lines: str) -> None:
        super().__init__(code)
        self.code, self.lines = code, lines


@dataclass(slots=True)
class Stats:
    """Counters as an engine keeps them, in tokens and real-box seconds."""

    running: int = 0
    waiting: int = 0
    prompt: int = 0
    generation: int = 0
    cached: int = 0
    preempted: int = 0
    steps: int = 0
    requests: int = 0
    prompt_s: float = 0.0
    decode_s: float = 0.0
    kv_tokens: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    ttft: Histogram = field(default_factory=Histogram)
    e2e: Histogram = field(default_factory=Histogram)
    last_rate: float = 0.0


@dataclass(slots=True)
class Seat:
    """Where an engine lives: its container's id, pid, cards, and whether an init runs above it."""

    holder: str
    pid: int
    cards: Sequence[Card]
    init: bool = False


class Engine:
    """`faults` are switches, by name, that the dialects and the chat path look at."""

    def __init__(
        self, profile: Profile, dialect: Dialect, log: LogBook, board: Board, pace: Pace, seat: Seat
    ) -> None:
        self.profile, self.dialect, self.log, self.board, self.pace, self.seat = (
            profile,
            dialect,
            log,
            board,
            pace,
            seat,
        )
        self.stats = Stats()
        self.faults: dict[str, Mapping[str, str]] = {}
        self.phase = "loading"
        self.progress = ""
        self.rng = random.Random(seat.holder)
        self.room = asyncio.Condition()
        self.prefilling = asyncio.Lock()
        self.prefixes = PrefixCache(profile.kv_tokens)
        self.unwedged = asyncio.Event()
        self.unwedged.set()
        self.requests = 0
        self._exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._listener = Listener(self._handle)
        self._tasks: set[asyncio.Task[None]] = set()
        self._touched: set[str] = set()

    # life

    async def run(self) -> int:
        """From exec to exit; returns the exit code."""
        bound: socket.socket | None = None
        try:
            if self.seat.cards:
                self.board.claim(self.seat.holder, self.seat.pid, self.dialect.process_name, self.seat.cards)
            bound = self._bind()
            self.spawn(self._load(bound))
            return await self._exit
        except EngineExit as end:
            self._say(end.lines)
            return end.code
        finally:
            for task in tuple(self._tasks):
                task.cancel()
            await self._listener.close()
            if bound is not None:
                bound.close()
            self.board.end(self.seat.holder)

    def die(self, code: int, lines: Iterable[str] = ()) -> None:
        self._say(lines)
        if not self._exit.done():
            self._exit.set_result(code)

    def signal(self, name: str) -> None:
        if name == "KILL":
            self.die(137)
        else:
            self.dialect.on_signal(self, name)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def end_after(self, seconds: float, code: int) -> None:
        await self.pace.sleep(seconds)
        self.die(code)

    def _say(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.log.write(line, STDERR)

    def _bind(self) -> socket.socket:
        """Loopback only, whatever the words say; vLLM binds before it loads, so all do."""
        # asyncio sends small parts at once only on sockets that name TCP; else each answer waits 40 ms for an ACK
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind(("127.0.0.1", self.profile.port))
        except OSError as why:
            bound.close()
            if why.errno != errno.EADDRINUSE:
                raise
            raise EngineExit(1, *self.dialect.port_taken(self.profile)) from why
        return bound

    async def _load(self, bound: socket.socket) -> None:
        try:
            if self.profile.bad_start:
                await self.pace.sleep(0.2)
                raise EngineExit(1, self.profile.bad_start)
            if self.dialect.answers_early:
                await self._listener.open_socket(bound)
            await self.dialect.load(self)
            if not self.dialect.answers_early:
                await self._listener.open_socket(bound)
        except EngineExit as end:
            self.die(end.code, end.lines)
        else:
            self.phase = "ready"
            self.progress = "ready"
            self.busy()

    # memory and load

    @property
    def full_mib(self) -> float:
        """MiB per card once ready, before lazy allocations."""
        p = self.profile
        if p.free_idle_mib is not None:
            return self.usable_mib - IDLE_MIB - p.free_idle_mib
        return p.weights_mib + p.kv_mib + 300 if p.kind == "llamacpp" else p.memory_fraction * self.usable_mib

    @property
    def usable_mib(self) -> int:
        """Of its smallest card."""
        return min((c.usable_mib for c in self.seat.cards), default=USABLE_MIB)

    def hold(self, mib: float) -> None:
        """EngineExit when a card has not that much: another process was quicker."""
        for card in self.seat.cards:
            free = self.board.free_mib(card) + self.board.held_mib(card, self.seat.holder)
            if mib > free:
                raise EngineExit(1, self.dialect.out_of_memory(mib, free))
        self.board.hold(self.seat.holder, mib)

    def touch(self, what: str) -> None:
        """Lazy allocations: kernels with the first long prompt, media with the first image."""
        self._touched.add(what)
        extra = {"kernels": self.profile.kernels_mib, "media": self.profile.media_mib}
        try:
            self.hold(self.full_mib + sum(extra[t] for t in self._touched))
        except EngineExit as end:
            self.die(end.code, end.lines)

    def busy(self) -> None:
        if self.phase == "loading":
            self.board.work(self.seat.holder, LOADING_LOAD)
        else:
            moving = self.stats.running > 0 and self.unwedged.is_set()
            self.board.work(self.seat.holder, BUSY_LOAD if moving else 0.0)

    def free_mib(self) -> float | None:
        """The smallest free memory of its cards, None without cards."""
        return min((self.board.free_mib(c) for c in self.seat.cards), default=None)

    async def step(self, seconds: float) -> None:
        """A part of the load, stretched while `slow_load` is on."""
        factor = float(self.faults.get("slow_load", {}).get("factor", "1"))
        await self.pace.sleep(seconds * factor)
        failing = self.faults.get("load_fails")
        if failing is not None:
            raise EngineExit(int(failing.get("exit_code", "1")), failing.get("text", "RuntimeError: load failed"))

    # identity

    @property
    def served(self) -> tuple[str, ...]:
        wrong = self.faults.get("wrong_identity", {}).get("name")
        return (wrong,) if wrong else self.profile.served

    @property
    def context(self) -> int:
        return int(self.faults.get("wrong_identity", {}).get("context", self.profile.context))

    @property
    def kv_used(self) -> float:
        over = self.faults.get("kv_usage", {}).get("value")
        return float(over) if over else self.stats.kv_tokens / self.profile.kv_tokens

    async def _handle(self, request: Request) -> Reply:
        return await self.dialect.handle(self, request)
