"""The composition root: the one place that names concrete adapters.

What only some commands need (gates, history, an anvil-serving gateway) is imported when it is made: it was half of
the time that `status` and the console's first paint took.
"""

from __future__ import annotations

import argparse
import functools
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from anvil_tui import __version__
from anvil_tui.adapters.alarm_file import AlarmFile
from anvil_tui.adapters.box_file import BoxFile
from anvil_tui.adapters.bundle_files import BundleFolders
from anvil_tui.adapters.clock import SystemClock
from anvil_tui.adapters.config_files import ConfigFileControl, ConfigFileReader
from anvil_tui.adapters.docker_engine import DockerControl, DockerReader
from anvil_tui.adapters.docker_images import DockerImages
from anvil_tui.adapters.engine_find import HttpEngineFinder
from anvil_tui.adapters.engine_http import HttpEngineReader
from anvil_tui.adapters.file_look import LocalFiles
from anvil_tui.adapters.folder_rows import FolderRows
from anvil_tui.adapters.gpu_reader import ChildGpuReader, nvml_argv
from anvil_tui.adapters.haproxy import HaproxyControl, HaproxyReader
from anvil_tui.adapters.hf_cache import HubCaches
from anvil_tui.adapters.host_inspect import host_inspector
from anvil_tui.adapters.journal_file import OperationFolders
from anvil_tui.adapters.key_proof import GatewayKeyProof
from anvil_tui.adapters.lease import FileLease
from anvil_tui.adapters.notify_command import CommandNotifier
from anvil_tui.adapters.openai_client import OpenAIClient
from anvil_tui.adapters.port_look import LocalPorts
from anvil_tui.adapters.secrets import find, resolve
from anvil_tui.adapters.toml_files import load_recipes, load_suites, load_workspace
from anvil_tui.core.adopt import Running
from anvil_tui.core.discovery import NO_WORKSPACE, without_file
from anvil_tui.core.errors import AnvilError, BadFile
from anvil_tui.core.reading import Reading
from anvil_tui.core.redact import redact
from anvil_tui.core.tables import Layer
from anvil_tui.core.workspace import Containers, Workspace
from anvil_tui.core.world import BoxRecord, Lease, World
from anvil_tui.ports import Clock, GatewayControl, GatewayReader
from anvil_tui.service.alarm_keeper import AlarmKeeper
from anvil_tui.service.box import Box, Controls
from anvil_tui.service.discovery import Discovery
from anvil_tui.service.probes import Probes, Sources
from anvil_tui.service.store import Store

ALARM_LEASE = "state/alarms.lease"


def chosen_dir(args: argparse.Namespace) -> tuple[Path, Layer]:
    """--workspace, else ANVIL_TUI_WORKSPACE, else the current directory, and which of them it was."""
    named = os.environ.get("ANVIL_TUI_WORKSPACE", "")
    layer: Layer = "flag" if args.workspace else "env" if named else "default"
    return Path(args.workspace or named or ".").expanduser().resolve(), layer


def found_workspace(args: argparse.Namespace) -> Path | None:
    """The workspace; None where nobody named one and the current directory has none: the box is discovered."""
    directory, layer = chosen_dir(args)
    if layer == "default" and not os.path.lexists(directory / "anvil.toml"):
        return None
    return workspace_dir(args)


if TYPE_CHECKING:
    from anvil_tui.adapters.anvil_gateway_supervisor import Supervisor
    from anvil_tui.service.gates.conductor import Conductor
    from anvil_tui.service.recorder import Recorder


def workspace_dir(args: argparse.Namespace) -> Path:
    """The chosen directory, which must hold anvil.toml."""
    directory, _ = chosen_dir(args)
    if not (directory / "anvil.toml").exists():
        raise BadFile(
            str(directory / "anvil.toml"),
            "does not exist: give --workspace DIR, or make one with `anvil-tui init DIR`",
        )
    return directory


def box_of(args: argparse.Namespace) -> Box:
    return open_box(workspace_dir(args))


def gpu_argv(workspace: Workspace) -> tuple[str, ...]:
    """The reader anvil.toml names, else our own NVML reader as a child."""
    return workspace.gpus.reader or nvml_argv(workspace.gpus.interval_s, workspace.gpus.library_dir)


