"""What an operation needs to remember and to be alone: journal, box record, exact recipes, lease."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from anvil_tui.core.journal import OperationView, Record, RecordKind
from anvil_tui.core.loads import MeasuredLoad
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.standing import DrillRecord
from anvil_tui.core.waivers import CheckWaiver, Waiver
from anvil_tui.core.world import BoxRecord, Lease


class Journal(Protocol):
    """The record of one operation. `append` returns after fsync."""

    def append(self, kind: RecordKind, step: str = "", /, **data: Any) -> Record: ...
    def records(self) -> tuple[Record, ...]: ...
    def damage(self) -> str:
        """What is wrong with the record, naming file and line; "" = whole. A torn last line is no damage."""


class BoxStore(Protocol):
    """`state/box.json`, the recipes, by digest, that made its serves, and records that only grow."""

    def read(self) -> BoxRecord:
        """BadFile for one that is damaged, or gone although there was one: never an empty box."""

    def copy(self) -> BoxRecord | None:
        """The last good copy, which may be one save old; None = there is none."""

    def mend(self, record: BoxRecord) -> str:
        """Replace a record that cannot be read; where the damaged file lies now. Refused when it can be read."""

    def write(self, record: BoxRecord, was: BoxRecord) -> None:
        """Replace `was`, as it was read, by `record`. Stale, with what moved and nothing written, when the file
        says something else by now."""

    def keep_recipe(self, recipe: Recipe) -> None: ...
    def kept_recipes(self) -> Mapping[str, Recipe]: ...
    def waivers(self) -> tuple[Waiver, ...]: ...
    def waive(self, waiver: Waiver) -> None: ...
    def check_waivers(self) -> tuple[CheckWaiver, ...]: ...
    def waive_check(self, waiver: CheckWaiver) -> None: ...
    def loads(self) -> tuple[MeasuredLoad, ...]:
        """Oldest first; one for each recipe that an operation started."""

    def keep_load(self, load: MeasuredLoad) -> None: ...
    def drills(self) -> tuple[DrillRecord, ...]:
        """Oldest first; one for each drill, and one for each recheck."""

    def keep_drill(self, drill: DrillRecord) -> None: ...


class OperationStore(Protocol):
    """`state/operations/`: one folder an operation."""

    def create(self, operation: str, plan: Mapping[str, Any]) -> None: ...
    def plan(self, operation: str) -> Mapping[str, Any]: ...
    def journal(self, operation: str) -> Journal: ...
    def views(self) -> tuple[OperationView, ...]: ...
    def save(self, operation: str, name: str, text: str) -> str:
        """Keep a text (a log, an inspect) with the operation, redacted; returns the text as it was kept."""

    def read_kept(self, operation: str, name: str) -> str | None:
        """A text as it was kept; None when there is none of that name."""

    def stage(self, operation: str, values: Mapping[str, str]) -> None:
        """Keep secrets with the operation as they are, for its owner only, until `unstage`. Nothing else that is
        written for the operation holds them."""

    def staged(self, operation: str) -> Mapping[str, str]: ...
    def unstage(self, operation: str) -> None: ...
    def pause(self, operation: str, on: bool) -> None:
        """Ask the operation to hold its gates before the next request, or to go on."""

    def paused(self, operation: str) -> bool: ...
    def ask_cancel(self, operation: str, reason: str) -> None:
        """Refused when somebody asked before, for another reason."""

    def keep_shown(self, plan_hash: str, plan: Mapping[str, Any]) -> None:
        """Keep a plan that was shown and not run, for a while, so that what moved since can be told."""

    def shown(self, plan_hash: str) -> Mapping[str, Any] | None: ...
    def cancel_asked(self, operation: str) -> str | None: ...


@dataclass(frozen=True, slots=True)
class BundleAt:
    """Where one bundle lies. Its files begin with `prefix`; not `complete` = its manifest was never written.

    `mark` is another one when a file of it was written again.
    """

    id: str
    folder: str
    prefix: str
    complete: bool
    mark: tuple[int, int] = (0, 0)


class BundleStore(Protocol):
    """Evidence bundles: of operations, and kept ones."""

    def all(self) -> tuple[BundleAt, ...]: ...
    def find(self, name: str) -> BundleAt:
        """By OPERATION/SERVE, by an operation that left one, by a kept id or a folder's path; else NotFound."""

    def read(self, at: BundleAt) -> Mapping[str, bytes]: ...
    def write(self, at: BundleAt, name: str, text: str) -> str:
        """Keep a report beside the bundle; its path."""

    def anchors(self, at: BundleAt) -> Mapping[str, str] | None:
        """Manifest name -> SHA-256 by the operation's journal; None = no journal lies there. BadFile = altered."""


class WriteRight(Protocol):
    """The box's lease: a kernel lock that dies with its holder."""

    def take(self, operation: str) -> None:
        """Refused, naming the holder, when somebody alive has it."""

    def release(self) -> None: ...
    def holder(self) -> Lease | None:
        """Who holds it now; None when nobody does."""
