"""What every dialect has, and the parts that they share."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from anvil_tui.simbox import responses, tokens, vision
from anvil_tui.simbox.chat import Job, complete, read_job
from anvil_tui.simbox.engine import Engine
from anvil_tui.simbox.http import Reply, Request, json_reply
from anvil_tui.simbox.metrics import KIND
from anvil_tui.simbox.profile import Profile

Route = Callable[[Engine, Request], Awaitable[Reply]]


class Dialect(ABC):
    """One engine's manners. Holds no state: that is the engine's."""

    process_name = "engine"
    answers_early = False
    reasoning_key = "reasoning_content"
    owner = "engine"
    knows_min_tokens = True
    stop_key = ""
    tells_incomplete = True
    numbers_events = True

    # life

    @abstractmethod
    async def load(self, engine: Engine) -> None:
        """Log, memory and time of a start, until just before the engine is ready."""

    @abstractmethod
    def on_signal(self, engine: Engine, name: str) -> None: ...

    def out_of_memory(self, mib: float, free: float) -> str:
        """The last words of an engine that asks a card for more than it has."""
        return (
            f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {mib / 1024:.2f} GiB. "
            f"GPU 0 has a total capacity of 94.97 GiB of which {free / 1024:.2f} GiB is free."
        )

    @abstractmethod
    def port_taken(self, profile: Profile) -> tuple[str, ...]:
        """Last words when the port is somebody else's."""

    # HTTP

    @abstractmethod
    def routes(self) -> Mapping[tuple[str, str], Route]: ...

    @abstractmethod
    def protected(self, path: str) -> bool:
        """Whether a path needs the API key."""

    @abstractmethod
    def unauthorized(self) -> Reply: ...

    @abstractmethod
    def error_body(self, status: int, message: str, kind: str) -> dict[str, Any]: ...

    async def handle(self, engine: Engine, request: Request) -> Reply:
        if engine.phase == "loading":
            return self.loading()
        if self.protected(request.path) and not self._admitted(engine, request):
            return self.unauthorized()
        route = self.routes().get((request.method, request.path))
        if route is None:
            return self.not_found(request)
        return await route(engine, request)

    def loading(self) -> Reply:
        return self.error(503, "Loading model", "unavailable_error")

    def not_found(self, request: Request) -> Reply:
        return json_reply(404, {"detail": "Not Found"})

    def error(self, status: int, message: str, kind: str) -> Reply:
        return json_reply(status, self.error_body(status, message, kind))

    def _admitted(self, engine: Engine, request: Request) -> bool:
        if "unauthorized" in engine.faults:
            return False
        keys = engine.profile.api_keys
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        return not keys or given in keys or request.headers.get("x-api-key", "") in keys

    # shared routes

    async def models(self, engine: Engine, request: Request) -> Reply:
        return json_reply(200, {"object": "list", "data": [self.card(engine, name) for name in engine.served]})

    @abstractmethod
    def card(self, engine: Engine, name: str) -> dict[str, Any]:
        """One entry of the model list."""

    async def metrics(self, engine: Engine, request: Request) -> Reply:
        spoilt = engine.faults.get("metrics", {}).get("mode", "")
        if spoilt == "error":
            return self.error(500, "Internal Server Error", "InternalServerError")
        if spoilt == "off" or not engine.profile.metrics:
            return self.metrics_off()
        text = self.page(engine)
        if spoilt == "bad":
            text = _spoil(text)
        return Reply(200, text.encode(), KIND)

    def metrics_off(self) -> Reply:
        return json_reply(404, {"detail": "Not Found"})

    @abstractmethod
    def page(self, engine: Engine) -> str:
        """The metrics text."""

    async def tokenize(self, engine: Engine, request: Request) -> Reply:
        body = request.json() or {}
        if "messages" in body:
            number = tokens.count_prompt(body["messages"], body.get("tools"))
        else:
            number = tokens.count(str(body.get("prompt", body.get("content", ""))))
        return json_reply(200, {"count": number, "max_model_len": engine.context, "tokens": list(range(number))})

    async def chat(self, engine: Engine, request: Request) -> Reply:
        try:
            body = request.json()
        except ValueError as why:
            return self.error(400, f"Invalid JSON: {why}", "BadRequestError")
        if not isinstance(body, dict) or not isinstance(body.get("messages"), list) or not body["messages"]:
            return self.error(400, "messages: a non-empty list is required", "BadRequestError")
        refusal = self.refuse(engine, body) or self._too_much_media(engine, body)
        if refusal is not None:
            return refusal
        job = read_job(engine, body)
        return self._admit(engine, job) or await complete(engine, job)

    def _admit(self, engine: Engine, job: Job) -> Reply | None:
        """The refusal of a prompt that does not fit; with the fault it is cut to what fits instead."""
        refused = self.too_long(engine, job)
        if refused is not None and "truncates" in engine.faults:
            job.budget = min(job.budget, engine.context // 2)
            job.prompt_tokens = engine.context - job.budget
            return None
        return refused

    async def responses(self, engine: Engine, request: Request) -> Reply:
        if "no_responses" in engine.faults:
            return self.not_found(request)
        try:
            body = request.json()
            if not isinstance(body, dict):
                raise ValueError("an object is required")
            asked = responses.as_chat(body)
        except ValueError as why:
            return self.error(400, f"Invalid request: {why}", "BadRequestError")
        refusal = self.refuse_response(engine, body) or self.refuse(engine, asked)
        if refusal is not None:
            return refusal
        job = read_job(engine, asked)
        return self._admit(engine, job) or await responses.complete(engine, job)

    def refuse_response(self, engine: Engine, body: Mapping[str, Any]) -> Reply | None:
        """A refusal of fields that this engine's Responses route does not have."""
        return None

    def refuse(self, engine: Engine, body: Mapping[str, Any]) -> Reply | None:
        """An answer that needs no generation: unknown model, unsupported field."""
        return None

    def _too_much_media(self, engine: Engine, body: Mapping[str, Any]) -> Reply | None:
        above = vision.over(body["messages"], engine.profile.media)
        return None if above is None or "media_unlimited" in engine.faults else self.media_refused(engine, *above)

    @abstractmethod
    def media_refused(self, engine: Engine, medium: str, sent: int, allowed: int) -> Reply:
        """More images or videos than the engine was told to take."""

    @abstractmethod
    def too_long(self, engine: Engine, job: Job) -> Reply | None: ...

    # shapes of a completion

    @abstractmethod
    def message(self, job: Job, content: str, reasoning: str, calls: list[dict[str, Any]]) -> dict[str, Any]: ...

    def choice(self, message: Mapping[str, Any], finish: str) -> dict[str, Any]:
        return {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}

    def stopped(self, job: Job, finish: str, choice: dict[str, Any]) -> dict[str, Any]:
        """The last choice, with the stop sequence where the engine tells it."""
        told = {self.stop_key: job.stopped_by} if self.stop_key and finish == "stop" and job.stopped_by else {}
        return {**choice, **told}

    def first_delta(self) -> dict[str, Any]:
        return {"role": "assistant", "content": ""}

    def delta(self, channel: str, text: str) -> dict[str, Any]:
        return {"content" if channel == "content" else self.reasoning_key: text}

    def tool_delta(self, index: int, call_id: str, name: str, fragment: str, first: bool) -> dict[str, Any]:
        if first:
            return {
                "index": index,
                "id": call_id,
                "type": "function",
                "function": {"name": name, "arguments": fragment},
            }
        return {"index": index, "function": {"arguments": fragment}}

    def stream_choice(self, delta: Mapping[str, Any], finish: str | None) -> dict[str, Any]:
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}

    def usage(self, job: Job, made: int, reasoned: int) -> dict[str, Any]:
        return {
            "prompt_tokens": job.prompt_tokens,
            "total_tokens": job.prompt_tokens + made,
            "completion_tokens": made,
            **self.prompt_details(job),
        }

    def prompt_details(self, job: Job) -> dict[str, Any]:
        """How much of the prompt was cached, where the engine was told to tell it: only what is more than none."""
        return {"prompt_tokens_details": {"cached_tokens": job.cached}} if job.tells_cached and job.cached else {}

    def extras(self, engine: Engine, job: Job, made: int) -> dict[str, Any]:
        """Fields beside `usage` on the last chunk or the whole reply."""
        return {}

    @abstractmethod
    def after(self, engine: Engine, job: Job, made: int) -> None:
        """What the engine logs about a finished request."""


def unix_now() -> int:
    return int(time.time())


def shards_line(n: int, of: int, each_s: float) -> str:
    """The loader's progress line, as vLLM and SGLang both print it."""
    done, left = int(each_s * n), int(each_s * (of - n))
    return (
        f"Loading safetensors checkpoint shards: {100 * n // of:3d}% Completed | {n}/{of} "
        f"[{done // 60:02d}:{done % 60:02d}<{left // 60:02d}:{left % 60:02d},  {each_s:.2f}s/it]"
    )


def _spoil(text: str) -> str:
    """An empty value, a NaN, and no final newline: one broken exporter."""
    lines = [line for line in text.splitlines() if line]
    for at, line in enumerate(lines):
        if "num_requests_waiting" in line or "num_queue_reqs" in line or "requests_deferred" in line:
            lines[at] = line.rsplit(" ", 1)[0] + " " if not line.startswith("#") else line
        elif ("kv_cache_usage_perc" in line or "token_usage" in line) and not line.startswith("#"):
            lines[at] = line.rsplit(" ", 1)[0] + " NaN"
    return "\n".join(lines)
