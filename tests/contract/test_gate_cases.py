"""Cases of engines, proxies and streams, each played to a whole gate over a socket: O-49 to O-65, O-70 to O-72, O-105, O-106."""

# ruff: noqa: E501
from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from anvil_tui.adapters.clock import SystemClock
from anvil_tui.adapters.openai_client import OpenAIClient
from anvil_tui.core.gates import FailureClass, GateResult, Verdict
from anvil_tui.service.gates.conductor import Conductor, GateTarget
from anvil_tui.service.gates.session import GateParts
from tests.contract.test_conductor import ID, Box, Engines, Gpus, asked, recipe, said, suite
from tests.support.scripted import DONE, SSE_HEAD, Seen, Step, answer, chunk, scripted

NOW = datetime(2026, 9, 2, 10, tzinfo=UTC)
IDLE_S = 0.3


class At(SystemClock):
    def utc(self) -> datetime:
        return NOW


Script = Sequence[Step] | Callable[[Seen], Sequence[Step]]


def play(script: Script, kind: str = "smoke", **more: Any) -> GateResult:
    """One gate of a kind against a server that answers each request so."""
    box: Any = Box()
    thinking = {"thinking": more.pop("recipe_thinking")} if "recipe_thinking" in more else {}
    with scripted(script) as server:
        parts: Any = GateParts(OpenAIClient(time.monotonic, IDLE_S), Engines(box), box, Gpus(box), At())  # type: ignore[arg-type]
        target = GateTarget(recipe(**thinking), ID, server.url)
        (result,) = Conductor(parts).run(
            suite({"kind": kind, "timeout_s": 10, **more}), target, lambda e: None, lambda: False
        )
    return result


def data(value: Any) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


PONG, STOP = chunk(content="pong"), chunk(finish="stop")
USED = {"prompt_tokens": 11, "completion_tokens": 1, "total_tokens": 12}
UNICODE = (
    chunk(reasoning="naïve 模型").replace(b"\\u00ef", "ï".encode()).replace(b"\\u6a21\\u578b", "模型".encode())
)
SPLIT = UNICODE + PONG + STOP + DONE
CRLF = (
    (chunk(content="po") + chunk(content="ng", finish="stop") + DONE)
    .replace(b"data: ", b"data:")
    .replace(b"\n", b"\r\n")
)


@pytest.mark.parametrize(
    ("script", "notes"),
    [
        pytest.param([SSE_HEAD, CRLF], [], id="O-50"),
        pytest.param([SSE_HEAD, *(SPLIT[n : n + 1] for n in range(len(SPLIT)))], [], id="O-51"),
        pytest.param([SSE_HEAD, b"event: ping\ndata: \n\n", PONG, STOP, DONE], [], id="O-52 empty"),
        pytest.param([SSE_HEAD, data({"choices": []}), PONG, STOP, data({"choices": [], "usage": USED}), DONE], [], id="O-53"),
        pytest.param([SSE_HEAD, PONG, STOP, data({"usage": USED}), DONE], ["usage_without_choices"], id="O-53 no choices"),
        pytest.param([SSE_HEAD, PONG, STOP], ["no_done_marker"], id="O-54"),
        pytest.param([SSE_HEAD, data({"choices": [{"index": 0, "delta": {"content": "pong"}}], "error": None}), STOP, DONE], [], id="O-56 null"),
        pytest.param([SSE_HEAD, PONG, STOP, DONE, "hold"], [], id="O-105"),
    ],
)  # fmt: skip
def test_odd_but_whole_streams_pass_with_their_notes(script: Script, notes: list[str]) -> None:
    result = play(script)
    assert (result.verdict, result.observations[0].raw["notes"]) == (Verdict.PASSED, notes), result.reason
    assert (result.observations[0].raw["end_s"] or 99) < 10, "the socket that stays open is not waited for"


def test_unicode_that_was_cut_anywhere_is_whole_and_usage_is_read() -> None:
    """O-51 and O-53: no character is lost, and the counts are those of the last chunk."""
    split = play([SSE_HEAD, *(SPLIT[n : n + 1] for n in range(len(SPLIT)))]).observations[0]
    assert split.raw["reasoning_characters"] == len("naïve 模型")
    used = play([SSE_HEAD, PONG, STOP, data({"choices": [], "usage": USED}), DONE]).observations[0]
    assert (used.prompt_tokens, used.completion_tokens) == (11, 1)


