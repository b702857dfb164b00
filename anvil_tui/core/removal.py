"""The plan of `remove`: one exact image, or one exact revision of a model cache, to which nothing refers. Pure."""

from __future__ import annotations

import re

from anvil_tui.core.draft import Draft
from anvil_tui.core.errors import NotFound, Refused
from anvil_tui.core.facts import Facts
from anvil_tui.core.storage import Ground, Revision, Stored, StoredImage, image_holders, revision_holders

_MIB = 1024 * 1024
REMOVE_S = 600


def plan_remove(d: Draft) -> None:
    """Forward only: after the decision there is no way back but to pull or download it again."""
    stored = d.facts.disks or Stored()
    found = find(d.intent.target, stored)
    ground = ground_of(d.facts)
    if isinstance(found, Revision):
        _remove_revision(d, found, ground)
    else:
        _remove_image(d, found, ground)
    d.interrupts, d.outage = "nothing: it goes only while nothing refers to it", "none"
    d.on_failure = "before the decision nothing is touched; after it, what is left is said"


def ground_of(facts: Facts) -> Ground:
    disks = facts.disks or Stored()
    return Ground(
        facts.record, facts.recipes, facts.recipe_errors, facts.stored, facts.containers, disks.sources,
        disks.images or (),
    )  # fmt: skip


def find(target: str, stored: Stored) -> StoredImage | Revision:
    """By an image's full id or a name with its digest; by REPO@REVISION or a snapshot's path. Never by a tag."""
    tagged = next((i for i in stored.images or () if target in i.tags), None)
    if tagged:
        raise Refused(f"{target} is a tag, which may mean another image tomorrow: remove {tagged.id}")
    images = [i for i in stored.images or () if target == i.id or target in i.pins]
    revisions = [r for r in stored.revisions or () if target in (r.name, r.path)]
    if images and not revisions:
        return images[0]
    if len(revisions) == 1:
        return revisions[0]
    if len(revisions) > 1:
        raise Refused(f"{target} lies in several caches, name one by path: {', '.join(r.path for r in revisions)}")
    why = f" ({'; '.join(stored.why)})" if stored.why else ""
    hint = "give all 64 digits of an id" if re.fullmatch(r"(sha256:)?[0-9a-f]{6,63}", target) else "see `storage`"
    raise NotFound(f"nothing stored is named {target!r}{why}: {hint}")


def _remove_image(d: Draft, image: StoredImage, ground: Ground) -> None:
    target = d.intent.target
    others = [n for n in image.names if n != target]
    only_name = target in image.pins and any(_repository(n) != _repository(target) for n in others)
    d.rests_on["image"] = {"id": image.id, "names": sorted(image.names), "bytes": image.bytes}
    for holder in image_holders(image, ground):
        d.refuse(f"{_short(image)} is needed by {holder}")
    args = {"image": image.id, "names": [target] if only_name else sorted(image.names), "untag": only_name}
    if only_name:
        d.title = f"remove the name {target}; the image {_short(image)} stays under {len(others)} others"
        d.rollback = "the name comes back with `docker pull`; nothing is freed"
    else:
        d.title = f"remove image {_short(image)}, {_size(image.bytes)} with shared layers"
        d.rollback = (
            f"none: afterwards only a new pull of {', '.join(image.pins) or 'nothing known'} brings it back"
        )
    d.step("size-before", "image-bytes", "measure what images take", 120)
    d.step("prove", "image-unreferred", "prove again that nothing refers to it", 60, **args)
    d.decide("nothing refers to it")
    d.step("remove", "remove-image", "prove it once more, and remove exactly it", REMOVE_S, **args)
    d.step("size-after", "image-bytes", "measure what images take now", 120)
    d.confirm_word = image.id[7:19]


def _repository(name: str) -> str:
    repository = name.partition("@")[0]
    head, _, tail = repository.rpartition(":")
    return head if head and "/" not in tail else repository


def _remove_revision(d: Draft, found: Revision, ground: Ground) -> None:
    d.title = f"remove {found.name} from {found.path.partition('/models--')[0]}, frees {_size(found.own_bytes)}"
    d.rests_on["revision"] = {
        "path": found.path, "revision": found.revision, "bytes": found.bytes, "own_bytes": found.own_bytes,
        "files": found.files, "refs": list(found.refs),
    }  # fmt: skip
    for holder in revision_holders(found, ground):
        d.refuse(f"{found.name} is needed by {holder}")
    if not found.all_seen:
        d.warnings.append(
            "processes of other users could not be looked at: one of them may have a file of it open; it would "
            "keep that file until it closes it"
        )
    args = {"path": found.path}
    d.step("size-before", "cache-bytes", "measure what the repository takes", 120, **args)
    d.step("prove", "revision-unreferred", "prove again that nothing refers to it", 60, **args)
    d.decide("nothing refers to it")
    d.step("remove", "remove-revision",
           "prove it once more, and remove its snapshot and the blobs of no other revision",
           REMOVE_S, **args)  # fmt: skip
    d.step("size-after", "cache-bytes", "measure what the repository takes now", 120, **args)
    d.rollback = f"none: afterwards only a new download of {found.name} brings it back"
    d.confirm_word = found.revision[:12]


def _short(image: StoredImage) -> str:
    name = next(iter(image.names), "")
    return f"{image.id[:19]} ({name.partition('@')[0]})" if name else image.id[:19]


def _size(number: int | None) -> str:
    return "n/a" if number is None else f"{number / _MIB:,.1f} MiB"
