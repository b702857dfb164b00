"""What alarms need of the world: where they are kept, and who is told of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from anvil_tui.core.alarms import Alarm

Alarms = tuple[Alarm, ...]


class AlarmBook(Protocol):
    """The open alarms of the box in `state/`, for every console and watcher of it."""

    def read(self) -> Alarms:
        """BadFile for one that is damaged; () where there is none."""

    def change(self, made: Callable[[Alarms], Alarms]) -> Alarms:
        """What `made` makes of them, alone under the kernel's lock; a damaged file counts as none."""


class Notifier(Protocol):
    def send(self, told: Mapping[str, Any], cancelled: Callable[[], bool]) -> str:
        """Why it could not be told, "" = it was. Bounded in time; may block that long."""
