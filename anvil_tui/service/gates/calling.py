"""Gates of tool calls: each function makes repeat `n` of its gate."""

from __future__ import annotations

import re
from collections.abc import Mapping

from anvil_tui.core.chat import ChatAnswer
from anvil_tui.core.gates import FailureClass, Gate, GateKind
from anvil_tui.core.verdicts import Judged, called, check, failed, shown
from anvil_tui.service.gates import prompts
from anvil_tui.service.gates.calibrate import Ask, at_length, calibrate, room_for
from anvil_tui.service.gates.session import Finding, GateWork, Session

Asked = tuple[Finding, ChatAnswer]


def _call(
    session: Session, gate: Gate, n: int, case: prompts.ToolCase, stream: bool, *before: prompts.Message
) -> Asked:
    return session.ask(
        gate, n, lambda a: called(a, case.expected), messages=(*before, *case.messages), tools=case.tools,
        tool_choice="auto", stream=stream,
    )  # fmt: skip


def _calls(session: Session, gate: Gate, n: int, stream: bool) -> Finding:
    """One call; with a floor behind a system message of that many tokens, the same for all repeats of the gate."""
    case = prompts.tool_case(f"{gate.id}/{n}")
    if not gate.prompt_tokens_at_least:
        return _call(session, gate, n, case, stream)[0]
    seed = f"{session.salt}-{gate.id}"
    scale = calibrate(
        session, gate, lambda units: prompts.log_book(seed, units)["content"], kind="tools",
        tokens=gate.prompt_tokens_at_least, tools=case.tools, tool_choice="auto",
        wrap=lambda text: ({"role": "system", "content": text}, *case.messages),
    )  # fmt: skip
    ask: Ask = lambda units: _call(session, gate, n, case, stream, prompts.log_book(seed, units))  # noqa: E731
    return at_length(session, gate, scale, room_for(session, gate), ask)


def tools(session: Session, gate: Gate, n: int) -> Finding:
    return _calls(session, gate, n, stream=False)


def streaming_tools(session: Session, gate: Gate, n: int) -> Finding:
    return _calls(session, gate, n, stream=True)


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
        used = re.search(rf"(?<![\w-]){re.escape(case.code)}(?![\w-])", final.content)
        return check(None if used else f"the result's code {case.code} is not in {shown(final.content)}")

    second, _ = session.ask(gate, n, judge, messages=messages, tools=case.call.tools)
    return Finding(second.judged, (*first.observations, *second.observations))


CALLING: Mapping[GateKind, GateWork] = {
    "tools": GateWork(tools),
    "streaming-tools": GateWork(streaming_tools),
    "tool-result": GateWork(tool_result),
}
