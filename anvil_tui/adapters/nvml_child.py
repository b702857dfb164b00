"""The GPU reader program: prints one snapshot a line (`core.gpu_wire`) until its reader goes away.

`python -m anvil_tui.adapters.nvml_child --interval S [--library-dir DIR] [--once]`, also `anvil-tui gpu-reader`.
It runs apart from the console so that a driver that hangs can be killed with it. A box without NVML gets a
line that says so; the program ends only when nobody reads any more.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence

from anvil_tui.adapters.nvml import Sampler
from anvil_tui.core.gpu_wire import snapshot_to_json


def main(argv: Sequence[str] | None = None) -> int:
    """0 when the reading side closed or after `--once`; 2 for wrong usage."""
    parser = argparse.ArgumentParser(prog="gpu-reader", description="Print one JSON GPU snapshot a line.")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between lines (default 1)")
    parser.add_argument("--library-dir", default="", help="folder searched first for libnvidia-ml.so.1")
    parser.add_argument("--once", action="store_true", help="print one line and end")
    args = parser.parse_args(argv)
    if args.interval <= 0:
        parser.error("--interval must be above 0")
    try:
        _run(Sampler(args.library_dir), args.interval, args.once)
    except (BrokenPipeError, KeyboardInterrupt):
        # Nobody reads any more. Keep the interpreter from flushing into the closed pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _run(sampler: Sampler, interval_s: float, once: bool) -> None:
    due = time.monotonic()
    while True:
        line = json.dumps(snapshot_to_json(sampler.sample()), separators=(",", ":"))
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
        if once:
            return
        # a late tick is not made up for: the next one is a whole interval away at most
        due = max(due + interval_s, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    raise SystemExit(main())
