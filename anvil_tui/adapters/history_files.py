"""`state/history/`: what was seen of a box, one segment of at most 15 minutes a file.

`N.ndjson` is being written, `N.ndjson.gz` is complete and has its index in its first line. A segment begins with a
key frame, so each can be read alone. One process writes, under the kernel's lock; it dies with its holder.
"""

from __future__ import annotations

import errno
import fcntl
import gzip
import os
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple
from uuid import uuid4

from anvil_tui.adapters.files import locked
from anvil_tui.core.errors import BadFile, EffectFailed, Refused
from anvil_tui.core.recording import (
    MALFORMED,
    Damaged,
    Frame,
    Head,
    Index,
    frame_line,
    head_line,
    index_of,
    read_frames,
    read_head,
    to_remove,
)
from anvil_tui.core.times import parse_time, utc_text
from anvil_tui.core.workspace import History
from anvil_tui.core.world import LogView, World
from anvil_tui.core.world_codec import Hide, changes, encode

MIB = 1024 * 1024
SEGMENT_S = 900.0
SEGMENT_BYTES = 4 * MIB
# Journals and aliases of operations are written to the same disk: its last room is theirs.
FLOOR_BYTES = 64 * MIB
LOG_LINES = 50
MOST_BYTES = 512 * MIB
"""Of one recording, unpacked."""
MOST_LINE = 16 * MIB
MOST_LINES = 1_000_000
"""Two months at a frame in five seconds. A million bytes of empty lines would take forty times that in memory."""
_CLOCK_SET_S = 3600.0
_NAME = re.compile(r"(\d{8})\.ndjson(\.gz)?")
_FULL = {errno.ENOSPC: "no space", errno.EDQUOT: "no space (quota)", errno.EFBIG: "file too large"}


class Segment(NamedTuple):
    number: int
    packed: bool
    bytes: int
    changed_ns: int

    @property
    def name(self) -> str:
        return f"{self.number:08d}.ndjson{'.gz' * self.packed}"


def segments(folder: Path) -> list[Segment]:
    """In the order in which they were written; of one that is in both forms, the plain one, which is whole."""
    found: dict[int, Segment] = {}
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return []
    for entry in entries:
        match = _NAME.fullmatch(entry.name)
        if match and entry.is_file(follow_symlinks=False):
            stat = entry.stat(follow_symlinks=False)
            made = Segment(int(match[1]), bool(match[2]), stat.st_size, stat.st_mtime_ns)
            if made.number not in found or found[made.number].packed:
                found[made.number] = made
    return [found[n] for n in sorted(found)]


def lines_in(path: Path) -> Iterator[bytes]:
    """The lines of a recording, packed or not. BadFile for what cannot be unpacked or is too much."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe without a writer would wait for one
    with os.fdopen(fd, "rb") as raw:
        if not S_ISREG(os.fstat(fd).st_mode):
            raise BadFile(str(path), "cannot be read: it is no regular file")
        packed = raw.peek(2)[:2] == b"\x1f\x8b"
        file = gzip.GzipFile(fileobj=raw) if packed else raw
        number = read = 0
        try:
            while line := file.readline(MOST_LINE + 1):
                number, read = number + 1, read + len(line)
                if len(line) > MOST_LINE:
                    raise BadFile(str(path), f"this line has more than {MOST_LINE // MIB} MiB", line=number)
                if read > MOST_BYTES or number > MOST_LINES:
                    said = f"holds more than {MOST_BYTES // MIB} MiB or {MOST_LINES:,} lines"
                    raise BadFile(str(path), said, line=number)
                yield line
        except (EOFError, zlib.error, OSError) as why:
            raise BadFile(str(path), f"cannot be unpacked: {why}", line=number + 1) from why


def boot() -> str:
    """Which monotonic clock this is: it goes on from one process to the next, and ends with the machine's run."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return uuid4().hex


