"""Earlier qualifications, read from their bundles once each: a bundle never changes."""

from __future__ import annotations

from collections.abc import Mapping

from anvil_tui.core.errors import AnvilError
from anvil_tui.core.gates import SuiteFile
from anvil_tui.core.holding import Past, past_of
from anvil_tui.core.present import holdings, proven
from anvil_tui.core.world import World
from anvil_tui.ports.operations import BundleStore
from anvil_tui.service.evidence import read_bundle, suite_digest


class Pasts:
    """`broken` says, by id, why a bundle cannot be used; it is then nobody's qualification."""

    def __init__(self, bundles: BundleStore) -> None:
        self._bundles = bundles
        self._read: dict[tuple[str, str], Past] = {}
        self.broken: dict[str, str] = {}

    def all(self) -> tuple[Past, ...]:
        found: list[Past] = []
        broken: dict[str, str] = {}
        for at in self._bundles.all():
            key = (at.folder, at.prefix)
            if key not in self._read and at.complete:
                try:
                    self._read[key] = past_of(read_bundle(self._bundles, at))
                except AnvilError as why:
                    broken[at.id] = str(why)
            if key in self._read:
                found.append(self._read[key])
        self.broken = broken
        return tuple(found)

    def fields(self, world: World, suites: tuple[SuiteFile, ...]) -> Mapping[str, object]:
        """What the world keeps of them: `qualified` and `proven`."""
        pasts = self.all()
        return {"qualified": holdings(world, pasts, digests(suites)), "proven": proven(world, pasts)}


def digests(suites: tuple[SuiteFile, ...]) -> dict[str, str]:
    return {s.suite.id: suite_digest(s.suite) for s in suites if s.suite}
