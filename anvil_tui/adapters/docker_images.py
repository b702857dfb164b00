"""Images of one daemon: what is there, and the exact removal of one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import docker.errors

from anvil_tui.adapters.docker_link import DockerLink, as_object
from anvil_tui.core.errors import EffectFailed, NotFound
from anvil_tui.core.storage import StoredImage

_DF_S = 60.0  # the daemon walks its layers
_NONE = ("<none>:<none>", "<none>@<none>")


class DockerImages:
    """Reads and removes. Removal is never forced: the daemon, too, refuses an image that a container uses."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self._link, self._slow = DockerLink(url, timeout_s), DockerLink(url, max(timeout_s, _DF_S))

    def images(self) -> tuple[StoredImage, ...]:
        with self._link.asking("list images"):
            rows = [as_object(row) for row in self._link.api().images(all=True)]
        return tuple(_image(row) for row in rows)

    def disk_bytes(self) -> int | None:
        with self._slow.asking("disk usage"):
            said = as_object(self._slow.api().df())
        found = said.get("LayersSize")
        if found is None and isinstance(usage := said.get("ImageUsage"), dict):
            found = usage.get("TotalSize")
        return found if isinstance(found, int) and found >= 0 else None

    def remove(self, image_id: str, names: Iterable[str]) -> None:
        wanted = list(names)
        for name in wanted:
            if self._id_of(name) not in (None, image_id):
                raise EffectFailed(
                    f"{self._link.endpoint}: {name} means another image by now; nothing was removed"
                )
        for name in wanted:
            if self._id_of(name) == image_id:
                self._delete(name)
        if not wanted:
            self._delete(image_id)
        left = next((i for i in self.images() if i.id == image_id), None)
        if left and set(left.names) <= set(wanted):
            self._delete(image_id)

    def _id_of(self, name: str) -> str | None:
        with self._link.asking(f"image {name}"):
            try:
                return str(self._link.image(name).get("Id"))
            except docker.errors.NotFound:
                return None

    def _delete(self, name: str) -> None:
        try:
            with self._slow.asking(f"remove image {name}", failure="effect"):
                self._slow.api().remove_image(name, force=False, noprune=True)
        except NotFound:
            return

    def close(self) -> None:
        self._link.close()
        self._slow.close()


def _image(row: dict[str, Any]) -> StoredImage:
    def names(key: str) -> tuple[str, ...]:
        return tuple(sorted(n for n in row.get(key) or () if n not in _NONE))

    size = row.get("Size")
    return StoredImage(
        str(row.get("Id")), names("RepoDigests"), names("RepoTags"), size if size != -1 else None,
        str(row.get("ParentId") or ""),
    )  # fmt: skip
