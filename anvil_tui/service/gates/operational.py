"""Gates that look at the serve: its model card, its container, its log, the memory it leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from anvil_tui.core import verdicts
from anvil_tui.core.box import MIB, Container, Gpu, GpuSnapshot
from anvil_tui.core.engine_log import LineClass, classify, signature
from anvil_tui.core.errors import AnvilError, NotFound
from anvil_tui.core.gates import FailureClass, Gate, GateKind, Observation, Suite
from anvil_tui.core.reading import Reading
from anvil_tui.core.times import epoch_ns
from anvil_tui.core.verdicts import OK, Judged, failed, shown
from anvil_tui.core.waivers import in_force, waiver_text
from anvil_tui.ports import LogLine
from anvil_tui.service.gates import prompts
from anvil_tui.service.gates.session import Finding, GateParts, GateTarget, GateWork, Session

LOG_TAIL = 20_000
LISTED = 20
FRESH_READING_S = 15.0
_SUSPECT = ("error", "exception", "traceback", "fatal", "segfault", "abort", "failed")


def _finding(judged: Judged, **raw: Any) -> Finding:
    raw["outcome"] = judged.outcome
    return Finding(judged, (Observation(1, judged.ok, judged.failure, judged.note, raw=raw),))


def identity(session: Session, gate: Gate, n: int) -> Finding:
    """The model card names exactly this serve, and its context is the recipe's; routed: the gateway reaches it."""
    recipe, target = session.target.recipe, session.target
    seen = session.engines.read(recipe.engine, target.port)
    raw: dict[str, Any] = {key: getattr(seen, key) for key in ("context_tokens", "http")}
    raw |= {"served": [session.safe(name) for name in seen.served], "version": session.safe(seen.version or "")}
    if seen.http != "ready":
        note = f"{session.death() or seen.http}: {seen.reason or 'the engine is not ready'}"
        return _finding(Judged("errored", None, session.safe(note)), **raw)
    known = (*recipe.served_aliases, *target.aliases)
    judged = verdicts.identity(
        seen.served, seen.context_tokens, recipe.served_name, known, recipe.envelope.context_tokens
    )
    judged = replace(judged, note=session.safe(judged.note))
    card = _finding(judged, **raw)
    if not judged.ok or not gate.routed:
        return card
    routed, _ = session.ask(gate, n, lambda a: OK, messages=(prompts.user(prompts.SMOKE),))
    return Finding(routed.judged, (*card.observations, *routed.observations))


def container_state(session: Session, gate: Gate, n: int) -> Finding:
    """Nothing happened to the container since the suite began: same start, no restart, no memory kill."""
    began = session.began
    if began is None:
        return _finding(Judged("errored", None, session.began_error))
    try:
        now = session.containers.inspect(session.target.container_id)
    except NotFound as why:
        return _finding(failed(FailureClass.CHECK, f"the container is gone: {why}"))
    except AnvilError as why:
        return _finding(Judged("errored", None, str(why)))
    keys = ("status", "started_at", "restart_count", "oom_killed", "exit_code")
    raw = {key: [getattr(began, key), getattr(now, key)] for key in keys}
    changed = _changed(began, now)
    if changed is None and (untold := [k for k in ("restart_count", "oom_killed") if None in raw[k]]):
        return _finding(Judged("unverified", None, f"the daemon does not tell {' and '.join(untold)}"), **raw)
    return _finding(verdicts.check(changed), **raw)


def _changed(began: Container, now: Container) -> str | None:
    if now.oom_killed:
        return "a process of the container was killed for memory"
    if not now.running:
        return f"the container is {now.status}, exit code {now.exit_code}"
    if now.started_at != began.started_at:
        return f"the container was started again at {now.started_at} (before: {began.started_at})"
    if None not in (now.restart_count, began.restart_count) and now.restart_count != began.restart_count:
        return f"restart count went from {began.restart_count} to {now.restart_count}"
    return None


def log_audit(session: Session, gate: Gate, n: int) -> Finding:
    """No fatal line since the container started. Lines that only look like errors are listed, not judged."""
    try:
        lines = session.containers.logs(session.target.container_id, tail=LOG_TAIL)
    except AnvilError as why:
        return _finding(Judged("unverified", None, f"the log cannot be read: {why}"))
    started = session.began.started_at if session.began else None
    lines = since(lines, epoch_ns(started))
    classes = [(classify(session.target.recipe.engine, line.text), line) for line in lines]
    fatal = [line for cls, line in classes if cls == "fatal"]
    suspect = [line for cls, line in classes if cls == "unknown" and any(w in line.text.lower() for w in _SUSPECT)]
    raw: dict[str, Any] = {"lines": len(lines), "whole": len(lines) < LOG_TAIL}
    raw |= {f"{word}_lines": sum(cls == word for cls, _ in classes) for word in get_args(LineClass)}
    known = (signature(session.target.recipe.engine, line.text) for line in lines)
    raw["signatures"] = dict(Counter(name for name in known if name))
    raw["suspect"] = [session.safe(line.text) for line in suspect[:LISTED]]
    raw["fatal"] = [session.safe(line.text) for line in fatal[:LISTED]]
    if fatal:
        newer = len(since(fatal, session.memory.get("began_ns")))
        note = f"{len(fatal)} fatal lines ({newer} since the gates began), first: {shown(fatal[0].text)}"
        return _finding(failed(FailureClass.CHECK, session.safe(note)), **raw)
    if not lines:
        return _finding(Judged("unverified", None, "the log holds no line since the container started"), **raw)
    if not raw["whole"] and len(since(lines, session.memory.get("began_ns"))) == len(lines):
        flood = f"the gates left more than {LOG_TAIL:,} lines; the first of them were not read"
        return _finding(Judged("unverified", None, flood), **raw)
    note = f"{len(lines)} lines, none fatal; {len(suspect)} unknown lines look like errors"
    note += "" if raw["whole"] else f"; only the newest {LOG_TAIL:,} lines were read"
    return _finding(Judged("ok", None, note), **raw)


