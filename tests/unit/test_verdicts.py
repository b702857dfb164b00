"""What an answer proves: O-57, O-59, O-60, O-62, O-64, O-106, defects 27, 30 and the failure classes."""

# ruff: noqa: E501
from __future__ import annotations

from typing import Any

import pytest

from anvil_tui.core import verdicts
from anvil_tui.core.chat import ChatAnswer, ToolCall
from anvil_tui.core.gates import FailureClass
from anvil_tui.core.verdicts import delivered, exact_calls, exactly, leaked_reasoning, strict_json, word_is


def answer(content: str = "x", finish: str | None = "stop", **rest: Any) -> ChatAnswer:
    return ChatAnswer(200, content=content, finish_reason=finish, **rest)


CALL = ToolCall(0, "a", "f", "{}")


@pytest.mark.parametrize(
    ("got", "failure"),
    [
        (answer("", "length", reasoning="hm", completion_tokens=256), FailureClass.REASONING_BUDGET),
        (answer("", "length", completion_tokens=256), FailureClass.VISIBLE_BUDGET),
        (answer("4", "length", reasoning="hm"), FailureClass.BUDGET_AFTER_VISIBLE),
        (answer("4", "length"), FailureClass.VISIBLE_BUDGET),
        (answer("", "length", tool_calls=(CALL,)), FailureClass.VISIBLE_BUDGET),
        (answer("4", "abort"), FailureClass.FINISH_REASON),
        (answer("4", None), FailureClass.FINISH_REASON),
        (answer(" \n", completion_tokens=412), FailureClass.NO_ANSWER),
        (answer("Compute.\n</think>\n\n4"), FailureClass.REASONING_LEAK),
    ],
)
def test_failure_classes(got: ChatAnswer, failure: FailureClass) -> None:
    judged = delivered(got, 256)
    assert (judged.outcome, judged.failure) == ("failed", failure)


def test_notes_carry_the_numbers() -> None:
    got = delivered(answer("", "length", reasoning="hm", completion_tokens=256), 256)
    assert got.note == "visible 0 characters, completion 256 of 256 tokens, all of it reasoning"
    assert "412" in delivered(answer("", completion_tokens=412), 512).note


def test_whole_answers_pass() -> None:
    assert delivered(answer("4"), 256).ok
    assert delivered(answer("", "tool_calls", tool_calls=(CALL,)), 256).ok
    assert delivered(answer("4", reasoning="hm"), 256).ok
    assert delivered(answer("4", reasoning="hm"), 256, thinking_off=True).failure == FailureClass.CHECK


def broken(error: str, status: int | None = None, message: str = "x", **rest: Any) -> verdicts.Judged:
    return delivered(ChatAnswer(status, error=error, error_message=message, **rest), 256)