class HistoryFiles:
    """The writer. Not for several threads at once."""

    def __init__(
        self, folder: Path, box: str, settings: History, hiding: Callable[[], Hide], made_by: str = "",
        *, floor_bytes: int = FLOOR_BYTES,
    ) -> None:  # fmt: skip
        """`hiding` gives, for each frame, what hides the secrets of that moment."""
        self._folder, self._box, self._hiding, self._made_by = folder, box, hiding, made_by
        self._days, self._most, self._floor = float(settings.days), settings.max_mib * MIB, floor_bytes
        self._segment_bytes = min(SEGMENT_BYTES, self._most // 4)
        self._dir = self._lock = self._fd = -1
        self._run = boot()
        self._size = self._n = 0
        self._last: World | None = None
        self._begun_s = 0.0
        self._clocks: float | None = None

    def open(self) -> None:
        if not self._days or not self._most:
            raise Refused("history is off: [history] days and max_mib of anvil.toml")
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._dir = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            os.fchmod(self._dir, 0o700)
            self._take()
        except OSError as why:
            self._release()
            # Who may only look at a box does not record it, and need not be told so as a failure.
            kind = Refused if why.errno in (errno.EACCES, errno.EPERM, errno.EROFS) else EffectFailed
            raise kind(f"{self._folder}: nothing is recorded: {why.strerror}") from why
        except Refused:
            self._release()
            raise

    def _take(self) -> None:
        self._lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=self._dir)
        if not locked(self._lock, self._folder / "lock", fcntl.LOCK_EX):
            raise Refused(f"another process records this box already ({_holder(self._lock)})")
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"pid {os.getpid()}".encode(), 0)

    def append(self, world: World) -> None:
        """Add one frame. EffectFailed when it could not be: the segment then ends with the frame before it."""
        world = _slim(world)
        try:
            self._check_room()
            if self._last is None or world.now_s - self._begun_s >= SEGMENT_S or world.now_s < self._last.now_s:
                self._begin(world)
            else:
                what = changes(self._last, world, self._hiding())
                line = frame_line(self._n + 1, world.now_utc, world.now_s, what, key=False)
                if self._size + len(line) > self._segment_bytes:
                    self._begin(world)
                else:
                    self._write(line)
        except OSError as why:
            self._end_segment()
            said = _FULL.get(why.errno or 0) or why.strerror
            raise EffectFailed(f"{self._folder}: nothing is recorded: {said}") from why
        except EffectFailed:
            self._end_segment()
            raise
        self._last, self._n = world, self._n + 1

    def _begin(self, world: World) -> None:
        """A new segment with a key frame, after what is due has gone."""
        since = "" if self._last is None else utc_text(self._last.now_utc)
        self._end_segment()
        key = frame_line(1, world.now_utc, world.now_s, encode(world, self._hiding()), key=True, run=self._run)
        if len(key) > self._most // 4:
            raise EffectFailed(
                f"{self._folder}: nothing is recorded: one picture of this box takes {len(key) // 1024} KiB; "
                f"[history] max_mib of anvil.toml must be {4 * len(key) // MIB + 1} at least"
            )
        self._pack_all()
        self._prune(world, max(len(key), self._segment_bytes))
        number = max((s.number for s in segments(self._folder)), default=0) + 1
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW
        self._fd = os.open(Segment(number, False, 0, 0).name, flags, 0o600, dir_fd=self._dir)
        self._size, self._n, self._begun_s = 0, 0, world.now_s
        self._write(head_line(Head(self._box, self._run, since, self._made_by)) + key)

    def _write(self, data: bytes) -> None:
        """Whole or not at all, so far as the disk lets us: what was written of it is cut off again."""
        done = 0
        try:
            while done < len(data):
                done += os.write(self._fd, data[done:])
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(data)

    def _check_room(self) -> None:
        there = os.fstatvfs(self._dir)
        if there.f_bavail * there.f_frsize < self._floor:
            left = f"less than {self._floor // MIB} MiB is left on its disk, and operations need that"
            raise EffectFailed(f"{self._folder}: nothing is recorded: {left}")

    def _prune(self, world: World, room: int) -> None:
        """Room for one segment in both forms. Nothing is called old by a clock that was set meanwhile, nor yet by
        one that this process found: a machine without a battery for its clock may begin in any year, and by the
        next segment it has been set. Until then what is kept is as old as it is beside the newest of it."""
        clocks = world.now_utc.timestamp() - world.now_s
        kept = [(s.name, s.bytes, _end(self._folder / s.name)) for s in segments(self._folder)]
        newest = max((end for _, _, end in kept if end), default=world.now_utc)
        now = min(world.now_utc, newest) if self._clocks is None else world.now_utc
        self._clocks = clocks if self._clocks is None else self._clocks
        days = self._days if abs(clocks - self._clocks) < _CLOCK_SET_S else float("inf")
        for name in to_remove(kept, now, min(days, 99_999.0), max(0, self._most - 2 * room)):
            os.unlink(name, dir_fd=self._dir)

    def _end_segment(self) -> None:
        self._last = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _pack_all(self) -> None:
        """Compress what is complete: our last segment, and what a process that was killed has left."""
        for segment in segments(self._folder):
            if not segment.packed:
                self._pack(segment)

    def _pack(self, segment: Segment) -> None:
        path = self._folder / segment.name
        lines = path.read_bytes().splitlines(keepends=True)
        new = f".{segment.name}.gz.new"
        if len(lines) < 2 or (len(lines) == 2 and not lines[1].endswith(b"\n")):
            os.unlink(segment.name, dir_fd=self._dir)  # not one frame was ever whole
            return
        try:
            head = replace(read_head(lines[0]), index=indexed(lines))
        except Damaged:
            return  # a newer schema, or not ours: it is left as it is, and counts
        whole = lines[1:] if lines[-1].endswith(b"\n") else lines[1:-1]
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with os.fdopen(os.open(new, flags, 0o600, dir_fd=self._dir), "wb") as raw:
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) as packed:
                packed.write(head_line(head))
                packed.writelines(whole)
            raw.flush()
            os.fsync(raw.fileno())
        os.replace(new, f"{segment.name}.gz", src_dir_fd=self._dir, dst_dir_fd=self._dir)
        os.unlink(segment.name, dir_fd=self._dir)

    def close(self) -> None:
        self._end_segment()
        self._release()

    def _release(self) -> None:
        for fd in (self._lock, self._dir):
            if fd >= 0:
                os.close(fd)
        self._lock = self._dir = -1


