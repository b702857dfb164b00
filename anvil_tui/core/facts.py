"""What a plan rests on, gathered once from every source, and the questions that plans ask of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date

from anvil_tui.core.box import Container, Gateway, GpuSnapshot, Host
from anvil_tui.core.clients import Catalog
from anvil_tui.core.errors import NotFound, Refused
from anvil_tui.core.gates import Suite
from anvil_tui.core.loads import MeasuredLoad
from anvil_tui.core.ownership import Sight, sight
from anvil_tui.core.reading import Reading
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.standing import Check, ClientState, CredentialState, DrillRecord
from anvil_tui.core.storage import Stored
from anvil_tui.core.waivers import CheckWaiver, Waiver
from anvil_tui.core.workspace import Role, Workspace
from anvil_tui.core.world import OPERATION_LABEL, BoxRecord, ServeRecord


@dataclass(frozen=True, slots=True)
class Facts:
    """`stored` holds, by digest, the exact recipes that made the recorded serves."""

    workspace: Workspace
    record: BoxRecord
    recipes: Mapping[str, Recipe]
    containers: Mapping[str, Container]
    gateway: Gateway
    images: Mapping[str, str | None] = field(default_factory=dict)
    recipe_errors: Mapping[str, str] = field(default_factory=dict)
    suites: Mapping[str, Suite] = field(default_factory=dict)
    suite_errors: Mapping[str, str] = field(default_factory=dict)
    stored: Mapping[str, Recipe] = field(default_factory=dict)
    gpus: Reading[GpuSnapshot] = Reading.unknown("not read", "nvml")
    unfinished: str = ""
    waivers: tuple[Waiver, ...] = ()
    check_waivers: tuple[CheckWaiver, ...] = ()
    host: Reading[Host] = Reading.unknown("not read", "host")
    loads: tuple[MeasuredLoad, ...] = ()
    today: date = date.min
    proofs: Mapping[str, tuple[Check, ...]] = field(default_factory=dict)
    drills: tuple[DrillRecord, ...] = ()
    pids: Mapping[int, str] = field(default_factory=dict)
    clients: tuple[ClientState, ...] = ()
    credentials: tuple[CredentialState, ...] = ()
    catalogs: tuple[Catalog, ...] = ()
    disks: Stored | None = None

    def recipe(self, recipe_id: str) -> Recipe:
        if recipe_id in self.recipes:
            return self.recipes[recipe_id]
        if recipe_id in self.recipe_errors:
            raise Refused(f"recipe {recipe_id} cannot be used: {self.recipe_errors[recipe_id]}")
        raise NotFound(f"no recipe {recipe_id!r} in recipes/ (have: {', '.join(sorted(self.recipes)) or 'none'})")

    def suite(self, suite_id: str) -> Suite:
        if suite_id in self.suites:
            return self.suites[suite_id]
        why = self.suite_errors.get(suite_id, f"have: {', '.join(sorted(self.suites)) or 'none'}")
        raise NotFound(f"no usable suite {suite_id!r} in gates/: {why}")

    def role(self, name: str) -> Role:
        roles = self.workspace.roles
        if not name and len(roles) == 1:
            return roles[0]
        found = self.workspace.role(name)
        if found is None:
            names = ", ".join(r.name for r in roles)
            raise NotFound(f"no role {name!r} in anvil.toml (have: {names})" if name else f"which role? {names}")
        return found

    def exact_recipe(self, record: ServeRecord) -> Recipe | None:
        """The recipe as it was when the serve was made, wherever it is still known."""
        if record.recipe_digest in self.stored:
            return self.stored[record.recipe_digest]
        now = self.recipes.get(record.recipe_id)
        return now if now and now.digest() == record.recipe_digest else None

    def container(self, record: ServeRecord | None) -> Container | None:
        return self.containers.get(record.container_id) if record else None

    def running(self, record: ServeRecord | None) -> bool:
        found = self.container(record)
        return bool(found and found.running)

    def incumbent(self, role: Role) -> ServeRecord | None:
        return self.record.serve_in(role.name)

    def made_from(self, recipe: Recipe, role: Role) -> ServeRecord | None:
        """A kept container made from exactly this recipe in this role that can run, running ones first."""
        mine = [s for s in self.all_made_from(recipe, role) if not self.containers[s.container_id].going]
        return max(mine, key=self.running, default=None)

    def all_made_from(self, recipe: Recipe, role: Role) -> list[ServeRecord]:
        digest = recipe.digest()
        return [
            s for s in self.record.serves.values()
            if s.recipe_digest == digest and s.role == role.name and s.container_id in self.containers
        ]  # fmt: skip

    def running_serves(self) -> list[ServeRecord]:
        return [s for s in self.record.serves.values() if self.running(s)]

    def sight(self) -> Sight:
        """What the owners of the GPUs follow from."""
        return sight(
            self.gpus, tuple(self.containers.values()), self.record, self.pids, self.workspace.gpus,
            self.exact_recipe, self.loads,
        )  # fmt: skip

    def strays(self) -> list[Container]:
        """Running containers that an operation of ours made and the record does not know."""
        ours = (c for c in self.containers.values() if c.running and OPERATION_LABEL in c.labels)
        return [c for c in ours if c.id not in self.record.serves]

    def aliases(self, role: Role) -> dict[str, str]:
        """Where the role's aliases point now; an alias the gateway does not know is `none`."""
        return {a: self.gateway.aliases.get(a, "none") for a in role.aliases}

    def serve_named(self, text: str) -> ServeRecord:
        """By recipe id, served name, or container id prefix of at least 6 digits; one match or an error."""
        serves = list(self.record.serves.values())
        by_name = [s for s in serves if text in (s.recipe_id, s.served_name)]
        by_id = [s for s in serves if re.fullmatch(r"[0-9a-f]{6,64}", text) and s.container_id.startswith(text)]
        found = _prefer_running(by_name, self) or by_id
        if len(found) == 1:
            return found[0]
        if not found:
            have = ", ".join(sorted(f"{s.recipe_id} ({s.container_id[:12]})" for s in serves)) or "none"
            raise NotFound(f"no serve {text!r} (have: {have})")
        raise Refused(
            f"{text!r} means several serves: {', '.join(s.container_id[:12] for s in found)}; name one by id"
        )


def _prefer_running(serves: list[ServeRecord], facts: Facts) -> list[ServeRecord]:
    up = [s for s in serves if facts.running(s)]
    return up or serves


def alias_text(aliases: Iterable[str]) -> str:
    return ", ".join(aliases)
