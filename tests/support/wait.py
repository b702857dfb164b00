"""Waiting without guessing: poll until true, or say what was not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(ask: Callable[[], T | None], what: str, deadline_s: float = 30.0) -> T:
    """The first truthy answer; AssertionError naming `what` when the deadline passes."""
    until = time.monotonic() + deadline_s
    while True:
        if found := ask():
            return found
        if time.monotonic() > until:
            raise AssertionError(f"not within {deadline_s} s: {what}")
        time.sleep(0.05)
