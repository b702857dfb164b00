"""What one answer proves: it holds, the serve did wrong (and how), or we could not tell.

Every check is predeclared: the exact words, object, calls or code that the question asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from anvil_tui.core.chat import ChatAnswer, ToolCall
from anvil_tui.core.gates import FailureClass
from anvil_tui.core.tool_calls import decoded, decoded_arguments

Outcome = Literal["ok", "failed", "errored", "unsupported", "unverified", "cancelled"]

_CLOSE = re.compile(r"</(?:\w+:)?think(?:ing)?>|\[/THINK\]", re.I)
_OPEN = re.compile(r"<(?:\w+:)?think(?:ing)?>|\[THINK\]", re.I)
_FENCE = re.compile(r"```.*?(?:```|\Z)", re.S)
_CANNOT = re.compile(
    r"requires? (?:the )?--|not supported|unsupported|does not support|not implemented|enable-auto-tool-choice",
    re.I,
)
_NO_EYES = re.compile(r"(?:image|audio|video) input is not supported", re.I)
_GARBAGE = re.compile(r"<\|?/?tool|<<tool|<\||function=|\[TOOL_CALLS\]|\ufffd", re.I)
_CALL_AS_TEXT = re.compile(_GARBAGE.pattern + r"|\"(?:arguments|parameters)\"\s*:", re.I)
_SHOWN = 160


@dataclass(frozen=True, slots=True)
class Judged:
    """`errored`: ours or the network's; `unsupported`: the engine says it cannot; `unverified`: no proof;
    `cancelled`: a long piece of work that was ended before it proved anything.
    """

    outcome: Outcome
    failure: FailureClass | None = None
    note: str = ""

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"


OK = Judged("ok")


def failed(failure: FailureClass, note: str) -> Judged:
    return Judged("failed", failure, note)


def check(note: str | None, failure: FailureClass = FailureClass.CHECK) -> Judged:
    """The result of a content check: `note` says what is wrong, None = nothing."""
    return OK if note is None else failed(failure, note)


def delivered(answer: ChatAnswer, max_tokens: int, *, thinking_off: bool = False) -> Judged:
    """Whether an answer came whole, within budget, through the right channel. Says nothing about its content."""
    if answer.error:
        return _error(answer)
    if leaked := leaked_reasoning(answer.content):
        return failed(FailureClass.REASONING_LEAK, leaked)
    if budget := _budget(answer, max_tokens):
        return budget
    if answer.finish_reason not in ("stop", "tool_calls"):
        return failed(FailureClass.FINISH_REASON, f"finish reason is {answer.finish_reason or 'not given'}")
    if not answer.content.strip() and not answer.tool_calls:
        spent = "unknown" if answer.completion_tokens is None else answer.completion_tokens
        return failed(FailureClass.NO_ANSWER, f"finished with no visible answer; completion tokens: {spent}")
    if thinking_off and answer.reasoning:
        return failed(
            FailureClass.CHECK, f"thinking is off, yet {len(answer.reasoning)} characters of reasoning came"
        )
    return OK


def _budget(answer: ChatAnswer, max_tokens: int) -> Judged | None:
    if answer.finish_reason != "length":
        return None
    spent = "unknown" if answer.completion_tokens is None else answer.completion_tokens
    note = f"visible {len(answer.content)} characters, completion {spent} of {max_tokens} tokens"
    visible = bool(answer.content.strip() or answer.tool_calls)
    if not visible and answer.reasoning:
        return failed(FailureClass.REASONING_BUDGET, note + ", all of it reasoning")
    if visible and answer.reasoning:
        return failed(FailureClass.BUDGET_AFTER_VISIBLE, note)
    return failed(FailureClass.VISIBLE_BUDGET, note)


def _error(answer: ChatAnswer) -> Judged:
    said = f"{answer.error} {answer.status or ''}".strip()
    note = f"{said}: {answer.error_message}"[:512]
    if answer.overflow:
        asked, allowed = answer.overflow
        least = "at least " if f"at least {asked}" in answer.error_message else ""
        return failed(
            FailureClass.CONTEXT, f"refused by design limit: {least}{asked} tokens asked, {allowed} allowed"
        )
    if answer.error_code == "context_overflow":
        return failed(FailureClass.CONTEXT, f"refused by design limit: {note}")
    if answer.error in ("unreachable", "timeout"):
        return Judged("errored", None, note)
    if answer.error == "truncated":
        return Judged("errored", FailureClass.STREAM, f"{note} ({answer.error_code})")
    if answer.error == "http":
        return _http(answer, note)
    return failed(FailureClass.STREAM, note)


def _http(answer: ChatAnswer, note: str) -> Judged:
    status = answer.status or 0
    if status == 501 or (status in (400, 422) and _CANNOT.search(answer.error_message)):
        return Judged("unsupported", None, note)
    if status == 500 and _NO_EYES.search(answer.error_message):  # llama-server without a projector
        return Judged("unsupported", None, note)
    if status == 404:
        return failed(FailureClass.IDENTITY, f"the served name is not known there; {note}")
    elsewhere = status in (502, 503, 504) or answer.error_message.startswith("not JSON")
    if status >= 500 and not elsewhere:
        return failed(FailureClass.CHECK, f"the engine failed the request; {note}")
    return Judged("errored", None, note)


def leaked_reasoning(content: str, *, strict: bool = True) -> str | None:
    """What leaked: reasoning in the visible text, seen by its tags. Shows what would have been visible.

    Not strict: tags inside fenced code are an answer about tags, not a leak.
    """
    text = content if strict else _FENCE.sub("", content)
    close, opening = _CLOSE.search(text), _OPEN.search(text)
    if close and (opening is None or opening.start() > close.start()):
        return f"a closing {close[0]} without its opening in the answer; after it: {shown(text[close.end() :])}"
    if opening and not text[: opening.start()].strip():
        rest = text[close.end() :] if close else ""
        return f"the answer begins with {opening[0]}; after it: {shown(rest)}"
    return None


def word_is(content: str, word: str) -> str | None:
    """Whether the whole answer is that one word; capitals and one closing mark do not matter."""
    got = content.strip().rstrip(".!").casefold()
    return None if got == word.casefold() else f"expected {word!r}, got {shown(content)}"


def exactly(content: str, code: str) -> str | None:
    """Whether the whole answer is that code; only white space around it does not matter."""
    got = content.strip()
    if got == code:
        return None
    inside = " (the code is in it, with other text)" if code in got else ""
    return f"expected {code!r} alone, got {shown(content)}{inside}"


def strict_json(content: str, expected: Mapping[str, Any]) -> str | None:
    """Whether the whole message is exactly that object: keys, values and types."""
    text = content.strip()
    if text.startswith("```"):
        inner = re.sub(r"\A```\w*\s*|\s*```\Z", "", text)
        return f"fenced_json: the object stands in a Markdown fence; inside: {shown(inner)}"
    try:
        value = decoded(text, strict=True)
    except ValueError as why:
        return f"not_json: the whole message is no JSON ({why}): {shown(text)}"
    if not isinstance(value, dict):
        return f"not_an_object: got {shown(text)}"
    return differs(value, expected)


def differs(value: Mapping[str, Any], expected: Mapping[str, Any]) -> str | None:
    """The first difference between two JSON objects, types included (true is not 1)."""
    if missing := sorted(expected.keys() - value.keys()):
        return f"missing key {missing[0]}"
    if extra := sorted(value.keys() - expected.keys()):
        return f"unasked key {extra[0]}"
    for key, want in expected.items():
        if _canonical(value[key]) != _canonical(want):
            return f"{key} is {_bounded(json.dumps(value[key]))}, not {json.dumps(want)}"
    return None


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def exact_calls(
    calls: Sequence[ToolCall], expected: Sequence[tuple[str, Mapping[str, Any]]], notes: Sequence[str] = ()
) -> str | None:
    """Whether exactly those calls were made, each with exactly those arguments. Every call is looked at.

    What is wrong begins with its class: `malformed call` cannot be read, `wrong call` can and is another one.
    """
    if len(calls) != len(expected):
        return f"wrong call: {len(calls)} tool calls, not {len(expected)}"
    for n, (call, (name, arguments)) in enumerate(zip(calls, expected, strict=True)):
        if why := _unreadable(call.arguments):
            return f"malformed call: call {n} to {shown(call.name)}: {why}"
        if call.name != name:
            return f"wrong call: call {n} is to {shown(call.name)}, not {name}"
        if why := differs(decoded_arguments(call.arguments)[0], arguments):
            return f"wrong call: call {n} to {name}: {why}"
    return "malformed call: missing_tool_id: a call came without an id" if "missing_tool_id" in notes else None


def called(answer: ChatAnswer, expected: Sequence[tuple[str, Mapping[str, Any]]]) -> Judged:
    """Whether the answer is exactly those calls: no call, a malformed, a wrong and the right one told apart."""
    content = answer.content
    if not answer.tool_calls:
        as_text = _CALL_AS_TEXT.search(content)
        what, said = ("malformed", "the call came as text:") if as_text else ("no", "it said")
        note = f"{what} call: 0 tool calls, not {len(expected)}; {said} {shown(content)}"
        return failed(FailureClass.TOOL_CALL, note)
    if why := exact_calls(answer.tool_calls, expected, answer.notes):
        return failed(FailureClass.TOOL_CALL, why)
    if _GARBAGE.search(content):
        note = f"malformed call: the call is right, but its markup is in the text, too: {shown(content)}"
        return failed(FailureClass.TOOL_CALL, note)
    if answer.finish_reason != "tool_calls":
        note = f"the call is right, but the finish reason is {answer.finish_reason}"
        return failed(FailureClass.FINISH_REASON, note)
    return Judged("ok", None, "right call")


def _unreadable(text: str) -> str | None:
    try:
        value, double = decoded_arguments(text)
    except ValueError as why:
        return f"arguments are no JSON ({why}): {shown(text)}"
    if double:
        return f"double_encoded_arguments: {shown(json.dumps(value))}"
    return None if isinstance(value, Mapping) else f"arguments are no object: {shown(text)}"


def identity(served: Sequence[str], context: int | None, name: str, aliases: Sequence[str], want: int) -> Judged:
    """Whether the model card names exactly this serve, and its context length is the recipe's."""
    if name not in served:
        return failed(FailureClass.IDENTITY, f"serves {', '.join(served) or 'no name'}, not {name}")
    if strange := sorted(set(served) - {name, *aliases}):
        return failed(FailureClass.IDENTITY, f"also serves {strange[0]}, which the recipe does not name")
    if context is None:
        return Judged("unverified", None, "the engine does not report its context length")
    if context != want:
        return failed(FailureClass.IDENTITY, f"context is {context:,} tokens, the recipe says {want:,}")
    return OK


def shown(text: str) -> str:
    """A bounded, quoted piece of foreign text."""
    return repr(_bounded(" ".join(text.split())))


def _bounded(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
