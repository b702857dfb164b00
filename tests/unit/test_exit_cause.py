"""Why a container ended: OOM only where the daemon says so."""

from __future__ import annotations

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
        (137, True, False, "oom_killed", True),
        (137, False, True, "killed_after_stop_timeout", False),
        (137, False, False, "sigkill_unknown", True),
        (143, False, True, "stopped", False),
        (0, False, True, "stopped", False),
        (0, True, False, "oom_killed", True),
        (137, None, False, "sigkill_unknown", True),
        (139, False, False, "crashed", True),
        (1, False, True, "failed", True),
        (None, None, False, "unknown", False),
    ],
)
def test_exit_cause(code: int | None, oom: bool | None, asked: bool, name: str, alarm: bool) -> None:
    """hashicorp/nomad#12735."""
    cause = exit_cause(ended(code, oom), asked)
    assert (cause.name, cause.alarm) == (name, alarm)
    if not alarm:
        assert "OOM" not in cause.text


def test_signal_and_hint_are_worded() -> None:
    assert exit_cause(ended(143), True).text == "stopped (SIGTERM)"
    assert "kernel log" in exit_cause(ended(137), False).text


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
