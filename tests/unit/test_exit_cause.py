# ruff: noqa: E501 - daemon lines stand as they are written
"""Why a container ended: OOM only where the daemon says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anvil_tui.core.box import Container
from anvil_tui.core.exit_cause import exit_cause, stop_requested
from anvil_tui.core.journal import OperationView, StepView


def ended(code: int | None, oom: bool | None = False, error: str = "") -> Container:
    return Container(
        "c" * 64, "n", "exited", "i", "r", exit_code=code, oom_killed=oom, error=error,
        finished_at="2026-09-02T10:00:20Z",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("code", "oom", "asked", "name", "alarm"),
    [
        pytest.param(137, True, False, "oom_killed", True, id="O-27-a"),
        pytest.param(137, False, True, "killed_after_stop_timeout", False, id="O-27-b"),
        pytest.param(137, False, False, "sigkill_unknown", True, id="O-27-c"),
        pytest.param(143, False, True, "stopped", False, id="O-27-d"),
        pytest.param(0, False, True, "stopped", False, id="O-27-e"),
        (130, False, True, "stopped", False),
        (130, False, False, "stopped", False),
        (137, True, True, "oom_killed", True),
        (134, False, False, "crashed", True),
        (128, False, False, "failed", True),
        (0, True, False, "oom_killed", True),
        (137, None, False, "sigkill_unknown", True),
        (139, False, False, "crashed", True),
        (1, False, True, "failed", True),
        (None, None, False, "unknown", False),
    ],
)
def test_exit_cause(code: int | None, oom: bool | None, asked: bool, name: str, alarm: bool) -> None:
    """O-27, hashicorp/nomad#12735. The word OOM is of the daemon's flag, and of a hint where nothing else is known."""
    cause = exit_cause(ended(code, oom), asked)
    assert (cause.name, cause.alarm) == (name, alarm)
    assert ("OOM" in cause.text) == (name in ("oom_killed", "sigkill_unknown"))


def test_signal_and_hint_are_worded() -> None:
    assert exit_cause(ended(143), True).text == "stopped (SIGTERM)"
    assert exit_cause(ended(130), True).text == "stopped (SIGINT)"
    assert "kernel log" in exit_cause(ended(137), False).text
    assert "SIG" not in exit_cause(ended(128), False).text, "O-101: 128 is no signal"


def test_a_container_that_never_ran_has_all_of_the_daemon_s_words() -> None:
    """O-101: in full, with the hint; and no words about a signal."""
    text = 'error gathering device information while adding custom device "/dev/nvidia-uvm-tools": no such file or directory'
    cause = exit_cause(ended(128, False, text), False)
    assert cause.text == f"never ran: {text}; driver device nodes missing on the host"
    long = f"OCI runtime create failed: {'x' * 900} the last word"
    assert exit_cause(ended(128, False, long), False).text.endswith("the last word")


def test_a_container_that_ran_before_did_not_start_again() -> None:
    again = replace(
        ended(128, False, "Bind for 127.0.0.1:1 failed: port is already allocated"),
        started_at="2026-09-01T10:00:00Z",
    )
    cause = exit_cause(again, False)
    assert cause.name == "port_in_use" and cause.text.startswith("did not start: Bind for")


def test_a_container_that_never_ran_has_the_daemon_s_words() -> None:
    """NVIDIA/nvidia-docker#526."""
    text = 'could not select device driver "" with capabilities: [[gpu]]'
    cause = exit_cause(ended(128, False, text), False)
    assert cause.name == "gpu_support_missing" and text in cause.text


@pytest.mark.parametrize(
    ("name", "begun", "done", "role", "asked"),
    [
        ("stop-incumbent", "2026-09-02T10:00:00Z", "2026-09-02T10:00:21Z", "primary", True),
        ("stop", "2026-09-02T10:00:00Z", None, "primary", True),
        ("undo:stop-candidate", "2026-09-02T10:00:00Z", "2026-09-02T10:00:21Z", "", True),
        ("stop", "2026-09-02T10:01:00Z", None, "primary", False),
        ("stop", "2026-09-02T09:00:00Z", "2026-09-02T09:00:10Z", "primary", False),
        ("ready", "2026-09-02T10:00:00Z", None, "primary", False),
        ("stop", "2026-09-02T10:00:00Z", None, "other", False),
    ],
)
def test_our_own_stop_is_known_by_its_time(
    name: str, begun: str, done: str | None, role: str, asked: bool
) -> None:
    view = OperationView("OP", "promote", "b", role=role, steps=(StepView(name, "t", "done", begun, done),))
    assert stop_requested(ended(137), (view,), "primary") is asked
