"""`state/alarms.json`: the open alarms of the box, and who acknowledged which."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from anvil_tui.adapters.files import folder_lock, write_atomic
from anvil_tui.core.alarms import Alarm
from anvil_tui.core.errors import BadFile, EffectFailed
from anvil_tui.core.times import parse_time

ALARMS_SCHEMA = "anvil.alarms/1"
_ADAPTER = TypeAdapter(tuple[Alarm, ...])


class AlarmFile:
    """`ports.alarms.AlarmBook`. A read of a file that has not changed costs one stat."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._cache: tuple[tuple[int, int, int], tuple[Alarm, ...]] | None = None

    def read(self) -> tuple[Alarm, ...]:
        try:
            stat = self._path.stat()
            mark = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
            if self._cache is None or self._cache[0] != mark:
                self._cache = (mark, self._parsed(self._path.read_bytes()))
        except FileNotFoundError:
            return ()
        return self._cache[1]

    def change(self, made: Callable[[tuple[Alarm, ...]], tuple[Alarm, ...]]) -> tuple[Alarm, ...]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with folder_lock(self._path):
                have = self._sound()
                new = made(have or ())
                if new != have:
                    rows = {"schema": ALARMS_SCHEMA, "alarms": [asdict(a) for a in new]}
                    write_atomic(self._path, json.dumps(rows, ensure_ascii=False, indent=1) + "\n")
        except OSError as why:
            raise EffectFailed(f"{self._path}: not recorded: {why.strerror or why}") from why
        return new

    def _sound(self) -> tuple[Alarm, ...] | None:
        """None = damaged: what is open now is written anew, for it is raised from what is read of the box."""
        try:
            return self.read()
        except BadFile:
            return None

    def _parsed(self, data: bytes) -> tuple[Alarm, ...]:
        try:
            table = json.loads(data)
            if not isinstance(table, dict) or table.get("schema") != ALARMS_SCHEMA:
                raise BadFile(str(self._path), f"schema: must be {ALARMS_SCHEMA}; remove the file")
            alarms = _ADAPTER.validate_python(table.get("alarms"))
            for alarm in alarms:
                parse_time(alarm.since), parse_time(alarm.acked_at)
            return alarms
        except ValidationError as why:
            first = why.errors()[0]
            key = ".".join(str(p) for p in ("alarms", *first["loc"]))
            raise BadFile(str(self._path), f"{first['msg']}; remove the file", key=key) from why
        except ValueError as why:
            raise BadFile(str(self._path), f"is damaged: {why}; remove the file") from why
