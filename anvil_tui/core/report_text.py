"""A report on paper: Markdown, and the ledger that says for every sentence where its figures stand. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anvil_tui.core.bundle import document, fact_of, parse
from anvil_tui.core.claims import Cell, Claim, Report, Section, Table, looked_up
from anvil_tui.core.errors import BadFile
from anvil_tui.core.publish import place
from anvil_tui.core.text import clean

LEDGER_SCHEMA = "anvil.claims/1"
_MARKS = re.compile(r"([\\|<*`\[]|~(?=~)|&(?=#?\w+;)|(?<!\w)_|_(?!\w))")
_BLOCKS = re.compile(r"^(\s*)(?:(\d+)([.)])(?=\s|$)|([#>+=-]))")
"""What makes a heading, a quotation or a list of a line that begins with it."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the Markdown and the claims written on it."""

    text: str
    claims: tuple[Claim, ...] = ()


def plain(claim: Claim) -> str:
    """The text of a claim as one drawable line."""
    return clean(claim.text)


def marked(claim: Claim) -> str:
    """The same for Markdown: no character of foreign text is markup."""
    text = _MARKS.sub(r"\\\1", plain(claim))
    return _BLOCKS.sub(lambda m: f"{m[1]}{m[2] or ''}\\{m[3] or m[4]}", text)


def markdown(report: Report) -> str:
    return "".join(f"{line.text}\n" for line in _lines(report))


def ledger(report: Report, name: str) -> str:
    """JSON: for each claim its line in file `name`, its sentence, and the places of the bundle it rests on."""
    spot = place if report.public else str
    claims = [
        {
            "line": n,
            "sentence": marked(claim),
            "sources": [{"file": f.file, "pointer": spot(f.pointer)} for f in claim.facts],
        }
        for n, line in enumerate(_lines(report), 1)
        for claim in line.claims
    ]
    text = markdown(report)
    head = {"schema": LEDGER_SCHEMA, "report": name, "sha256": fact_of(text.encode()).sha256}
    return document({**head, "claims": claims})


def ledger_problems(text: str, name: str, files: Mapping[str, str]) -> Iterator[str]:
    """What of a ledger points to nothing in the bundle."""
    try:
        rows: Any = parse(text, name)["claims"]
        sources = [(row["line"], s["file"], s["pointer"]) for row in rows for s in row["sources"]]
    except (BadFile, KeyError, TypeError) as why:
        yield f"{name}: is no ledger: {why}"
        return
    read: dict[str, Any] = {}
    for line, file, pointer in sources:
        try:
            looked_up(files, file, pointer, read)
        except BadFile as why:
            yield f"{name}: the sentence of line {line} has no source: {why}"


def _lines(report: Report) -> Iterator[Line]:
    yield Line(f"# {marked(report.title)}", (report.title,))
    for section in report.sections:
        yield Line("")
        title = _row([section.title])
        yield Line(f"## {title.text.strip('| ')}", title.claims)
        yield from _section(section)


def _section(section: Section) -> Iterator[Line]:
    for claim in section.lines:
        yield Line("")
        yield Line(marked(claim), (claim,))
    for table in section.tables:
        yield Line("")
        yield from _table(table)
    if section.bullets:
        yield Line("")
    for claim in section.bullets:
        yield Line(f"- {marked(claim)}", (claim,))


def _table(table: Table) -> Iterator[Line]:
    yield _row(table.head)
    yield _row(["---"] * len(table.head))
    for row in table.rows:
        yield _row(row)


def _row(cells: Sequence[Cell]) -> Line:
    texts = [c if isinstance(c, str) else marked(c) for c in cells]
    return Line(f"| {' | '.join(texts)} |", tuple(c for c in cells if isinstance(c, Claim)))
