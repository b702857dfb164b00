"""What a serve was when it was recorded, one line a thing, `NAME HASH`: its container, and what it reads from
outside. Pure.

Hashes are the first 16 hex digits of a SHA-256. `file:PATH` is a mounted file, by its path inside the container;
`bytes:PATH` has the size of weights in place of a hash; `suite:ID` is the suite that qualified it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from anvil_tui.core.box import Container

CONTAINER = ("image", "argv", "env", "mounts", "gpus", "labels", "restart")


def digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def shape_of(c: Container) -> dict[str, str]:
    """The lines of a container: what it is made of and was given. Its state and its times are no part of it."""
    grant = c.gpus
    parts: tuple[object, ...] = (
        c.image_id, list(c.argv), sorted(c.env_names), sorted(map(list, c.mounts)),
        [sorted(grant.requested), grant.effective, sorted(grant.uuids), grant.via], dict(c.labels),
        c.restart_policy,
    )  # fmt: skip
    return {name: digest(part) for name, part in zip(CONTAINER, parts, strict=True)}


def resurrects(c: Container) -> bool:
    """Whether its daemon would start it again after a stop of ours, at the latest when it starts itself."""
    return c.restart_policy not in ("", "no", "unless-stopped")


def write(lines: Mapping[str, str]) -> str:
    return "\n".join(f"{name} {value}" for name, value in lines.items())


def read(shape: str) -> dict[str, str]:
    """The lines of a record; a line that is none is left out.

    >>> read("argv 12\\nfile:/a b 34")
    {'argv': '12', 'file:/a b': '34'}
    """
    found = (line.rpartition(" ") for line in shape.splitlines())
    return {name: value for name, _, value in found if name}


def changed(shape: str, now: Container) -> tuple[str, ...]:
    """Names of what is another than recorded; what an older record does not hold is not compared."""
    then, seen = read(shape), shape_of(now)
    return tuple(name for name in CONTAINER if name in then and then[name] != seen[name])
