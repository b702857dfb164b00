"""Memory, swap, disk and load of the box, through psutil where the box is this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import psutil

from anvil_tui.core.box import Host
from anvil_tui.core.reading import Reading
from anvil_tui.ports import Clock

T = TypeVar("T")


class PsutilHost:
    """`ports.HostReader`. `workspace` is the folder whose file system counts as the disk.

    A figure that the system does not give is None; the reading is an error only when there is none at all.
    """

    def __init__(self, workspace: Path, clock: Clock, shm: Path = Path("/dev/shm")) -> None:
        self._workspace, self._shm, self._clock = workspace, shm, clock

    def read(self) -> Reading[Host]:
        now_s = self._clock.monotonic_s()
        failures: list[str] = []

        def ask(call: Callable[[], T]) -> T | None:
            try:
                return call()
            except (OSError, psutil.Error, RuntimeError) as error:
                failures.append(str(error))
                return None

        memory: Any = ask(psutil.virtual_memory)
        swap: Any = ask(psutil.swap_memory)
        disk: Any = ask(lambda: psutil.disk_usage(str(self._workspace)))
        shm: Any = ask(lambda: psutil.disk_usage(str(self._shm)))
        if not (memory or swap or disk or shm):
            return Reading.error(f"host readings failed: {failures[0]}", now_s, "host")
        load = ask(psutil.getloadavg)
        host = Host(
            memory.total if memory else None, memory.available if memory else None,
            swap.total if swap else None, swap.used if swap else None,
            disk.total if disk else None, disk.free if disk else None,
            shm.total if shm else None, shm.used if shm else None,
            load[0] if load else None, psutil.cpu_count(),
        )  # fmt: skip
        return Reading.known(host, now_s, "host")


class RemoteHost:
    """`ports.HostReader` of a box behind ssh: unknown, for this machine's figures are not its own."""

    def __init__(self, url: str, clock: Clock) -> None:
        self._url, self._clock = url, clock

    def read(self) -> Reading[Host]:
        reason = f"the box is reached over {self._url}; only this machine's own figures can be read"
        return Reading.unknown(reason, "host", self._clock.monotonic_s())
