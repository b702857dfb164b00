"""Why a container ended, as far as its exit code, the daemon's flag and our own stops prove it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from anvil_tui.core.box import Container
from anvil_tui.core.journal import OperationView, StepView
from anvil_tui.core.start_failure import daemon_cause
from anvil_tui.core.times import parse_time

_SIGNALS = {132: "SIGILL", 133: "SIGTRAP", 134: "SIGABRT", 135: "SIGBUS", 136: "SIGFPE", 139: "SIGSEGV"}
_ASKED = {0: "stopped", 130: "stopped (SIGINT)", 143: "stopped (SIGTERM)"}
_STOPS = frozenset({"stop", "stop-incumbent", "stop-candidate", "stop-home", "retire", "remove"})
# The journal's stamp and the daemon's come from one clock, but not at the same moment.
_SLACK = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class ExitCause:
    """`name` is a stable class, `text` what a person reads, `alarm` whether somebody should look."""

    name: str
    text: str
    alarm: bool


def exit_cause(container: Container, stop_requested: bool) -> ExitCause:
    """137 is called OOM only where the daemon says so; our own kill after the grace is not an alarm."""
    code = container.exit_code
    if container.oom_killed:
        return ExitCause("oom_killed", f"OOM-killed by its memory limit (exit {_said(code)})", True)
    if code == 137 and stop_requested:
        return ExitCause("killed_after_stop_timeout", "killed when its stop grace had passed (exit 137)", False)
    if code == 137:
        hint = "SIGKILL from an unknown sender (exit 137): look for a host OOM kill in the kernel log"
        return ExitCause("sigkill_unknown", hint, True)
    if code in _ASKED:
        return ExitCause("stopped", _ASKED[code], False)
    if container.error:
        return ExitCause(daemon_cause(container.error).name, never_ran(container), True)
    if code is None:
        return ExitCause("unknown", "exit code not known", False)
    if code in _SIGNALS:
        return ExitCause("crashed", f"crashed with {_SIGNALS[code]} (exit {code})", True)
    return ExitCause("failed", f"exited with {code}", True)


def never_ran(container: Container) -> str:
    """The daemon's own words, all of them, and where to look."""
    hint = daemon_cause(container.error).hint
    lead = "did not start" if container.started_at else "never ran"
    return f"{lead}: {container.error}" + (f"; {hint}" if hint else "")


def _said(code: int | None) -> str:
    return "code n/a" if code is None else str(code)


def stop_requested(container: Container, operations: Iterable[OperationView], role: str) -> bool:
    """True when an operation of this role was stopping something while the container ended."""
    ended = parse_time(container.finished_at)
    if ended is None:
        return False
    steps = (s for o in operations if not role or o.role in ("", role) for s in (*o.steps, *o.undo_steps))
    for step in steps:
        begun, done = _window(step)
        if begun and begun - _SLACK <= ended and (done is None or ended <= done + _SLACK):
            return True
    return False


def _window(step: StepView) -> tuple[datetime | None, datetime | None]:
    if step.name.removeprefix("undo:") not in _STOPS:
        return None, None
    return parse_time(step.started_at), parse_time(step.ended_at)
