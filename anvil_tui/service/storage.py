"""What lies on the disks of the box, read for `storage` and for the plan of `remove`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import TypeVar

from anvil_tui.core.box import Container
from anvil_tui.core.errors import AnvilError
from anvil_tui.core.facts import Facts
from anvil_tui.core.plan import Intent
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.storage import Ground, Stored, weights_paths
from anvil_tui.service.box import Box

T = TypeVar("T")
ELSEWHERE = "the box is another machine: its model caches cannot be looked at from here"


def with_disks(box: Box, intent: Intent, facts: Facts) -> Facts:
    recipes = (*facts.recipes.values(), *facts.stored.values())
    return replace(facts, disks=stored(box, recipes, facts.containers.values()))


def survey(box: Box) -> tuple[Stored, Ground]:
    """Everything stored, and everything that may refer to it. Asks neither gateway nor engines nor GPUs."""
    files, exact = box.recipes(), box.store.kept_recipes()
    recipes = {f.recipe.id: f.recipe for f in files if f.recipe}
    containers = {c.id: c for c in box.containers.list()}
    found = stored(box, (*recipes.values(), *exact.values()), containers.values())
    return found, Ground(
        box.store.read(), recipes, {f.path: f.error for f in files if not f.recipe}, exact,
        containers, found.sources, found.images or (),
    )  # fmt: skip


def stored(box: Box, recipes: Collection[Recipe], containers: Iterable[Container]) -> Stored:
    """Images and model caches; what cannot be read is None, with the reason."""
    why: list[str] = []

    def ask(call: Callable[[], T]) -> T | None:
        try:
            return call()
        except AnvilError as error:
            why.append(str(error))
            return None

    caches = box.caches
    theirs = {source: source for c in containers for source, _, _ in c.mounts}
    ours = {m.source: box.mount_source(m.source) for r in recipes for m in r.launch.mounts}
    folders = (*own_caches(box), *ours.values())
    sources = {s: caches.real(p) if caches and p.startswith("/") else p for s, p in (theirs | ours).items()}
    if caches is None:
        why.append(ELSEWHERE)
    else:
        sources |= {p: caches.real(p) for r in recipes for p in tuple(weights_paths(r, sources))}
    revisions = ask(lambda: caches.revisions(folders)) if caches else None
    return Stored(ask(box.images.images), revisions, ask(box.images.disk_bytes), tuple(why), sources)


def own_caches(box: Box) -> list[str]:
    """`storage.caches` of anvil.toml, as absolute paths."""
    return [
        box.mount_source(folder if "/" in folder else f"./{folder}") for folder in box.workspace.storage.caches
    ]
