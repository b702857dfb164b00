"""Files of a container, as the daemon streams them: hashed on the way, never kept."""

from __future__ import annotations

import hashlib
import io
import tarfile
import time
from collections.abc import Iterator

from anvil_tui.adapters import docker_shape as shape
from anvil_tui.adapters.docker_link import DockerLink
from anvil_tui.core.errors import EffectFailed, NotFound

_CHUNK = 1024 * 1024


class _Stream(io.RawIOBase):
    """The daemon's tar as a file object with one deadline."""

    def __init__(self, chunks: Iterator[bytes], what: str, timeout_s: float) -> None:
        self._chunks, self._left, self._what = chunks, b"", what
        self._timeout_s, self._until = timeout_s, time.monotonic() + timeout_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if time.monotonic() > self._until:
            raise EffectFailed(f"{self._what}: not read within {self._timeout_s:.0f} s")
        if not self._left:
            self._left = next(self._chunks, b"")
        n = min(len(buffer), len(self._left))
        buffer[:n], self._left = self._left[:n], self._left[n:]
        return n


def file_sha256(link: DockerLink, container_id: str, path: str, timeout_s: float) -> str:
    """Lower-case hex. A symbolic link is followed by asking for what it points to."""
    what = f"{path} of container {shape.short(container_id)}"
    with link.asking(what):
        chunks, stat = link.api().get_archive(container_id, path, chunk_size=_CHUNK)
        if target := stat.get("linkTarget"):
            chunks, _ = link.api().get_archive(container_id, str(target), chunk_size=_CHUNK)
        stream = io.BufferedReader(_Stream(iter(chunks), what, timeout_s), _CHUNK)
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            member = archive.next()
            content = archive.extractfile(member) if member and member.isfile() else None
            if content is None:
                raise NotFound(f"{what} is no file")
            digest = hashlib.sha256()
            while block := content.read(_CHUNK):
                digest.update(block)
    return digest.hexdigest()
