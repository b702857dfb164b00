"""What a qualification of a recipe would rest on if it were made now, as far as it can be read. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anvil_tui.core.box import Container
from anvil_tui.core.bundle import Identity
from anvil_tui.core.capacity import Proven
from anvil_tui.core.errors import Refused
from anvil_tui.core.gpus import resolve_gpus
from anvil_tui.core.holding import Holding, Past, behaviour, holding, newest, proven_for
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.screening import Ground
from anvil_tui.core.world import World


def holdings(world: World, pasts: Sequence[Past], suites: Mapping[str, str]) -> dict[str, Holding]:
    """By recipe id, of every usable recipe of the workspace. `suites` maps the id of a suite to its digest."""
    recipes = [f.recipe for f in world.recipes if f.recipe]
    return {r.id: holding(r, pasts, identity_now(r, world, suites, newest(r.id, pasts))) for r in recipes}


def proven(world: World, pasts: Sequence[Past]) -> dict[str, tuple[Proven, ...]]:
    """By recipe digest, of the workspace's recipes and of those that made the recorded serves."""
    recipes = [*(f.recipe for f in world.recipes if f.recipe), *world.stored.values()]
    return {r.digest(): found for r in recipes if (found := proven_for(r, pasts))}


def ground_of(world: World, recipe: Recipe) -> Ground:
    """What the screen of this recipe stands on now."""
    held = world.qualified.get(recipe.id)
    return Ground(
        world.workspace, world.gpus.value if world.gpus.ok else None, world.now_utc.date(), world.loads_kept,
        world.waivers, behaviour(held) if held else None,
    )  # fmt: skip


def identity_now(recipe: Recipe, world: World, suites: Mapping[str, str], past: Past | None) -> Identity:
    """Of a recipe, as far as it can be read now. `suites` maps the id of a suite to its digest."""
    container = _container(recipe, world, past.identity.container if past else None)
    found = container if isinstance(container, Container) else None
    engine = world.engines.get(found.id) if found else None
    snapshot = world.gpus.value if world.gpus.ok else None
    suite = past.identity.suite if past else None
    return Identity(
        recipe=recipe.id, recipe_digest=recipe.digest(), revision=recipe.model.revision or None,
        image=recipe.image.ref or None, image_id=found.image_id if found else world.images.get(recipe.image.ref),
        engine_version=engine.value.version if engine and engine.ok and engine.value else None,
        container=found.id if found else container if isinstance(container, str) else None,
        gpu_uuids=_gpus(recipe, world), driver=snapshot.driver if snapshot else None,
        suite=suite, suite_digest=suites.get(suite, "") if suite else None,
    )  # fmt: skip


def _container(recipe: Recipe, world: World, wanted: str | None) -> Container | str | None:
    """The one that was qualified, else another of the recipe; "" = there is none, None = nobody can tell."""
    if not world.containers.ok or world.containers.value is None:
        return None
    have = {c.id: c for c in world.containers.value}
    if wanted in have:
        return have[wanted]
    mine = [have[s.container_id] for s in world.record.serves.values()
            if s.recipe_id == recipe.id and s.container_id in have]  # fmt: skip
    return mine[0] if mine else ""


def _gpus(recipe: Recipe, world: World) -> tuple[str, ...] | None:
    if not recipe.gpus.select:
        return ()
    if not world.gpus.ok or world.gpus.value is None:
        return None
    try:
        return resolve_gpus(recipe.gpus.select, world.workspace.gpus.roles, world.gpus.value)
    except Refused:
        return None
