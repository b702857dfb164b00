"""Everything that probes read of a box: the ports, and functions over the files of its workspace.

What judges evidence and ways back is imported when it is first asked: a console paints before that, and `status`
on a box without evidence needs none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anvil_tui.core.alarms import Alarm
from anvil_tui.core.box import Container
from anvil_tui.core.credentials import credentials_of
from anvil_tui.core.discovery import Found
from anvil_tui.core.journal import OperationView
from anvil_tui.core.loads import MeasuredLoad
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.standing import Check, ClientState, CredentialState, DrillRecord
from anvil_tui.core.waivers import CheckWaiver, Waiver
from anvil_tui.core.world import BoxRecord, Lease, RecipeFile, World
from anvil_tui.ports import ContainerReader, EngineReader, GatewayReader, GpuReader, HostReader
from anvil_tui.service.clients import client_states
from anvil_tui.service.credentials import inspect

if TYPE_CHECKING:
    from anvil_tui.service.box import Box
    from anvil_tui.service.pasts import Pasts
    from anvil_tui.service.way_back import WayBack


@dataclass(frozen=True, slots=True)
class Sources:
    """Everything that is read: ports, and functions over the workspace's files (which may raise AnvilError).

    Where there is no workspace `gateway` is None, and `discover` tells of its containers which are engines.
    """

    gpus: GpuReader
    host: HostReader
    containers: ContainerReader
    engines: EngineReader
    gateway: GatewayReader | None
    record: Callable[[], BoxRecord]
    stored: Callable[[], Mapping[str, Recipe]]
    operations: Callable[[], tuple[OperationView, ...]]
    lease: Callable[[], Lease | None]
    recipes: Callable[[], tuple[RecipeFile, ...]]
    suites: Callable[[], tuple[str, ...]] = lambda: ()
    waivers: Callable[[], tuple[Waiver, ...]] = lambda: ()
    loads: Callable[[], tuple[MeasuredLoad, ...]] = lambda: ()
    pids: Callable[[Iterable[int]], Mapping[int, str]] = lambda pids: {}
    drills: Callable[[], tuple[DrillRecord, ...]] = lambda: ()
    evidence: Callable[[World], Mapping[str, object]] = lambda world: {}
    clients: Callable[[World], tuple[ClientState, ...]] = lambda world: ()
    credentials: Callable[[], tuple[CredentialState, ...]] = lambda: ()
    check_waivers: Callable[[], tuple[CheckWaiver, ...]] = lambda: ()
    copy: Callable[[], BoxRecord | None] = lambda: None
    alarms: Callable[[], tuple[Alarm, ...]] = tuple
    watcher: Callable[[], Lease | None] = lambda: None
    discover: Callable[[Iterable[Container]], Mapping[str, Found]] | None = None
    way_back: Callable[[World, float], tuple[Mapping[str, tuple[Check, ...]], bool]] = lambda world, s: ({}, False)

    @classmethod
    def of(cls, box: Box) -> Sources:
        return cls(
            gpus=box.gpus, host=box.host, containers=box.containers, engines=box.engines, gateway=box.gateway,
            record=box.store.read, stored=box.store.kept_recipes, operations=box.operations.views,
            lease=box.lease.holder, recipes=box.recipes, suites=lambda: tuple(s.id for s in box.suites()),
            waivers=box.store.waivers, loads=box.store.loads, pids=box.host.containers_of, drills=box.store.drills,
            clients=client_states(box),
            evidence=evidence_of(box), credentials=_credentials(box),
            check_waivers=box.store.check_waivers, copy=box.store.copy,
            way_back=_way_back(box),
        )  # fmt: skip


def evidence_of(box: Box) -> Callable[[World], Mapping[str, object]]:
    found: list[Pasts] = []

    def fields(world: World) -> Mapping[str, object]:
        if box.bundles is None:
            return {}
        if not found:
            from anvil_tui.service.pasts import Pasts

            found.append(Pasts(box.bundles))
        return found[0].fields(world, box.suites())

    return fields


def _credentials(box: Box) -> Callable[[], tuple[CredentialState, ...]]:
    def states() -> tuple[CredentialState, ...]:
        if not any(key.targets for key in credentials_of(box.workspace)):
            return inspect(box)
        from anvil_tui.service.rotate import copies_read

        return copies_read(box, inspect(box), remote=False)

    return states


def _way_back(box: Box) -> Callable[[World, float], tuple[Mapping[str, tuple[Check, ...]], bool]]:
    found: list[WayBack] = []

    def standing(world: World, hash_s: float) -> tuple[Mapping[str, tuple[Check, ...]], bool]:
        if not found:
            from anvil_tui.service.targets import unrunnable_on
            from anvil_tui.service.way_back import WayBack

            found.append(WayBack(box, unrunnable_on(box)))
        return found[0].standing(world, hash_s)

    return standing