def test_heartbeats_start_no_clock_and_reasoning_starts_the_first_of_two() -> None:
    """O-49 and O-58."""
    beat = play([SSE_HEAD, b":\n\n: ping 10:00:15\n\n", 0.15, PONG, b":\n\n", STOP, DONE]).observations[0]
    assert beat.ok and (beat.ttft_any_s or 0) >= 0.15
    both = play([
        SSE_HEAD, chunk(reasoning="Let", content=""), 0.1, chunk(reasoning=" me", reasoning_content=" me"),
        chunk(content="pong", finish="stop"), DONE,
    ]).observations[0]  # fmt: skip
    assert both.ok and both.raw["reasoning_characters"] == len("Let me")
    assert (both.ttft_visible_s or 0) - (both.ttft_any_s or 9) >= 0.1


@pytest.mark.parametrize(
    ("script", "verdict", "words"),
    [
        pytest.param([SSE_HEAD, PONG, b'data: {"choices":[{"index":0,"delta":{"cont\n\n'], Verdict.FAILED, f"in the event at byte {len(PONG)}", id="O-52"),
        pytest.param([SSE_HEAD, chunk(content="The answer is ")], Verdict.ERRORED, "(eof)", id="O-55 eof"),
        pytest.param([SSE_HEAD, chunk(content="The answer is "), 0.05, "reset"], Verdict.ERRORED, "(reset)", id="O-55 reset"),
        pytest.param([SSE_HEAD, chunk(content="The answer is "), "hold"], Verdict.ERRORED, "silent until the idle limit", id="O-55 idle"),
        pytest.param([SSE_HEAD, chunk(content=""), data({"error": {"message": "engine step failed", "type": "InternalServerError", "param": None, "code": 500}}), DONE], Verdict.FAILED, "InternalServerError: engine step failed", id="O-56"),
        pytest.param([SSE_HEAD, data({"object": "error", "message": "request aborted", "type": "BadRequestError", "code": 400}), DONE], Verdict.FAILED, "BadRequestError: request aborted", id="O-56 flat"),
    ],
)  # fmt: skip
def test_broken_streams_are_no_success_and_say_how(script: Script, verdict: Verdict, words: str) -> None:
    result = play(script)
    assert result.verdict is verdict
    assert words in result.reason
    assert result.observations[0].excerpt in ("pong", "The answer is ") or verdict is Verdict.FAILED


@pytest.mark.parametrize(
    "content", [{"content": None}, {"content": ""}, {}], ids=["O-57 null", "O-57 empty", "O-57 absent"]
)
def test_a_length_stop_inside_reasoning_is_its_own_class(content: dict[str, Any]) -> None:
    message = {"role": "assistant", **content, "reasoning": "First I consider ..."}
    usage = {"prompt_tokens": 40, "completion_tokens": 128}
    result = play(
        [answer({"choices": [{"index": 0, "message": message, "finish_reason": "length"}], "usage": usage})]
    )
    assert result.failures == (FailureClass.REASONING_BUDGET,)
    assert "visible 0 characters, completion 128 of 128 tokens" in result.reason


def test_a_closing_tag_alone_is_a_leak_and_not_broken_json() -> None:
    """O-59, in a strict gate with thinking off."""
    result = play(said('Compute 2+2.\n</think>\n\n{"sum":4}'), "json", recipe_thinking="off")
    assert result.failures == (FailureClass.REASONING_LEAK,)
    assert '{"sum":4}' in result.reason


def wanted(seen: Seen) -> str:
    """The arguments that the question of a tools gate asks for."""
    room = re.search(r'room "(\w+)" and celsius (\d+)', asked(seen))
    assert room
    return json.dumps({"room": room[1], "celsius": int(room[2])})


def function(arguments: str, **more: Any) -> dict[str, Any]:
    return {**more, "type": "function", "function": {"name": "set_thermostat", "arguments": arguments}}


def fragments(seen: Seen) -> Sequence[Step]:
    """O-61: later fragments say `none` in three ways."""
    text = wanted(seen)
    first = function("", index=0, id="call_a")
    later = [{"index": 0, "id": None, "function": {"name": None, "arguments": text[:4]}},
             {"index": 0, "id": "", "function": {"arguments": text[4:9]}},
             {"index": 0, "function": {"arguments": text[9:]}}]  # fmt: skip
    return [SSE_HEAD, *(chunk(tool_calls=[f]) for f in (first, *later)), chunk(finish="tool_calls"), DONE]


