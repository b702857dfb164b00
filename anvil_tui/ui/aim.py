"""What a deed would hit now: what is under the cursor of the screen that is open."""

from __future__ import annotations

from textual.screen import Screen

from anvil_tui.core.world import World
from anvil_tui.ui.actions import Action
from anvil_tui.ui.policies import Target
from anvil_tui.ui.presenters.cells import View
from anvil_tui.ui.presenters.lifecycle import candidate
from anvil_tui.ui.screens.board import Board
from anvil_tui.ui.screens.listing import Gateway, Recipes


def aim(world: World, view: View, screen: Screen[object], action: Action) -> Target:
    """A candidate under the cursor is what promote means; a role in a list is what its own deeds mean."""
    kind, name = screen.line(view) if isinstance(screen, Board) else ("", "")
    role = name if kind == "role" and action.kind in ("role", "steps") else _role(world, view, screen)
    on = name if kind == "container" and action.kind == "serve" else view.serve
    recipe = _recipe(world, view, screen, action) if action.kind == "recipe" else ""
    return Target(on, role, recipe, _operation(world, view), target=name if kind == action.kind else "")


def _role(world: World, view: View, screen: Screen[object]) -> str:
    """Of the alias under the cursor on the gateway screen, else of the chosen serve, else the only one."""
    roles = world.workspace.roles
    if isinstance(screen, Gateway):
        aliased = [r.name for r in roles if view.alias in r.aliases]
        if aliased:
            return aliased[0]
    serve = world.serve(view.serve)
    if serve and serve.record:
        return serve.record.role
    return roles[0].name if len(roles) == 1 else ""


def _recipe(world: World, view: View, screen: Screen[object], action: Action) -> str:
    if isinstance(screen, Recipes):
        return view.recipe
    chosen = candidate(world, View(serve=view.serve)) if action.id == "recipe.promote" else None
    return chosen.name if chosen and chosen.container.id == view.serve and chosen.recipe else ""


def _operation(world: World, view: View) -> str:
    open_ones = [o.id for o in world.operations if o.outcome is None]
    return view.operation if view.operation in open_ones else (open_ones[-1] if open_ones else "")
