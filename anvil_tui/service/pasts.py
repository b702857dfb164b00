"""Earlier qualifications, read from their bundles once each, and again when a file of one was written again."""

from __future__ import annotations

from collections.abc import Mapping

from anvil_tui.core.bundle import suite_digest
from anvil_tui.core.errors import AnvilError
from anvil_tui.core.gates import SuiteFile
from anvil_tui.core.holding import Past, past_of
from anvil_tui.core.present import holdings, proven
from anvil_tui.core.world import World
from anvil_tui.ports.operations import BundleAt, BundleStore
from anvil_tui.service.bundles import read_bundle


class Pasts:
    """`broken` says, by id, why a bundle cannot be used; it is then nobody's qualification."""

    def __init__(self, bundles: BundleStore) -> None:
        self._bundles = bundles
        self._read: dict[BundleAt, Past | str] = {}
        self.broken: dict[str, str] = {}

    def all(self) -> tuple[Past, ...]:
        known = {at: self._read[at] if at in self._read else self._one(at) for at in self._bundles.all()}
        self._read = known
        self.broken = {at.id: told for at, told in known.items() if isinstance(told, str)}
        return tuple(told for told in known.values() if isinstance(told, Past))

    def _one(self, at: BundleAt) -> Past | str:
        if not at.complete:
            return "partial: its manifest was never written"
        try:
            return past_of(read_bundle(self._bundles, at))
        except (AnvilError, OSError) as why:
            return str(why)

    def fields(self, world: World, suites: tuple[SuiteFile, ...]) -> Mapping[str, object]:
        """What the world keeps of them."""
        pasts = self.all()
        return {
            "qualified": holdings(world, pasts, digests(suites)), "proven": proven(world, pasts), "pasts": pasts,
            "broken_bundles": dict(self.broken),
        }  # fmt: skip


def digests(suites: tuple[SuiteFile, ...]) -> dict[str, str]:
    return {s.suite.id: suite_digest(s.suite) for s in suites if s.suite}