def once(**keys: Any) -> Callable[[Seen], Sequence[Step]]:
    def reply(seen: Seen) -> Sequence[Step]:
        return [SSE_HEAD, chunk(tool_calls=[function(wanted(seen), **keys)]), chunk(finish="tool_calls"), DONE]

    return reply


def twice(seen: Seen) -> Sequence[Step]:
    """O-63: one index, two calls."""
    text = wanted(seen)
    parts = [function(text[:5], index=0, id="t1"), {"index": 0, "id": "", "function": {"arguments": text[5:]}},
             function(text[:5], index=0, id="t2"), {"index": 0, "id": "", "function": {"arguments": text[5:]}}]  # fmt: skip
    return [SSE_HEAD, *(chunk(tool_calls=[p]) for p in parts), chunk(finish="tool_calls"), DONE]


@pytest.mark.parametrize(
    ("script", "words", "notes", "calls"),
    [
        pytest.param(fragments, "right call", [], 1, id="O-61"),
        pytest.param(once(index=0), "malformed call: missing_tool_id", ["missing_tool_id"], 1, id="O-62 no id"),
        pytest.param(once(id="call_z"), "right call", ["missing_tool_index"], 1, id="O-62 no index"),
        pytest.param(twice, "wrong call: 2 tool calls, not 1", ["tool_index_reused"], 2, id="O-63"),
    ],
)  # fmt: skip
def test_streamed_calls_are_joined_and_kept(script: Script, words: str, notes: list[str], calls: int) -> None:
    result = play(script, "streaming-tools")
    seen = result.observations[0].raw
    assert words in result.reason
    assert (result.verdict is Verdict.PASSED) == (words == "right call")
    assert (seen["notes"], len(seen["tool_calls"])) == (notes, calls)
    assert all(c["id"] and json.loads(c["arguments"])["room"] for c in seen["tool_calls"])


def test_arguments_encoded_twice_fail_and_are_shown_decoded() -> None:
    """O-60."""
    result = play(lambda seen: said(tool_calls=[function(json.dumps(wanted(seen)), id="c")]), "tools")
    assert result.failures == (FailureClass.TOOL_CALL,)
    assert "double_encoded_arguments" in result.reason and '"celsius":' in result.reason


def test_a_fence_fails_strict_json_with_its_own_reason_and_white_space_does_not() -> None:
    """O-64."""
    fenced = play(lambda seen: said(f"```json\n{asked(seen)[asked(seen).index('{') :]}\n```\n"), "json")
    assert (fenced.verdict, "fenced_json" in fenced.reason, "inside: '{" in fenced.reason) == (
        Verdict.FAILED,
        True,
        True,
    )
    spaced = play(lambda seen: said(f" \n{asked(seen)[asked(seen).index('{') :]}\n\t"), "json")
    assert spaced.verdict is Verdict.PASSED


