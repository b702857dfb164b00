"""Following the log of one selected container, by full id, bounded by lines and bytes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from anvil_tui.core.box import Container
from anvil_tui.core.errors import AnvilError, NotFound
from anvil_tui.core.times import epoch_ns
from anvil_tui.core.world import LogView
from anvil_tui.ports import Clock, ContainerReader, LogLine

TAIL_LINES = 500
MAX_LINES = 2000
MAX_BYTES = 1024 * 1024
PUBLISH_S = 0.2
RETRY_S = 2.0
BEHIND_S = 3.0


class Behind:
    """How far a follow is behind its container: by how much older than ever the newest line is when it comes.
    The two clocks may differ, as over SSH, so the least difference that was seen counts as none."""

    def __init__(self) -> None:
        self._least_s: float | None = None

    def told(self, line_at: str | None, now_s: float) -> str:
        """Of a line that has just come: a note from `BEHIND_S` on, else "". `now_s` is of the epoch."""
        stamp = epoch_ns(line_at)
        if stamp is None:
            return ""
        age_s = now_s - stamp / 1e9
        self._least_s = age_s if self._least_s is None else min(self._least_s, age_s)
        late_s = age_s - self._least_s
        return f"{late_s:.0f} s behind: more lines come than can be read" if late_s >= BEHIND_S else ""


class LogFollow:
    """One thread that tails a container and publishes its `LogView`, at most every `PUBLISH_S`."""

    def __init__(
        self,
        container_id: str,
        reader: ContainerReader,
        clock: Clock,
        publish: Callable[[LogView], None],
        heir: Callable[[], Container | None] = lambda: None,
    ) -> None:
        """`heir` is another container that has the name by now, when this one is gone."""
        self._id, self._reader, self._clock, self._publish = container_id, reader, clock, publish
        self._heir = heir
        self._lines: deque[str] = deque()
        self._bytes = self._dropped = 0
        self._last_at: str | None = None
        self._behind, self._came = Behind(), False
        self._note, self._dirty = "", False
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._source: object = None
        self._threads = tuple(
            threading.Thread(target=work, name=f"log-{container_id[:12]}", daemon=True)
            for work in (self._read, self._tell)
        )

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends the follow; the reading thread may end a little later when its source does not close."""
        with self._lock:
            self._stopped.set()
            close = getattr(self._source, "close", None)
        if close is not None:
            close()

    def join(self, timeout_s: float) -> bool:
        for thread in self._threads:
            thread.join(max(0.0, timeout_s))
        return not any(thread.is_alive() for thread in self._threads)

    def _read(self) -> None:
        """Tail, then follow from the last stamp; a broken connection is taken up again without a gap."""
        asked_tail = False
        while not self._stopped.is_set():
            try:
                if not asked_tail:
                    self._take(self._reader.logs(self._id, tail=TAIL_LINES))
                    asked_tail = True
                if self._follow():
                    self._wait_for_a_start()
            except AnvilError as error:
                self._say(str(error))
                if isinstance(error, NotFound):
                    return self._name_the_heir()
            self._stopped.wait(RETRY_S)

    def _name_the_heir(self) -> None:
        """The log breaks off here: what was made again under the name is offered, and never followed by itself."""
        while not self._stopped.is_set():
            if heir := self._heir():
                old, new = self._id[:12], f"{heir.name} is now {heir.id[:12]}"
                self._take((LogLine(f"-- {old} is gone; {new} --"),))
                return self._say(
                    f"{new}; this is the log of {old}, which is gone: choose the new one to follow it"
                )
            self._stopped.wait(RETRY_S)

    def _wait_for_a_start(self) -> None:
        """The same container may start again, as on the way back: its log goes on. While it runs, only the log
        broke off, as where its file was rotated away."""
        while not self._reader.inspect(self._id).running:
            self._say("the container has ended")
            if self._stopped.wait(RETRY_S):
                return
        self._say("the log broke off while the container runs; it is asked for again")

    def _follow(self) -> bool:
        """True when the log ended by itself."""
        source = self._reader.follow(self._id, since=self._last_at)
        with self._lock:
            if self._stopped.is_set():
                return False
            self._source, self._behind = source, Behind()
        self._say("")
        for line in source:
            self._take((line,))
            if self._stopped.is_set():
                return False
        return not self._stopped.is_set()

    def _take(self, lines: tuple[LogLine, ...]) -> None:
        with self._lock:
            for line in lines:
                self._lines.append(line.text)
                self._bytes += len(line.text)
                self._last_at = line.at or self._last_at
            while len(self._lines) > MAX_LINES or (self._bytes > MAX_BYTES and self._lines):
                self._bytes -= len(self._lines.popleft())
                self._dropped += 1
            self._dirty = self._came = True

    def _say(self, note: str) -> None:
        with self._lock:
            self._note, self._dirty = note, True

    def _tell(self) -> None:
        while not self._stopped.wait(PUBLISH_S):
            self.flush()

    def flush(self) -> None:
        with self._lock:
            if not self._dirty or self._stopped.is_set():
                return
            late = self._behind.told(self._last_at, self._clock.utc().timestamp()) if self._came else ""
            self._came, note = False, self._note or late
            view = LogView(self._id, tuple(self._lines), self._dropped, note)
            self._dirty = False
        self._publish(view)
