"""Driving the console in tests: keys in, words out, no sleeping."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from anvil_tui.core.world import World
from anvil_tui.ui.app import Console
from anvil_tui.ui.modals.dialog import Dialog
from anvil_tui.ui.seams import ConsoleOptions
from anvil_tui.ui.widgets.pane import Pane
from anvil_tui.ui.widgets.strips import Strips
from tests.support.worlds import FakeDeeds, FakeEvidence, FakeService

DEADLINE_S = 5.0


def make(
    world: World, crash_dir: Path, *, ascii_only: bool = False, evidence: FakeEvidence | None = None, **chosen: Any
) -> Console:
    """`chosen` are settings of a person: theme, keys, bell, mouse."""
    service = FakeService(world, evidence)
    return Console(service, ConsoleOptions(crash_dir, ascii=ascii_only, utc=True, **chosen), autopump=False)


class Driver:
    """One running console. `text` is the screen in words, as drawn."""

    def __init__(self, app: Console, pilot: Pilot[int]) -> None:
        self.app, self.pilot = app, pilot

    @property
    def service(self) -> FakeService:
        service = self.app.replays.home or self.app.service  # in a replay: the one that waits
        assert isinstance(service, FakeService)
        return service

    @property
    def deeds(self) -> FakeDeeds:
        assert self.service.deeds is not None
        return self.service.deeds

    @property
    def evidence(self) -> FakeEvidence:
        return self.service.evidence

    @property
    def text(self) -> str:
        strips = [s for s in self.app.screen.query(Strips) if s.display and s.size.width]
        return "\n".join("".join(c.text for c in row.cells) for s in strips for row in s.lines)

    def pane(self, name: str) -> Pane:
        return self.app.screen.query_one(f"#{name}", Pane)

    async def publish(self, world: World) -> None:
        """What the store does, and one tick of the bridge."""
        self.service.store.publish(world)
        assert self.app.bridge is not None
        self.app.bridge.pump()
        await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def type(self, text: str) -> None:
        await self.press(*("minus" if ch == "-" else ch for ch in text))

    async def until(self, true: Callable[[], bool], what: str = "") -> None:
        """Wait for a condition; work in threads has no other sign of its end."""
        loop = asyncio.get_running_loop()
        end = loop.time() + DEADLINE_S
        while not true():
            if loop.time() > end:
                raise AssertionError(f"not within {DEADLINE_S} s: {what or true}\n{self.text}")
            await self.pilot.pause(0.01)

    async def dialog(self) -> Dialog:
        """The dialog that a deed opened, once it takes keys."""
        await self.until(lambda: isinstance(self.app.screen, Dialog), "a dialog")
        found = self.app.screen
        assert isinstance(found, Dialog)
        await self.until(lambda: found.armed_at < float("inf"), "the dialog is drawn")
        await self.pilot.pause()
        return found


@asynccontextmanager
async def console(
    world: World, crash_dir: Path, size: tuple[int, int] = (120, 40), *, ascii_only: bool = False,
    evidence: FakeEvidence | None = None, **chosen: Any,
) -> AsyncIterator[Driver]:  # fmt: skip
    app = make(world, crash_dir, ascii_only=ascii_only, evidence=evidence, **chosen)
    async with app.run_test(size=size) as pilot:
        driver = Driver(app, pilot)
        assert app.bridge is not None
        app.bridge.pump()
        await pilot.pause()
        await pilot.pause()
        yield driver
