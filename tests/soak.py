"""Promotions and rollbacks in a loop under client load, with random faults: `python -m tests.soak SECONDS [SEED]`.

In namespaces of its own (tests.real.netns). A console stands beside it all the time. What is chosen comes from
the seed alone; faults are rows of the matrix (tests.faults), judged as there, and kills of the operation process.
The last line is `soak: promotions=N rollbacks=N faults=N client_errors=N lost=N rss_growth=X%`.

Lost is what was there and is not any more: a request without an answer, a journal record, an operation, a
manifest of evidence, a generation that went back. rss_growth compares the memory of console and gateway together
in the last fifth of the time with that in the second tenth. What state/ grows by an operation is printed.
"""

from __future__ import annotations

import hashlib
import random
import secrets
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import psutil

from tests.faults.__main__ import real_rig, run_rows
from tests.faults.matrix import FAULTS, Fault, Row, count_errors
from tests.faults.rig import Rig
from tests.real.docker_engine import RealDocker
from tests.real.fixtures import llama_stand
from tests.support.tmux import anvil, terminal

LONG_S = 1_800
GROWTH_MAX = {True: 10.0, False: 30.0}  # per cent; a short run ends while caches still fill
STATE_MIB = 2_048
SLOW = (
    "dockerd",
    "wedged",
    "host memory",
    "SIGTERM",
    "401",
    "on the way back",
    "longer than the drain",
    "more requests",
)
KILL_AT = (
    "create:acted", "hold:after", "drain:after", "stop-incumbent:acted", "start:acted", "ready:after",
    "gates:intended", "decide:after", "flip:gateway:between", "verify:intended", "record:after",
)  # fmt: skip


def promote(r: Rig) -> str:
    return f"promoted: {r.run(r.intent())}"


def promote_and_back(r: Rig) -> str:
    r.run(r.intent())
    return f"rolled back: {r.run({'verb': 'rollback', 'role': 'primary', 'suite': r.suite})}"


def killed(point: str) -> Fault:
    """A promotion whose process is killed; what the journal decided is what happens."""
    decided = KILL_AT.index(point) >= KILL_AT.index("decide:after")

    def inject(r: Rig) -> str:
        r.run(r.intent(), kill_at=point)
        r.recover("resume")
        return f"killed at {point}"

    ends = ("killed", "done" if decided else "undone")
    return Fault("operation killed", point, ends, inject, "issue", "candidate" if decided else "incumbent")


PROMOTE = Fault("no fault", "promote", ("done",), promote, "issue", "candidate")
BACK = Fault("no fault", "rollback", ("done", "done"), promote_and_back, "issue", "incumbent")


