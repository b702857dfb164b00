"""Whether the way back exists, for each role: everything that a rollback would need, looked at now. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from anvil_tui.core.box import Container
from anvil_tui.core.workspace import Role
from anvil_tui.core.world import Readiness, ServeRecord, World


def readiness(world: World, role: Role) -> Readiness:
    """`target` is the recipe that a rollback of the role returns to; unknown is missing too."""
    held = world.record.roles.get(role.name)
    if held is None or not held.rollback:
        return Readiness("", ("nothing was promoted over an earlier serve",))
    back = world.record.serves.get(held.rollback[0])
    if back is None:
        return Readiness(held.rollback[0][:12], ("its record in state/box.json",))
    return Readiness(back.recipe_id, tuple(_missing(world, back, held.incumbent)))


def _missing(world: World, back: ServeRecord, incumbent: str) -> Iterator[str]:
    recipe = world.exact_recipe(back.recipe_digest, back.recipe_id)
    if recipe is None:
        yield f"the exact recipe {back.recipe_id} ({back.recipe_digest[:12]})"
    elif recipe.image.ref not in world.images:
        yield "the image was not looked up yet"
    elif world.images[recipe.image.ref] is None:
        yield f"the image {recipe.image.ref}"
    yield from _container_missing(world, back)
    yield from _port_taken(world, back, incumbent)
    if recipe and recipe.gpus.select:
        yield from _gpus_missing(world)


def _container_missing(world: World, back: ServeRecord) -> Iterator[str]:
    short = back.container_id[:12]
    if not world.containers.ok:
        yield f"containers cannot be read: {world.containers.reason}"
        return
    seen = next((c for c in world.containers.value or () if c.id == back.container_id), None)
    if seen is None:
        yield f"the retained container {short}"
    elif seen.image_id != back.image_id:
        yield f"container {short} has image {seen.image_id[:19]}, recorded is {back.image_id[:19]}"
    elif seen.status in ("removing", "dead", "unknown"):
        yield f"container {short} is {seen.status}"


def _port_taken(world: World, back: ServeRecord, incumbent: str) -> Iterator[str]:
    """The slot's port must be free, ours already, or the incumbent's (which stops first)."""
    for c in world.containers.value or ():
        if not c.running or c.id in (back.container_id, incumbent):
            continue
        other = world.record.serves.get(c.id)
        if (other and other.port == back.port) or _publishes(c, back.port):
            yield f"port {back.port} of {back.slot} is taken by container {c.name} ({c.id[:12]})"


def _publishes(c: Container, port: int) -> bool:
    return any(p.split("->")[0].endswith(f":{port}") for p in c.ports)


def _gpus_missing(world: World) -> Iterator[str]:
    if not world.gpus.ok or world.gpus.value is None:
        yield f"GPUs cannot be read: {world.gpus.reason or world.gpus.state}"
        return
    for gpu in world.gpus.value.gpus:
        if gpu.state != "ok":
            yield f"GPU {gpu.index} is {gpu.state}"
