"""What Python prints of an error that nobody expected, without secrets: terminals and process.log get it."""

from __future__ import annotations

import sys
import threading
import traceback
from types import TracebackType

from anvil_tui.core.redact import redact


def hide_secrets() -> None:
    """From now on, in this process and all its threads."""
    sys.excepthook = told
    threading.excepthook = lambda args: told(args.exc_type, args.exc_value, args.exc_traceback)


def told(kind: type[BaseException], value: BaseException | None, trace: TracebackType | None) -> None:
    """As Python's own hook, redacted."""
    sys.stderr.write(redact("".join(traceback.format_exception(kind, value, trace))))
