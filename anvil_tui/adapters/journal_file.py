"""`state/operations/ID/`: plan.json, journal.ndjson (append, fsync, chained), kept texts, the cancel file.

A line carries the SHA-256 of the line before it. A torn last line was never acknowledged: it is set aside
in journal.torn when somebody appends. A torn or altered line in the middle is reported in the view.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from anvil_tui.adapters.files import BOM, folder_lock, wait_for_lock, write_atomic
from anvil_tui.adapters.reserve import FULL, Reserve
from anvil_tui.core.errors import BadFile, EffectFailed, NotFound, Refused, Stale
from anvil_tui.core.journal import JOURNAL_VERSION, OperationView, Record, RecordKind, fold
from anvil_tui.core.redact import redact, redact_values

Redact = Callable[[str], str]
SHOWN_PLANS = 20
STAGED = "staged.json"


class JournalFile:
    """One operation's journal. One writing process (the lease sees to that), of any number of threads; any number
    of readers.
    """

    def __init__(self, path: Path, hiding: Callable[[], Redact] = lambda: str) -> None:
        """`hiding` gives, for each line, what hides the secrets of that moment."""
        self._path, self._hiding, self._reserve = path, hiding, Reserve(path.parent)
        self._tail: tuple[int, str] | None = None
        self._size = 0
        self._lock = threading.Lock()

    def append(self, kind: RecordKind, step: str = "", /, **data: Any) -> Record:
        """Stale when another process has written since: it took the operation over, and this one may not go on."""
        with self._lock, self._opened() as fd:
            size = os.fstat(fd).st_size
            if self._tail is None:
                self._tail = self._mend(fd)
            elif size != self._size:
                raise Stale(f"{self._path}: another process writes this journal now; this one stops where it is")
            seq, prev = self._tail
            record = Record(seq + 1, datetime.now(UTC).isoformat(timespec="milliseconds"), kind, step, data)
            line = _hidden_line(_to_json(record, prev), self._hiding())
            self._reserve.look(fd)
            self._write(fd, line.encode() + b"\n")
            if kind == "end":
                self._reserve.remove()
            self._size, self._tail = os.fstat(fd).st_size, (record.seq, _sha(line.encode()))
            return record

    def _write(self, fd: int, line: bytes) -> None:
        """On a full disk the reserve makes room."""
        try:
            try:
                _write_whole(fd, line)
            except OSError as why:
                if why.errno not in FULL or not self._reserve.give_up():
                    raise
                _write_whole(fd, line)
        except OSError as why:
            raise EffectFailed(f"{self._path}: journal not written: {why.strerror}") from why

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """Open and locked, so that what is compared is what is added to."""
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as why:
            raise EffectFailed(f"{self._path}: journal not written: {why.strerror}") from why
        try:
            wait_for_lock(fd, self._path)
            yield fd
        finally:
            os.close(fd)

    def damage(self) -> str:
        raw = self._path.read_bytes() if self._path.exists() else b""
        trouble = parse(raw)[1]
        return f"{self._path}: {trouble}" if trouble else ""

    def _mend(self, fd: int) -> tuple[int, str]:
        """Cut a torn last line off (kept beside), and find where the chain stands."""
        raw = self._path.read_bytes().removeprefix(BOM)
        whole, torn = raw[: raw.rfind(b"\n") + 1], raw[raw.rfind(b"\n") + 1 :]
        if torn:
            self._path.with_suffix(".torn").write_bytes(torn)
            os.ftruncate(fd, os.fstat(fd).st_size - len(torn))
        lines = whole.splitlines()
        records, _ = parse(whole)
        return (records[-1].seq, _sha(lines[-1])) if records and lines else (0, "")

    def records(self) -> tuple[Record, ...]:
        if not self._path.exists():
            return ()
        return parse(self._path.read_bytes())[0]


def _write_whole(fd: int, line: bytes) -> None:
    """All of the line on the disk, or none of it: a full disk must not leave half a record behind."""
    before = os.fstat(fd).st_size
    try:
        written = 0
        while written < len(line):
            written += os.write(fd, line[written:])
        os.fsync(fd)
    except OSError:
        os.ftruncate(fd, before)
        raise


def parse(raw: bytes) -> tuple[tuple[Record, ...], str]:
    """Records of a journal, and a sentence when a line is torn or was altered ("" = whole)."""
    records: list[Record] = []
    trouble, prev = "", ""
    acknowledged = raw.removeprefix(BOM).split(b"\n")[:-1]
    for number, line in enumerate(acknowledged, 1):
        try:
            row = json.loads(line)
            record = Record(row["seq"], row["at"], row["kind"], row.get("step", ""), row.get("data", {}), row["v"])
        except (ValueError, KeyError, TypeError):
            trouble = trouble or f"line {number} is damaged"
            continue
        if row.get("prev", "") != prev:
            trouble = trouble or f"line {number} does not follow line {number - 1}"
        if record.v > JOURNAL_VERSION:
            trouble = trouble or f"line {number} was written by a newer version ({record.v})"
        prev = _sha(line)
        records.append(record)
    return tuple(records), trouble


def _to_json(record: Record, prev: str) -> dict[str, Any]:
    return {
        "v": record.v, "seq": record.seq, "at": record.at, "kind": record.kind, "step": record.step,
        "data": record.data, "prev": prev,
    }  # fmt: skip


def _hidden_line(value: Any, redact: Redact) -> str:
    plain = json.loads(json.dumps(value, default=str))
    return json.dumps(redact_values(plain, redact), ensure_ascii=False)


def _sha(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()[:16]


class OperationFolders:
    """All operations of a workspace. Views are cached by size and time of their journal."""

    def __init__(self, directory: Path, redact: Redact = str) -> None:
        self._dir, self._redact = directory, redact
        self._cache: dict[str, tuple[tuple[int, int], OperationView]] = {}

    def create(self, operation: str, plan: Mapping[str, Any]) -> None:
        folder = self._folder(operation)
        folder.mkdir(parents=True, mode=0o700)
        try:
            Reserve(folder).take()
            write_atomic(folder / "plan.json", _hidden_line(plan, self._redact))
        except EffectFailed:
            shutil.rmtree(folder)
            raise

    def plan(self, operation: str) -> Mapping[str, Any]:
        path = self._folder(operation) / "plan.json"
        if not path.exists():
            raise NotFound(f"no operation {operation!r} in {self._dir}")
        try:
            plan: Any = json.loads(path.read_bytes())
        except ValueError as why:
            raise BadFile(str(path), f"is damaged: {why}") from why
        if not isinstance(plan, dict):
            raise BadFile(str(path), "is damaged: it holds no plan")
        return plan

    def journal(self, operation: str) -> JournalFile:
        return JournalFile(self._folder(operation) / "journal.ndjson", lambda: self._hiding(operation))

    def stage(self, operation: str, values: Mapping[str, str]) -> None:
        write_atomic(self._folder(operation) / STAGED, json.dumps(dict(values)), 0o600)

    def staged(self, operation: str) -> Mapping[str, str]:
        try:
            values: dict[str, str] = json.loads((self._folder(operation) / STAGED).read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError:
            raise BadFile(str(self._folder(operation) / STAGED), "is damaged") from None
        return values

    def unstage(self, operation: str) -> None:
        (self._folder(operation) / STAGED).unlink(missing_ok=True)

    def _hiding(self, operation: str) -> Redact:
        """Hides secrets, and what is staged with the operation now."""
        staged = tuple(self.staged(operation).values())
        return (lambda text: redact(self._redact(text), staged)) if staged else self._redact

    def views(self) -> tuple[OperationView, ...]:
        """Oldest first (ids sort by time)."""
        if not self._dir.exists():
            return ()
        found = (self._view(p) for p in sorted(self._dir.iterdir()) if p.is_dir())
        return tuple(v for v in found if v)

    def _view(self, folder: Path) -> OperationView | None:
        path = folder / "journal.ndjson"
        try:
            stat = path.stat()
        except FileNotFoundError:
            return self._planned(folder)
        mark = (stat.st_size, stat.st_mtime_ns)
        have = self._cache.get(folder.name)
        if have and have[0] == mark:
            return have[1]
        records, trouble = parse(path.read_bytes())
        view = fold(records)
        if view is None:
            return self._planned(
                folder, trouble or ("its journal holds no beginning" if path.stat().st_size else "")
            )
        view = replace(view, torn=trouble)
        self._cache[folder.name] = (mark, view)
        return view

    def _planned(self, folder: Path, trouble: str = "") -> OperationView | None:
        """An operation whose process died before its first record: planned, nothing done."""
        if not (folder / "plan.json").exists():
            return None
        try:
            plan = self.plan(folder.name)
        except BadFile as why:
            return OperationView(folder.name, "?", "?", "", why=str(why), torn=trouble)
        intent = plan.get("intent", {})
        verb = intent.get("verb", "?")
        target = plan.get("title", "?").removeprefix(f"{verb} ")
        return OperationView(folder.name, verb, target, plan.get("hash", ""), torn=trouble)

    def keep_shown(self, plan_hash: str, plan: Mapping[str, Any]) -> None:
        """The newest `SHOWN_PLANS` previews stay."""
        folder = self._dir.parent / "plans"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(folder / f"{plan_hash}.json", _hidden_line(plan, self._redact))
        for old in sorted(folder.glob("*.json"), key=lambda p: p.stat().st_mtime_ns)[:-SHOWN_PLANS]:
            old.unlink(missing_ok=True)

    def shown(self, plan_hash: str) -> Mapping[str, Any] | None:
        path = self._dir.parent / "plans" / f"{plan_hash}.json"
        if not plan_hash.isalnum() or not path.exists():
            return None
        try:
            plan: Mapping[str, Any] = json.loads(path.read_bytes())
        except ValueError:
            return None
        return plan

    def save(self, operation: str, name: str, text: str) -> str:
        if name.endswith(".log") and Reserve(self._folder(operation)).given_up():
            raise EffectFailed(f"{name}: not kept: the disk is full, and what room there is is for the way back")
        kept = "".join(self._hidden(name, text, self._hiding(operation)))
        write_atomic(self._folder(operation) / name, kept)
        return kept

    def _hidden(self, name: str, text: str, hide: Redact) -> Iterator[str]:
        """Documents stay documents: what is hidden in JSON is its values."""
        if name.endswith(".ndjson"):
            yield from (_hidden_line(json.loads(line), hide) + "\n" for line in text.splitlines())
        elif name.endswith(".json"):
            yield _hidden_line(json.loads(text), hide) + "\n"
        else:
            yield hide(text)

    def read_kept(self, operation: str, name: str) -> str | None:
        path = self._folder(operation) / name
        return path.read_text() if path.exists() else None

    def pause(self, operation: str, on: bool) -> None:
        path = self._folder(operation) / "pause"
        if on:
            write_atomic(path, "asked by the operator\n")
        else:
            path.unlink(missing_ok=True)

    def paused(self, operation: str) -> bool:
        return (self._folder(operation) / "pause").exists()

    def ask_cancel(self, operation: str, reason: str) -> None:
        path, wanted = self._folder(operation) / "cancel", reason or "asked by the operator"
        with folder_lock(path):
            asked = self.cancel_asked(operation)
            if asked not in (None, wanted):
                raise Refused(f"operation {operation} was asked to go back already: {asked}")
            write_atomic(path, wanted)

    def cancel_asked(self, operation: str) -> str | None:
        folder = self._folder(operation)
        path = folder / "cancel"
        if not path.exists() and Reserve(folder).given_up():
            return f"the disk under {self._dir} is full"
        return path.read_text() if path.exists() else None

    def folder(self, operation: str) -> Path:
        return self._folder(operation)

    def _folder(self, operation: str) -> Path:
        if "/" in operation or operation.startswith("."):
            raise NotFound(f"{operation!r} is no operation id")
        return self._dir / operation
