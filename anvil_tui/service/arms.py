"""Bundles for a comparison: found, proven whole, and put into arms."""

from __future__ import annotations

from anvil_tui.core.bundle import Bundle, bundle_from
from anvil_tui.core.errors import BadFile
from anvil_tui.core.matching import Arm
from anvil_tui.core.verify import REPORTS, check
from anvil_tui.ports.operations import BundleStore


def read_bundle(store: BundleStore, name: str) -> Bundle:
    """One bundle by id, operation or path. BadFile when it is partial or is not what was sealed."""
    at = store.find(name)
    files = {n: d for n, d in store.read(at).items() if n.removeprefix(at.prefix) not in REPORTS}
    anchors = store.anchors(at)
    anchor = None if anchors is None else anchors.get(f"{at.prefix}manifest.json", "")
    checked = check(files, at.prefix, anchor)
    if checked.problems:
        raise BadFile(at.folder, f"{at.id} cannot be compared: {'; '.join(checked.problems)}")
    texts = {n: data.decode() for n, data in files.items() if n.endswith(("json", "ndjson"))}
    return bundle_from(texts, at.id, at.folder)


def arm_of(store: BundleStore, names: str, name: str) -> Arm:
    """The arm in a list of bundles with commas between, its runs in the order of time."""
    runs = [read_bundle(store, one.strip()) for one in names.split(",") if one.strip()]
    if not runs:
        raise BadFile(f"arm {name}", f"{names!r} names no bundle")
    twice = {r.id for r in runs if [x.id for x in runs].count(r.id) > 1}
    if twice:
        raise BadFile(f"arm {name}", f"{min(twice)} is named twice: one run is not two")
    return Arm(name, tuple(sorted(runs, key=lambda run: run.at)))
