"""Files that serves mount: sizes, what is left of a broken download, and hashes that are read once."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from anvil_tui.adapters.files import write_atomic
from anvil_tui.core.errors import EffectFailed, Unreachable
from anvil_tui.ports.surroundings import FileLook, HashLook

_CHUNK = 4 * 1024 * 1024
_KEPT_FROM = 64 * 1024 * 1024  # below it reading the file again costs less than keeping its hash
_INDEX_MAX = 64 * 1024 * 1024
_SHOWN = 3
# A network mount whose server is gone lets every call on it hang; one that is only slow walks a cache in less.
_PATIENCE_S = 5.0
_SPLIT = re.compile(r"(.+)-\d{5}-of-(\d{5})\.gguf")

Mark = tuple[int, int, int]
T = TypeVar("T")


@dataclass(slots=True)
class _Reading:
    """A file that is being hashed over several calls."""

    mark: Mark
    done: int = 0
    digest: Any = field(default_factory=hashlib.sha256)


class _Silent(Exception):
    """No answer within the time given."""


class _Patience:
    """Calls that may hang in the kernel, each in a thread that does not keep the process alive. One for each key
    at a time: a call that hangs is not made again before it has come back."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._busy: dict[str, threading.Lock] = {}
        self._hung: set[str] = set()

    def within(self, seconds: float, key: str, call: Callable[[], T]) -> T:
        """What `call` gives or raises; `_Silent` when neither comes in time."""
        until = time.monotonic() + seconds
        with self._guard:
            busy = self._busy.setdefault(key, threading.Lock())
        if key in self._hung or not busy.acquire(timeout=seconds):
            raise _Silent
        answer: Future[T] = Future()
        threading.Thread(target=self._run, args=(key, busy, call, answer), name="file look", daemon=True).start()
        try:
            return answer.result(max(0.0, until - time.monotonic()))
        except TimeoutError:
            with self._guard:
                if not answer.done():
                    self._hung.add(key)
                    raise _Silent from None
            return answer.result()

    def _run(self, key: str, busy: threading.Lock, call: Callable[[], T], answer: Future[T]) -> None:
        try:
            found = call()
        except BaseException as why:  # whatever it is, whoever waits for the answer gets it
            end: Callable[[], None] = functools.partial(answer.set_exception, why)
        else:
            end = functools.partial(answer.set_result, found)
        with self._guard:
            self._hung.discard(key)
            busy.release()
            end()


class LocalFiles:
    """`FileReader` of this machine. `kept` is a file of hashes by path, size, time and inode: a cache."""

    def __init__(self, kept: Path, patience_s: float = _PATIENCE_S) -> None:
        self._kept_at, self._patience_s, self._patience = kept, patience_s, _Patience()
        self._keeping = threading.Lock()
        self._known: dict[str, tuple[Mark, str]] = {}
        self._reading: dict[str, _Reading] = {}

    def look(self, path: str, *, below: bool = True) -> FileLook:
        try:
            return self._patience.within(self._patience_s, f"look {path}", lambda: self._look(path, below))
        except _Silent:
            return FileLook("silent", why=self._silence(path))

    def _silence(self, path: str) -> str:
        return f"{path}: its file system does not answer ({self._patience_s:.0f} s): a network mount that hangs?"

    def _look(self, path: str, below: bool) -> FileLook:
        at = Path(path)
        try:
            parts = _parts(at)
            stats = {p: _stat(p) for p in parts}
            if any(s and stat.S_ISDIR(s.st_mode) for s in stats.values()):
                return _folder(at, list(_hub_flaws(at))) if below else FileLook("folder")
            if any(s and not stat.S_ISREG(s.st_mode) for s in stats.values()):
                return FileLook("special")
            here = [s.st_size for s in stats.values() if s]
            if not here:
                return FileLook("absent", flaws=(f"{path} is a broken link",) if at.is_symlink() else ())
            gone = [f"{p.name} is not there" for p, s in stats.items() if not s]
            return FileLook("file", sum(here), len(here), _shown([*gone, *_hub_flaws(at)]))
        except OSError as why:
            return FileLook("unreadable", why=f"{why.filename or path}: {why.strerror}")

    def sha256(self, path: str, budget_s: float, *, keep: bool) -> HashLook:
        began = time.monotonic()
        limit = budget_s + self._patience_s
        try:
            return self._patience.within(limit, f"hash {path}", lambda: self._hash(path, budget_s, keep))
        except _Silent:
            raise Unreachable(path, self._silence(path), time.monotonic() - began) from None
        except OSError as why:
            raise Unreachable(path, why.strerror or str(why)) from why

    def _hash(self, path: str, budget_s: float, keep: bool) -> HashLook:
        until = time.monotonic() + budget_s
        with Path(path).open("rb", buffering=0) as file:
            mark = _mark(file.fileno())
            if found := self._found(path, mark):
                return HashLook(found, mark[0], mark[0])
            at = self._reading.get(path)
            if at is None or at.mark != mark:
                at = self._reading[path] = _Reading(mark)
            file.seek(at.done)
            while block := file.read(_CHUNK):
                at.digest.update(block)
                at.done += len(block)
                if time.monotonic() > until and at.done < mark[0]:
                    return HashLook("", at.done, mark[0])
            if _mark(file.fileno()) != mark:  # somebody writes to it
                return HashLook("", 0, mark[0])
        del self._reading[path]
        self._remember(path, mark, at.digest.hexdigest(), keep)
        return HashLook(at.digest.hexdigest(), mark[0], mark[0])

    def _found(self, path: str, mark: Mark) -> str:
        for known in (self._known, self._kept()):
            if path in known and known[path][0] == mark:
                return known[path][1]
        return ""

    def _remember(self, path: str, mark: Mark, sha256: str, keep: bool) -> None:
        self._known[path] = (mark, sha256)
        if not keep or mark[0] < _KEPT_FROM:
            return
        with self._keeping:
            everything = {**self._kept(), path: (mark, sha256)}
            body = {p: [*m, h] for p, (m, h) in everything.items()}
            try:
                write_atomic(self._kept_at, json.dumps(body, indent=1))
            except (OSError, EffectFailed):
                return  # a cache that cannot be written costs reading the file again, and nothing else

    def _kept(self) -> dict[str, tuple[Mark, str]]:
        """What any process has kept; a damaged cache is none."""
        try:
            raw = json.loads(self._kept_at.read_bytes())
            return {str(p): ((int(s), int(t), int(i)), str(h)) for p, (s, t, i, h) in raw.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}


