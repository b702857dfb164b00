"""The log of one container as a daemon keeps it: stamped entries, frames, followers."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass

from anvil_tui.simbox.pace import rfc3339, stamp_ns

PART_BYTES = 16 * 1024  # the daemon splits longer lines, each part a frame of its own
KEEP = 20_000
STDOUT, STDERR = 1, 2


@dataclass(frozen=True, slots=True)
class Entry:
    number: int
    at_ns: int
    stream: int
    text: bytes


@dataclass(frozen=True, slots=True)
class LogQuery:
    """`since_ns` and `until_ns` are wall clock, 0 = no bound; `tail` None = all."""

    stdout: bool = True
    stderr: bool = True
    timestamps: bool = False
    since_ns: int = 0
    until_ns: int = 0
    tail: int | None = None

    def wants(self, entry: Entry) -> bool:
        of_stream = self.stdout if entry.stream == STDOUT else self.stderr
        return of_stream and entry.at_ns >= self.since_ns and (not self.until_ns or entry.at_ns <= self.until_ns)


class LogBook:
    """`tty` changes the wire form: raw bytes instead of frames."""

    def __init__(self, tty: bool = False) -> None:
        self.tty = tty
        self.open = False
        self._entries: deque[Entry] = deque(maxlen=KEEP)
        self._count = 0
        self._changed = asyncio.Event()

    def write(self, text: str, stream: int = STDOUT) -> None:
        """One line of the engine; text may hold several, each becomes an entry."""
        for line in text.split("\n"):
            self.write_bytes(line.encode(), stream)

    def write_bytes(self, line: bytes, stream: int = STDOUT) -> None:
        self._count += 1
        self._entries.append(Entry(self._count, stamp_ns(), stream, line + b"\n"))
        self._wake()

    def begin(self) -> None:
        self.open = True

    def end(self) -> None:
        """The container has exited: followers finish."""
        self.open = False
        self._wake()

    def lines(self) -> list[str]:
        return [e.text.decode(errors="replace").rstrip("\n") for e in self._entries]

    def read(self, query: LogQuery) -> list[Entry]:
        found = [e for e in self._entries if query.wants(e)]
        if query.tail is None:
            return found
        return found[-query.tail :] if query.tail else []

    async def follow(self, query: LogQuery) -> AsyncGenerator[bytes, None]:
        """Wire bytes: what is there, then what comes, until the container ends."""
        fresh, seen = self.read(query), self._count
        while True:
            for entry in fresh:
                for frame in self.frames(entry, query):
                    yield frame
            if self._count == seen:
                if not self.open:
                    return
                self._changed.clear()
                await self._changed.wait()
            fresh = [e for e in self._entries if e.number > seen and query.wants(e)]
            seen = self._count

    def frames(self, entry: Entry, query: LogQuery) -> Iterator[bytes]:
        head = f"{rfc3339(entry.at_ns)} ".encode() if query.timestamps else b""
        for start in range(0, len(entry.text), PART_BYTES):
            part = head + entry.text[start : start + PART_BYTES]
            yield part if self.tty else struct.pack(">BxxxL", entry.stream, len(part)) + part

    def _wake(self) -> None:
        self._changed.set()
