"""The console's seam to the box: readers through probes, deeds through operation processes."""

from __future__ import annotations

import argparse
from pathlib import Path

from platformdirs import user_state_path

from anvil_tui.adapters.lease import user_name
from anvil_tui.cli.launch import spawn, start
from anvil_tui.cli.past import NotThere, Past
from anvil_tui.cli.settings import Used, settings_of
from anvil_tui.cli.wiring import (
    BareBox,
    alarm_book,
    bare_probes,
    found_workspace,
    open_bare,
    open_box,
    open_keeper,
    open_probes,
    open_recorder,
)
from anvil_tui.core.alarms import Alarm, acknowledge
from anvil_tui.core.discovery import NO_WORKSPACE
from anvil_tui.core.errors import NotFound
from anvil_tui.core.plan import Intent, Plan
from anvil_tui.core.shelf import Disks
from anvil_tui.core.storage import storage_json
from anvil_tui.service.box import Box
from anvil_tui.service.library import Library
from anvil_tui.service.planning import plan
from anvil_tui.service.probes import Probes
from anvil_tui.service.steering import cancel, pause
from anvil_tui.service.storage import survey
from anvil_tui.service.store import Store
from anvil_tui.ui.seams import ConsoleOptions


class Deeds:
    """What the console may ask for. Not made at all in read-only mode."""

    def __init__(self, box: Box, store: Store) -> None:
        self._box, self._store = box, store

    def plan(self, intent: Intent) -> Plan:
        return plan(self._box, intent)

    def start(self, made: Plan) -> str:
        return start(self._box, made)

    def resume(self, operation: str) -> None:
        spawn(self._box, operation, "resume")

    def undo(self, operation: str) -> None:
        spawn(self._box, operation, "undo")

    def cancel(self, operation: str, reason: str) -> None:
        cancel(self._box, operation, reason)

    def pause(self, operation: str, on: bool) -> None:
        pause(self._box, operation, on)

    def acknowledge(self, alarm: Alarm) -> None:
        kept = alarm_book(self._box).change(acknowledge(alarm, user_name(), self._box.clock.utc()))
        self._store.update(kept_alarms=kept)


class Service:
    """One box for one console: `store` publishes the World; `deeds` is None in read-only mode."""

    player = None

    def __init__(self, box: Box, probes: Probes, deeds: Deeds | None) -> None:
        self.store, self._box, self._probes, self.deeds = probes.store, box, probes, deeds
        self.evidence = Library(box)
        self._keeper = None if deeds is None else open_keeper(box, self.store, "console")
        self._recorder = open_recorder(box, self.store)
        self.history = Past(Path(box.directory), box.workspace, self._recorder)

    def disks(self) -> Disks:
        told = storage_json(*survey(self._box))
        return Disks(self._box.clock.utc().isoformat(timespec="seconds"), told)

    def begin(self) -> None:
        self._probes.start()
        self._recorder.start()
        if self._keeper is not None:
            self._keeper.start()

    def follow(self, container_id: str | None) -> None:
        self._probes.follow(container_id)

    def end(self) -> None:
        self._recorder.stop()
        if self._keeper is not None:
            self._keeper.stop()
        self._probes.stop()
        self._box.gpus.close()


class BareService:
    """A console on a box without a workspace: it reads, and there is nothing to change the box with."""

    deeds = history = player = None

    def __init__(self, bare: BareBox) -> None:
        self._probes = bare_probes(bare)
        self.store, self.evidence = self._probes.store, NotThere(NO_WORKSPACE)

    def disks(self) -> Disks:
        raise NotFound(NO_WORKSPACE)

    def begin(self) -> None:
        self._probes.start()

    def follow(self, container_id: str | None) -> None:
        self._probes.follow(container_id)

    def end(self) -> None:
        self._probes.stop()


def open_console(args: argparse.Namespace) -> int:
    used = settings_of(args)
    directory = found_workspace(args)
    service: Service | BareService = BareService(open_bare()) if directory is None else _service(directory, args)
    if used.notice:
        complaints = service.store.world.source_errors
        service.store.update(source_errors={**complaints, "settings": used.notice})
    from anvil_tui.ui.app import run

    try:
        return run(service, options_of(used, directory / "state" if directory else user_state_path("anvil-tui")))
    finally:
        service.end()


def _service(directory: Path, args: argparse.Namespace) -> Service:
    box = open_box(directory)
    probes = open_probes(box, read_only=args.read_only)
    return Service(box, probes, None if args.read_only else Deeds(box, probes.store))


def options_of(used: Used, crash_dir: Path) -> ConsoleOptions:
    chosen = {name: c.value for name, c in used.chosen.items()}
    return ConsoleOptions(
        crash_dir, used.ascii, chosen["utc"], used.mouse, chosen["theme"], used.keys, chosen["bell"]
    )
