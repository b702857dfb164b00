"""llama-server-shaped: answers 503 while loading, ignores SIGTERM then, /props and /slots, `llamacpp:` metrics."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from anvil_tui.simbox.chat import Job
from anvil_tui.simbox.dialects.base import Dialect, Route, unix_now
from anvil_tui.simbox.engine import Engine
from anvil_tui.simbox.http import Reply, Request, json_reply
from anvil_tui.simbox.logbook import STDERR
from anvil_tui.simbox.metrics import KIND
from anvil_tui.simbox.profile import Profile

PUBLIC = ("/health", "/v1/health")


class LlamaCpp(Dialect):
    process_name = "llama-server"
    answers_early = True
    knows_min_tokens = False
    tells_incomplete = False
    numbers_events = False

    # life

    async def load(self, engine: Engine) -> None:
        p = engine.profile
        _say(engine, f"srv    load_model: loading model '{p.model}'")
        await engine.step(0.8 * p.load_s)
        engine.hold(p.weights_mib)
        _say(
            engine,
            f"srv    load_model: initializing, n_slots = {p.slots}, n_ctx_slot = {_slot_context(engine)}, "
            "kv_unified = 'false'",
        )
        await engine.step(0.2 * p.load_s)
        engine.hold(engine.full_mib)
        _say(engine, "main: model loaded")
        _say(engine, f"srv    server_main: listening on http://127.0.0.1:{p.port}")

    def on_signal(self, engine: Engine, name: str) -> None:
        """Ignored while loading; idle ends at once; answering, it goes quiet and waits for a second signal."""
        if engine.phase == "loading":
            return
        if engine.phase == "stopping":
            engine.die(1, ("Received second interrupt, terminating immediately.",))
            return
        engine.phase = "stopping"
        if engine.stats.running:
            engine.unwedged.clear()
        else:
            engine.spawn(engine.end_after(0.14, 0))

    def out_of_memory(self, mib: float, free: float) -> str:
        return (
            f"ggml_backend_cuda_buffer_type_alloc_buffer: allocating {mib:.2f} MiB on device 0: "
            "cudaMalloc failed: out of memory"
        )

    def port_taken(self, profile: Profile) -> tuple[str, ...]:
        return (f"couldn't bind HTTP server socket, hostname: 127.0.0.1, port: {profile.port}",)

    # HTTP

    def routes(self) -> Mapping[tuple[str, str], Route]:
        return {
            ("GET", "/health"): self.health,
            ("GET", "/v1/health"): self.health,
            ("GET", "/v1/models"): self.models,
            ("GET", "/models"): self.models,
            ("GET", "/metrics"): self.metrics,
            ("GET", "/props"): self.props,
            ("GET", "/slots"): self.slots,
            ("POST", "/tokenize"): self.tokenize,
            ("POST", "/v1/chat/completions"): self.chat,
            ("POST", "/chat/completions"): self.chat,
            ("POST", "/v1/responses"): self.responses,
        }

    def protected(self, path: str) -> bool:
        return path not in PUBLIC

    def unauthorized(self) -> Reply:
        return self.error(401, "Invalid API Key", "authentication_error")

    def not_found(self, request: Request) -> Reply:
        return self.error(404, "File Not Found", "not_found_error")

    def metrics_off(self) -> Reply:
        return self.error(
            501, "This server does not support metrics endpoint. Start it with `--metrics`", "not_supported_error"
        )

    def error_body(self, status: int, message: str, kind: str) -> dict[str, Any]:
        return {"error": {"code": status, "message": message, "type": kind}}

    async def health(self, engine: Engine, request: Request) -> Reply:
        return json_reply(200, {"status": "ok"})

    async def metrics(self, engine: Engine, request: Request) -> Reply:
        """Travels through the task queue: a hung decode hangs it."""
        await engine.unwedged.wait()
        reply = await super().metrics(engine, request)
        return (
            reply
            if reply.status != 200
            else Reply(200, reply.body, KIND, {"Process-Start-Time-Unix": str(unix_now())})
        )

    async def props(self, engine: Engine, request: Request) -> Reply:
        p = engine.profile
        return json_reply(
            200,
            {
                "default_generation_settings": {"params": {}, "n_ctx": _slot_context(engine)},
                "total_slots": p.slots,
                "model_alias": engine.served[0],
                "model_path": p.model,
                "modalities": {"vision": "image" not in p.media, "audio": False},
                "endpoint_slots": True,
                "endpoint_props": False,
                "endpoint_metrics": p.metrics,
                "build_info": p.version,
                "is_sleeping": False,
            },
        )

    async def slots(self, engine: Engine, request: Request) -> Reply:
        await engine.unwedged.wait()
        running = engine.stats.running
        used = engine.stats.kv_tokens // max(1, running)
        rows = [
            {
                "id": n,
                "n_ctx": _slot_context(engine),
                "speculative": False,
                "is_processing": n < running,
                "n_prompt_tokens": used if n < running else 0,
                "next_token": [{"n_decoded": 0, "n_remain": -1}],
            }
            for n in range(engine.profile.slots)
        ]
        return json_reply(200, rows)

    def card(self, engine: Engine, name: str) -> dict[str, Any]:
        meta = {
            "vocab_type": 2,
            "n_vocab": 49152,
            "n_ctx": _slot_context(engine),
            "n_ctx_train": 8192,
            "n_params": 134515008,
        }
        return {
            "id": name,
            "aliases": [],
            "tags": [],
            "object": "model",
            "created": unix_now(),
            "owned_by": "llamacpp",
            "meta": meta,
        }

    def media_refused(self, engine: Engine, medium: str, sent: int, allowed: int) -> Reply:
        if "image" not in engine.profile.media:  # with a projector everything is taken for a picture
            return self.error(400, "Failed to load image or audio file", "invalid_request_error")
        hint = "hint: if this is unexpected, you may need to provide the mmproj"
        return self.error(500, f"{medium} input is not supported - {hint}", "server_error")

    def too_long(self, engine: Engine, job: Job) -> Reply | None:
        limit = _slot_context(engine)
        if job.prompt_tokens < limit:
            return None
        said = f"request ({job.prompt_tokens} tokens) exceeds the available context size ({limit} tokens)"
        body = self.error_body(400, f"{said}, try increasing it", "exceed_context_size_error")
        body["error"] |= {"n_prompt_tokens": job.prompt_tokens, "n_ctx": limit}
        return json_reply(400, body)

    # metrics

    def page(self, engine: Engine) -> str:
        s = engine.stats
        rows = [
            (
                "prompt_tokens_total",
                "counter",
                "Number of prompt tokens processed, excluding cached tokens",
                s.prompt - s.cached,
            ),
            ("prompt_seconds_total", "counter", "Prompt process time", s.prompt_s),
            ("tokens_predicted_total", "counter", "Number of generation tokens processed", s.generation),
            ("tokens_predicted_seconds_total", "counter", "Total time spent generating tokens", s.decode_s),
            ("n_decode_total", "counter", "Total number of llama_decode() calls", s.steps),
            ("predicted_tokens_seconds", "gauge", "Average generation throughput in tokens/s", s.last_rate),
            ("requests_processing", "gauge", "Number of requests processing", s.running),
            ("requests_deferred", "gauge", "Number of requests deferred", s.waiting),
        ]
        return "".join(
            f"# HELP llamacpp:{name} {text}\n# TYPE llamacpp:{name} {kind}\nllamacpp:{name} {value:.6g}\n"
            for name, kind, text, value in rows
        )

    # shapes

    def message(self, job: Job, content: str, reasoning: str, calls: list[dict[str, Any]]) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": content or (None if calls else "")}
        if reasoning:
            message["reasoning_content"] = reasoning
        return {**message, "tool_calls": calls} if calls else message

    def first_delta(self) -> dict[str, Any]:
        return {"role": "assistant", "content": None}

    def stream_choice(self, delta: Mapping[str, Any], finish: str | None) -> dict[str, Any]:
        return {"index": 0, "delta": delta, "finish_reason": finish}

    def prompt_details(self, job: Job) -> dict[str, Any]:
        return {"prompt_tokens_details": {"cached_tokens": job.cached}}

    def extras(self, engine: Engine, job: Job, made: int) -> dict[str, Any]:
        rate = engine.profile.decode_rate(job.prompt_tokens)
        return {
            "timings": {
                "prompt_n": job.prompt_tokens - job.cached,
                "predicted_n": made,
                "cache_n": job.cached,
                "predicted_ms": round(1000 * made / rate, 3),
                "predicted_per_second": round(rate, 3),
            }
        }

    def after(self, engine: Engine, job: Job, made: int) -> None:
        _say(
            engine,
            f"slot      release: id  0 | task {engine.requests} | stop processing: n_tokens = "
            f"{job.prompt_tokens + made}, truncated = 0",
        )


def _slot_context(engine: Engine) -> int:
    """Context of one request: the total is split over the slots."""
    wrong = engine.faults.get("wrong_identity", {}).get("context")
    return int(wrong) if wrong else engine.profile.context // engine.profile.slots


def _say(engine: Engine, text: str) -> None:
    t = engine.pace.now()
    stamp = f"{int(t // 60)}.{int(t % 60):02d}.{int(t * 1000) % 1000:03d}.{time.time_ns() // 1000 % 1000:03d}"
    engine.log.write(f"{stamp} I {text}", STDERR)