def open_box(directory: Path) -> Box:
    """Every reader of the box at `directory`. Makes no control object."""
    workspace, state, clock = load_workspace(directory), directory / "state", SystemClock()
    keys = client_keys(workspace, directory)
    admin: Callable[[], tuple[str, ...]] = lambda: (admin_key(workspace, directory)(),)  # noqa: E731
    hide: Callable[[str], str] = lambda text: redact(text, known(keys) + known(admin))  # noqa: E731
    containers = DockerReader(workspace.containers.url, workspace.containers.timeout_s)
    engines, chat = HttpEngineReader(clock), OpenAIClient(clock.monotonic_s)
    gpus = ChildGpuReader(gpu_argv(workspace), workspace.gpus.deadline_s, clock)
    host = host_inspector(workspace.containers.url, directory, clock)
    elsewhere = workspace.containers.url.startswith("ssh://")

    @functools.cache
    def conductor() -> Conductor:
        from anvil_tui.cli.gating import conductor_of

        return conductor_of(directory, chat, engines, containers, gpus, clock, host)

    return Box(
        directory=str(directory), workspace=workspace, clock=clock, containers=containers, engines=engines,
        gateway=gateway_reader(directory, workspace), gpus=gpus, host=host, chat=chat, conductor=conductor,
        store=BoxFile(state),
        operations=OperationFolders(state / "operations", hide),
        lease=FileLease(state / "lease"),
        recipes=FolderRows(directory / "recipes", load_recipes),
        suites=FolderRows(directory / "gates", load_suites),
        client_key=lambda: keys()[0],
        mount_source=lambda source: mount_source(directory, source),
        files=ConfigFileReader(directory),
        images=DockerImages(workspace.containers.url, workspace.containers.timeout_s),
        caches=hub_caches(workspace),
        bundles=open_bundles(directory),
        mounted=None if elsewhere else LocalFiles(state / "hashes.json"),
        listeners=None if elsewhere else LocalPorts(),
        secret=lambda ref: find(ref, directory),
        prove_key=GatewayKeyProof(f"http://{workspace.gateway.bind}", clock),
    )  # fmt: skip


def open_bundles(directory: Path) -> BundleFolders:
    """The evidence of the workspace: its operations', and what is kept in `evidence/`."""
    return BundleFolders(directory / "state" / "operations", directory / "evidence")


@dataclass(frozen=True, slots=True)
class BareBox:
    """A box without a workspace: its readers, "" or why what the environment names is not used, and how a
    container was made, for a recipe of it."""

    workspace: Workspace
    clock: Clock
    sources: Sources
    complaint: str
    running: Callable[[str], Running]


def open_bare() -> BareBox:
    """What can be read of this machine without a file, a key or a control object."""
    url, complaint = local_docker(os.environ.get("DOCKER_HOST", ""))
    workspace, clock = without_file(socket.gethostname().partition(".")[0], url), SystemClock()
    host = host_inspector(url, Path("/"), clock)
    containers = DockerReader(url, workspace.containers.timeout_s)
    sources = Sources(
        gpus=ChildGpuReader(gpu_argv(workspace), workspace.gpus.deadline_s, clock), host=host,
        containers=containers, engines=HttpEngineReader(clock),
        gateway=None, record=BoxRecord, stored=dict, operations=tuple, lease=lambda: None, recipes=tuple,
        pids=host.containers_of, discover=Discovery(HttpEngineFinder(clock), clock).look,
    )  # fmt: skip
    return BareBox(workspace, clock, sources, complaint, containers.running)


def local_docker(named: str) -> tuple[str, str]:
    """The Docker socket of this machine, and why DOCKER_HOST is not used: engines are asked on this machine's
    loopback, so a daemon elsewhere would be read beside the wrong engines."""
    if not named or named.startswith("unix://"):
        return named or Containers().url, ""
    return Containers().url, f"DOCKER_HOST names {redact(named)}, which discovery does not read: give a workspace"


def bare_probes(bare: BareBox) -> Probes:
    complaints = {"docker": bare.complaint} if bare.complaint else {}
    world = World(bare.workspace, True, gateway=Reading.unknown(NO_WORKSPACE, "gateway"), source_errors=complaints)
    return Probes(Store(world, bare.clock), bare.sources, bare.clock)


def open_probes(box: Box, *, read_only: bool) -> Probes:
    """The probes and the store of a console or of one `status`."""
    store = Store(World(box.workspace, read_only), box.clock)
    sources = replace(Sources.of(box), alarms=alarm_book(box).read, watcher=lambda: watcher_of(box))
    return Probes(store, sources, box.clock)


def alarm_book(box: Box) -> AlarmFile:
    return AlarmFile(Path(box.directory, "state", "alarms.json"))


def watcher_of(box: Box) -> Lease | None:
    """The console or watcher that keeps the box's alarms now."""
    return FileLease(Path(box.directory, ALARM_LEASE)).holder()


