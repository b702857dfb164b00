"""Fetches what the open screen needs of the disk, in threads, and puts it on the view's shelf."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from anvil_tui.core.errors import AnvilError
from anvil_tui.core.gates import Verdict
from anvil_tui.core.journal import OperationView
from anvil_tui.core.shelf import Compared, Disks, RunFiles, Shelf, Verified
from anvil_tui.ui.keymap import key
from anvil_tui.ui.presenters import gates, operations, recipes
from anvil_tui.ui.screens.listing import Compare, Detail, Gates, Operations, Recipes, Storage
from anvil_tui.ui.seams import Evidence
from anvil_tui.ui.work import off_loop

if TYPE_CHECKING:
    from anvil_tui.ui.app import Console

_SETTLED = frozenset(Verdict)
_REMOVING = ("remove", "unload")


class Shelves:
    """One run at a time is read, again when a gate has ended; comparisons and checks only when asked for."""

    def __init__(self, app: Console, evidence: Evidence) -> None:
        self.app, self.evidence = app, evidence
        self._have: tuple[object, ...] = ()
        self._removed: tuple[str, ...] | None = None
        self.busy = False

    @property
    def shelf(self) -> Shelf:
        return self.app.view.shelf

    def _put(self, shelf: Shelf) -> None:
        """What comes late, of a service that is not shown any more, is dropped."""
        if self.app.shelves is self:
            self.app.look(replace(self.app.view, shelf=shelf))

    # the run on the screen

    def tend(self) -> None:
        """Called at every change: reads the run that the screen is about, unless it was read as it is."""
        self._tend_disks()
        operation = self._subject()
        if operation is None or self.busy:
            return
        ended = sum(g.verdict in _SETTLED for g in operation.gates)
        wanted = (operation.id, operation.outcome, operation.state, ended)
        if wanted == self._have:
            return
        self._have, self.busy = wanted, True
        off_loop(self.app, partial(self.evidence.run, operation.id), partial(self._ran, operation.id))

    def _subject(self) -> OperationView | None:
        world, view, screen = self.app.world, self.app.view, self.app.screen
        if isinstance(screen, Gates) or (isinstance(screen, Detail) and screen.field == "gate"):
            return gates.of_operation(world, view)
        if isinstance(screen, Operations) or (isinstance(screen, Detail) and screen.field == "operation"):
            found = operations.chosen(world, view)
            return found if found and found.gates else None
        return None

    def _ran(self, operation: str, run: RunFiles | AnvilError) -> None:
        self.busy = False
        self._put(
            replace(self.shelf, run=RunFiles(operation, error=str(run)) if isinstance(run, AnvilError) else run)
        )

    # disks

    def _tend_disks(self) -> None:
        """Once when the screen opens, and again when something was removed while it is open."""
        if not isinstance(self.app.screen, Storage):
            self._removed = None
            return
        removed = tuple(o.id for o in self.app.world.operations if o.kind in _REMOVING and o.outcome)
        if removed != self._removed:
            self._removed = removed
            self.look_at_disks()

    def look_at_disks(self) -> None:
        off_loop(self.app, self.app.service.disks, self.looked_at_disks)

    def looked_at_disks(self, found: Disks | AnvilError) -> None:
        if isinstance(found, AnvilError):
            found = Disks(self.app.world.now_utc.isoformat(), error=str(found))
        self._put(replace(self.shelf, disks=found))

    # comparisons

    def arm(self) -> None:
        """The bundle under the cursor into the next arm; with both arms filled they are compared."""
        if isinstance(self.app.screen, Recipes):
            self.app.look(recipes.marking(self.app.view))
            return
        if not isinstance(self.app.screen, Compare):
            self.app.say(f"arms are chosen on the compare screen: {key('view.compare')} opens it")
            return
        bundle = self.app.view.bundle
        if bundle in self.app.world.broken_bundles or not any(p.id == bundle for p in self.app.world.pasts):
            self.app.say("this bundle cannot be read, so it cannot be compared")
            return
        shelf = self.shelf.cycled(bundle)
        self._put(shelf)
        if shelf.comparing:
            off_loop(self.app, partial(self.evidence.compare, shelf.arms), partial(self._compared, shelf.arms))

    def _compared(self, arms: Mapping[str, str], found: Compared | AnvilError) -> None:
        """What comes back for arms that are no longer chosen is dropped."""
        if arms == self.shelf.arms:
            made = Compared(error=str(found)) if isinstance(found, AnvilError) else found
            self._put(replace(self.shelf, compared=made, comparing=False))

    # checks

    def verify(self) -> None:
        names = self._bundles()
        if not names:
            self.app.say("verify: no bundle is selected here; compare, gates and operations have them")
            return
        self.app.say(f"verify: reading {', '.join(names)}")
        off_loop(self.app, partial(self.evidence.verify, names), self._verified)

    def _bundles(self) -> tuple[str, ...]:
        screen = self.app.screen
        if isinstance(screen, Compare) or (isinstance(screen, Detail) and screen.field == "bundle"):
            return (self.app.view.bundle,) if self.app.view.bundle else ()
        operation = self._subject()
        run = self.shelf.run_of(operation.id) if operation else None
        return (*(b.id for b in run.bundles), *run.broken) if run else ()

    def _verified(self, found: Mapping[str, Verified] | AnvilError) -> None:
        if isinstance(found, AnvilError):
            self.app.say(f"verify: {found}")
            return
        bad = [name for name, told in found.items() if told.found.problems]
        self.app.say(f"verify: {', '.join(bad)} IS NOT SOUND" if bad else f"verify: {', '.join(found)} is sound")
        self._put(replace(self.shelf, verified={**self.shelf.verified, **found}))
