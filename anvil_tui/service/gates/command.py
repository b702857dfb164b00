"""Any program as a gate: an external suite, a harness, a real client; its rule stands in the suite beforehand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anvil_tui.core.command_rules import GIVEN, filled, named
from anvil_tui.core.expect import judge_result, last_json, told
from anvil_tui.core.gates import FailureClass, Gate, GateKind, Observation, Suite
from anvil_tui.core.redact import redact_argv, redact_values
from anvil_tui.core.tool_calls import decoded
from anvil_tui.core.verdicts import OK, Judged, failed, shown
from anvil_tui.ports import Command, CommandRun
from anvil_tui.service.gates.session import Finding, GateParts, GateTarget, GateWork, Session

MAX_RESULT_KEPT = 32 * 1024
# What a shell says of a program that it could not run, and ssh of a host that it could not reach.
NOT_RUN = {126: "it could not be executed", 127: "a program in it was not found"}
SSH_FAILED = 255

_NONE = object()


def command(session: Session, gate: Gate, n: int) -> Finding:
    runner = session.parts.commands
    if runner is None:
        return Finding(Judged("errored", None, NO_RUNNER), ())
    made = _made(gate, session.target)
    ran = runner.run(made, session.cancelled)
    result, trouble = _result(ran)
    judged = _judged(gate, ran, result, trouble)
    if judged.outcome == "errored":
        session.dead = session.dead or session.death()
    judged = replace(judged, note=session.safe(f"{session.dead}; {judged.note}" if session.dead else judged.note))
    session.note_memory()
    return Finding(judged, (_observation(session, gate, n, made, ran, result, judged),))


def _made(gate: Gate, target: GateTarget) -> Command:
    values = {
        "base_url": target.base_url,
        "routed_url": target.routed_url or "",
        "model": target.model(named(gate.argv, "routed_url")),
        "context": str(target.recipe.envelope.context_tokens),
    }
    given = {GIVEN: target.routed_key} if GIVEN in gate.env and target.routed_key else {}
    return Command(filled(gate.argv, values), gate.timeout_s, gate.env, given, gate.fixture_sha256)


def _result(ran: CommandRun) -> tuple[Any, str]:
    """(the JSON result, why there is none): the file that it wrote, else the last line of JSON of its output."""
    if ran.trouble:
        return _NONE, ran.trouble
    try:
        return (last_json(ran.stdout) if ran.written is None else decoded(ran.written)), ""
    except ValueError as why:
        where = "the output holds" if ran.written is None else "the result file holds"
        return _NONE, f"{where} no JSON: {why}"


def _judged(gate: Gate, ran: CommandRun, result: Any, trouble: str) -> Judged:
    if ran.ended == "cancelled":
        return Judged("cancelled", None, f"cancelled after {ran.elapsed_s:.0f} s; its process group was ended")
    if ran.ended == "deadline":
        why = f"not over within {gate.timeout_s} s; its process group was ended; {_last(ran)}"
        return Judged("errored", None, why)
    if why := _never_ran(gate, ran.exit_code or 0):
        return Judged("errored", None, f"exit code {ran.exit_code}: {why}; {_last(ran)}")
    if ran.exit_code:
        return failed(FailureClass.CHECK, f"exit code {ran.exit_code}; {_last(ran)}")
    if not gate.json_expect:
        return replace(OK, note=f"exit code 0 after {ran.elapsed_s:.1f} s")
    if result is _NONE:
        return Judged("errored", None, f"exit code 0, but {trouble}")
    judged = judge_result(result, gate.json_expect)
    return replace(judged, note=told(result, gate.json_expect)) if judged.ok else judged


def _never_ran(gate: Gate, code: int) -> str:
    if code < 0:
        return f"ended by signal {-code}"
    if code == SSH_FAILED and gate.argv[0].rsplit("/", 1)[-1] == "ssh":
        return "ssh did not reach the host, or was not let in"
    return NOT_RUN.get(code, "")


def _last(ran: CommandRun) -> str:
    """The last line that it wrote, of its errors if there are any."""
    for stream, text in (("stderr", ran.stderr), ("stdout", ran.stdout)):
        lines = text.strip().splitlines()
        if lines:
            return f"last of {stream}: {shown(lines[-1])}"
    return "it wrote nothing"


def _observation(
    session: Session, gate: Gate, n: int, made: Command, ran: CommandRun, result: Any, judged: Judged
) -> Observation:
    raw: dict[str, Any] = {
        "outcome": judged.outcome,
        "argv": list(redact_argv(made.argv, [k for k in made.given.values() if k])),
        "env": list(gate.env),
        "fixture_sha256": dict(gate.fixture_sha256),
        "exit_code": ran.exit_code,
        "ended": ran.ended,
        "stdout_tail": session.safe(_tail(ran.stdout)),
        "stderr_tail": session.safe(_tail(ran.stderr)),
    }
    if result is not _NONE:
        whole = len(json.dumps(result)) <= MAX_RESULT_KEPT
        raw["result"] = (
            redact_values(result, session.safe)
            if whole
            else f"larger than {MAX_RESULT_KEPT:,} bytes: {told(result, gate.json_expect)}"
        )
    excerpt = raw["stderr_tail"] or raw["stdout_tail"]
    return Observation(n, judged.ok, judged.failure, judged.note, e2e_s=ran.elapsed_s, excerpt=excerpt, raw=raw)


def _tail(text: str) -> str:
    return text.encode()[-1900:].decode(errors="ignore")


NO_RUNNER = "this program was put together without a runner of commands"


def _why_not(suite: Suite, gate: Gate, target: GateTarget, parts: GateParts) -> str:
    """Everything that can be known before it starts; a target of a plan has no ports yet, and needs none here."""
    if parts.commands is None:
        return NO_RUNNER
    if named(gate.argv, "routed_url") and target.container_id and not target.routed_url:
        return "argv holds {routed_url}, but there is no way through the gateway to this serve"
    made = _made(gate, target)
    if GIVEN in gate.env and GIVEN not in made.given and target.container_id:
        return f"env: {GIVEN} has no value: the gateway's client key is not found"
    return parts.commands.why_not(replace(made, env=tuple(n for n in made.env if n != GIVEN)))


COMMAND: Mapping[GateKind, GateWork] = {"command": GateWork(command, _why_not)}
