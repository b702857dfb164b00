"""The load generator for tests that assert facts and never times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from anvil_tui.adapters.load_generator import ChildLoadGenerator
from anvil_tui.ports import LoadLane, LoadRun


class CalmGenerator(ChildLoadGenerator):
    """The real one; whether this machine was quiet is no matter."""

    def run(self, lane: LoadLane, on_done: Callable[[int], None], cancelled: Callable[[], bool]) -> LoadRun:
        run = super().run(lane, on_done, cancelled)
        return replace(run, instrument=replace(run.instrument, invalid=""))

    def error_ms(self, streams: int) -> tuple[float, float]:
        return 0.0, 0.0
