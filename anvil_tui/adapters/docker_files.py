"""Files of a container, as the daemon streams them: hashed on the way, never kept."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import time
from collections.abc import Iterator
from typing import Any

from anvil_tui.adapters import docker_shape as shape
from anvil_tui.adapters.docker_link import DockerLink
from anvil_tui.core.errors import EffectFailed, NotFound

_CHUNK = 1024 * 1024
_FOLDER = 1 << 31  # Go's mode bit for a directory


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


def path_size(link: DockerLink, container_id: str, path: str) -> int | None:
    """Bytes of one file as the container sees it, None = a folder. NotFound without it."""
    what = f"{path} of container {shape.short(container_id)}"
    with link.asking(what):
        api: Any = link.api()
        url = api._url("/containers/{0}/archive", container_id)
        answer = api.head(url, params={"path": path}, timeout=link.timeout_s)
        if answer.status_code == 404:
            raise NotFound(f"{what} does not exist")
        answer.raise_for_status()
        told = json.loads(base64.b64decode(answer.headers["X-Docker-Container-Path-Stat"]))
    if target := told.get("linkTarget"):
        return path_size(link, container_id, str(target))
    return None if int(told["mode"]) & _FOLDER else int(told["size"])