def _parts(at: Path) -> tuple[Path, ...]:
    """The file itself; of a GGUF that is split, every part that the first one's name promises."""
    split = _SPLIT.fullmatch(at.name)
    if not split:
        return (at,)
    return tuple(at.with_name(f"{split[1]}-{n:05d}-of-{split[2]}.gguf") for n in range(1, int(split[2]) + 1))


def _stat(path: Path) -> os.stat_result | None:
    """None = nothing is there, or a link to nothing; PermissionError is no such answer."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _mark(fd: int) -> Mark:
    found = os.fstat(fd)
    return found.st_size, found.st_mtime_ns, found.st_ino


def _folder(at: Path, flaws: list[str]) -> FileLook:
    total = count = 0
    for path in _walk(at):
        if path.name.endswith(".incomplete"):
            flaws.append(f"{path.relative_to(at)} is an incomplete download")
        elif (found := _stat(path)) is None:
            flaws.append(f"{path.relative_to(at)} is a broken link")
        else:
            total += found.st_size
            count += 1
            flaws += _absent_parts(path) if path.name.endswith(".index.json") else ()
    return FileLook("folder", total, count, _shown(flaws))


def _walk(at: Path) -> Iterator[Path]:
    def stop(why: OSError) -> None:
        raise why

    for folder, _, names in os.walk(at, onerror=stop):
        yield from (Path(folder, name) for name in sorted(names))


def _shown(flaws: list[str]) -> tuple[str, ...]:
    more = (f"{len(flaws) - _SHOWN} more",) if len(flaws) > _SHOWN else ()
    return (*flaws[:_SHOWN], *more)


def _absent_parts(index: Path) -> Iterator[str]:
    """Files that a weights index names and that do not lie beside it."""
    if index.stat().st_size > _INDEX_MAX:
        return
    try:
        named = set(json.loads(index.read_bytes())["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError):
        return
    for name in sorted(map(str, named)):
        if _stat(index.parent / name) is None:
            yield f"{name}, which {index.name} names, is not there"


def _hub_flaws(at: Path) -> Iterator[str]:
    """A snapshot of a Hugging Face cache is whole when its repository has no download left half done."""
    repository = next((p for p in (at, *at.parents) if p.name.startswith("models--")), None)
    for blob in sorted((repository / "blobs").glob("*.incomplete")) if repository and repository != at else ():
        yield f"{repository.name if repository else ''}/blobs/{blob.name} is an incomplete download"
