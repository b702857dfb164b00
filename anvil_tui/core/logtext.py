"""Bytes of a Docker log stream to lines, incrementally and at any split of the bytes.

Whether the stream is raw (TTY) or framed is told by the container's inspect, never guessed from bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

LINE_LIMIT = 1024 * 1024
# The daemon cuts longer lines into parts of this size; each part is stamped when stamps are asked for.
PART = 16 * 1024
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) ")
_STAMP_ROOM = 40
# On the fourth the daemon itself says why the log breaks off here.
DAEMON = "systemerr"
_STREAMS = {0: "stdin", 1: "stdout", 2: "stderr", 3: DAEMON}


@dataclass(frozen=True, slots=True)
class TextLine:
    """One decoded line without its end. `at` is the daemon's stamp; `stream` is stdout, stderr, tty or DAEMON."""

    text: str
    at: str | None
    stream: str


@dataclass(slots=True)
class _Buffer:
    """What one stream holds before its next line end."""

    stream: str
    stamped: bool
    data: bytearray = field(default_factory=bytearray)
    at: str | None = None
    cut: int = 0
    fresh: bool = True  # the next byte begins a line
    head: bytearray = field(default_factory=bytearray)  # begin of a part, kept until its stamp is whole

    def begin_part(self) -> None:
        """The next bytes may begin with a stamp."""
        if self.stamped:
            self.flush_head()
            self.fresh = True

    def flush_head(self) -> None:
        if self.head:
            match = _STAMP.match(self.head)
            if match and self.at is None:
                self.at = match[1].decode("ascii")
            rest = bytes(self.head[match.end() :]) if match else bytes(self.head)
            self.head.clear()
            self._keep(rest)
        self.fresh = False

    def add(self, piece: bytes) -> None:
        """Bytes without a line end."""
        if self.stamped and self.fresh:
            self.head += piece
            if len(self.head) >= _STAMP_ROOM:
                self.flush_head()
            return
        self._keep(piece)

    def _keep(self, piece: bytes) -> None:
        self.data += piece
        if len(self.data) > LINE_LIMIT:
            last = self.data.rstrip(b"\r").rfind(b"\r")
            if last >= 0:
                del self.data[: last + 1]
                self.cut = 0
        if len(self.data) > LINE_LIMIT:
            self.cut += len(self.data) - LINE_LIMIT
            del self.data[LINE_LIMIT:]

    def live(self) -> str:
        """The state of a line that has not ended: what the last carriage return left standing."""
        stamp = _STAMP.match(self.head) if self.stamped else None
        return self._decoded(bytes(self.data) + bytes(self.head[stamp.end() :] if stamp else self.head))

    def end(self) -> TextLine:
        self.flush_head()
        raw = _without_repeats(bytes(self.data)) if self.stamped and self.stream == "tty" else bytes(self.data)
        line = TextLine(self._decoded(raw), self.at, self.stream)
        self.data.clear()
        self.at, self.cut, self.fresh = None, 0, True
        return line

    def _decoded(self, raw: bytes) -> str:
        last = raw.rstrip(b"\r").rpartition(b"\r")[2]
        text = last.decode("utf-8", "replace")
        return f"{text} … [{self.cut} bytes cut]" if self.cut else text

    @property
    def empty(self) -> bool:
        return not self.data and not self.head


def _without_repeats(raw: bytes) -> bytes:
    """A raw stream has no frames, so a stamp repeated at a part's begin stands inside the line: take it out."""
    at = PART
    while at < len(raw):
        match = _STAMP.match(raw, at)
        if match is None:
            break
        raw = raw[:at] + raw[match.end() :]
        at += PART
    return raw


class LogDecoder:
    """Feed chunks, get lines. `tty` comes from Config.Tty; `stamped` says that stamps were asked for."""

    def __init__(self, *, tty: bool, stamped: bool) -> None:
        self._tty, self._stamped = tty, stamped
        self._buffers: dict[str, _Buffer] = {}
        self._header = bytearray()
        self._left = 0
        self._stream = "tty"

    def feed(self, chunk: bytes) -> list[TextLine]:
        """The lines that `chunk` completes, in order."""
        out: list[TextLine] = []
        if self._tty:
            self._take("tty", chunk, out)
            return out
        view, at = chunk, 0
        while at < len(view):
            if self._left == 0:
                at = self._take_header(view, at)
                continue
            piece = view[at : at + self._left]
            at += len(piece)
            self._left -= len(piece)
            self._take(self._stream, piece, out)
        return out

    def _take_header(self, view: bytes, at: int) -> int:
        need = 8 - len(self._header)
        self._header += view[at : at + need]
        if len(self._header) == 8:
            self._stream = _STREAMS.get(self._header[0], "stderr")
            self._left = int.from_bytes(self._header[4:], "big")
            self._header.clear()
            self._buffer(self._stream).begin_part()
        return min(len(view), at + need)

    def _buffer(self, stream: str) -> _Buffer:
        return self._buffers.setdefault(stream, _Buffer(stream, self._stamped))

    def _take(self, stream: str, piece: bytes, out: list[TextLine]) -> None:
        buffer = self._buffer(stream)
        *whole, rest = piece.split(b"\n")
        for part in whole:
            buffer.add(part)
            out.append(buffer.end())
        if rest:
            buffer.add(rest)

    def live(self) -> str:
        """The newest unfinished line ("" when there is none): progress bars show here before their line ends."""
        return next((b.live() for b in reversed(list(self._buffers.values())) if not b.empty), "")

    def finish(self) -> list[TextLine]:
        """What is left when the stream ends without a line end."""
        return [b.end() for b in self._buffers.values() if not b.empty]
