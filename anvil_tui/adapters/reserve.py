"""Room on the disk for the way back of one operation.

Taken when the operation is planned; given up when the disk is full, so that its journal and the aliases can still
be written; taken away when it ends.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from anvil_tui.core.errors import EffectFailed

# A way back wrote 12 KiB of journal, record and alias map on real parts; the rest is for long reasons.
BYTES = 256 * 1024
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
# Aliases and record are written whole beside the old ones; a journal line may still find room in its block.
LEAST = 64 * 1024


class Reserve:
    """A file of `BYTES` in the operation's folder; empty = given up."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "reserve"

    def take(self) -> None:
        """EffectFailed when there is no room: nothing is begun that could not be taken back."""
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                os.posix_fallocate(fd, 0, BYTES)
            finally:
                os.close(fd)
        except OSError as why:
            self._path.unlink(missing_ok=True)
            raise EffectFailed(
                f"{self._path.parent}: no {BYTES // 1024} KiB for the way back: {why.strerror}; make room first"
            ) from why

    def give_up(self) -> bool:
        """True when that made room."""
        if self.given_up() is not False:
            return False
        os.truncate(self._path, 0)
        return True

    def look(self, fd: int) -> None:
        """Give it up when the disk of an open file has less than `LEAST` left."""
        disk = os.fstatvfs(fd)
        if (disk.f_bfree if os.geteuid() == 0 else disk.f_bavail) * disk.f_frsize < LEAST:
            self.give_up()

    def given_up(self) -> bool | None:
        """None when none was ever taken, or the operation has ended."""
        try:
            return self._path.stat().st_size == 0
        except FileNotFoundError:
            return None

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
