"""What the kernel of this machine tells beyond figures: shared memory and its users, its log, cgroup peaks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from anvil_tui.adapters.host import PsutilHost, RemoteHost
from anvil_tui.core.box import CgroupMemory, SharedFile
from anvil_tui.core.cgroups import container_in
from anvil_tui.core.reading import Reading
from anvil_tui.ports import Clock, HostInspector

_KMSG_BYTES = 8192
_NO_LIMIT = 1 << 60
_FIRST_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel; the driver counts pids in it
_MAPPED = re.compile(rb"^\S+ \S+ \S+ ([0-9a-f]+):([0-9a-f]+) ([1-9][0-9]*)", re.M)


class LinuxHost(PsutilHost):
    """`ports.HostInspector` over /proc and /dev/kmsg. What this user may not read is unknown, with the reason."""

    def __init__(
        self, workspace: Path, clock: Clock, proc: Path = Path("/proc"), kmsg: Path = Path("/dev/kmsg"),
        cgroups: Path = Path("/sys/fs/cgroup"), driver_pids: str = _FIRST_PID_NAMESPACE,
    ) -> None:  # fmt: skip
        super().__init__(workspace, clock)
        self._proc, self._kmsg, self._cgroups, self._driver_pids = proc, kmsg, cgroups, driver_pids

    def shared_files(self, pid: int | None) -> Reading[tuple[SharedFile, ...]]:
        """Files of /dev/shm as process `pid` sees it (None: the host's), each with the processes that use it."""
        now_s, root = self._clock.monotonic_s(), Path("/dev/shm")
        if pid is not None:
            root = self._proc / str(pid) / "root/dev/shm"
        try:
            found = [(p, p.stat()) for p in sorted(root.rglob("*")) if p.is_file() and not p.is_symlink()]
            users, all_seen = file_users(self._proc, {(s.st_dev, s.st_ino) for _, s in found})
        except OSError as why:
            return Reading.unknown(f"{root}: {why.strerror}", "host", now_s)
        files = []
        for path, seen in found:
            using = tuple(sorted(users[seen.st_dev, seen.st_ino]))
            known = using if using or all_seen else None
            files.append(SharedFile(str(path.relative_to(root)), seen.st_size, seen.st_mtime, known))
        return Reading.known(tuple(files), now_s, "host")

    def kernel_mark(self) -> Reading[int]:
        """The number of the newest record of the kernel log, 0 while it has none."""
        return self._kernel().map(lambda records: max((n for n, _ in records), default=0))

    def kernel_lines(self, after: int) -> Reading[tuple[str, ...]]:
        """Messages of the kernel log after the record of that number, oldest first."""
        return self._kernel().map(lambda records: tuple(text for n, text in records if n > after))

    def _kernel(self) -> Reading[tuple[tuple[int, str], ...]]:
        now_s = self._clock.monotonic_s()
        try:
            fd = os.open(self._kmsg, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as why:
            return Reading.unknown(f"{self._kmsg}: {why.strerror}", "kernel log", now_s)
        try:
            return Reading.known(tuple(_records(fd)), now_s, "kernel log")
        except OSError as why:
            return Reading.unknown(f"{self._kmsg}: {why.strerror}", "kernel log", now_s)
        finally:
            os.close(fd)

    def cgroup_memory(self, pid: int) -> Reading[CgroupMemory]:
        """Memory of the control group of a process since it was made: peak, limit, how often the limit was met."""
        now_s = self._clock.monotonic_s()
        try:
            groups = (self._proc / str(pid) / "cgroup").read_text()
            return Reading.known(self._memory(groups), now_s, "cgroup")
        except (OSError, ValueError) as why:
            return Reading.unknown(f"cgroup of process {pid}: {why}", "cgroup", now_s)

    def containers_of(self, pids: Iterable[int]) -> Mapping[int, str]:
        """Empty where this process sees other pids than the GPU driver names (in a container of its own)."""
        try:
            if str((self._proc / "self/ns/pid").readlink()) != self._driver_pids:
                return {}
        except OSError:
            return {}
        found: dict[int, str] = {}
        for pid in pids:
            try:
                found[pid] = container_in((self._proc / str(pid) / "cgroup").read_text())
            except OSError:
                continue  # it ended meanwhile, or this user may not look: not known, which is not "in none"
        return found

    def _memory(self, groups: str) -> CgroupMemory:
        v1 = re.search(r"^\d+:(?:\S*,)?memory(?:,\S*)?:(\S+)$", groups, re.M)
        if v1:
            at = self._cgroups / "memory" / v1[1].lstrip("/")
            limit = int((at / "memory.limit_in_bytes").read_text())
            peak = int((at / "memory.max_usage_in_bytes").read_text())
            return CgroupMemory(
                peak, limit if limit < _NO_LIMIT else None, int((at / "memory.failcnt").read_text())
            )
        v2 = re.search(r"^0::(\S+)$", groups, re.M)
        if not v2:
            raise ValueError("names no memory group")
        at = self._cgroups / v2[1].lstrip("/")
        text = (at / "memory.max").read_text().strip()
        events = re.search(r"^max (\d+)$", (at / "memory.events").read_text(), re.M)
        peak = int((at / "memory.peak").read_text())
        return CgroupMemory(peak, None if text == "max" else int(text), int(events[1]) if events else None)


class RemoteInspector(RemoteHost):
    """`ports.HostInspector` of a box behind ssh: unknown, as its figures are."""

    def shared_files(self, pid: int | None) -> Reading[tuple[SharedFile, ...]]:
        return self._unknown()

    def kernel_mark(self) -> Reading[int]:
        return self._unknown()

    def kernel_lines(self, after: int) -> Reading[tuple[str, ...]]:
        return self._unknown()

    def cgroup_memory(self, pid: int) -> Reading[CgroupMemory]:
        return self._unknown()

    def containers_of(self, pids: Iterable[int]) -> Mapping[int, str]:
        return {}

    def _unknown(self) -> Reading[Any]:
        return Reading.unknown(self.read().reason, "host", self._clock.monotonic_s())


def _mapped(maps: Path) -> Iterator[tuple[int, int]]:
    """By one expression over the whole text: line by line it took 1.1 ms a process, and a box has thousands."""
    for major, minor, inode in set(_MAPPED.findall(maps.read_bytes())):
        yield os.makedev(int(major, 16), int(minor, 16)), int(inode)


def _opened(folder: Path) -> Iterator[tuple[int, int]]:
    for entry in folder.iterdir():
        try:
            seen = entry.stat()
        except FileNotFoundError:
            continue  # closed meanwhile
        yield seen.st_dev, seen.st_ino


def _records(fd: int) -> Iterator[tuple[int, str]]:
    """(number, text) of each record; the kernel gives one a read."""
    while True:
        try:
            raw = os.read(fd, _KMSG_BYTES)
        except BlockingIOError:
            return
        except BrokenPipeError:
            continue  # records were overwritten before they were read; the next read goes on behind them
        if not raw:
            return
        for line in raw.decode(errors="replace").splitlines():
            head, found, text = line.partition(";")
            fields = head.split(",")
            if found and len(fields) > 2 and fields[1].isdigit():
                yield int(fields[1]), text


def file_users(proc: Path, wanted: set[tuple[int, int]]) -> tuple[dict[tuple[int, int], set[int]], bool]:
    """Processes that map or hold open each (device, inode), and whether every process could be looked at."""
    all_seen = True
    users: dict[tuple[int, int], set[int]] = {key: set() for key in wanted}
    for process in proc.iterdir() if wanted else ():
        if not process.name.isdigit():
            continue
        try:
            used = [*_mapped(process / "maps"), *_opened(process / "fd")]
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile
        except PermissionError:
            all_seen = False
            continue
        for key in used:
            if key in users:
                users[key].add(int(process.name))
    return users, all_seen


def host_inspector(containers_url: str, workspace: Path, clock: Clock) -> HostInspector:
    """The inspector of the machine on which the container engine runs."""
    if containers_url.startswith("ssh://"):
        return RemoteInspector(containers_url, clock)
    return LinuxHost(workspace, clock)
