"""A chat completion from request to last byte: answer, budget, pacing, faults; shapes are the dialect's."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from anvil_tui.simbox import spoil, tokens, vision
from anvil_tui.simbox.answer import Answer, answer, reason
from anvil_tui.simbox.http import Cut, Reply, json_reply

if TYPE_CHECKING:
    from anvil_tui.simbox.engine import Engine

FILLER = " and so it goes on"  # what a model says that may not stop
LONG_PROMPT_TOKENS = 4096  # warm-up covers shorter prompts; kernels for longer ones come with the first of them
CHUNK_WALL_S = 0.004  # shorter than this between chunks, an event loop cannot pace


@dataclass(slots=True)
class Job:
    """One request, read. `floor` to `budget` completion tokens are made; `body` is what the client sent.

    `cached` becomes known with its prefill; `stopped_by` is the stop sequence that ended the answer.
    """

    id: str
    model: str
    body: Mapping[str, Any]
    prompt_tokens: int
    budget: int
    asked_tokens: int | None
    images: int
    answer: Answer
    created: int
    stream: bool
    include_usage: bool
    floor: int = 0
    cached: int = 0
    tells_cached: bool = False
    stopped_by: str = ""

    @property
    def tokens(self) -> list[tuple[str, str]]:
        """Completion tokens within the budget as (channel, text). Channels: reasoning, content, or `call N`."""
        made = [("reasoning", t) for t in tokens.pieces(self.answer.reasoning)]
        made += [("content", t) for t in tokens.pieces(self.answer.content)]
        for n, call in enumerate(self.answer.calls):
            made += [(f"call {n}", t) for t in tokens.pieces(call.arguments)]
        made += [("content", t) for t in islice(cycle(tokens.pieces(FILLER)), max(0, self.floor - len(made)))]
        return made[: self.budget]

    def finish(self, made: list[tuple[str, str]]) -> str:
        whole = len(tokens.pieces(self.answer.reasoning)) + len(tokens.pieces(self.answer.content))
        whole += sum(len(tokens.pieces(c.arguments)) for c in self.answer.calls)
        if len(made) < whole or len(made) == self.floor == self.budget:
            return "length"
        return "tool_calls" if self.answer.calls else "stop"


def read_job(engine: Engine, body: Mapping[str, Any]) -> Job:
    """Tokens, budget and answer of one request."""
    sent, tools = body["messages"], body.get("tools") or ()
    engine.requests += 1
    messages, counted = _pictures(engine, sent)
    prompt = tokens.count_prompt(counted, tools)
    asked = body.get("max_completion_tokens") or body.get("max_tokens") or body.get("n_predict")
    form = None if "schema_ignored" in engine.faults else body.get("response_format")
    given = answer(messages, tools, body.get("tool_choice"), form)
    if engine.profile.reasoning and _thinks(engine, body):
        given = replace(given, reasoning=reason(given, engine.profile.reasoning_tokens * _effort(body)))
    given, stopped_by = _stopped(spoil.answer(given, engine.faults, body), _stops(engine, body))
    options = body.get("stream_options") or {}
    limited = isinstance(asked, int) and asked > 0 and "limit_ignored" not in engine.faults
    budget = int(asked) if limited and asked else max(1, engine.context - prompt)
    return Job(
        id=f"chatcmpl-{engine.rng.getrandbits(128):032x}",
        model=str(body.get("model") or engine.served[0]),
        body=body,
        prompt_tokens=prompt,
        budget=budget,
        tells_cached=engine.profile.tells_cached,
        floor=_floor(engine, body, budget),
        asked_tokens=asked if isinstance(asked, int) else None,
        images=sum(tokens.images_of(m) for m in messages if isinstance(m, dict)),
        answer=given,
        created=int(time.time()),
        stream=bool(body.get("stream")),
        include_usage=bool(options.get("include_usage")),
        stopped_by=stopped_by,
    )


def _pictures(engine: Engine, sent: list[Any]) -> tuple[list[Any], list[Any]]:
    """(messages that reach the model, messages that are counted): all, but for the fault `image_dropped`."""
    lost = engine.faults.get("image_dropped")
    if lost is None:
        return sent, sent
    mode = lost.get("mode", "all")
    if mode == "uncounted":
        return sent, vision.without(sent, False)
    kept = vision.without(sent, mode == "last")
    return kept, kept


def _stops(engine: Engine, body: Mapping[str, Any]) -> list[str]:
    stop = [] if "stop_ignored" in engine.faults else body.get("stop") or []
    return [stop] if isinstance(stop, str) else [s for s in stop if isinstance(s, str) and s]


def _stopped(given: Answer, stops: list[str]) -> tuple[Answer, str]:
    """The answer cut before the first stop sequence; engines look for it in the reasoning, too."""
    for part in ("reasoning", "content"):
        text = str(getattr(given, part))
        hits = [(at, s) for s in stops if (at := text.find(s)) >= 0]
        if hits:
            at, found = min(hits)
            cut = {"reasoning": text[:at], "content": ""} if part == "reasoning" else {"content": text[:at]}
            return replace(given, calls=(), **cut), found
    return given, ""


def _floor(engine: Engine, body: Mapping[str, Any], budget: int) -> int:
    """The fewest completion tokens that the request asks for."""
    if body.get("ignore_eos") is True:
        return budget
    least = body.get("min_tokens") if engine.dialect.knows_min_tokens else 0
    return min(least, budget) if isinstance(least, int) else 0


def _thinks(engine: Engine, body: Mapping[str, Any]) -> bool:
    wrong = engine.faults.get("thinking_wrong", {}).get("mode", "")
    if wrong in ("always", "never"):
        return wrong == "always"
    options = body.get("chat_template_kwargs") or {}
    off = options.get("enable_thinking") is False or options.get("thinking") is False
    return not off and body.get("reasoning_effort") != "none"


def _effort(body: Mapping[str, Any]) -> int:
    """How much more is reasoned than at low effort."""
    effort = body.get("reasoning_effort") or (body.get("chat_template_kwargs") or {}).get("reasoning_effort")
    return {"medium": 2, "high": 4}.get(str(effort), 1)


async def complete(engine: Engine, job: Job) -> Reply:
    if job.stream:
        return Reply(200, kind="text/event-stream; charset=utf-8", stream=_stream(engine, job))
    made: list[tuple[str, str]] = []
    async with aclosing(generate(engine, job)) as groups:
        async for group in groups:
            made += group
    if "stream_error" in engine.faults:
        return engine.dialect.error(
            500,
            "EngineCore encountered an issue. See stack trace (above) for the root cause.",
            "InternalServerError",
        )
    return json_reply(200, _whole(engine, job, made))


def _whole(engine: Engine, job: Job, made: list[tuple[str, str]]) -> dict[str, Any]:
    d = engine.dialect
    content, reasoning = text_in(made, "content"), text_in(made, "reasoning")
    calls = [
        {
            "id": _call_id(job, n),
            "type": "function",
            "function": {"name": c.name, "arguments": text_in(made, f"call {n}")},
        }
        for n, c in enumerate(job.answer.calls)
    ]
    finish = job.finish(made)
    return {
        "id": job.id,
        "object": "chat.completion",
        "created": job.created,
        "model": job.model,
        "choices": [d.stopped(job, finish, d.choice(d.message(job, content, reasoning, calls), finish))],
        "usage": d.usage(job, len(made), sum(c == "reasoning" for c, _ in made)),
        **d.extras(engine, job, len(made)),
    }


def text_in(made: list[tuple[str, str]], channel: str) -> str:
    return "".join(t for c, t in made if c == channel)


def _call_id(job: Job, n: int) -> str:
    return f"call_{job.id[9:25]}{n}"


@dataclass(slots=True)
class _Sent:
    """What a stream has sent so far."""

    made: list[tuple[str, str]] = field(default_factory=list)
    begun: set[int] = field(default_factory=set)


async def _stream(engine: Engine, job: Job) -> AsyncGenerator[bytes, None]:
    d, sent = engine.dialect, _Sent()
    yield _chunk(job, [d.stream_choice(d.first_delta(), None)])
    async with aclosing(generate(engine, job)) as groups:
        async for group in groups:
            for delta in _deltas(engine, job, group, sent):
                yield _chunk(job, [d.stream_choice(delta, None)])
            sent.made += group
            if "stream_cut" in engine.faults:
                raise Cut("fault: the stream ends here")
            if "stream_error" in engine.faults:
                yield _stream_error(engine)
                return
    used = d.usage(job, len(sent.made), sum(c == "reasoning" for c, _ in sent.made))
    extras = d.extras(engine, job, len(sent.made))
    finish = job.finish(sent.made)
    last = d.stopped(job, finish, d.stream_choice({}, finish))
    yield _chunk(job, [last], {} if job.include_usage else extras)
    if job.include_usage:
        yield _chunk(job, [], {"usage": used, **extras})
    yield b"data: [DONE]\n\n"


def _stream_error(engine: Engine) -> bytes:
    body = engine.dialect.error_body(500, "EngineCore encountered an issue.", "InternalServerError")
    return b"data: " + json.dumps(body if "error" in body else {"error": body}).encode() + b"\n\n"


def _deltas(engine: Engine, job: Job, group: list[tuple[str, str]], sent: _Sent) -> list[dict[str, Any]]:
    """One delta a run of tokens of the same channel."""
    runs: list[tuple[str, str]] = []
    for channel, text in group:
        if runs and runs[-1][0] == channel:
            runs[-1] = (channel, runs[-1][1] + text)
        else:
            runs.append((channel, text))
    return [_delta(engine, job, channel, text, sent) for channel, text in runs]


def _delta(engine: Engine, job: Job, channel: str, text: str, sent: _Sent) -> dict[str, Any]:
    if not channel.startswith("call "):
        return engine.dialect.delta(channel, text)
    n = int(channel[5:])
    first = n not in sent.begun
    sent.begun.add(n)
    return {"tool_calls": [engine.dialect.tool_delta(n, _call_id(job, n), job.answer.calls[n].name, text, first)]}


def _chunk(job: Job, choices: list[dict[str, Any]], more: Mapping[str, Any] | None = None) -> bytes:
    head = {"id": job.id, "object": "chat.completion.chunk", "created": job.created, "model": job.model}
    return b"data: " + json.dumps({**head, "choices": choices, **(more or {})}).encode() + b"\n\n"


@dataclass(slots=True)
class _Run:
    """One request under way: completion tokens made, and KV tokens held while it has a slot."""

    job: Job
    done: int = 0
    held: int = 0


@asynccontextmanager
async def _turn(engine: Engine, run: _Run) -> AsyncGenerator[None, None]:
    """Wait for a scheduler slot and for room in the KV pool; count waiting and running."""
    stats, need = engine.stats, run.job.prompt_tokens + run.done
    stats.waiting += 1
    try:
        async with engine.room:
            await engine.room.wait_for(lambda: _fits(engine, need))
            stats.running += 1
            stats.kv_tokens += need
    finally:
        stats.waiting -= 1
    run.held = need
    engine.busy()
    try:
        yield
    finally:
        stats.running -= 1
        stats.kv_tokens -= run.held
        engine.busy()
        async with engine.room:
            engine.room.notify_all()


def _fits(engine: Engine, need: int) -> bool:
    stats, profile = engine.stats, engine.profile
    if not stats.running:
        return True
    return stats.running < max(1, profile.slots) and stats.kv_tokens + need <= profile.kv_tokens


async def generate(engine: Engine, job: Job) -> AsyncGenerator[list[tuple[str, str]], None]:
    """Groups of tokens at the engine's pace. Counters move with them."""
    stats, pace, made, run = engine.stats, engine.pace, job.tokens, _Run(job)
    begun, first, done = pace.now(), True, False
    try:
        while not done:
            async with _turn(engine, run):
                await _prefill(engine, run)
                if first:
                    first = False
                    stats.ttft.add(pace.now() - begun)
                async with aclosing(_decode(engine, run, made)) as groups:
                    async for group in groups:
                        yield group
                done = run.done >= len(made)
                stats.preempted += not done
        stats.finished["length" if job.finish(made) == "length" else "stop"] += 1
    except (GeneratorExit, asyncio.CancelledError):
        stats.finished["abort"] += 1
        raise
    finally:
        stats.requests += 1
        stats.e2e.add(pace.now() - begun)
        engine.dialect.after(engine, job, run.done)


