"""Evidence for a reader: bundles of an operation, comparisons, checks. Each call reads files and may be slow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from anvil_tui.core.bundle import Bundle
from anvil_tui.core.compare import compare, rows_compared
from anvil_tui.core.errors import AnvilError, NotFound
from anvil_tui.core.shelf import Compared, RunFiles, Verified
from anvil_tui.ports.operations import BundleAt, BundleStore
from anvil_tui.service.ab import known_recipes
from anvil_tui.service.arms import arm_of
from anvil_tui.service.box import Box
from anvil_tui.service.bundles import read_bundle
from anvil_tui.service.evidence import check_bundle
from anvil_tui.service.gate_run import kept_results

KEPT_BUNDLES = 8
"""Bundles held in memory, the last read ones; one with 2,000 observations takes about 5 MB."""


class Library:
    """Of one box. A bundle is read again when a file of it was written again."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self._read: dict[BundleAt, Bundle] = {}

    def run(self, operation: str) -> RunFiles:
        """What lies there of an operation's gates; a bundle that cannot be read is named in `broken`."""
        bundles: list[Bundle] = []
        broken: dict[str, str] = {}
        for at in self._of(operation):
            try:
                bundles.append(self._bundle(at))
            except (AnvilError, OSError) as why:
                broken[at.id] = str(why)
        if bundles:
            return RunFiles(operation, tuple(bundles), broken)
        try:
            so_far, error = kept_results(self._box.operations, operation), ""
        except AnvilError as why:
            so_far, error = (), str(why)
        return RunFiles(operation, (), broken, so_far, self._suite(operation), error)

    def compare(self, arms: Mapping[str, str]) -> Compared:
        """Arm B against arm A, each the bundles (by id) that are mapped to its letter; each is checked first."""
        store = self._store()
        a, b = (arm_of(store, ",".join(i for i, arm in arms.items() if arm == name), name) for name in "AB")
        found = compare(a, b, recipes=known_recipes(self._box))
        return Compared(found, rows_compared([found], [a, b]))

    def verify(self, names: Iterable[str]) -> dict[str, Verified]:
        store = self._store()
        at = self._box.clock.utc().isoformat(timespec="seconds")
        return {name: Verified(at, check_bundle(store, store.find(name))) for name in names}

    def _store(self) -> BundleStore:
        if self._box.bundles is None:
            raise NotFound("this box keeps no bundles")
        return self._box.bundles

    def _of(self, operation: str) -> list[BundleAt]:
        known = self._box.bundles.all() if self._box.bundles else ()
        return [at for at in known if at.complete and at.id.split("/")[0] == operation]

    def _bundle(self, at: BundleAt) -> Bundle:
        found = self._read.pop(at, None) or read_bundle(self._store(), at)
        self._read[at] = found
        for old in list(self._read)[:-KEPT_BUNDLES]:
            del self._read[old]
        return found

    def _suite(self, operation: str) -> Mapping[str, Any]:
        """The suite that the operation's plan names, as its file says now; {} where that cannot be told."""
        steps = self._box.operations.plan(operation).get("steps", ())
        names = [s["args"]["suite"] for s in steps if "suite" in s.get("args", {})]
        known = {s.suite.id: s.suite for s in self._box.suites() if s.suite}
        suite = known.get(names[-1]) if names else None
        return suite.model_dump(mode="json", by_alias=True) if suite else {}
