"""What a container's image, entry point, argv and environment say about the engine inside it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Any, Literal

Kind = Literal["vllm", "sglang", "llamacpp", "none"]
Points = tuple[tuple[float, float], ...]

# flag names by meaning, over the three engines
PORT = ("--port",)
NAME = ("--served-model-name", "--alias", "-a")
MODEL = ("--model-path", "--model", "-m")
CONTEXT = ("--max-model-len", "--context-length", "--ctx-size", "-c")
POOL = ("--max-total-tokens",)
SLOTS = ("--max-num-seqs", "--max-running-requests", "--parallel", "-np")
FRACTION = ("--gpu-memory-utilization", "--mem-fraction-static")
KEY = ("--api-key",)
NO_CACHE = ("--no-enable-prefix-caching", "--disable-radix-cache", "--no-cache-prompt")
TELLS_CACHED = ("--enable-prompt-tokens-details", "--enable-cache-report")
MEDIA_LIMITS = ("--limit-mm-per-prompt", "--limit-mm-data-per-request")
KEY_ENV = ("VLLM_API_KEY", "LLAMA_API_KEY", "SGLANG_API_KEY")
DEFAULT_PORT = {"vllm": 8000, "sglang": 30000, "llamacpp": 8080, "none": 0}


@dataclass(frozen=True, slots=True)
class Profile:
    """Sizes are MiB per GPU, rates tokens/s at prompt depths, `load_s` seconds of the real box.

    `tells_cached`: usage holds cached tokens (vLLM and SGLang: on a flag, and only when there are any).
    `media`: the most images or videos a request may hold.
    """

    kind: Kind
    port: int
    served: tuple[str, ...]
    model: str
    context: int
    slots: int
    kv_tokens: int
    api_keys: tuple[str, ...] = ()
    metrics: bool = True
    reasoning: bool = False
    tools: bool = True
    tensor_parallel: int = 1
    shards: int = 4
    weights_mib: int = 4096
    kv_mib: int = 2048
    free_idle_mib: int | None = None
    kernels_mib: int = 64
    media_mib: int = 256
    load_s: float = 30.0
    decode: Points = ((1000.0, 120.0),)
    prefill: Points = ((1000.0, 6000.0),)
    tokens_a_step: int = 1
    version: str = "0.27.1"
    reasoning_tokens: int = 0
    bad_start: str = ""
    memory_fraction: float = 0.9
    prefix_cache: bool = True
    tells_cached: bool = True
    media: Mapping[str, int] = field(default_factory=dict)

    def decode_rate(self, prompt_tokens: int) -> float:
        return between(self.decode, prompt_tokens)

    def prefill_rate(self, prompt_tokens: int) -> float:
        return between(self.prefill, prompt_tokens)


def between(points: Points, x: float) -> float:
    """Linear between the points, flat outside.

    >>> between(((0.0, 10.0), (100.0, 20.0)), 50)
    15.0
    """
    if x <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in pairwise(points):
        if x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return points[-1][1]


def kind_of(words: Sequence[str], image: str) -> Kind:
    """By flags only one engine has, then by names in command and image."""
    flags = {w.split("=", 1)[0] for w in words}
    if flags & {"--context-length", "--mem-fraction-static", "--model-path", "--max-running-requests"}:
        return "sglang"
    if flags & {"--max-model-len", "--max-num-seqs", "--gpu-memory-utilization"}:
        return "vllm"
    text = " ".join((*words, image)).lower()
    for name, kind in (("sglang", "sglang"), ("llama", "llamacpp"), (".gguf", "llamacpp"), ("vllm", "vllm")):
        if name in text:
            return kind  # type: ignore[return-value]
    return "llamacpp" if flags & {"-c", "-np", "--ctx-size"} and flags & set(PORT) else "none"


def read_profile(image: str, words: Sequence[str], env: Mapping[str, str], gpus: int) -> Profile:
    """The engine that these words start. `gpus` is how many the container was given."""
    args = _Args(words)
    kind = kind_of(words, image)
    model = args.one(MODEL) or args.positional("serve") or "model"
    context = args.number(CONTEXT) or 4096
    slots = args.number(SLOTS) or {"vllm": 256, "sglang": 64, "llamacpp": 1, "none": 1}[kind]
    keys = args.many(KEY) or tuple(env[k] for k in KEY_ENV if env.get(k))
    base = Profile(
        kind=kind,
        port=args.number(PORT) or DEFAULT_PORT[kind],
        served=args.many(NAME) or (model,),
        model=model,
        context=context,
        slots=slots,
        kv_tokens=args.number(POOL) or (context if kind != "vllm" else 2 * context),
        api_keys=keys,
        metrics=kind == "vllm" or args.has("--metrics", "--enable-metrics"),
        reasoning=args.has("--reasoning-parser"),
        tensor_parallel=max(1, gpus),
        bad_start=_bad_start(kind, args, model),
        memory_fraction=args.decimal(FRACTION) or 0.9,
        prefix_cache=not args.has(*NO_CACHE),
        tells_cached=kind == "llamacpp" or args.has(*TELLS_CACHED),
        media=_media(kind, args),
    )
    if kind == "llamacpp":
        base = replace(base, shards=1, load_s=4.0, weights_mib=236, kv_mib=180, kernels_mib=16, version="b11669")
    if kind == "sglang":
        base = replace(base, version="0.5.23")
    return _with_seeds(base)


def _with_seeds(base: Profile) -> Profile:
    """Figures of the seeds for the serves they measured."""
    for row in _table():
        if re.search(row["match"], base.served[0]):
            figures = {k: v for k, v in row.items() if k != "match"}
            for name in ("decode", "prefill"):
                figures[name] = tuple((float(x), float(y)) for x, y in figures[name])
            return replace(base, reasoning=True, **figures)
    return base


@cache
def _table() -> tuple[Mapping[str, Any], ...]:
    text = files("anvil_tui.simbox").joinpath("profiles.toml").read_text(encoding="utf-8")
    return tuple(tomllib.loads(text)["profile"])


def _media(kind: Kind, args: _Args) -> Mapping[str, int]:
    """How many of each medium a request may hold; one that is not named has no limit."""
    if kind == "llamacpp":
        return {"image": 0, "video": 0} if not args.has("--mmproj") else {"video": 0}
    try:
        given = json.loads(args.one(MEDIA_LIMITS) or "{}")
    except ValueError:  # `_bad_start` ends such an engine
        return {}
    return {k: v if isinstance(v, int) else v["count"] for k, v in given.items()}


def _bad_start(kind: Kind, args: _Args, model: str) -> str:
    """Why these words cannot start, in the engine's own text; "" when they can."""
    if kind == "llamacpp":
        if args.has("--no-mmap"):
            return "error: invalid argument: --no-mmap"
        if re.search(r"missing|absent|no-such|does-not-exist|not-here", model):
            return f"E srv    load_model: failed to load model '{model}'"
    try:
        json.loads(args.one(MEDIA_LIMITS) or "{}")
    except ValueError:
        return (
            f"error: argument {MEDIA_LIMITS[kind == 'sglang']}: Value {args.one(MEDIA_LIMITS)} is not valid JSON"
        )
    return ""


class _Args:
    """`--flag value`, `--flag=value`, and flags that take several values."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)

    def has(self, *names: str) -> bool:
        return any(w.split("=", 1)[0] in names for w in self._words)

    def many(self, names: tuple[str, ...]) -> tuple[str, ...]:
        for at, word in enumerate(self._words):
            name, equals, value = word.partition("=")
            if name in names and equals:
                return (value,)
            if name in names:
                return tuple(self._values(at + 1))
        return ()

    def _values(self, start: int) -> list[str]:
        found: list[str] = []
        for word in self._words[start:]:
            if word.startswith("-"):
                break
            found.append(word)
        return found

    def one(self, names: tuple[str, ...]) -> str:
        return next(iter(self.many(names)), "")

    def number(self, names: tuple[str, ...]) -> int | None:
        text = self.one(names).replace("_", "")
        return int(text) if re.fullmatch(r"\d+", text) else None

    def decimal(self, names: tuple[str, ...]) -> float | None:
        text = self.one(names)
        return float(text) if re.fullmatch(r"\d*\.?\d+", text) else None

    def positional(self, after: str) -> str:
        if after in self._words[:-1]:
            word = self._words[self._words.index(after) + 1]
            return "" if word.startswith("-") else word
        return ""
