"""Which GPUs a recipe means: roles, UUIDs, unique UUID prefixes and NVML indices become full UUIDs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from anvil_tui.core.box import Gpu, GpuSnapshot
from anvil_tui.core.errors import Refused


def resolve_gpus(select: Sequence[str], roles: Mapping[str, str], snapshot: GpuSnapshot) -> tuple[str, ...]:
    """Full UUIDs in the order of `select`; `roles` maps a role name to a UUID (anvil.toml).

    An index is a row of the NVML order, never of CUDA's. Refused when an entry is unknown, ambiguous, names
    a GPU that cannot be read, or names a GPU twice.
    """
    found: dict[str, str] = {}
    for wanted in select:
        uuid = _one(wanted, roles, snapshot)
        if uuid in found:
            raise Refused(f"GPU {uuid} is selected twice: as {found[uuid]!r} and as {wanted!r}")
        found[uuid] = wanted
    return tuple(found)


def _one(wanted: str, roles: Mapping[str, str], snapshot: GpuSnapshot) -> str:
    if wanted in roles:
        return _usable(f"GPU role {wanted!r} ({roles[wanted]})", _by_uuid(roles[wanted], snapshot), snapshot)
    if wanted.isdecimal():
        rows = [g for g in snapshot.gpus if g.index == int(wanted)]
        return _usable(f"GPU index {wanted}", rows, snapshot)
    if re.match(r"mig-", wanted, re.IGNORECASE):
        raise Refused(f"{wanted!r} is a MIG slice, and recipes select whole GPUs; {_have(snapshot)}")
    if re.match(r"gpu-.", wanted, re.IGNORECASE):
        return _usable(f"GPU {wanted!r}", _by_uuid(wanted, snapshot), snapshot)
    known = ", ".join(sorted(roles)) or "none"
    raise Refused(
        f"{wanted!r} is no GPU role of anvil.toml (roles: {known}), no UUID and no index; {_have(snapshot)}"
    )


def _by_uuid(text: str, snapshot: GpuSnapshot) -> list[Gpu]:
    """Rows whose UUID is `text`, else those that begin with it; case does not matter."""
    asked = text.lower()
    named = [(g.uuid.lower(), g) for g in snapshot.gpus if g.uuid]
    return [g for u, g in named if u == asked] or [g for u, g in named if u.startswith(asked)]


def _usable(what: str, rows: list[Gpu], snapshot: GpuSnapshot) -> str:
    if not rows:
        blind = next((g for g in snapshot.gpus if g.uuid is None), None)
        why = f"is not among the GPUs that can be read, and one cannot: {_label(blind)}" if blind else ""
        raise Refused(f"{what} {why or 'is not on this box'}; {_have(snapshot)}")
    if len(rows) > 1:
        raise Refused(f"{what} is ambiguous: {', '.join(_label(g) for g in rows)}; write more of the UUID")
    gpu = rows[0]
    if gpu.uuid is None or gpu.state != "ok":
        raise Refused(f"{what} cannot be used: {_label(gpu)}; {_have(snapshot)}")
    if gpu.mig is not None:
        raise Refused(f"{what} cannot be used whole: {_label(gpu)}; {_have(snapshot)}")
    return gpu.uuid


def _label(gpu: Gpu) -> str:
    name = gpu.uuid or "UUID n/a"
    why = f", {gpu.state}{': ' + gpu.reason if gpu.reason else ''}" if gpu.state != "ok" else ""
    slices = "" if gpu.mig is None else f", in MIG mode: {', '.join(gpu.mig) or 'no slice was made'}"
    return f"{name} (index {gpu.index}{why}{slices})"


def _have(snapshot: GpuSnapshot) -> str:
    return f"GPUs here: {', '.join(_label(g) for g in snapshot.gpus) or 'none'}"
