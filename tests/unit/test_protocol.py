"""What answers prove of the protocol: stop, length, refusal, thinking, schema, client shape, kinds of calls."""

from __future__ import annotations

from typing import Any

import pytest

from anvil_tui.core import protocol
from anvil_tui.core.chat import ChatAnswer, ToolCall
from anvil_tui.core.gates import FailureClass, Thinking
from anvil_tui.core.verdicts import Judged, called


def said(content: str = "", **more: Any) -> ChatAnswer:
    fields: dict[str, Any] = {"finish_reason": "stop", "completion_tokens": 3, "prompt_tokens": 9, **more}
    return ChatAnswer(200, content, **fields)


WANT = {"room": "attic", "celsius": 21, "valves": [3, 7]}
ENUMS = {"room": ("attic", "cellar")}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"room": "attic", "celsius": 21, "valves": [3, 7]}', "right"),
        ('{"room": "cellar", "celsius": 21, "valves": [3, 7]}', "wrong_value: room"),
        ('{"room": "attic", "celsius": 22, "valves": [3, 7]}', "wrong_value: celsius"),
        ('{"room": "attic", "celsius": 21, "valves": []}', "wrong_value: valves"),
        ('{"room": "loft", "celsius": 21, "valves": [3, 7]}', "schema_violated: room"),
        ('{"room": "attic", "celsius": "21", "valves": [3, 7]}', "schema_violated: celsius"),
        ('{"room": "attic", "celsius": 21.0, "valves": [3, 7]}', "schema_violated: celsius"),
        ('{"room": "attic", "celsius": true, "valves": [3, 7]}', "schema_violated: celsius"),
        ('{"room": "attic", "celsius": 21, "valves": ["3", 7]}', "schema_violated: valves"),
        ('{"room": "attic", "celsius": 21}', "schema_violated: missing key valves"),
        ('{"room": "attic", "celsius": 21, "valves": [3, 7], "x": 1}', "schema_violated: unasked key x"),
        ("[1]", "schema_violated: not_an_object"),
        ("The attic is at 21 degrees.", "schema_violated: not_json"),
        ('```json\n{"room": "attic"}\n```', "schema_violated: fenced_json"),
    ],
)
def test_a_schema_that_was_ignored_is_told_from_a_wrong_value(content: str, says: str) -> None:
    """O-64 beside: a fence is a violation, too, with its own word."""
    assert (protocol.schema_json(content, WANT, ENUMS) or "right").startswith(says)


@pytest.mark.parametrize(
    ("answer", "outcome", "words"),
    [
        (said("1, 2, 3, "), "ok", ""),
        (said("1\n2\n3\n"), "ok", ""),
        (said("1, 2, 3, 4"), "failed", "'4' is in the text"),
        (said("1, 2"), "failed", "expected 1 to 3"),
        (said("1, 2, 3, ", finish_reason="length"), "failed", "completion 3 of 64"),
        (said(""), "failed", "no visible answer"),
        (said("", reasoning="I count to "), "unverified", "ended the reasoning"),
        (said("1, 2, 3, ", error="truncated", finish_reason=None), "errored", "truncated"),
    ],
)
def test_a_stop_sequence_ends_the_text_before_itself(answer: ChatAnswer, outcome: str, words: str) -> None:
    judged = protocol.stopped_before(answer, 64, "4", ("1", "2", "3"))
    assert (judged.outcome, words in judged.note) == (outcome, True)


@pytest.mark.parametrize(
    ("answer", "outcome", "words"),
    [
        (said("1, 2", finish_reason="length", completion_tokens=16), "ok", "visible_answer_budget_exhausted"),
        (
            said("", reasoning="hm", finish_reason="length", completion_tokens=16),
            "ok",
            "reasoning_budget_exhausted",
        ),
        (said("1", reasoning="hm", finish_reason="length", completion_tokens=16), "ok", "after_visible_output"),
        (
            said("1, 2", finish_reason="length", completion_tokens=17),
            "failed",
            "17 completion tokens with a limit",
        ),
        (
            said("1, 2", finish_reason="length", completion_tokens=3),
            "failed",
            "after 3 completion tokens, the limit was 16",
        ),
        (said("1, 2", finish_reason="length", completion_tokens=None), "unverified", "no usage"),
        (said("1, 2", completion_tokens=16), "failed", "finish reason is stop, not length"),
        (said("</think>1", finish_reason="length"), "failed", "</think>"),
    ],
)
def test_a_cut_answer_says_so_and_its_class_is_told(answer: ChatAnswer, outcome: str, words: str) -> None:
    """O-57: a cut inside the reasoning is its own class, and no failure of this gate."""
    judged = protocol.cut_at(answer, 16)
    assert (judged.outcome, words in judged.note) == (outcome, True), judged


def refused(status: int = 400, **more: Any) -> ChatAnswer:
    return ChatAnswer(status, error=more.pop("error", "http"), error_message=more.pop("said", "no"), **more)