@pytest.mark.parametrize(
    ("judged", "outcome", "failure"),
    [
        (broken("unreachable"), "errored", None),
        (broken("timeout", error_code="idle"), "errored", None),
        (broken("truncated", 200, error_code="eof"), "errored", FailureClass.STREAM),
        (broken("stream_error", 200), "failed", FailureClass.STREAM),
        (broken("malformed", 200), "failed", FailureClass.STREAM),
        (broken("http", 400, overflow=(5200, 4096)), "failed", FailureClass.CONTEXT),
        (broken("http", 401, error_code="unauthorized"), "errored", None),
        (broken("http", 404), "failed", FailureClass.IDENTITY),
        (broken("http", 413, error_code="payload_too_large"), "errored", None),
        (broken("http", 500), "failed", FailureClass.CHECK),
        (broken("http", 500, "not JSON, so probably a proxy"), "errored", None),
        (broken("http", 502), "errored", None),
        (broken("http", 429), "errored", None),
        (broken("http", 501), "unsupported", None),
        (broken("http", 400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'), "unsupported", None),
        (broken("http", 400, "messages must be a list"), "errored", None),
    ],
)  # fmt: skip
def test_our_errors_are_told_from_the_serves_failures(
    judged: verdicts.Judged, outcome: str, failure: FailureClass | None
) -> None:
    assert (judged.outcome, judged.failure) == (outcome, failure)


def test_context_refusal_names_both_numbers() -> None:
    assert "5200 tokens asked, 4096 allowed" in broken("http", 400, overflow=(5200, 4096)).note


def test_reasoning_leaks() -> None:
    assert "sum" in (leaked_reasoning('Compute 2+2.\n</think>\n\n{"sum":4}') or "")
    assert leaked_reasoning("<think>hm</think>4")
    assert leaked_reasoning("a [/THINK] b")
    assert leaked_reasoning("4") is None
    fenced = "Close it:\n```html\n</think>\n```\n"
    assert leaked_reasoning(fenced)
    assert leaked_reasoning(fenced, strict=False) is None


def test_words_and_codes() -> None:
    assert word_is(" Pong.\n", "pong") is None
    assert word_is("pong pong", "pong") and word_is("", "pong") and word_is("I say pong", "pong")
    assert exactly("\nQX-7\n", "QX-7") is None
    assert "with other text" in (exactly("The code is QX-7", "QX-7") or "")
    assert exactly("qx-7", "QX-7")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('```json\n{"ok": true, "n": 3}\n```\n', "fenced_json"),
        ('Sure! {"ok": true, "n": 3}', "not_json"),
        ('{"ok": true, "n": 3} done', "not_json"),
        ('{"ok": true, "n": 3, "n": 3}', "not_json"),
        ("[1]", "not_an_object"),
        ('{"ok": true}', "missing key n"),
        ('{"ok": true, "n": 3, "x": 0}', "unasked key x"),
        ('{"ok": 1, "n": 3}', "ok is"),
        ('{"ok": true, "n": 3.0}', "n is"),
        ('{"ok": true, "n": "3"}', "n is"),
        ("", "not_json"),
    ],
)
def test_strict_json(content: str, reason: str) -> None:
    assert (strict_json(content, {"ok": True, "n": 3}) or "passed").startswith(reason)


def test_strict_json_accepts_white_space_and_key_order() -> None:
    assert strict_json(' \n{"n":3,\n"ok":true}\n', {"ok": True, "n": 3}) is None


def called(arguments: str, name: str = "set_mode", n: int = 1, notes: tuple[str, ...] = ()) -> str | None:
    made = [ToolCall(i, f"c{i}", name, arguments) for i in range(n)]
    return exact_calls(made, [("set_mode", {"mode": "pair"})], notes)


def test_tool_calls_are_compared_exactly() -> None:
    assert called('{"mode":"pair"}') is None
    assert "double_encoded_arguments" in (called('"{\\"mode\\": \\"pair\\"}"') or "")
    assert "pair" in (called('"{\\"mode\\": \\"pair\\"}"') or "")
    assert "not set_mode" in (called('{"mode":"pair"}', name="set-mode") or "")
    assert "2 tool calls, not 1" in (called('{"mode":"pair"}', n=2) or "")
    assert "0 tool calls" in (called("", n=0) or "")
    assert "mode is" in (called('{"mode":"Paris"}') or "")
    assert "no JSON" in (called('{"mode":') or "")
    assert "no object" in (called('["pair"]') or "")
    assert "missing_tool_id" in (called('{"mode":"pair"}', notes=("missing_tool_id",)) or "")


def test_every_call_is_looked_at_and_empty_arguments_are_an_empty_object() -> None:
    two = [ToolCall(0, "a", "f", ""), ToolCall(1, "b", "g", '{"x":2}')]
    assert exact_calls(two, [("f", {}), ("g", {"x": 2})]) is None
    assert "call 1" in (exact_calls(two, [("f", {}), ("g", {"x": 1})]) or "")


def test_identity() -> None:
    def of(served: tuple[str, ...], context: int | None) -> verdicts.Judged:
        return verdicts.identity(served, context, "m", ("alias",), 4096)

    assert of(("m",), 4096).ok
    assert of(("alias", "m"), 4096).ok
    assert of(("m", "lora"), 4096).failure == FailureClass.IDENTITY
    assert of(("other",), 4096).failure == FailureClass.IDENTITY
    assert of((), 4096).failure == FailureClass.IDENTITY
    assert "4,352" in of(("m",), 4352).note
    assert of(("m",), None).outcome == "unverified"


def test_shown_text_is_bounded_and_quoted() -> None:
    assert len(verdicts.shown("a" * 10_000)) < 200
    assert verdicts.shown("a\x1b[31m\nb") == "'a\\x1b[31m b'"
