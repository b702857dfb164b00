"""One box as the service sees it: readers always, controls only when a command may change things."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anvil_tui.core.box import GpuSnapshot
from anvil_tui.core.credentials import Proof
from anvil_tui.core.gates import SuiteFile
from anvil_tui.core.reading import Reading
from anvil_tui.core.secrets import Secret
from anvil_tui.core.workspace import Workspace
from anvil_tui.core.world import RecipeFile
from anvil_tui.ports import (
    ChatClient,
    Clock,
    ContainerControl,
    ContainerReader,
    EngineReader,
    GatewayControl,
    GatewayReader,
    GpuReader,
    HostInspector,
)
from anvil_tui.ports.files import ConfigControl, ConfigFiles
from anvil_tui.ports.operations import BoxStore, BundleStore, OperationStore, WriteRight
from anvil_tui.ports.storage import CacheControl, CacheReader, ImageControl, ImageReader
from anvil_tui.ports.surroundings import FileReader, PortReader

if TYPE_CHECKING:
    from anvil_tui.service.gates.conductor import Conductor


@dataclass(frozen=True, slots=True)
class Box:
    """Everything that can be read. `mounts` resolves a recipe's mount source to an absolute path or volume;
    `mounted` and `listeners` look at files and ports of the box, None = it is another machine.

    `conductor` is made when gates are first asked about: nothing else needs what it imports. `secret` finds what a
    reference names (Refused lists the places looked at); `prove_key` is an authenticated read with a client key,
    and never raises.
    """

    directory: str
    workspace: Workspace
    clock: Clock
    containers: ContainerReader
    engines: EngineReader
    gateway: GatewayReader
    gpus: GpuReader
    host: HostInspector
    chat: ChatClient
    conductor: Callable[[], Conductor]
    store: BoxStore
    operations: OperationStore
    lease: WriteRight
    recipes: Callable[[], tuple[RecipeFile, ...]]
    suites: Callable[[], tuple[SuiteFile, ...]]
    client_key: Callable[[], str]
    mount_source: Callable[[str], str]
    files: ConfigFiles
    images: ImageReader
    caches: CacheReader | None
    bundles: BundleStore | None = None
    mounted: FileReader | None = None
    listeners: PortReader | None = None
    secret: Callable[[str], Secret] = field(kw_only=True)
    prove_key: Callable[[str], Proof] = field(kw_only=True)

    def gateway_url(self, path: str = "") -> str:
        return f"http://{self.workspace.gateway.bind}{path}"


@dataclass(frozen=True, slots=True)
class Controls:
    """What can change the box. Never made in read-only mode."""

    containers: ContainerControl
    gateway: GatewayControl
    files: ConfigControl
    images: ImageControl
    caches: CacheControl | None


def engine_url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def fresh_gpus(box: Box) -> Reading[GpuSnapshot]:
    """A reading taken after now; the last one, which is older, when none came within the reader's deadline."""
    settings, asked = box.workspace.gpus, box.clock.monotonic_s()
    seen = box.gpus.read()
    while not (seen.ok and seen.at_s is not None and seen.at_s >= asked):
        if box.clock.monotonic_s() > asked + settings.deadline_s + settings.interval_s:
            return seen
        box.clock.sleep(0.05)
        seen = box.gpus.read()
    return seen
