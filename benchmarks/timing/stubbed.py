"""Runs the benchmark client of vLLM or SGLang without the engine: what it imports of that is stood in for.

`python stubbed.py vllm|sglang FOLDER URL STREAMS COUNT TOKENS TOKENIZER OUT`, by the Python of the peer's own
environment. FOLDER holds their benchmark modules, unpacked from the wheel and unchanged.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import importlib.abc
import importlib.machinery
import json
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# What is missing because it is the engine, or only its data sets need it.
ABSENT = {"vllm", "sglang", "torch", "datasets"}


class Anything:
    """Can be called, asked, subscribed, inherited from and decorated with."""

    def __init__(self, *args: Any, **rest: Any) -> None:
        pass

    def __call__(self, *args: Any, **rest: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) else Anything()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __getitem__(self, item: Any) -> Any:
        return Anything()

    def __or__(self, other: Any) -> Any:
        return Anything()

    def __mro_entries__(self, bases: Any) -> tuple[()]:
        return ()


class _Module(types.ModuleType):
    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Asked last: only for modules that no file has."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in ABSENT:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        return None


def prompts(count: int) -> list[str]:
    return [" ".join(f"w{(7 * n + k) % 2000}" for k in range(64)) for n in range(count)]


def vllm(url: str, streams: int, count: int, tokens: int, tokenizer: str, out: Path) -> None:
    """Its own `benchmark()`, called as its command line does, heap freeze included."""
    serve = importlib.import_module("vllm.benchmarks.serve")
    transformers = importlib.import_module("transformers")
    sample = importlib.import_module("vllm.benchmarks.datasets").SampleRequest
    asked = [sample(prompt=text, prompt_len=64, expected_output_len=tokens) for text in prompts(count)]
    gc.collect()
    gc.freeze()
    result = asyncio.run(
        serve.benchmark(
            task_type=serve.TaskType.GENERATION, endpoint_type="openai-chat", api_url=f"{url}/v1/chat/completions",
            base_url=url, model_id="timing", model_name="timing",
            tokenizer=transformers.AutoTokenizer.from_pretrained(tokenizer), input_requests=asked, logprobs=None,
            request_rate=float("inf"), burstiness=1.0, disable_tqdm=True, num_warmups=0, profile=False,
            selected_percentile_metrics=["ttft", "tpot", "itl", "e2el"], selected_percentiles=[50.0, 95.0],
            ignore_eos=True, goodput_config_dict={}, max_concurrency=streams, lora_modules=[], extra_headers=None,
            extra_body=None, ready_check_timeout_sec=0,
        )
    )  # fmt: skip
    out.write_text(json.dumps({k: v for k, v in result.items() if isinstance(v, int | float)}))


def sglang(url: str, streams: int, count: int, tokens: int, tokenizer: str, out: Path) -> None:
    """Its own command line."""
    serving: Any = importlib.import_module("sglang.benchmark.serving")
    serving.resolve_base_url = lambda base_url, host, port: base_url
    sys.argv = [
        "bench_serving", "--backend", "vllm-chat", "--base-url", url, "--model", "timing",
        "--tokenizer", tokenizer, "--dataset-name", "random-ids", "--random-input-len", "64",
        "--random-output-len", str(tokens),
        "--random-range-ratio", "1.0", "--num-prompts", str(count), "--max-concurrency", str(streams),
        "--warmup-requests", "0", "--disable-tqdm", "--output-file", str(out), "--ready-check-timeout-sec", "0",
    ]  # fmt: skip
    serving.cli_main()


def main(argv: Sequence[str]) -> None:
    which, folder, url, streams, count, tokens, tokenizer, out = argv
    sys.path.insert(0, folder)
    sys.meta_path.append(StandIn())
    {"vllm": vllm, "sglang": sglang}[which](url, int(streams), int(count), int(tokens), tokenizer, Path(out))


if __name__ == "__main__":
    main(sys.argv[1:])
