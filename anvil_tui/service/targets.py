"""Where gates send their requests, and which gates of a suite cannot run there."""

from __future__ import annotations

from collections.abc import Mapping

from anvil_tui.core.gates import Suite
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.routing import private
from anvil_tui.core.secrets import Secret
from anvil_tui.service.box import Box, engine_url
from anvil_tui.service.credentials import found_or_why
from anvil_tui.service.gates.session import GateTarget
from anvil_tui.service.way_back import Unrunnable


def unrunnable_on(box: Box) -> Unrunnable:
    """Asks the conductor which gates of a suite could not run on a recipe, and why."""

    def unrunnable(suite: Suite, recipe: Recipe) -> Mapping[str, str]:
        return box.conductor().unrunnable(suite, target_of(box, recipe, "", 0, ""))

    return unrunnable


def target_of(box: Box, recipe: Recipe, container_id: str, port: int, slot: str) -> GateTarget:
    """Where the gates of one serve send their requests: its own port, and its private way through the gateway."""
    role = next((r for r in box.workspace.roles if any(s.name == slot for s in r.slots)), None)
    key = found_or_why(box, box.workspace.gateway.client_keys[0])
    way = box.gateway.way(private(slot), recipe.served_name)
    return GateTarget(
        recipe=recipe,
        container_id=container_id,
        base_url=engine_url(port),
        routed_url=way.base_url,
        routed_model=way.model,
        slot=slot,
        origin=box.gateway.served_by,
        routed_key=key.value if isinstance(key, Secret) else None,
        reserve_mib=box.workspace.policies.reserve_mib,
        aliases=role.aliases if role else (),
        waivers=box.store.waivers(),
    )
