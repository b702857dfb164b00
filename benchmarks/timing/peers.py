"""The load generators compared: how each is run for one lane, and where it writes what it measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Lane:
    """`out` is an empty folder; `home` the peer's own; `tokenizer` a folder that transformers can read."""

    url: str
    streams: int
    count: int
    tokens: int
    out: Path
    home: Path
    tokenizer: Path

    @property
    def python(self) -> str:
        return str(self.home / "venv/bin/python")

    def tool(self, name: str) -> str:
        return str(self.home / "venv/bin" / name)


@dataclass(frozen=True, slots=True)
class Said:
    """What a tool reports, as it means it: milliseconds and output tokens a second."""

    ttft_p50_ms: float
    ttft_p95_ms: float
    token_ms: float | None
    tok_s: float | None
    visible_p50_ms: float | None = None
    note: str = ""


Ranks = Literal["nearest", "linear"]


@dataclass(frozen=True, slots=True)
class Peer:
    """`ranks` is how it takes percentiles. `wheel` = (package, folder in it): taken without what it requires."""

    name: str
    version: str
    argv: Callable[[Lane], list[str]]
    said: Callable[[Path], Said]
    ranks: Ranks = "linear"
    python: tuple[int, int] = (3, 11)
    wheel: tuple[str, str] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


def _load(path: Path) -> Any:
    return json.loads(path.read_text())


def _ours(lane: Lane) -> list[str]:
    counts = [str(n) for n in (lane.streams, lane.count, lane.tokens)]
    return [sys.executable, "-m", "benchmarks.timing.ours", lane.url, *counts, str(lane.out / "ours.json")]


def _ours_said(out: Path) -> Said:
    return Said(**_load(out / "ours.json"))


def _anvil(lane: Lane) -> list[str]:
    return [lane.python, "-m", "anvil_serving.benchmark", "--base-url", f"{lane.url}/v1", "--model", "timing",
            "--requests", str(lane.count), "--concurrency", str(lane.streams), "--ctx-tokens", "100",
            "--max-tokens", str(lane.tokens), "--json-out", str(lane.out / "o.json")]  # fmt: skip


def _anvil_said(out: Path) -> Said:
    """Its TTFT is the first content; the first output of any kind has a name of its own."""
    m = _load(out / "o.json")["metrics"]
    return Said(m["time_to_first_output_p50_ms"], m["time_to_first_output_p95_ms"], m["tpot_p50_ms"],
                m["throughput_tok_s"], m["ttft_p50_ms"])  # fmt: skip


def _inference_perf(lane: Lane) -> list[str]:
    of = f"{{min: %d, max: %d, mean: %d, std_dev: 0, total_count: {lane.count}}}"
    config = lane.out / "config.yml"
    config.write_text(
        f"load: {{type: concurrent, num_workers: 1, stages: "
        f"[{{num_requests: {lane.count}, concurrency_level: {lane.streams}}}]}}\n"
        "api: {type: completion, streaming: true}\n"
        f"server: {{type: vllm, model_name: timing, base_url: '{lane.url}', ignore_eos: true}}\n"
        f"tokenizer: {{pretrained_model_name_or_path: {lane.tokenizer}}}\n"
        "data:\n  type: random\n"
        f"  input_distribution: {of % (64, 64, 64)}\n"
        f"  output_distribution: {of % (lane.tokens, lane.tokens, lane.tokens)}\n"
        "report: {request_lifecycle: {summary: true, per_stage: true, per_request: false}}\n"
        f"storage: {{local_storage: {{path: {lane.out}/report}}}}\n"
    )
    return [lane.tool("inference-perf"), "-c", str(config)]


def _inference_perf_said(out: Path) -> Said:
    found = _load(out / "report/stage_0_lifecycle_metrics.json")["successes"]
    first, token = found["latency"]["time_to_first_token"], found["latency"]["time_per_output_token"]
    rate = found["throughput"]["output_tokens_per_sec"]
    return Said(1000 * first["median"], 1000 * first["p95"], 1000 * token["median"], rate)


def _guidellm(lane: Lane) -> list[str]:
    return [
        lane.tool("guidellm"), "run",
        "--backend", f"kind=openai_http,target={lane.url},model=timing,request_format=/v1/chat/completions",
        "--profile", f"kind=concurrent,streams={lane.streams}",
        "--constraint", f"kind=max_requests,count={lane.count}",
        "--tokenizer", f"kind=huggingface_auto,model={lane.tokenizer}",
        "--data", f"kind=synthetic_text,prompt_tokens=64,output_tokens={lane.tokens}",
        "--output", f"kind=json,path={lane.out}/o.json", "--disable-console-interactive",
    ]  # fmt: skip


