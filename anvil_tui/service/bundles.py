"""Bundles that are there, read. What checks them and reports of them is in `service/evidence.py`."""

from __future__ import annotations

from anvil_tui.core.bundle import REPORTS, Bundle, bundle_from
from anvil_tui.core.errors import BadFile
from anvil_tui.ports.operations import BundleAt, BundleStore


def read_bundle(store: BundleStore, at: BundleAt, *, seen: bool = True) -> Bundle:
    """BadFile names the file and the key of a bundle that cannot be read. `seen` False: without observations."""
    return bundle_from(bundle_texts(store, at), at.id, at.folder, seen=seen)


def bundle_texts(store: BundleStore, at: BundleAt) -> dict[str, str]:
    """The bundle's own files, without reports that lie beside it."""
    reports = {at.prefix + name for name in REPORTS}
    texts = dict[str, str]()
    for name, data in store.read(at).items():
        try:
            texts |= {} if name in reports else {name: data.decode()}
        except UnicodeDecodeError as why:
            raise BadFile(f"{at.folder}/{name}", f"is not UTF-8 at byte {why.start}") from None
    return texts
