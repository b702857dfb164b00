"""Gates that look at the box around the serve: shared memory, GPU errors, host memory, hashes of patched files."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from anvil_tui.core.box import MIB, GpuSnapshot, SharedFile
from anvil_tui.core.errors import AnvilError, NotFound
from anvil_tui.core.gates import FailureClass, Gate, GateKind, Observation, Suite
from anvil_tui.core.times import epoch_ns
from anvil_tui.core.verdicts import Judged, failed, shown
from anvil_tui.service.gates.operational import fresh_gpus
from anvil_tui.service.gates.session import Finding, GateParts, GateTarget, GateWork, Session

WATCH_S = 0.5
SCANS_APART_S = 1.0
LISTED = 20
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9A-Fa-f:.]+)\): (\d+)")


@contextmanager
def watched(session: Session) -> Iterator[None]:
    """Keeps the least free GPU memory, the least host memory and the most swap while the gates run.

    What is counted from the beginning is counted from that of an earlier, interrupted process, if there was one.
    """
    over, snapshot, host = threading.Event(), session.gpus.read().value, session.parts.host
    session.watch.setdefault("ecc", ecc_errors(snapshot) if snapshot else {})
    session.watch.setdefault("kernel", host.kernel_mark().value if host else None)

    def watch() -> None:
        while not over.is_set():
            session.note_memory()
            over.wait(WATCH_S)

    thread = threading.Thread(target=watch, name="gate memory", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(2 * WATCH_S)


def _finding(judged: Judged, **raw: Any) -> Finding:
    raw["outcome"] = judged.outcome
    return Finding(judged, (Observation(1, judged.ok, judged.failure, judged.note, raw=raw),))


def _needs_host(suite: Suite, gate: Gate, target: GateTarget, parts: GateParts) -> str:
    return "" if parts.host else "nothing here can look at the box itself"


# shared memory


def shared_memory(session: Session, gate: Gate, n: int) -> Finding:
    """No file that nobody uses is left in the serve's /dev/shm; two scans must agree before one is blamed."""
    private = session.target.recipe.launch.ipc == "private"
    pid = session.began.pid if session.began and private else None
    if private and pid is None:
        return _finding(
            Judged("unverified", None, session.began_error or "the container has no process to look at")
        )
    first, why = _orphans(session, pid)
    if why:
        return _finding(Judged("unverified", None, why))
    session.clock.sleep(SCANS_APART_S)
    second, why = _orphans(session, pid)
    if why:
        return _finding(Judged("unverified", None, why))
    left = sorted(first.keys() & second.keys())
    started = (epoch_ns(session.began.started_at) or 0) / 1e9 if session.began else 0.0
    ours = [name for name in left if private or second[name].written_at >= started]
    raw = {
        "files": [{"name": session.safe(name), "bytes": second[name].bytes} for name in left[:LISTED]],
        "older_than_the_serve": len(left) - len(ours),
    }
    if ours:
        total = sum(second[name].bytes for name in ours)
        note = f"{len(ours)} files in /dev/shm that no process uses, {total // MIB:,} MiB, first: {shown(ours[0])}"
        return _finding(failed(FailureClass.CHECK, session.safe(note)), **raw)
    return _finding(Judged("ok", None, f"no file of this serve is left unused; {len(left)} older ones"), **raw)


def _orphans(session: Session, pid: int | None) -> tuple[dict[str, SharedFile], str]:
    assert session.parts.host is not None
    seen = session.parts.host.shared_files(pid)
    if seen.value is None:
        return {}, f"shared memory cannot be read: {seen.reason}"
    if blind := [f.name for f in seen.value if f.users is None]:
        who = "not every process may be looked at (run as root)"
        return {}, f"{len(blind)} files in /dev/shm without a known user, and {who}"
    return {f.name: f for f in seen.value if not f.users}, ""


# GPU errors


def ecc_errors(snapshot: GpuSnapshot) -> dict[str, int]:
    return {g.uuid: g.ecc_uncorrected for g in snapshot.gpus if g.uuid and g.ecc_uncorrected is not None}


