"""Server-sent events: bytes in, events out, the same events for any split of the bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from anvil_tui.core.errors import AnvilError

MAX_LINE_BYTES = 4 * 1024 * 1024
_BREAK = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class SseTooLong(AnvilError):
    """One line of the stream is longer than `MAX_LINE_BYTES`."""


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event. `is_error` is True when the text came in llama.cpp's old `error:` field.

    `offset` is the byte of the stream at which its first line began.
    """

    data: str
    offset: int
    name: str = ""
    is_error: bool = False


@dataclass(slots=True)
class SseDecoder:
    """Feed it what the socket gave; it returns the events that became complete.

    Lines end in LF, CRLF or CR. Comments, empty data and unknown fields are dropped. `comments` counts
    heartbeats. Bytes that are no UTF-8 become U+FFFD and are counted in `replaced`.
    """

    comments: int = 0
    replaced: int = 0
    _rest: bytes = b""
    _rest_at: int = 0
    _skip_lf: bool = False
    _data: list[str] = field(default_factory=list)
    _name: str = ""
    _error: bool = False
    _event_at: int | None = None

    def feed(self, data: bytes) -> list[SseEvent]:
        """Events completed by these bytes. Raises SseTooLong when one line outgrows the cap."""
        if self._skip_lf and data[:1] == b"\n":
            data, self._rest_at = data[1:], self._rest_at + 1
            self._skip_lf = False
        if not data:
            return []
        self._skip_lf = data.endswith(b"\r")
        whole, start, found = self._rest + data, 0, []
        for cut in _BREAK.finditer(whole, len(self._rest)):
            found += self._line(whole[start : cut.start()], self._rest_at + start)
            start = cut.end()
        self._rest, self._rest_at = whole[start:], self._rest_at + start
        if len(self._rest) > MAX_LINE_BYTES:
            raise SseTooLong(f"a stream line is longer than {MAX_LINE_BYTES} bytes")
        return found

    def end(self) -> list[SseEvent]:
        """What is left when the stream ended without its last blank line."""
        left, self._rest = self._rest, b""
        found = self._line(left, self._rest_at) if left else []
        return found + self._dispatch()

    def _line(self, raw: bytes, at: int) -> list[SseEvent]:
        if at == 0:
            raw = raw.removeprefix(_BOM)
        if not raw:
            return self._dispatch()
        name, _, value = self._text(raw).partition(":")
        if not name:
            self.comments += 1
        elif name in ("data", "error"):
            self._event_at = at if self._event_at is None else self._event_at
            self._error = self._error or name == "error"
            self._data.append(value.removeprefix(" "))
        elif name == "event":
            self._name = value.removeprefix(" ")
        return []

    def _text(self, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            text = raw.decode(errors="replace")
            self.replaced += text.count("\ufffd")
            return text

    def _dispatch(self) -> list[SseEvent]:
        data = "\n".join(self._data)
        event = SseEvent(data, self._event_at or 0, self._name, self._error)
        self._data, self._name, self._error, self._event_at = [], "", False, None
        return [event] if data.strip() else []
