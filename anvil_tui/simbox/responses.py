"""The Responses route: its request read as a chat, its object and its events; manners are the dialect's."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from anvil_tui.simbox.chat import Job, generate, text_in
from anvil_tui.simbox.http import Cut, Reply, json_reply

if TYPE_CHECKING:
    from anvil_tui.simbox.engine import Engine

Tokens = list[tuple[str, str]]

CHAT_ONLY = ("messages", "max_tokens", "max_completion_tokens", "chat_template_kwargs", "response_format",
             "reasoning_effort", "stream_options", "separate_reasoning")  # fmt: skip


def as_chat(body: Mapping[str, Any]) -> dict[str, Any]:
    """The chat request that asks the same. Raises ValueError for an input that is neither text nor messages."""
    given = body.get("input")
    messages = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        raise ValueError("input: a text or a non-empty list is required")
    asked: dict[str, Any] = {
        "model": body.get("model"),
        "messages": [{"role": m.get("role", "user"), "content": _content(m)} for m in messages],
        "stream": bool(body.get("stream")),
    }
    if isinstance(body.get("max_output_tokens"), int):
        asked["max_tokens"] = body["max_output_tokens"]
    effort = (body.get("reasoning") or {}).get("effort")
    return asked | ({"reasoning_effort": effort} if effort else {})


def _content(message: Mapping[str, Any]) -> Any:
    content = message.get("content")
    if not isinstance(content, list):
        return content
    return "\n".join(str(p.get("text", "")) for p in content if isinstance(p, dict))


async def complete(engine: Engine, job: Job) -> Reply:
    if job.stream:
        return Reply(200, kind="text/event-stream; charset=utf-8", stream=_stream(engine, job))
    made: Tokens = []
    async with aclosing(generate(engine, job)) as groups:
        async for group in groups:
            made += group
    if "stream_error" in engine.faults:
        return engine.dialect.error(500, "EngineCore encountered an issue.", "InternalServerError")
    return json_reply(200, _object(engine, job, made))


def _object(engine: Engine, job: Job, made: Tokens) -> dict[str, Any]:
    cut = job.finish(made) == "length" and engine.dialect.tells_incomplete
    return {
        "id": _id(job, "resp"),
        "object": "response",
        "created_at": job.created,
        "model": job.model,
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": [_item(job, c, text) for c in ("reasoning", "content") if (text := text_in(made, c))],
        "usage": {
            "input_tokens": job.prompt_tokens,
            "output_tokens": len(made),
            "total_tokens": job.prompt_tokens + len(made),
            "input_tokens_details": {"cached_tokens": job.cached},
            "output_tokens_details": {"reasoning_tokens": sum(c == "reasoning" for c, _ in made)},
        },
    }  # fmt: skip


def _id(job: Job, kind: str) -> str:
    return f"{kind}_{job.id[9:]}"


def _item(job: Job, channel: str, text: str) -> dict[str, Any]:
    if channel == "reasoning":
        part: dict[str, Any] = {"type": "reasoning_text", "text": text}
        return {"type": "reasoning", "id": _id(job, "rs"), "summary": [], "content": [part], "status": None}
    part = {"type": "output_text", "text": text, "annotations": []}
    return {
        "type": "message", "id": _id(job, "msg"), "role": "assistant", "status": "completed", "content": [part]
    }  # fmt: skip


async def _stream(engine: Engine, job: Job) -> AsyncGenerator[bytes, None]:
    """Created, one item a channel with its deltas, the whole response; no end mark follows."""
    say, made, open_channel = _Events(engine.dialect.numbers_events), Tokens(), ""
    begun = {"id": _id(job, "resp"), "object": "response", "status": "in_progress"}
    yield say("response.created", response=begun)
    yield say("response.in_progress", response=begun)
    async with aclosing(generate(engine, job)) as groups:
        async for group in groups:
            for channel, text in group:
                if channel != open_channel:
                    if open_channel:
                        yield _closed(say, job, open_channel, made)
                    yield say(
                        "response.output_item.added", item={**_item(job, channel, ""), "status": "in_progress"}
                    )
                    open_channel = channel
                kind = "reasoning_text" if channel == "reasoning" else "output_text"
                yield say(f"response.{kind}.delta", item_id=_item(job, channel, "")["id"], delta=text)
                made.append((channel, text))
            if "stream_cut" in engine.faults:
                raise Cut("fault: the stream ends here")
            if "stream_error" in engine.faults:
                yield say("error", message="EngineCore encountered an issue.", code="server_error")
                return
    if open_channel:
        yield _closed(say, job, open_channel, made)
    whole = _object(engine, job, made)
    yield say(f"response.{whole['status']}", response=whole)


def _closed(say: _Events, job: Job, channel: str, made: Tokens) -> bytes:
    kind, text = "reasoning_text" if channel == "reasoning" else "output_text", text_in(made, channel)
    item = _item(job, channel, text)
    done = say(f"response.{kind}.done", item_id=item["id"], text=text)
    return done + say("response.output_item.done", item=item)


class _Events:
    """Named events, numbered where the engine numbers them."""

    def __init__(self, numbered: bool) -> None:
        self._next = 0 if numbered else None

    def __call__(self, kind: str, **data: Any) -> bytes:
        body: dict[str, Any] = {"type": kind, **data}
        if self._next is not None:
            body["sequence_number"] = self._next
            self._next += 1
        return f"event: {kind}\ndata: {json.dumps(body)}\n\n".encode()
