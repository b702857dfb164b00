"""Completions over plain sockets: one connection a request, one thread a request.

http.client and not a pooled library: with 64 streams a shared httpx pool reports a TTFT p95 of 545 ms
for a true 200 ms, http.client 205 ms.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import SplitResult, urlsplit

from anvil_tui.adapters.timed_socket import TimedSocket, connect
from anvil_tui.core.chat import ChatAnswer, ChatRequest, request_body
from anvil_tui.core.chat_stream import KEPT_RAW, StreamAssembler, message_answer
from anvil_tui.core.responses import ResponsesAssembler, chat_shaped
from anvil_tui.core.sse import SseDecoder, SseEvent, SseTooLong

MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
_READ_BYTES = 64 * 1024
_BROKEN = (OSError, http.client.HTTPException)


@dataclass(frozen=True, slots=True)
class _Route:
    """Where a request goes, and how its whole answer and its stream are read."""

    path: str
    shape: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    assembler: Callable[[], StreamAssembler]


_ROUTES = {
    "chat": _Route("/v1/chat/completions", dict, StreamAssembler),
    "responses": _Route("/v1/responses", chat_shaped, ResponsesAssembler),
}


class OpenAIClient:
    """The ChatClient of every engine. `idle_s` bounds the silence inside a stream once it has begun;
    before the first byte of the body only the deadline of the call counts, so a long prefill is no error.
    """

    def __init__(self, monotonic_s: Callable[[], float], idle_s: float = 120.0) -> None:
        self._now, self._idle_s = monotonic_s, idle_s

    def chat(self, base_url: str, request: ChatRequest, *, api_key: str | None, timeout_s: float) -> ChatAnswer:
        """One request to its route under BASE_URL. Never raises: `ChatAnswer.error` says what went wrong."""
        began = self._now()
        try:
            url, key = endpoint(base_url), header_safe(api_key)
        except ValueError as why:
            return ChatAnswer(None, error="unreachable", error_message=f"{base_url}: {why}")
        body = json.dumps(request_body(request)).encode()
        connection = http.client.HTTPConnection(url.hostname or "", url.port)
        try:
            sock = connect(connection.host, connection.port, began + timeout_s, self._now)
        except OSError as why:
            message = f"{base_url}: {_reason(why)} (after {self._now() - began:.1f} s)"
            return ChatAnswer(None, error="unreachable", error_message=message)
        connection.sock = sock
        try:
            route = _ROUTES[request.route]
            return self._exchange(connection, sock, url.path.rstrip("/"), route, body, key, began)
        finally:
            connection.close()

    def _exchange(
        self, connection: http.client.HTTPConnection, sock: TimedSocket, prefix: str, route: _Route, body: bytes,
        api_key: str | None, began: float,
    ) -> ChatAnswer:  # fmt: skip
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream, application/json"}
        headers |= {"Connection": "close"} | ({"Authorization": f"Bearer {api_key}"} if api_key else {})
        unsent: Exception | None = None
        try:
            connection.request("POST", f"{prefix}{route.path}", body, headers)
        except _BROKEN as why:
            unsent = why  # a proxy may answer 413 and close before the body is through
        sent = self._now()
        try:
            response = connection.getresponse()
        except _BROKEN as why:
            return _no_answer(unsent or why)
        answer = self._body(response, sock, route, sent, len(body))
        seen = {k.lower(): v for k, v in response.getheaders()}
        return replace(answer, headers=seen, client_queue_s=sent - began)

    def _body(
        self, response: http.client.HTTPResponse, sock: TimedSocket, route: _Route, sent: float, sent_bytes: int
    ) -> ChatAnswer:
        kind, status = response.getheader("Content-Type") or "", response.status
        if status == 200 and "text/event-stream" in kind:
            return self._stream(response, sock, route.assembler(), sent)
        cap = MAX_BODY_BYTES if status == 200 else MAX_ERROR_BYTES
        try:
            whole = response.read(cap)
        except TimeoutError as why:
            return replace(cut(status, "deadline", _reason(why)), error="timeout")
        except http.client.IncompleteRead as why:
            return cut(status, "eof", "the message ended inside a chunk", why.partial)
        except _BROKEN as why:
            return cut(status, "reset", _reason(why))
        if status == 200 and response.length:
            long = len(whole) == cap
            why_cut = f"the message is longer than {cap} bytes" if long else "the message ended before its length"
            return cut(status, "too_large" if long else "eof", why_cut, whole)
        return message_answer(status, kind, whole, sent_bytes, sock.read_at_s - sent, route.shape)

    def _stream(
        self, response: http.client.HTTPResponse, sock: TimedSocket, assembler: StreamAssembler, sent: float
    ) -> ChatAnswer:
        decoder, total = SseDecoder(), 0
        how, message = "eof", ""
        try:
            while not assembler.done and (data := response.read1(_READ_BYTES)):
                at_s, sock.idle_s = sock.read_at_s - sent, self._idle_s
                total += len(data)
                _feed(assembler, decoder.feed(data), at_s)
                if total > MAX_BODY_BYTES:
                    how, message = "too_large", f"the stream is longer than {MAX_BODY_BYTES} bytes"
                    break
        except SseTooLong as why:
            how, message = "too_large", str(why)
        except TimeoutError:
            how = "deadline" if self._now() >= sock.deadline_s else "idle"
            message = f"silent until the {how} limit, {self._now() - sent:.1f} s after the request"
        except http.client.IncompleteRead:
            how, message = "unclean", "the connection closed inside a chunk"
        except _BROKEN as why:
            how, message = "reset", _reason(why)
        if how == "eof" and not assembler.done:
            _feed(assembler, decoder.end(), sock.read_at_s - sent)
        answer = assembler.end("done" if assembler.done else how, max(sock.read_at_s, sent) - sent, message)
        return replace(answer, notes=(*answer.notes, "invalid_utf8")) if decoder.replaced else answer


def endpoint(base_url: str) -> SplitResult:
    """Raises ValueError, also for a port that is no number."""
    url = urlsplit(base_url)
    if url.scheme != "http" or not url.hostname or url.port == 0:
        raise ValueError("only http://HOST:PORT is spoken here")
    return url


def header_safe(api_key: str | None) -> str | None:
    """Raises ValueError without repeating the key."""
    if api_key and not (api_key.isascii() and api_key.isprintable()):
        raise ValueError("the API key holds characters that no header can carry")
    return api_key


def _feed(assembler: StreamAssembler, events: list[SseEvent], at_s: float) -> None:
    for event in events:
        if not assembler.done:
            assembler.event(event, at_s)


def _no_answer(why: Exception) -> ChatAnswer:
    """No status line came: closed, reset, silent, or something that is not HTTP."""
    if isinstance(why, TimeoutError):
        return ChatAnswer(
            None, error="timeout", error_code="deadline", error_message="no answer before the deadline"
        )
    if isinstance(why, OSError):
        message = f"closed without an answer: {_reason(why)}"
        return ChatAnswer(None, error="unreachable", error_code="reset", error_message=message)
    return ChatAnswer(
        None, error="malformed", error_code="not_http", error_message=f"no HTTP answer: {_reason(why)}"
    )


def cut(status: int, code: str, message: str, partial: bytes = b"") -> ChatAnswer:
    """A message that broke off; `partial` is what came of it."""
    excerpt = partial[:KEPT_RAW].decode(errors="replace")
    return ChatAnswer(status, error="truncated", error_code=code, error_message=message, raw_excerpt=excerpt)


def _reason(why: Exception) -> str:
    text = why.strerror if isinstance(why, OSError) and why.strerror else str(why)
    return text or type(why).__name__
