"""What lies on the disks of the box, read for `storage` and for the plan of `remove`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from anvil_tui.core.errors import AnvilError
from anvil_tui.core.facts import Facts
from anvil_tui.core.plan import Intent
from anvil_tui.core.storage import Stored
from anvil_tui.service.box import Box

T = TypeVar("T")
ELSEWHERE = "the box is another machine: its model caches cannot be looked at from here"


def with_disks(box: Box, intent: Intent, facts: Facts) -> Facts:
    return replace(facts, disks=stored(box, facts))


def stored(box: Box, facts: Facts) -> Stored:
    """Images and model caches; what cannot be read is None, with the reason."""
    why: list[str] = []

    def ask(call: Callable[[], T]) -> T | None:
        try:
            return call()
        except AnvilError as error:
            why.append(str(error))
            return None

    sources = mount_sources(box, facts)
    caches, folders = box.caches, (*own_caches(box), *sources.values())
    if caches is None:
        why.append(ELSEWHERE)
    revisions = ask(lambda: caches.revisions(folders)) if caches else None
    return Stored(ask(box.images.images), revisions, ask(box.images.disk_bytes), tuple(why), sources)


def own_caches(box: Box) -> list[str]:
    """`storage.caches` of anvil.toml, as absolute paths."""
    return [
        box.mount_source(folder if "/" in folder else f"./{folder}") for folder in box.workspace.storage.caches
    ]


def mount_sources(box: Box, facts: Facts) -> dict[str, str]:
    """Folders that recipes mount, of the workspace and of recorded serves; named volumes stay names."""
    recipes = (*facts.recipes.values(), *facts.stored.values())
    return {m.source: box.mount_source(m.source) for r in recipes for m in r.launch.mounts}
