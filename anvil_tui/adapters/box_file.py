"""`state/box.json`: what serves were made, who holds each role, the ladder back; `state/recipes/`; the ledgers."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from anvil_tui.adapters.files import BOM, folder_lock, revision, write_atomic
from anvil_tui.adapters.ledger import Ledger
from anvil_tui.core.errors import BadFile, Refused, Stale
from anvil_tui.core.loads import MeasuredLoad
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.standing import DrillRecord
from anvil_tui.core.waivers import CheckWaiver, Waiver
from anvil_tui.core.world import BoxRecord, ServeRecord

SCHEMA = "anvil.box/1"
_RECORD = TypeAdapter(BoxRecord)
_ASK = (
    "who holds which role is not read from it. The next plan puts the last good copy in its place, if the box "
    "agrees with it in all that can be seen; else nothing is loaded or promoted. `anvil-tui record` shows both"
)


class BoxFile:
    """Reads and writes the record; a damaged file is an error that says how to go on, never an empty box."""

    def __init__(self, state: Path) -> None:
        self._path, self._last = state / "box.json", state / "box.json.last"
        self._recipes = state / "recipes"
        self._kept: dict[str, Recipe] = {}
        self._waivers = Ledger(state / "waivers.ndjson", Waiver)
        self._check_waivers = Ledger(state / "check-waivers.ndjson", CheckWaiver)
        self._loads = Ledger(state / "loads.ndjson", MeasuredLoad, lambda load: (load.operation, load.digest))
        self._drills = Ledger(
            state / "drills.ndjson", DrillRecord, lambda drill: (drill.operation, drill.recheck and drill.at)
        )

    def read(self) -> BoxRecord:
        """No file and no copy of one is a first start: an empty record."""
        try:
            return from_json(json.loads(self._path.read_bytes()))
        except FileNotFoundError:
            if not self._last.exists() and not list(self._path.parent.glob(f"{self._path.name}.corrupt-*")):
                return BoxRecord()
            raise BadFile(str(self._path), f"is gone, and there was one; {_ASK}") from None
        except (ValueError, KeyError, TypeError, AttributeError) as why:
            raise BadFile(str(self._path), f"is damaged ({why}); {_ASK}") from why

    def copy(self) -> BoxRecord | None:
        """The record as it was one save before; None when there is no copy, or no good one."""
        try:
            return from_json(json.loads(self._last.read_bytes()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def mend(self, record: BoxRecord) -> str:
        """Put `record` in the place of a file that cannot be read; where the damaged one lies now, "" = there was
        none. Refused when the file is good, by now."""
        with folder_lock(self._path):
            try:
                self.read()
            except BadFile:
                aside = ""
                if self._path.exists():
                    kept = self._path.with_name(f"{self._path.name}.corrupt-{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
                    self._path.rename(kept)
                    aside = str(kept)
                write_record(self._path, record)
                return aside
            raise Refused(f"{self._path}: can be read; nothing was changed")

    def write(self, record: BoxRecord, was: BoxRecord) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with folder_lock(self._path):
            if (now := self.read()) != was:
                raise Stale(_conflict(self._path, was, now))
            if self._path.exists():
                write_atomic(self._last, self._path.read_bytes())
            write_record(self._path, record)

    def waivers(self) -> tuple[Waiver, ...]:
        return self._waivers.read()

    def waive(self, waiver: Waiver) -> None:
        self._waivers.append(waiver)

    def check_waivers(self) -> tuple[CheckWaiver, ...]:
        return self._check_waivers.read()

    def waive_check(self, waiver: CheckWaiver) -> None:
        self._check_waivers.append(waiver)

    def loads(self) -> tuple[MeasuredLoad, ...]:
        return self._loads.read()

    def keep_load(self, load: MeasuredLoad) -> None:
        self._loads.append(load)

    def drills(self) -> tuple[DrillRecord, ...]:
        return self._drills.read()

    def keep_drill(self, drill: DrillRecord) -> None:
        self._drills.append(drill)

    def keep_recipe(self, recipe: Recipe) -> None:
        path = self._recipes / f"{recipe.digest()}.json"
        if not path.exists():
            self._recipes.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomic(path, recipe.model_dump_json(by_alias=True, indent=1))

    def kept_recipes(self) -> Mapping[str, Recipe]:
        """By digest. A copy whose content no longer has the digest in its name is left out."""
        for path in sorted(self._recipes.glob("*.json")) if self._recipes.exists() else ():
            if path.stem not in self._kept:
                try:
                    recipe = Recipe.model_validate_json(path.read_bytes().removeprefix(BOM))
                except ValidationError as why:
                    raise BadFile(str(path), f"is damaged: {why.error_count()} errors; restore it") from why
                if recipe.digest() == path.stem:
                    self._kept[path.stem] = recipe
        return dict(self._kept)


def _conflict(path: Path, was: BoxRecord, now: BoxRecord) -> str:
    old, new = (json.dumps(to_json(r), indent=1, sort_keys=True) for r in (was, now))
    names = f"{path.name} (as it was read)", f"{path.name} (now)"
    diff = difflib.unified_diff(old.splitlines(), new.splitlines(), *names, n=1, lineterm="")
    return (
        f"{path} changed since it was read: it is {revision(new.encode())[:12]}, you read "
        f"{revision(old.encode())[:12]}; nothing was written. What moved:\n" + "\n".join(diff)
    )


def write_record(path: Path, record: BoxRecord) -> None:
    write_atomic(path, json.dumps(to_json(record), indent=1))


def to_json(record: BoxRecord) -> dict[str, Any]:
    return {"schema": SCHEMA, **asdict(record)}


def from_json(raw: Mapping[str, Any]) -> BoxRecord:
    if raw["schema"] != SCHEMA:
        raise ValueError(f"schema is {raw['schema']!r}, this version reads {SCHEMA!r}")
    if unknown := {key for v in raw["serves"].values() for key in v} - {f.name for f in fields(ServeRecord)}:
        raise ValueError(f"a serve has {', '.join(sorted(unknown))}, which this version does not know")
    return _RECORD.validate_json(json.dumps({k: raw[k] for k in ("generation", "serves", "roles")}), strict=True)
