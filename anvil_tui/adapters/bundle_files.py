"""Evidence bundles as files: what operations left in `state/operations/`, and folders kept in `evidence/`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from anvil_tui.adapters.files import write_atomic
from anvil_tui.adapters.journal_file import parse
from anvil_tui.core.bundle import IDENTITY, MANIFEST, OBSERVATIONS, RESULTS
from anvil_tui.core.errors import BadFile, NotFound
from anvil_tui.ports.operations import BundleAt

_PLAN, _JOURNAL = "plan.json", "journal.ndjson"
_PART = re.compile(
    rf"([0-9a-f]{{12}}-)?(?:{'|'.join(map(re.escape, (IDENTITY, OBSERVATIONS, RESULTS, MANIFEST)))})"
)


class BundleFolders:
    def __init__(self, operations: Path, kept: Path) -> None:
        self._operations, self._kept = operations, kept

    def all(self) -> tuple[BundleAt, ...]:
        """Oldest operation first, then the kept folders by name."""
        return (*self._under(self._operations, own=True), *self._under(self._kept, own=False))

    def _under(self, directory: Path, *, own: bool) -> Iterator[BundleAt]:
        for folder in sorted(directory.iterdir()) if directory.is_dir() else ():
            if folder.is_dir():
                yield from _in(folder, folder.name if own else "")

    def find(self, name: str) -> BundleAt:
        """By id (`OPERATION/SERVE`, a folder's name), by an operation that left one bundle, or by a path."""
        known = self.all()
        exact = [at for at in known if at.id == name]
        found = exact or [at for at in known if at.id.startswith(f"{name}/")]
        if not found and Path(name).is_dir():
            found = list(_in(Path(name), ""))
        if len(found) == 1:
            return found[0]
        if found:
            raise NotFound(f"{name} holds {len(found)} bundles, name one: {', '.join(at.id for at in found)}")
        raise NotFound(f"no bundle {name!r}: give an operation, OPERATION/SERVE or a folder; `evidence list`")

    def read(self, at: BundleAt) -> Mapping[str, bytes]:
        """Every file of the bundle by name; of a folder that is a bundle by itself, every file there."""
        folder, files = Path(at.folder), dict[str, bytes]()
        for path in sorted(folder.iterdir()):
            mine = path.name.startswith(at.prefix) if at.prefix else path.name != _JOURNAL
            if path.is_file() and (mine or path.name == _PLAN):
                files[path.name] = path.read_bytes()
        return files

    def write(self, at: BundleAt, name: str, text: str) -> str:
        """Keeps a report beside the bundle; its path."""
        path = Path(at.folder) / name
        write_atomic(path, text)
        return str(path)

    def anchors(self, at: BundleAt) -> Mapping[str, str] | None:
        """Manifest name -> SHA-256, as the journal beside the bundle says; None when no journal lies there.

        BadFile for a journal that is torn or was altered, and for an operation of this box without one: what is
        said then is worth nothing.
        """
        path = Path(at.folder) / _JOURNAL
        if not path.is_file():
            if Path(at.folder).parent == self._operations:
                raise BadFile(str(path), "is missing: every operation keeps one")
            return None
        records, trouble = parse(path.read_bytes())
        if trouble:
            raise BadFile(str(path), trouble)
        told: dict[str, str] = {}
        for record in records:
            told |= record.data.get("evidence", {}) if record.kind == "note" else {}
        return told


def _in(folder: Path, operation: str) -> Iterator[BundleAt]:
    parts: dict[str, list[Path]] = {}
    for path in folder.iterdir():
        if (found := _PART.fullmatch(path.name)) and path.is_file():
            parts.setdefault(found[1] or "", []).append(path)
    for prefix, paths in sorted(parts.items()):
        serve = prefix.rstrip("-")
        base = operation or folder.name
        stats = [path.stat() for path in paths]
        mark = max(s.st_mtime_ns for s in stats), sum(s.st_size for s in stats)
        complete = any(path.name == prefix + MANIFEST for path in paths)
        yield BundleAt(f"{base}/{serve}" if serve else base, str(folder), prefix, complete, mark)
