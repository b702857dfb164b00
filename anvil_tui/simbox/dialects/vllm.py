"""vLLM-shaped: refuses until ready, logs with process prefixes, `vllm:` metrics, 404 for an unknown model."""

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

GUARDED = ("/v1", "/v2", "/inference")
CONTEXT_MIB = 500


class Vllm(Dialect):
    stop_key = "stop_reason"
    process_name = "VLLM::Worker"
    reasoning_key = "reasoning"

    # life

    async def load(self, engine: Engine) -> None:
        p, log = engine.profile, _Lines(engine)
        log.api(f"vLLM API server version {p.version}", "api_server.py:1896")
        log.api(
            f"non-default args: {{'model_tag': '{p.model}', 'port': {p.port}, 'max_model_len': {p.context}, "
            f"'served_model_name': {list(p.served)}, 'max_num_seqs': {p.slots}}}",
            "utils.py:233",
        )
        await engine.step(0.06 * p.load_s)
        log.core(
            f"Initializing a V1 LLM engine (v{p.version}) with config: model='{p.model}', "
            f"max_seq_len={p.context}, "
            f"tensor_parallel_size={p.tensor_parallel}, served_model_name={p.served[0]}",
            "core.py:93",
        )
        self._need_memory(engine, log)
        engine.hold(CONTEXT_MIB)
        await self._weights(engine, log)
        await self._cache_and_graphs(engine, log)
        log.api(f"Starting vLLM server on http://127.0.0.1:{p.port}", "launcher.py:29")
        for line in (
            "Started server process [1]",
            "Waiting for application startup.",
            "Application startup complete.",
        ):
            engine.log.write(f"INFO:     {line}", STDERR)

    def _need_memory(self, engine: Engine, log: _Lines) -> None:
        free, fraction = engine.free_mib(), engine.profile.memory_fraction
        wanted = min(engine.full_mib, fraction * engine.usable_mib)
        if free is None or free >= wanted:
            return
        total, aim = engine.usable_mib / 1024, fraction * engine.usable_mib / 1024
        text = (
            f"ValueError: Free memory on device cuda:0 ({free / 1024:.2f}/{total:.2f} GiB) on startup is less "
            f"than desired GPU memory utilization ({fraction:g}, {aim:.2f} GiB). Decrease GPU "
            "memory utilization or reduce GPU memory used by other processes."
        )
        log.core(f"EngineCore failed to start. {text}", "core.py:900", "ERROR")
        raise EngineExit(
            1, "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
        )

    async def _weights(self, engine: Engine, log: _Lines) -> None:
        p, took = engine.profile, 0.55 * engine.profile.load_s
        log.worker(f"Starting to load model {p.model}...", "gpu_model_runner.py:2604")
        each = took / p.shards
        for n in range(1, p.shards + 1):
            await engine.step(each)
            engine.hold(CONTEXT_MIB + p.weights_mib * n / p.shards)
            engine.progress = f"weights {n}/{p.shards} shards"
            engine.log.write(shards_line(n, p.shards, each), STDERR)
        log.worker(f"Loading weights took {took:.2f} seconds", "default_loader.py:268")
        log.worker(
            f"Model loading took {p.weights_mib / 1024:.2f} GiB memory and {took + 3.1:.6f} seconds",
            "gpu_model_runner.py:2630",
        )

    async def _cache_and_graphs(self, engine: Engine, log: _Lines) -> None:
        p = engine.profile
        engine.progress = "kv cache"
        await engine.step(0.15 * p.load_s)
        engine.hold(CONTEXT_MIB + p.weights_mib + p.kv_mib)
        tokens, context = p.kv_tokens, p.context
        log.worker(f"Available KV cache memory: {p.kv_mib / 1024:.2f} GiB", "gpu_worker.py:298")
        log.core(f"GPU KV cache size: {tokens:,} tokens", "kv_cache_utils.py:1087")
        shown = float(engine.faults.get("kv_inconsistent", {}).get("windows", tokens / context))
        log.core(f"Maximum concurrency for {context:,} tokens per request: {shown:.2f}x", "kv_cache_utils.py:1091")
        engine.progress = "graph capture"
        graphs = 0.2 * p.load_s
        for n in range(1, 12):
            await engine.step(graphs / 11)
            engine.log.write(
                f"Capturing CUDA graphs (decode, FULL): {100 * n // 11:3d}%|{'█' * n}{' ' * (11 - n)}| {n}/11",
                STDERR,
            )
        engine.hold(engine.full_mib)
        log.worker(f"Graph capturing finished in {graphs:.0f} secs, took 0.55 GiB", "gpu_model_runner.py:3480")
        log.core(
            f"init engine (profile, create kv cache, warmup model) took {0.35 * p.load_s:.2f} s "
            f"(compilation: {0.1 * p.load_s:.2f} s)",
            "core.py:210",
        )
        await engine.step(0.04 * p.load_s)

    def on_signal(self, engine: Engine, name: str) -> None:
        log = _Lines(engine)
        if engine.phase == "loading":
            engine.die(1, ("KeyboardInterrupt: terminated",))
            return
        log.api("[shutdown] API server: stopping engine client mode=abort timeout=0s", "launcher.py:110")
        log.core(f"[shutdown] EngineCore: aborting in-flight requests count={engine.stats.running}", "core.py:640")
        engine.spawn(engine.end_after(0.6, 0))

    def port_taken(self, profile: Profile) -> tuple[str, ...]:
        return (
            f"OSError: [Errno 98] error while attempting to bind on address ('127.0.0.1', {profile.port}): "
            "address already in use",
        )

    # HTTP

    def routes(self) -> Mapping[tuple[str, str], Route]:
        return {
            ("GET", "/health"): self.health,
            ("GET", "/ping"): self.health,
            ("GET", "/version"): self.version,
            ("GET", "/load"): self.server_load,
            ("GET", "/v1/models"): self.models,
            ("GET", "/metrics"): self.metrics,
            ("POST", "/tokenize"): self.tokenize,
            ("POST", "/v1/chat/completions"): self.chat,
            ("POST", "/v1/responses"): self.responses,
        }

    def protected(self, path: str) -> bool:
        return path.startswith(GUARDED)

    def unauthorized(self) -> Reply:
        return json_reply(401, {"error": "Unauthorized"})

    def error_body(self, status: int, message: str, kind: str) -> dict[str, Any]:
        return {"error": {"message": message, "type": kind, "param": None, "code": status}}

    async def health(self, engine: Engine, request: Request) -> Reply:
        return Reply(503 if "engine_dead" in engine.faults else 200, b"", "text/plain")

    async def version(self, engine: Engine, request: Request) -> Reply:
        return json_reply(200, {"version": engine.profile.version})

    async def server_load(self, engine: Engine, request: Request) -> Reply:
        return json_reply(200, {"server_load": engine.stats.running})

    def card(self, engine: Engine, name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": unix_now(),
            "owned_by": "vllm",
            "root": engine.profile.model,
            "parent": None,
            "max_model_len": engine.context,
            "permission": [],
        }

    def refuse(self, engine: Engine, body: Mapping[str, Any]) -> Reply | None:
        name = body.get("model")
        if name and name not in engine.served:
            return self.error(404, f"The model `{name}` does not exist.", "NotFoundError")
        if body.get("stream_options") and not body.get("stream"):
            return self.error(400, "Stream options can only be defined when `stream=True`.", "BadRequestError")
        return None

    def media_refused(self, engine: Engine, medium: str, sent: int, allowed: int) -> Reply:
        text = (
            f"At most {allowed} {medium}(s) may be provided in one prompt. "
            "Set `--limit-mm-per-prompt` to increase this limit."
        )
        body = self.error_body(400, text, "BadRequestError")
        body["error"]["param"] = medium
        return json_reply(400, body)

    def too_long(self, engine: Engine, job: Job) -> Reply | None:
        asked, limit = job.asked_tokens or 0, engine.context
        if job.prompt_tokens + asked <= limit and job.prompt_tokens < limit:
            return None
        return self.error(
            400,
            f"This model's maximum context length is {limit} tokens. However, you requested "
            f"{job.prompt_tokens + asked} tokens ({job.prompt_tokens} in the messages, {asked} in the "
            "completion). Please reduce the length of the messages or completion.",
            "BadRequestError",
        )

    # metrics

    def page(self, engine: Engine) -> str:
        p, s = engine.profile, engine.stats
        page = Page({"engine": "0", "model_name": engine.served[0]})
        page.gauge("vllm:num_requests_running", "Number of requests in model execution batches.", s.running)
        page.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", s.waiting)
        page.gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", engine.kv_used)
        page.counter("vllm:prefix_cache_queries_total", "Prefix cache queries, in tokens.", s.prompt)
        page.counter("vllm:prefix_cache_hits_total", "Prefix cache hits, in tokens.", s.cached)
        page.counter("vllm:num_preemptions_total", "Cumulative number of preemption from the engine.", s.preempted)
        page.counter("vllm:prompt_tokens_total", "Number of prefill tokens processed.", s.prompt)
        page.counter("vllm:generation_tokens_total", "Number of generation tokens processed.", s.generation)
        done = [({"finished_reason": r}, float(s.finished[r])) for r in ("stop", "length", "abort", "error")]
        page.family("vllm:request_success_total", "Count of successfully processed requests.", "counter", done)
        page.histogram("vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.", s.ttft)
        page.histogram(
            "vllm:e2e_request_latency_seconds", "Histogram of end to end request latency in seconds.", s.e2e
        )
        page.gauge(
            "vllm:cache_config_info",
            "Information of the LLMEngine CacheConfig",
            1,
            block_size="64",
            cache_dtype="fp8",
            enable_prefix_caching=str(p.prefix_cache),
            gpu_memory_utilization=f"{p.memory_fraction:g}",
            num_gpu_blocks=str(p.kv_tokens // 64),
        )
        return page.text()

    # shapes

    def message(self, job: Job, content: str, reasoning: str, calls: list[dict[str, Any]]) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": content or (None if calls or reasoning else "")}
        if reasoning:
            message["reasoning"] = reasoning
        return {**message, "tool_calls": calls} if calls else message

    def choice(self, message: Mapping[str, Any], finish: str) -> dict[str, Any]:
        return {**super().choice(message, finish), "stop_reason": None}

    def after(self, engine: Engine, job: Job, made: int) -> None:
        log, s = _Lines(engine), engine.stats
        if "fsm_error" in engine.faults and job.body.get("response_format"):
            log.core(
                f"Failed to advance FSM for request {job.id} for tokens 154829. Please file an issue.",
                "backend_xgrammar.py:160",
                "ERROR",
            )
        log.api(
            f"Engine 000: Avg prompt throughput: {job.prompt_tokens / 10:.1f} tokens/s, "
            f"Avg generation throughput: {made / 10:.1f} tokens/s, Running: {max(0, s.running - 1)} reqs, "
            f"Waiting: {s.waiting} reqs, GPU KV cache usage: {100 * engine.kv_used:.1f}%",
            "loggers.py:118",
        )


class _Lines:
    """Log records with vLLM's process prefixes."""

    def __init__(self, engine: Engine) -> None:
        self._log = engine.log

    def api(self, text: str, source: str, level: str = "INFO") -> None:
        self._write("APIServer pid=1", text, source, level)

    def core(self, text: str, source: str, level: str = "INFO") -> None:
        self._write("EngineCore pid=187", text, source, level)

    def worker(self, text: str, source: str, level: str = "INFO") -> None:
        self._write("Worker_TP0 pid=249", text, source, level)

    def _write(self, process: str, text: str, source: str, level: str) -> None:
        at = time.strftime("%m-%d %H:%M:%S", time.gmtime())
        self._log.write(f"({process}) {level} {at} [{source}] {text}", STDERR)
