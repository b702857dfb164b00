"""Proof that GPUs are free after a stop, and whether a recipe's ranks fit. Pure rules over one snapshot.

Free memory is compared, never used memory (older drivers count their own reserve as used). The smallest
card decides; cards are never added up. A figure that is n/a is never taken for 0, and unknown is not free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from anvil_tui.core.box import MIB, Gpu, GpuProcess, GpuSnapshot
from anvil_tui.core.reading import Reading

# Between two readings of an idle card the driver's own share moves by a few MiB to a few tens.
BASELINE_TOLERANCE_MIB = 256


@dataclass(frozen=True, slots=True)
class Fit:
    """`short` as soon as one card is known to be too small, else `unknown` if one cannot be told."""

    answer: Literal["fits", "short", "unknown"]
    reasons: tuple[str, ...] = ()


def fit(reading: Reading[GpuSnapshot], uuids: Iterable[str], need_free_mib: int) -> Fit:
    """Whether each named GPU has `need_free_mib` MiB free now; no GPU named always fits."""
    wanted = tuple(uuids)
    if not wanted:
        return Fit("fits")
    snapshot = reading.value if reading.ok else None
    if snapshot is None:
        return Fit("unknown", (f"GPUs cannot be read: {reading.reason or reading.state}",))
    answers = [_fit_one(snapshot, uuid, need_free_mib) for uuid in wanted]
    for answer in ("short", "unknown"):
        reasons = tuple(why for a, why in answers if a == answer)
        if reasons:
            return Fit("short" if answer == "short" else "unknown", reasons)
    return Fit("fits")


def _fit_one(snapshot: GpuSnapshot, uuid: str, need_mib: int) -> tuple[str, str]:
    gpu = find(snapshot, uuid)
    if gpu is None or gpu.state != "ok":
        return "unknown" if gpu or not snapshot.complete else "short", _unreadable(snapshot, uuid)
    free = free_mib(gpu)
    if free is None:
        return "unknown", f"{label(gpu)}: free memory n/a"
    if free < need_mib:
        return "short", f"{label(gpu)}: {free} MiB free, {need_mib} needed, short by {need_mib - free} MiB"
    return "fits", ""


def gpus_free(
    snapshot: GpuSnapshot,
    uuids: Iterable[str],
    need_free_mib: int,
    baseline: Mapping[str, int | None] | None = None,
    whose: Mapping[int, str] | None = None,
) -> list[str]:
    """Why the named GPUs are not proven free; an empty list is the proof.

    `baseline` maps a UUID to the MiB that were free before the serve was loaded, where that is known; `whose` says
    of a process, by pid, where it runs.
    Nothing is killed and nothing is guessed: every holder is named with pid, name and MiB.
    """
    reasons: list[str] = []
    for uuid in uuids:
        gpu = find(snapshot, uuid)
        if gpu is None or gpu.state != "ok":
            reasons.append(_unreadable(snapshot, uuid))
        else:
            reasons += _held(gpu, need_free_mib, (baseline or {}).get(uuid), whose or {})
    return reasons


def _held(gpu: Gpu, need_mib: int, before_mib: int | None, whose: Mapping[int, str]) -> list[str]:
    reasons: list[str] = []
    free = free_mib(gpu)
    floor = max(need_mib, 0 if before_mib is None else before_mib - BASELINE_TOLERANCE_MIB)
    if gpu.processes:
        who = (f"{holder(p)} {whose.get(p.pid, '')}".rstrip() for p in gpu.processes)
        reasons.append(f"{label(gpu)}: held by {', '.join(who)}")
    if free is None and (floor or gpu.processes is None):
        reasons.append(f"{label(gpu)}: free memory n/a, {floor} MiB needed: not provable")
    elif free is not None and free < floor:
        reasons.append(_missing(gpu, free, floor, before_mib))
    elif gpu.processes is None and not floor:
        reasons.append(f"{label(gpu)}: no process list here and no free figure to compare with: not provable")
    return reasons


def _missing(gpu: Gpu, free: int, floor: int, before_mib: int | None) -> str:
    short = (before_mib if before_mib is not None and before_mib > floor else floor) - free
    text = f"{label(gpu)}: {free} MiB free, {floor} needed, {short} MiB not released"
    if gpu.processes is None:
        return text + " (no process list here)"
    sizes = [p.used_bytes for p in gpu.processes]
    if any(s is None for s in sizes):
        return text + ", n/a of it attributed"
    return text + f", {sum(s or 0 for s in sizes) // MIB} MiB attributed"


def free_basis(snapshot: GpuSnapshot, uuids: Iterable[str]) -> str:
    """What a proof by `gpus_free` rests on, as words for the journal."""
    gpus = [find(snapshot, u) for u in uuids]
    if any(g is not None and g.processes is None for g in gpus):
        return "free memory only: the process list is not available here"
    return "process list and free memory"


def find(snapshot: GpuSnapshot, uuid: str) -> Gpu | None:
    return next((g for g in snapshot.gpus if g.uuid and g.uuid.lower() == uuid.lower()), None)


def free_mib(gpu: Gpu) -> int | None:
    return None if gpu.free_bytes is None else gpu.free_bytes // MIB


def label(gpu: Gpu) -> str:
    return f"GPU {gpu.index} ({(gpu.uuid or 'UUID n/a')[:12]})"


def holder(process: GpuProcess) -> str:
    """A process as words: `pid 41207 VLLM::Worker 11020 MiB`."""
    size = "n/a MiB" if process.used_bytes is None else f"{process.used_bytes // MIB} MiB"
    return f"pid {process.pid} {process.name or 'name n/a'} {size}"


def _unreadable(snapshot: GpuSnapshot, uuid: str) -> str:
    gpu = find(snapshot, uuid)
    if gpu is not None:
        return f"{label(gpu)} is {gpu.state}: {gpu.reason or 'no reason given'}"
    bad = [g for g in snapshot.gpus if g.state != "ok"]
    if bad:
        who = ", ".join(f"GPU {g.index}" for g in bad)
        return f"{uuid}: not among the readable GPUs, and {who} cannot be read ({bad[0].reason})"
    return f"{uuid}: no such GPU here ({len(snapshot.gpus)} GPUs)"
