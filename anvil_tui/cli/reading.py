"""The headless verb `status`. It imports what it needs and no more: people wait for its answer."""

from __future__ import annotations

import argparse
import json

from anvil_tui.cli.wiring import bare_probes, found_workspace, open_bare, open_box, open_probes
from anvil_tui.core.status import status_json, status_lines


def status(args: argparse.Namespace) -> int:
    """What every source says now. 0 even when something is unwell: the answer is the data."""
    directory = found_workspace(args)
    probes = bare_probes(open_bare()) if directory is None else open_probes(open_box(directory), read_only=True)
    try:
        world = probes.once()
    finally:
        probes.stop()
    print(json.dumps(status_json(world), default=str) if args.json else "\n".join(status_lines(world)))
    return 0
