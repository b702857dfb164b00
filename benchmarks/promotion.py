"""`make bench-promotion`: what a promotion costs beside load and drain, on real parts under clients.

Ten promotions by command, from one exclusive serve to another and back. Overhead is the wall time of the
operation, from its first record to its last, less the steps drain, start and ready: gates of suite quick, the stop
of the old engine and the verification count. What the command takes around it (two starts of Python, both plans)
is told before the last line. Flip is the step that moves the aliases, by the journal. Longest hold is the slowest
answer of a client that asked during a promotion: it contains the load, since both want the whole box.
Run it on a machine that does nothing else. The last line is the result.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from datetime import datetime
from statistics import median

from tests.e2e.realbox import RealBox
from tests.real import netns, parts
from tests.real.client_loop import ClientLoop
from tests.real.fixtures import llama_stand
from tests.real.workspace import make_workspace, running_gateway

RUNS, PAIR = 10, ("smol-x4k", "smol-x8k")
NOT_OURS = ("drain", "start", "ready")
SHOWN = ("around", "hold", "stop-incumbent", "gates", "flip", "verify", "record")


def main() -> int:
    if not netns.inside():
        netns.main([sys.executable, "-m", "benchmarks.promotion"])
    with llama_stand() as (docker, image):
        folder = make_workspace(docker.folder.parent / "w", docker.url, image, parts.model("smol").parent)
        with running_gateway(folder):
            box = RealBox(folder)
            try:
                box.do("promote", PAIR[0], "--suite", "quick", "--yes")
                return measured(box)
            finally:
                box.drop(keep=[])


def measured(box: RealBox) -> int:
    rows, spans = [], []
    with ClientLoop(box.dir, pace_s=0.05, tokens=24) as clients:
        clients.wait_answers(4)
        for number in range(RUNS):
            recipe, began = PAIR[(number + 1) % 2], time.monotonic()
            box.do("promote", recipe, "--suite", "quick", "--yes")
            ended = time.monotonic()
            spans.append((began, ended))
            rows.append(row(box, ended - began))
            print(told(recipe, rows[-1]), flush=True)
            clients.wait_answers(4)
    assert clients.errors() == [], clients.errors()
    held = max(a["ms"] for a in clients.answers() if any(b <= a["at"] < e for b, e in spans)) / 1000
    over, flips = [r["overhead"] for r in rows], [r["flip"] * 1000 for r in rows]
    print(f"the command around the operation: {median(r['around'] for r in rows):.2f} s")
    print(
        f"promotion: runs={RUNS} overhead_s={median(over):.2f} (max {max(over):.2f}) "
        f"flip_ms={median(flips):.0f} (max {max(flips):.0f}) longest_hold_s={held:.2f}"
    )
    return 0


def row(box: RealBox, wall_s: float) -> dict[str, float]:
    """Seconds of each step by the journal; `around` is what the command takes before and after its operation."""
    view = box.last()
    assert view.outcome == "done", view.why
    steps = {s.name: seconds(s.started_at, s.ended_at) for s in view.steps}
    around = wall_s - seconds(view.started_at, view.ended_at)
    overhead = wall_s - around - sum(steps[name] for name in NOT_OURS)
    return {**steps, "command": wall_s, "around": around, "overhead": overhead}


def told(recipe: str, r: Mapping[str, float]) -> str:
    listed = ", ".join(f"{name} {r.get(name, 0):.2f}" for name in SHOWN)
    return f"{recipe}: command {r['command']:.2f} s, overhead {r['overhead']:.2f} s: {listed}"


def seconds(began: str | None, ended: str | None) -> float:
    assert began and ended
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()


if __name__ == "__main__":
    sys.exit(main())
