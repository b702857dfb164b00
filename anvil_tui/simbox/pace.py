"""The one clock of a simulated box: real seconds in, shortened waits out."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime


class Pace:
    """A box that runs `scale` times faster than a real one; durations are given in real-box seconds."""

    def __init__(self, scale: float) -> None:
        if scale <= 0:
            raise ValueError(f"scale must be above 0, got {scale}")
        self.scale = scale
        self._begun = time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds) / self.scale)

    def now(self) -> float:
        """Seconds on the simulated box since it began."""
        return (time.monotonic() - self._begun) * self.scale


def stamp_ns() -> int:
    """Wall clock in nanoseconds, as the daemon stamps."""
    return time.time_ns()


def rfc3339(ns: int) -> str:
    """As Docker prints times, with nanoseconds.

    >>> rfc3339(1_788_350_400_000_000_005)
    '2026-09-02T12:00:00.000000005Z'
    """
    whole, rest = divmod(ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
