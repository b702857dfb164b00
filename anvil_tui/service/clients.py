"""Clients' catalogs read: what the plans of `apply` and of a switch rest on, and the standing reading."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from anvil_tui.core.apply import clients_of
from anvil_tui.core.box import Engine
from anvil_tui.core.clients import Catalog, Client, Serving, compared, promised, serving
from anvil_tui.core.errors import AnvilError
from anvil_tui.core.facts import Facts
from anvil_tui.core.plan import Intent
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.routing import Way
from anvil_tui.core.secrets import Secret
from anvil_tui.core.standing import ClientState
from anvil_tui.core.times import utc_text
from anvil_tui.core.workspace import Role
from anvil_tui.core.world import World
from anvil_tui.ports.files import ConfigFiles
from anvil_tui.service.box import Box
from anvil_tui.service.credentials import found_or_why

AT_ONCE = 8


def read_all(files: ConfigFiles, clients: Iterable[Client]) -> Mapping[str, bytes | AnvilError]:
    """Each client's file, or why it cannot be read; hosts at the same time, each bounded by its own deadline."""

    def one(client: Client) -> bytes | AnvilError:
        try:
            return files.read(client.host, client.file)
        except AnvilError as why:
            return why

    chosen = list(clients)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip((c.name for c in chosen), pool.map(one, chosen), strict=True))


def ways(box: Box, role: Role, served_name: str) -> Mapping[str, Way]:
    return {alias: box.gateway.way(alias, served_name) for alias in role.aliases}


def serving_now(box: Box, role: Role) -> Serving:
    """What serves a role, by its record and its engine as it answers now."""
    record = box.store.read().serve_in(role.name)
    recipe = exact(box, record.recipe_digest) if record else None
    if record is None or recipe is None:
        return serving(role.name, None, None, {})
    engine = box.engines.read(recipe.engine, record.port)
    return serving(role.name, recipe, engine, ways(box, role, recipe.served_name))


def exact(box: Box, digest: str) -> Recipe | None:
    kept = box.store.kept_recipes().get(digest)
    return kept or next((f.recipe for f in box.recipes() if f.recipe and f.recipe.digest() == digest), None)


def catalogs(box: Box, clients: Iterable[Client], of: Callable[[Role], Serving]) -> tuple[Catalog, ...]:
    """Every named client's file, read now, against what `of` says of its role. Where several clients share a file,
    each is compared with what the ones before it make of it."""
    chosen = list(clients)
    roles = {r.name: r for r in box.workspace.roles}
    serves = {name: of(roles[name]) for name in dict.fromkeys(c.role for c in chosen)}
    raw, at = read_all(box.files, chosen), utc_text(box.clock.utc())
    keys = [found_or_why(box, ref) for ref in box.workspace.gateway.client_keys]
    secrets = [k.value for k in keys if isinstance(k, Secret)]
    made: dict[tuple[str, str], bytes] = {}
    found = []
    for c in chosen:
        has = made.get((c.host, c.file), raw[c.name])
        found.append(compared(c, roles[c.role].aliases, serves[c.role], has, at, secrets))
        if found[-1].drifts:
            made[c.host, c.file] = found[-1].data
    return tuple(found)


def catalogs_now(box: Box, name: str = "") -> tuple[Catalog, ...]:
    """Of all clients, or of one."""
    chosen = [c for c in box.workspace.clients if name in ("", c.name)]
    return catalogs(box, chosen, lambda role: serving_now(box, role))


def client_states(box: Box) -> Callable[[World], tuple[ClientState, ...]]:
    """The standing reading; what serves is taken from the world, so no engine is asked a second time."""

    def serves(world: World, role: Role) -> Serving:
        record = world.record.serve_in(role.name)
        recipe = world.exact_recipe(record.recipe_digest, record.recipe_id) if record else None
        if record is None or recipe is None:
            return serving(role.name, None, None, {})
        reading = world.engines.get(record.container_id)
        engine: Engine | None = reading.value if reading and reading.ok else None
        return serving(role.name, recipe, engine, ways(box, role, recipe.served_name))

    return lambda world: tuple(c.state for c in catalogs(box, box.workspace.clients, lambda r: serves(world, r)))


# what plans rest on


def with_catalogs(box: Box, intent: Intent, facts: Facts) -> Facts:
    return replace(facts, catalogs=catalogs_now(box, intent.target))


def with_catalogs_after(box: Box, intent: Intent, facts: Facts) -> Facts:
    """The role's clients against what will serve. Files of this machine only: no switch waits for another host."""
    names = [r for r in box.workspace.roles if intent.role in ("", r.name)]
    if len(names) != 1 or not (clients := clients_of(box.workspace.clients, names[0].name)):
        return facts
    role = names[0]
    recipe = facts.recipes.get(intent.recipe) if intent.verb == "promote" else _way_back(facts, role)
    if recipe is None:
        return facts
    will = promised(recipe, ways(box, role, recipe.served_name))
    here = catalogs(box, [c for c in clients if not c.host], lambda _: will)
    later = Serving("on another host, looked at after the switch")
    there = tuple(compared(c, (), later, None, "") for c in clients if c.host)
    return replace(facts, catalogs=here + there)


def _way_back(facts: Facts, role: Role) -> Recipe | None:
    held = facts.record.roles.get(role.name)
    back = facts.record.serves.get(held.rollback[0]) if held and held.rollback else None
    return facts.exact_recipe(back) if back else None
