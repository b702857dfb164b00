"""HTTP/1.1 messages as they are read: the head, where the body ends, and the end marker of an event stream.

For the load generator's child, which keeps what it imports small: no other module of the project, no dataclass.
"""

from __future__ import annotations

HEAD_BYTES = 64 * 1024


class Framing:
    """Where a body ends: after `length` bytes, with transfer chunks, or (neither) with the connection.

    `length` counts down. `feed` takes what was read and gives the body bytes among it; then `done` may be True.
    """

    __slots__ = ("_left", "_rest", "_skip", "_trailer", "chunked", "done", "length")

    def __init__(self, chunked: bool, length: int | None) -> None:
        self.chunked, self.length, self.done = chunked, None if chunked else length, length == 0 and not chunked
        self._left, self._skip, self._rest, self._trailer = 0, 0, b"", False

    def feed(self, data: bytes) -> bytes:
        """Raises ValueError for a size line that is none."""
        if not self.chunked:
            if self.length is not None:
                data = data[: self.length]
                self.length -= len(data)
                self.done = self.length == 0
            return data
        data, self._rest = self._rest + data, b""
        found, at, size = [], 0, len(data)
        while at < size and not self.done:
            if self._left:
                part = data[at : at + self._left]
                found.append(part)
                at, self._left = at + len(part), self._left - len(part)
            elif self._skip:
                step = min(self._skip, size - at)
                at, self._skip = at + step, self._skip - step
            else:
                at = self._line(data, at)
        return found[0] if len(found) == 1 else b"".join(found)

    def _line(self, data: bytes, at: int) -> int:
        """A size line or a trailer line; where the next thing begins."""
        end = data.find(b"\r\n", at)
        if end < 0:
            self._rest = data[at:]
            if len(self._rest) > HEAD_BYTES:
                raise ValueError("a transfer chunk without a size")
            return len(data)
        if self._trailer:
            self.done = end == at
        else:
            size = data[at:end].split(b";")[0].strip()
            if not size or size.strip(b"0123456789abcdefABCDEF"):
                raise ValueError(f"a transfer chunk of size {size[:20].decode('latin-1')!r}")
            self._left = int(size, 16)
            self._trailer, self._skip = self._left == 0, 2 if self._left else 0
        return end + 2


class EndMarker:
    """Finds the line `data: [DONE]`, also cut over reads. JSON holds no raw line end: no text can look like it."""

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail = b"\n"

    def seen(self, part: bytes) -> bool:
        whole = self._tail + part
        at = whole.find(b"[DONE]")
        self._tail = whole[-16:]
        return at >= 0 and whole[:at].rstrip(b" ").endswith((b"\ndata:", b"\rdata:"))


class Head:
    """Takes the first bytes of an answer until its head is whole; an interim answer (1xx) is skipped.

    `raw` is the head without its blank line; `framing` is None until then. `marker` is there for event streams.
    `keep` says whether the connection may serve another request.
    """

    __slots__ = ("framing", "keep", "marker", "raw", "status")

    def __init__(self) -> None:
        self.raw, self.status, self.keep = b"", 0, False
        self.framing: Framing | None = None
        self.marker: EndMarker | None = None

    def feed(self, data: bytes) -> bytes:
        """The bytes after the head. Raises ValueError for what is not HTTP/1."""
        self.raw += data
        while (end := self.raw.find(b"\r\n\r\n")) >= 0:
            head, rest = self.raw[:end], self.raw[end + 4 :]
            first, *lines = head.split(b"\r\n")
            version, _, after = first.partition(b" ")
            if not version.startswith(b"HTTP/1.") or not after[:3].isdigit():
                break
            if after.startswith(b"1"):
                self.raw = rest
                continue
            self.raw, self.status = head, int(after[:3])
            self._fields(version, lines)
            return rest
        if not b"HTTP/1.".startswith(self.raw[:7]) or b"\r\n\r\n" in self.raw:
            raise ValueError(f"the answer begins with {self.raw[:60].decode('latin-1')!r}")
        if len(self.raw) > HEAD_BYTES:
            raise ValueError(f"the head of the answer is longer than {HEAD_BYTES} bytes")
        return b""

    def _fields(self, version: bytes, lines: list[bytes]) -> None:
        named = {k.strip().lower(): v.strip().lower() for k, _, v in (line.partition(b":") for line in lines)}
        length = named.get(b"content-length")
        count = int(length) if length else None
        if self.status in (204, 304):
            count = 0
        self.framing = Framing(named.get(b"transfer-encoding", b"").endswith(b"chunked"), count)
        self.keep = version == b"HTTP/1.1" and named.get(b"connection") != b"close"
        if named.get(b"content-type", b"").startswith(b"text/event-stream"):
            self.marker = EndMarker()
