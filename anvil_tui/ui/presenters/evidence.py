"""What an operation left behind: its bundles, their files, and whether they were checked here."""

from __future__ import annotations

from anvil_tui.core.bundle import Bundle
from anvil_tui.core.journal import OperationView
from anvil_tui.core.shelf import Shelf
from anvil_tui.ui import glyphs
from anvil_tui.ui.keymap import key
from anvil_tui.ui.presenters.cells import BLANK, Cell, Row, View, left, row, sentence, spread
from anvil_tui.ui.text import clock, literal

PASSED = {True: "passed", False: "not passed", None: "no verdict"}


def rows(operation: OperationView, view: View, width: int) -> list[Row]:
    """Nothing for an operation without gates; it makes no evidence."""
    if not operation.gates:
        return []
    out = [BLANK, row(Cell("Evidence", "accent"))]
    run = view.shelf.run_of(operation.id)
    if run is None:
        return [*out, *sentence("not read yet", width, "dim")]
    if run.error:
        out += sentence(f"{glyphs.BAD} {literal(run.error, 600)}", width, "bad")
    for bundle in run.bundles:
        out += _bundle(bundle, view, width)
    for name, why in run.broken.items():
        out += sentence(f"{glyphs.BAD} {literal(name, 120)} cannot be read: {literal(why, 600)}", width, "bad")
        out += verdict(view.shelf, name, view, width)
    if not run.bundles and not run.broken and not run.error:
        told = (
            "its bundle is written when its gates have ended" if operation.outcome is None else "it left no bundle"
        )
        out += sentence(told, width, "dim")
    return out


def _bundle(bundle: Bundle, view: View, width: int) -> list[Row]:
    head = [Cell(f"bundle {literal(bundle.id, 120)}  ", "strong"), Cell(PASSED[bundle.passed], "dim")]
    out = [spread(head, [], width), *verdict(view.shelf, bundle.id, view, width)]
    for name, digest in bundle.files.items():
        cells = [Cell("  "), left(literal(name), 36), Cell(f" sha256 {literal(digest)[:16]}", "dim")]
        out.append(spread(cells, [], width))
    return out


def verdict(shelf: Shelf, name: str, view: View, width: int) -> list[Row]:
    """Whether the bundle is what it was sealed as, by the last check that was asked for."""
    told = shelf.verified.get(name)
    if told is None:
        return sentence(
            f"not checked here: {key('view.verify')} checks it against its hashes and its journal",
            width,
            "dim",
            indent=2,
        )
    when = clock(told.at, view.zone)
    if told.found.problems:
        out = sentence(f"{glyphs.BAD} NOT SOUND, checked {when}:", width, "bad", indent=2)
        for text in told.found.problems:
            out += sentence(literal(text, 600), width, "bad", indent=4)
    else:
        out = sentence(f"{glyphs.DONE} sound, checked {when}", width, "good", indent=2)
    for text in told.found.unchecked:
        out += sentence(f"not proven: {literal(text, 400)}", width, "dim", indent=4)
    return out
