"""Bounded quality: reasoning, recall over turns, tools over steps, code. Exact checks, nothing judged by a model.

Repeat `n` of a gate asks item `n` of the set that the gate's id stands for: the same on every serve, so that two
runs can be compared; another id is another set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from anvil_tui.core.answers import value_is
from anvil_tui.core.chat import ChatAnswer, ToolCall
from anvil_tui.core.gates import FailureClass, Gate, GateKind, Suite
from anvil_tui.core.verdicts import OK, Judged, check, failed, shown
from anvil_tui.service.gates import prompts, puzzles
from anvil_tui.service.gates.coding_items import coding_item
from anvil_tui.service.gates.context_curve import context_ladder, no_ladder
from anvil_tui.service.gates.session import Finding, GateParts, GateTarget, GateWork, Session
from anvil_tui.service.gates.stockroom import TOOLS, Stockroom, stockroom

TURNS = 12
"""Requests that one task with tools may take."""


def intelligence(session: Session, gate: Gate, n: int) -> Finding:
    item = puzzles.puzzle(gate.id, n)
    messages = (prompts.user(f"{item.asked} {puzzles.END}"),)
    finding, _ = session.ask(gate, n, lambda a: check(value_is(a.content, item.answer)), messages=messages)
    return marked(finding, item.family)


def recall(session: Session, gate: Gate, n: int) -> Finding:
    """Turn by turn with the model's own answers between; only the last answer is compared."""
    item = puzzles.conversation(gate.id, n)
    messages: list[prompts.Message] = []
    kept: tuple[Any, ...] = ()
    for turn, said in enumerate(item.turns, 1):
        messages.append(prompts.user(said))
        judge: Callable[[ChatAnswer], Judged] = lambda a: OK  # noqa: E731
        if turn == len(item.turns):
            judge = lambda a: check(value_is(a.content, item.answer, case=True))  # noqa: E731
        finding, answer = session.ask(gate, n, judge, messages=tuple(messages))
        kept += marked(finding, f"turn {turn}").observations
        if not finding.judged.ok:
            judged = replace(finding.judged, note=f"turn {turn} of {len(item.turns)}: {finding.judged.note}")
            return Finding(judged, kept)
        messages.append({"role": "assistant", "content": answer.content})
    return Finding(OK, kept)


def tool_use(session: Session, gate: Gate, n: int) -> Finding:
    """Calls are made on a stockroom until the model answers; every call, the end and the answer are checked."""
    room = stockroom(gate.id, n)
    messages: list[prompts.Message] = [prompts.user(room.asked)]
    kept: tuple[Any, ...] = ()
    for turn in range(1, TURNS + 1):
        judge, results = _step(room)
        finding, answer = session.ask(
            gate, n, judge, messages=tuple(messages), tools=TOOLS, tool_choice="auto"
        )  # fmt: skip
        kept += marked(finding, f"{room.family}, step {turn}").observations
        if not finding.judged.ok or not answer.tool_calls:
            note = f"step {turn}: {finding.judged.note}" if finding.judged.note else ""
            return Finding(replace(finding.judged, note=note), kept)
        calls = [_echo(call) for call in answer.tool_calls]
        messages.append({"role": "assistant", "content": answer.content, "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": i, "content": said} for i, said in results]
    return Finding(failed(FailureClass.TOOL_CALL, f"no end after {TURNS} steps"), kept)


def _step(room: Stockroom) -> tuple[Callable[[ChatAnswer], Judged], list[tuple[str, str]]]:
    """What judges one answer and makes its calls, and the list that their results go into."""
    results: list[tuple[str, str]] = []

    def judge(answer: ChatAnswer) -> Judged:
        if not answer.tool_calls:
            if undone := room.unfinished():
                return failed(FailureClass.TOOL_CALL, f"no call: {undone}; it said {shown(answer.content)}")
            return check(value_is(answer.content, room.answer))
        if "missing_tool_id" in answer.notes:
            return failed(FailureClass.TOOL_CALL, "missing_tool_id: a call came without an id")
        for call in answer.tool_calls:
            said, wrong = room.call(call)
            if wrong:
                return failed(FailureClass.TOOL_CALL, wrong)
            results.append((call.id, said))
        if answer.finish_reason != "tool_calls":
            why = f"the calls are right, but the finish reason is {answer.finish_reason}"
            return failed(FailureClass.FINISH_REASON, why)
        return OK

    return judge, results


def _echo(call: ToolCall) -> prompts.Message:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def coding(session: Session, gate: Gate, n: int) -> Finding:
    """One query, pattern, diff or document; what the model wrote is tried in the sandbox, never run here."""
    item, sandbox = coding_item(gate.id, n), session.parts.sandbox
    if sandbox is None:
        return Finding(Judged("errored", None, NO_SANDBOX), ())
    finding, _ = session.ask(
        gate, n, lambda a: check(item.wrong(a.content, sandbox)), messages=(prompts.user(item.asked),)
    )
    return marked(finding, item.family)


NO_SANDBOX = "this program was put together without a sandbox to try code in"


def _no_sandbox(suite: Suite, gate: Gate, target: GateTarget, parts: GateParts) -> str:
    return "" if parts.sandbox else NO_SANDBOX


def marked(finding: Finding, item: str) -> Finding:
    """The finding with what was asked named in its note and in its observations."""
    judged = finding.judged
    noted = replace(judged, note=f"{item}: {judged.note}" if judged.note else "")
    seen = tuple(replace(o, raw={**o.raw, "item": item}) for o in finding.observations)
    return Finding(noted, seen, finding.rows)


QUALITY: Mapping[GateKind, GateWork] = {
    "intelligence": GateWork(intelligence),
    "recall": GateWork(recall),
    "tool-use": GateWork(tool_use),
    "coding": GateWork(coding, _no_sandbox),
    "context-ladder": GateWork(context_ladder, no_ladder),
}
