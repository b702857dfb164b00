"""The operation process: its own session, no terminal, one operation under the lease.

`python -m anvil_tui.cli.operate WORKSPACE OPERATION start|resume|undo`. It outlives the console that started
it; SIGTERM asks it to go back, as a cancel does.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from anvil_tui.cli.traces import hide_secrets
from anvil_tui.cli.wiring import open_box, open_controls
from anvil_tui.core.errors import AnvilError
from anvil_tui.service.operation import Mode, operate

EXIT = {"done": 0, "undone": 1, "halted": 5}


def main(argv: Sequence[str], checkpoint: Callable[[str], None] = lambda at: None) -> int:
    """`checkpoint` is the seam at which tests end the process between two effects."""
    hide_secrets()
    workspace, operation, mode = argv
    asked: list[str] = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append("SIGTERM"))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    box = open_box(Path(workspace))
    try:
        outcome = operate(
            box,
            open_controls(box),
            operation,
            cast(Mode, mode),
            pid=os.getpid(),
            interrupted=lambda: asked[0] if asked else box.operations.cancel_asked(operation),
            checkpoint=checkpoint,
        )
    except AnvilError as why:
        print(f"{operation}: {why}", file=sys.stderr)
        return why.exit_code
    finally:
        box.gpus.close()
    return EXIT[outcome]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
