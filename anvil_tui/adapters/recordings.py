"""Reading what was recorded: the history of a box, and a file that somebody sent; and writing such a file."""

from __future__ import annotations

import contextlib
import gzip
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from anvil_tui.adapters.history_files import Segment, indexed, lines_in, segments
from anvil_tui.core.errors import BadFile, EffectFailed, NotFound
from anvil_tui.core.recording import (
    MALFORMED,
    Damaged,
    Frame,
    Head,
    Index,
    head_line,
    index_of,
    lines_of,
    read_frames,
    read_head,
)
from anvil_tui.core.world_codec import Hide, decode


class HistoryFolder:
    """`state/history/` as a recording: a part a segment, damage told in its index and everything else read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[Segment, Index] = {}
        self.where = str(folder)

    def parts(self) -> tuple[tuple[str, Index], ...]:
        before = self._known  # two threads may ask at once
        now = {s: before.get(s) or self._index(s) for s in segments(self._folder)}
        self._known = now
        return tuple((f"{s.number:08d}", i) for s, i in now.items() if i.spans or i.damage)

    def frames(self, part: str) -> tuple[Frame, ...]:
        """From the plain form while there is one: packing it takes that away last."""
        found: list[Frame] = []
        for name in (f"{part}.ndjson", f"{part}.ndjson.gz"):
            try:
                lines = lines_in(self._folder / name)
                next(lines, b"")
                found.extend(read_frames(lines))
                return tuple(found)
            except FileNotFoundError:
                continue
            except (Damaged, BadFile):
                return tuple(found)
        raise NotFound(f"{self._folder / part}: is not kept any more")

    def bytes(self) -> int:
        return sum(s.bytes for s in segments(self._folder))

    def _index(self, segment: Segment) -> Index:
        path = self._folder / segment.name
        try:
            lines = lines_in(path)
            head = read_head(next(lines, b""))
            made = head.index or indexed([head_line(head), *lines])
        except Damaged as why:
            return Index(damage=f"{path}:{why.line}: {why}")
        except (BadFile, OSError) as why:
            return Index(damage=str(why))
        return replace(made, damage=f"{path}: {made.damage}" if made.damage else "")


class RecordingFile:
    """One file that somebody sent, checked whole before anything of it is shown: BadFile names the line."""

    def __init__(self, path: Path) -> None:
        self._path, self.where = path, str(path)
        try:
            self._lines = list(lines_in(path))
        except OSError as why:
            raise BadFile(str(path), f"cannot be read: {why.strerror or why}") from why
        try:
            self.head = read_head(self._lines[0] if self._lines else b"")
            self._parts = self._checked()
        except Damaged as why:
            raise BadFile(str(path), str(why), line=why.line) from why

    def parts(self) -> tuple[tuple[str, Index], ...]:
        return tuple((name, index) for name, (index, _) in self._parts.items())

    def frames(self, part: str) -> tuple[Frame, ...]:
        _, (begin, end) = self._parts[part]
        return tuple(read_frames(self._lines[begin:end], begin + 1))

    def _checked(self) -> dict[str, tuple[Index, tuple[int, int]]]:
        """Each key frame begins a part. The first frame of each must be a world."""
        lines = self._lines
        if not lines[-1].endswith(b"\n"):
            raise Damaged(len(lines), "the file is cut off here: ask for it again")
        keys = [n for n, line in enumerate(lines) if n and b'"key":' in line[:200]]
        if not keys or keys[0] != 1:
            raise Damaged(2, "it has no key frame to begin with")
        out: dict[str, tuple[Index, tuple[int, int]]] = {}
        since = ""
        for begin, end in zip(keys, [*keys[1:], len(lines)], strict=True):
            frames = list(read_frames(lines[begin:end], begin + 1))
            try:
                decode(frames[0].tree, frames[0].at, frames[0].s)
            except ValueError as why:
                raise Damaged(begin + 1, f"it holds no world that can be shown: {why}") from why
            try:
                index = index_of(frames, since)
            except MALFORMED as why:
                raise Damaged(begin + 1, f"what follows here is no world: {type(why).__name__}") from why
            out[str(begin + 1)], since = (index, (begin, end)), index.spans[-1].end
        return out


def write_recording(path: Path, head: Head, frames: Iterable[Frame], hide: Hide) -> int:
    """Frames as one file that stands for itself; how many. EffectFailed when it is there already or cannot be."""
    kept = tuple(frames)
    if not kept:
        raise NotFound(f"{path}: not written: nothing is recorded in that time")
    made = replace(head, index=index_of(kept), since="")
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError as why:
        raise EffectFailed(f"{path}: not written: {why.strerror}") from why
    try:
        with os.fdopen(fd, "wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
            packed.write(head_line(made))
            packed.writelines(lines_of(kept, hide))
    except OSError as why:
        with contextlib.suppress(OSError):
            path.unlink()
        raise EffectFailed(f"{path}: not written: {why.strerror}") from why
    return len(kept)
