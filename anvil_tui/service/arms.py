"""Bundles for a comparison: found, proven whole, and put into arms."""

from __future__ import annotations

from anvil_tui.core.bundle import MANIFEST, REPORTS, Bundle
from anvil_tui.core.errors import BadFile
from anvil_tui.core.matching import Arm
from anvil_tui.core.verify import check
from anvil_tui.ports.operations import BundleStore
from anvil_tui.service.bundles import read_bundle


def sound_bundle(store: BundleStore, name: str) -> Bundle:
    """One bundle by id, operation or path. BadFile when it is partial or is not what was sealed."""
    at = store.find(name)
    files = {n: data for n, data in store.read(at).items() if n.removeprefix(at.prefix) not in REPORTS}
    anchors = store.anchors(at)
    checked = check(files, at.prefix, None if anchors is None else anchors.get(at.prefix + MANIFEST, ""))
    if checked.problems:
        raise BadFile(at.folder, f"{at.id} cannot be compared: {'; '.join(checked.problems)}")
    return read_bundle(store, at)


def arm_of(store: BundleStore, names: str, name: str) -> Arm:
    """The arm in a list of bundles with commas between, its runs in the order of time."""
    runs = [sound_bundle(store, one.strip()) for one in names.split(",") if one.strip()]
    if not runs:
        raise BadFile(f"arm {name}", f"{names!r} names no bundle")
    twice = {r.id for r in runs if [x.id for x in runs].count(r.id) > 1}
    if twice:
        raise BadFile(f"arm {name}", f"{min(twice)} is named twice: one run is not two")
    return Arm(name, tuple(sorted(runs, key=lambda run: run.at)))
