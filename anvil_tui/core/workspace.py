"""anvil.toml: the box, its GPU roles, its container engine, its gateway and its policies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from anvil_tui.core.clients import Client
from anvil_tui.core.config_path import parse_path
from anvil_tui.core.recipe import Line, NonNegative, PathText, Positive, Slug, Table, matching
from anvil_tui.core.secrets import SecretRef

WORKSPACE_SCHEMA = "anvil.workspace/1"

Port = Annotated[int, Field(ge=1, le=65535)]
GpuUuidText = Annotated[str, matching(r"(?i:GPU|MIG)-[0-9A-Za-z/-]+", "a GPU UUID (GPU-...)")]


Alias = Annotated[
    str, matching(r"[A-Za-z0-9._:-]{1,120}", "1 to 120 letters, digits, dots, colons, dashes, underscores")
]


class Box(Table):
    """`kind` is shown in the header and decides how loud confirmations are."""

    name: Slug
    kind: Literal["lab", "production"]


class GpuSource(Table):
    """Where GPU readings come from.

    `reader` is the argv of a program that prints one JSON snapshot a line (empty = our own NVML reader,
    run as a killable child); a remote box names `ssh BOX anvil-tui gpu-reader` here. `library_dir` is
    searched first for libnvidia-ml.so.1. `interval_s` is the cadence, `deadline_s` how long one line may
    take before the child is killed and the reading is an error. `roles` maps a role name to a GPU UUID.
    `monitors` names containers that only watch (exporters): while no process of theirs holds a GPU, they own none.
    """

    reader: tuple[str, ...] = ()
    library_dir: PathText = ""
    interval_s: Annotated[float, Field(gt=0)] = 1.0
    deadline_s: Annotated[float, Field(gt=0)] = 5.0
    roles: dict[Slug, GpuUuidText] = {}
    monitors: tuple[Line, ...] = ()


class Containers(Table):
    """`url` is `unix:///path` or `ssh://user@host`; `state_dir` mounts are resolved against the workspace."""

    url: Annotated[PathText, matching(r"(unix://|ssh://).+", "unix:///path or ssh://user@host")] = (
        "unix:///var/run/docker.sock"
    )
    timeout_s: Positive = 30


class Slot(Table):
    """One fixed place for an engine: a loopback port that the gateway knows for ever."""

    name: Slug
    port: Port


class Role(Table):
    """One job on the box: its client aliases, its slots and the suite that promotion runs.

    A serve of an `evictable` role may be stopped for another role's when asked for; a `resident` one never.
    """

    name: Slug
    aliases: tuple[Alias, ...]
    slots: tuple[Slot, ...]
    promotion_suite: Slug = "promotion"
    residency: Literal["resident", "evictable"] = "resident"

    @model_validator(mode="after")
    def _usable(self) -> Role:
        if not self.aliases:
            raise ValueError("aliases needs at least one name")
        if len(self.slots) < 2:
            raise ValueError("slots needs two at least: one serves while the other is prepared")
        return self


def _bind(text: str) -> str:
    """HOST:PORT"""
    host, _, port = text.rpartition(":")
    if not re.fullmatch(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\]", host) or not re.fullmatch(r"\d{1,5}", port):
        raise ValueError("must be HOST:PORT")
    if not 1 <= int(port) <= 65535:
        raise ValueError(f"port {port} is not within 1 to 65535")
    return text


Bind = Annotated[str, AfterValidator(_bind)]


Ability = Literal["atomic", "durable", "counts", "holds", "severs", "strong_reads"]


class GatewaySettings(Table):
    """What stands in front of the slots: HAProxy, or the gateway of anvil-serving 2.x.

    `bind` is HOST:PORT for clients; files live under `dir` (relative to the workspace). `client_keys`
    are references to the bearer tokens that clients may use. `hold_max_s` is how long a request is held
    while a full box changes engines before it gets 503 with Retry-After. `admin_key` is the token of
    anvil-serving's admin route, which no client has.
    """

    kind: Literal["haproxy", "anvil-serving"] = "haproxy"
    bind: Bind = "127.0.0.1:9100"
    dir: PathText = "state/gateway"
    binary: PathText = ""
    client_keys: tuple[SecretRef, ...]
    hold_max_s: Positive = 900
    max_body_kib: Positive = 4096
    admin_key: SecretRef | None = None

    @model_validator(mode="after")
    def _of_its_kind(self) -> GatewaySettings:
        if self.kind == "anvil-serving":
            if self.admin_key is None:
                raise ValueError('admin_key is missing: kind "anvil-serving" needs the token of its admin route')
            for key in ("hold_max_s", "max_body_kib"):
                if key in self.model_fields_set:
                    raise ValueError(f"{key} says nothing to anvil-serving, which holds no request: leave it out")
        elif self.admin_key is not None:
            raise ValueError('admin_key is for kind "anvil-serving"; HAProxy has a socket of its own')
        return self


class CredentialTarget(Table):
    """A copy of a credential that some client reads.

    `key` is where it stands: a name in an env file, a path like `providers.anvil.apiKey` in JSON or TOML.
    `host` is where ssh goes, "" = this machine.
    """

    file: PathText
    key: str
    format: Literal["env", "json", "toml"]
    host: Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._@-]*|", "USER@HOST, HOST or nothing")] = ""

    @model_validator(mode="after")
    def _addressable(self) -> CredentialTarget:
        parse_path(self.key)
        return self

    @property
    def where(self) -> str:
        return f"{self.host}:{self.file}" if self.host else self.file


class NamedCredential(Table):
    """A name for one of `gateway.client_keys`, by its reference, and the copies that rotation writes too."""

    name: Slug
    ref: SecretRef
    targets: tuple[CredentialTarget, ...] = ()


OnDrainTimeout = Literal["abort", "extend", "sever", "sever-stalled"]


class Policies(Table):
    """Deadlines and rules. `on_drain_timeout` is decided before a drain begins; nothing is cut by default.
    `gateway_must` names what the gateway has to be able to do before a role is interrupted.

    `extend` waits `drain_extend_s` more, once; `sever-stalled` cuts streams without a byte for `stalled_after_s`
    and puts everything back when a live one is left. `first_byte_s` is how long a prompt may be read, or an
    answer that is not streamed may take, before no byte at all is a stall too.
    `drill_max_age_days` is how old the last drill on the box may be when something is promoted, 0 = none is asked.
    """

    drain_timeout_s: Positive = 300
    on_drain_timeout: OnDrainTimeout = "abort"
    drain_extend_s: Positive = 300
    stalled_after_s: Positive = 60
    first_byte_s: Positive = 900
    gpu_release_timeout_s: Positive = 120
    reserve_mib: NonNegative = 0
    require_qualified: bool = True
    verify_requests: Positive = 3
    gateway_must: tuple[Ability, ...] = ()
    drill_max_age_days: NonNegative = 0


class AlarmSettings(Table):
    """When an alarm is raised, when it ends, and who is told.

    A measured level must hold for `hold_s`, and be clear by its margin for `clear_s`. `kv_percent` of the KV pool
    in use is nearly full, if requests wait. `notify` is the argv of a program that gets each alarm as JSON on its
    standard input; it has `notify_timeout_s`.
    """

    hold_s: NonNegative = 20
    clear_s: Positive = 60
    kv_percent: Annotated[int, Field(ge=20, le=100)] = 95
    notify: tuple[Line, ...] = ()
    notify_timeout_s: Annotated[int, Field(ge=1, le=300)] = 20


class Storage(Table):
    """`caches` are model caches (folders with `models--ORG--NAME` in them) beside those that recipes mount."""

    caches: tuple[PathText, ...] = ()


class History(Table):
    """How much is kept in `state/history` of what was seen on the box: `days` back and `max_mib` in all, whichever
    is less. 0 in either = nothing is recorded.
    """

    days: NonNegative = 7
    max_mib: NonNegative = 256


class Workspace(Table):
    """The whole of anvil.toml."""

    schema_: Literal["anvil.workspace/1"] = Field(alias="schema")
    box: Box
    gpus: GpuSource = GpuSource()
    containers: Containers = Containers()
    gateway: GatewaySettings
    policies: Policies = Policies()
    alarms: AlarmSettings = AlarmSettings()
    credentials: tuple[NamedCredential, ...] = ()
    roles: tuple[Role, ...]
    clients: tuple[Client, ...] = ()
    storage: Storage = Storage()
    history: History = History()

    @model_validator(mode="after")
    def _distinct(self) -> Workspace:
        if not self.roles:
            raise ValueError("roles needs at least one [[roles]]")
        seen: dict[tuple[str, str], str] = {}
        problems = []
        for key, kind, value in self._names():
            if (kind, value) in seen:
                problems.append(f"{key} {kind} {value} is used twice (also {seen[kind, value]})")
            seen.setdefault((kind, value), key)
        roles = {r.name: r.aliases for r in self.roles}
        for n, client in enumerate(self.clients):
            if client.role not in roles:
                problems.append(f"clients[{n}].role {client.role} is no role (have: {', '.join(roles)})")
            strange = [a for a in client.aliases if a not in roles.get(client.role, client.aliases)]
            problems += [f"clients[{n}].aliases {alias} is no alias of {client.role}" for alias in strange]
        problems += [
            f"credentials[{n}].ref {c.ref} is none of gateway.client_keys"
            for n, c in enumerate(self.credentials)
            if c.ref not in self.gateway.client_keys
        ]
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _names(self) -> Iterator[tuple[str, str, str]]:
        """Key, kind and value of everything that must be unique on the box."""
        yield "gateway.bind", "port", self.gateway.bind.rpartition(":")[2]
        for n, ref in enumerate(self.gateway.client_keys):
            yield f"gateway.client_keys[{n}]", "reference", ref
        for n, made in enumerate(self.credentials):
            yield f"credentials[{n}].name", "name", made.name
            yield f"credentials[{n}].ref", "named reference", made.ref
        for n, client in enumerate(self.clients):
            yield f"clients[{n}].name", "client", client.name
        for r, role in enumerate(self.roles):
            yield f"roles[{r}].name", "role", role.name
            for a, alias in enumerate(role.aliases):
                yield f"roles[{r}].aliases[{a}]", "alias", alias
            for s, slot in enumerate(role.slots):
                yield f"roles[{r}].slots[{s}].name", "slot", slot.name
                yield f"roles[{r}].slots[{s}].port", "port", str(slot.port)

    def role(self, name: str) -> Role | None:
        return next((r for r in self.roles if r.name == name), None)