def _guidellm_said(out: Path) -> Said:
    m = {k: v["successful"] for k, v in _load(out / "o.json")["benchmarks"][0]["metrics"].items()
         if isinstance(v, dict) and "successful" in v}  # fmt: skip
    first = m["time_to_first_token_ms"]
    return Said(first["median"], first["percentiles"]["p95"], m["inter_token_latency_ms"]["median"],
                m["output_tokens_per_second"]["mean"], m["time_to_first_output_token_ms"]["median"])  # fmt: skip


def _aiperf(lane: Lane) -> list[str]:
    return [
        lane.tool("aiperf"), "profile", "-m", "timing", "--url", lane.url, "--endpoint-type", "chat",
        "--streaming", "--tokenizer", str(lane.tokenizer), "--use-server-token-count",
        "--concurrency", str(lane.streams),
        "--request-count", str(lane.count), "--isl", "64", "--osl", str(lane.tokens), "--ui", "none",
        "--output-artifact-dir", str(lane.out / "report"),
    ]  # fmt: skip


def _aiperf_said(out: Path) -> Said:
    m = _load(next(out.rglob("profile_export_aiperf.json")))
    visible = m.get("time_to_first_output_token") or {}
    token, rate = m.get("inter_token_latency") or {}, m.get("output_token_throughput") or {}
    first = m["time_to_first_token"]
    return Said(first["p50"], first["p95"], token.get("p50"), rate.get("avg"), visible.get("p50"))


def _genai_bench(lane: Lane) -> list[str]:
    return [
        lane.tool("genai-bench"), "benchmark", "--api-backend", "vllm", "--api-base", lane.url, "--api-key", "x",
        "--api-model-name", "timing", "--model-tokenizer", str(lane.tokenizer), "--task", "text-to-text",
        "--traffic-scenario", f"D(64,{lane.tokens})", "--num-concurrency", str(lane.streams),
        "--max-requests-per-run", str(lane.count), "--max-time-per-run", "3",
        "--experiment-base-dir", str(lane.out), "--experiment-folder-name", "report",
    ]  # fmt: skip


def _genai_bench_said(out: Path) -> Said:
    m = _load(next(out.glob("report/D*.json")))["aggregated_metrics"]
    first, token = m["stats"]["ttft"], m["stats"]["tpot"]
    return Said(1000 * first["p50"], 1000 * first["p95"], 1000 * token["p50"],
                m["mean_output_throughput_tokens_per_s"])  # fmt: skip


def _stubbed(lane: Lane, which: str) -> list[str]:
    counts = [str(n) for n in (lane.streams, lane.count, lane.tokens)]
    return [lane.python, str(HERE / "stubbed.py"), which, str(lane.home / "wheel"), lane.url, *counts,
            str(lane.tokenizer), str(lane.out / "o.json")]  # fmt: skip


def _stubbed_said(out: Path) -> Said:
    m = _load(out / "o.json")
    return Said(m["median_ttft_ms"], m["p95_ttft_ms"], m["median_tpot_ms"], m["output_throughput"])


OURS = Peer("anvil-tui", "this", _ours, _ours_said, ranks="nearest")
PEERS = (
    Peer("anvil-serving", "2.0.2", _anvil, _anvil_said, ranks="nearest"),
    Peer("inference-perf", "0.7.0", _inference_perf, _inference_perf_said, python=(3, 12), env=OFFLINE,
         note="on /v1/completions"),
    Peer("guidellm", "0.8.1", _guidellm, _guidellm_said, ranks="nearest", env=OFFLINE),
    Peer("aiperf", "0.13.0", _aiperf, _aiperf_said),
    Peer("genai-bench", "0.0.5", _genai_bench, _genai_bench_said, env=OFFLINE),
    Peer("vllm", "0.33.0", lambda lane: _stubbed(lane, "vllm"), _stubbed_said, wheel=("vllm", "vllm/benchmarks/"),
         env=OFFLINE, note="engine imports stubbed"),
    Peer("sglang", "0.5.23", lambda lane: _stubbed(lane, "sglang"), _stubbed_said,
         wheel=("sglang", "sglang/benchmark/"), env=OFFLINE, note="engine imports stubbed"),
)  # fmt: skip

NOT_RUN = (
    ("genai-perf 0.0.16", "it needs perf_analyzer, which its wheel does not bring"),
    ("llmperf", "not on the package index under its name; its tokenizer is fixed and fetched from a hub"),
)
