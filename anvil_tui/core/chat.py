"""Chat completions as values: what is asked, what came back, and the rates that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call as the stream or message gave it; `arguments` is the raw text."""

    index: int
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One completion. `model` is the name sent; `extra` holds engine-specific top-level fields.

    `route` responses goes to /v1/responses, which has other field names and knows neither tools here nor formats.
    """

    model: str
    messages: tuple[Mapping[str, Any], ...]
    max_tokens: int
    stream: bool = False
    temperature: float | None = 0.0
    seed: int | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: Any = None
    response_format: Mapping[str, Any] | None = None
    stop: tuple[str, ...] = ()
    route: Literal["chat", "responses"] = "chat"
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """What came back, normalised over engines. Times are seconds after the last byte of the request was written.

    `error` is None for a complete answer; else its class: `unreachable`, `timeout`, `http`, `truncated`,
    `stream_error`, `malformed`. `finish_reason` None means the stream never said. `token_times_s` stamps
    every chunk that bore content, reasoning or a tool call; `e2e_s` is the last of them (of a whole message: its
    last byte), `end_s` the end marker or the close. `first_tokens` is what usage said had come by the first of
    them, where the server says so on every chunk. `client_queue_s` is what passed between the decision to send
    and the last byte written, outside every other time. `error_code` is our word where we know one
    (`context_overflow`, `payload_too_large`, `unauthorized`, `eof`, `reset`, `idle`, `deadline`), else the
    server's own. `overflow` is (asked, allowed) tokens of a refused prompt. `notes` name conformance oddities.
    """

    status: int | None
    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    model: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    ttft_any_s: float | None = None
    ttft_visible_s: float | None = None
    e2e_s: float | None = None
    token_times_s: tuple[float, ...] = ()
    error: str | None = None
    error_message: str = ""
    error_code: str = ""
    notes: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    raw_excerpt: str = ""
    end_s: float | None = None
    client_queue_s: float | None = None
    overflow: tuple[int, int] | None = None
    first_tokens: int | None = None


FORCED_LENGTH: Mapping[str, Any] = {"ignore_eos": True}
"""For `ChatRequest.extra`: the model may not end before its limit. It stands alone: older vLLM refuses min_tokens
beside speculative decoding."""
RUNNING_USAGE: Mapping[str, Any] = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
"""For `ChatRequest.extra`: usage on every chunk, which tells the tokens of the first. Strict servers refuse it."""


def request_body(request: ChatRequest) -> dict[str, Any]:
    """The JSON object to POST. A token limit is always sent: llama-server's default is unlimited."""
    if request.route == "responses":
        return _responses_body(request)
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [dict(m) for m in request.messages],
        "max_tokens": request.max_tokens,
        "stream": request.stream,
    }
    optional = {
        "temperature": request.temperature,
        "seed": request.seed,
        "tools": [dict(t) for t in request.tools] or None,
        "tool_choice": request.tool_choice,
        "response_format": request.response_format,
        "stop": list(request.stop) or None,
        "stream_options": {"include_usage": True} if request.stream else None,
    }
    return body | {k: v for k, v in optional.items() if v is not None} | dict(request.extra)


def _responses_body(request: ChatRequest) -> dict[str, Any]:
    """Only fields that this route has; SGLang refuses those of the chat route. Nothing is stored on the server."""
    body = {
        "model": request.model,
        "input": [dict(m) for m in request.messages],
        "max_output_tokens": request.max_tokens,
        "stream": request.stream,
        "store": False,
    }
    temperature = {} if request.temperature is None else {"temperature": request.temperature}
    return body | temperature | dict(request.extra)


def _decode_window(answer: ChatAnswer) -> tuple[int, float] | None:
    """(tokens N, seconds T from the first to the last token-bearing chunk); None = no rate."""
    times, tokens = answer.token_times_s, answer.completion_tokens
    if answer.error or not tokens or len(times) < 2 or "usage_inconsistent" in answer.notes:
        return None
    seconds = times[-1] - times[0]
    return (tokens, seconds) if seconds > 0 else None


def decode_tok_s(answer: ChatAnswer) -> float | None:
    """Tokens after the first chunk per second: (N - `first_tokens`)/T where that is known, else N(1-1/C)/T.

    C chunks that came in one read with the first count as the first. None, never 0 or infinite, without usage, for
    one chunk, for an incomplete answer.
    """
    window, times = _decode_window(answer), answer.token_times_s
    if window is None:
        return None
    tokens, seconds = window
    first = answer.first_tokens
    if first is None or not 0 < first < tokens:
        first_share = times.count(times[0]) / len(times)
        return tokens * (1 - first_share) / seconds
    return (tokens - first) / seconds


def decode_seeds_tok_s(answer: ChatAnswer) -> float | None:
    """The seeds' (N-1)/T, for comparison with published figures; too high when chunks hold several tokens."""
    window = _decode_window(answer)
    return None if window is None else (window[0] - 1) / window[1]
