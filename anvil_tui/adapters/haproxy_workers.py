"""The processes of a running HAProxy: what each has in hand, and cutting requests in any of them.

After a reload the old worker goes on with its requests and is reached through the master alone. A request is named
`PID-NUMBER`: its worker's own count, which never comes twice. The address by which a request is cut is used again
as soon as it has ended, so each cut looks, in the same line of commands, at what stands there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from anvil_tui.adapters import haproxy_socket as sock
from anvil_tui.adapters.haproxy_files import Paths
from anvil_tui.core.box import Request
from anvil_tui.core.errors import EffectFailed, Unreachable
from anvil_tui.core.gateway_config import MAP_FILE, SERVER, AliasMap, alias_map

# A supervisor restarts HAProxy within this; a reload of the largest configuration here took 0.3 s.
PATIENCE_S = 10.0
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Worker:
    """What one worker has in hand."""

    pid: int
    loads: Mapping[str, sock.Load]
    sessions: tuple[sock.Session, ...]
    held: int

    def requests(self) -> tuple[Request, ...]:
        return tuple(request_of(self.pid, s) for s in self.sessions)


def request_of(pid: int, s: sock.Session) -> Request:
    return Request(f"{pid}-{s.number}", s.backend, s.age_s, s.bytes_out)


class Runtime:
    """The running HAProxy of one workspace."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths

    def ask(self, command: str) -> str:
        return sock.ask(self.paths.cli, command)

    def ask_worker(self, pid: int, listens: bool, command: str) -> str:
        """A `;` between two commands begins a new one for the master, so each names its worker."""
        at = f"@!{pid} "
        return self.ask(command) if listens else sock.ask(self.paths.master, at + command.replace("; ", f"; {at}"))

    def info(self) -> dict[str, str]:
        told = sock.info(self.ask("show info"))
        if "Pid" not in told:
            raise Unreachable(str(self.paths.cli), "what answers here is not HAProxy")
        return told

    def aliases(self) -> AliasMap:
        text = self.ask(f"show map {MAP_FILE}")
        try:
            return alias_map(sock.map_entries(text))
        except ValueError as why:
            raise Unreachable(str(self.paths.cli), f"the running alias map makes no sense: {why}") from why

    def addresses(self) -> dict[str, str]:
        return sock.addresses(self.ask("show servers state"))

    def processes(self) -> sock.Processes:
        try:
            return sock.processes(sock.ask(self.paths.master, "show proc"))
        except ValueError as why:
            raise Unreachable(str(self.paths.master), str(why)) from why

    def left_behind(self, pid: int) -> tuple[int, ...]:
        """Workers that no longer listen but still have requests."""
        return tuple(p for p in self.processes().workers if p != pid)

    def all_workers(self, pid: int) -> list[Worker | None]:
        """The listening worker first; None for each that did not answer, also when nobody can list them."""
        own = self._worker(pid, self.ask)
        try:
            return [own, *(self.old_worker(old) for old in self.left_behind(pid))]
        except Unreachable:
            return [own, None]

    def old_worker(self, pid: int) -> Worker | None:
        """One that ended while it was asked has nothing in hand any more."""
        try:
            return self._worker(pid, lambda text: self.ask_worker(pid, False, text))
        except (Unreachable, ValueError):
            return None if pid in self.processes().workers else Worker(pid, {}, (), 0)

    def _worker(self, pid: int, ask: Callable[[str], str]) -> Worker:
        loads = sock.loads(ask("show stat"))
        return Worker(pid, loads, sock.sessions(ask("show sess all")), int(ask("show held")))


class Silence:
    """How long each request has sent nothing, from one look to the next; None at the first.

    At least so long: what was before the first look nobody knows.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._seen: dict[str, tuple[int | None, float]] = {}

    def of(self, requests: Collection[Request]) -> dict[str, float | None]:
        now = self._clock()
        with self._lock:
            last, self._seen = self._seen, {}
            idle: dict[str, float | None] = {}
            for r in requests:
                sent, since = last.get(r.id, (r.bytes_out, now))
                since = since if sent == r.bytes_out else now
                self._seen[r.id] = (r.bytes_out, since)
                idle[r.id] = now - since if r.id in last else None
            return idle


def sever(runtime: Runtime, backend: str, ids: Collection[str] | None) -> tuple[Request, ...]:
    """As `GatewayControl.sever`, in every worker. EffectFailed when what was found cannot be listed or goes on."""
    own = int(runtime.info()["Pid"])
    cut: list[Request] = []
    for pid in (own, *runtime.left_behind(own)):
        listens = pid == own
        found = _cut_all(runtime, pid, backend) if listens and ids is None else ()
        found += _cut_each(runtime, pid, listens, backend, ids)
        _wait_gone(runtime, pid, listens, backend, {s.number for s in found})
        cut += (request_of(pid, s) for s in found)
    return tuple(cut)


def _cut_all(runtime: Runtime, pid: int, backend: str) -> tuple[sock.Session, ...]:
    """List and cut in one line of commands, so that nothing is cut that was not listed."""
    said = runtime.ask(f"show sess all; shutdown sessions server {backend}/{SERVER}")
    return tuple(s for s in _listed(runtime, said) if s.backend == backend and s.on_server)


def _cut_each(
    runtime: Runtime, pid: int, listens: bool, backend: str, ids: Collection[str] | None
) -> tuple[sock.Session, ...]:
    """One by one: named requests, and what no command for a whole server reaches (queued, or in an old worker)."""
    cut: list[sock.Session] = []
    for wanted in _sessions(runtime, pid, listens, backend):
        if ids is not None and f"{pid}-{wanted.number}" not in ids:
            continue
        command = f"show sess {wanted.address}; shutdown session {wanted.address}"
        try:
            cut += sock.sessions(runtime.ask_worker(pid, listens, command))
        except ValueError:
            continue  # it has ended: nothing stands at its address
    return tuple(cut)


def _sessions(runtime: Runtime, pid: int, listens: bool, backend: str) -> tuple[sock.Session, ...]:
    """Nothing when an old worker has ended: it goes with its last request."""
    try:
        found = _listed(runtime, runtime.ask_worker(pid, listens, "show sess all"))
    except (Unreachable, EffectFailed):
        if listens or pid in runtime.processes().workers:
            raise
        return ()
    return tuple(s for s in found if s.backend == backend)


def _listed(runtime: Runtime, text: str) -> tuple[sock.Session, ...]:
    try:
        return sock.sessions(text)
    except ValueError as why:
        raise EffectFailed(f"{runtime.paths.cli}: requests cannot be listed: {why}") from why


def _wait_gone(runtime: Runtime, pid: int, listens: bool, backend: str, numbers: Collection[int]) -> None:
    """A worker on its way out may not answer for a moment: that is asked again, and is never success."""
    deadline = time.monotonic() + PATIENCE_S
    while numbers:
        try:
            left = {s.number for s in _sessions(runtime, pid, listens, backend)} & set(numbers)
            many = str(len(left))
        except (Unreachable, EffectFailed):
            left, many = set(numbers), "an unknown number of"
        if not left:
            return
        if time.monotonic() >= deadline:
            raise EffectFailed(f"{many} requests on {backend} go on after they were cut")
        time.sleep(POLL_S)