def _holder(lock: int) -> str:
    return os.pread(lock, 64, 0).decode("ascii", "replace") or "its pid is not known"


def recorder_of(folder: Path) -> str:
    """`pid N` of the process that records here now, "" = none."""
    try:
        fd = os.open(folder / "lock", os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return ""
    try:
        return "" if locked(fd, folder / "lock", fcntl.LOCK_SH) else _holder(fd)
    finally:
        os.close(fd)


def _slim(world: World) -> World:
    """The log by its newest lines: a chatty engine would fill the store with what its own log keeps."""
    log = world.log
    if log is None or len(log.lines) <= LOG_LINES:
        return world
    cut = LogView(log.container_id, log.lines[-LOG_LINES:], log.dropped + len(log.lines) - LOG_LINES, log.note)
    return replace(world, log=cut)


def indexed(lines: list[bytes]) -> Index:
    """What can be read of one segment; its `damage` says where that ends."""
    head, frames, damage = read_head(lines[0]), list[Frame](), ""
    try:
        frames.extend(read_frames(lines[1:]))
    except Damaged as why:
        damage = f"line {why.line}: {why}"
    torn = not lines[-1].endswith(b"\n")
    try:
        return replace(index_of(frames, head.since), damage=damage, torn=torn)
    except MALFORMED as why:
        return Index(damage=f"a line of it is damaged: {type(why).__name__}", torn=torn)


def _end(path: Path) -> datetime | None:
    """When the last frame of a complete segment was; None = cannot be told."""
    try:
        index = read_head(next(lines_in(path))).index
    except (Damaged, BadFile, OSError, StopIteration):
        return None
    return parse_time(index.spans[-1].end) if index and index.spans else None
