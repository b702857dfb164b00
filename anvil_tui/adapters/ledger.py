"""An append-only file of facts, one JSON object a line: what was written is never changed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from anvil_tui.adapters.files import wait_for_lock
from anvil_tui.core.errors import BadFile, EffectFailed

T = TypeVar("T")


class Ledger(Generic[T]):
    """Lines of one dataclass, of any number of writers: each line is added under the kernel's lock on the file.

    A torn last line (a crash while it was written) is left out, and set aside by the next append; any other damage
    is an error.
    """

    def __init__(self, path: Path, kind: type[T], key: Callable[[T], object] | None = None) -> None:
        self._path, self._adapter, self._key = path, TypeAdapter(kind), key
        self._cache: tuple[tuple[int, int], tuple[T, ...]] | None = None

    def append(self, entry: T) -> None:
        """Returns when the line is on the disk."""
        line = json.dumps(asdict(entry), ensure_ascii=False).encode() + b"\n"  # type: ignore[call-overload]
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                wait_for_lock(fd, self._path)
                self._set_torn_aside(fd)
                os.write(fd, line)
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as why:
            raise EffectFailed(f"{self._path}: not recorded: {why.strerror or why}") from why

    def _set_torn_aside(self, fd: int) -> None:
        have = os.pread(fd, os.fstat(fd).st_size, 0)
        whole = have.rfind(b"\n") + 1
        if whole < len(have):
            self._path.with_suffix(".torn").write_bytes(have[whole:])
            os.ftruncate(fd, whole)

    def read(self) -> tuple[T, ...]:
        """Oldest first; of entries with the same key the last one counts."""
        try:
            stat = self._path.stat()
        except FileNotFoundError:
            return ()
        mark = (stat.st_size, stat.st_mtime_ns)
        if self._cache is None or self._cache[0] != mark:
            self._cache = (mark, self._parsed(self._path.read_bytes()))
        return self._cache[1]

    def _parsed(self, data: bytes) -> tuple[T, ...]:
        found: dict[object, T] = {}
        lines = data.split(b"\n")
        for n, line in enumerate(lines, 1):
            entry = self._entry(n, line, whole=n < len(lines)) if line.strip() else None
            if entry is not None:
                key = self._key(entry) if self._key else n
                found.pop(key, None)
                found[key] = entry
        return tuple(found.values())

    def _entry(self, n: int, line: bytes, *, whole: bool) -> T | None:
        try:
            raw: Any = json.loads(line)
        except ValueError as why:
            if not whole:
                return None
            raise BadFile(str(self._path), f"is damaged: {why}; move the line elsewhere", line=n) from why
        try:
            return self._adapter.validate_python(raw)
        except ValidationError as why:
            first = why.errors()[0]
            where = ".".join(str(p) for p in first["loc"])
            raise BadFile(str(self._path), f"{where}: {first['msg']}", line=n) from why
