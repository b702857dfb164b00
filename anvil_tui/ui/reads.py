"""What the read-only actions do: screens, filter, help, palette, clipboard, quit."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING

from anvil_tui.ui import terminal
from anvil_tui.ui.deeds import help_dialog, quit_dialog
from anvil_tui.ui.modals.dialog import Dialog, sentence_panel
from anvil_tui.ui.presenters.help import help_rows
from anvil_tui.ui.replays import MOVES
from anvil_tui.ui.screens.board import MIXED, Board
from anvil_tui.ui.screens.listing import SCREENS, Detail, Gates, History, Storage
from anvil_tui.ui.screens.overview import Overview
from anvil_tui.ui.text import literal
from anvil_tui.ui.theme import after
from anvil_tui.ui.widgets.tail import Tail

if TYPE_CHECKING:
    from anvil_tui.ui.app import Console

Read = Callable[["Console"], None]


def _board(app: Console) -> Board | None:
    return app.screen if isinstance(app.screen, Board) else None


def show_help(app: Console) -> None:
    app.push_screen(help_dialog(lambda width: help_rows(app.why, width)))


def set_filter(app: Console) -> None:
    board = _board(app)
    name = board.filter_name() if board else ""
    if not name:
        app.say("filter: this pane has none; serves, log, recipes, operations and bundles do")
        return
    dialog = Dialog(
        sentence_panel(f"Filter {name}", "Only rows with this text are shown. Empty shows all."),
        "Filter", ask="Text:", text=app.view.filter_of(name),
    )  # fmt: skip
    app.push_screen(dialog, lambda text: _filtered(app, name, text))


def _filtered(app: Console, name: str, text: str | None) -> None:
    if text is None:
        return
    others = tuple(f for f in app.view.filters if f[0] != name)
    app.look(replace(app.view, filters=(*others, (name, text)) if text else others))


def back(app: Console) -> None:
    """The filter of the pane with the focus first, then that of another pane that is shown."""
    board = _board(app)
    active = [name for name in board.filter_names() if app.view.filter_of(name)] if board else []
    if active:
        _filtered(app, active[0], "")
    elif not isinstance(app.screen, Overview):
        app.pop_screen()
    else:
        app.replays.leave()


def overview(app: Console) -> None:
    while not isinstance(app.screen, Overview):
        app.pop_screen()


def opener(action_id: str) -> Read:
    def open_screen(app: Console) -> None:
        if isinstance(app.screen, SCREENS[action_id]):
            return
        overview(app)
        app.push_screen(SCREENS[action_id]())

    return open_screen


def detail(app: Console) -> None:
    """The focused pane's item in full."""
    board = _board(app)
    pane = board.focused_pane() if board else None
    if board is None or pane is None or isinstance(board, Detail):
        return
    if isinstance(board, History):
        app.replays.enter(pane.cursor)
        return
    field = pane.field or ("serve" if app.world.serve(pane.cursor) else "gpu" if pane.cursor else "")
    if field in ("operation", "gate") and isinstance(board, Overview):
        opener(f"view.{field}s")(app)
    elif field in Detail.BUILDS and pane.cursor:
        app.push_screen(Detail(field))
    elif isinstance(pane, Tail) and isinstance(board, Overview):
        opener("view.logs")(app)


def cycler(by: int) -> Read:
    def cycle(app: Console) -> None:
        board = _board(app)
        if board is not None:
            board.cycle(by)

    return cycle


def pause(app: Console) -> None:
    for tail in app.screen.query(Tail):
        tail.toggle()
    if isinstance(app.screen, Gates):
        app.look(replace(app.view, picked=app.view.picked - {"gate"}))


def zone(app: Console) -> None:
    app.look(replace(app.view, zone=None if app.view.zone is UTC else UTC))


def theme(app: Console) -> None:
    if app.plain:
        app.say("theme: NO_COLOR is set, so no theme has colours")
        return
    app.theme = after(app.theme)
    app.say(f'theme: {app.theme}; `theme = "{app.theme}"` in your settings keeps it')


def copy(app: Console) -> None:
    """The selected id in full; of the log every line that it shows, also those above its edge."""
    board = _board(app)
    pane = board.focused_pane() if board else None
    key = str(getattr(app.view, board.field)) if isinstance(board, Detail) else (pane.cursor if pane else "")
    if board and board.field in MIXED:
        key = key.partition(":")[2]
    text = pane.whole_text() if isinstance(pane, Tail) else literal(key)
    if not text:
        app.say("copy: nothing is selected in this pane")
        return
    app.copy_to_clipboard(text)


def redraw(app: Console) -> None:
    if isinstance(app.screen, Storage):
        app.shelves.look_at_disks()
    if isinstance(app.screen, History):
        app.replays.look()
    app.refresh(layout=True, repaint=True)


def suspend(app: Console) -> None:
    """Textual stops only its own process; a shell sees the job stop when all of it does."""
    if app._driver is None or not app._driver.can_suspend or not terminal.has_shell():
        app.say("suspend: no shell would take this console up again")
        return
    app._suspend_signal()
    os.killpg(0, signal.SIGTSTP)


def leave(app: Console) -> None:
    running = [o for o in app.world.operations if o.outcome is None and o.alive]
    if not running:
        app.exit(0, return_code=0)
        return
    text = (
        f"{running[-1].kind} {literal(running[-1].target, 200)} is running in its own process and goes on without "
        "this console. Open the console again to see how it ends."
    )
    app.push_screen(quit_dialog(text), lambda answer: None if answer is None else app.exit(0, return_code=0))


def _move(name: str, app: Console) -> None:
    app.replays.move(name)


READS: dict[str, Read] = {
    "view.help": show_help,
    "view.palette": lambda app: app.palette.open(),
    "view.filter": set_filter,
    "view.overview": overview,
    **{name: opener(name) for name in SCREENS},
    "view.arm": lambda app: app.replays.move("replay.play") if app.world.replayed else app.shelves.arm(),
    "view.export": lambda app: app.replays.export(),
    **{name: partial(_move, name) for name in (*MOVES, "replay.jump")},
    "view.verify": lambda app: app.shelves.verify(),
    "view.detail": detail,
    "view.back": back,
    "view.next": cycler(1),
    "view.previous": cycler(-1),
    "view.pause": pause,
    "view.zone": zone,
    "view.theme": theme,
    "view.copy": copy,
    "view.redraw": redraw,
    "view.suspend": suspend,
    "view.quit": leave,
}
