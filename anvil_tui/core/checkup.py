"""What `doctor` found, one line a part, safe to paste: no secret, no home, no host or address of anybody. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from anvil_tui.core.redact import redact
from anvil_tui.core.text import clean

_ADDRESS = re.compile(r"(?<![\w.])(?!127\.|0\.0\.0\.0)(?:\d{1,3}\.){3}\d{1,3}(?![\w.])")
_ADDRESS6 = re.compile(
    r"(?<![\w:])(?=[0-9a-fA-F:]*::?[0-9a-fA-F]{1,4}:)(?:[0-9a-fA-F]{0,4}:){3,7}[0-9a-fA-F]{1,4}(?![\w:])"
)
_AT_HOST = re.compile(r"\b[\w.-]+@(?!sha256:)[\w.-]+(?=[:/\s,;)]|$)")
_SSH = re.compile(r"\bssh://[^\s/,;)]+")


@dataclass(frozen=True, slots=True)
class Finding:
    """`todo` is what to do about it, "" when nothing is. What is not `needed` here does not fail the command."""

    part: str
    state: Literal["ok", "missing", "unknown"]
    says: str
    todo: str = ""
    needed: bool = True


def good(findings: Iterable[Finding]) -> bool:
    return not any(f.needed and f.state == "missing" for f in findings)


def pasteable(finding: Finding, home: str, names: Mapping[str, str]) -> Finding:
    """`names` are words that give a person or a machine away, and what stands in their place."""

    def safe(text: str) -> str:
        text = redact(text)
        if len(home) > 1:
            text = re.sub(rf"{re.escape(home)}(?=/|\b|$)", "~", text)
        text = _SSH.sub("ssh://(host)", text)
        text = _AT_HOST.sub("(user)@(host)", text)
        for word in sorted(names, key=len, reverse=True):
            text = re.sub(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", names[word], text)
        return clean(_ADDRESS6.sub("(address)", _ADDRESS.sub("(address)", text)), 1000)

    return replace(finding, says=safe(finding.says), todo=safe(finding.todo))


def checkup_lines(findings: Iterable[Finding]) -> Iterator[str]:
    for f in findings:
        yield f"{f.state:7} {f.part:11} {f.says}"
        if f.todo:
            yield f"{'':20}do: {f.todo}"


def checkup_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    return [asdict(f) for f in findings]


def colours(environ: Mapping[str, str]) -> str:
    """How many colours the terminal says that it has, in words."""
    term = environ.get("TERM", "")
    if "NO_COLOR" in environ:
        return "no colour (NO_COLOR)"
    if environ.get("COLORTERM") in ("truecolor", "24bit") or term.endswith("-direct"):
        return "16 million colours"
    return "256 colours" if "256" in term else "16 colours"
