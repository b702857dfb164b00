"""O-95, O-98 by their whole kind: every presenter draws every text of the World literally and within its width."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC

import pytest
from rich.cells import cell_len

from anvil_tui.core.recording import Kept
from anvil_tui.core.shelf import Shelf
from anvil_tui.core.world import World
from anvil_tui.ui import presenters
from anvil_tui.ui.presenters import header, lifecycle, palette, standing, storage, tiny
from anvil_tui.ui.presenters.cells import Panel, Row, View, width_of
from anvil_tui.ui.widgets.strips import Strips
from tests.support import measured, standings, tapes, worlds
from tests.support.foreign import POISONS, poisoned

Panels = Callable[[World, View, int, int], Panel]
WORLDS = {
    "promoting": worlds.promoting, "degraded": worlds.degraded, "alarmed": worlds.alarmed, "stale": worlds.stale,
    "wired": standings.wired, "drilled": standings.drilled, "broken": standings.broken, "busy": standings.busy,
    "measured": measured.measured, "shelf": measured.shelf_of_bundles, "evicted": standings.evicted,
    "sixteen": worlds.many_gpus,
}  # fmt: skip
# What a terminal obeys or a reader is deceived by: controls, surrogates, and everything that is drawn as nothing.
INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp")


def panels() -> dict[str, Panels]:
    """Every function of the presenters that draws a pane."""
    found: dict[str, Panels] = {}
    for info in pkgutil.iter_modules(presenters.__path__):
        module = importlib.import_module(f"{presenters.__name__}.{info.name}")
        for name, made in inspect.getmembers(module, inspect.isfunction):
            takes = list(inspect.signature(made).parameters)
            if made.__module__ == module.__name__ and takes == ["world", "view", "width", "height"]:
                found[f"{info.name}.{name}"] = made
    return found


PANELS = panels()


def test_every_pane_is_among_them() -> None:
    assert {"serves.panel", "history.moments_panel", "storage.list_panel", "tiny.panel"} <= set(PANELS)
    assert len(PANELS) >= 25


@pytest.mark.parametrize("poison", POISONS.values(), ids=list(POISONS))
@pytest.mark.parametrize("name", list(WORLDS))
def test_every_text_is_drawn_literally_and_in_its_width(name: str, poison: str) -> None:
    """O-95, O-98: each pane with its items chosen, the lines around the panes, and the lists of dialogs."""
    world = poisoned(WORLDS[name](), poison)
    view = View(zone=UTC, shelf=shelf(poison))
    pen = Strips()
    for width in (117, 77):
        for row in drawn(world, view, width):
            text = "".join(pen._text(c.text) for c in row.cells)
            bad = {ch for ch in text if unicodedata.category(ch) in INVISIBLE}
            assert not bad, (ascii(text), bad)
            assert cell_len(text) <= width, text
    for row in tiny.panel(world, view, 37, 10).rows:
        assert width_of(row.cells) <= 37, row


@pytest.mark.parametrize("poison", ["[/b] [", "模型👩"])
def test_brackets_and_wide_names_are_readable_in_full(poison: str) -> None:
    """O-95: the text itself stands there, in the pane of one serve and of one operation."""
    world = poisoned(worlds.promoting(), poison)
    view = View(zone=UTC)
    serve = world.serves[0]
    label = serve.container.name
    for name, chosen_view, text in (
        ("details.serve_panel", replace(view, serve=serve.container.id), label),
        ("operations.detail_panel", view, world.operations[-1].target),
    ):
        panel = PANELS[name](world, chosen_view, 117, 40)
        said = "\n".join([panel.title, *("".join(c.text for c in r.cells) for r in panel.rows)])
        assert poison in text and text in said, name


def shelf(poison: str) -> Shelf:
    kept: Kept = tapes.FakePast(tapes.hour()).kept()
    moments = tuple(poisoned(m, poison) for m in kept.index.moments)
    ran = tuple(poisoned(r, poison) for r in kept.index.ran)
    index = replace(kept.index, moments=moments, ran=ran, damage=f"line 3{poison}")
    history = replace(kept, index=index, note=f"pid 7{poison}", where=f"/box{poison}")
    return Shelf(disks=poisoned(standings.disks(), poison), history=history)


def drawn(world: World, view: View, width: int) -> Iterator[Row]:
    for panel in PANELS.values():
        yield from panel(world, view, width, 30).rows
    for serve in world.serves[:2]:
        for name in ("details.serve_panel", "capacity.panel"):
            yield from PANELS[name](world, replace(view, serve=serve.container.id), width, 30).rows
    yield header.header(world, view, width)
    yield from lifecycle.strip(world, view, width, lambda verb: f"no{verb}")
    yield from palette.rows("", palette.entries(world, view, lambda action: "why"), (), width)
    for kind in ("client", "credential"):
        yield from standing.choices(world, kind, "", width)
    if view.shelf.disks:
        yield from storage.choices(view.shelf.disks, "", width)
