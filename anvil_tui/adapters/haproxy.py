"""HAProxy as the gateway: read its routing and counts, point aliases, cut requests, install its configuration.

Two sockets: `cli.sock` is the worker that listens, `master.sock` reaches the workers that a reload left behind
with requests of their own. A count over all of them is known only when each has answered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

from anvil_tui.adapters import haproxy_socket as sock
from anvil_tui.adapters.files import folder_lock, write_atomic
from anvil_tui.adapters.haproxy_files import (
    Paths,
    check_address,
    digests_of,
    find_binary,
    install_files,
    make_folders,
    read_map,
    rendered,
    run_argv,
    set_aside,
    validate,
    write_config,
)
from anvil_tui.adapters.haproxy_keys import KeyList
from anvil_tui.adapters.haproxy_way import PathWays, Undisturbed
from anvil_tui.adapters.haproxy_workers import PATIENCE_S, POLL_S, Runtime, Silence, Worker, sever
from anvil_tui.core.box import Backend, Gateway, Request
from anvil_tui.core.errors import AnvilError, BadFile, EffectFailed, Refused, Unreachable
from anvil_tui.core.gateway_config import (
    HOLD,
    MAP_FILE,
    AliasMap,
    check_target,
    key_digest,
    merged,
)
from anvil_tui.core.workspace import GatewaySettings, Role

__all__ = ["HaproxyControl", "HaproxyReader", "find_binary", "install_files", "run_argv"]


class HaproxyReader(PathWays):
    """Reads the gateway of the workspace at `directory`. Holds nothing open between two snapshots, but remembers
    what each request had sent."""

    def __init__(self, directory: Path, settings: GatewaySettings, roles: tuple[Role, ...]) -> None:
        self._settings, self._runtime = settings, Runtime(Paths.of(directory, settings))
        self._silence = Silence()
        self._slots = tuple(s for r in roles for s in r.slots)

    def snapshot(self) -> Gateway:
        """Unreachable names the socket and the command that starts the gateway."""
        runtime = self._runtime
        told, aliases, found = runtime.info(), runtime.aliases(), runtime.addresses()
        pid = int(told["Pid"])
        try:
            workers = runtime.all_workers(pid)
        except ValueError as why:
            raise Unreachable(str(runtime.paths.cli), f"the running process cannot be read: {why}") from why
        return Gateway(
            aliases.targets,
            tuple(_backend(s.name, found.get(s.name, ""), workers) for s in self._slots),
            sock.total(None if w is None else w.held for w in workers),
            aliases.generation,
            _stored_or_none(runtime.paths.aliases) == aliases,
            pid,
            told.get("Version"),
            requests=self._requests(workers),
        )

    def _requests(self, workers: list[Worker | None]) -> tuple[Request, ...] | None:
        """None when a worker did not answer: a list that may lack some is no list."""
        if any(w is None for w in workers):
            return None
        slots = {s.name for s in self._slots}
        found = [r for w in workers if w for r in w.requests() if r.backend in slots]
        idle = self._silence.of(found)
        return tuple(replace(r, idle_s=idle[r.id]) for r in found)


def _stored_or_none(path: Path) -> AliasMap | None:
    """A missing or damaged file equals nothing that runs."""
    try:
        return read_map(path)
    except BadFile:
        return None


def _backend(name: str, address: str, workers: list[Worker | None]) -> Backend:
    """Unknown when a worker did not answer, or when the listening one has no such backend."""
    if any(w is None for w in workers) or name not in (workers[0].loads if workers[0] else {}):
        return Backend(name, address, None)
    known = [w for w in workers if w is not None]
    found = [w.loads[name] for w in known if name in w.loads]
    ages = [s.age_s for w in known for s in w.sessions if s.backend == name]
    return Backend(
        name, address, sum(f.in_flight for f in found), sum(f.queued for f in found), max(ages, default=None)
    )


class HaproxyControl(Undisturbed):
    """Changes the gateway of the workspace at `directory`. `client_keys` gives the bearer tokens themselves; only
    `install` asks for them, so that nothing else fails for want of one."""

    def __init__(
        self,
        directory: Path,
        settings: GatewaySettings,
        roles: tuple[Role, ...],
        client_keys: Callable[[], tuple[str, ...]],
    ) -> None:
        self._directory, self._settings, self._roles, self._keys = directory, settings, roles, client_keys
        self._paths = Paths.of(directory, settings)
        self._runtime = Runtime(self._paths)
        self._key_list = KeyList(self._paths)

    def accept_key(self, key: str) -> None:
        self._key_list.change(add=frozenset({key_digest(key)}))

    def expel_key(self, key: str) -> None:
        self._key_list.change(drop=frozenset({key_digest(key)}))

    def point(self, targets: Mapping[str, str], generation: int, checkpoint: Callable[[str], None]) -> None:
        """Refused for an alias or target that is not configured and for a generation older than the one found;
        Unreachable, with nothing written, when the gateway does not run."""
        for alias, target in targets.items():
            check_target(self._roles, alias, target)
        running = self._runtime.aliases()
        self._installed(running, targets)
        with folder_lock(self._paths.aliases):
            stored = self._stored(running)
            newest = max(stored.generation, running.generation)
            if generation < newest:
                raise Refused(
                    f"the aliases are of generation {newest}, this operation is {generation}: it is stale"
                )
            wanted = AliasMap({**stored.targets, **targets}, generation)
            self._store(wanted)
            checkpoint("gateway:between")
            self._commit(wanted)
        if _stored_or_none(self._paths.aliases) != wanted:
            raise EffectFailed(f"{self._paths.aliases} does not hold what was just written to it")

    def _installed(self, running: AliasMap, targets: Mapping[str, str]) -> None:
        """The running process must know alias and slot, at the address that anvil.toml says."""
        found = self._runtime.addresses()
        for alias in targets:
            if alias not in running.targets:
                raise Refused(f"the running gateway has no alias {alias}: run `anvil-tui gateway install`")
        for slot in (s for r in self._roles for s in r.slots if s.name in targets.values()):
            if found.get(slot.name) != f"127.0.0.1:{slot.port}":
                raise Refused(
                    f"the running gateway has slot {slot.name} at {found.get(slot.name, 'no address')}, "
                    f"anvil.toml says 127.0.0.1:{slot.port}: run `anvil-tui gateway install`"
                )

    def _stored(self, running: AliasMap) -> AliasMap:
        """The durable map; where it is damaged or missing the running process is the last good copy."""
        try:
            return read_map(self._paths.aliases) or running
        except BadFile:
            set_aside(self._paths.aliases)
            return running

    def _store(self, wanted: AliasMap) -> None:
        if _stored_or_none(self._paths.aliases) != wanted:
            write_atomic(self._paths.aliases, wanted.text())

    def _commit(self, wanted: AliasMap) -> None:
        """Make the running map so, in one transaction. A process that restarts meanwhile comes up on the file."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if self._runtime.aliases() != wanted:
                    self._transact(wanted)
                if (found := self._runtime.aliases()) != wanted:
                    raise EffectFailed(f"{self._paths.cli}: the running aliases are {found}, not {wanted}")
                return
            except Unreachable:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(POLL_S)

    def _transact(self, wanted: AliasMap) -> None:
        made = self._runtime.ask(f"prepare map {MAP_FILE}")
        version = made.rpartition(": ")[2].strip()
        if not version.isdigit():
            raise EffectFailed(f"{self._paths.cli}: `prepare map` was answered: {made}")
        lines = "".join(f"{key} {value}\n" for key, value in wanted.entries())
        sock.command(self._paths.cli, f"add map @{version} {MAP_FILE} <<\n{lines}")
        sock.command(self._paths.cli, f"commit map @{version} {MAP_FILE}")

    def sever(self, backend: str, ids: Collection[str] | None = None) -> tuple[Request, ...]:
        """In every worker; done when none of the requests found is left. Later arrivals are not touched."""
        if all(s.name != backend for r in self._roles for s in r.slots):
            raise Refused(f"{backend} is no slot of anvil.toml")
        return sever(self._runtime, backend, ids)

    def install(self) -> bool:
        """True also when files were as wanted and only the running process had to follow them."""
        try:
            told = self._runtime.info()
        except Unreachable:
            return install_files(self._directory, self._settings, self._roles, self._keys())
        keys = digests_of(self._keys())
        config, digest = rendered(self._directory, self._settings, self._roles)
        make_folders(self._paths)
        running = self._runtime.aliases()
        with folder_lock(self._paths.aliases):
            stored = self._stored(running)
            wanted = merged(stored, self._roles)
            reload = told.get("description") != digest
            if reload:
                self._may_reload(running)
                validate(self._paths, self._settings, config)
                check_address(self._paths, self._settings)
            same = _stored_or_none(self._paths.aliases) == running == wanted
            self._store(stored)
            other_keys = self._key_list.store(keys)
            changed = self._replace(config, digest, reload)
            self._store(wanted)
            self._commit(wanted)
        other_keys |= self._key_list.follow()
        self._read_back()
        return changed or other_keys or not same

    def _may_reload(self, running: AliasMap) -> None:
        held = [a for a, t in running.targets.items() if t == HOLD]
        if held:
            raise Refused(
                f"{', '.join(held)} is on hold: a reload would strand the requests that wait in the old process; "
                "readmit first, then install"
            )

    def _replace(self, config: str, digest: str, reload: bool) -> bool:
        """Write the configuration and have it loaded; a failed reload puts the last one back."""
        path = self._paths.config
        old = path.read_text() if path.exists() else None
        changed = write_config(self._paths, config)
        if not reload:
            return changed
        try:
            self._reload(digest)
        except AnvilError:
            if old is not None:
                write_atomic(path, old)
            raise
        return True

    def _reload(self, digest: str) -> None:
        """2.8 answers with the outcome, 2.6 with nothing: there the master's count of failures tells."""
        before = self._runtime.processes()
        try:
            answer = sock.ask(self._paths.master, "reload", PATIENCE_S)
        except Unreachable:
            answer = ""  # 2.6 starts itself anew, sometimes before the link is closed in good order
        if answer.startswith("Success=0"):
            raise EffectFailed(
                f"HAProxy did not reload, the old configuration goes on. It says: {answer[9:].strip()}"
            )
        deadline = time.monotonic() + PATIENCE_S
        while not self._reloaded(before, digest):
            if time.monotonic() >= deadline:
                raise EffectFailed(f"{self._paths.master}: no new worker {PATIENCE_S:.0f} s after the reload")
            time.sleep(POLL_S)

    def _reloaded(self, before: sock.Processes, digest: str) -> bool:
        try:
            now = self._runtime.processes()
            if now.reloads > before.reloads and now.failed:
                raise EffectFailed(
                    "HAProxy did not reload, the old configuration goes on; its own output says why "
                    "(a port in use, most often)"
                )
            return self._runtime.info().get("description") == digest
        except Unreachable:
            return False

    def _read_back(self) -> None:
        found = self._runtime.addresses()
        for slot in (s for r in self._roles for s in r.slots):
            if found.get(slot.name) != f"127.0.0.1:{slot.port}":
                raise EffectFailed(f"slot {slot.name} runs at {found.get(slot.name)}, not at port {slot.port}")
