"""The composition root of gates: what runs them is imported when the first one is asked for."""

from __future__ import annotations

from pathlib import Path

from anvil_tui.adapters.command_runner import ChildCommands
from anvil_tui.adapters.load_generator import ChildLoadGenerator
from anvil_tui.adapters.media_files import MediaFolder
from anvil_tui.adapters.sandbox import ChildSandbox
from anvil_tui.ports import ChatClient, Clock, ContainerReader, EngineReader, GpuReader, HostInspector
from anvil_tui.service.gates.conductor import Conductor
from anvil_tui.service.gates.session import GateParts


def conductor_of(
    directory: Path, chat: ChatClient, engines: EngineReader, containers: ContainerReader, gpus: GpuReader,
    clock: Clock, host: HostInspector,
) -> Conductor:  # fmt: skip
    """Over the readers of the box at `directory`."""
    return Conductor(GateParts(
        chat, engines, containers, gpus, clock, host,
        load=ChildLoadGenerator(), commands=ChildCommands(directory), sandbox=ChildSandbox(),
        media=MediaFolder(directory / "gates" / "media"),
    ))  # fmt: skip
