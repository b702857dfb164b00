"""What the steps of `remove` do: measure, prove once more, remove exactly that, measure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anvil_tui.core.errors import EffectFailed, NotFound
from anvil_tui.core.plan import Step
from anvil_tui.core.removal import ground_of
from anvil_tui.core.storage import StoredImage, image_holders, revision_holders
from anvil_tui.service.deeds import Deed, Seen
from anvil_tui.service.planning import gather
from anvil_tui.service.run import Run
from anvil_tui.service.storage import with_disks


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


def remove_image(run: Run, step: Step) -> None:
    facts = with_disks(run.box, run.plan.intent, gather(run.box, ignore=run.operation))
    found = _image(run, step.args)
    if found is None:
        return
    _nobody(image_holders(found, ground_of(facts)), f"image {found.id[:19]}")
    if not step.args["untag"] and (new := set(found.names) - set(step.args["names"])):
        raise EffectFailed(f"image {found.id[:19]} was given {', '.join(sorted(new))} meanwhile: plan again")
    run.controls.images.remove(found.id, step.args["names"])


def cache_bytes(run: Run, step: Step) -> Seen:
    return {"bytes": _caches(run).repository_bytes(step.args["path"])}


def revision_gone(run: Run, step: Step) -> Seen | None:
    """Neither the snapshot nor what an interrupted removal leaves of it."""
    there = [r for r in _caches(run).revisions([step.args["path"]]) if r.path == step.args["path"]]
    return None if there else {"snapshot": "absent"}


def remove_revision(run: Run, step: Step) -> None:
    facts = with_disks(run.box, run.plan.intent, gather(run.box, ignore=run.operation))
    seen = (facts.disks.revisions if facts.disks else None) or ()
    found = next((r for r in seen if r.path == step.args["path"]), None)
    if found is None:
        raise NotFound(f"{step.args['path']} cannot be found any more")
    _nobody(revision_holders(found, ground_of(facts)), found.name)
    if run.controls.caches is None:
        raise EffectFailed("the model caches of this box cannot be reached from here")
    run.controls.caches.remove(found.path)


def _nobody(holders: list[str], name: str) -> None:
    if holders:
        raise EffectFailed(f"{name} is needed now by {'; '.join(holders)}: nothing was removed")


def _caches(run: Run) -> Any:
    if run.box.caches is None:
        raise EffectFailed("the model caches of this box cannot be reached from here")
    return run.box.caches


def nothing(run: Run, step: Step) -> None:
    """Measuring is all."""


STORAGE_DEEDS: dict[str, Deed] = {
    "image-bytes": Deed(image_bytes, nothing),
    "remove-image": Deed(image_gone, remove_image),
    "cache-bytes": Deed(cache_bytes, nothing),
    "remove-revision": Deed(revision_gone, remove_revision),
}
