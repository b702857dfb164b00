"""From now to a moment that was recorded and back: another service behind the same screens.

While a replay is shown there is no control object in the console's hands; its own service waits, reading on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING

from anvil_tui.core.errors import AnvilError
from anvil_tui.core.recording import Kept
from anvil_tui.core.shelf import Shelf
from anvil_tui.core.times import utc_text, when
from anvil_tui.core.world import World
from anvil_tui.ui.actions import Action
from anvil_tui.ui.bridge import Bridge, WorldChanged
from anvil_tui.ui.deeds import Deeds
from anvil_tui.ui.keymap import key
from anvil_tui.ui.modals.dialog import Dialog, sentence_panel
from anvil_tui.ui.presenters.history import moment_of
from anvil_tui.ui.screens.overview import Overview
from anvil_tui.ui.seams import ConsoleService, Player
from anvil_tui.ui.shelves import Shelves
from anvil_tui.ui.text import literal
from anvil_tui.ui.widgets.tail import Tail
from anvil_tui.ui.work import off_loop

if TYPE_CHECKING:
    from anvil_tui.ui.app import Console

NONE_KEPT = "history: nothing is recorded without a workspace"


class Replays:
    """`home` is the service to which esc returns, None while it is the one that is shown."""

    def __init__(self, app: Console) -> None:
        self.app = app
        self.home: ConsoleService | None = None
        self._busy = False

    @property
    def player(self) -> Player | None:
        return self.app.service.player

    def why_not(self, action: Action) -> str | None:
        """Why an action that changes the box cannot run; None outside of a replay."""
        if self.player is None or not action.mutates:
            return None
        then = self.app.world.now_utc.astimezone(self.app.view.zone)
        way = (
            f"{key('view.back')} returns to now"
            if self.home
            else "it is a file, and no box can be changed from it"
        )
        return f"this is a replay of {then:%Y-%m-%d %H:%M:%S %Z}; {way}"

    # what was recorded

    def look(self) -> None:
        """Read what is kept, for the history screen."""
        source = self.app.service.history
        if source is None:
            self._looked(AnvilError(NONE_KEPT))
        else:
            off_loop(self.app, source.kept, self._looked)

    def _looked(self, found: Kept | AnvilError) -> None:
        made = Kept(error=str(found)) if isinstance(found, AnvilError) else found
        self.app.look(replace(self.app.view, shelf=replace(self.app.view.shelf, history=made)))

    def export(self) -> None:
        source = self.app.service.history
        if source is None:
            self.app.say(NONE_KEPT)
            return
        self.app.say("export: writing")
        off_loop(self.app, partial(source.export, self.app.world), self._exported)

    def _exported(self, path: str | AnvilError) -> None:
        self.app.say(f"export: {path}" if isinstance(path, AnvilError) else f"export: wrote {literal(path, 400)}")

    # going there and back

    def enter(self, chosen: str) -> None:
        """To the chosen span or moment."""
        self.go(moment_of(self.app.view, chosen))

    def go(self, at: str) -> None:
        """To this UTC text. A deed that is being prepared is about now, so it is decided first."""
        source = self.app.service.history
        if not at or source is None or self._busy:
            return
        if self.player is not None:
            self.player.jump(at, after=True)
            self._to_overview()
            return
        self._busy = True
        off_loop(self.app, partial(source.replay, at), self._ready)

    def _ready(self, made: ConsoleService | AnvilError) -> None:
        self._busy = False
        if isinstance(made, AnvilError):
            self.app.say(f"replay: {made}")
        elif self.app.deeds is not None and self.app.deeds.pending:
            if made.player:
                made.player.close()
            self.app.say("replay: a deed is being prepared; decide on it first")
        else:
            self.home = self.app.service
            self._attach(made)
            self._to_overview()

    def leave(self) -> None:
        """Back to now. In the console on a file there is no now."""
        home, player = self.home, self.player
        if home is None or player is None:
            return
        self.home = None
        player.close()
        self._attach(home)

    def end(self) -> None:
        """The console closes: what it leaves is the service that reads the box."""
        if self.player is not None:
            self.player.close()
        self.app.service, self.home = self.home or self.app.service, None

    def _attach(self, service: ConsoleService) -> None:
        """Show the worlds of this service from now on, with its deeds at hand and no others."""
        app = self.app
        if app.bridge is not None:
            app.bridge.close()
        app.service, app.shelves = service, Shelves(app, service.evidence)
        app.view = replace(app.view, shelf=Shelf(history=app.view.shelf.history))  # all else is of the other one
        app.deeds = Deeds(app, service.deeds) if service.deeds is not None else None
        app.moved_from, app.followed = "", ("", None)
        self.listen()
        app.on_world_changed(WorldChanged(service.store.world))

    def listen(self) -> None:
        """To the store of the service that is shown. A replay that stands still is not silent."""
        clock = time.monotonic if self.player is None else lambda: 0.0
        app = self.app
        app.bridge = Bridge(
            app.service.store, app.post_message, app.backlog, clock, lambda: isinstance(app.focused, Tail)
        )

    def shows(self, world: World) -> bool:
        """Whether this world is of the service that is shown, and not a late one of the service before it."""
        if world.replayed is not (self.player is not None):
            return False
        self.app.view = replace(self.app.view, replay=self.player.state if self.player else None)
        return True

    def _to_overview(self) -> None:
        while not isinstance(self.app.screen, Overview):
            self.app.pop_screen()

    # moves

    def move(self, action: str) -> None:
        player = self.player
        if player is None:
            self.app.say(f"there is no replay: {key('view.history')} shows what was recorded")
            return
        if action == "replay.jump":
            self._ask_when(player)
        else:
            MOVES[action](player)

    def _ask_when(self, player: Player) -> None:
        zone = self.app.view.zone
        then = self.app.world.now_utc.astimezone(zone)
        panel = sentence_panel(
            "Jump to a time",
            f"The replay stands at {then:%Y-%m-%d %H:%M:%S %Z}. 14:05, 2026-09-02 14:05, or 15m (before)",
        )
        dialog = Dialog(panel, "Jump", ask="Time:")
        self.app.push_screen(dialog, partial(self._asked_when, player))

    def _asked_when(self, player: Player, text: str | None) -> None:
        if text is None:
            return
        try:
            at = when(text, self.app.world.now_utc, self.app.view.zone)
        except ValueError as why:
            self.app.say(literal(why, 200))
        else:
            player.jump(utc_text(at.astimezone(UTC)))


MOVES: dict[str, Callable[[Player], None]] = {
    "replay.play": lambda player: player.toggle(),
    "replay.before": lambda player: player.event(-1),
    "replay.after": lambda player: player.event(1),
    "replay.back": lambda player: player.step(-1),
    "replay.on": lambda player: player.step(1),
    "replay.slower": lambda player: player.faster(-1),
    "replay.faster": lambda player: player.faster(1),
}
