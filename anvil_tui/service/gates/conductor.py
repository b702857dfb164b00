"""Runs a suite against one serve: what cannot run is said first, every observation is kept, one verdict a gate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Lock
from typing import Any

from anvil_tui.core.bounds import proven
from anvil_tui.core.errors import AnvilError
from anvil_tui.core.gates import Gate, GateKind, GateProgress, GateResult, Suite, Verdict, suite_passed
from anvil_tui.core.recipe import EngineKind
from anvil_tui.core.times import epoch_ns
from anvil_tui.core.verdicts import Judged
from anvil_tui.service.gates import start_up
from anvil_tui.service.gates.command import COMMAND
from anvil_tui.service.gates.functional import FUNCTIONAL
from anvil_tui.service.gates.housekeeping import HOUSEKEEPING, watched
from anvil_tui.service.gates.lanes import LANES
from anvil_tui.service.gates.operational import OPERATIONAL, log_meanwhile
from anvil_tui.service.gates.quality import QUALITY
from anvil_tui.service.gates.reading import client_tokens
from anvil_tui.service.gates.session import (
    Finding,
    GateParts,
    GateTarget,
    GateWork,
    Session,
    budgets,
    thinking_wanted,
)
from anvil_tui.service.gates.vision import VISION

__all__ = ["Conductor", "GateTarget", "suite_passed"]

CATALOGUE: Mapping[GateKind, GateWork] = {
    **FUNCTIONAL,
    **VISION,
    **LANES,
    **QUALITY,
    **COMMAND,
    **OPERATIONAL,
    **HOUSEKEEPING,
}

OnEvent = Callable[[GateProgress | GateResult], None]


class Conductor:
    """The only road by which gates run, for operations, console and command line alike."""

    def __init__(self, parts: GateParts) -> None:
        self._parts, self._clock = parts, parts.clock

    def unrunnable(self, suite: Suite, target: GateTarget) -> dict[str, str]:
        """Gate id -> why it could not run, found before anything starts; empty = all can."""
        if lacks := suite.needs.unmet(target.recipe):
            return {g.id: f"suite {suite.id} needs {lacks}" for g in suite.gates}
        found = {g.id: why for g in suite.gates if (why := self._why_not(suite, g, target))}
        return found | self._unloggable(suite, target)

    def _why_not(self, suite: Suite, gate: Gate, target: GateTarget) -> str:
        recipe, work = target.recipe, CATALOGUE.get(gate.kind)
        if work is None:
            return f"this version does not know how to run kind {gate.kind}"
        if gate.routed and not target.routed_url:
            return "there is no way through the gateway to this serve"
        if gate.repeats and gate.generates and gate.kind != "command":
            need, limit = gate.prompt_tokens_at_least + sum(budgets(gate, recipe)), recipe.envelope.context_tokens
            if need > limit and gate.kind != "client-shape":  # it has a length of answer of its own
                return f"prompt floor and budgets need {need:,} tokens, the recipe's context is {limit:,}"
            wanted = thinking_wanted(gate, recipe)
            if recipe.engine is EngineKind.OPENAI and wanted in ("on", "off"):
                return f"thinking = {wanted} has no control on a generic OpenAI server"
        answer = client_tokens(gate, recipe) if gate.kind == "client-shape" else sum(budgets(gate, recipe))
        longest = start_up.longest_request(gate, recipe, answer)
        return work.why_not(suite, gate, target, self._parts) or start_up.why_not(
            target.start, gate, recipe, longest
        )

    def _unloggable(self, suite: Suite, target: GateTarget) -> dict[str, str]:
        audits = [g.id for g in suite.gates if g.kind == "log-audit"]
        if not audits or not target.container_id:
            return {}
        try:
            driver = self._parts.containers.inspect(target.container_id).log_driver
        except AnvilError as why:
            return {g: f"the container cannot be read: {why}" for g in audits}
        return {
            g: "the container's log driver is none, so nothing can be read" for g in audits if driver == "none"
        }

    def run(
        self,
        suite: Suite,
        target: GateTarget,
        on_event: OnEvent,
        cancelled: Callable[[], bool],
        kept: Mapping[str, GateResult] | None = None,
        watch: dict[str, Any] | None = None,
    ) -> tuple[GateResult, ...]:
        """All gates in order, each exactly one result. Never raises for what the serve or the network does.

        `cancelled` is asked between requests, and may take its time to answer (a pause): a request under way
        ends by itself or by its timeout. `kept` holds results of an earlier, interrupted run of the same suite on
        the same container; those gates are not run again. `watch` is what that run had seen of the box, and is
        kept up to date: what must hold all the while must have held then, too.
        """
        target = self._started(suite, target)
        cannot = self.unrunnable(suite, target)
        session = self._session(target, cancelled, {} if watch is None else watch)
        results: list[GateResult] = []
        with watched(session):
            for gate in suite.gates:
                if kept and gate.id in kept:
                    result = kept[gate.id]
                elif cancelled():
                    result = _result(gate, Verdict.CANCELLED, "cancelled before it ran")
                elif gate.id in cannot:
                    result = _result(gate, Verdict.UNRUNNABLE, cannot[gate.id])
                else:
                    result = self._gate(session, gate, on_event)
                results.append(result)
                on_event(result)
        return tuple(results)

    def _started(self, suite: Suite, target: GateTarget) -> GateTarget:
        """The target with what its engine said when it started, for gates that depend on it."""
        if not start_up.matters(suite.gates):
            return target
        parts = self._parts
        said = start_up.start_of(target.recipe, target.port, target.container_id, parts.engines, parts.containers)
        return replace(target, start=said)

    def _session(self, target: GateTarget, cancelled: Callable[[], bool], watch: dict[str, Any]) -> Session:
        now = self._clock.utc()
        session = Session(
            target, self._parts, f"{now:%Y%m%dT%H%M%S.%f}", cancelled=cancelled, watch=watch,
            least_free=watch.setdefault("least_free", {}), host_low=watch.setdefault("host_low", {}),
        )  # fmt: skip
        session.memory["began_ns"] = epoch_ns(now.isoformat())
        try:
            session.began = self._parts.containers.inspect(target.container_id)
        except AnvilError as why:
            session.began_error = f"the container could not be read when the gates began: {why}"
        return session

    def _gate(self, session: Session, gate: Gate, on_event: OnEvent) -> GateResult:
        began, since_ns = self._clock.monotonic_s(), epoch_ns(self._clock.utc().isoformat())
        findings = self._repeats(session, gate, on_event)
        result = judge(gate, findings, self._clock.monotonic_s() - began)
        if gate.generates and session.dead and result.verdict is Verdict.PASSED:
            result = replace(result, verdict=Verdict.ERRORED, reason=f"{result.reason}; but {session.dead}")
        if gate.generates and result.verdict in (Verdict.FAILED, Verdict.ERRORED):
            return replace(result, reason=result.reason + log_meanwhile(session, since_ns))
        return result

    def _repeats(self, session: Session, gate: Gate, on_event: OnEvent) -> list[Finding]:
        """The findings in the order of their numbers, `gate.parallel` at a time; at least one is made."""
        of, lock = gate.repeat if gate.repeats else 1, Lock()
        numbers, found = iter(range(1, of + 1)), dict[int, Finding]()
        session.progress = lambda done, total, row: on_event(GateProgress(gate.id, gate.kind, done, total, row))
        session.progress(0, of, None)

        def work() -> None:
            while not (found and (session.dead or session.cancelled())):
                with lock:
                    n = next(numbers, None)
                if n is None:
                    return
                finding = self._once(session, gate, n)
                with lock:
                    found[n] = finding
                    if gate.repeats:
                        session.progress(len(found), of, None)

        with ThreadPoolExecutor(min(gate.parallel, of)) as pool:
            for made in [pool.submit(work) for _ in range(min(gate.parallel, of))]:
                made.result()
        return [found[n] for n in sorted(found)]

    def _once(self, session: Session, gate: Gate, n: int) -> Finding:
        if gate.generates and session.dead:
            return Finding(Judged("errored", None, session.dead), ())
        try:
            return CATALOGUE[gate.kind].once(session, gate, n)
        except AnvilError as why:
            return Finding(Judged("errored", None, session.safe(str(why))), ())


def judge(gate: Gate, findings: Sequence[Finding], elapsed_s: float) -> GateResult:
    """One verdict over the repeats that were made; fewer than asked for means that the gate was cut short."""
    of = gate.repeat if gate.repeats else 1
    need = (gate.pass_at_least or of) if gate.repeats else 1
    outcomes = [f.judged.outcome for f in findings]
    passed, wrong = outcomes.count("ok"), outcomes.count("failed")
    if passed >= need:
        verdict = Verdict.PASSED
    elif wrong > of - need:
        verdict = Verdict.FAILED
    elif "errored" in outcomes:
        verdict = Verdict.ERRORED
    elif len(findings) < of or "cancelled" in outcomes:
        verdict = Verdict.CANCELLED
    else:
        verdict = Verdict.UNSUPPORTED if "unsupported" in outcomes else Verdict.UNVERIFIED
    return GateResult(
        gate.id, gate.kind, verdict, _reason(findings, verdict, passed, of), passed, of, elapsed_s,
        failures=tuple(dict.fromkeys(f.judged.failure for f in findings if f.judged.failure)),
        observations=tuple(o for f in findings for o in f.observations),
        accepted=verdict in gate.accept,
        rows=tuple(r for f in findings for r in f.rows),
    )  # fmt: skip


def _reason(findings: Sequence[Finding], verdict: Verdict, passed: int, of: int) -> str:
    """`k/N` and the note that decided; a passed gate shows what its last repeat measured."""
    decides = {Verdict.FAILED: "failed", Verdict.PASSED: "ok"}.get(verdict, str(verdict))
    notes = [(n, f.judged) for n, f in enumerate(findings, 1) if f.judged.outcome == decides and f.judged.note]
    if verdict is Verdict.CANCELLED and not notes:
        return f"{passed}/{of}, cancelled after {len(findings)}"
    share = proven(passed, of) if verdict is Verdict.PASSED else f"{passed}/{of}"
    if not notes:
        return share
    n, told = notes[-1] if verdict is Verdict.PASSED else notes[0]
    where = f"request {n}: " if of > 1 else ""
    what = f"{told.failure}: " if told.failure else ""
    return f"{share}; {where}{what}{told.note}"


def _result(gate: Gate, verdict: Verdict, reason: str) -> GateResult:
    return GateResult(gate.id, gate.kind, verdict, reason, 0, gate.repeat if gate.repeats else 1, 0.0)