def gpu_errors(session: Session, gate: Gate, n: int) -> Finding:
    """Since the gates began: no GPU lost, no uncorrected ECC error more, no Xid of the serve's GPUs."""
    assert session.parts.host is not None
    reading = fresh_gpus(session)
    if not reading.ok or reading.value is None:
        return _finding(Judged("errored", None, f"GPUs cannot be read: {reading.reason}"))
    grant = session.began.gpus if session.began else None
    if grant is None or grant.effective in ("none", "unknown"):
        why = session.began_error or f"the container's GPUs are {grant.effective if grant else 'unknown'}"
        return _finding(Judged("errored", None, why))
    mine = [g for g in reading.value.gpus if grant.effective == "all" or g.uuid in grant.uuids]
    before, now = session.watch.get("ecc", {}), ecc_errors(reading.value)
    grown = {u: now[u] - before[u] for u in now if u in before and now[u] > before[u]}
    raw: dict[str, Any] = {"ecc_before": before, "ecc_now": now}
    if lost := next((g for g in mine if g.state != "ok"), None):
        return _finding(failed(FailureClass.CHECK, f"GPU {lost.uuid} is {lost.state}: {lost.reason}"), **raw)
    if gone := sorted(set(grant.uuids) - {g.uuid for g in mine}):
        return _finding(failed(FailureClass.CHECK, f"GPU {gone[0]} of the container is gone from the box"), **raw)
    if bad := next((g.uuid for g in mine if g.uuid in grown), None):
        note = f"{grown[bad]} uncorrected ECC errors more on {bad} since the gates began"
        return _finding(failed(FailureClass.CHECK, note), **raw)
    mark = session.watch.get("kernel")
    kernel = session.parts.host.kernel_lines(mark or 0)
    if mark is None or kernel.value is None:
        why = kernel.reason or "it could not be read when the gates began"
        note = f"the kernel log cannot be read, so Xid is unknown: {why}"
        return _finding(Judged("unverified", None, note), **raw)
    xids = [(m[1], m[2], line) for line in kernel.value if (m := _XID.search(line))]
    raw["xid"] = [session.safe(line) for _, _, line in xids[:LISTED]]
    buses = {_bus(g.bus_id) for g in mine if g.bus_id}
    if hit := next((x for x in xids if _bus(x[0]) in buses or len(buses) < len(mine)), None):
        return _finding(failed(FailureClass.CHECK, f"Xid {hit[1]} on {hit[0]}: {shown(hit[2])}"), **raw)
    if half := next((g.uuid for g in mine if (g.uuid in now) is not (g.uuid in before)), None):
        when = "when the gates began" if half in now else "now"
        return _finding(Judged("unverified", None, f"{half} did not tell its ECC errors {when}"), **raw)
    untold = sum(g.uuid not in now for g in mine)
    note = f"{len(mine)} GPUs: no Xid, no uncorrected ECC error more"
    return _finding(Judged("ok", None, note + (f"; {untold} report no ECC" if untold else "")), **raw)


def _bus(text: str) -> str:
    """Bus and device of a PCI address; the domain has four or eight digits, the function may lack.

    >>> _bus("00000000:65:00.0") == _bus("0000:65:00")
    True
    """
    return ":".join(text.lower().split(".")[0].split(":")[-2:])


def _needs_gpus(suite: Suite, gate: Gate, target: GateTarget, parts: GateParts) -> str:
    if not target.recipe.gpus.select:
        return "the recipe names no GPU, so there is none whose errors count; use a suite without this gate"
    return _needs_host(suite, gate, target, parts)


# host memory


def host_memory(session: Session, gate: Gate, n: int) -> Finding:
    """All the while the host kept the memory that the rule wants free, and swapped no more than it allows."""
    assert session.parts.host is not None
    session.note_memory()
    low = session.host_low
    raw: dict[str, Any] = {k: None if v is None else v // MIB for k, v in low.items()}
    raw |= _containment(session)
    available, swap = low.get("least_available"), low.get("most_swap")
    if available is None or (swap is None and gate.swap_at_most_mib is not None):
        return _finding(Judged("unverified", None, "the host does not tell its memory"), **raw)
    note = f"least free host memory {available // MIB:,} MiB"
    if available < gate.free_at_least_mib * MIB:
        return _finding(
            failed(FailureClass.CHECK, f"{note}, the rule wants {gate.free_at_least_mib:,} MiB"), **raw
        )
    if gate.swap_at_most_mib is not None and swap is not None and swap > gate.swap_at_most_mib * MIB:
        most = f"{swap // MIB:,} MiB of swap in use, the rule allows {gate.swap_at_most_mib:,} MiB"
        return _finding(failed(FailureClass.CHECK, most), **raw)
    peak = f"; the container's peak since it started {raw['peak_mib']:,} MiB" if raw.get("peak_mib") else ""
    return _finding(Judged("ok", None, note + peak), **raw)


def _containment(session: Session) -> dict[str, Any]:
    """Peak, limit and how often the limit was met, from the start of the container, so of its load too."""
    pid = session.began.pid if session.began else None
    seen = session.parts.host.cgroup_memory(pid) if pid and session.parts.host else None
    if seen is None or seen.value is None:
        return {"containment": seen.reason if seen else "the container has no process"}
    limit = seen.value.limit
    return {
        "peak_mib": seen.value.peak // MIB, "limit_mib": None if limit is None else limit // MIB,
        "limit_met": seen.value.met,
    }  # fmt: skip


# hashes


def hashes(session: Session, gate: Gate, n: int) -> Finding:
    """Every template, patch and weights file that the recipe pins is, inside the running container, that file."""
    found: dict[str, str] = {}
    wrong: list[str] = []
    for name, path, want in session.target.recipe.pinned_files:
        try:
            got = session.containers.sha256(session.target.container_id, path, gate.timeout_s)
        except NotFound as why:
            wrong.append(f"{name} {path}: {why}")
            continue
        except AnvilError as why:
            return _finding(Judged("errored", None, f"{name}: {why}"), sha256=found)
        found[path] = got
        if got != want:
            wrong.append(f"{name} {path} is {got[:12]}…, the recipe pins {want[:12]}…")
    if wrong:
        return _finding(failed(FailureClass.IDENTITY, "; ".join(wrong)), sha256=found)
    return _finding(Judged("ok", None, f"{len(found)} pinned files as recorded"), sha256=found)


def _needs_pins(suite: Suite, gate: Gate, target: GateTarget, parts: GateParts) -> str:
    if target.recipe.pinned_files:
        return ""
    return "the recipe pins no file by hash (patches with file and sha256, or model.sha256 with model.path)"


HOUSEKEEPING: Mapping[GateKind, GateWork] = {
    "shared-memory": GateWork(shared_memory, _needs_host),
    "gpu-errors": GateWork(gpu_errors, _needs_gpus),
    "host-memory": GateWork(host_memory, _needs_host),
    "hashes": GateWork(hashes, _needs_pins),
}
