"""The Responses route: its object and its events, read into the same ChatAnswer as a chat completion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anvil_tui.core.chat_errors import ServerError, server_error
from anvil_tui.core.chat_stream import StreamAssembler
from anvil_tui.core.sse import SseEvent

_REASONING = ("response.reasoning_text.delta", "response.reasoning_summary_text.delta", "response.reasoning.delta")
_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
_LENGTH = ("max_output_tokens", "max_tokens")


def chat_shaped(response: Mapping[str, Any]) -> dict[str, Any]:
    """A response object in the form of a chat completion; finish reason `stop` stands for status completed.

    Raises TypeError for what is no response object, ValueError for a failed one.
    """
    status, output = response.get("status"), response.get("output")
    if not isinstance(status, str) or not isinstance(output, list):
        raise TypeError("no response object: status or output is missing")
    if status == "failed":
        raise ValueError("status is failed")
    items = [item for item in output if isinstance(item, Mapping)]
    calls = [
        {"id": i.get("call_id"), "function": {"name": i.get("name"), "arguments": i.get("arguments")}}
        for i in items
        if i.get("type") == "function_call"
    ]
    message = {"content": _parts(items, "message"), "reasoning": _parts(items, "reasoning"), "tool_calls": calls}
    return {
        "model": response.get("model"),
        "choices": [{"message": message, "finish_reason": _finish(response, status, bool(calls))}],
        "usage": _usage(response.get("usage")),
    }


def _parts(items: list[Mapping[str, Any]], kind: str) -> str:
    """The text of all items of a kind; a reasoning item has it as content, or only as a summary."""
    texts = []
    for item in (i for i in items if i.get("type") == kind):
        parts = item.get("content") or item.get("summary") or []
        texts += [p.get("text") for p in parts if isinstance(p, Mapping)]
    return "".join(t for t in texts if isinstance(t, str))


def _finish(response: Mapping[str, Any], status: str, called: bool) -> str:
    if status == "completed":
        return "tool_calls" if called else "stop"
    details = response.get("incomplete_details")
    why = details.get("reason") if isinstance(details, Mapping) else None
    return "length" if why in _LENGTH else str(why or status)


def _usage(usage: Any) -> dict[str, Any] | None:
    if not isinstance(usage, Mapping):
        return None
    return {
        "prompt_tokens": usage.get("input_tokens"),
        "completion_tokens": usage.get("output_tokens"),
        "prompt_tokens_details": usage.get("input_tokens_details"),
        "completion_tokens_details": usage.get("output_tokens_details"),
    }


@dataclass(slots=True)
class ResponsesAssembler(StreamAssembler):
    """Ends with the event that bears the whole response; this route has no [DONE].

    Notes: `event_name_differs` (from the type in its data), `sequence_out_of_order`,
    `text_differs_from_deltas` (the whole response holds another text than was streamed).
    """

    _sequence: int = -1

    def _chunk(self, chunk: Mapping[str, Any], at_s: float, event: SseEvent) -> None:
        kind, delta = chunk.get("type"), chunk.get("delta")
        self._envelope(chunk, event)
        if kind == "error":
            self._fail("stream_error", server_error(chunk))
        elif kind in _ENDS:
            self._whole(chunk.get("response"), at_s, event)
        elif kind == "response.output_text.delta":
            self._delta({"content": delta}, at_s, event)
        elif kind in _REASONING:
            self._delta({"reasoning": delta}, at_s, event)

    def _envelope(self, chunk: Mapping[str, Any], event: SseEvent) -> None:
        if event.name != chunk.get("type"):
            self._note("event_name_differs")
        number = chunk.get("sequence_number")
        if isinstance(number, int):
            if number <= self._sequence:
                self._note("sequence_out_of_order")
            self._sequence = number

    def _delta(self, delta: Mapping[str, Any], at_s: float, event: SseEvent) -> None:
        StreamAssembler._chunk(self, {"choices": [{"delta": delta}]}, at_s, event)

    def _whole(self, response: Any, at_s: float, event: SseEvent) -> None:
        if not isinstance(response, Mapping):
            return self._break(f"the last event, at byte {event.offset}, holds no response")
        try:
            shaped = chat_shaped(response)
        except (TypeError, ValueError) as why:
            error = response.get("error")
            found = (
                server_error(error) if isinstance(error, Mapping | str) and error else ServerError(str(why), "")
            )
            return self._fail("stream_error", found)
        (choice,) = shaped["choices"]
        message = choice["message"]
        if message["content"] != "".join(self.content):
            self._note("text_differs_from_deltas")
        calls = [{**call, "index": n} for n, call in enumerate(message["tool_calls"])]
        last = {"delta": {"tool_calls": calls} if calls else {}, "finish_reason": choice["finish_reason"]}
        StreamAssembler._chunk(self, {**shaped, "choices": [last]}, at_s, event)
        self.done = True
