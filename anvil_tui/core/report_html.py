"""A report as one page: nothing is fetched, no script; for screens of 390 pixels and more, and for paper. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from anvil_tui.core.claims import Cell, Claim, Report, Section, Table
from anvil_tui.core.plots import svg
from anvil_tui.core.report_text import plain

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1f; --soft: #5c5f66; --ground: #fff; --rule: #e0e2e7;
  --band: #f6f7f9 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6ea; --soft: #a4a7ae; --ground: #17181b; --rule: #34373e; --band: #1f2126 }
}
* { box-sizing: border-box }
body { margin: 0 auto; padding: 2.5rem 1.25rem 4rem; max-width: 78rem; color: var(--ink);
  background: var(--ground); font: 16px/1.55 system-ui, sans-serif; overflow-wrap: break-word;
  font-variant-numeric: tabular-nums }
h1 { font-size: 1.75rem; line-height: 1.2; letter-spacing: -.01em; margin: 0 0 .5rem }
h2 { font-size: 1.2rem; line-height: 1.3; margin: 2.75rem 0 .75rem }
p { margin: .5rem 0 .75rem; max-width: 46rem; color: var(--soft) }
ul { padding-left: 1.2rem; margin: .4rem 0; max-width: 56rem }
li { margin: .4rem 0 }
code { font: .86em/1.5 ui-monospace, monospace; color: var(--soft); overflow-wrap: anywhere }
.wide { overflow-x: auto; margin: .75rem 0; border: 1px solid var(--rule); border-radius: 8px }
.wide:focus-visible { outline: 2px solid #0072b2; outline-offset: 2px }
table { border-collapse: collapse; width: 100%; font-size: .9rem }
th, td { text-align: left; vertical-align: top; padding: .5rem .75rem; border-top: 1px solid var(--rule) }
td { min-width: 6rem }
tbody th { font-weight: 600; min-width: 7rem }
thead th { border-top: 0; background: var(--band); color: var(--soft); font-weight: 600; vertical-align: bottom }
.many td, .many tbody th { white-space: nowrap }
.text td { white-space: normal; min-width: 8rem }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 1rem }
figure { margin: 0; padding: .5rem; border: 1px solid var(--rule); border-radius: 8px }
figure svg { display: block; width: 100%; height: auto }
figure svg text { fill: var(--ink) }
figure [fill="#555"] { fill: var(--soft) } figure [fill="#fff"] { fill: var(--ground) }
figure [stroke="#ddd"] { stroke: var(--rule) } figure [stroke="#222"] { stroke: var(--soft) }
@media (max-width: 40rem) {
  body { padding-top: 1.5rem }
  .pair thead { display: none }
  .pair tr, .pair th, .pair td { display: block }
  .pair tbody tr + tr { border-top: 1px solid var(--rule) }
  .pair th, .pair td { border: 0; padding: .5rem .75rem 0 } .pair td { padding: 0 .75rem .5rem }
}
@media print {
  :root { --ink: #000; --soft: #333; --ground: #fff; --rule: #bbb; --band: #eee }
  body { max-width: none; padding: 0; font-size: 10pt }
  .wide { overflow: visible; border: 0 }
  th, td, tbody th, .many td, .many tbody th { min-width: 0; white-space: normal; overflow-wrap: anywhere }
  .many { font-size: 7pt } .many th, .many td { padding: .2rem }
  h2 { break-after: avoid } tr, figure { break-inside: avoid }
}
"""
_LONG = re.compile(r"(?:sha256:)?\b[0-9a-f]{32,}\b|\b(?:GPU|MIG)-[0-9a-f-]{36}")
_MANY = 6
"""Tables of so many columns scroll sideways in their own box instead of breaking their figures. Those of up to
three are stacked on a telephone."""


def html(report: Report) -> str:
    """The whole page. Foreign text stands in it as text."""
    title = escape(plain(report.title))
    body = "\n".join(part for section in report.sections for part in _section(section))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n{body}\n"
        "</main>\n</body>\n</html>\n"
    )


def _section(section: Section) -> Iterator[str]:
    title = section.title if isinstance(section.title, str) else plain(section.title)
    yield f"<section>\n<h2>{escape(title)}</h2>"
    for claim in section.lines:
        yield f"<p>{_cell(claim)}</p>"
    for table in section.tables:
        yield from _table(table, title)
    if section.charts:
        yield '<div class="plots">'
        yield from (f"<figure>\n{svg(chart)}</figure>" for chart in section.charts)
        yield "</div>"
    if section.bullets:
        yield "<ul>\n" + "\n".join(f"<li>{_cell(c)}</li>" for c in section.bullets) + "\n</ul>"
    yield "</section>"


def _table(table: Table, name: str) -> Iterator[str]:
    kind = "pair" if len(table.head) <= 3 else "many" if len(table.head) >= _MANY else "few"
    kind += " text" if "Reason" in table.head else ""
    yield f'<div class="wide" tabindex="0" role="region" aria-label="{escape(name)}">\n<table class="{kind}">'
    yield (
        "<thead><tr>" + "".join(f'<th scope="col">{escape(h)}</th>' for h in table.head) + "</tr></thead>\n<tbody>"
    )
    for first, *rest in table.rows:
        cells = "".join(f"<td>{_cell(c)}</td>" for c in rest)
        yield f'<tr><th scope="row">{_cell(first)}</th>{cells}</tr>'
    yield "</tbody></table>\n</div>"


def _cell(cell: Cell) -> str:
    """Long digests and ids are set apart, so that the words around them read."""
    return _LONG.sub(r"<code>\g<0></code>", escape(plain(cell) if isinstance(cell, Claim) else cell))
