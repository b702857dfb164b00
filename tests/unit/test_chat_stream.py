"""From events to one answer: O-49 to O-58, O-60 to O-63, O-66 to O-69, O-105 and their kin."""

# ruff: noqa: E501
from __future__ import annotations

import json
from typing import Any

import pytest

from anvil_tui.core.chat import ChatAnswer, ChatRequest, decode_seeds_tok_s, decode_tok_s, request_body
from anvil_tui.core.chat_stream import StreamAssembler, message_answer
from anvil_tui.core.sse import SseDecoder
from anvil_tui.core.tool_calls import decoded_arguments


def answered(wire: str | bytes, how: str = "eof", split: int | None = None) -> ChatAnswer:
    """Play a stream: event n is read at second n."""
    raw = wire.encode() if isinstance(wire, str) else wire
    decoder, assembler, at = SseDecoder(), StreamAssembler(), 0
    for part in [raw] if split is None else [raw[:split], raw[split:]]:
        for event in decoder.feed(part):
            at += 1
            if not assembler.done:
                assembler.event(event, float(at))
    for event in [] if assembler.done else decoder.end():
        assembler.event(event, float(at + 1))
    return assembler.end("done" if assembler.done else how, float(at))


def sse(*chunks: Any) -> str:
    return "".join(f"data: {c if isinstance(c, str) else json.dumps(c)}\n\n" for c in chunks)


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def timed(*times: float, tokens: int | None) -> ChatAnswer:
    assembler = StreamAssembler()
    for at in times:
        assembler.event(SseDecoder().feed(sse(delta(content="x")).encode())[0], at)
    last = (
        {"choices": [], "usage": {"prompt_tokens": 3000, "completion_tokens": tokens}} if tokens else delta("stop")
    )
    for chunk in (delta("stop"), last, "[DONE]"):
        assembler.event(SseDecoder().feed(sse(chunk).encode())[0], times[-1])
    return assembler.end("done", times[-1])


def test_comments_do_not_start_the_clock() -> None:
    wire = ":\n\n: ping 10:00:15\n\n" + sse(delta(content="Hi")) + ":\n\n" + sse(delta("stop"), "[DONE]")
    got = answered(wire)
    assert (got.content, got.finish_reason, got.error, got.ttft_any_s) == ("Hi", "stop", None, 1.0)


def test_data_without_space_and_crlf() -> None:
    wire = (
        'data:{"choices":[{"index":0,"delta":{"content":"A"},"finish_reason":null}]}\r\n\r\n'
        'data: {"choices":[{"index":0,"delta":{"content":"B"},"finish_reason":"stop"}]}\r\n\r\ndata:[DONE]\r\n\r\n'
    )
    got = answered(wire)
    assert (got.content, got.error, got.notes) == ("AB", None, ())


def test_any_split_gives_the_same_text() -> None:
    wire = (sse(delta("stop", content="naïve 模型")).replace("\\u00ef", "ï") + "data: [DONE]\n\n").encode()
    for i in range(1, len(wire)):
        got = answered(wire, split=i)
        assert (got.content, got.finish_reason, got.error) == ("naïve 模型", "stop", None)


def test_broken_json_is_an_error_with_its_offset_and_the_partial_text() -> None:
    head = "event: ping\ndata: \n\n" + sse(delta(content="ok"))
    got = answered(head + 'data: {"choices":[{"index":0,"delta":{"cont')
    assert (got.error, got.error_code, got.content) == ("malformed", "protocol_error", "ok")
    assert f"byte {len(head)}" in got.error_message


@pytest.mark.parametrize("chunk", ["[1]", "7", '{"choices": 3}'])
def test_json_that_is_no_chunk_is_an_error_too(chunk: str) -> None:
    assert answered(sse(chunk, "[DONE]")).error == "malformed"


USAGE = {"prompt_tokens": 11, "completion_tokens": 1, "total_tokens": 12}


