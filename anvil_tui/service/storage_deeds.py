"""What the steps of `remove` do: measure, prove once more, remove exactly that, measure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anvil_tui.core.errors import EffectFailed, NotFound
from anvil_tui.core.plan import Step
from anvil_tui.core.storage import Revision, StoredImage, image_holders, revision_holders
from anvil_tui.ports.storage import CacheReader
from anvil_tui.service.deeds import Deed, Seen
from anvil_tui.service.run import Run
from anvil_tui.service.storage import ELSEWHERE, survey


def image_bytes(run: Run, step: Step) -> Seen:
    """By the daemon's own count of layers; null where it does not say."""
    return {"bytes": run.box.images.disk_bytes()}


def _image(run: Run, args: Mapping[str, Any]) -> StoredImage | None:
    return next((i for i in run.box.images.images() if i.id == args["image"]), None)


def image_gone(run: Run, step: Step) -> Seen | None:
    found = _image(run, step.args)
    if found is None:
        return {"image": "absent", "names": []}
    if step.args["untag"] and not set(found.names) & set(step.args["names"]):
        return {"image": found.id, "names": list(found.names)}
    return None


def image_unreferred(run: Run, step: Step) -> Seen | None:
    found, holders = _image_held(run, step.args)
    return None if holders else {"image": found.id if found else "absent", "referred_by": []}


def image_referred(run: Run, step: Step) -> None:
    _nobody(_image_held(run, step.args)[1], f"image {step.args['image'][:19]}")


def _image_held(run: Run, args: Mapping[str, Any]) -> tuple[StoredImage | None, list[str]]:
    stored, ground = survey(run.box)
    if stored.images is None:
        raise EffectFailed(f"images cannot be read: {'; '.join(stored.why)}")
    found = next((i for i in stored.images if i.id == args["image"]), None)
    return found, image_holders(found, ground) if found else []


def remove_image(run: Run, step: Step) -> None:
    found, holders = _image_held(run, step.args)
    _nobody(holders, f"image {step.args['image'][:19]}")
    if found is None:
        return
    if not step.args["untag"] and (new := set(found.names) - set(step.args["names"])):
        raise EffectFailed(f"image {found.id[:19]} was given {', '.join(sorted(new))} meanwhile: plan again")
    run.controls.images.remove(found.id, step.args["names"])


def cache_bytes(run: Run, step: Step) -> Seen:
    return {"bytes": _caches(run).repository_bytes(step.args["path"])}


def revision_gone(run: Run, step: Step) -> Seen | None:
    """Neither the snapshot nor what an interrupted removal leaves of it."""
    there = [r for r in _caches(run).revisions([step.args["path"]]) if r.path == step.args["path"]]
    return None if there else {"snapshot": "absent"}


def revision_unreferred(run: Run, step: Step) -> Seen | None:
    found, holders = _revision_held(run, step.args)
    return None if holders else {"revision": found.name, "referred_by": [], "all_processes_seen": found.all_seen}


def revision_referred(run: Run, step: Step) -> None:
    found, holders = _revision_held(run, step.args)
    _nobody(holders, found.name)


def _revision_held(run: Run, args: Mapping[str, Any]) -> tuple[Revision, list[str]]:
    stored, ground = survey(run.box)
    found = next((r for r in stored.revisions or () if r.path == args["path"]), None)
    if found is None:
        raise NotFound(f"{args['path']} cannot be found any more{'; '.join(('', *stored.why))}")
    return found, revision_holders(found, ground)


def remove_revision(run: Run, step: Step) -> None:
    found, holders = _revision_held(run, step.args)
    _nobody(holders, found.name)
    if run.controls.caches is None:
        raise EffectFailed(ELSEWHERE)
    run.controls.caches.remove(found.path)


def _nobody(holders: list[str], name: str) -> None:
    if holders:
        raise EffectFailed(f"{name} is needed now by {'; '.join(holders)}: nothing was removed")


def _caches(run: Run) -> CacheReader:
    if run.box.caches is None:
        raise EffectFailed(ELSEWHERE)
    return run.box.caches


def nothing(run: Run, step: Step) -> None:
    """Measuring is all."""


STORAGE_DEEDS: dict[str, Deed] = {
    "image-bytes": Deed(image_bytes, nothing),
    "image-unreferred": Deed(image_unreferred, image_referred),
    "remove-image": Deed(image_gone, remove_image),
    "cache-bytes": Deed(cache_bytes, nothing),
    "revision-unreferred": Deed(revision_unreferred, revision_referred),
    "remove-revision": Deed(revision_gone, remove_revision),
}
