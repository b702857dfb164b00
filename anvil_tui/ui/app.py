"""The console's wiring: world in, keys out. Deeds live in `deeds`, what is shown in `presenters`."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import ClassVar

from rich.console import RenderableType
from textual import events
from textual._compositor import CompositorUpdate
from textual.app import App
from textual.screen import Screen

from anvil_tui.core.world import World
from anvil_tui.ui import clipboard, keymap, reads, terminal, theme
from anvil_tui.ui.actions import BY_VERB, Action
from anvil_tui.ui.aim import aim
from anvil_tui.ui.bridge import TICK_S, Bridge, WorldChanged
from anvil_tui.ui.deeds import Deeds
from anvil_tui.ui.modals.dialog import Dialog
from anvil_tui.ui.modals.picker import Picker
from anvil_tui.ui.painter import Painter
from anvil_tui.ui.palette import Palette
from anvil_tui.ui.policies import Target
from anvil_tui.ui.presenters import gates
from anvil_tui.ui.presenters.cells import View
from anvil_tui.ui.presenters.serves import subject
from anvil_tui.ui.replays import Replays
from anvil_tui.ui.ringer import Ringer
from anvil_tui.ui.screens.board import Board
from anvil_tui.ui.screens.overview import Overview
from anvil_tui.ui.seams import ConsoleOptions, ConsoleService
from anvil_tui.ui.shelves import Shelves
from anvil_tui.ui.text import literal
from anvil_tui.ui.widgets.strips import Strips
from anvil_tui.ui.widgets.tail import Tail

USAGE = 2


class Console(App[int], inherit_bindings=False):
    """Shows the World and sends intents. Without a control object there is nothing here that can change a box."""

    CSS_PATH: ClassVar = ["styles/base.tcss", "styles/overview.tcss", "styles/modals.tcss"]
    TITLE = "anvil"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny-w"), (61, "-narrow"), (100, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-tiny-h"), (17, "-short"), (30, "-tall"), (50, "-huge")]

    def __init__(self, service: ConsoleService, options: ConsoleOptions, *, autopump: bool = True) -> None:
        # Textual's grey filter still writes colour codes; with native ANSI colours it takes one that writes none.
        self.plain = "NO_COLOR" in os.environ
        super().__init__(ansi_color=True if self.plain else None)
        self.service, self.options = service, options
        self.world: World = service.store.world
        self.view = View(zone=UTC if options.utc else None)
        self._said_of = self.moved_from = ""
        self.silent_s = 0.0
        self.crash: Path | None = None
        self.deeds: Deeds | None = Deeds(self, service.deeds) if service.deeds is not None else None
        self.shelves: Shelves = Shelves(self, service.evidence)
        self.replays: Replays = Replays(self)
        self.palette: Palette = Palette(self)
        keymap.use(options.keys)
        self.by_key = keymap.by_key()
        self.ringer = Ringer(self.bell if options.bell else None)
        self.animation_level = "none"
        self.bridge: Bridge | None = None
        self._autopump = autopump
        self.followed: tuple[str, str | None] = ("", None)
        self._painter = Painter()
        for known in theme.THEMES.values():
            self.register_theme(known)
        self.theme, self.said = theme.named(literal(options.theme, 40))
        Strips.ascii_only = terminal.needs_ascii(os.environ) if options.ascii is None else options.ascii

    def on_mount(self) -> None:
        self.set_class(Strips.ascii_only, "-ascii")
        self.set_class(self.plain, "-mono")
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True, repaint=True))
        self.replays.listen()
        self.push_screen(Overview())
        self.call_after_refresh(lambda: threading.Thread(target=self.service.begin, daemon=True).start())
        if self._autopump:
            self.set_interval(TICK_S, lambda: self.bridge.tick() if self.bridge else None)

    def on_unmount(self) -> None:
        if self.bridge is not None:
            self.bridge.close()
        self.replays.end()
        self.service.follow(None)

    def copy_to_clipboard(self, text: str) -> None:
        self.say(clipboard.send(self, text))

    def backlog(self) -> int:
        """Writes that wait for the terminal. The attribute is Textual's own; without it the guard is off."""
        writer = getattr(self._driver, "_writer_thread", None)
        return writer._queue.qsize() if writer is not None else 0

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        if isinstance(renderable, CompositorUpdate):
            renderable = self._painter.of(renderable)
        super()._display(screen, renderable)

    # world and view

    def on_world_changed(self, event: WorldChanged) -> None:
        if not self.replays.shows(event.world):
            return
        self.world, self.silent_s = event.world, event.silent_s
        if any(o.state not in ("planned", "running") and o.id == self._said_of for o in self.world.operations):
            self.say("")
        self.ringer.hear(self.world)
        self._tell()
        self._follow()

    def _tell(self) -> None:
        self.view = gates.following(self.world, self.view)
        if not self.is_running:  # leaving: its screens have lost their lines
            return
        for screen in self.screen_stack:
            if isinstance(screen, Board | Dialog | Picker):
                screen.world_changed(self.world, self.view)
        self.shelves.tend()

    def look(self, view: View) -> None:
        self.view = view
        self._tell()
        self._follow()

    def _follow(self) -> None:
        """The log of what the screen is about. A container that was started again is followed again; a log that
        a person has paused stays, unless that person chooses another serve."""
        serve = subject(self.world, self.view)
        if serve is None:
            return
        wanted = (serve.container.id, serve.container.started_at)
        chosen = "serve" in self.view.picked and self.followed[0] != wanted[0]
        if wanted == self.followed or (self._paused() and not chosen):
            return
        self.followed = wanted
        self.service.follow(serve.container.id)

    def _paused(self) -> bool:
        return any(t.held is not None for s in self.screen_stack for t in s.query(Tail))

    def choose(self, field: str, key: str, lost: str = "", *, picked: bool = False) -> None:
        """The cursor moved. When a serve vanished under it, the next deed on it is dropped and said so."""
        if not field:
            return
        gone = bool(lost) and field == "serve" and self.world.serve(lost) is None
        self.moved_from = lost if gone else ("" if field == "serve" else self.moved_from)
        self.look(self.view.choosing(field, key, picked=picked))

    def say(self, text: str, operation: str = "") -> None:
        """One sentence in place of the hints, until the next key, or until the operation it is about has ended."""
        self.said, self._said_of = text, operation
        if isinstance(self.screen, Board):
            self.screen.show_hints()

    # keys and deeds

    async def on_event(self, event: events.Event) -> None:
        """Keys, pastes and clicks older than what a question shows were meant for something else: dropped."""
        if isinstance(event, events.Key | events.Paste | events.MouseEvent):
            if isinstance(self.screen, Dialog) and self.screen.yes and event.time < self.screen.armed_at:
                return
            said = self.said and isinstance(self.screen, Board)
            if said and isinstance(event, events.Key) and not event.is_forwarded:
                self.say("")
        await super().on_event(event)

    def dispatch(self, action: Action) -> None:
        """The one road to every action, whether by key or by palette."""
        if not action.mutates:
            reads.READS[action.id](self)
            return
        target = self.target(action)
        lost, self.moved_from = self.moved_from, ""
        if lost and action.kind in ("serve", "suite", "role"):
            now = self.world.serve(self.view.serve)
            name = literal(now.name, 60) if now else "nothing"
            self.say(
                f"{action.label} dropped: {lost[:12]} is gone, the cursor is on {name} now; press again if meant"
            )
            return
        reason = self.why(action)
        if reason is None and self.deeds is not None:
            self.deeds.begin(action, target)
        else:
            self.say(f"{action.label}: {reason or 'read-only: this console was started with --read-only'}")

    def why(self, action: Action) -> str | None:
        """Why it cannot run now; None when it can."""
        return self.replays.why_not(action) or action.policy(self.world, self.target(action))

    def why_verb(self, verb: str) -> str | None:
        return self.why(BY_VERB[verb])

    def target(self, action: Action) -> Target:
        """What the action would hit now."""
        return aim(self.world, self.view, self.screen, action)

    # leaving and crashing

    def leave(self, code: int) -> None:
        """Exit from any thread or signal handler."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(lambda: self.exit(code, return_code=code))

    def trace(self, error: BaseException) -> Path:
        self.crash = terminal.crash_file(error, self.options.crash_dir)
        return self.crash

    def _fatal_error(self) -> None:
        """Textual's own would print local variables, and with them secrets."""
        self.trace(self._exception or RuntimeError("ended without an exception"))
        self._close_messages_no_wait()

    def get_default_screen(self) -> Screen[object]:
        return Screen(id="_default")


def run(service: ConsoleService, options: ConsoleOptions) -> int:
    """The console until the operator leaves. Returns the exit code: 0, 1 after a crash, 128+n after a signal."""
    no = terminal.refusal(os.environ, (sys.stdin, sys.stdout, sys.stderr))
    if no:
        sys.stderr.write(no + "\n")
        return USAGE
    return _drive(Console(service, options), options.mouse)


def _drive(app: Console, mouse: bool, stderr: Callable[[str], object] = sys.stderr.write) -> int:
    guard = terminal.Guard(app.leave)
    with guard.watching():
        app.run(mouse=mouse)
    if guard.signal is not None:
        return 128 + guard.signal
    if app.crash is not None and app.return_code:
        stderr(
            f"anvil-tui: the console failed; what it was doing is in {app.crash}. Serves and operations go on.\n"
        )
    return app.return_code or 0
