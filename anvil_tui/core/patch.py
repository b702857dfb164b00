"""Applies a unified diff to a text: line numbers may be off, as `git apply --recount` allows; lines may not."""

from __future__ import annotations

import re

from anvil_tui.core.verdicts import shown

_HUNK = re.compile(r"@@ ?(?:-(\d+)(?:,\d+)? \+\d+(?:,\d+)? ?)?@@")
_HEADER = ("diff ", "index ", "--- ", "+++ ", "\\ ")


def apply_diff(text: str, diff: str) -> tuple[str | None, str]:
    """(the new text, what is wrong). Each hunk's old lines must stand in the text exactly once after the last."""
    hunks = _hunks(diff)
    if isinstance(hunks, str):
        return None, hunks
    lines, at = text.splitlines(), 0
    for n, (old, new) in enumerate(hunks, 1):
        found = [i for i in range(at, len(lines) - len(old) + 1) if lines[i : i + len(old)] == old]
        if len(found) != 1:
            where = "nowhere" if not found else f"at {len(found)} places"
            return None, f"hunk {n}: its old lines stand {where} in the text; first {shown((old or [''])[0])}"
        lines[found[0] : found[0] + len(old)] = new
        at = found[0] + len(new)
    return "\n".join(lines) + "\n", ""


def _hunks(diff: str) -> list[tuple[list[str], list[str]]] | str:
    """(old lines, new lines) of each hunk, or what is wrong."""
    hunks: list[tuple[list[str], list[str]]] = []
    for line in diff.rstrip().splitlines():
        if _HUNK.match(line):
            hunks.append(([], []))
        elif not hunks and (line.startswith(_HEADER) or not line.strip()):
            continue
        elif not hunks:
            return f"no unified diff: {shown(line)} stands before any @@"
        elif line[:1] in (" ", "-", "+", ""):
            old, new = hunks[-1]
            old += [line[1:]] if line[:1] != "+" else []
            new += [line[1:]] if line[:1] != "-" else []
        elif not line.startswith(_HEADER):
            return f"no line of a unified diff: {shown(line)}"
    if not hunks:
        return "no unified diff: there is no @@ line"
    empty = next((n for n, (old, _) in enumerate(hunks, 1) if not old), None)
    return f"hunk {empty} has no old line, so its place is unknown" if empty else hunks
