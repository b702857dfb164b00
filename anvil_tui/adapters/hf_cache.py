"""Model caches in the layout of the Hugging Face hub, on this machine.

`models--ORG--NAME/{blobs,refs,snapshots/REVISION}`: a snapshot's files are links into `blobs` (or, where links
cannot be made, hard links or copies). A blob belongs to every revision whose snapshot leads to it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from anvil_tui.adapters.file_look import LocalFiles
from anvil_tui.adapters.host_inspect import file_users
from anvil_tui.core.errors import EffectFailed, NotFound, Unreachable
from anvil_tui.core.storage import Revision

_REMOVING = ".anvil-removing-"
_SNAPSHOT = re.compile(r"/models--[^/]+/snapshots/[^/]+/")
_MAX_LINKS = 40  # as the kernel
Inode = tuple[int, int]


@dataclass(slots=True)
class _Snapshot:
    """What one snapshot leads to: size by inode, how many of the inode's names lie in it, links that escape."""

    path: Path
    sizes: dict[Inode, int] = field(default_factory=dict)
    names: dict[Inode, int] = field(default_factory=dict)
    files: int = 0
    escapes: list[str] = field(default_factory=list)


class HubCaches:
    """Reads and removes. `proc` is where processes are looked at."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc

    def revisions(self, folders: Iterable[str]) -> tuple[Revision, ...]:
        try:
            repositories = sorted({r for folder in folders for r in _repositories(Path(folder))})
            seen = {r: _snapshots(r) for r in repositories}
            inodes = {i for snapshots in seen.values() for snap in snapshots.values() for i in snap.sizes}
            users, all_seen = file_users(self._proc, inodes)
            return tuple(found for r in repositories for found in _of(r, seen[r], users, all_seen))
        except OSError as why:
            raise Unreachable(str(why.filename), why.strerror or str(why)) from why

    def real(self, path: str) -> str:
        at = Path(path)
        for _ in range(_MAX_LINKS):
            at = Path(os.path.realpath(at.parent)) / at.name
            if not at.is_symlink() or _SNAPSHOT.search(str(at)):
                break
            at = at.parent / at.readlink()
        return str(at)

    def repository_bytes(self, snapshot: str) -> int:
        try:
            return sum({(s.st_dev, s.st_ino): s.st_size for s in _stats(_repository(snapshot))}.values())
        except OSError as why:
            raise Unreachable(str(why.filename), why.strerror or str(why)) from why

    def remove(self, snapshot: str) -> None:
        path, repository = Path(snapshot), _repository(snapshot)
        try:
            snapshots = _snapshots(repository)
            if path.name not in snapshots:
                return
            found = snapshots[path.name]
            if why := "; ".join(_against(repository, found)):
                raise EffectFailed(f"{snapshot}: {why}; nothing was removed")
            _remove(repository, path.name, found, _own(path.name, snapshots, _blobs(repository)))
        except OSError as why:
            raise EffectFailed(f"{why.filename}: not removed: {why.strerror}") from why


def _of(
    repository: Path, snapshots: dict[str, _Snapshot], users: dict[Inode, set[int]], all_seen: bool
) -> Iterator[Revision]:
    blobs, repo = _blobs(repository), repository.name.removeprefix("models--").replace("--", "/")
    for name, snap in snapshots.items():
        own = _own(name, snapshots, blobs)
        pids = tuple(sorted({pid for inode in snap.sizes for pid in users[inode]}))
        yield Revision(
            str(repository / "snapshots" / name), repo, name, sum(snap.sizes.values()),
            sum(snap.sizes[i] for i in own), snap.files, _refs(repository, name),
            LocalFiles(Path(os.devnull)).look(str(snap.path)).flaws, tuple(_against(repository, snap)),
            pids, all_seen,
        )  # fmt: skip


def _remove(repository: Path, name: str, found: _Snapshot, own: set[Inode]) -> None:
    """Out of sight first, so that nobody is given half a revision; its links last, so that a repeat finds them."""
    hidden = repository / "snapshots" / f"{_REMOVING}{name}"
    for ref in _refs(repository, name):
        (repository / "refs" / ref).unlink()
    if found.path != hidden:
        found.path.rename(hidden)
    for inode, blobs in _blobs(repository).items():
        for blob in blobs if inode in own else ():
            blob.unlink()
    shutil.rmtree(hidden)
    shutil.rmtree(repository / ".no_exist" / name, ignore_errors=True)


def _repositories(folder: Path) -> Iterator[Path]:
    """Repositories in a cache, in its `hub`, or around a path that lies inside one."""
    for part in (folder, *folder.parents):
        if part.name.startswith("models--") and (part / "snapshots").is_dir():
            yield part.resolve()
            return
    for root in (folder, folder / "hub"):
        if root.is_dir():
            for found in root.iterdir():
                if found.name.startswith("models--") and not found.is_symlink() and (found / "snapshots").is_dir():
                    yield found.resolve()


def _repository(snapshot: str) -> Path:
    path = Path(snapshot)
    found = path.parent.parent
    plain = path.parent.name == "snapshots" and found.name.startswith("models--") and found.is_dir()
    if not plain or found.resolve() != found or (found / "snapshots").is_symlink() or path.is_symlink():
        raise NotFound(f"{snapshot}: not the snapshot of a revision in a model cache")
    return found


def _snapshots(repository: Path) -> dict[str, _Snapshot]:
    """By revision; one whose removal was interrupted counts as itself."""
    found = {}
    for path in sorted((repository / "snapshots").iterdir()):
        if path.is_dir() and not path.is_symlink():
            found[path.name.removeprefix(_REMOVING)] = _snapshot(repository, path)
    return found


def _snapshot(repository: Path, path: Path) -> _Snapshot:
    made = _Snapshot(path)
    for folder, folders, names in os.walk(path):
        for name in (*names, *(f for f in folders if (Path(folder) / f).is_symlink())):
            at = Path(folder) / name
            made.files += 1
            target = at.resolve()
            if at.is_symlink() and not target.is_relative_to(repository):
                made.escapes.append(f"{at.relative_to(path)} leads to {target}, outside the repository")
                continue
            try:
                seen = target.stat()
            except FileNotFoundError:
                continue
            inode = (seen.st_dev, seen.st_ino)
            made.sizes[inode] = seen.st_size
            made.names[inode] = made.names.get(inode, 0) + (not at.is_symlink())
    return made


def _blobs(repository: Path) -> dict[Inode, list[Path]]:
    folder = repository / "blobs"
    found: dict[Inode, list[Path]] = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        seen = path.lstat()
        found.setdefault((seen.st_dev, seen.st_ino), []).append(path)
    return found


def _own(name: str, snapshots: dict[str, _Snapshot], blobs: dict[Inode, list[Path]]) -> set[Inode]:
    """Files that nobody else refers to: no other revision, and no name of theirs that lies elsewhere."""
    mine = snapshots[name]
    others = {i for other, s in snapshots.items() if other != name for i in s.sizes}
    own = set()
    for inode in set(mine.sizes) - others:
        here = blobs.get(inode, [])
        links = (here[0] if here else _any(mine, inode)).stat().st_nlink
        if links <= len(here) + mine.names.get(inode, 0):
            own.add(inode)
    return own


def _any(snap: _Snapshot, inode: Inode) -> Path:
    return next(p for p in snap.path.rglob("*") if (s := p.stat()) and (s.st_dev, s.st_ino) == inode)


def _refs(repository: Path, revision: str) -> tuple[str, ...]:
    """Names (`main`, `pr/1`) that mean this revision."""
    folder = repository / "refs"
    paths = sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink()) if folder.is_dir() else []
    return tuple(str(p.relative_to(folder)) for p in paths if p.read_text(errors="replace").strip() == revision)


def _against(repository: Path, snap: _Snapshot) -> Iterator[str]:
    """Why it may not be touched, whoever refers to it."""
    yield from snap.escapes[:3]
    folder = repository / "blobs"
    if folder.is_symlink() or (repository / "refs").is_symlink():
        yield f"{repository.name}: its blobs or refs are a link to somewhere else"
    for part in sorted(folder.glob("*.incomplete")) if folder.is_dir() else ():
        yield f"a download that has not ended ({part.name})"


def _stats(repository: Path) -> Iterator[os.stat_result]:
    for folder, _, names in os.walk(repository):
        for name in names:
            yield (Path(folder) / name).lstat()
