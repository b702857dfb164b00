"""What the anvil-serving gateway runs on, as text: its routes file, configuration and client list.

Pure: the same workspace and routes give the same bytes. Every alias has a tier of its own, `ALIAS@SLOT`, and every
slot a private one, `@SLOT`; so aliases are quiesced one by one and a decision names alias and slot. A tier's port
and expected model are read when the gateway starts: moving an alias, or another serve in a slot, needs a restart.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from anvil_tui.core.box import Expected
from anvil_tui.core.errors import BadFile
from anvil_tui.core.gateway_config import HOLD, NONE, check_target
from anvil_tui.core.routing import private
from anvil_tui.core.workspace import Role, Slot

SCHEMA = "anvil.gateway-routes/1"
ROUTES_FILE, CONFIG_FILE, CLIENTS_FILE = "routes.json", "router.toml", "clients.json"
ADMISSION_FILE, DECISIONS_FILE = "admission.json", "decisions.jsonl"
ADMIN_ENV, CLIENT_ENV, ENGINE_ENV = "ANVIL_ROUTER_TOKEN", "ANVIL_CLIENT_{n}", "ANVIL_NO_ENGINE_TOKEN"
SHORTEST_KEY = 16
# Its admission of tiers that a restart or an install holds back for a moment.
RESTART = "restart"
# A slot that nothing was ever put into: no engine calls its model so, and the gateway refuses every request.
NOBODY = Expected("nothing-is-expected-here", 1)

# Silence between two bytes, not length of a stream: an engine may think for an hour before its first byte.
SILENCE_S, LONGEST_S = 14_400, 86_400


@dataclass(frozen=True, slots=True)
class Routes:
    """`targets`: alias -> slot, `hold` or `none`. `at`: alias -> the slot whose port its tier has meanwhile.
    `expects`: slot -> what was last said to serve there."""

    targets: Mapping[str, str] = field(default_factory=dict)
    at: Mapping[str, str] = field(default_factory=dict)
    expects: Mapping[str, Expected] = field(default_factory=dict)
    generation: int = 0

    def text(self) -> str:
        body = {
            "schema": SCHEMA, "generation": self.generation,
            "aliases": {a: {"target": t, "at": self.at[a]} for a, t in sorted(self.targets.items())},
            "slots": {
                s: {"model": e.model, "context_tokens": e.context_tokens} for s, e in sorted(self.expects.items())
            },
        }  # fmt: skip
        return json.dumps(body, indent=1) + "\n"

    def pointed(self, targets: Mapping[str, str], generation: int) -> Routes:
        moved = {a: t for a, t in targets.items() if t not in (HOLD, NONE)}
        return replace(self, targets={**self.targets, **targets}, at={**self.at, **moved}, generation=generation)

    def expecting(self, slot: str, serve: Expected, generation: int) -> Routes:
        return replace(self, expects={**self.expects, slot: serve}, generation=generation)


def parse_routes(text: str) -> Routes:
    """ValueError says what is damaged; a cut file is never a short one."""
    try:
        body: Any = json.loads(text)
        if body["schema"] != SCHEMA:
            raise ValueError(f"schema is {body['schema']!r}, not {SCHEMA}")
        aliases, slots = body["aliases"], body["slots"]
        return Routes(
            {a: str(v["target"]) for a, v in aliases.items()},
            {a: str(v["at"]) for a, v in aliases.items()},
            {s: Expected(str(v["model"]), int(v["context_tokens"])) for s, v in slots.items()},
            int(body["generation"]),
        )
    except (KeyError, TypeError, AttributeError) as why:
        raise ValueError(f"no routes: {type(why).__name__} {why}") from why


def merged(old: Routes, roles: Iterable[Role]) -> Routes:
    """The routes for these roles: known aliases stay where they are, new ones point at `none`, others go."""
    targets, at = {}, {}
    for role in roles:
        for alias in role.aliases:
            targets[alias] = old.targets.get(alias, NONE)
            check_target((role,), alias, targets[alias])
            kept = old.at.get(alias, "")
            at[alias] = kept if any(s.name == kept for s in role.slots) else role.slots[0].name
    slots = {s.name for role in roles for s in role.slots}
    return Routes(targets, at, {s: e for s, e in old.expects.items() if s in slots}, old.generation)


@dataclass(frozen=True, slots=True)
class Tier:
    """One tier: `route` is the model name that clients ask for, `alias` "" for a slot's private tier."""

    id: str
    alias: str
    slot: Slot
    expects: Expected

    @property
    def route(self) -> str:
        return self.alias or self.id


def tiers(routes: Routes, roles: Iterable[Role]) -> Iterator[Tier]:
    for role in roles:
        slots = {s.name: s for s in role.slots}
        for alias in role.aliases:
            slot = slots[routes.at[alias]]
            yield Tier(f"{alias}@{slot.name}", alias, slot, routes.expects.get(slot.name, NOBODY))
        for slot in role.slots:
            yield Tier(private(slot.name), "", slot, routes.expects.get(slot.name, NOBODY))


def slot_of(tier_id: str) -> str:
    """
    >>> slot_of("llm.primary@slot-a"), slot_of("@slot-a"), slot_of("somebody-elses")
    ('slot-a', 'slot-a', '')
    """
    return tier_id.rpartition("@")[2] if "@" in tier_id else ""