def open_keeper(box: Box, store: Store, name: str) -> AlarmKeeper:
    """Keeps the box's alarms and tells of them, unless another process does. Never made in read-only mode."""
    directory, settings = Path(box.directory), box.workspace.alarms
    notifier = CommandNotifier(directory, settings.notify, settings.notify_timeout_s) if settings.notify else None
    return AlarmKeeper(store, alarm_book(box), FileLease(directory / ALARM_LEASE), notifier, name)


def open_recorder(box: Box, store: Store) -> Recorder:
    """Keeps what this store publishes, unless another process does or `[history]` is off."""
    from anvil_tui.adapters.history_files import HistoryFiles
    from anvil_tui.service.recorder import Recorder

    folder, made_by = history_folder(Path(box.directory)), f"anvil-tui {__version__}"
    hiding = hider(Path(box.directory), box.workspace)
    files = HistoryFiles(folder, box.workspace.box.name, box.workspace.history, hiding, made_by)
    return Recorder(store, files, box.clock)


def history_folder(directory: Path) -> Path:
    return directory / "state" / "history"


def hider(directory: Path, workspace: Workspace) -> Callable[[], Callable[[str], str]]:
    """Gives what hides the secrets of the moment in which it is asked: resolved once, not for each text."""

    def now() -> Callable[[str], str]:
        keys, admin = client_keys(workspace, directory), admin_key(workspace, directory)
        secrets = known(keys) + known(lambda: (admin(),))
        return lambda text: redact(text, secrets)

    return now


def open_controls(box: Box) -> Controls:
    """What may change the box. Called by the operation process, and never in read-only mode."""
    directory, workspace = Path(box.directory), box.workspace
    return Controls(
        containers=DockerControl(workspace.containers.url, workspace.containers.timeout_s),
        gateway=gateway_control(directory, workspace),
        files=ConfigFileControl(directory, directory / "state" / "clients"),
        images=DockerImages(workspace.containers.url, workspace.containers.timeout_s),
        caches=hub_caches(workspace),
    )


def gateway_reader(directory: Path, workspace: Workspace) -> GatewayReader:
    settings = workspace.gateway
    if settings.kind == "anvil-serving":
        from anvil_tui.adapters.anvil_gateway import AnvilGatewayReader

        return AnvilGatewayReader(directory, settings, workspace.roles, admin_key(workspace, directory))
    return HaproxyReader(directory, settings, workspace.roles)


def gateway_control(directory: Path, workspace: Workspace) -> GatewayControl:
    settings, keys = workspace.gateway, client_keys(workspace, directory)
    if settings.kind == "anvil-serving":
        from anvil_tui.adapters.anvil_gateway import AnvilGatewayControl
        from anvil_tui.adapters.anvil_gateway_run import Setup

        admin = admin_key(workspace, directory)
        return AnvilGatewayControl(
            lambda: Setup(directory, settings, workspace.roles, admin(), keys()),
            workspace.policies.drain_timeout_s,
        )
    return HaproxyControl(directory, settings, workspace.roles, keys)


def anvil_gateway(directory: Path) -> Supervisor:
    """The anvil-serving gateway of a workspace, which is read anew whenever the gateway is started."""
    from anvil_tui.adapters.anvil_gateway_run import Setup
    from anvil_tui.adapters.anvil_gateway_supervisor import Supervisor

    def load() -> Setup:
        workspace = load_workspace(directory)
        admin, keys = admin_key(workspace, directory), client_keys(workspace, directory)
        return Setup(directory, workspace.gateway, workspace.roles, admin(), keys())

    return Supervisor(load)


def admin_key(workspace: Workspace, directory: Path) -> Callable[[], str]:
    """Of kinds that have one; resolved at each use."""
    return lambda: resolve(workspace.gateway.admin_key or "", directory)


def hub_caches(workspace: Workspace) -> HubCaches | None:
    return None if workspace.containers.url.startswith("ssh://") else HubCaches()


def client_keys(workspace: Workspace, directory: Path) -> Callable[[], tuple[str, ...]]:
    """Resolved at each use: reading the box needs no credential, and a rotated one is taken up."""
    return lambda: tuple(resolve(ref, directory) for ref in workspace.gateway.client_keys)


def known(keys: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
    """The secrets to hide. One that cannot be resolved cannot have been read, so it cannot leak."""
    try:
        return keys()
    except AnvilError:
        return ()


def mount_source(directory: Path, source: str) -> str:
    """A named volume stays a name; a path is absolute, relative ones are under the workspace."""
    if "/" not in source and not source.startswith("."):
        return source
    return str((directory / source).resolve()) if not source.startswith("/") else source
