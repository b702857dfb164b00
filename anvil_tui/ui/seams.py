"""What the console needs from the service, as Protocols. The composition root gives the implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from anvil_tui.core.alarms import Alarm
from anvil_tui.core.plan import Intent, Plan
from anvil_tui.core.recording import Kept, Playing
from anvil_tui.core.shelf import Compared, Disks, RunFiles, Verified
from anvil_tui.core.world import World


class WorldStore(Protocol):
    """The newest World, and who wants to hear of the next one."""

    @property
    def world(self) -> World: ...

    def subscribe(self, subscriber: Callable[[], None], /) -> Callable[[], None]:
        """Calls back after each change, from any thread; `world` is the newest then. Returns how to end that."""


class Control(Protocol):
    """The deeds. Each call may block and may raise AnvilError: the console calls it in a thread."""

    def plan(self, intent: Intent) -> Plan: ...

    def start(self, plan: Plan) -> str:
        """Start the operation in its own process; returns its id."""

    def resume(self, operation_id: str) -> None: ...

    def undo(self, operation_id: str) -> None: ...

    def cancel(self, operation_id: str, reason: str) -> None: ...

    def pause(self, operation_id: str, on: bool) -> None:
        """Ask a running operation to hold its gates, or to let them go on."""

    def acknowledge(self, alarm: Alarm) -> None:
        """Write for every console of the box that this person has seen it."""


class Evidence(Protocol):
    """What qualifications left behind. Each call reads files and may raise AnvilError: asked in a thread."""

    def run(self, operation: str) -> RunFiles: ...

    def compare(self, arms: Mapping[str, str]) -> Compared:
        """`arms` maps ids of bundles to `A` or `B`."""

    def verify(self, names: Iterable[str]) -> Mapping[str, Verified]: ...


class Player(Protocol):
    """A replay's moves. Each returns at once; the store tells when it has come about."""

    @property
    def state(self) -> Playing: ...

    def toggle(self) -> None:
        """Play, or stop where it is."""

    def step(self, by: int) -> None:
        """So many frames on, or back."""

    def event(self, by: int) -> None:
        """To the next event (1), or to the one before (-1)."""

    def faster(self, by: int) -> None: ...

    def jump(self, at: str, *, after: bool = False) -> None:
        """To the frame at this UTC text."""

    def close(self) -> None: ...


class History(Protocol):
    """What was recorded. Each call reads files and may raise AnvilError: asked in a thread."""

    def kept(self) -> Kept: ...

    def replay(self, at: str) -> ConsoleService:
        """A service that stands at this UTC text; its `player` moves it."""

    def export(self, world: World) -> str:
        """The minutes before this world as a file of its own; its path."""


class ConsoleService(Protocol):
    """`deeds` is None in read-only mode: then nothing that could change the box exists in this process.

    `history` is None where nothing is recorded, `player` is None but for a replay.
    """

    @property
    def store(self) -> WorldStore: ...

    @property
    def deeds(self) -> Control | None: ...

    @property
    def evidence(self) -> Evidence: ...

    @property
    def history(self) -> History | None: ...

    @property
    def player(self) -> Player | None: ...

    def disks(self) -> Disks:
        """What lies on the disks of the box. Slow, and may raise AnvilError: asked in a thread."""

    def begin(self) -> None:
        """Start reading the box. Called once, after the first paint; may block."""

    def follow(self, container_id: str | None) -> None:
        """Whose log `world.log` is to carry from now on; returns at once."""


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """`ascii` None = look at the terminal. `utc` shows UTC from the start. `mouse` is off: keys do everything.

    `crash_dir` is where a crash leaves its 0600 trace. `theme` is a name of `ui/theme.py`; `keys` maps ids of
    actions to the keys that a person gave them, with commas between; `bell` rings for a new alarm.
    """

    crash_dir: Path
    ascii: bool | None = None
    utc: bool = False
    mouse: bool = False
    theme: str = "anvil"
    keys: Mapping[str, str] = field(default_factory=dict)
    bell: bool = True
