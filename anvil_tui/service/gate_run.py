"""The step that runs a suite of gates: journaled as it goes, paused between requests, taken up again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from threading import Lock
from typing import Any

from pydantic import TypeAdapter, ValidationError

from anvil_tui import __version__
from anvil_tui.core.bundle import suite_digest
from anvil_tui.core.errors import BadFile, EffectFailed
from anvil_tui.core.gates import GateProgress, GateResult, Verdict, suite_passed
from anvil_tui.core.lane_rules import BUSY, UNUSABLE
from anvil_tui.core.plan import Step
from anvil_tui.ports.operations import OperationStore
from anvil_tui.service.credentials import wait_for_key
from anvil_tui.service.deeds import Seen
from anvil_tui.service.evidence import Basis, basis_of, write_evidence
from anvil_tui.service.run import Run
from anvil_tui.service.targets import target_of

PAUSE_POLL_S = 0.2
KEPT = "gates-kept.json"
KEY_TRIES = 3
_KEY_REFUSED = re.compile(r"\bhttp 40[13]\b")
_FINAL = (Verdict.PASSED, Verdict.FAILED, Verdict.UNSUPPORTED, Verdict.UNVERIFIED)
_RESULTS = TypeAdapter(list[GateResult])


def gates_passed(run: Run, step: Step) -> Seen | None:
    return run.memory.get(step.name)


def run_gates(run: Run, step: Step) -> None:
    suite = next((s.suite for s in run.box.suites() if s.suite and s.suite.id == step.args["suite"]), None)
    if suite is None:
        raise EffectFailed(f"suite {step.args['suite']} is not in gates/ any more")
    container = run.need_container(step.args)
    serve = step.args if "digest" in step.args else serve_args(run, container.id)
    recipe = run.recipe(serve)
    routed = {g.id for g in suite.gates if g.routed} if step.args.get("routed") else set[str]()
    if routed:
        wait_for_key(run, step)
    target = target_of(run.box, recipe, container.id, serve["port"], serve["slot"])
    basis = basis_of(run.box, suite, target)
    under_test = {"container": container.id, "started_at": container.started_at, "suite": suite_digest(suite)}
    under_test["version"] = __version__
    kept, watch = _kept(run, under_test)
    made = list(kept.values())
    suite, left_out = suite.for_recipe(recipe)

    def on_event(event: GateProgress | GateResult) -> None:
        run.journal.append("gate", step.name, **_record(event))
        if isinstance(event, GateResult) and event.verdict in _FINAL and event.gate not in kept:
            made.append(event)
            _keep(run, under_test, made, watch)

    results = run.box.conductor().run(suite, target, on_event, _waits(run, step), kept, watch)
    for _ in range(KEY_TRIES):
        if not any(r.gate in routed and _KEY_REFUSED.search(r.reason) for r in results):
            break
        wait_for_key(run, step)
        kept |= {r.gate: r for r in results if r.verdict in _FINAL}
        target = target_of(run.box, recipe, container.id, serve["port"], serve["slot"])
        results = run.box.conductor().run(suite, target, on_event, _waits(run, step), kept, watch)
    _keep_evidence(run, basis, results, (*left_out, *_taken_up(kept)))
    run.stop_if_asked()
    if not suite_passed(results):
        raise EffectFailed(why_not_passed(suite.id, results))
    run.memory[step.name] = {"suite": suite.id, "passed": len(results)}


def _keep_evidence(run: Run, basis: Basis, results: tuple[GateResult, ...], notes: tuple[str, ...]) -> None:
    """The chained journal says the hash of the manifest: a bundle made anew does not match it."""
    ended_at = run.box.clock.utc().isoformat(timespec="milliseconds")
    name, digest = write_evidence(run.box.operations, run.operation, basis, results, ended_at, notes)
    run.journal.append("note", text=f"evidence kept: {name}", evidence={name: digest})


def _taken_up(kept: Mapping[str, GateResult]) -> tuple[str, ...]:
    if not kept:
        return ()
    return (f"Taken up again after an interruption; results of the earlier process: {', '.join(kept)}.",)


def _record(event: GateProgress | GateResult) -> dict[str, Any]:
    if isinstance(event, GateProgress):
        row = {"row": asdict(event.row)} if event.row else {}
        return {
            "id": event.gate, "kind": event.kind, "verdict": "running", "done": event.done, "of": event.of, **row,
        }  # fmt: skip
    elapsed = {} if event.elapsed_s is None else {"elapsed_s": round(event.elapsed_s, 3)}
    return {
        "id": event.gate, "kind": event.kind, "verdict": str(event.verdict), "reason": event.reason,
        "done": event.passed, "of": event.of, **elapsed,
    }  # fmt: skip


def why_not_passed(suite: str, results: Sequence[GateResult]) -> str:
    """One reason in full, a fault of the serve before all else; the other gates by name under their verdict."""
    bad = [r for r in results if r.verdict != Verdict.PASSED and not r.accepted]
    first, *more = sorted(bad, key=lambda r: r.verdict != Verdict.FAILED)
    told = [f"suite {suite} did not pass: {first.gate} {first.verdict}: {first.reason}"]
    for verdict in dict.fromkeys(r.verdict for r in more):
        too = ", too" if verdict == first.verdict else ""
        told.append(f"{verdict}{too}: {', '.join(r.gate for r in more if r.verdict == verdict)}")
    if any(r.verdict == Verdict.ERRORED and r.reason.endswith(UNUSABLE) for r in bad):
        told.append(BUSY)
    return "; ".join(told)


def _waits(run: Run, step: Step) -> Callable[[], bool]:
    """Whether to stop; while the operator has paused the operation the answer waits, for all threads."""
    one = Lock()

    def asked() -> bool:
        with one:
            if run.box.operations.paused(run.operation) and run.interrupted() is None:
                run.note(step, "paused by the operator: no gate sends anything", paused=True)
                while run.box.operations.paused(run.operation) and run.interrupted() is None:
                    run.box.clock.sleep(PAUSE_POLL_S)
                run.note(step, "goes on", paused=False)
        return run.interrupted() is not None

    return asked


def _keep(run: Run, under_test: Mapping[str, Any], made: list[GateResult], watch: Mapping[str, Any]) -> None:
    """After every gate: a run whose process dies is taken up where it stood."""
    results = _RESULTS.dump_python(made, mode="json")
    seen = {key: dict(value) if isinstance(value, dict) else value for key, value in watch.items()}
    kept = {"under_test": under_test, "results": results, "watch": seen}
    run.box.operations.save(run.operation, KEPT, json.dumps(kept))


def _kept(run: Run, under_test: Mapping[str, Any]) -> tuple[dict[str, GateResult], dict[str, Any]]:
    """(results of this operation's earlier process, what it saw of the box); none when the container, the suite or
    the program is another.
    """
    text = run.box.operations.read_kept(run.operation, KEPT)
    if text is None:
        return {}, {}
    try:
        stored, results = _parsed(text)
        watch = dict(json.loads(text).get("watch", {}))
    except (ValueError, KeyError, TypeError, ValidationError) as why:
        run.journal.append("note", text=f"{KEPT} cannot be read, all gates run again: {why}"[:300])
        return {}, {}
    return ({r.gate: r for r in results}, watch) if stored == under_test else ({}, {})


def _parsed(text: str) -> tuple[Mapping[str, Any], list[GateResult]]:
    stored = json.loads(text)
    return stored["under_test"], _RESULTS.validate_python(stored["results"])


def kept_results(store: OperationStore, operation: str) -> tuple[GateResult, ...]:
    """Results of the gates that have ended while an operation runs them; BadFile when they cannot be read."""
    text = store.read_kept(operation, KEPT)
    try:
        return tuple(_parsed(text)[1]) if text is not None else ()
    except (ValueError, KeyError, TypeError, ValidationError) as why:
        raise BadFile(f"{operation}/{KEPT}", str(why)[:300]) from None


def serve_args(run: Run, container_id: str) -> Mapping[str, Any]:
    serve = run.box.store.read().serves[container_id]
    return {"recipe": serve.recipe_id, "digest": serve.recipe_digest, "port": serve.port, "slot": serve.slot}
