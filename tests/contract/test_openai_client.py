"""The chat client over real sockets, against exact byte streams: what the network does to a stream."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from anvil_tui.adapters.openai_client import OpenAIClient
from anvil_tui.core.chat import ChatAnswer, ChatRequest
from tests.support.scripted import DONE, SSE_HEAD, Script, Scripted, Step, answer, chunk, scripted

STREAM = ChatRequest("m", ({"role": "user", "content": "hi"},), max_tokens=8, stream=True)
PLAIN = ChatRequest("m", ({"role": "user", "content": "hi"},), max_tokens=8)
WHOLE = {"model": "m", "choices": [{"index": 0, "message": {"content": "ok"}, "finish_reason": "stop"}]}


PING: list[Step] = [0.1, b": ping\n\n"]


def ask(
    server: Scripted, request: ChatRequest = STREAM, timeout_s: float = 5, idle_s: float = 5, **rest: Any
) -> ChatAnswer:
    client = OpenAIClient(time.monotonic, idle_s)
    return client.chat(server.url, request, api_key=rest.get("api_key"), timeout_s=timeout_s)


def asked(script: Script, request: ChatRequest = STREAM, **rest: Any) -> ChatAnswer:
    with scripted(script) as server:
        return ask(server, request, **rest)


def test_a_stream_and_what_was_sent() -> None:
    with scripted(
        [SSE_HEAD, chunk(role="assistant", content=""), 0.05, chunk(content="ok"), chunk(finish="stop"), DONE]
    ) as server:
        got = ask(server, api_key="secret")
    assert (got.status, got.content, got.finish_reason, got.error, got.notes) == (200, "ok", "stop", None, ())
    assert got.ttft_any_s is not None and 0.05 <= got.ttft_any_s <= 1
    assert got.client_queue_s is not None and 0 <= got.client_queue_s < 0.5
    (seen,) = server.seen
    assert (seen.path, seen.headers["authorization"]) == ("/v1/chat/completions", "Bearer secret")
    assert seen.json["max_tokens"] == 8
    assert seen.json["stream_options"] == {"include_usage": True}


def test_a_base_url_with_a_path_and_no_key() -> None:
    with scripted([answer(WHOLE, X_Anvil_Backend="slot-a")]) as server:
        got = OpenAIClient(time.monotonic).chat(server.url + "/@slot-a", PLAIN, api_key=None, timeout_s=5)
    assert server.seen[0].path == "/@slot-a/v1/chat/completions"
    assert "authorization" not in server.seen[0].headers
    assert (got.content, got.headers["x-anvil-backend"]) == ("ok", "slot-a")


def test_done_ends_the_request_though_the_socket_stays_open() -> None:
    began = time.monotonic()
    got = asked([SSE_HEAD, chunk(content="ok"), 0.1, chunk(finish="stop"), DONE, "hold"], idle_s=1)
    assert (got.content, got.error, got.notes) == ("ok", None, ())
    assert got.end_s is not None and 0.1 <= got.end_s < 1
    assert got.e2e_s is not None and got.e2e_s < got.end_s
    assert time.monotonic() - began < 5


CHUNKED = SSE_HEAD.replace(b"Connection: close", b"Transfer-Encoding: chunked")


def in_chunks(data: bytes, size: int) -> bytes:
    parts = [data[i : i + size] for i in range(0, len(data), size)]
    return b"".join(f"{len(p):x}\r\n".encode() + p + b"\r\n" for p in parts) + b"0\r\n\r\n"


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_transfer_chunks_may_cut_events_and_characters(size: int) -> None:
    events = (
        b"data: " + '{"choices":[{"delta":{"content":"naïve 模型"},"finish_reason":"stop"}]}\n\n'.encode() + DONE
    )
    got = asked([CHUNKED, in_chunks(events, size)])
    assert (got.content, got.error) == ("naïve 模型", None)


def test_clean_end_of_file_after_a_finish_reason() -> None:
    got = asked([SSE_HEAD, chunk(content="42"), chunk(finish="stop")])
    assert (got.content, got.error, got.notes) == ("42", None, ("no_done_marker",))


@pytest.mark.parametrize(
    ("script", "error", "code"),
    [
        ([SSE_HEAD, chunk(content="The answer is ")], "truncated", "eof"),
        ([CHUNKED, in_chunks(chunk(content="The answer is "), 9999)[:-5]], "truncated", "unclean"),
        ([SSE_HEAD, chunk(content="The answer is "), 0.1, "reset"], "truncated", "reset"),
        ([SSE_HEAD, chunk(content="The answer is "), "hold"], "timeout", "idle"),
        ([SSE_HEAD, chunk(content="The answer is "), *PING * 30], "timeout", "deadline"),
    ],
)  # fmt: skip
def test_a_cut_stream_is_no_success_and_its_cause_is_named(script: Script, error: str, code: str) -> None:
    got = asked(script, timeout_s=1.0, idle_s=0.4)
    assert (got.error, got.error_code, got.content) == (error, code, "The answer is ")
    assert got.error_message


def test_heartbeats_reset_the_idle_limit_but_not_the_deadline() -> None:
    beats = [SSE_HEAD, *PING * 6]
    got = asked([*beats, chunk(content="ok"), chunk(finish="stop"), DONE], idle_s=0.4)
    assert (got.content, got.error) == ("ok", None)
    assert got.ttft_any_s is not None and got.ttft_any_s >= 0.6
    late = asked([SSE_HEAD, *PING * 30], timeout_s=0.5, idle_s=0.4)
    assert (late.error, late.error_code, late.ttft_any_s) == ("timeout", "deadline", None)


def test_silence_before_the_first_byte_is_bounded_by_the_deadline_alone() -> None:
    got = asked([0.4, SSE_HEAD, 0.4, chunk(content="ok", finish="stop"), DONE], idle_s=0.1)
    assert (got.content, got.error) == ("ok", None)


def test_events_of_one_read_share_its_stamp_and_the_first_of_any_kind_starts_the_clock() -> None:
    both = chunk(reasoning_content="hm") + chunk(content="4")
    got = asked([SSE_HEAD, both, 0.2, chunk(content="2", finish="stop"), DONE])
    first, second, third = got.token_times_s
    assert first == second == got.ttft_any_s == got.ttft_visible_s
    assert 0.15 < third - first < 1


def test_a_message_of_announced_length() -> None:
    got = asked([answer(WHOLE)], PLAIN)
    assert (got.content, got.error, got.ttft_any_s) == ("ok", None, None)
    cut = asked([answer(WHOLE)[:-20]], PLAIN)
    assert (cut.error, cut.error_code) == ("truncated", "eof")


def test_a_stream_that_was_answered_whole() -> None:
    got = asked([answer(WHOLE)], STREAM)
    assert (got.content, got.error, got.token_times_s) == ("ok", None, ())


@pytest.mark.parametrize(
    ("script", "status", "error", "code"),
    [
        ([answer({"error": "Unauthorized"}, "401 Unauthorized")], 401, "http", "unauthorized"),
        (
            [answer(b"<html>busy</html>", "503 Service Unavailable", "text/html", Retry_After="7")],
            503,
            "http",
            "503",
        ),
        ([answer(b"", "302 Found", Location="http://127.0.0.1:1/")], 302, "http", "302"),
        ([b"SSH-2.0-OpenSSH\r\n"], None, "malformed", "not_http"),
        ([b""], None, "unreachable", "reset"),
        (["reset"], None, "unreachable", "reset"),
        (["hold"], None, "timeout", "deadline"),
        ([b"HTTP/1.1 200 OK\r\n", "hold"], None, "timeout", "deadline"),
    ],
)
def test_answers_that_are_none(script: Script, status: int | None, error: str, code: str) -> None:
    got = asked(script, timeout_s=0.5)
    assert (got.status, got.error, got.error_code) == (status, error, code)
    if status == 503:
        assert got.headers["retry-after"] == "7"


def test_a_proxy_that_refuses_before_the_body_is_through() -> None:
    big = ChatRequest("m", ({"role": "user", "content": "x" * 8_000_000},), max_tokens=8)
    page = answer(b"<html><title>413 Request Entity Too Large</title></html>", "413 Too Large", "text/html")
    with scripted([page, 0.2], read_body=False) as server:
        got = ask(server, big)
    assert (got.status, got.error, got.error_code) == (413, "http", "payload_too_large")


def test_an_endless_line_and_a_slow_header_are_bounded() -> None:
    endless = asked([SSE_HEAD, b"data: " + b"x" * 5_000_000], timeout_s=5)
    assert (endless.error, endless.error_code) == ("malformed", "too_large")
    letter: list[Step] = [0.1, b"X"]
    drip = asked([b"HTTP/1.1 200 OK\r\n", *letter * 40], timeout_s=0.6)
    assert (drip.error, drip.error_code) == ("timeout", "deadline")


@pytest.mark.parametrize(
    "url", ["https://127.0.0.1:1", "ftp://x", "http://", "http://127.0.0.1:notaport", "nonsense"]
)
def test_addresses_we_do_not_speak(url: str) -> None:
    got = OpenAIClient(time.monotonic).chat(url, PLAIN, api_key=None, timeout_s=1)
    assert (got.error, got.status) == ("unreachable", None)


def test_nobody_listens_and_a_key_no_header_can_carry() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    client = OpenAIClient(time.monotonic)
    refused = client.chat(f"http://127.0.0.1:{port}", PLAIN, api_key=None, timeout_s=1)
    assert (refused.error, "refused" in refused.error_message) == ("unreachable", True)
    odd = client.chat(f"http://127.0.0.1:{port}", PLAIN, api_key="sec\nret", timeout_s=1)
    assert odd.error == "unreachable"
    assert "sec" not in odd.error_message


def test_times_follow_the_monotonic_clock_that_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 0.0)  # a wall clock that stepped back
    got = asked([0.05, SSE_HEAD, chunk(content="ok", finish="stop"), DONE])
    assert got.ttft_any_s is not None and 0.05 <= got.ttft_any_s < 1