@pytest.mark.parametrize(
    ("answer", "outcome", "words"),
    [
        (refused(overflow=(9100, 8192)), "ok", "9100 tokens asked, 8192 allowed"),
        (refused(error_code="context_overflow"), "ok", "does not tell both numbers"),
        (refused(said="messages: bad"), "failed", "not for its length"),
        (refused(422, said="messages: not supported"), "failed", "not for its length"),
        (refused(500, said="CUDA error"), "failed", "the engine failed the request"),
        (refused(413, error_code="payload_too_large"), "errored", "413"),
        (refused(200, error="stream_error", said="too long"), "failed", "too long"),
        (ChatAnswer(None, error="unreachable"), "errored", "unreachable"),
        (said("All fine.", prompt_tokens=8000), "failed", "8,000 prompt tokens"),
        (said("All fine.", prompt_tokens=None), "failed", "no usage"),
    ],
)
def test_a_prompt_above_the_context_is_refused_for_that_and_never_answered(
    answer: ChatAnswer, outcome: str, words: str
) -> None:
    """O-70 as a gate: refused by design limit is the right answer here."""
    judged = protocol.refused_overlong(answer, 8192, 9011)
    assert (judged.outcome, words in judged.note) == (outcome, True), judged


@pytest.mark.parametrize(
    ("wanted", "answer", "outcome", "words"),
    [
        ("off", said("42"), "ok", "no reasoning"),
        ("off", said("42", reasoning="hm"), "failed", "thinking is off"),
        ("off", said("42", reasoning_tokens=7), "failed", "reasoning tokens: 7"),
        ("off", said("42 <think>hm</think>"), "failed", "<think>"),
        ("on", said("42", reasoning="hm"), "ok", "2 characters"),
        ("on", said("42"), "failed", "no reasoning channel"),
        ("on", said("hm</think>42", reasoning="x"), "failed", "closing </think>"),
        ("low", said("42", reasoning="hm", reasoning_tokens=7), "ok", "7 reasoning tokens"),
        ("high", said("42", reasoning="hm"), "unverified", "no reasoning tokens"),
        ("medium", said("42", reasoning_tokens=0), "unverified", "0 reasoning tokens"),
    ],
)
def test_thinking_is_judged_in_each_answer(wanted: Thinking, answer: ChatAnswer, outcome: str, words: str) -> None:
    """O-59: a tag anywhere in the visible text is a leak, whatever was asked for."""
    judged = protocol.thought_as(wanted, answer)
    assert (judged.outcome, words in judged.note) == (outcome, True), judged


STREAMED = {"token_times_s": (0.1, 0.2)}


@pytest.mark.parametrize(
    ("answer", "forced", "outcome", "words"),
    [
        (
            said("1", completion_tokens=500, finish_reason="length", **STREAMED),
            True,
            "ok",
            "500 completion tokens",
        ),
        (
            said("1", completion_tokens=499, finish_reason="length", **STREAMED),
            True,
            "failed",
            "fewer than the 500",
        ),
        (said("1", completion_tokens=499, **STREAMED), False, "unverified", "nothing forces"),
        (said("1", completion_tokens=None, **STREAMED), True, "unverified", "no usage"),
        (said("1", completion_tokens=500, finish_reason="abort", **STREAMED), True, "failed", "abort"),
        (said("1", completion_tokens=500), True, "failed", "one message"),
        (said("1", error="truncated", **STREAMED), True, "errored", "truncated"),
    ],
)
def test_a_client_shaped_answer_is_long_streamed_and_counted(
    answer: ChatAnswer, forced: bool, outcome: str, words: str
) -> None:
    judged = protocol.client_shape(answer, 500, forced)
    assert (judged.outcome, words in judged.note) == (outcome, True), judged


def tool(arguments: str = '{"x": 1}', content: str = "", name: str = "f", **more: Any) -> Judged:
    calls = (ToolCall(0, "c", name, arguments),)
    return called(said(content, tool_calls=calls, **{"finish_reason": "tool_calls", **more}), [("f", {"x": 1})])


@pytest.mark.parametrize(
    ("judged", "words"),
    [
        (called(said("It is sunny."), [("f", {})]), "no call: 0 tool calls, not 1"),
        (called(said(""), [("f", {})]), "no call"),
        (called(said('<tool_call>{"name": "f"}</tool_call>'), [("f", {})]), "malformed call"),
        (called(said('{"name": "f", "arguments": {}}'), [("f", {})]), "malformed call"),
        (tool('{"x":'), "malformed call: call 0 to 'f': arguments are no JSON"),
        (tool('"{\\"x\\": 1}"'), "malformed call: call 0 to 'f': double_encoded_arguments"),
        (tool("[1]"), "malformed call"),
        (tool(content="<|tool_end|>"), "malformed call: the call is right, but its markup"),
        (tool(content="\ufffd"), "malformed call"),
        (tool(notes=("missing_tool_id",)), "malformed call: missing_tool_id"),
        (tool(name="g"), "wrong call: call 0 is to 'g'"),
        (tool('{"x": 2}'), "wrong call: call 0 to f: x is 2"),
    ],
)
def test_no_call_a_malformed_and_a_wrong_one_are_told_apart(judged: Judged, words: str) -> None:
    """O-60, O-62: a parser that fails is no abstention, and no wrong answer of the model."""
    assert (judged.outcome, judged.failure) == ("failed", FailureClass.TOOL_CALL)
    assert judged.note.startswith(words)


def test_the_right_call_is_right() -> None:
    assert tool().ok
    assert tool(finish_reason="stop").failure is FailureClass.FINISH_REASON
