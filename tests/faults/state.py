"""Faults of what the product keeps: disk, journal, clock, credentials, suites."""

from __future__ import annotations

import json
import os
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from tests.faults.matrix import fault
from tests.faults.rig import Rig


def fill(r: Rig) -> Path:
    """The disk under state/ has no byte left."""
    path = r.state / "filler"
    with path.open("wb", buffering=0) as file:
        for block in (1 << 20, 1 << 12, 1):
            try:
                while file.write(b"\0" * block) == block:
                    pass
            except OSError:
                continue
    free = os.statvfs(r.state)
    assert free.f_bavail == 0, f"{free.f_bavail} blocks are free"
    return path


@fault("disk full", "plan", "exit 1", source="issue")
def full_before(r: Rig) -> str:
    filler = fill(r)
    ran = r.box.anvil("promote", r.other, "--suite", r.suite, "--yes")
    filler.unlink()
    r.outcomes.append(f"exit {ran.returncode}")
    assert "no space" in ran.stderr.lower(), ran.stderr
    empty = [p.name for p in (r.state / "operations").iterdir() if not any(p.iterdir())]
    assert not empty, f"left behind: {empty}"
    return ran.stderr.strip()[-110:]


@fault("disk full", "drain", "undone", source="issue")
def full_while_held(r: Rig) -> str:
    """What was reserved at the start is enough to write the way back."""
    with r.at("drain:intended"):
        filler = fill(r)
    filler.unlink()
    assert "disk" in r.view.why, r.view.why
    return str(r.view.why)[:110]


@fault("disk full", "load", "undone", source="issue")
def full_while_loading(r: Rig) -> str:
    with r.at("ready:intended"):
        filler = fill(r)
    filler.unlink()
    return str(r.view.why)[:110]


@fault("disk full", "after decide", "done", source="issue", serves="candidate")
def full_decided(r: Rig) -> str:
    with r.at("decide:after"):
        filler = fill(r)
        said = f"{os.statvfs(r.state).f_bavail} blocks free from the decision on"
    filler.unlink()
    return said


# the journal


@fault("process killed, last line torn", "load", "killed", "undone", source="issue journal torn")
def torn(r: Rig) -> str:
    r.run(r.intent(), kill_at="ready:intended")
    path = r.state / "operations" / r.operation / "journal.ndjson"
    with path.open("ab") as file:
        file.write(b'{"v": 1, "seq": 99, "kind": "don')
    r.recover("undo")
    kept = path.with_suffix(".torn").read_bytes()
    assert kept == b'{"v": 1, "seq": 99, "kind": "don', kept
    return "the torn line was set aside in journal.torn"


@fault("process killed, a line altered", "load", "killed", "exit 3", "undone", source="issue journal torn")
def altered(r: Rig) -> str:
    """What it decided is not certain, so nothing is done by itself; with the line put right it can be undone."""
    r.run(r.intent(), kill_at="ready:intended")
    path = r.state / "operations" / r.operation / "journal.ndjson"
    good = path.read_bytes()
    path.write_bytes(good.replace(b'"kind": "begin"', b'"kind": "begun"', 1))
    assert path.read_bytes() != good
    running = r.box.running()
    r.recover("undo")
    assert r.box.running() == running, "something was done all the same"
    path.write_bytes(good)
    r.recover("undo")
    return "line 1 was altered: refused, nothing touched"


@fault("operation process killed", "drain", "killed", "undone", source="2.3 operator kills the console")
def process_killed(r: Rig) -> str:
    r.run(r.intent(), kill_at="drain:intended")
    assert set(r.box.gateway().aliases.values()) == {"hold"}
    r.recover("resume")
    return f"killed while clients were held; {r.view.why}"[:110]


# the clock


def jump(r: Rig, point: str, offset: str) -> str:
    """Real for the operation's process: its wall clock is moved while it runs, the monotonic one is not."""
    with r.faked_clock() as move, r.at(point):
        move(offset)
    stamps = [datetime.fromisoformat(json.loads(line)["at"]) for line in r.journal_text().splitlines()]
    steps = [(b - a).total_seconds() for a, b in pairwise(stamps)]
    jumped = max(steps, key=abs)
    assert abs(jumped) > 80_000, f"the clock did not move: {steps}"
    return f"the journal's stamps jump by {jumped / 3600:.1f} h"


@fault("wall clock jumps a day on", "load", "done", source="issue clock jumps", serves="candidate")
def clock_on(r: Rig) -> str:
    return jump(r, "ready:intended", "86400")


@fault("wall clock jumps a day back", "gates", "done", source="issue clock jumps", serves="candidate")
def clock_back(r: Rig) -> str:
    return jump(r, "gates:intended", "-86400")


# credentials


@fault("client key wrong from then on: 401", "verify", "halted", "done", source="2.3 stale credentials",
       serves="candidate")  # fmt: skip
def unauthorised(r: Rig) -> str:
    """A 401 half-way keeps the state and asks: the candidate serves, nothing is taken back."""
    key = r.state / "client.key"
    good = key.read_text()
    with r.at("flip:after"):
        key.write_text("somebody-elses-key")
    why = str(r.view.why)
    key.write_text(good)
    assert "401" in why, why
    r.recover("resume")
    return why[:110]


@fault("gate cannot be run", "plan", "refused", source="2.4 rollback gate not runnable")
def unrunnable(r: Rig) -> str:
    """Found before anything is touched."""
    text = r.refused(r.intent(suite="too-deep"))
    assert "cannot be run" in text, text
    return text[:110]


@fault("gate of the way back cannot be run", "plan", "refused", source="2.4 rollback gate", serves="candidate")
def unrunnable_back(r: Rig) -> str:
    assert r.run(r.intent()) == "done"
    r.outcomes = []
    text = r.refused({"verb": "rollback", "role": "primary", "suite": "too-deep"})
    assert "cannot be run" in text, text
    return text[:110]


@fault("gate fails", "gates", "undone", source="2.3")
def gate_fails(r: Rig) -> str:
    r.run(r.intent(suite="strict"))
    failed = [f"{g.id}: {g.reason}" for g in r.view.gates if g.verdict == "failed"]
    assert failed, r.view.gates
    return failed[0][:110]