async def _decode(
    engine: Engine, run: _Run, made: list[tuple[str, str]]
) -> AsyncGenerator[list[tuple[str, str]], None]:
    """Until all is made, or the pool overflows: then the request gives up its place and all it holds."""
    stats, pace = engine.stats, engine.pace
    rate = engine.profile.decode_rate(run.job.prompt_tokens) / (1 + 0.35 * (stats.running - 1))
    size = max(engine.profile.tokens_a_step, math.ceil(rate * pace.scale * CHUNK_WALL_S))
    while run.done < len(made):
        if stats.running > 1 and stats.kv_tokens > engine.profile.kv_tokens:
            return
        group = made[run.done : run.done + size]
        await engine.unwedged.wait()
        await pace.sleep(len(group) / rate)
        _count(engine, len(group), rate)
        run.done += len(group)
        run.held += len(group)
        if run.done >= len(made):
            await pace.sleep(float(engine.faults.get("slow_drain", {}).get("seconds", "0")))
        yield group


async def _prefill(engine: Engine, run: _Run) -> None:
    """Of what the prefix cache does not hold; after a preemption also of what was made before."""
    job, stats = run.job, engine.stats
    if job.images or job.prompt_tokens >= LONG_PROMPT_TOKENS:
        engine.touch("kernels")
    if job.images:
        engine.touch("media")
    if engine.profile.prefix_cache and not job.images:
        job.cached = engine.prefixes.take(job.body["messages"], job.prompt_tokens)
    await engine.unwedged.wait()
    took = (job.prompt_tokens + run.done - job.cached) / engine.profile.prefill_rate(job.prompt_tokens)
    async with engine.prefilling:
        await engine.pace.sleep(0.03 + took)
    stats.prompt += job.prompt_tokens
    stats.cached += job.cached
    stats.prompt_s += took


def _count(engine: Engine, made: int, rate: float) -> None:
    stats = engine.stats
    stats.generation += made
    stats.kv_tokens += made
    stats.decode_s += made / rate
    stats.steps += math.ceil(made / engine.profile.tokens_a_step)
    stats.last_rate = rate
