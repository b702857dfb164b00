"""Gates that ask the model: each function makes repeat `n` of its gate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from anvil_tui.core.chat import ChatAnswer
from anvil_tui.core.gates import FailureClass, Gate, GateKind
from anvil_tui.core.verdicts import (
    Judged,
    check,
    exact_calls,
    exactly,
    failed,
    shown,
    strict_json,
    word_is,
)
from anvil_tui.service.gates import prompts
from anvil_tui.service.gates.calibrate import at_length, calibrate
from anvil_tui.service.gates.session import Finding, GateWork, Session, budgets

Asked = tuple[Finding, ChatAnswer]


def _pong(answer: ChatAnswer) -> Judged:
    return check(word_is(answer.content, prompts.SMOKE_WORD))


def smoke(session: Session, gate: Gate, n: int) -> Finding:
    return session.ask(gate, n, _pong, messages=(prompts.user(prompts.SMOKE),), stream=True)[0]


def strict_object(session: Session, gate: Gate, n: int) -> Finding:
    case = prompts.json_case(f"{gate.id}/{n}")
    return session.ask(gate, n, lambda a: check(strict_json(a.content, case.expected)), messages=case.messages)[0]


def _called(case: prompts.ToolCase) -> Callable[[ChatAnswer], Judged]:
    def judge(answer: ChatAnswer) -> Judged:
        why = exact_calls(answer.tool_calls, case.expected, answer.notes)
        if why and not answer.tool_calls:
            why += f"; it said {shown(answer.content)}"
        if why is None and answer.finish_reason != "tool_calls":
            return failed(
                FailureClass.FINISH_REASON, f"the call is right, but the finish reason is {answer.finish_reason}"
            )
        return check(why, FailureClass.TOOL_CALL)

    return judge


def _call(session: Session, gate: Gate, n: int, case: prompts.ToolCase, stream: bool) -> Asked:
    return session.ask(
        gate, n, _called(case), messages=case.messages, tools=case.tools, tool_choice="auto", stream=stream
    )


def tools(session: Session, gate: Gate, n: int) -> Finding:
    return _call(session, gate, n, prompts.tool_case(f"{gate.id}/{n}"), stream=False)[0]


def streaming_tools(session: Session, gate: Gate, n: int) -> Finding:
    finding, answer = _call(session, gate, n, prompts.tool_case(f"{gate.id}/{n}"), stream=True)
    if finding.judged.ok and not answer.token_times_s:
        why = failed(FailureClass.STREAM, "a stream was asked for, the answer came as one message")
        (seen,) = finding.observations
        return Finding(why, (replace(seen, ok=False, failure=why.failure, note=why.note),))
    return finding


def tool_result(session: Session, gate: Gate, n: int) -> Finding:
    """Two turns: the call, then an answer that must use what the tool returned."""
    case = prompts.result_case(f"{gate.id}/{n}")
    first, answer = _call(session, gate, n, case.call, stream=False)
    if not first.judged.ok:
        return first
    call = answer.tool_calls[0]
    made = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
    messages = (
        *case.call.messages,
        {"role": "assistant", "content": answer.content, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": call.id, "content": case.result},
    )

    def judge(final: ChatAnswer) -> Judged:
        if final.tool_calls:
            return failed(FailureClass.TOOL_CALL, "asked for another tool call instead of using the result")
        used = case.code in final.content
        return check(None if used else f"the result's code {case.code} is not in {shown(final.content)}")

    second, _ = session.ask(gate, n, judge, messages=messages, tools=case.call.tools)
    return Finding(second.judged, (*first.observations, *second.observations))


def needle(session: Session, gate: Gate, n: int) -> Finding:
    """The code is found in a prompt whose length the engine itself counted."""
    hay = prompts.Haystack(f"{session.salt}-{gate.id}-{n}", gate.positions_pct[(n - 1) % len(gate.positions_pct)])
    scale = calibrate(session, gate, hay.prompt, kind="needle", tokens=gate.prompt_tokens_at_least)
    room = session.target.recipe.envelope.context_tokens - sum(budgets(gate, session.target.recipe))

    def look(sentences: int) -> Asked:
        messages = (prompts.user(hay.prompt(sentences)),)
        return session.ask(gate, n, lambda a: check(exactly(a.content, hay.code)), messages=messages, stream=True)

    return at_length(session, gate, scale, room, look)


FUNCTIONAL: Mapping[GateKind, GateWork] = {
    "smoke": GateWork(smoke),
    "json": GateWork(strict_object),
    "tools": GateWork(tools),
    "streaming-tools": GateWork(streaming_tools),
    "tool-result": GateWork(tool_result),
    "needle": GateWork(needle),
}
