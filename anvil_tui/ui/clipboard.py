"""Copying over any link: OSC 52 asks the terminal in front of the person, which never says what came of it."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from anvil_tui.core.redact import redact
from anvil_tui.ui.text import literal, number

if TYPE_CHECKING:
    from anvil_tui.ui.app import Console

CAP = 74_994
"""Bytes of text: xterm and others drop a sequence of more than 100,000 bytes, and base64 makes four of three."""
# GNU screen takes strings of limited length to pass on.
_SCREEN_CHUNK = 76
FILE = "copied.txt"


class NotSent(Exception):
    """Why the terminal is not asked."""


def sequence(text: str, environ: Mapping[str, str]) -> str:
    """What to write to the terminal. NotSent for one that cannot take it, and for too much."""
    if environ.get("TERM", "dumb") in ("dumb", "unknown", ""):
        raise NotSent(f"TERM={environ.get('TERM', '')} has no clipboard")
    raw = text.encode()
    if len(raw) > CAP:
        raise NotSent(f"{number(len(raw), 'bytes')} are more than the {number(CAP)} that terminals take")
    plain = f"\x1b]52;c;{base64.b64encode(raw).decode()}\a"
    if environ.get("TMUX"):
        return "\x1bPtmux;" + plain.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    if environ.get("STY"):
        chunks = (plain[i : i + _SCREEN_CHUNK] for i in range(0, len(plain), _SCREEN_CHUNK))
        return "".join(f"\x1bP{chunk}\x1b\\" for chunk in chunks)
    return plain


def send(app: Console, text: str) -> str:
    """Ask the terminal, or leave the text in a 0600 file. Returns a sentence that says which."""
    text = redact(text)
    app._clipboard = text
    lines = text.count("\n") + 1
    what = literal(text, 80) if lines == 1 else f"{lines:,} lines"
    try:
        asked = sequence(text, os.environ)
    except NotSent as why:
        path = app.options.crash_dir / FILE
        keep(text, path)
        return f"not sent, {why}: {what} in {path}"
    if app._driver is not None:
        app._driver.write(asked)
    tmux = "; tmux passes it on with `set -g allow-passthrough on`" if os.environ.get("TMUX") else ""
    return f"sent to the terminal's clipboard, if it takes that: {what}{tmux}"


def keep(text: str, path: Path) -> None:
    """A new file each time: a link that lies there is replaced, not followed."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as out:
        out.write(text)