@pytest.mark.parametrize(
    ("last", "notes"), [({"choices": [], "usage": USAGE}, ()), ({"usage": USAGE}, ("usage_without_choices",))]
)
def test_usage_chunk_with_empty_or_absent_choices(last: dict[str, Any], notes: tuple[str, ...]) -> None:
    got = answered(sse({"choices": []}, delta("stop", content="x"), last, "[DONE]"))
    assert (got.content, got.prompt_tokens, got.completion_tokens, got.error, got.notes) == (
        "x",
        11,
        1,
        None,
        notes,
    )


def test_end_of_file_after_a_finish_reason_is_complete_with_a_note() -> None:
    got = answered(sse(delta(content="42"), delta("stop"), {"choices": [], "usage": USAGE}))
    assert (got.content, got.error, got.notes) == ("42", None, ("no_done_marker",))


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("eof", "truncated"),
        ("reset", "truncated"),
        ("unclean", "truncated"),
        ("idle", "timeout"),
        ("deadline", "timeout"),
    ],
)
def test_an_end_before_the_finish_reason_is_never_success_and_names_its_cause(how: str, error: str) -> None:
    got = answered(sse(delta(content="The answer is ")), how)
    assert (got.error, got.error_code, got.content, decode_tok_s(got)) == (error, how, "The answer is ", None)


ERROR = {"message": "engine step failed", "type": "InternalServerError", "param": None, "code": 500}


def test_error_objects_inside_a_stream() -> None:
    nested = answered(sse(delta(role="assistant", content=""), {"error": ERROR}, "[DONE]"))
    assert (nested.error, nested.error_code, nested.status) == ("stream_error", "500", 200)
    assert nested.error_message == "InternalServerError: engine step failed"
    flat = answered(
        sse(
            {
                "object": "error",
                "message": "request aborted",
                "type": "BadRequestError",
                "param": None,
                "code": 400,
            },
            "[DONE]",
        )
    )
    assert (flat.error, flat.error_code) == ("stream_error", "400")
    after = answered(sse(delta("stop", content="x"), {"error": "gone"}, "[DONE]"))
    assert (after.error, after.error_message) == ("stream_error", "gone")
    old = answered(
        sse(delta(content="x")) + 'error: {"code":500,"message":"slot failed","type":"server_error"}\n\n'
    )
    assert (old.error, old.error_code, old.content) == ("stream_error", "500", "x")


def test_a_null_error_beside_choices_is_a_normal_chunk() -> None:
    got = answered(sse(delta("stop", content="x") | {"error": None}, "[DONE]"))
    assert (got.content, got.error) == ("x", None)


def test_both_reasoning_fields_are_one_channel_taken_once() -> None:
    got = answered(
        sse(
            delta(reasoning="Let", content=""),
            delta(reasoning=" me", reasoning_content=" me"),
            delta("stop", content="4"),
            "[DONE]",
        )
    )
    assert (got.reasoning, got.content, got.ttft_any_s, got.ttft_visible_s) == ("Let me", "4", 1.0, 3.0)
    assert answered(sse(delta("stop", reasoning_content="x"), "[DONE]")).reasoning == "x"


def test_role_chunks_null_keys_and_tool_calls_in_the_clock() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}
    nulls = {"content": None, "reasoning_content": None, "tool_calls": None}
    got = answered(
        sse(delta(role="assistant", **nulls), delta(**nulls), delta("tool_calls", tool_calls=[call]), "[DONE]")
    )
    assert (got.ttft_any_s, got.ttft_visible_s, got.e2e_s, got.end_s) == (3.0, 3.0, 3.0, 4.0)
    silent = answered(sse(delta(role="assistant", content=""), delta("stop"), "[DONE]"))
    assert (silent.ttft_any_s, silent.ttft_visible_s, silent.e2e_s) == (None, None, None)


def calls(*fragments: Any) -> ChatAnswer:
    return answered(sse(*(delta(tool_calls=[f]) for f in fragments), delta("tool_calls"), "[DONE]"))


def fn(name: str | None = None, arguments: Any = None) -> dict[str, Any]:
    return {k: v for k, v in (("name", name), ("arguments", arguments)) if v is not None}


