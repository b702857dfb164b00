"""Starts operation processes and follows their journals; used by the command line and by the console."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from anvil_tui.adapters.child_env import child_env
from anvil_tui.core.errors import Refused
from anvil_tui.core.journal import OperationView
from anvil_tui.core.plan import Plan
from anvil_tui.service.box import Box
from anvil_tui.service.operation import Mode, prepare


def operation_env(box: Box) -> dict[str, str]:
    """The operation process resolves secrets itself, so it gets the variables that anvil.toml names as such, and
    those that command gates name."""
    gateway = box.workspace.gateway
    refs = (*gateway.client_keys, gateway.admin_key or "")
    asked = (name for s in box.suites() if s.suite for gate in s.suite.gates for name in gate.env)
    return child_env((*(ref.removeprefix("env:") for ref in refs if ref.startswith("env:")), *asked))


def start(box: Box, plan: Plan) -> str:
    """Freeze the plan and start its process; returns the operation id."""
    operation = prepare(box, plan)
    spawn(box, operation, "start")
    return operation


def spawn(box: Box, operation: str, mode: Mode) -> subprocess.Popen[bytes]:
    holder = box.lease.holder()
    if holder:
        raise Refused(f"the box is being changed by operation {holder.operation} ({holder.who})")
    log = Path(box.directory) / "state" / "operations" / operation / "process.log"
    log.touch(mode=0o600)
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "anvil_tui.cli.operate", box.directory, operation, mode],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=operation_env(box),
            start_new_session=True, cwd=box.directory,
        )  # fmt: skip


def view_of(box: Box, operation: str) -> OperationView | None:
    return next((o for o in box.operations.views() if o.id == operation), None)


def follow(
    box: Box, operation: str, process: subprocess.Popen[bytes], say: Callable[[str], None]
) -> OperationView | None:
    """Narrate until the operation's process has ended; the last view."""
    told = 0
    while True:
        ended = process.poll() is not None
        records = box.operations.journal(operation).records()
        for record in records[told:]:
            text = _narrate(record.kind, record.step, dict(record.data))
            if text:
                say(f"{record.at[11:19]}  {text}")
        told = len(records)
        if ended:
            return view_of(box, operation)
        box.clock.sleep(0.05)


def _narrate(kind: str, step: str, d: dict[str, object]) -> str:
    match kind:
        case "intent":
            return "" if step == "decide" else f"{step:16} {d['title']}"
        case "failed":
            return f"{step:16} FAILED: {d['why']}"
        case "progress":
            return f"{step:16} … {d['text']}"
        case "gate":
            return (
                ""
                if d["verdict"] == "running"
                else f"{'gate ' + str(d['id']):16} {d['verdict']} {d.get('reason', '')}"
            )
        case "decide":
            return f"{'decide':16} {d['way']}: {d['why']}"
        case "end":
            return f"{'end':16} {d['outcome']} {d.get('why', '')}".rstrip()
        case _:
            return ""


def counted(done: int, of: int, reason: str) -> str:
    """`done/of` and why; most reasons begin with the count already.

    >>> counted(2, 3, "2/3; request 1: wrong"), counted(0, 1, "cancelled")
    ('2/3; request 1: wrong', '0/1 cancelled')
    """
    count = f"{done}/{of}"
    return reason if reason.startswith(count) else f"{count} {reason}".rstrip()
