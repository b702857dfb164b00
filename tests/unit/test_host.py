"""Host readings through the real psutil."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import psutil

from anvil_tui.adapters.host import PsutilHost
from anvil_tui.adapters.host_inspect import host_inspector


class Clock:
    def monotonic_s(self) -> float:
        return 12.5

    def utc(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def sleep(self, seconds: float) -> None:
        raise AssertionError("a reading does not sleep")


def test_the_figures_of_this_machine(tmp_path: Path) -> None:
    reading = PsutilHost(tmp_path, Clock(), shm=tmp_path).read()
    host = reading.value
    assert reading.ok and reading.at_s == 12.5 and host is not None
    assert host.memory_total == psutil.virtual_memory().total and (host.memory_available or 0) > 0
    assert host.disk_total == psutil.disk_usage(str(tmp_path)).total == host.shm_total
    assert host.cpu_count == psutil.cpu_count() and (host.load_1m or 0) >= 0


def test_a_missing_shm_is_not_available_and_costs_nothing_else(tmp_path: Path) -> None:
    reading = PsutilHost(tmp_path, Clock(), shm=tmp_path / "absent").read()
    assert reading.ok and reading.value is not None
    assert reading.value.shm_total is None and reading.value.disk_total is not None


def test_a_box_reached_over_ssh_is_not_this_machine(tmp_path: Path) -> None:
    reading = host_inspector("ssh://ops@box-1", tmp_path, Clock()).read()
    assert (reading.state, reading.value, reading.at_s) == ("unknown", None, 12.5)
    assert "ssh://ops@box-1" in reading.reason and "this machine" in reading.reason
    assert host_inspector("unix:///var/run/docker.sock", tmp_path, Clock()).read().ok
