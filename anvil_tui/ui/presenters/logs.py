"""Log lines: how much each matters, and the words in the log's rule."""

from __future__ import annotations

import re
from functools import lru_cache

from anvil_tui.core.engine_log import classify
from anvil_tui.core.recipe import EngineKind
from anvil_tui.core.world import LogView, World
from anvil_tui.ui import glyphs
from anvil_tui.ui.presenters.cells import Tone, titled
from anvil_tui.ui.text import literal, short_id

_FATAL = re.compile(
    r"\b(traceback|fatal|out of memory|oom|segfault|sigsegv|sigkill|panic|core dumped|error|exception)\b",
    re.IGNORECASE,
)
_WARNING = re.compile(r"\bwarn(ing)?\b", re.IGNORECASE)
# benign words around a match, as engines print them on every healthy start
_BENIGN = re.compile(r"\b(non-fatal|0 errors?|no errors?|error_?rate|errors?[=:] ?0\b)", re.IGNORECASE)


Mark = tuple[str, Tone]
_MARKS: dict[str, Mark] = {
    "fatal": (glyphs.BAD, "bad"), "config": (glyphs.BAD, "bad"), "request": (glyphs.WARN, "warn"),
    "watch": (glyphs.WARN, "warn"), "benign": (glyphs.TODO_DOT, "dim"),
}  # fmt: skip


@lru_cache(maxsize=4096)
def mark_of(line: str, kind: EngineKind | None) -> Mark:
    """Glyph and tone of a line by the signatures of its engine; `?` for one that only looks bad."""
    known = _MARKS.get(classify(kind, line)) if kind else None
    if known:
        return known
    if _FATAL.search(line) and not _BENIGN.search(line):
        return glyphs.ASK, "bad"
    return (glyphs.ASK, "warn") if _WARNING.search(line) else (" ", "text")


def title(world: World, wanted: str, shown: int) -> str:
    """The filter stands before the name, which may be cut."""
    log = world.log
    if log is None:
        return "Log"
    serve = world.serve(log.container_id)
    name = literal(serve.name, 120) if serve else "gone"
    whose = f"{name} {short_id(log.container_id)}"
    return f"{titled('Log', wanted, shown, len(log.lines))}  {whose}" if wanted else f"Log  {whose}"


def engine_of(world: World) -> EngineKind | None:
    """Of the serve whose log is followed; None = not known."""
    serve = world.serve(world.log.container_id) if world.log else None
    return serve.recipe.engine if serve and serve.recipe else None


def matching(log: LogView, wanted: str) -> tuple[tuple[int, str], ...]:
    """Lines with their absolute number since the follow began; a filter keeps the numbers."""
    numbered = enumerate(log.lines, log.dropped)
    if not wanted:
        return tuple(numbered)
    low = wanted.lower()
    return tuple((n, text) for n, text in numbered if low in text.lower())
