"""Short bounded histories for sparklines. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from anvil_tui.core.box import MIB, GpuSnapshot
from anvil_tui.core.reading import Reading

GPU_SAMPLES = 600

History = Mapping[str, tuple[int | None, ...]]


def push_gpus(
    history: History, reading: Reading[GpuSnapshot], keep: int = GPU_SAMPLES
) -> dict[str, tuple[int | None, ...]]:
    """Used MiB of each GPU by UUID, newest last, at most `keep`; None is a gap (lost, n/a, reading failed)."""
    rows = reading.value.gpus if reading.ok and reading.value else ()
    used = {g.uuid: None if g.used_bytes is None else g.used_bytes // MIB for g in rows if g.uuid}
    return {u: (*history.get(u, ()), used.get(u))[-keep:] for u in {**history, **used}}
