"""What lies on the disks of the box: images, revisions of model caches; and who refers to each. Pure.

Nothing is removed to which anything refers, least of all a way back. What cannot be read may refer to anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from anvil_tui.core.box import Container
from anvil_tui.core.recipe import Recipe, Weights
from anvil_tui.core.world import OPERATION_LABEL, BoxRecord, ServeRecord


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image of the daemon by its full id. `pins` are NAME@sha256:…, `tags` NAME:TAG; `bytes` counts layers that
    other images share as well. `parent` is the id of the image that it was made from here, "" = of none."""

    id: str
    pins: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    bytes: int | None = None
    parent: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.pins, *self.tags)


@dataclass(frozen=True, slots=True)
class Revision:
    """One revision in a Hugging Face cache. `path` is its snapshot folder.

    `bytes` counts each blob once; `own_bytes` those that no other revision and no other link refers to, which is
    what a removal frees. `refs` are names such as `main` that mean it. `flaws` say what of it is not whole;
    `against` why it may not be touched; `users` are processes that have a file of it open or mapped; not
    `all_seen` = some processes could not be looked at.
    """

    path: str
    repo: str
    revision: str
    bytes: int
    own_bytes: int
    files: int
    refs: tuple[str, ...] = ()
    flaws: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    users: tuple[int, ...] = ()
    all_seen: bool = True

    @property
    def name(self) -> str:
        return f"{self.repo}@{self.revision}"


@dataclass(frozen=True, slots=True)
class Stored:
    """All of it. None = could not be read, `why` says. `sources` are paths of the host that recipes and containers
    name (mount sources, weights), with the real path of each."""

    images: tuple[StoredImage, ...] | None = None
    revisions: tuple[Revision, ...] | None = None
    image_bytes: int | None = None
    why: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ground:
    """Everything that may refer to a stored thing. `recipes` are those of the workspace, by id; `bad` the files of
    which that is not known; `exact` the recipes, by digest, that made recorded serves."""

    record: BoxRecord
    recipes: Mapping[str, Recipe]
    bad: Mapping[str, str]
    exact: Mapping[str, Recipe]
    containers: Mapping[str, Container]
    sources: Mapping[str, str]
    images: tuple[StoredImage, ...] = ()

    def serves(self) -> Iterator[tuple[ServeRecord, Recipe | None, str]]:
        """Each recorded serve with its exact recipe, and its place in words."""
        for serve in self.record.serves.values():
            exact = self.exact.get(serve.recipe_digest)
            now = self.recipes.get(serve.recipe_id)
            exact = exact or (now if now and now.digest() == serve.recipe_digest else None)
            yield serve, exact, f"{self._place(serve)} {serve.recipe_id} ({serve.container_id[:12]})"

    def _place(self, serve: ServeRecord) -> str:
        for name, held in self.record.roles.items():
            if held.incumbent == serve.container_id:
                return f"the incumbent of {name},"
            if serve.container_id in held.rollback:
                return f"rollback {held.rollback.index(serve.container_id) + 1} of {name},"
        return "the recorded serve"

    def unread(self) -> Iterator[str]:
        for path in self.bad:
            yield f"recipe {path} cannot be read, so what it refers to is not known"


def image_holders(image: StoredImage, ground: Ground) -> list[str]:
    """Who refers to an image, in words; empty = nobody."""
    found = [f"{place}" for serve, recipe, place in ground.serves()
             if serve.image_id == image.id or (recipe and _is(recipe.image.ref, image))]  # fmt: skip
    found += [f"recipe {r.id}" for r in ground.recipes.values() if _is(r.image.ref, image)]
    found += [
        f"container {c.name} ({c.id[:12]}, {c.status})"
        for c in ground.containers.values()
        if c.image_id == image.id or _is(c.image_ref, image)
    ]
    found += [
        f"image {i.id[:19]} ({', '.join(i.names) or 'no name'}), made from it"
        for i in ground.images
        if i.parent == image.id
    ]
    return [*found, *ground.unread()]


def _is(ref: str, image: StoredImage) -> bool:
    """Whether a reference means this image: by a digest, whatever the name before it, by a tag, or by its id."""
    digests = {image.id, *(pin.partition("@")[2] for pin in image.pins)}
    return bool(ref) and (ref in image.tags or ref.partition("@")[2] in digests or ref == image.id)


