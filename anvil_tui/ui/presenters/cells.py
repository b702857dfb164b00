"""Cells, rows and panels: what every presenter returns and every pane draws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Literal, NamedTuple, get_args

from rich.cells import cell_len

from anvil_tui.core.recording import Playing
from anvil_tui.core.shelf import Shelf
from anvil_tui.ui.text import clip, fit, literal, pad, rpad, wrap

Tone = Literal["text", "strong", "dim", "faint", "good", "warn", "bad", "accent", "spark", "mark", "line"]
TONES: tuple[Tone, ...] = get_args(Tone)


class Cell(NamedTuple):
    """A run of text in one tone."""

    text: str
    tone: Tone = "text"


class Row(NamedTuple):
    """One line. Lines with the same non-empty `key` are one item that can be selected."""

    cells: tuple[Cell, ...]
    key: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """What a pane shows: title and note in its rule, and rows. `note` is where STALE and ERROR stand."""

    title: str
    rows: tuple[Row, ...]
    note: Cell | None = None


@dataclass(frozen=True, slots=True)
class View:
    """What is looked at: keys, never positions. `zone` None = this machine's own.

    `picked` names the key fields that a person set; the others are where the cursor stands by default.
    `marked` are recipes to be compared, two at most.
    `shelf` is what was read of the disk for the screen that is open. `replay` says where one stands, None = now.
    """

    serve: str = ""
    gpu: str = ""
    operation: str = ""
    recipe: str = ""
    gate: str = ""
    bundle: str = ""
    standing: str = ""
    stored: str = ""
    span: str = "all"
    moment: str = ""
    alias: str = ""
    marked: tuple[str, ...] = ()
    zone: tzinfo | None = None
    filters: tuple[tuple[str, str], ...] = ()
    picked: frozenset[str] = frozenset()
    shelf: Shelf = Shelf()
    replay: Playing | None = None

    def choosing(self, field_name: str, key: str, *, picked: bool = False) -> View:
        """The same view with another key in one of the key fields, set by a person or not."""
        by_person = self.picked | {field_name} if picked else self.picked - {field_name}
        return replace(self, picked=by_person, **{field_name: key})  # type: ignore[arg-type]

    def filter_of(self, pane: str) -> str:
        return dict(self.filters).get(pane, "")


BLANK = Row(())


def titled(name: str, wanted: str, shown: int, total: int) -> str:
    """The title of a list: how many there are, and with a filter how many of them are shown."""
    return f'{name} filter "{literal(wanted, 20)}" {shown}/{total}' if wanted else f"{name} {total}"


def row(*cells: Cell | str, key: str = "") -> Row:
    return Row(tuple(c if isinstance(c, Cell) else Cell(c) for c in cells), key)


def width_of(cells: Iterable[Cell]) -> int:
    return sum(cell_len(c.text) for c in cells)


def spread(left: Sequence[Cell], right: Sequence[Cell], width: int, key: str = "") -> Row:
    """`left` and `right` at the two ends of `width` cells; the left gives way."""
    room = width - width_of(right)
    kept = cut_row(left, room - 1 if right else room)
    gap = room - width_of(kept)
    return Row((*kept, Cell(" " * max(0, gap)), *right), key)


def cut_row(cells: Iterable[Cell], width: int) -> tuple[Cell, ...]:
    """The cells that fit in `width`; the one on the edge is cut with a mark."""
    out: list[Cell] = []
    left = width
    for cell in cells:
        if left <= 0:
            break
        text = clip(cell.text, left)
        out.append(Cell(text, cell.tone))
        if text != cell.text:
            break
        left -= cell_len(text)
    return tuple(out)


def joined(parts: Iterable[Sequence[Cell]], gap: str = " · ") -> list[Cell]:
    """Groups of cells with a faint separator between them; empty groups vanish."""
    out: list[Cell] = []
    for part in parts:
        if not part:
            continue
        if out:
            out.append(Cell(gap, "line"))
        out.extend(part)
    return out


def left(text: str, width: int, tone: Tone = "text") -> Cell:
    return Cell(pad(text, width), tone)


def right(text: str, width: int, tone: Tone = "text") -> Cell:
    return Cell(rpad(text, width), tone)


def middle(text: str, width: int, tone: Tone = "text") -> Cell:
    return Cell(fit(text, width), tone)


def heading(title: str, width: int, note: str = "") -> Row:
    """The title of a part of a panel."""
    return spread([Cell(title, "accent"), Cell(f"  {note}" if note else "", "dim")], [], width)


def sentence(
    text: str, width: int, tone: Tone = "text", *, indent: int = 0, key: str = "", most: int = 0
) -> list[Row]:
    """A sentence over as many rows as it needs; with `most`, over that many at most, the cut marked."""
    gap, room = " " * indent, max(8, width - indent)
    parts = wrap(text, room)
    if most and len(parts) > most:
        parts = [*parts[: most - 1], clip(" ".join(parts[most - 1 :]), room)]
    return [Row((Cell(gap + part, tone),), key) for part in parts]


def item(head: Sequence[Cell], text: str, tone: Tone, tail: Sequence[Cell], width: int) -> list[Row]:
    """A marked line with something at its right end; a long text goes on below itself."""
    indent = width_of(head)
    first, *more = wrap(text, max(8, width - indent - width_of(tail) - (1 if tail else 0)))
    rows = [spread([*head, Cell(first, tone)], tail, width)]
    return [*rows, *(row(" " * indent, Cell(part, tone)) for part in more)]


def facts(pairs: Iterable[tuple[str, str | Sequence[Cell]]], width: int, label: int = 13) -> list[Row]:
    """Label and value lines; long values of one cell wrap under themselves, others are cut with a mark."""
    out: list[Row] = []
    for name, value in pairs:
        head = Cell(pad(name, label), "dim")
        cells = [Cell(value)] if isinstance(value, str) else value
        if len(cells) != 1:
            out.append(Row(cut_row([head, *cells], width)))
            continue
        first, *more = wrap(cells[0].text, max(8, width - label))
        out.append(row(head, Cell(first, cells[0].tone)))
        out.extend(row(" " * label, Cell(part, cells[0].tone)) for part in more)
    return out
