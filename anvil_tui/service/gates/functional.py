"""Gates that ask the model: each function makes repeat `n` of its gate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from anvil_tui.core.chat import ChatAnswer
from anvil_tui.core.gates import FailureClass, Gate, GateKind, Observation
from anvil_tui.core.verdicts import (
    OK,
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
from anvil_tui.service.gates.session import Finding, GateWork, Session, budgets

AIM_OVER = 1.01
TRIES = 4

Asked = tuple[Finding, ChatAnswer]


def smoke(session: Session, gate: Gate, n: int) -> Finding:
    def judge(answer: ChatAnswer) -> Judged:
        if session.target.recipe.thinking == "on" and not answer.reasoning:
            return Judged("unverified", None, "thinking = on was accepted, but no reasoning came back")
        return check(word_is(answer.content, prompts.SMOKE_WORD))

    return session.ask(gate, n, judge, messages=(prompts.user(prompts.SMOKE),), stream=True)[0]


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
    kept: list[Observation] = []
    scale = session.memory.get(gate.id)
    if scale is None:
        scale, finding = _scale(session, gate, hay)
        kept += finding.observations
        if scale is None:
            return Finding(finding.judged, tuple(kept))
        session.memory[gate.id] = scale
    base, each = scale
    room = session.target.recipe.envelope.context_tokens - sum(budgets(gate, session.target.recipe))
    aim = min(math.ceil(gate.prompt_tokens_at_least * AIM_OVER), room)
    for _ in range(TRIES):
        sentences = max(1, math.ceil((aim - base) / each))
        finding, answer = _look(session, gate, n, hay, sentences)
        kept += finding.observations
        counted = _missed(gate, answer, finding)
        if counted is None:
            return Finding(_measured(finding.judged, answer.prompt_tokens), tuple(kept))
        each = max((counted - base) / sentences, each / 10)
    floor = f"{gate.prompt_tokens_at_least:,}"
    why = f"after {TRIES} corrections no prompt of {floor} tokens came about; {finding.judged.note}"
    return Finding(Judged("errored", None, why), tuple(kept))


def _missed(gate: Gate, answer: ChatAnswer, finding: Finding) -> int | None:
    """The engine's count of a prompt that came out too short or too long; None when this answer decides."""
    if answer.overflow and answer.overflow[1] > gate.prompt_tokens_at_least:
        return answer.overflow[0]
    got = answer.prompt_tokens
    return got if finding.judged.ok and got is not None and got < gate.prompt_tokens_at_least else None


def _measured(judged: Judged, got: int | None) -> Judged:
    if judged.ok and got is None:
        return Judged("unverified", None, "the engine reports no usage, so the length of the prompt is not proven")
    return replace(judged, note="; ".join(p for p in (f"{got:,} prompt tokens" if got else "", judged.note) if p))


def _look(session: Session, gate: Gate, n: int, hay: prompts.Haystack, sentences: int) -> Asked:
    messages = (prompts.user(hay.prompt(sentences)),)
    return session.ask(gate, n, lambda a: check(exactly(a.content, hay.code)), messages=messages, stream=True)


def _scale(session: Session, gate: Gate, hay: prompts.Haystack) -> tuple[tuple[float, float] | None, Finding]:
    """((tokens of an empty prompt, tokens a sentence), the probes), from the engine's own counts.

    The probes grow with the floor: the longer the prompt, the dearer is a second try.
    """
    counts: list[int] = []
    seen: list[Observation] = []
    large = min(400, max(16, gate.prompt_tokens_at_least // 60))
    small = large // 4
    for sentences in (small, large):
        finding, answer = session.ask(
            gate, 0, lambda a: OK, messages=(prompts.user(hay.prompt(sentences)),), max_tokens=1
        )
        seen += [_calibration(o) for o in finding.observations]
        if answer.error or not answer.prompt_tokens:
            judged = finding.judged if answer.error else _measured(OK, None)
            return None, Finding(judged, tuple(seen))
        counts.append(answer.prompt_tokens)
    each = (counts[1] - counts[0]) / (large - small)
    if each <= 0:
        why = f"the engine counts {counts[0]} tokens for a short prompt and {counts[1]} for a long one"
        return None, Finding(failed(FailureClass.CHECK, why), tuple(seen))
    return (counts[0] - each * small, each), Finding(OK, tuple(seen))


def _calibration(seen: Observation) -> Observation:
    """One token of answer says nothing about the model: only the count of the prompt is wanted."""
    counted = seen.prompt_tokens is not None
    raw = {**seen.raw, "purpose": "calibration"}
    return replace(seen, ok=True, failure=None, note="calibration", raw=raw) if counted else replace(seen, raw=raw)


FUNCTIONAL: Mapping[GateKind, GateWork] = {
    "smoke": GateWork(smoke),
    "json": GateWork(strict_object),
    "tools": GateWork(tools),
    "streaming-tools": GateWork(streaming_tools),
    "tool-result": GateWork(tool_result),
    "needle": GateWork(needle),
}
