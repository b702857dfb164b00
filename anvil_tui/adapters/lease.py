"""The box's lease: a flock on `state/lease`. The kernel drops it with its holder, however that ends."""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import socket
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from anvil_tui.adapters.files import locked
from anvil_tui.core.errors import EffectFailed, Refused
from anvil_tui.core.world import Lease

# Written over in place and never cut: on a full disk a way back must be able to take the lease.
_TEXT = 1024


def user_name() -> str:
    """Who runs this; `uid N` where nobody has this user id, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


class FileLease:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None

    def take(self, operation: str) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = self._opened(operation)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        holder = Lease(operation, os.getpid(), user_name(), since, socket.gethostname())
        try:
            os.pwrite(fd, json.dumps(asdict(holder)).ljust(_TEXT).encode(), 0)
            os.fsync(fd)
        except OSError as why:
            os.close(fd)
            raise EffectFailed(f"{self._path}: not taken: {why.strerror}") from why
        self._fd = fd

    def _opened(self, operation: str) -> int:
        """The locked file. One that was removed while it was waited for is nobody's lease: the next is opened."""
        while True:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            if not self._locked(fd):
                os.close(fd)
                held = self.holder()
                who = f"operation {held.operation} ({held.who})" if held else "another process"
                look = f" or `anvil-tui operations show {held.operation}`" if held else ""
                raise Refused(f"the box is being changed by {who}; attach with `anvil-tui`{look}, or wait")
            if _stands(self._path, fd):
                return fd
            os.close(fd)

    def release(self) -> None:
        if self._fd is not None:
            os.pwrite(self._fd, b" " * _TEXT, 0)
            os.close(self._fd)
            self._fd = None

    def holder(self) -> Lease | None:
        """None when nobody holds it; what a dead holder wrote does not count."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        try:
            return None if locked(fd, self._path, fcntl.LOCK_SH) else _read(fd)
        finally:
            os.close(fd)

    def _locked(self, fd: int) -> bool:
        """Readers hold the lock for microseconds to see whether it is free: ten tries in 0.2 s outlast them."""
        for _ in range(10):
            if locked(fd, self._path):
                return True
            time.sleep(0.02)
        return False


def _stands(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(fd))
    except FileNotFoundError:
        return False


def _read(fd: int) -> Lease:
    raw = os.pread(fd, 4096, 0)
    try:
        return Lease(**json.loads(raw))
    except (ValueError, TypeError):
        return Lease("unknown (lease text is being written)", 0, "?", "?")
