"""What lies on the disks of the box, read and removed one exact thing at a time. Nothing here prunes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from anvil_tui.core.storage import Revision, StoredImage


class ImageReader(Protocol):
    def images(self) -> tuple[StoredImage, ...]: ...
    def disk_bytes(self) -> int | None:
        """What all layers take by the daemon's own count, shared ones once; None = it does not say."""


class ImageControl(ImageReader, Protocol):
    def remove(self, image_id: str, names: Iterable[str]) -> None:
        """Take these names off one image; with its last name it is removed. Never forced, no parent goes with it.

        Absent is success. EffectFailed when anything uses it, or a name means another image by now.
        """


class CacheReader(Protocol):
    def revisions(self, folders: Iterable[str]) -> tuple[Revision, ...]:
        """Every revision of every repository in these caches; a folder that is none gives nothing.

        Unreachable when one cannot be read."""

    def real(self, path: str) -> str:
        """The path with its links followed, up to a file's place in a snapshot: its blob is shared."""

    def repository_bytes(self, snapshot: str) -> int:
        """What the repository of a snapshot takes on the disk, each file once."""


class CacheControl(CacheReader, Protocol):
    def remove(self, snapshot: str) -> None:
        """Remove one revision with the blobs and names of no other one. A repeated call finishes an interrupted
        one. EffectFailed when something of it leads outside its repository, or is still downloading."""