@pytest.mark.parametrize("none", [{}, {"id": None}, {"id": ""}])
def test_continuation_fragments_join_by_index(none: dict[str, Any]) -> None:
    got = calls(
        {"index": 0, "id": "call_a", "type": "function", "function": fn("read", "")},
        {"index": 0, **none, "function": {"name": None, "arguments": '{"pa'}},
        {"index": 0, **none, "function": fn(arguments='th":"a"}')},
    )
    (call,) = got.tool_calls
    assert (call.id, call.name, json.loads(call.arguments), got.notes) == ("call_a", "read", {"path": "a"}, ())


def test_fragments_of_two_calls_may_alternate_and_repeat_their_id() -> None:
    got = calls(
        {"index": 0, "id": "a", "function": fn("f", "")}, {"index": 1, "id": "b", "function": fn("g", "")},
        {"index": 0, "id": "a", "function": fn("f", "{}")}, {"index": 1, "function": fn(arguments='{"x":1}')},
    )  # fmt: skip
    assert [(c.id, c.name, c.arguments) for c in got.tool_calls] == [("a", "f", "{}"), ("b", "g", '{"x":1}')]


def test_a_missing_id_or_index_keeps_the_call_and_is_noted() -> None:
    no_id = calls({"index": 0, "type": "function", "function": fn("list", "{}")})
    assert ([c.id for c in no_id.tool_calls], no_id.notes) == (["call_0"], ("missing_tool_id",))
    no_index = calls({"id": "call_z", "type": "function", "function": fn("list", "{}")})
    assert ([(c.index, c.id) for c in no_index.tool_calls], no_index.notes) == (
        [(0, "call_z")],
        ("missing_tool_index",),
    )
    two = calls(
        {"id": "a", "function": fn("f", "{}")},
        {"function": fn(arguments=" ")},
        {"id": "b", "function": fn("g", "{}")},
    )
    assert [(c.id, c.arguments) for c in two.tool_calls] == [("a", "{} "), ("b", "{}")]
    bare = calls({"function": fn("f", "{}")}, {"function": fn("g", "{}")})
    assert [(c.id, c.name) for c in bare.tool_calls] == [("call_0", "f"), ("call_1", "g")]


def test_one_index_with_two_ids_is_two_calls() -> None:
    got = calls(
        {"index": 0, "id": "t1", "function": fn("f", '{"a":')}, {"index": 0, "id": "", "function": fn(arguments="1}")},
        {"index": 0, "id": "t2", "function": fn("f", '{"a":')}, {"index": 0, "id": "", "function": fn(arguments="2}")},
    )  # fmt: skip
    assert [(c.id, c.arguments) for c in got.tool_calls] == [("t1", '{"a":1}'), ("t2", '{"a":2}')]
    assert got.notes == ("tool_index_reused",)


def test_arguments_given_as_an_object_are_kept_as_text_with_a_note() -> None:
    got = calls({"index": 0, "id": "a", "function": fn("f", {"x": 1})})
    assert (got.tool_calls[0].arguments, got.notes) == ('{"x": 1}', ("tool_arguments_not_text",))


def test_decoding_arguments() -> None:
    assert decoded_arguments('"{\\"mode\\": \\"pair\\"}"') == ({"mode": "pair"}, True)
    assert decoded_arguments("") == ({}, False)
    assert decoded_arguments('"plain"') == ("plain", False)
    for broken in ("{", '{"a":1,"a":2}', '{"a":NaN}'):
        with pytest.raises(ValueError, match=r"."):
            decoded_arguments(broken)


def test_usage_on_every_chunk_is_a_running_total() -> None:
    steps = [delta(content="x") | {"usage": {"completion_tokens": n}} for n in (3, 7, 12)]
    final = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 12}}
    got = answered(sse(*steps, delta("stop"), final, "[DONE]"))
    assert (got.completion_tokens, got.prompt_tokens, got.notes) == (12, 5, ())
    without = answered(sse(*steps, delta("stop"), "[DONE]"))
    assert (without.completion_tokens, without.notes) == (12, ("usage_from_running_total",))
    fell = answered(sse(*steps, delta("stop") | {"usage": {"completion_tokens": 9}}, "[DONE]"))
    assert fell.notes == ("usage_inconsistent",)
    assert decode_tok_s(fell) is None


