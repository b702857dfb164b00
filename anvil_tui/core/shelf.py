"""What the console reads of the disk for the screen that is open: results, a comparison, checks. Pure values.

None of it is read by drawing: it is fetched in a thread and drawn when it has come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from anvil_tui.core.bundle import Bundle
from anvil_tui.core.compare import Comparison
from anvil_tui.core.gates import GateResult
from anvil_tui.core.journal import GateView
from anvil_tui.core.lanes import LaneRow
from anvil_tui.core.recording import Kept
from anvil_tui.core.verify import Checked


@dataclass(frozen=True, slots=True)
class RunFiles:
    """What lies there of one operation's gates.

    `bundles` are its complete bundles, `broken` says by id why one cannot be read, `so_far` are the results of
    gates that have ended while the run goes on. `suite` is {} where nobody can tell what it judges by.
    """

    operation: str
    bundles: tuple[Bundle, ...] = ()
    broken: Mapping[str, str] = field(default_factory=dict)
    so_far: tuple[GateResult, ...] = ()
    suite: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""

    def bundle_of(self, gate: GateView) -> Bundle | None:
        """The bundle with this gate's result; of two serves in one operation, that of the gate's recipe."""
        mine = [b for b in self.bundles if any(r.gate == gate.id for r in b.results)]
        return next((b for b in mine if b.identity.recipe == gate.recipe), mine[-1] if mine else None)

    def result(self, gate: GateView) -> GateResult | None:
        bundle = self.bundle_of(gate)
        return next((r for r in (bundle.results if bundle else self.so_far) if r.gate == gate.id), None)

    def rule(self, gate: GateView) -> Mapping[str, Any]:
        """The gate as its suite has it: as it was judged by, else as the file says now; {} = not known."""
        bundle = self.bundle_of(gate)
        suite = bundle.suite if bundle else self.suite
        return next((g for g in suite.get("gates", ()) if g.get("id") == gate.id), {})


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison with the rows of its arms, or the sentence why there is none."""

    comparison: Comparison | None = None
    rows: Mapping[str, tuple[LaneRow, ...]] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class Verified:
    """What a check of one bundle found, and when (ISO 8601)."""

    at: str
    found: Checked


@dataclass(frozen=True, slots=True)
class Disks:
    """What lies on the disks as `core.storage.storage_json` tells it, and when it was looked at (ISO 8601); or
    the sentence why it could not be."""

    at: str
    told: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class Shelf:
    """`arms` maps the id of a bundle to `A` or `B`; `comparing` = the comparison of them has not come yet."""

    run: RunFiles | None = None
    arms: Mapping[str, str] = field(default_factory=dict)
    compared: Compared | None = None
    comparing: bool = False
    verified: Mapping[str, Verified] = field(default_factory=dict)
    disks: Disks | None = None
    history: Kept | None = None

    def run_of(self, operation: str) -> RunFiles | None:
        return self.run if self.run and self.run.operation == operation else None

    def cycled(self, bundle: str) -> Shelf:
        """This bundle in the next arm: none, A, B, none. What was compared before is of other arms."""
        after = {"": "A", "A": "B", "B": ""}[self.arms.get(bundle, "")]
        others = {k: v for k, v in self.arms.items() if k != bundle}
        arms = {**others, bundle: after} if after else others
        return replace(self, arms=arms, compared=None, comparing=set(arms.values()) == {"A", "B"})
