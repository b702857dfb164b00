"""What follows a choice of the palette: the action runs, or the thing's screen opens with the cursor on it."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from anvil_tui.ui.actions import REGISTRY
from anvil_tui.ui.modals.picker import Picker
from anvil_tui.ui.presenters import palette
from anvil_tui.ui.screens.overview import Overview

if TYPE_CHECKING:
    from anvil_tui.ui.app import Console

REMEMBERED = 5
# Of each kind: the action that opens its screen, the choice of the View, the filter that could hide it.
_PLACES = {
    "serve": ("view.overview", "serve", "serves"), "GPU": ("view.overview", "gpu", ""),
    "recipe": ("view.recipes", "recipe", "recipes"), "operation": ("view.operations", "operation", "operations"),
    "gate": ("view.gates", "gate", ""), "bundle": ("view.compare", "bundle", "bundles"),
    "alias": ("view.gateway", "alias", ""), "role": ("view.standing", "standing", ""),
    "credential": ("view.standing", "standing", ""), "client": ("view.standing", "standing", ""),
}  # fmt: skip


class Palette:
    """`recent` are the last choices, the newest last."""

    def __init__(self, app: Console) -> None:
        self.app = app
        self.recent: deque[str] = deque(maxlen=REMEMBERED)

    def open(self) -> None:
        app = self.app

        def known() -> list[palette.Entry]:
            return palette.entries(app.world, app.view, app.why)

        picker = Picker(
            "Commands and things", lambda text, width: palette.rows(text, known(), self.recent, width),
            lambda key: palette.why_closed(known(), key), begin=palette.begin,
        )  # fmt: skip
        app.push_screen(picker, self._chosen)

    def _chosen(self, key: str | None) -> None:
        if key is None:
            return
        wanted = key.removeprefix(palette.AGAIN)
        if wanted in self.recent:
            self.recent.remove(wanted)
        self.recent.append(wanted)
        kind, _, name = wanted.partition(":")
        if kind in _PLACES:
            self.land(kind, name)
        else:
            self.app.dispatch(REGISTRY[name])

    def land(self, kind: str, name: str) -> None:
        """Open the screen of a thing with the cursor on it. A filter that could hide it is cleared, and told."""
        app = self.app
        action, field, filtered = _PLACES[kind]
        key = f"{kind}:{name}" if field == "standing" else name
        hidden = bool(filtered and app.view.filter_of(filtered))
        filters = tuple(f for f in app.view.filters if f[0] != filtered)
        app.view = replace(app.view.choosing(field, key, picked=True), filters=filters)
        app.dispatch(REGISTRY[action])
        if isinstance(app.screen, Overview):
            app.screen.stand_on(f"{field}s" if field == "serve" else "gpus", key)
        app.look(app.view)
        if hidden:
            app.say(f"the filter of {filtered} was cleared")
