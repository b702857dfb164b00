"""Work off the loop: what may block runs in a daemon thread, so that leaving the console never waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from anvil_tui.core.errors import AnvilError

if TYPE_CHECKING:
    from anvil_tui.ui.app import Console

T = TypeVar("T")


def off_loop(app: Console, work: Callable[[], T], done: Callable[[T | AnvilError], None]) -> None:
    """Run `work` off the loop and `done` on it. A bug in `work` leaves a trace and the console lives."""

    def run() -> None:
        result: T | AnvilError
        try:
            result = work()
        except AnvilError as error:
            result = error
        except Exception as bug:
            result = AnvilError(f"internal error: {type(bug).__name__}; trace in {app.trace(bug)}")
        if app.is_running:
            app.call_later(done, result)

    threading.Thread(target=run, name="work", daemon=True).start()