OVERFLOWS = [
    ({"object": "error", "message": "This model's maximum context length is 32768 tokens. However, you requested 40100 tokens (39000 in the messages, 1100 in the completion).", "type": "BadRequestError", "code": 400}, "40100 tokens asked, 32768 allowed"),
    ({"error": {"code": 400, "message": "request (5200 tokens) exceeds the available context size (4096 tokens), try increasing it", "type": "exceed_context_size_error", "n_prompt_tokens": 5200, "n_ctx": 4096}}, "5200 tokens asked, 4096 allowed"),
    ({"object": "error", "message": "Input length (300100 tokens) exceeds the maximum allowed length (262144 tokens). Use a shorter input or enable --allow-auto-truncate.", "type": "BadRequestError", "code": 400}, "300100 tokens asked, 262144 allowed"),
    ({"error": {"message": "This model's maximum context length is 4096 tokens. However, your prompt contains at least 4097 input tokens, which exceeds this limit even without any output tokens.", "type": "BadRequestError", "param": "input_tokens", "code": 400}}, "at least 4097 tokens asked, 4096 allowed"),
    ({"error": {"message": "The input (12000 tokens) is longer than the model's context length (8192 tokens).", "type": "BadRequestError", "code": 400}}, "12000 tokens asked, 8192 allowed"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "words"),
    OVERFLOWS,
    ids=["O-70 vllm", "O-70 llama.cpp", "O-70 sglang", "O-70 vllm 0.32", "O-70 sglang input"],
)
def test_an_overflow_fails_what_should_fit_and_passes_what_should_not(body: dict[str, Any], words: str) -> None:
    smoke = play([answer(body, "400 Bad Request")])
    assert (smoke.verdict, smoke.failures) == (Verdict.FAILED, (FailureClass.CONTEXT,))
    assert f"refused by design limit: {words}" in smoke.reason

    def refuses(seen: Seen) -> Sequence[Step]:
        long = len(asked(seen)) > 12_000
        return [answer(body, "400 Bad Request")] if long else said("pong", 20 + len(asked(seen).split()) * 3 // 2)

    overlong = play(refuses, "overlong")
    assert (overlong.verdict, words in overlong.reason) == (Verdict.PASSED, True), overlong.reason
    assert [o.excerpt for o in overlong.observations][-1] == "pong", "it answers after the refusal"


def test_a_proxys_413_is_no_overflow_and_no_refusal_of_the_engine() -> None:
    """O-71."""
    page = b"<html><head><title>413 Request Entity Too Large</title></head><body><hr><center>openresty</center></body></html>"
    entity = [answer(page, "413 Request Entity Too Large", "text/html")]
    result = play(entity)
    assert (result.verdict, result.failures) == (Verdict.ERRORED, ())
    assert "not JSON, so probably a proxy" in result.reason and "we had sent" in result.reason
    assert "<" not in result.reason

    def front(seen: Seen) -> Sequence[Step]:
        return entity if len(asked(seen)) > 12_000 else said("pong", 20 + len(asked(seen).split()) * 3 // 2)

    assert play(front, "overlong").verdict is Verdict.ERRORED


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("30", "; it asks to wait 30 s"), ("Wed, 02 Sep 2026 10:00:30 GMT", "; it asks to wait 30 s"),
        ("Wed, 02 Sep 2026 09:59:00 GMT", "; it asks to wait 0 s"), ("9000", "; it asks to wait 120 s"), ("soon", ""),
    ],
    ids=["O-72 seconds", "O-72 date", "O-72 past", "O-72 capped", "O-72 unreadable"],
)  # fmt: skip
def test_the_wait_that_a_busy_server_asks_for_is_told(header: str, words: str) -> None:
    result = play([answer({"error": "busy"}, "503 X", Retry_After=header)])
    assert result.verdict is Verdict.ERRORED
    assert (words in result.reason) if words else ("asks to wait" not in result.reason)


def test_a_completed_response_with_nothing_in_it_fails_with_its_tokens() -> None:
    """O-106."""
    empty: dict[str, Any] = {"id": "resp_1", "object": "response", "status": "completed", "incomplete_details": None, "output": [],
             "usage": {"input_tokens": 120, "output_tokens": 412, "total_tokens": 532}}  # fmt: skip
    result = play([answer(empty)], "responses")
    assert (result.verdict, result.failures) == (Verdict.FAILED, (FailureClass.NO_ANSWER,))
    assert "completion tokens: 412" in result.reason
    assert result.observations[0].decode_tok_s is None


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        (answer({"detail": "Not Found"}, "404 Not Found"), Verdict.UNSUPPORTED),
        (answer({"error": {"message": "File Not Found", "type": "not_found_error", "code": 404}}, "404 X"), Verdict.UNSUPPORTED),
        (answer({"detail": "Method Not Allowed"}, "405 X"), Verdict.UNSUPPORTED),
        (answer({"error": {"message": "not implemented", "code": 501}}, "501 X"), Verdict.UNSUPPORTED),
        (answer({"error": {"message": "The model `served` does not exist.", "type": "NotFoundError", "code": 404}}, "404 X"), Verdict.FAILED),
        (answer({"choices": []}), Verdict.FAILED),
    ],
)  # fmt: skip
def test_a_server_without_the_responses_route_is_unsupported_and_nothing_else_is(
    reply: bytes, verdict: Verdict
) -> None:
    assert play([reply], "responses").verdict is verdict


def test_only_fields_of_the_route_are_sent() -> None:
    sent: list[Any] = []

    def reply(seen: Seen) -> Sequence[Step]:
        sent.append((seen.path, seen.json))
        return [answer({"status": "completed", "model": "m", "output": [], "usage": {}})]

    play(reply, "responses", recipe_thinking="off")
    play(reply, "responses", thinking="high")
    assert [path for path, _ in sent] == ["/v1/responses"] * 2
    allowed = {"model", "input", "max_output_tokens", "stream", "store", "temperature"}
    assert set(sent[0][1]) == allowed
    assert (set(sent[1][1]), sent[1][1]["reasoning"]) == (allowed | {"reasoning"}, {"effort": "high"})