def since(lines: Sequence[LogLine], start_ns: int | None) -> tuple[LogLine, ...]:
    """Lines stamped at or after a moment; a line without a stamp is kept."""
    stamped = ((line, epoch_ns(line.at)) for line in lines)
    return tuple(line for line, at in stamped if start_ns is None or at is None or at >= start_ns)


def log_meanwhile(session: Session, start_ns: int | None) -> str:
    """What the engine itself said while a gate failed: the first line of note, or nothing."""
    try:
        lines = since(session.containers.logs(session.target.container_id, tail=LOG_TAIL), start_ns)
    except AnvilError as why:
        return f"; its log cannot be read: {why}"
    kind = session.target.recipe.engine
    told = [line for line in lines if line.at and classify(kind, line.text) not in ("benign", "unknown")]
    told.sort(key=lambda line: classify(kind, line.text) != "fatal")
    more = f" (and {len(told) - 1} more)" if len(told) > 1 else ""
    return f"; probable cause in its log: {session.safe(shown(told[0].text))}{more}" if told else ""


def reserve(session: Session, gate: Gate, n: int) -> Finding:
    """Every GPU of the serve keeps the reserve free: now and, after work, at the least that was seen."""
    gpus, why = _granted(session)
    if why:
        return _finding(Judged("errored", None, why))
    session.note_memory()
    need, recipe = session.target.reserve_needed_mib, session.target.recipe
    if blind := [g.uuid for g in gpus if g.free_bytes is None or g.uuid not in session.least_free]:
        return _finding(Judged("unverified", None, f"{blind[0]} does not report its free memory"))
    free = {str(g.uuid): (g.free_bytes or 0) // MIB for g in gpus}
    least = {uuid: session.least_free[uuid] // MIB for uuid in free}
    judged_by = least if gate.when == "during" else free
    raw = {"free_mib": free, "least_free_mib": least, "reserve_mib": need, "when": gate.when}
    short = min(judged_by, key=lambda uuid: judged_by[uuid])
    note = f"{judged_by[short]:,} MiB free on {short}, reserve {need:,} MiB, {gate.when}"
    if judged_by[short] >= need:
        return _finding(Judged("ok", None, note), **raw)
    waiver = in_force(
        recipe, tuple(free), session.target.waivers, session.clock.utc().date(), session.target.reserve_mib
    )
    if waiver and judged_by[short] >= waiver.reserve_mib:
        raw["waiver"] = waiver_text(waiver)
        return _finding(Judged("ok", None, f"{note}: short, waived on {waiver.at[:10]}, {waiver.reason}"), **raw)
    return _finding(failed(FailureClass.CHECK, f"{note}: short by {need - judged_by[short]:,} MiB"), **raw)


def fresh_gpus(session: Session) -> Reading[GpuSnapshot]:
    """A reading taken after now: the one kept from before may not know what the last gate did."""
    asked = session.clock.monotonic_s()
    seen = session.gpus.read()
    while not (seen.ok and seen.at_s is not None and seen.at_s >= asked):
        if session.clock.monotonic_s() > asked + FRESH_READING_S:
            why = f"no new GPU reading within {FRESH_READING_S:.0f} s: {seen.reason or 'the reader is stale'}"
            return Reading.unknown(why, seen.source, session.clock.monotonic_s())
        session.clock.sleep(0.05)
        seen = session.gpus.read()
    return seen


def _granted(session: Session) -> tuple[list[Gpu], str]:
    """The GPUs that the container really holds, in a reading taken after now; or why there is none."""
    seen = fresh_gpus(session)
    if not seen.ok:
        return [], seen.reason
    gpus = seen.value.gpus if seen.value else ()
    grant = session.began.gpus if session.began else None
    if grant is None or grant.effective in ("none", "unknown"):
        return [], session.began_error or f"the container's GPUs are {grant.effective if grant else 'unknown'}"
    mine = [g for g in gpus if grant.effective == "all" or g.uuid in grant.uuids]
    lost = next((g for g in mine if g.state != "ok"), None)
    missing = set(grant.uuids) - {g.uuid for g in mine}
    if lost or missing or not mine:
        return [], f"GPU {lost.uuid if lost else ', '.join(sorted(missing)) or 'of the container'} cannot be read"
    return mine, ""


def _no_reserve(suite: Suite, gate: Gate, target: GateTarget, parts: GateParts) -> str:
    if not target.recipe.gpus.select:
        return "the recipe names no GPU, so there is no reserve to measure; use a suite without this gate"
    if not target.reserve_needed_mib:
        return "no reserve is set: neither the recipe's reserve.mib_per_gpu nor the box's policies.reserve_mib"
    before = suite.gates[: suite.gates.index(gate)]
    if gate.when == "after-routed" and not any(g.generates and g.routed for g in before):
        return "when = after-routed, but no gate before it works through the gateway"
    if gate.when in ("during", "after-work") and not any(g.generates for g in before):
        return f"when = {gate.when}, but no gate before it makes the model work"
    seen = parts.gpus.read()
    return f"GPUs cannot be read: {seen.reason}" if seen.state == "error" else ""


OPERATIONAL: Mapping[GateKind, GateWork] = {
    "identity": GateWork(identity),
    "log-audit": GateWork(log_audit),
    "container-state": GateWork(container_state),
    "reserve": GateWork(reserve, _no_reserve),
}
