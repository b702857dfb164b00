"""The machine's clocks."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    def monotonic_s(self) -> float:
        return time.monotonic()

    def utc(self) -> datetime:
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