def revision_holders(found: Revision, ground: Ground) -> list[str]:
    """Who refers to a revision of a cache, in words; empty = nobody."""
    holders = list(found.against)
    for _, recipe, place in ground.serves():
        if recipe is None:
            holders.append(f"{place}, whose exact recipe is not known")
        elif _needs(recipe, found, ground.sources):
            holders.append(place)
    holders += [f"recipe {r.id}" for r in ground.recipes.values() if _needs(r, found, ground.sources)]
    for c in ground.containers.values():
        who = f"container {c.name} ({c.id[:12]}, {c.status}), on no record,"
        if c.id in ground.record.serves:
            continue
        if c.status == "unknown":
            holders.append(f"{who} of which it is not known what it mounts: {c.error}")
        paths = {source: ground.sources.get(source, source) for source, _, _ in c.mounts}
        holders += [
            f"{who} which mounts {source}"
            for source, path in paths.items()
            if _covers(path, found.path) or _inside(path, found)
        ]
    holders += [f"process {pid}, which has a file of it open" for pid in found.users]
    return [*holders, *ground.unread()]


def _needs(recipe: Recipe, found: Revision, sources: Mapping[str, str]) -> bool:
    mounted = (sources.get(mount.source, mount.source) for mount in recipe.launch.mounts)
    seen = (sources.get(path, path) for path in weights_paths(recipe, sources))
    return (
        any(_named(w, found) for w in _weights(recipe))
        or any(_covers(found.path, source) for source in mounted)
        or any(_inside(path, found) for path in seen)
    )


def _weights(recipe: Recipe) -> tuple[Weights, ...]:
    draft = recipe.speculation.draft if recipe.speculation else None
    return (recipe.model, draft) if draft else (recipe.model,)


def _named(weights: Weights, found: Revision) -> bool:
    """By repository and revision; what is no whole revision (none, a branch, a tag, a prefix) may mean any."""
    if weights.repo.lower() != found.repo.lower():
        return False
    exact = re.fullmatch(r"[0-9a-f]{40}", weights.revision)
    return found.revision == weights.revision if exact else True


def weights_paths(recipe: Recipe, sources: Mapping[str, str]) -> Iterator[str]:
    """Weights as the host sees them: what the engine is given, taken back through the recipe's mounts."""
    for path in (w.path for w in _weights(recipe)):
        for mount in recipe.launch.mounts:
            target = mount.target.rstrip("/")
            if path == mount.target or path.startswith(target + "/"):
                yield sources.get(mount.source, mount.source).rstrip("/") + path[len(target) :]


def _inside(path: str, found: Revision) -> bool:
    """Whether a path is of this revision: in its snapshot, or in its repository and in no other snapshot."""
    snapshots, _, _ = found.path.rpartition("/")
    repository, _, _ = snapshots.rpartition("/")
    return _covers(found.path, path) or (_covers(repository, path) and not path.startswith(snapshots + "/"))


def _covers(folder: str, path: str) -> bool:
    folder, path = folder.rstrip("/"), path.rstrip("/")
    return bool(folder) and (path == folder or path.startswith(folder + "/"))


def unreferred(ground: Ground) -> list[Container]:
    """Stopped containers of ours that no role and no way back means: `unload` removes those on record."""
    kept = {i for held in ground.record.roles.values() for i in (held.incumbent, *held.rollback)}
    return [
        c for c in ground.containers.values() if OPERATION_LABEL in c.labels and not c.running and c.id not in kept
    ]


def storage_json(stored: Stored, ground: Ground) -> dict[str, Any]:
    """JSON-able: every stored thing with who refers to it. null = could not be read."""
    images, revisions = stored.images, stored.revisions
    return {
        "image_bytes": stored.image_bytes,
        "images": None if images is None else [
            {"id": i.id, "pins": i.pins, "tags": i.tags, "bytes": i.bytes, "held_by": image_holders(i, ground)}
            for i in images
        ],
        "revisions": None if revisions is None else [
            {"name": r.name, "path": r.path, "bytes": r.bytes, "own_bytes": r.own_bytes, "files": r.files,
             "refs": r.refs, "flaws": r.flaws, "held_by": revision_holders(r, ground)}
            for r in revisions
        ],
        "containers": [{"id": c.id, "name": c.name, "status": c.status} for c in unreferred(ground)],
        "why": list(stored.why),
    }  # fmt: skip