def choices(seed: int, slow: bool) -> list[Fault]:
    """One round of what is done, in the order of the seed: as many healthy operations as faults and kills."""
    rows = [f for f in FAULTS if f.parts == "real" and f.shape == "full"]
    rows = [f for f in rows if slow or not any(w in f.name for w in SLOW)]
    rows = [f for f in rows if "disk full" not in f.name]  # a disk of gigabytes is not filled every minute
    kills = [killed(point) for point in KILL_AT]
    chosen = [*rows, *kills, *[PROMOTE, BACK] * ((len(rows) + len(kills)) // 2)]
    random.Random(seed).shuffle(chosen)
    return chosen


@dataclass
class Kept:
    """What must never be less. `seen` is operation -> (bytes, hash of the journal up to there)."""

    state: Path
    seen: dict[str, tuple[int, str]] = field(default_factory=dict)
    manifests: dict[str, str] = field(default_factory=dict)
    generation: int = 0
    lost: list[str] = field(default_factory=list)

    def look(self, generation: int) -> None:
        if generation < self.generation:
            self.lost.append(f"generation {self.generation} became {generation}")
        self.generation = max(generation, self.generation)
        operations = self.state / "operations"
        for name, (size, digest) in self.seen.items():
            self._still(operations / name / "journal.ndjson", size, digest)
        for name, digest in self.manifests.items():
            self._still(operations / name, None, digest)
        for path in operations.glob("*/journal.ndjson"):
            raw = path.read_bytes()
            self.seen[path.parent.name] = (len(raw), _sha(raw))
        for path in operations.glob("*/*-manifest.json"):
            self.manifests[str(path.relative_to(operations))] = _sha(path.read_bytes())

    def _still(self, path: Path, size: int | None, digest: str) -> None:
        raw = path.read_bytes()[:size] if path.exists() else b""
        if _sha(raw) != digest:
            self.lost.append(f"{path.relative_to(self.state)} is not what it was")


def _sha(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def unanswered(answers: Sequence[dict[str, object]]) -> int:
    """Requests that were asked and never came to an end: each client counts its own in steps of two."""
    numbers = sorted(int(str(a["n"])) for a in answers)
    found = 0
    for first in (0, 1):
        own = [n for n in numbers if n % 2 == first]
        found += (own[-1] - own[0]) // 2 + 1 - len(own) if own else 0
    return found


class Memory:
    """Resident memory of what lives long: the console, and the gateway's processes."""

    def __init__(self, rig: Rig, began: float, seconds: float) -> None:
        self.rig, self.began, self.seconds = rig, began, seconds
        self.samples: list[tuple[float, int]] = []

    def look(self) -> None:
        share = (time.monotonic() - self.began) / self.seconds
        gateway = psutil.Process(self.rig.gateway.pid)
        pids = [gateway, *gateway.children(), *consoles()]
        self.samples.append((share, sum(p.memory_info().rss for p in pids)))

    def growth(self) -> float:
        """Per cent, between medians."""
        early = [rss for at, rss in self.samples if 0.1 <= at < 0.2] or [self.samples[0][1]]
        late = [rss for at, rss in self.samples if at >= 0.8] or [self.samples[-1][1]]
        return 100 * (median(late) - median(early)) / median(early)


def consoles() -> list[psutil.Process]:
    """The console's own process; the shell and tmux above it have its words too."""
    found = [p for p in psutil.process_iter() if "--read-only" in p.cmdline() and "python" in p.exe()]
    assert len(found) == 1, f"{len(found)} consoles run"
    return found


@dataclass
class Soak:
    rig: Rig
    kept: Kept
    memory: Memory
    rows: list[Row] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)

    def go(self, fault: Fault) -> bool:
        """One choice; False = it left the box where the next cannot start."""
        row = run_rows(self.rig, [fault])[0]
        self.rows.append(row)
        healthy = fault in (PROMOTE, BACK)
        self.done["faults"] += not healthy
        self.done["promotions"] += healthy or "done" in row.outcomes
        self.done["rollbacks"] += fault is BACK
        self.kept.look(self.rig.box.record().generation)
        self.memory.look()
        return not row.why


def rig_of(docker: RealDocker, image: str, slow: bool) -> AbstractContextManager[Rig]:
    """The short form leaves the machine to what runs beside it."""
    return real_rig(docker, image, "full", state_mib=STATE_MIB, pace_s=0.1 if slow else 0.5)


def main(seconds: float, seed: int) -> int:
    print(f"seed {seed}", flush=True)
    slow = seconds >= LONG_S
    with llama_stand() as (docker, image):
        with rig_of(docker, image, slow) as rig, terminal(rig.box.dir) as console:
            console.open(anvil("--workspace", str(rig.box.dir), "--read-only"), 120, 40)
            console.wait("testbox")
            began = time.monotonic()
            soak = Soak(rig, Kept(rig.state), Memory(rig, began, seconds))
            size = folder_bytes(rig.state)
            going = loop(soak, began + seconds, seed, slow)
            grown = (folder_bytes(rig.state) - size) / max(1, len(soak.kept.seen))
            console.wait("primary")
        return told(soak, going, grown, rig.clients.rows(), seconds)


def loop(soak: Soak, until: float, seed: int, slow: bool) -> bool:
    """Between two choices the clients have the box for themselves."""
    while True:
        for fault in choices(seed, slow):
            if time.monotonic() >= until:
                return True
            if not soak.go(fault):
                return False
            soak.rig.clients.wait_answers(4 if slow else 24)
        seed += 1


def told(soak: Soak, going: bool, grown: float, answers: Sequence[dict[str, object]], seconds: float) -> int:
    errors = count_errors(soak.rows, answers) + sum(r.errors for r in soak.rows)
    lost, growth = [*soak.kept.lost, *["a request without an answer"] * unanswered(answers)], soak.memory.growth()
    for row in soak.rows:
        if not row.right:
            print(f"NOT AS PRESCRIBED: {row.fault.name}, {row.fault.phase}: {row.why}")
    print("\n".join(lost))
    print(f"{len(answers)} requests; {len(soak.kept.seen)} operations, state/ grows {grown / 1024:.0f} KiB each")
    print(
        f"soak: promotions={soak.done['promotions']} rollbacks={soak.done['rollbacks']} "
        f"faults={soak.done['faults']} client_errors={errors} lost={len(lost)} rss_growth={growth:.1f}%"
    )
    tried = soak.done["promotions"] and soak.done["faults"] and answers
    well = going and tried and all(r.right for r in soak.rows) and errors == 0 and not lost
    return 0 if well and growth <= GROWTH_MAX[seconds >= LONG_S] else 1


def folder_bytes(folder: Path) -> int:
    return sum(p.lstat().st_size for p in folder.rglob("*") if p.is_file())


if __name__ == "__main__":
    given = sys.argv[2] if len(sys.argv) > 2 and sys.argv[2] else secrets.randbelow(1_000_000)
    sys.exit(main(float(sys.argv[1]), int(given)))
