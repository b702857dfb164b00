"""SGLang-shaped: refuses until ready, /health generates, /server_info, `sglang:` metrics, nulls in chunks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from anvil_tui.simbox.chat import Job
from anvil_tui.simbox.dialects.base import Dialect, Route, shards_line, unix_now
from anvil_tui.simbox.engine import Engine, EngineExit
from anvil_tui.simbox.http import Reply, Request, json_reply
from anvil_tui.simbox.logbook import STDERR
from anvil_tui.simbox.metrics import Page
from anvil_tui.simbox.profile import Profile
from anvil_tui.simbox.responses import CHAT_ONLY

OPEN = ("/health", "/ready", "/metrics")
CONTEXT_MIB = 700
HEALTH_POLL_S = 1.0
HEALTH_TIMEOUT_S = 20.0
DRAIN_POLL_S = 5.0


class Sglang(Dialect):
    stop_key = "matched_stop"
    process_name = "sglang::scheduler"

    # life

    async def load(self, engine: Engine) -> None:
        p = engine.profile
        _say(
            engine,
            f"server_args=ServerArgs(model_path='{p.model}', served_model_name='{p.served[0]}', port={p.port}, "
            f"tp_size={p.tensor_parallel}, context_length={p.context}, max_running_requests={p.slots})",
            "",
        )
        await engine.step(0.08 * p.load_s)
        _say(engine, "Init torch distributed begin.")
        engine.hold(CONTEXT_MIB)
        _say(engine, f"Load weight begin. avail mem={_avail_gb(engine):.2f} GB")
        await self._weights(engine)
        await self._pool_and_graphs(engine)
        engine.log.write("INFO:     Started server process [1]", STDERR)
        engine.log.write("INFO:     Application startup complete.", STDERR)
        engine.log.write(f"INFO:     Uvicorn running on http://127.0.0.1:{p.port} (Press CTRL+C to quit)", STDERR)
        await engine.step(0.02 * p.load_s)
        _say(engine, "The server is fired up and ready to roll!", "")

    async def _weights(self, engine: Engine) -> None:
        p, each = engine.profile, 0.6 * engine.profile.load_s / engine.profile.shards
        free = engine.free_mib()
        if free is not None and engine.full_mib - CONTEXT_MIB > free:
            raise EngineExit(1, "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.")
        for n in range(1, p.shards + 1):
            await engine.step(each)
            engine.hold(CONTEXT_MIB + p.weights_mib * n / p.shards)
            engine.progress = f"weights {n}/{p.shards} shards"
            engine.log.write(shards_line(n, p.shards, each), STDERR)
        _say(
            engine,
            f"Load weight end. type=GlmMoeForConditionalGeneration, dtype=torch.bfloat16, "
            f"avail mem={_avail_gb(engine):.2f} GB, mem usage={p.weights_mib / 1024:.2f} GB.",
        )

    async def _pool_and_graphs(self, engine: Engine) -> None:
        p = engine.profile
        engine.progress = "kv cache"
        await engine.step(0.1 * p.load_s)
        engine.hold(CONTEXT_MIB + p.weights_mib + p.kv_mib)
        _say(
            engine,
            f"KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: {p.kv_tokens}, "
            f"KV size: {p.kv_mib / 1024:.2f} GB",
        )
        _say(engine, f"Memory pool end. avail mem={_avail_gb(engine):.2f} GB")
        engine.progress = "graph capture"
        _say(
            engine,
            f"Capture cuda graph begin. This can take up to several minutes. avail mem={_avail_gb(engine):.2f} GB",
        )
        await engine.step(0.2 * p.load_s)
        engine.hold(engine.full_mib)
        _say(
            engine,
            f"Capture cuda graph end. Time elapsed: {0.2 * p.load_s:.2f} s. avail mem={_avail_gb(engine):.2f} GB",
        )
        _say(
            engine,
            f"max_total_num_tokens={p.kv_tokens}, chunked_prefill_size=4096, max_prefill_tokens=16384, "
            f"max_running_requests={p.slots}, context_len={p.context}, "
            f"available_gpu_mem={_avail_gb(engine):.2f} GB",
        )

    def on_signal(self, engine: Engine, name: str) -> None:
        """Drains without a limit. It ends by killing its own tree: 137 under an init, 0 as PID 1."""
        code = 137 if engine.seat.init else 0
        if engine.phase == "loading":
            engine.die(code)
        elif engine.phase != "stopping":
            engine.phase = "stopping"
            engine.spawn(self._drain(engine, code))

    async def _drain(self, engine: Engine, code: int) -> None:
        while engine.stats.running + engine.stats.waiting:
            left = engine.stats.running + engine.stats.waiting
            _say(engine, f"Gracefully exiting... Remaining number of requests {left}. Remaining requests []", "")
            await engine.pace.sleep(DRAIN_POLL_S)
        engine.die(code)

    def port_taken(self, profile: Profile) -> tuple[str, ...]:
        return (
            f"ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', {profile.port}): "
            "address already in use",
        )

    # HTTP

    def routes(self) -> Mapping[tuple[str, str], Route]:
        return {
            ("GET", "/health"): self.health,
            ("GET", "/health_generate"): self.health,
            ("GET", "/ready"): self.ready,
            ("GET", "/ping"): self.ready,
            ("GET", "/v1/models"): self.models,
            ("GET", "/metrics"): self.metrics,
            ("GET", "/server_info"): self.server_info,
            ("GET", "/get_server_info"): self.server_info,
            ("GET", "/model_info"): self.model_info,
            ("GET", "/get_model_info"): self.model_info,
            ("POST", "/tokenize"): self.tokenize,
            ("POST", "/v1/chat/completions"): self.chat,
            ("POST", "/v1/responses"): self.responses,
        }

    def refuse_response(self, engine: Engine, body: Mapping[str, Any]) -> Reply | None:
        foreign = next((key for key in CHAT_ONLY if key in body), "")
        return (
            self.error(400, f"{foreign}: Extra inputs are not permitted", "BadRequestError") if foreign else None
        )

    def protected(self, path: str) -> bool:
        return not path.startswith(OPEN)

    def unauthorized(self) -> Reply:
        return json_reply(401, {"error": "Unauthorized"})

    def error_body(self, status: int, message: str, kind: str) -> dict[str, Any]:
        return {"object": "error", "message": message, "type": kind, "param": None, "code": status}

    async def health(self, engine: Engine, request: Request) -> Reply:
        """A one-token generation when idle, any new output when busy; 503 after its timeout."""
        if engine.phase == "stopping" or "engine_dead" in engine.faults:
            return Reply(503, b"", "text/plain")
        waited, before = 0.0, engine.stats.generation
        while waited < HEALTH_TIMEOUT_S:
            await engine.pace.sleep(HEALTH_POLL_S)
            waited += HEALTH_POLL_S
            alive = engine.unwedged.is_set() and not (engine.stats.running and engine.stats.generation == before)
            if alive:
                return Reply(200, b"", "text/plain")
        _say(
            engine, "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds", ""
        )
        return Reply(503, b"", "text/plain")

    async def ready(self, engine: Engine, request: Request) -> Reply:
        return Reply(503 if engine.phase == "stopping" else 200, b"", "text/plain")

    async def server_info(self, engine: Engine, request: Request) -> Reply:
        p = engine.profile
        await engine.unwedged.wait()
        state = {
            "memory_usage": {
                "weight": round(p.weights_mib / 1024, 2),
                "kvcache": round(p.kv_mib / 1024, 2),
                "token_capacity": p.kv_tokens,
                "graph": 0.4,
            },
            "last_gen_throughput": round(engine.stats.last_rate, 2),
            "effective_max_running_requests_per_dp": p.slots,
        }
        return json_reply(
            200,
            {
                "model_path": p.model,
                "served_model_name": engine.served[0],
                "tp_size": p.tensor_parallel,
                "dp_size": 1,
                "api_key": p.api_keys[0] if p.api_keys else None,
                "status": "ready",
                "context_length": engine.context,
                "max_total_num_tokens": p.kv_tokens,
                "max_req_input_len": engine.context - 6,
                "version": p.version,
                "internal_states": [state],
            },
        )

    async def model_info(self, engine: Engine, request: Request) -> Reply:
        p = engine.profile
        return json_reply(
            200,
            {
                "model_path": p.model,
                "served_model_name": engine.served[0],
                "tokenizer_path": p.model,
                "is_generation": True,
                "has_image_understanding": True,
                "weight_version": "default",
            },
        )

    def card(self, engine: Engine, name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": unix_now(),
            "owned_by": "sglang",
            "root": name,
            "parent": None,
            "max_model_len": engine.context,
        }

    def media_refused(self, engine: Engine, medium: str, sent: int, allowed: int) -> Reply:
        text = f"{medium.capitalize()} count {sent} exceeds limit {allowed} per request."
        return self.error(400, text, "BadRequestError")

    def too_long(self, engine: Engine, job: Job) -> Reply | None:
        asked, limit = job.asked_tokens or 0, engine.context
        if job.prompt_tokens >= limit:
            return self.error(
                400,
                f"The input ({job.prompt_tokens} tokens) is longer than the model's context length "
                f"({limit} tokens).",
                "BadRequestError",
            )
        if job.prompt_tokens + asked > limit:
            return self.error(
                400,
                f"Requested token count exceeds the model's maximum context length of {limit} tokens. "
                f"You requested a total of {job.prompt_tokens + asked} tokens: {job.prompt_tokens} tokens "
                f"from the input messages and {asked} tokens for the completion.",
                "BadRequestError",
            )
        return None

    # metrics

    def page(self, engine: Engine) -> str:
        p, s, name = engine.profile, engine.stats, engine.served[0]
        rank = {"engine_type": "unified", "moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}
        page = Page({"model_name": name})
        page.gauge("sglang:num_running_reqs", "The number of running requests.", s.running, **rank)
        page.gauge("sglang:num_queue_reqs", "The number of requests in the waiting queue.", s.waiting, **rank)
        page.gauge(
            "sglang:num_used_tokens", "The number of used tokens.", round(engine.kv_used * p.kv_tokens), **rank
        )
        page.gauge("sglang:token_usage", "The token usage.", engine.kv_used, **rank)
        page.gauge(
            "sglang:max_total_num_tokens",
            "Maximum total number of tokens in the KV cache pool.",
            p.kv_tokens,
            **rank,
        )
        page.gauge("sglang:num_retracted_reqs", "The number of retracted requests.", 0, pid="412", **rank)
        page.counter("sglang:num_retracted_requests_total", "Total number of retracted requests.", s.preempted)
        page.gauge(
            "sglang:gen_throughput",
            "The generation throughput (token/s).",
            s.last_rate if s.running else 0,
            **rank,
        )
        page.counter("sglang:prompt_tokens_total", "Number of prefill tokens processed.", s.prompt)
        page.counter("sglang:generation_tokens_total", "Number of generation tokens processed.", s.generation)
        modes = [
            ({"mode": "prefill_compute", **rank}, float(s.prompt - s.cached)),
            ({"mode": "decode", **rank}, float(s.generation)),
        ]
        page.family("sglang:realtime_tokens_total", "Tokens processed so far, by mode.", "counter", modes)
        page.counter("sglang:num_requests_total", "Number of requests processed.", s.requests)
        page.histogram(
            "sglang:time_to_first_token_seconds", "Histogram of time to first token in seconds.", s.ttft
        )
        page.histogram(
            "sglang:e2e_request_latency_seconds", "Histogram of end-to-end request latency in seconds.", s.e2e
        )
        return page.text()

    # shapes

    def message(self, job: Job, content: str, reasoning: str, calls: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "role": "assistant",
            "content": content or None,
            "reasoning_content": reasoning or None,
            "tool_calls": calls or None,
        }

    def choice(self, message: Mapping[str, Any], finish: str) -> dict[str, Any]:
        return {**super().choice(message, finish), "matched_stop": None}

    def first_delta(self) -> dict[str, Any]:
        return {"role": "assistant", "content": "", "reasoning_content": None, "tool_calls": None}

    def delta(self, channel: str, text: str) -> dict[str, Any]:
        plain = channel == "content"
        return {
            "role": None,
            "content": text if plain else None,
            "reasoning_content": None if plain else text,
            "tool_calls": None,
        }

    def tool_delta(self, index: int, call_id: str, name: str, fragment: str, first: bool) -> dict[str, Any]:
        function = {"name": name if first else None, "arguments": fragment}
        return {"index": index, "id": call_id if first else None, "type": "function", "function": function}

    def stream_choice(self, delta: Mapping[str, Any], finish: str | None) -> dict[str, Any]:
        return {**super().stream_choice(delta, finish), "matched_stop": None}

    def usage(self, job: Job, made: int, reasoned: int) -> dict[str, Any]:
        return {"prompt_tokens_details": None, **super().usage(job, made, reasoned), "reasoning_tokens": reasoned}

    def after(self, engine: Engine, job: Job, made: int) -> None:
        s = engine.stats
        _say(
            engine,
            f"Prefill batch, #new-seq: 1, #new-token: {job.prompt_tokens - job.cached}, "
            f"#cached-token: {job.cached}, token usage: "
            f"{engine.kv_used:.2f}, #running-req: {max(0, s.running - 1)}, #queue-req: {s.waiting}, ",
        )
        _say(
            engine,
            f"Decode batch, #running-req: {s.running}, #token: {job.prompt_tokens + made}, token usage: "
            f"{engine.kv_used:.2f}, cuda graph: True, gen throughput (token/s): {s.last_rate:.2f}, "
            f"#queue-req: {s.waiting}",
        )


def _say(engine: Engine, text: str, rank: str = " TP0") -> None:
    engine.log.write(f"[{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())}{rank}] {text}", STDERR)


def _avail_gb(engine: Engine) -> float:
    free = engine.free_mib()
    return (free if free is not None else 0.0) / 1024
