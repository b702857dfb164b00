"""The Responses route as a ChatAnswer: O-106, the order and names of its events, what it may not be sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anvil_tui.core.chat import ChatAnswer, ChatRequest, request_body
from anvil_tui.core.chat_stream import message_answer
from anvil_tui.core.responses import ResponsesAssembler, chat_shaped
from anvil_tui.core.sse import SseDecoder
from anvil_tui.core.verdicts import delivered

USAGE = {
    "input_tokens": 40, "output_tokens": 9, "input_tokens_details": {"cached_tokens": 24},
    "output_tokens_details": {"reasoning_tokens": 6},
}  # fmt: skip


def text(words: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": words}]}


def thought(words: str, key: str = "content") -> dict[str, Any]:
    return {"type": "reasoning", "summary": [], key: [{"type": "reasoning_text", "text": words}]}


def response(*output: dict[str, Any], status: str = "completed", **more: Any) -> dict[str, Any]:
    return {
        "id": "r",
        "object": "response",
        "model": "m",
        "status": status,
        "output": [*output],
        "usage": USAGE,
        **more,
    }


def whole(value: Any) -> ChatAnswer:
    return message_answer(200, "application/json", json.dumps(value).encode(), 10, 1.5, chat_shaped)


def event(kind: str, name: str | None = None, **data: Any) -> bytes:
    return f"event: {name or kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()


def stream(*events: bytes, how: str = "eof") -> ChatAnswer:
    made, decoder = ResponsesAssembler(), SseDecoder()
    for n, raw in enumerate(events):
        for each in decoder.feed(raw):
            if not made.done:
                made.event(each, float(n))
    return made.end("done" if made.done else how, float(len(events)))


GOOD = (
    event("response.created", response={"status": "in_progress"}, sequence_number=0),
    event("response.output_item.added", item={"type": "reasoning"}, sequence_number=1),
    event("response.reasoning_text.delta", delta="hm", sequence_number=2),
    event("response.output_text.delta", delta="po", sequence_number=3),
    event("response.output_text.delta", delta="ng", sequence_number=4),
    event("response.output_text.done", text="pong", sequence_number=5),
    event("response.completed", response=response(thought("hm"), text("pong")), sequence_number=6),
)


def test_a_whole_response_and_a_streamed_one_are_the_same_answer() -> None:
    for got in (whole(response(thought("hm"), text("pong"))), stream(*GOOD)):
        assert (got.content, got.reasoning, got.finish_reason, got.model) == ("pong", "hm", "stop", "m")
        assert (got.prompt_tokens, got.completion_tokens, got.cached_tokens, got.reasoning_tokens) == (
            40,
            9,
            24,
            6,
        )
        assert (got.error, got.notes) == (None, ())
    assert (stream(*GOOD).ttft_any_s, stream(*GOOD).ttft_visible_s, stream(*GOOD).e2e_s) == (2.0, 3.0, 4.0)


def test_completed_with_an_empty_output_is_a_failure_that_shows_its_tokens() -> None:
    """O-106: a reasoning model used its budget; no index error, and no rate of it either."""
    empty: dict[str, Any] = {
        "id": "resp_1", "object": "response", "status": "completed", "incomplete_details": None, "output": [],
        "usage": {"input_tokens": 120, "output_tokens": 412, "total_tokens": 532},
    }  # fmt: skip
    for got in (whole(empty), stream(event("response.completed", response=empty))):
        judged = delivered(got, 4096)
        assert (judged.outcome, judged.failure) == ("failed", "visible_answer_missing")
        assert "412" in judged.note
        assert got.token_times_s == ()
    only_reasoned = delivered(whole(response(thought("hm", "summary"))), 4096)
    assert only_reasoned.failure == "visible_answer_missing"


@pytest.mark.parametrize(
    ("status", "more", "finish"),
    [
        ("incomplete", {"incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ("incomplete", {"incomplete_details": {"reason": "content_filter"}}, "content_filter"),
        ("cancelled", {}, "cancelled"),
    ],
)
def test_a_status_other_than_completed_is_no_stop(status: str, more: dict[str, Any], finish: str) -> None:
    assert whole(response(text("po"), status=status, **more)).finish_reason == finish


def test_failures_keep_the_servers_own_words() -> None:
    failed = response(status="failed", error={"code": "server_error", "message": "the core is dead"})
    for got in (
        whole(failed),
        stream(event("response.failed", response=failed)),
        stream(event("error", message="the core is dead")),
    ):
        assert (got.error, "the core is dead" in got.error_message) == ("stream_error", True)
    assert whole({"choices": []}).error == "malformed"
    assert stream(event("response.completed", response=None)).error == "malformed"


def test_a_stream_without_its_last_event_is_truncated() -> None:
    """O-55 on this route: text came, the end did not."""
    got = stream(*GOOD[:-1])
    assert (got.error, got.content) == ("truncated", "pong")


@pytest.mark.parametrize(
    ("events", "note"),
    [
        ((event("response.output_text.delta", name="message", delta="pong"), GOOD[-1]), "event_name_differs"),
        ((GOOD[3], GOOD[4], GOOD[2], GOOD[-1]), "sequence_out_of_order"),
        ((GOOD[3], GOOD[-1]), "text_differs_from_deltas"),
    ],
)
def test_oddities_of_the_stream_are_noted(events: tuple[bytes, ...], note: str) -> None:
    assert note in stream(*events).notes


def test_calls_of_a_response_are_tool_calls() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"x": 1}'}
    for got in (whole(response(call)), stream(event("response.completed", response=response(call)))):
        assert [(c.id, c.name, c.arguments) for c in got.tool_calls] == [("c1", "f", '{"x": 1}')]
        assert got.finish_reason == "tool_calls"


def test_no_field_of_the_chat_route_is_sent() -> None:
    """SGLang refuses them there."""
    request = ChatRequest(
        "m", ({"role": "user", "content": "hi"},), 64, stream=True, route="responses",
        extra={"reasoning": {"effort": "low"}},
    )  # fmt: skip
    assert request_body(request) == {
        "model": "m", "input": [{"role": "user", "content": "hi"}], "max_output_tokens": 64, "stream": True,
        "store": False, "temperature": 0.0, "reasoning": {"effort": "low"},
    }  # fmt: skip
