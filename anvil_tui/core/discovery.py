"""A box without a workspace: which containers may be engines, and at which loopback port each is asked. Pure.

What an engine is, its answers decide (`adapters/engine_find.py`). Names and command lines only decide whether and
where it is asked, and how long it is waited for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from anvil_tui.core.box import Container
from anvil_tui.core.recipe import EngineKind
from anvil_tui.core.workspace import Box, GatewaySettings, GpuSource, Workspace

NO_WORKSPACE = "no workspace: discovery, read-only; `anvil-tui init DIR` writes one"
MAX_DOORS = 4
"""Published ports of one container that are asked."""

_ENGINE_WORDS = re.compile(
    r"\b(vllm|sglang|llama-server|llama_cpp|trtllm-serve|tritonserver|text-generation|ollama|lmdeploy|tabbyapi|"
    r"koboldcpp|mlx_lm|aphrodite)\b", re.IGNORECASE,
)  # fmt: skip
_ENGINE_ENV = re.compile(r"(LLAMA_ARG|VLLM|SGLANG|SGL|TRTLLM|OLLAMA)_\w+")
# Where an engine listens that was not told: asked on the host's network only, where nothing publishes a port.
_OWN_PORTS: tuple[tuple[str, int], ...] = (
    ("sglang", 30000), ("llama-server", 8080), ("vllm", 8000), ("trtllm-serve", 8000), ("ollama", 11434),
)  # fmt: skip
# Ports on which a service answers that is no HTTP server: a database logs every stranger.
_NOT_HTTP = frozenset({21, 22, 25, 53, 110, 143, 389, 445, 465, 587, 636, 993, 995, 1433, 1521, 1883, 2049, 2181,
                       3306, 4222, 5432, 5671, 5672, 6379, 9042, 9092, 11211, 27017})  # fmt: skip
_LOOPBACK = ("*", "127.0.0.1")


@dataclass(frozen=True, slots=True)
class Found:
    """What discovery knows of one container. `engine` None = not recognised, `why` says why or where it is.

    `silent`: nothing was told yet, and it is asked again.
    """

    engine: EngineKind | None = None
    port: int | None = None
    why: str = ""
    silent: bool = False


@dataclass(frozen=True, slots=True)
class Recognised:
    """What answered at one port. `engine`, `other` (an answer of something else), `silent` (none, or not yet)."""

    state: Literal["engine", "other", "silent"]
    engine: EngineKind | None = None
    why: str = ""


def without_file(name: str, docker_url: str, library_dir: str = "") -> Workspace:
    """What is read with where there is no anvil.toml: no role, no gateway, no key. It is no valid file."""
    plain = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:80] or "this-box"
    made = Workspace.model_construct(
        schema_="anvil.workspace/1", box=Box(name=plain, kind="lab"), roles=(),
        gateway=GatewaySettings.model_construct(client_keys=()), gpus=GpuSource(library_dir=library_dir),
    )  # fmt: skip
    return made.model_copy(update={"containers": made.containers.model_copy(update={"url": docker_url})})


def may_be_engine(c: Container) -> bool:
    """Whether it is worth waiting for: it was given GPUs, or its command line or variables speak of an engine."""
    said = any(_ENGINE_WORDS.search(arg) for arg in c.argv) or any(map(_ENGINE_ENV.fullmatch, c.env_names))
    return c.gpus.effective != "none" or said


def doors(c: Container) -> tuple[tuple[int, ...], str]:
    """Ports of this machine's loopback at which the container can be asked, and why there is none."""
    if c.network == "host":
        port = told_port(c.argv) or next(
            (port for word, port in _OWN_PORTS if any(word in arg for arg in c.argv)), None
        )
        return ((port,), "") if port else ((), "on the host's network, and its command line names no port")
    if c.network.startswith("container:"):
        return (), f"it shares the network of container {c.network.removeprefix('container:')[:12]}"
    published = [(host, outer) for host, outer, inner in _published(c) if inner not in _NOT_HTTP]
    near = dict.fromkeys(outer for host, outer in published if host in _LOOPBACK)
    if not near and published:
        return (), f"published on {published[0][0]} alone; only this machine's loopback is asked"
    return tuple(near)[:MAX_DOORS], "" if near else "it publishes no port on this machine"


def _published(c: Container) -> Iterator[tuple[str, int, int]]:
    """Host, its port and the container's, of each published TCP port."""
    for endpoint in c.ports:
        outside, _, inside = endpoint.partition("->")
        host, _, outer = outside.rpartition(":")
        inner, _, protocol = inside.partition("/")
        if protocol == "tcp" and outer.isdigit() and inner.isdigit():
            yield host, int(outer), int(inner)


def told_port(argv: Iterable[str]) -> int | None:
    """The port that a command line names for its server: the last one counts, as engines read it.

    >>> told_port(("vllm", "serve", "m", "--port", "8001")), told_port(("x", "--port=9"))
    (8001, 9)
    """
    args, found = list(argv), None
    for at, arg in enumerate(args):
        name, eq, value = arg.partition("=")
        text = value if eq else (args[at + 1] if at + 1 < len(args) else "")
        if name == "--port" and text.isdigit() and 0 < int(text) < 65536:
            found = int(text)
    return found


def askable(containers: Iterable[Container]) -> Mapping[str, tuple[Container, tuple[int, ...], str]]:
    """By id, who is asked and where, or why not. A published port belongs to who publishes it, and one on the
    host's network to one container alone: where two claim it, neither is asked. What can be no engine and has no
    door is left out."""
    rows = {c.id: (c, *doors(c)) for c in containers if c.status == "running"}
    claims = Counter(ports[0] for c, ports, _ in rows.values() if c.network == "host" and ports)
    published = {port for c, ports, _ in rows.values() if c.network != "host" for port in ports}
    found: dict[str, tuple[Container, tuple[int, ...], str]] = {}
    for key, (c, ports, why) in rows.items():
        if c.network == "host" and ports and ports[0] in published:
            found[key] = (c, (), f"another container publishes port {ports[0]}")
        elif c.network == "host" and ports and claims[ports[0]] > 1:
            found[key] = (c, (), f"{claims[ports[0]]} containers on the host's network claim port {ports[0]}")
        elif ports or may_be_engine(c):
            found[key] = (c, ports, why)
    return found
