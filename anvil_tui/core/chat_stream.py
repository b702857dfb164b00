"""From the events of a stream, or the body of a message, to one ChatAnswer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from anvil_tui.core.chat import ChatAnswer
from anvil_tui.core.chat_errors import ServerError, error_object, http_error, server_error
from anvil_tui.core.sse import SseEvent
from anvil_tui.core.tool_calls import ToolCallJoiner, decoded, whole_calls

KEPT_RAW = 2048


@dataclass(slots=True)
class _Usage:
    """Running totals: the last one counts, and never an addition of them."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    reasoning: int | None = None
    final: bool = False
    fell: bool = False

    def take(self, chunk: Mapping[str, Any], *, final: bool) -> None:
        usage = chunk.get("usage")
        if isinstance(usage, Mapping):
            self._totals(usage, final)
        timings = chunk.get("timings")
        if self.cached is None and isinstance(timings, Mapping):
            self.cached = _count(timings.get("cache_n"))

    def _totals(self, usage: Mapping[str, Any], final: bool) -> None:
        prompt, completion = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
        if completion is not None:
            self.fell = self.fell or completion < (self.completion or 0)
            self.completion, self.final = max(completion, self.completion or 0), final
        self.prompt = self.prompt if prompt is None else prompt
        details = usage.get("prompt_tokens_details")
        cached = _count(details.get("cached_tokens")) if isinstance(details, Mapping) else None
        self.cached = self.cached if cached is None else cached
        details = usage.get("completion_tokens_details")
        own = details.get("reasoning_tokens") if isinstance(details, Mapping) else None
        reasoning = _count(usage.get("reasoning_tokens") if own is None else own)
        self.reasoning = self.reasoning if reasoning is None else reasoning

    def notes(self) -> list[str]:
        partial = self.completion is not None and not self.final
        return ["usage_inconsistent"] * self.fell + ["usage_from_running_total"] * partial


@dataclass(slots=True)
class StreamAssembler:
    """Takes events with the second at which their bytes were read; `end` says what became of the stream.

    All seconds count from the last byte of the request.
    """

    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    done: bool = False
    _tools: ToolCallJoiner = field(default_factory=ToolCallJoiner)
    _usage: _Usage = field(default_factory=_Usage)
    _finish: str | None = None
    _model: str | None = None
    _error: tuple[str, ServerError] | None = None
    _notes: list[str] = field(default_factory=list)
    _times: list[float] = field(default_factory=list)
    _visible: float | None = None
    _first_tokens: int | None = None
    _raw: str = ""

    def event(self, event: SseEvent, at_s: float) -> None:
        """Take one event; `done` becomes True when nothing after it can matter."""
        self._raw = f"{self._raw}{event.data}\n"[-KEPT_RAW:]
        if event.data.strip() == "[DONE]":
            self.done = True
            return
        try:
            chunk = decoded(event.data)
        except ValueError as why:
            return self._break(f"broken JSON in the event at byte {event.offset}: {why}")
        found = error_object(chunk) or (chunk if event.is_error else None)
        if found is not None:
            self._fail("stream_error", server_error(found))
        elif isinstance(chunk, Mapping):
            self._chunk(chunk, at_s, event)
        else:
            self._break(f"the event at byte {event.offset} is no JSON object")

    def _chunk(self, chunk: Mapping[str, Any], at_s: float, event: SseEvent) -> None:
        self._model = self._model or (chunk.get("model") if isinstance(chunk.get("model"), str) else None)
        choices = chunk.get("choices")
        if choices is not None and not isinstance(choices, list):
            return self._break(f"choices is no list in the event at byte {event.offset}")
        if choices is None and "usage" in chunk:
            self._note("usage_without_choices")
        bore = False
        for choice in choices or []:
            if isinstance(choice, Mapping) and (choice.get("index") or 0) == 0:
                bore = self._choice(choice, at_s) or bore
            else:
                self._note("extra_choice")
        if bore:
            self._times.append(at_s)
            self._usage.final = False
        self._usage.take(chunk, final=not bore or self._finish is not None)
        if bore and at_s == self._times[0]:
            self._first_tokens = self._usage.completion

    def _choice(self, choice: Mapping[str, Any], at_s: float) -> bool:
        delta = choice.get("delta")
        delta = delta if isinstance(delta, Mapping) else {}
        content, reasoning = _text(delta.get("content")), reasoning_of(delta)
        tools = delta.get("tool_calls")
        called = self._tools.add(tools) if isinstance(tools, list) else False
        self.content.append(content)
        self.reasoning.append(reasoning)
        if (content or called) and self._visible is None:
            self._visible = at_s
        finish = choice.get("finish_reason")
        self._finish = finish if isinstance(finish, str) and finish else self._finish
        return bool(content or reasoning or called)

    def _break(self, message: str) -> None:
        self._fail("malformed", ServerError(message, "protocol_error"))

    def _fail(self, error: str, found: ServerError) -> None:
        self._error = self._error or (error, found)
        self.done = True

    def _note(self, note: str) -> None:
        if note not in self._notes:
            self._notes.append(note)

    def end(self, how: str, at_s: float, message: str = "") -> ChatAnswer:
        """The answer. `how` is `done`, `eof`, `unclean`, `reset`, `idle`, `deadline` or `too_large`."""
        if self._error is None:
            self._error = self._ending(how, message)
        error, found = self._error or (None, ServerError("", ""))
        calls = self._tools.calls()
        return ChatAnswer(
            status=200,
            content="".join(self.content),
            reasoning="".join(self.reasoning),
            tool_calls=calls,
            finish_reason=self._finish,
            model=self._model,
            prompt_tokens=self._usage.prompt,
            completion_tokens=self._usage.completion,
            cached_tokens=self._usage.cached,
            reasoning_tokens=self._usage.reasoning,
            ttft_any_s=self._times[0] if self._times else None,
            ttft_visible_s=self._visible,
            e2e_s=self._times[-1] if self._times else None,
            token_times_s=tuple(self._times),
            error=error,
            error_message=found.message,
            error_code=found.code,
            overflow=found.overflow,
            notes=tuple(self._notes + self._tools.notes + self._usage.notes()),
            raw_excerpt=self._raw,
            end_s=at_s,
            first_tokens=self._first_tokens,
        )

    def _ending(self, how: str, message: str) -> tuple[str, ServerError] | None:
        """None for a complete answer: the end marker came, or the engine said why it finished."""
        if how == "done":
            return None
        if how == "too_large":
            return "malformed", ServerError(message, how)
        if self._finish is not None:
            self._note("no_done_marker")
            if how != "eof":
                self._note(f"closed_by_{how}")
            return None
        if how in ("idle", "deadline"):
            return "timeout", ServerError(message, how)
        return "truncated", ServerError(message or "the stream ended before a finish reason", how)