def test_usage_details() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    assert answered(sse(delta("stop", content="x"), {"choices": [], "usage": usage})).cached_tokens == 4
    got = answered(sse(delta("stop", content="x") | {"usage": None, "timings": {"cache_n": 0}}))
    assert (got.cached_tokens, got.completion_tokens) == (0, None)


def test_decode_rate_from_usage_not_from_chunks() -> None:
    got = timed(0.50, 0.75, 1.00, 1.25, 1.50, tokens=21)
    assert got.ttft_any_s == 0.5
    assert decode_seeds_tok_s(got) == pytest.approx(20.0)
    assert decode_tok_s(got) == pytest.approx(21 * 4 / 5 / 1.0)
    even = timed(*(0.2 + 0.08 * n for n in range(10)), tokens=40)  # 4 tokens a chunk, 20 ms a token
    assert decode_tok_s(even) == pytest.approx(50.0)
    single_tokens = timed(*(0.42 + n / 50 for n in range(51)), tokens=51)
    assert decode_tok_s(single_tokens) == pytest.approx(50.0)
    assert decode_seeds_tok_s(single_tokens) == pytest.approx(50.0)


def test_no_rate_for_one_chunk_or_without_usage() -> None:
    one = timed(2.0, tokens=64)
    assert (decode_tok_s(one), decode_seeds_tok_s(one), one.e2e_s) == (None, None, 2.0)
    assert decode_tok_s(timed(1.0, 2.0, tokens=None)) is None


def test_other_choices_and_odd_finish_reasons() -> None:
    got = answered(
        sse(
            {"choices": [{"index": 1, "delta": {"content": "no"}}]}, delta("content_filter", content="x"), "[DONE]"
        )
    )
    assert (got.content, got.finish_reason, got.notes) == ("x", "content_filter", ("extra_choice",))


def whole(body: Any, status: int = 200) -> ChatAnswer:
    return message_answer(status, "application/json", json.dumps(body).encode(), 10, 1.5)


def test_whole_messages() -> None:
    message = {"role": "assistant", "content": None, "reasoning": "First I consider"}
    got = whole(
        {
            "choices": [{"index": 0, "message": message, "finish_reason": "length"}],
            "usage": {"prompt_tokens": 40, "completion_tokens": 256},
        }
    )
    assert (got.content, got.reasoning, got.finish_reason, got.completion_tokens, got.e2e_s) == (
        "",
        "First I consider",
        "length",
        256,
        1.5,
    )
    assert (got.ttft_any_s, got.token_times_s) == (None, ())
    tool = {
        "choices": [
            {"message": {"tool_calls": [{"type": "function", "function": fn("f", "{}")}]}, "finish_reason": "stop"}
        ]
    }
    assert [(c.id, c.name) for c in whole(tool).tool_calls] == [("call_0", "f")]
    assert whole(tool).notes == ("missing_tool_id",)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"id": "resp_1", "object": "response", "status": "completed", "output": []}, "malformed"),
        ({"choices": []}, "malformed"), ([], "malformed"), ({"choices": [{"message": None}]}, "malformed"),
        ({"error": ERROR}, "stream_error"), ({"object": "error", "message": "x", "code": 400}, "stream_error"),
    ],
)  # fmt: skip
def test_a_200_that_is_no_answer(body: Any, error: str) -> None:
    assert whole(body).error == error


def test_a_200_page_is_no_answer() -> None:
    got = message_answer(200, "text/html", b"<html>hello</html>", 10, 1.0)
    assert (got.error, got.error_code) == ("malformed", "protocol_error")


def test_the_request_always_limits_its_tokens_and_asks_for_usage_only_in_a_stream() -> None:
    plain = request_body(ChatRequest("m", ({"role": "user", "content": "x"},), 16))
    assert plain == {
        "model": "m",
        "messages": [{"role": "user", "content": "x"}],
        "max_tokens": 16,
        "stream": False,
        "temperature": 0.0,
    }
    streamed = request_body(
        ChatRequest("m", (), 16, stream=True, temperature=None, extra={"reasoning_effort": "low"})
    )
    assert streamed["stream_options"] == {"include_usage": True}
    assert streamed["reasoning_effort"] == "low"
    assert "temperature" not in streamed
