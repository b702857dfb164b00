"""Container logs over the Engine API, with stream names and stamps, whole lines only."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NoReturn

import docker.errors
import requests
import urllib3
from docker.types.daemon import CancellableStream

from anvil_tui.adapters.docker_link import DockerLink, daemon_text
from anvil_tui.core.errors import NotFound, Unreachable
from anvil_tui.core.logtext import DAEMON, LogDecoder, TextLine
from anvil_tui.core.redact import redact
from anvil_tui.core.text import clean
from anvil_tui.core.times import epoch_ns
from anvil_tui.ports import LogLine

_CHUNK = 64 * 1024
# Drivers that keep nothing the daemon could read back.
_MUTE_DRIVERS = frozenset({"none"})


def tail_lines(link: DockerLink, container_id: str, tail: int) -> tuple[LogLine, ...]:
    """The last `tail` lines. NotFound with a sentence when the logging driver cannot be read."""
    with link.asking(f"logs of {container_id[:12]}"):
        response, decoder = _open(link, container_id, {"tail": str(tail), "follow": "0"})
        with response:
            kept: deque[TextLine] = deque(maxlen=max(1, tail))
            while chunk := response.raw.read1(_CHUNK):
                kept.extend(decoder.feed(chunk))
            kept.extend(decoder.finish())
    return tuple(_line(line) for line in kept)


class LogFollow(Iterator[LogLine]):
    """Lines as they come. `close` may be called from another thread and ends the iteration there.

    Unreachable when the connection breaks, or the daemon cannot read on (a log file that is damaged, or was
    rotated away); resume with `since` = the stamp of the last line.
    """

    def __init__(self, link: DockerLink, container_id: str, since: str | None) -> None:
        self._link, self._what = link, f"logs of {container_id[:12]}"
        self._since = epoch_ns(since)
        params = {"follow": "1"}
        if self._since is not None:
            params["since"] = f"{self._since // 1_000_000_000}.{self._since % 1_000_000_000:09d}"
        with link.asking(self._what):
            self._response, self._decoder = _open(link, container_id, params, quiet=True)
        self._stream = CancellableStream(iter(()), self._response)
        self._ready: deque[LogLine] = deque()
        self._ended = self._closed = False
        self._broken = ""

    def __iter__(self) -> LogFollow:
        return self

    def __next__(self) -> LogLine:
        while not self._ready:
            if self._broken and not self._closed:
                raise Unreachable(self._link.endpoint, f"{self._what}: {self._broken}")
            if self._ended or self._closed:
                raise StopIteration
            self._read()
        return self._ready.popleft()

    @property
    def live(self) -> str:
        """The state of the line that has not ended yet, for progress bars; "" when there is none."""
        return self._decoder.live()

    def _read(self) -> None:
        with self._link.asking(self._what):
            try:
                chunk = self._response.raw.read1(_CHUNK)
            except (OSError, ValueError, AttributeError, urllib3.exceptions.HTTPError):
                if not self._closed:
                    raise
                chunk = b""
        lines = self._decoder.feed(chunk) if chunk else self._decoder.finish()
        self._ended = not chunk
        self._broken = next((clean(line.text, 300) for line in lines if line.stream == DAEMON), "")
        self._ready.extend(_line(line) for line in lines if line.stream != DAEMON and not self._seen(line.at))

    def _seen(self, at: str | None) -> bool:
        """The daemon's `since` is inclusive: the line it was taken from comes again. After the first later one all
        are new, also those of a clock that was set back."""
        stamp = epoch_ns(at) if self._since is not None else None
        if self._since is None or stamp is None:
            return False
        if stamp <= self._since:
            return True
        self._since = None
        return False

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._stream.close()


def _open(
    link: DockerLink, container_id: str, params: dict[str, str], *, quiet: bool = False
) -> tuple[requests.Response, LogDecoder]:
    """The log response and its decoder; TTY or framed as the container's inspect says.

    `quiet`: an engine may write nothing for hours, so reads of the stream have no time-out.
    """
    api = link.api()
    attrs = link.container(container_id)
    driver = str(attrs["HostConfig"]["LogConfig"]["Type"])
    if driver in _MUTE_DRIVERS:
        raise NotFound(_unreadable(link, container_id, f"driver {driver}"))
    response = api.get(
        f"{api.base_url}/v{api.api_version}/containers/{container_id}/logs",
        params={"stdout": "1", "stderr": "1", "timestamps": "1", **params},
        stream=True,
        timeout=(link.timeout_s, None if quiet else link.timeout_s),
    )
    try:
        response.raise_for_status()
        return response, LogDecoder(tty=attrs["Config"]["Tty"] is True, stamped=True)
    except requests.HTTPError as error:
        _explain(link, container_id, driver, error)


def _explain(link: DockerLink, container_id: str, driver: str, error: requests.HTTPError) -> NoReturn:
    try:
        docker.errors.create_api_error_from_http_exception(error)
    except docker.errors.APIError as said:
        if "does not support reading" in daemon_text(said):
            raise NotFound(_unreadable(link, container_id, f"driver {driver}")) from said
        if "dead or marked for removal" in daemon_text(said):
            raise NotFound(_unreadable(link, container_id, "dead or marked for removal")) from said
        raise
    raise error


def _unreadable(link: DockerLink, container_id: str, why: str) -> str:
    return f"{link.endpoint}: logs of {container_id[:12]} not available ({why})"


def _line(line: TextLine) -> LogLine:
    return LogLine(redact(line.text), line.at, line.stream)