def quiesced(routes: Routes, roles: Iterable[Role]) -> dict[str, str]:
    """Tier id -> why it must not admit: its alias is on `hold` or points at `none`."""
    return {t.id: routes.targets[t.alias] for t in tiers(routes, roles) if not admits(routes, t)}


def admits(routes: Routes, tier: Tier) -> bool:
    return not tier.alias or routes.targets[tier.alias] not in (HOLD, NONE)


def admission_text(reasons: Mapping[str, str]) -> str:
    """The gateway's own intent file (version 1): only what is quiesced stands in it."""
    rows = {tier: {"state": "quiesced", "reason": why} for tier, why in sorted(reasons.items())}
    return json.dumps({"version": 1, "tiers": rows}, sort_keys=True)


def clients_text(keys: int) -> str:
    """Who may use inference and nothing else: one client for each key of anvil.toml, by environment variable."""
    rows = [
        {"id": f"client-{n}", "scopes": ["inference:use"], "credential_env": CLIENT_ENV.format(n=n)}
        for n in range(1, keys + 1)
    ]
    return json.dumps({"schema_version": 1, "clients": rows}, indent=1) + "\n"


def environment(admin_key: str, client_keys: tuple[str, ...]) -> dict[str, str]:
    """The secrets of the gateway's process. BadFile names the key of anvil.toml that cannot be used."""
    for n, key in enumerate(client_keys):
        where = f"gateway.client_keys[{n}]"
        if len(key.encode()) < SHORTEST_KEY:
            raise BadFile("anvil.toml", f"anvil-serving wants {SHORTEST_KEY} bytes or more", key=where)
        if key == admin_key:
            raise BadFile("anvil.toml", "is the admin key, too: clients could quiesce the gateway", key=where)
    return {ADMIN_ENV: admin_key, **{CLIENT_ENV.format(n=n): key for n, key in enumerate(client_keys, 1)}}


def render(folder: str, routes: Routes, roles: tuple[Role, ...], secrets: Mapping[str, str]) -> tuple[str, str]:
    """The configuration and its digest, which the running gateway tells back as every tier's fingerprint. The
    secrets' values end here: their digest goes in, so that a rotated one is seen to need a restart."""
    _check(roles)
    made = list(tiers(routes, roles))
    mark = hashlib.sha256(json.dumps(sorted(secrets.items())).encode()).hexdigest()[:16]
    digest = hashlib.sha256((_text(folder, made, "") + mark).encode()).hexdigest()[:32]
    return _text(folder, made, digest), digest


def written(text: str, folder: str, routes: Routes, roles: Iterable[Role]) -> str:
    """The digest that a configuration of ours bears, if these routes give exactly its text; "" if not."""
    found = re.search(r'config_fingerprint = "([0-9a-f]{32})"', text)
    digest = found[1] if found else ""
    return digest if digest and _text(folder, tiers(routes, roles), digest) == text else ""


def _check(roles: Iterable[Role]) -> None:
    seen: dict[str, str] = {}
    for alias in (a for role in roles for a in role.aliases):
        if other := seen.get(alias.lower()):
            raise BadFile("anvil.toml", f"{other} and {alias} are one name to anvil-serving", key="roles.aliases")
        seen[alias.lower()] = alias
    for slot in (s.name for role in roles for s in role.slots):
        if slot in (HOLD, NONE):
            raise BadFile("anvil.toml", f"{slot} is a reserved word, name the slot otherwise", key="roles.slots")


def _text(folder: str, made: Iterable[Tier], digest: str) -> str:
    made = list(made)
    lines = [
        "# Rendered by anvil-tui from anvil.toml and routes.json; `anvil-tui gateway install` writes it anew.",
        "[server]",
        f"auth_env = {_q(ADMIN_ENV)}",
        f"authorization_policy_path = {_q(f'{folder}/{CLIENTS_FILE}')}",
        f"admission_state_path = {_q(f'{folder}/{ADMISSION_FILE}')}",
        f"decision_log_path = {_q(f'{folder}/{DECISIONS_FILE}')}",
        f"startup_timeout_s = {SILENCE_S}",
        f"idle_timeout_s = {SILENCE_S}",
        f"total_timeout_s = {LONGEST_S}",
        "",
        "[router]",
        f"relay_timeout = {SILENCE_S}",
        "availability_probe_interval = 2",
        "",
        "[router.model_routes]",
        *(f"{_q(t.route)} = {_q(t.id)}" for t in made),
    ]
    for tier in made:
        lines += ["", "[[router.tiers]]", *_tier(tier, digest)]
    return "\n".join([*lines, ""])


def _tier(tier: Tier, digest: str) -> Iterator[str]:
    """The engine's own tokenizer judges lengths: the gateway's estimate refused prompts that fit."""
    yield f"id = {_q(tier.id)}"
    yield f"base_url = {_q(f'http://127.0.0.1:{tier.slot.port}/v1')}"
    yield f"model = {_q(tier.expects.model)}"
    yield "model_identity = true"
    yield 'health_path = "/v1/models"'
    yield f"context_limit = {tier.expects.context_tokens}"
    yield 'context_admission = "upstream"'
    yield 'dialect = "openai"'
    yield 'privacy = "local"'
    yield "tool_support = true"
    yield f"auth_env = {_q(ENGINE_ENV)}"
    yield f"params = {{ fingerprint = {{ config_fingerprint = {_q(digest)} }} }}"


def _q(text: str) -> str:
    """A basic string of TOML: JSON's, whose one escape that TOML lacks (`\\/`) json never writes."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