def message_answer(
    status: int,
    content_type: str,
    body: bytes,
    sent_bytes: int,
    at_s: float,
    shape: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
) -> ChatAnswer:
    """The answer to a request that was not streamed, whatever the status; `at_s` is its last byte.

    `shape` makes a chat completion of another route's object.
    """
    raw = body[:KEPT_RAW].decode(errors="replace")
    if status != 200:
        error = http_error(status, content_type, body, sent_bytes)
        return _refused(status, "http", error, raw, at_s)
    try:
        value = shape(decoded(body))
        choice = value["choices"][0]
        message = choice["message"]
        if not isinstance(message, Mapping):
            raise TypeError("message is no object")
    except (ValueError, LookupError, TypeError) as why:
        return _not_an_answer(body, content_type, sent_bytes, raw, at_s, why)
    return _completion(value, choice, message, raw, at_s)


def _completion(
    value: Mapping[str, Any], choice: Mapping[str, Any], message: Mapping[str, Any], raw: str, at_s: float
) -> ChatAnswer:
    usage = _Usage()
    usage.take(value, final=True)
    calls, notes = whole_calls(message.get("tool_calls"))
    finish = choice.get("finish_reason")
    return ChatAnswer(
        status=200,
        content=_text(message.get("content")),
        reasoning=reasoning_of(message),
        tool_calls=calls,
        finish_reason=finish if isinstance(finish, str) else None,
        model=_text(value.get("model")) or None,
        prompt_tokens=usage.prompt,
        completion_tokens=usage.completion,
        cached_tokens=usage.cached,
        reasoning_tokens=usage.reasoning,
        e2e_s=at_s,
        notes=notes,
        raw_excerpt=raw,
        end_s=at_s,
    )


def _not_an_answer(
    body: bytes, content_type: str, sent_bytes: int, raw: str, at_s: float, why: Exception
) -> ChatAnswer:
    """A 200 that holds an error, or no chat completion at all."""
    try:
        found = error_object(decoded(body))
    except ValueError:
        found = None
    if found is not None:
        return _refused(200, "stream_error", server_error(found), raw, at_s)
    text = f"200 without a chat completion ({type(why).__name__}: {why}); {content_type or 'no content type'}"
    return _refused(200, "malformed", ServerError(text, "protocol_error"), raw, at_s)


def _refused(status: int, error: str, found: ServerError, raw: str, at_s: float) -> ChatAnswer:
    return ChatAnswer(
        status=status, error=error, error_message=found.message, error_code=found.code, overflow=found.overflow,
        raw_excerpt=raw, end_s=at_s,
    )  # fmt: skip


def reasoning_of(message: Mapping[str, Any]) -> str:
    """The reasoning channel under either name; vLLM 0.11 to 0.14 send the same text under both."""
    return _text(message.get("reasoning")) or _text(message.get("reasoning_content"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
