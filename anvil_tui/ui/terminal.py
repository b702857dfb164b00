"""The terminal: fit to draw on or not, ASCII or not, and how the console ends when it goes away.

Textual installs no signal handlers, and its writer blocks on a terminal that has stopped reading. So a
plain signal handler asks the app to exit, and a watchdog ends the process if that takes too long.
"""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final

from anvil_tui.core.redact import redact

# The issue gives two seconds; leaving the alternate screen takes about 0.2 s when the terminal reads.
GRACE_S: Final = 1.4
_POLL_MS: Final = 500
_PLAIN_TERMS: Final = re.compile(r"(linux|vt\d+|ansi|cons25)\b.*")
# Leave mouse, paste and focus modes, kitty keys, the alternate screen; show the cursor.
RESTORE: Final = (
    b"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1004l\x1b[<u\x1b[?1049l\x1b[?25h\x1b[0m"
)


def refusal(environ: Mapping[str, str], streams: tuple[IO[Any], ...]) -> str | None:
    """Why the console cannot draw here, as one line that names the way without drawing; None when it can."""
    instead = "use `anvil-tui status --json`"
    if not all(_is_tty(s) for s in streams):
        return f"anvil-tui: input or output is not a terminal; {instead}"
    if environ.get("TERM", "dumb") in ("dumb", "unknown", ""):
        return f"anvil-tui: TERM={environ.get('TERM', '')} cannot draw; {instead}"
    return None


def _is_tty(stream: IO[Any]) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def needs_ascii(environ: Mapping[str, str]) -> bool:
    """True for consoles without Unicode fonts, for a locale that says it is not UTF-8, and in tmux without any.

    tmux started without a locale, as over an ssh that brings none along, draws `_` for what is not ASCII.
    """
    if _PLAIN_TERMS.fullmatch(environ.get("TERM", "")):
        return True
    # Python sets LC_CTYPE itself for LANG=C (PEP 538), so it is no witness of what the operator asked for.
    locale = environ.get("LC_ALL") or environ.get("LANG", "")
    if not locale:
        return "TMUX" in environ
    return not re.search(r"utf-?8", locale, re.IGNORECASE)


def has_shell() -> bool:
    """Whether a shell of this session waits for this job: without one a stopped console stops for ever."""
    try:
        stat = Path(f"/proc/{os.getpgrp()}/stat").read_text(encoding="utf-8", errors="replace")
        parent = int(stat.rpartition(")")[2].split()[1])
        return parent > 0 and os.getsid(parent) == os.getsid(0)
    except OSError:
        return False


class Guard:
    """Ends the console cleanly on SIGTERM, SIGHUP and a vanished terminal, within two seconds."""

    def __init__(self, leave: Callable[[int], None], fd: int | None = None) -> None:
        self._leave = leave
        self._fd = sys.__stdin__.fileno() if fd is None and sys.__stdin__ else (fd or 0)
        self._before = self._attributes()
        self.signal: int | None = None

    def _attributes(self) -> list[Any] | None:
        try:
            return termios.tcgetattr(self._fd)
        except termios.error:
            return None

    @contextmanager
    def watching(self) -> Iterator[None]:
        old = {n: signal.signal(n, self._caught) for n in (signal.SIGTERM, signal.SIGHUP)}
        done = threading.Event()
        threading.Thread(target=self._watch_terminal, args=(done,), name="terminal-watch", daemon=True).start()
        try:
            yield
        finally:
            done.set()
            if self.signal == signal.SIGHUP:
                _let_go_of_streams()
            for number, handler in old.items():
                signal.signal(number, handler)

    def _caught(self, number: int, frame: FrameType | None) -> None:
        self.end(number)

    def end(self, number: int) -> None:
        """Ask the app to leave with 128+n; the watchdog makes sure of it."""
        if self.signal is not None:
            return
        self.signal = number
        dog = threading.Timer(GRACE_S, self._force, (128 + number,))
        dog.daemon = True
        dog.start()
        self._leave(128 + number)

    def _watch_terminal(self, done: threading.Event) -> None:
        """A hung-up terminal reports POLLHUP even when SIGHUP is ignored (nohup)."""
        poll = select.poll()
        poll.register(self._fd, 0)
        while not done.is_set():
            if poll.poll(_POLL_MS):
                self.end(signal.SIGHUP)
                return

    def _force(self, code: int) -> None:
        """The loop or a thread did not let go: put the terminal back as far as it takes bytes, and end."""
        if self._before is not None:
            with suppress(termios.error):  # the terminal is gone: there is nothing left to put back
                termios.tcsetattr(self._fd, termios.TCSANOW, self._before)
        _write_if_ready(self._fd, RESTORE)
        os._exit(code)


def _let_go_of_streams() -> None:
    """Output that is still buffered has nowhere to go; Python would end with 120 instead of our code."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)


def _write_if_ready(fd: int, data: bytes) -> None:
    """Never block on a terminal that has stopped reading."""
    try:
        if select.select((), (fd,), (), 0)[1]:
            os.write(fd, data)
    except OSError:
        return


def crash_file(error: BaseException, folder: Path) -> Path:
    """Write the trace, without local variables and redacted, to a new 0600 file; returns its path."""
    text = "".join(traceback.TracebackException.from_exception(error, capture_locals=False).format())
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    path = folder / f"crash-{stamp}-{os.getpid()}.txt"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as out:
        out.write(redact(text))
    return path
