"""Log lines: what severity they carry, and the words in the log's rule."""

from __future__ import annotations

import re

from anvil_tui.core.world import LogView, World
from anvil_tui.ui.presenters.cells import Tone
from anvil_tui.ui.text import literal, short_id

_FATAL = re.compile(
    r"\b(traceback|fatal|out of memory|oom|segfault|sigsegv|sigkill|panic|core dumped|error|exception)\b",
    re.IGNORECASE,
)
_WARNING = re.compile(r"\bwarn(ing)?\b", re.IGNORECASE)
# benign words around a match, as engines print them on every healthy start
_BENIGN = re.compile(r"\b(non-fatal|0 errors?|no errors?|error_?rate|errors?[=:] ?0\b)", re.IGNORECASE)


def tone_of(line: str) -> Tone:
    if _FATAL.search(line) and not _BENIGN.search(line):
        return "bad"
    return "warn" if _WARNING.search(line) else "text"


def title(world: World) -> str:
    log = world.log
    if log is None:
        return "Log"
    serve = world.serve(log.container_id)
    name = literal(serve.name, 120) if serve else "gone"
    return f"Log  {name} {short_id(log.container_id)}"


def matching(log: LogView, wanted: str) -> tuple[tuple[int, str], ...]:
    """Lines with their absolute number since the follow began; a filter keeps the numbers."""
    numbered = enumerate(log.lines, log.dropped)
    if not wanted:
        return tuple(numbered)
    low = wanted.lower()
    return tuple((n, text) for n, text in numbered if low in text.lower())
