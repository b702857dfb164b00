"""Writing and reading small files so that a crash, a full disk or a second writer costs nothing.

A save is whole or not at all: the old bytes stay until the new ones are on the disk.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from anvil_tui.core.errors import EffectFailed

# A gateway that restarts is waited for under the lock, for 10 s.
LOCK_WITHIN_S = 20.0
BOM = b"\xef\xbb\xbf"
"""Windows editors put it before UTF-8; it is no part of any of our files."""
_NO_SPACE = {errno.ENOSPC: "no space", errno.EDQUOT: "no space (quota)", errno.EFBIG: "file too large"}


def revision(data: bytes) -> str:
    """SHA-256 of a file's bytes: what a second writer's save is compared with."""
    return hashlib.sha256(data).hexdigest()


def write_atomic(path: Path, data: bytes | str, mode: int = 0o600) -> None:
    """Replace the content of `path`; text is UTF-8, its line ends are kept as they are.

    A symlink stays a symlink (its target is replaced) and an existing file keeps its mode; `mode` is for a new
    one. Returns after file and folder are synced. EffectFailed ("not saved") leaves the old file intact.
    """
    body = data.encode() if isinstance(data, str) else data
    try:
        target = Path(path).resolve()
        if target.is_symlink():  # 3.13 gives a loop back where 3.11 raises RuntimeError
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        old = target.stat() if target.exists() else None
        fd, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".new", dir=target.parent)
    except (OSError, RuntimeError) as why:
        _not_saved(path, why)
    temp = Path(name)
    try:
        _fill(fd, body, old, mode)
        temp.replace(target)
    except OSError as why:
        temp.unlink(missing_ok=True)
        _not_saved(path, why)
    _sync_folder(target)


def _fill(fd: int, body: bytes, old: os.stat_result | None, mode: int) -> None:
    """Write and sync. mkstemp made the file 0600 whatever the umask; the final mode comes before the rename."""
    with os.fdopen(fd, "wb") as file:
        file.write(body)
        file.flush()
        if old and os.geteuid() == 0:
            os.fchown(fd, old.st_uid, old.st_gid)
        os.fchmod(fd, old.st_mode & 0o7777 if old else mode)
        os.fsync(fd)


def _sync_folder(target: Path) -> None:
    try:
        fd = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as why:
        raise EffectFailed(f"{target}: written, but not proven to be on the disk: {why.strerror or why}") from why


def _not_saved(path: Path, why: Exception) -> NoReturn:
    code = why.errno if isinstance(why, OSError) else None
    reason = _NO_SPACE.get(code or 0) or (why.strerror if isinstance(why, OSError) else "") or str(why)
    raise EffectFailed(f"{path}: not saved: {reason}; what was there is unchanged") from why


def locked(fd: int, path: Path, how: int = fcntl.LOCK_EX) -> bool:
    """Whether an open file or folder could be locked at once. EffectFailed on a file system that has no locks."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as why:
        raise EffectFailed(
            f"{path}: its file system gives no lock ({why.strerror}), so nothing would keep two operators apart: "
            "put the workspace on a disk of this machine"
        ) from why
    return True


def wait_for_lock(fd: int, path: Path) -> None:
    """Lock an open file or folder for this process alone. A holder that was stopped in the middle of its write
    must not make everybody else hang."""
    until = time.monotonic() + LOCK_WITHIN_S
    while not locked(fd, path):
        if time.monotonic() >= until:
            raise EffectFailed(
                f"{path}: not saved: another process has been writing there for {LOCK_WITHIN_S:.0f} s; "
                f"`fuser {Path(path).resolve().parent}` names it"
            )
        time.sleep(0.005)


@contextmanager
def folder_lock(path: Path) -> Iterator[None]:
    """Hold the kernel's lock on the folder of `path` (of a symlink's target), so that read, compare and replace
    are one act. It dies with its holder; EffectFailed when a living one keeps it for longer than writes take."""
    fd = os.open(Path(path).resolve().parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        wait_for_lock(fd, path)
        yield
    finally:
        os.close(fd)
