"""A report as one page: nothing is fetched, no script; for screens of 390 pixels and more, and for paper. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from anvil_tui.core.claims import Cell, Claim, Report, Section, Table
from anvil_tui.core.plots import svg
from anvil_tui.core.report_text import plain

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1f; --soft: #5c5f66; --ground: #fff; --rule: #d5d7dc;
  --band: #f4f5f7 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6ea; --soft: #a4a7ae; --ground: #17181b; --rule: #3a3d44; --band: #1f2126 }
}
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 72rem; color: var(--ink); background: var(--ground);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 1rem }
h2 { font-size: 1.15rem; margin: 2rem 0 .6rem; padding-top: .6rem; border-top: 1px solid var(--rule) }
p { margin: .4rem 0; color: var(--soft) }
ul { padding-left: 1.2rem; margin: .4rem 0 }
li { margin: .25rem 0 }
.wide { overflow-x: auto; border: 1px solid var(--rule); border-radius: 6px }
.wide:focus-visible { outline: 2px solid #0072b2; outline-offset: 2px }
table { border-collapse: collapse; width: 100%; font-size: .9rem }
th, td { text-align: left; vertical-align: top; padding: .4rem .6rem; border-top: 1px solid var(--rule) }
td { overflow-wrap: anywhere }
tbody th { font-weight: 600; min-width: 7rem }
thead th { border-top: 0; background: var(--band); font-weight: 600 }
.many td { min-width: 6rem; overflow-wrap: break-word }
figure { margin: 1rem 0 }
figure svg { max-width: 100%; height: auto; border: 1px solid var(--rule); border-radius: 6px }
@media print {
  :root { --ink: #000; --soft: #333; --ground: #fff; --rule: #bbb; --band: #eee }
  body { max-width: none; padding: 0; font-size: 10pt }
  .wide { overflow: visible; border: 0 }
  tbody th, .many th, .many td { min-width: 0; overflow-wrap: anywhere }
  .many { font-size: 7pt } .many th, .many td { padding: .2rem }
  h2 { break-after: avoid } tr, figure { break-inside: avoid }
}
"""
_MANY = 6
"""Tables of so many columns scroll sideways in their own box instead of breaking their figures."""


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
    title = _cell(section.title)
    yield f"<section>\n<h2>{title}</h2>"
    for claim in section.lines:
        yield f"<p>{escape(plain(claim))}</p>"
    for table in section.tables:
        yield from _table(table, title)
    for chart in section.charts:
        yield f"<figure>\n{svg(chart)}</figure>"
    if section.bullets:
        yield "<ul>\n" + "\n".join(f"<li>{escape(plain(c))}</li>" for c in section.bullets) + "\n</ul>"
    yield "</section>"


def _table(table: Table, name: str) -> Iterator[str]:
    """`name` is HTML already."""
    many = ' class="many"' if len(table.head) >= _MANY else ""
    yield f'<div class="wide" tabindex="0" role="region" aria-label="{name}">\n<table{many}>'
    yield (
        "<thead><tr>" + "".join(f'<th scope="col">{escape(h)}</th>' for h in table.head) + "</tr></thead>\n<tbody>"
    )
    for first, *rest in table.rows:
        cells = "".join(f"<td>{_cell(c)}</td>" for c in rest)
        yield f'<tr><th scope="row">{_cell(first)}</th>{cells}</tr>'
    yield "</tbody></table>\n</div>"


def _cell(cell: Cell) -> str:
    return escape(plain(cell) if isinstance(cell, Claim) else cell)
