"""Reads every source at its own cadence and hands the readings to the store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from anvil_tui.core.box import Container
from anvil_tui.core.errors import AnvilError
from anvil_tui.core.history import push_gpus
from anvil_tui.core.journal import OperationView
from anvil_tui.core.ownership import gpu_pids
from anvil_tui.core.reading import Reading
from anvil_tui.core.world import BoxRecord, LogView, World
from anvil_tui.ports import Clock
from anvil_tui.service.discovery import DISCOVER_S
from anvil_tui.service.engine_probe import ENGINE_S, EngineProbe
from anvil_tui.service.log_follow import LogFollow
from anvil_tui.service.loop import Loop
from anvil_tui.service.sources import Sources as Sources
from anvil_tui.service.store import Store

T = TypeVar("T")

HOST_S, CONTAINERS_S, GATEWAY_S = 5.0, 2.0, 1.0
JOURNAL_S, FILES_S, IMAGES_S, EVIDENCE_S = 0.5, 2.0, 15.0, 15.0
CREDENTIALS_S = 30.0
STOP_S = 1.8
WAY_BACK_S = 30.0
# How long one look may read weights on.
STANDING_HASH_S, ONCE_HASH_S = 1.5, 0.2
FIRST_GPU_S = 10.0
ONCE_AT_ONCE = 8
CLIENTS_S = 60.0


_OF_A_BARE_BOX = ("gpus", "host", "containers", "images", "discover")
_OF_COPY = "; what is shown is the last good copy (generation {}), which may be one save old"


class Probes:
    """`start` begins all cadences, `stop` ends them within two seconds, `once` asks each source one time."""

    def __init__(self, store: Store, sources: Sources, clock: Clock) -> None:
        self.store, self._src, self._clock = store, sources, clock
        self._engine = EngineProbe(store, sources.engines, sources.containers, clock)
        self._lock = threading.Lock()
        self._engines: dict[str, Loop] = {}
        self._follow: LogFollow | None = None
        self._running = False
        self._gpu_at_s: float | None = None
        self._views: tuple[OperationView, ...] | None = None
        cadences = (
            ("gpus", store.world.workspace.gpus.interval_s, self._gpus),
            ("host", HOST_S, self._host),
            ("containers", CONTAINERS_S, self._containers),
            ("images", IMAGES_S, self._images),
            ("discover", DISCOVER_S, self._discover),
            ("gateway", GATEWAY_S, self._gateway),
            ("operations", JOURNAL_S, self._operations),
            ("files", FILES_S, self._files),
            ("evidence", EVIDENCE_S, self._evidence),
            ("clients", CLIENTS_S, self._clients),
            ("credentials", CREDENTIALS_S, self._credentials),
            ("way_back", WAY_BACK_S, self._way_back),
        )
        bare = sources.gateway is None
        self._loops = {
            name: Loop(name, interval_s, self._guarded(name, work))
            for name, interval_s, work in cadences
            if (name in _OF_A_BARE_BOX if bare else name != "discover")
        }

    def start(self) -> None:
        self._running = True
        for loop in self._loops.values():
            loop.start()

    def stop(self) -> None:
        """Returns within two seconds; what hangs in its source is left to end with the process."""
        self._running = False
        until = time.monotonic() + STOP_S
        with self._lock:
            loops = [*self._loops.values(), *self._engines.values()]
            follow, self._follow = self._follow, None
        if follow is not None:
            follow.stop()
        for loop in loops:
            loop.stop()
        self._src.gpus.close()
        for loop in loops:
            loop.join(until - time.monotonic())

    def once(self) -> World:
        """Every source one time; those that do not rest on each other at the same time, so that one engine that is
        slow is waited for once. The GPU reader gets time for its first line."""
        until = self._clock.monotonic_s() + FIRST_GPU_S
        self._src.gpus.read()
        self._files()
        self._operations()
        with ThreadPoolExecutor(ONCE_AT_ONCE) as pool:
            for names in (("host", "containers", "gateway", "credentials"), ("discover", "images")):
                list(pool.map(lambda name: getattr(self, f"_{name}")(), names))
            list(pool.map(self._engine.read, self._engine.seated()))
        while self._src.gpus.read().at_s is None and self._clock.monotonic_s() < until:
            self._clock.sleep(0.02)
        self._gpus()
        self._evidence()
        self._clients()
        self._way_back(ONCE_HASH_S)
        return self.store.world

    def follow(self, container_id: str | None) -> None:
        """Follow the log of this container, by full id, and of no other; None = of none."""
        with self._lock:
            old, self._follow = self._follow, None
            if container_id is not None:
                heir = self._heir_of(container_id)
                self._follow = LogFollow(container_id, self._src.containers, self._clock, self._show_log, heir)
        if old is not None:
            old.stop()
        self.store.update(log=None if container_id is None else LogView(container_id))
        if container_id is not None and self._follow is not None:
            self._follow.start()

    def _heir_of(self, container_id: str) -> Callable[[], Container | None]:
        """Tells who else has the name of a container that is not there any more."""

        def here() -> Mapping[str, Container]:
            return {c.id: c for c in self.store.world.containers.value or ()}

        known = here().get(container_id)

        def heir() -> Container | None:
            now = here()
            others = (c for c in now.values() if known and c.name == known.name and container_id not in now)
            return next(others, None)

        return heir

    def poke(self, *names: str) -> None:
        """Ask these loops again at once: gpus, host, containers, gateway, operations, files, images, evidence."""
        for name in names:
            if name in self._loops:
                self._loops[name].poke()

    def _show_log(self, view: LogView) -> None:
        """A late view of a follow that was replaced is dropped."""
        self.store.change(lambda w: {"log": view} if w.log and w.log.container_id == view.container_id else {})

    def _guarded(self, name: str, work: Callable[[], bool]) -> Callable[[], bool]:
        """A defect of ours in one probe is shown as its error and ends nothing else."""

        def run() -> bool:
            try:
                good = work()
            except Exception as error:
                self._complain(f"probe {name}", f"internal error, {type(error).__name__}: {error}")
                return False
            self._complain(f"probe {name}", "")
            return good

        return run

    def _complain(self, source: str, why: str) -> None:
        self.store.complain(source, why)

    def _read(self, source: str, call: Callable[[], T], last: Reading[T]) -> Reading[T]:
        try:
            value = call()
        except AnvilError as error:
            return Reading.error(str(error), self._clock.monotonic_s(), source, last.value)
        return Reading.known(value, self._clock.monotonic_s(), source)

    def _take(self, field: str, reading: Reading[T], last: Reading[T]) -> None:
        """One that says what the last one said is only newer: it may wait for the next change."""
        same = replace(reading, at_s=last.at_s) == last
        self.store.change(lambda w: {field: reading}, soon=same)

    def _keep(self, **fields: object) -> None:
        """What is read of files and is mostly what it was; then there is no new world."""
        world = self.store.world
        if any(getattr(world, name) != value for name, value in fields.items()):
            self.store.update(**fields)

    def _gpus(self) -> bool:
        reading = self._src.gpus.read()
        fresh = reading.at_s != self._gpu_at_s
        self._gpu_at_s = reading.at_s
        pids = self._src.pids(gpu_pids(reading))
        self.store.change(
            lambda w: {
                "gpus": reading,
                "pids": pids,
                "gpu_history": push_gpus(w.gpu_history, reading) if fresh else w.gpu_history,
            }
        )
        return True

    def _host(self) -> bool:
        reading = self._src.host.read()
        self._take("host", reading, self.store.world.host)
        return reading.ok

    def _containers(self) -> bool:
        last = self.store.world.containers
        reading = self._read("docker", self._src.containers.list, last)
        self._take("containers", reading, last)
        if self._running:
            self._tend_engines()
        return reading.ok

    def _discover(self) -> bool:
        """Who of the containers is an engine. One that is silent is asked again by this loop."""
        if self._src.discover is not None:
            found = self._src.discover(self.store.world.containers.value or ())
            if found != self.store.world.found:
                self.store.update(found=found)
        return True

    def _gateway(self) -> bool:
        if self._src.gateway is None:
            return True
        last = self.store.world.gateway
        reading = self._read("gateway", self._src.gateway.snapshot, last)
        self._take("gateway", reading, last)
        return reading.ok

    def _operations(self) -> bool:
        """The journals' tail and the lease; when something moved, what it may have moved is read at once."""
        try:
            views, lease = self._src.operations(), self._src.lease()
        except (AnvilError, OSError) as error:
            self._complain("operations", str(error))
            return False
        self._complain("operations", "")
        before = self.store.world
        if views == self._views and lease == before.lease:
            return True
        self._views = views
        if lease != before.lease or _ended(views) != _ended(before.operations):
            self.poke("containers", "gateway", "files", "evidence", "way_back", "clients")
        self.store.update(operations=views, lease=lease)
        return True

    def _files(self) -> bool:
        good = True
        fields: dict[str, object] = {}
        calls: tuple[tuple[str, Callable[[], object]], ...] = (
            ("record", self._src.record), ("stored", self._src.stored),
            ("recipes", self._src.recipes), ("suites", self._src.suites),
            ("waivers", self._src.waivers), ("loads_kept", self._src.loads), ("drills", self._src.drills),
            ("check_waivers", self._src.check_waivers), ("kept_alarms", self._src.alarms),
            ("watcher", self._src.watcher),
        )  # fmt: skip
        for name, call in calls:
            try:
                fields[name] = call()
            except (AnvilError, OSError) as error:
                copy = self._src.copy() if name == "record" and self.store.world.record == BoxRecord() else None
                self._complain(name, f"{error}{'' if copy is None else _OF_COPY.format(copy.generation)}")
                fields |= {"record": copy} if copy else {}
                good = False
            else:
                self._complain(name, "")
        new = fields.get("record", self.store.world.record) != self.store.world.record
        self._keep(**fields)
        if new:
            self.poke("containers", "images")
        return good

    def _credentials(self) -> bool:
        """Whether the gateway takes each client key; copies on other hosts are for `credentials` alone."""
        self._keep(credentials=self._src.credentials())
        return True

    def _images(self) -> bool:
        """Whether the images of recorded serves are still here, and what the tags of foreign ones name by now."""
        world = self.store.world
        found: dict[str, str | None] = {}
        recipes = (world.exact_recipe(s.recipe_digest, s.recipe_id) for s in world.record.serves.values())
        tags = {c.image_ref for s in world.serves if "@" not in (c := s.container).image_ref and c.image_ref}
        for ref in {r.image.ref for r in recipes if r} | tags:
            try:
                found[ref] = self._src.containers.image_id(ref)
            except AnvilError as error:
                self._complain("images", str(error))
                return False
        self._complain("images", "")
        first = not self.store.world.proofs
        self._keep(images=found)
        if first:
            self.poke("way_back")
        return True

    def _evidence(self) -> bool:
        """What earlier qualifications say of what is there now."""
        try:
            fields = self._src.evidence(self.store.world)
        except (AnvilError, OSError) as error:
            self._complain("evidence", str(error))
            return False
        self._complain("evidence", "")
        self._keep(**fields)
        return True

    def _way_back(self, hash_s: float = STANDING_HASH_S) -> bool:
        """What a return to each incumbent and way back needs. An operation at work is left alone: it may be about
        to bind a port or to read the weights itself. Weights are read on at once while there are any left."""
        if self.store.world.lease is not None:
            return True
        try:
            proofs, more = self._src.way_back(self.store.world, hash_s)
        except (AnvilError, OSError) as error:
            self._complain("way back", str(error))
            return False
        self._complain("way back", "")
        self._keep(proofs=proofs)
        if more and self._running:
            self.poke("way_back")
        return True

    def _clients(self) -> bool:
        """Clients' own files against what serves; other hosts are asked at once, each within its deadline."""
        self._keep(clients=self._src.clients(self.store.world))
        return True

    def _tend_engines(self) -> None:
        """One cadence for each running serve: an engine that answers slowly delays no other."""
        wanted = self._engine.seated()
        with self._lock:
            gone = [self._engines.pop(i) for i in tuple(self._engines) if i not in wanted]
            fresh = [i for i in wanted if i not in self._engines] if self._running else []
            for i in fresh:
                self._engines[i] = Loop(f"engine-{i[:12]}", ENGINE_S, self._guarded_engine(i))
        for loop in gone:
            loop.stop()
        for i in fresh:
            self._engines[i].start()
        if gone:
            self._engine.forget(wanted)

    def _guarded_engine(self, container_id: str) -> Callable[[], bool]:
        return self._guarded(f"engine {container_id[:12]}", lambda: self._one_engine(container_id))

    def _one_engine(self, container_id: str) -> bool:
        """An engine that begins or ends to answer changes what clients are compared with."""
        if self._engine.read(container_id):
            self.poke("clients")
        return True


def _ended(views: tuple[OperationView, ...]) -> list[tuple[str, int, object]]:
    """What of operations can have moved the box: their number of finished steps and their end."""
    return [(v.id, sum(s.state == "done" for s in (*v.steps, *v.undo_steps)), v.outcome) for v in views]
