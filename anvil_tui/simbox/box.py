"""The whole simulated box: cards, container engine, control, and its sockets, in one process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from anvil_tui.simbox.control import Control
from anvil_tui.simbox.daemon import Daemon, SimContainer
from anvil_tui.simbox.docker_api import DockerApi
from anvil_tui.simbox.gpus import Board
from anvil_tui.simbox.http import Listener
from anvil_tui.simbox.pace import Pace


class SimBox:
    """`docker_path` and `control_path` are Unix sockets, removed again by `close`."""

    def __init__(self, sockets: Path, scale: float, seed: int) -> None:
        self.docker_path, self.control_path = sockets / "docker.sock", sockets / "control.sock"
        self.pace = Pace(scale)
        self.board = Board(self.pace, seed)
        self.daemon = Daemon(self.board, self.pace, seed)
        self.api = DockerApi(self.daemon)
        self.control = Control(self)
        self.active: dict[str, dict[str, str]] = {}
        self.held_ports: list[socket.socket] = []
        self.traffic: dict[str, int] = {}
        self._docker: Listener | None = None
        self._later: set[asyncio.Task[Any]] = set()

    async def open(self) -> None:
        await self.docker_up()
        await self.control.open()

    async def close(self) -> None:
        for task in self._later:
            task.cancel()
        await self.control.close()
        await self.docker_down()
        await self.daemon.close()
        for held in self.held_ports:
            held.close()
        self.control_path.unlink(missing_ok=True)

    async def docker_up(self) -> None:
        if self._docker is None:
            self._docker = Listener(self.api.handle)
            await self._docker.open_unix(self.docker_path)

    async def docker_down(self) -> None:
        if self._docker is not None:
            listener, self._docker = self._docker, None
            await listener.close()
            self.docker_path.unlink(missing_ok=True)

    def later(self, seconds: float, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Do something after so many seconds of the wall clock."""

        async def wait() -> None:
            await asyncio.sleep(seconds)
            await work()

        self.background(wait())

    def background(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    def status(self) -> dict[str, Any]:
        return {
            "scale": self.pace.scale,
            "faults": self.active,
            "containers": [_row(c) for c in self.daemon.containers.values()],
            "traffic": self.traffic,
        }


def _row(c: SimContainer) -> dict[str, Any]:
    engine = c.engine
    return {
        "id": c.id,
        "name": c.name,
        "status": c.status,
        "exit_code": c.exit_code,
        "phase": engine.phase if engine else "",
        "progress": engine.progress if engine else "",
        "served": list(engine.served) if engine else [],
        "running": engine.stats.running if engine else 0,
    }
