"""A terminal of a given size that a test types into and reads: a private tmux server."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.wait import wait_until

BIN = Path(sys.executable).parent


class Terminal:
    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def _tmux(self, *args: str) -> str:
        ran = subprocess.run(
            ["tmux", "-S", str(self._socket), *args], capture_output=True, text=True, timeout=20, check=False
        )
        return ran.stdout

    def open(self, argv: Sequence[str], columns: int, lines: int) -> None:
        """Run a command; its exit code is printed when it ends."""
        command = " ".join(argv) + '; echo "EXIT=$?"; sleep 300'
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(lines), command)

    def keys(self, *keys: str) -> None:
        for key in keys:
            self._tmux("send-keys", key)

    def send(self, text: str) -> None:
        """All of it in one burst, as a terminal sends what was typed ahead."""
        self._tmux("send-keys", "-l", text)

    def paste(self, text: str) -> None:
        """As a terminal pastes: between the marks of a bracketed paste, when the program asked for them."""
        self._tmux("set-buffer", text)
        self._tmux("paste-buffer", "-p", "-r")

    def record(self, file: Path) -> None:
        """Every byte that the program writes from now on."""
        self._tmux("pipe-pane", f"cat > {file}")

    def resize(self, columns: int, lines: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(lines))

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p")

    def wait(self, *texts: str, deadline_s: float = 60) -> str:
        """The screen once it shows all texts; the last screen is in the failure."""

        def shown() -> str:
            screen = self.screen()
            return screen if all(t in screen for t in texts) else ""

        try:
            return wait_until(shown, f"the screen shows {texts}", deadline_s)
        except AssertionError as why:
            raise AssertionError(f"{why}\n{self.screen()}") from None

    def vanish(self) -> None:
        """The terminal is gone, as when a connection is lost: its programs get SIGHUP."""
        self._tmux("kill-server")


@contextlib.contextmanager
def terminal(folder: Path) -> Iterator[Terminal]:
    made = Terminal(folder / "t")
    try:
        yield made
    finally:
        made.vanish()


def anvil(*args: str) -> list[str]:
    """The installed command of this environment, with a terminal that tells nothing special."""
    return [
        "env",
        "-u",
        "COLUMNS",
        "-u",
        "LINES",
        f"PATH={os.environ['PATH']}",
        "TERM=screen-256color",
        str(BIN / "anvil-tui"),
        *args,
    ]
