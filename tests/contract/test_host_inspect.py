"""What the kernel tells about shared memory, its log and control groups: of this machine, and as written down."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.adapters.clock import SystemClock
from anvil_tui.adapters.host_inspect import LinuxHost, RemoteInspector, host_inspector
from anvil_tui.core.box import CgroupMemory

HOLDER = """
import mmap, sys
with open(sys.argv[1], "r+b") as file:
    held = mmap.mmap(file.fileno(), 0)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    path = Path("/dev/shm") / f"anvil-test-{uuid.uuid4().hex}"
    path.write_bytes(b"x" * mmap.PAGESIZE)
    yield path
    path.unlink(missing_ok=True)


def host(tmp_path: Path, **more: Any) -> LinuxHost:
    return LinuxHost(tmp_path, SystemClock(), **more)


def test_a_mapped_file_has_a_user_and_after_its_end_none(tmp_path: Path, shared: Path) -> None:
    """The file is mapped and closed: only the map tells that it is in use."""
    argv = [sys.executable, "-c", HOLDER, str(shared)]
    holder = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdin and holder.stdout
    with holder.stdin, holder.stdout:
        assert holder.stdout.readline() == b"held\n"
        (seen,) = [f for f in host(tmp_path).shared_files(None).value or () if f.name == shared.name]
        assert (seen.users, seen.bytes) == ((holder.pid,), mmap.PAGESIZE)
        own = host(tmp_path).shared_files(holder.pid).value or ()
        assert [f.users for f in own if f.name == shared.name] == [(holder.pid,)]
    holder.wait(10)
    (left,) = [f for f in host(tmp_path).shared_files(None).value or () if f.name == shared.name]
    assert not left.users
    proc = tmp_path / "proc"
    proc.mkdir()
    (left,) = [f for f in host(tmp_path, proc=proc).shared_files(None).value or () if f.name == shared.name]
    assert left.users == (), "every process was looked at, and nobody uses it"
    (proc / "41").mkdir()
    (proc / "41/maps").symlink_to("/proc/1/no-such-place")
    (left,) = [f for f in host(tmp_path, proc=proc).shared_files(None).value or () if f.name == shared.name]
    assert left.users == (), "a process that ended meanwhile uses nothing"


def test_an_open_file_that_is_not_mapped_is_in_use(tmp_path: Path, shared: Path) -> None:
    with shared.open("rb"):
        (seen,) = [f for f in host(tmp_path).shared_files(None).value or () if f.name == shared.name]
        assert seen.users and os.getpid() in seen.users


def test_shared_memory_of_a_process_that_is_gone_is_unknown(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait(10)
    seen = host(tmp_path).shared_files(ended.pid)
    assert (seen.state, seen.value) in (("unknown", None), ("known", ()))
    unread = host(tmp_path, proc=tmp_path / "none").shared_files(None)
    assert unread.state == "unknown" or not unread.value


KMSG = """6,1,1000000,-;usb 1-1: new device
 SUBSYSTEM=usb
4,2,2500000,-;NVRM: Xid (PCI:0000:65:00): 79, pid=1234, GPU has fallen off the bus.
6,3,3000000,-;later; with a semicolon
"""


def test_the_kernel_log_is_cut_by_number_and_continuation_lines_are_left_out(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text("")
    assert host(tmp_path, kmsg=log).kernel_mark().value == 0
    log.write_text(KMSG)
    assert host(tmp_path, kmsg=log).kernel_mark().value == 3
    lines = host(tmp_path, kmsg=log).kernel_lines(1).value
    assert lines == (
        "NVRM: Xid (PCI:0000:65:00): 79, pid=1234, GPU has fallen off the bus.",
        "later; with a semicolon",
    )
    missing = host(tmp_path, kmsg=tmp_path / "no").kernel_lines(0)
    assert (missing.state, missing.reason) == ("unknown", f"{tmp_path / 'no'}: No such file or directory")


def test_the_memory_of_a_control_group_is_read_in_both_layouts(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    files = {
        proc / "7/cgroup": "12:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/ignored\n",
        groups / "memory/docker/abc/memory.limit_in_bytes": "1073741824\n",
        groups / "memory/docker/abc/memory.max_usage_in_bytes": "734003200\n",
        groups / "memory/docker/abc/memory.failcnt": "3\n",
        proc / "8/cgroup": "0::/system.slice/docker-abc.scope\n",
        groups / "system.slice/docker-abc.scope/memory.max": "max\n",
        groups / "system.slice/docker-abc.scope/memory.peak": "55\n",
        groups / "system.slice/docker-abc.scope/memory.events": "low 0\nhigh 0\nmax 9\noom 0\n",
        proc / "9/cgroup": "1:cpu:/x\n",
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    seen = host(tmp_path, proc=proc, cgroups=groups)
    assert seen.cgroup_memory(7).value == CgroupMemory(734003200, 1073741824, 3)
    assert seen.cgroup_memory(8).value == CgroupMemory(55, None, 9)
    assert seen.cgroup_memory(9).reason == "cgroup of process 9: names no memory group"
    assert seen.cgroup_memory(10).state == "unknown"


def test_a_box_behind_ssh_tells_none_of_it(tmp_path: Path) -> None:
    far = host_inspector("ssh://box", tmp_path, SystemClock())
    assert isinstance(far, RemoteInspector)
    for seen in (far.shared_files(None), far.kernel_lines(0), far.kernel_mark(), far.cgroup_memory(1), far.read()):
        assert seen.state == "unknown" and "ssh://box" in seen.reason


# the container of a process


def test_the_container_of_each_process_that_can_be_looked_at(tmp_path: Path) -> None:
    """41 is in a container, 42 in none, 43 ended, 44 may not be read: the last two are not known."""
    proc = tmp_path / "proc"
    (proc / "self/ns").mkdir(parents=True)
    (proc / "self/ns/pid").symlink_to("pid:[4026531836]")
    for pid, text in ((41, f"0::/system.slice/docker-{'ab' * 32}.scope\n"), (42, "0::/user.slice\n")):
        (proc / str(pid)).mkdir()
        (proc / str(pid) / "cgroup").write_text(text)
    (proc / "44/cgroup").mkdir(parents=True)
    assert host(tmp_path, proc=proc).containers_of((41, 42, 43, 44)) == {41: "ab" * 32, 42: ""}


@pytest.mark.parametrize("namespace", ["pid:[4026532999]", ""])
def test_where_pids_are_other_than_the_drivers_no_process_is_known(tmp_path: Path, namespace: str) -> None:
    """In a container of its own the console would take its pid 41 for the host's."""
    (tmp_path / "self/ns").mkdir(parents=True)
    if namespace:
        (tmp_path / "self/ns/pid").symlink_to(namespace)
    (tmp_path / "41").mkdir()
    (tmp_path / "41/cgroup").write_text("0::/\n")
    assert host(tmp_path, proc=tmp_path).containers_of((41,)) == {}


def test_processes_of_a_remote_box_are_not_looked_up_here(tmp_path: Path) -> None:
    remote = host_inspector("ssh://user@box", tmp_path, SystemClock())
    assert isinstance(remote, RemoteInspector) and remote.containers_of((os.getpid(),)) == {}
