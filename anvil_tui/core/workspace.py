"""anvil.toml: the box, its GPU roles, its container engine, its gateway and its policies."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from anvil_tui.core.recipe import NonNegative, Positive, Slug, Table

WORKSPACE_SCHEMA = "anvil.workspace/1"

Port = Annotated[int, Field(ge=1, le=65535)]
SecretRef = Annotated[str, StringConstraints(pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:.+)$")]
GpuUuidText = Annotated[str, StringConstraints(pattern=r"^(GPU|MIG)-[0-9A-Za-z/-]+$")]


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
    """

    reader: tuple[str, ...] = ()
    library_dir: str = ""
    interval_s: Annotated[float, Field(gt=0)] = 1.0
    deadline_s: Annotated[float, Field(gt=0)] = 5.0
    roles: dict[Slug, GpuUuidText] = {}


class Containers(Table):
    """`url` is `unix:///path` or `ssh://user@host`; `state_dir` mounts are resolved against the workspace."""

    url: Annotated[str, StringConstraints(pattern=r"^(unix://|ssh://)")] = "unix:///var/run/docker.sock"
    timeout_s: Positive = 30


class Slot(Table):
    """One fixed place for an engine: a loopback port that the gateway knows for ever."""

    name: Slug
    port: Port


class Role(Table):
    """One job on the box: its client aliases, its slots and the suite that promotion runs."""

    name: Slug
    aliases: tuple[Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:-]{1,120}$")], ...]
    slots: tuple[Slot, ...]
    promotion_suite: Slug = "promotion"

    @model_validator(mode="after")
    def _usable(self) -> Role:
        if not self.aliases:
            raise ValueError("a role needs at least one alias")
        if len(self.slots) < 2:
            raise ValueError("a role needs two slots: one serves while the other is prepared")
        return self


class GatewaySettings(Table):
    """HAProxy in front of the slots.

    `bind` is HOST:PORT for clients; files live under `dir` (relative to the workspace). `client_keys`
    are references to the bearer tokens that clients may use. `hold_max_s` is how long a request is held
    while a full box changes engines before it gets 503 with Retry-After.
    """

    kind: Literal["haproxy"] = "haproxy"
    bind: Annotated[str, StringConstraints(pattern=r"^[^:\s]+:\d{1,5}$")] = "127.0.0.1:9100"
    dir: str = "state/gateway"
    binary: str = ""
    client_keys: tuple[SecretRef, ...]
    hold_max_s: Positive = 900
    max_body_kib: Positive = 4096


class Policies(Table):
    """Deadlines and rules. `on_drain_timeout` is decided before a drain begins; nothing is cut by default."""

    drain_timeout_s: Positive = 300
    on_drain_timeout: Literal["abort", "sever"] = "abort"
    gpu_release_timeout_s: Positive = 120
    reserve_mib: NonNegative = 0
    require_qualified: bool = True
    verify_requests: Positive = 3


class Workspace(Table):
    """The whole of anvil.toml."""

    schema_: Literal["anvil.workspace/1"] = Field(alias="schema")
    box: Box
    gpus: GpuSource = GpuSource()
    containers: Containers = Containers()
    gateway: GatewaySettings
    policies: Policies = Policies()
    roles: tuple[Role, ...]

    @model_validator(mode="after")
    def _distinct(self) -> Workspace:
        seen: dict[str, str] = {}
        for role in self.roles:
            things = [("role", role.name), *(("alias", a) for a in role.aliases)]
            things += [t for s in role.slots for t in (("slot", s.name), ("port", str(s.port)))]
            for kind, value in things:
                key = f"{kind} {value}"
                if key in seen:
                    raise ValueError(f"{key} is used twice (roles {seen[key]} and {role.name})")
                seen[key] = role.name
        return self

    def role(self, name: str) -> Role | None:
        return next((r for r in self.roles if r.name == name), None)
