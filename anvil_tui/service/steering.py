"""What a person may ask of an operation that runs: to wait, to go on, to go back. The first who asks is heard."""

from __future__ import annotations

from dataclasses import replace

from anvil_tui.core.errors import NotFound, Refused
from anvil_tui.core.journal import OperationView
from anvil_tui.service.box import Box


def live(box: Box, operation: str) -> OperationView:
    """The operation now, with `alive` as the lease tells: it is held by its process, whatever pid that has."""
    view = next((v for v in box.operations.views() if v.id == operation), None)
    if view is None:
        raise NotFound(f"no operation {operation!r}; `anvil-tui operations list`")
    holder = box.lease.holder()
    return replace(view, alive=bool(holder and holder.operation == view.id))


def cancel(box: Box, operation: str, reason: str) -> None:
    """Ask it to go back. Refused when it does not run, has decided, or was asked by somebody already."""
    view = live(box, operation)
    if not view.alive and view.state != "planned":  # its process may be about to begin
        what = f"`operations undo {view.id}` takes it back" if view.needs_person else "there is nothing to cancel"
        raise Refused(f"operation {view.id} is {view.state} and does not run: {what}")
    if view.decision:
        raise Refused(f"operation {view.id} has decided ({view.decision}): it ends by itself")
    box.operations.ask_cancel(view.id, reason)


def pause(box: Box, operation: str, on: bool) -> None:
    """Have its gates (or, step by step, its next step) wait or go on. Refused when it does not run."""
    view = live(box, operation)
    if not view.alive:
        raise Refused(f"operation {view.id} is {view.state}: only a running one can be paused or let go on")
    asked = box.operations.cancel_asked(view.id)
    if asked is not None and not on:
        raise Refused(f"operation {view.id} was asked to go back ({asked.strip()}): it does not go on")
    box.operations.pause(view.id, on)
