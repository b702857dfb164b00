"""What Python prints of an error that nobody expected, without secrets: it ends in terminals and in process.log."""

from __future__ import annotations

import sys
import threading
import traceback
from types import TracebackType

from anvil_tui.core.redact import redact


def hide_secrets() -> None:
    """From now on, in this process and all its threads."""
    sys.excepthook = _told
    threading.excepthook = lambda args: _told(args.exc_type, args.exc_value, args.exc_traceback)


def _told(kind: type[BaseException], value: BaseException | None, trace: TracebackType | None) -> None:
    sys.stderr.write(redact("".join(traceback.format_exception(kind, value, trace))))
