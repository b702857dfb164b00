"""Reading what was recorded: the history of a box, and a file that somebody sent; and writing such a file."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from anvil_tui.adapters.history_files import MOST_BYTES, MOST_LINES, Segment, indexed, lines_in, segments
from anvil_tui.core.errors import BadFile, EffectFailed, NotFound
from anvil_tui.core.nameless import Names
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
        try:
            now = {s: before.get(s) or self._index(s) for s in segments(self._folder)}
        except OSError as why:
            raise NotFound(f"{self._folder}: cannot be read: {why.strerror}") from why
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
            except (Damaged, BadFile, OSError):
                return tuple(found)
        raise NotFound(f"{self._folder / part}: is not kept any more")

    def bytes(self) -> int:
        return sum(s.bytes for s in segments(self._folder))

    def _index(self, segment: Segment) -> Index:
        """Also of a segment that was packed since it was listed; nothing of one that has gone."""
        for path in (self._folder / segment.name, self._folder / segment._replace(packed=True).name):
            try:
                lines = lines_in(path)
                head = read_head(next(lines, b""))
                made = head.index or indexed([head_line(head), *lines])
            except FileNotFoundError:
                continue
            except Damaged as why:
                return Index(damage=f"{path}:{why.line}: {why}")
            except (BadFile, OSError) as why:
                return Index(damage=str(why))
            return replace(made, damage=f"{path}: {made.damage}" if made.damage else "")
        return Index()


MOST_FRAMES = 4000
"""Behind one key frame; a segment has 1,800 at most, an export 180."""


def _is_key(line: bytes) -> bool:
    """Under its own name: a frame whose change has a member `key` is none."""
    try:
        return b'"key":' in line[:200] and json.loads(line).get("key") is not None
    except (ValueError, AttributeError, RecursionError):
        return False  # whoever reads its part says what is wrong with it


class RecordingFile:
    """One file that somebody sent, checked whole before anything of it is shown: BadFile names the line."""

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        try:
            lines = lines_in(path)
            first = next(lines, b"")
            self.head = read_head(first)
            self._lines = [first, *lines]
            self._parts = self._checked()
        except OSError as why:
            raise BadFile(str(path), f"cannot be read: {why.strerror or why}") from why
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
        keys = [n for n, line in enumerate(lines) if n and _is_key(line)]
        if not keys or keys[0] != 1:
            raise Damaged(2, "it has no key frame to begin with")
        out: dict[str, tuple[Index, tuple[int, int]]] = {}
        since = ""
        for begin, end in zip(keys, [*keys[1:], len(lines)], strict=True):
            if end - begin > MOST_FRAMES:
                raise Damaged(begin + 1, f"more than {MOST_FRAMES} frames follow this key frame")
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


def write_recording(
    path: Path, head: Head, frames: Callable[[], Iterable[Frame]], hide: Hide, names: Names
) -> int:
    """Frames as one file that stands for itself, with stand-ins for everybody in it; how many. `frames` gives them
    anew each time: first all names are learnt, then they are written, and none are held. EffectFailed when the
    file is there already or cannot be written: then nothing of it is left."""
    if not _learnt(frames(), names):
        raise NotFound(f"{path}: not written: nothing is recorded in that time")
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError as why:
        raise EffectFailed(f"{path}: not written: {why.strerror}") from why
    count = size = 0
    try:
        with os.fdopen(fd, "wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
            packed.write(head_line(replace(head, box=names.out_of(head.box), index=None, since="")))
            for count, line in enumerate(lines_of(_learning(frames(), names), hide, names.out_of), 1):
                size += packed.write(line)
                if size > MOST_BYTES or count > MOST_LINES:
                    raise EffectFailed(
                        f"{path}: not written: a replay would not take so much: choose a shorter time"
                    )
    except BaseException as why:
        with contextlib.suppress(OSError):  # why it was not written is told below; a half file cannot be replayed
            path.unlink()
        if isinstance(why, OSError):
            raise EffectFailed(f"{path}: not written: {why.strerror}") from why
        raise
    return count


def _learnt(frames: Iterable[Frame], names: Names) -> int:
    return sum(1 for _ in _learning(frames, names))


def _learning(frames: Iterable[Frame], names: Names) -> Iterator[Frame]:
    before: Frame | None = None
    for frame in frames:
        names.learn(frame.tree, before.tree if before else None)
        before = frame
        yield frame
