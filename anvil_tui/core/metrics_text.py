"""Prometheus text of an inference engine to the few figures the console shows. Pure.

Each wanted line is parsed alone, so a bad one loses its own figure. Counts are summed over data-parallel
ranks; KV usage is their maximum (one full rank preempts, whatever the others have free) with the mean beside.
A figure without a source stays None: it is unknown, not zero. So does one of which a rank is unreadable: a drain
ends at a sum of 0, and a sum with a hole in it is too small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from anvil_tui.core.recipe import EngineKind


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """`progress` and `generated` are counters (tokens; llama.cpp's progress counts decode calls, which move
    during a request where its token counter does not). `kv_used` is a fraction as measured, above 1 included.
    `series` counts the engine's own samples: 0 means that the engine exports none.
    """

    running: int | None = None
    waiting: int | None = None
    kv_used: float | None = None
    kv_mean: float | None = None
    capacity_tokens: int | None = None
    context_tokens: int | None = None
    progress: float | None = None
    generated: float | None = None
    prompt: float | None = None
    preempted: float | None = None
    series: int = 0
    bad_lines: int = 0
    first_bad: str = ""

    @property
    def kv_out_of_range(self) -> bool:
        """The engine says less than nothing or more than all: shown, but no gate may rest on it."""
        return self.kv_used is not None and not 0.0 <= self.kv_used <= 1.0


@dataclass(frozen=True, slots=True)
class _Names:
    """Metric names of one engine, without its prefix; the first name that has samples is used, never two."""

    prefix: str
    running: tuple[str, ...]
    waiting: tuple[str, ...]
    kv_used: tuple[str, ...] = ()
    capacity: tuple[str, ...] = ()
    context: tuple[str, ...] = ()
    progress: tuple[str, ...] = ()
    generated: tuple[str, ...] = ()
    prompt: tuple[str, ...] = ()
    preempted: tuple[str, ...] = ()
    info: str = ""

    def wanted(self) -> frozenset[str]:
        groups = (self.running, self.waiting, self.kv_used, self.capacity, self.context, self.progress)
        more = (self.generated, self.prompt, self.preempted, (self.info,) if self.info else ())
        return frozenset(self.prefix + name for group in groups + more for name in group)


_NAMES: Mapping[EngineKind, _Names] = {
    EngineKind.VLLM: _Names(
        "vllm:",
        running=("num_requests_running",),
        waiting=("num_requests_waiting",),
        kv_used=("kv_cache_usage_perc", "gpu_cache_usage_perc"),
        progress=("generation_tokens_total",),
        generated=("generation_tokens_total",),
        prompt=("prompt_tokens_total",),
        preempted=("num_preemptions_total",),
        info="cache_config_info",
    ),
    EngineKind.SGLANG: _Names(
        "sglang:",
        running=("num_running_reqs",),
        waiting=("num_queue_reqs",),
        kv_used=("token_usage",),
        capacity=("max_total_num_tokens",),
        context=("context_len",),
        progress=("realtime_tokens_total", "generation_tokens_total"),
        generated=("generation_tokens_total",),
        prompt=("prompt_tokens_total",),
        preempted=("num_retracted_requests_total",),
    ),
    EngineKind.LLAMACPP: _Names(
        "llamacpp:",
        running=("requests_processing",),
        waiting=("requests_deferred",),
        kv_used=("kv_cache_usage_ratio",),
        progress=("n_decode_total", "tokens_predicted_total"),
        generated=("tokens_predicted_total",),
        prompt=("prompt_tokens_total",),
    ),
}


@dataclass(frozen=True, slots=True)
class Sample:
    labels: Mapping[str, str]
    value: float


class _Scrape:
    """The wanted samples of one scrape by name."""

    def __init__(self, names: _Names, text: str) -> None:
        self.names = names
        self.by_name: dict[str, dict[frozenset[tuple[str, str]], Sample]] = {}
        self.holes: set[str] = set()
        self.series = self.bad_lines = 0
        self.first_bad = ""
        wanted = names.wanted()
        for line in text.split("\n"):
            bare = line.lstrip(" \t")
            if bare.startswith(names.prefix):
                self.series += 1
                name = bare.partition("{")[0].split(None, 1)[0]
                if name in wanted:
                    self._parse(name, bare)

    def _parse(self, name: str, line: str) -> None:
        """A series that comes twice counts once, the later one."""
        try:
            for family in text_string_to_metric_families(line + "\n"):
                for sample in family.samples:
                    if math.isfinite(sample.value):
                        key = frozenset(sample.labels.items())
                        self.by_name.setdefault(name, {})[key] = Sample(sample.labels, sample.value)
                    else:
                        self.holes.add(name)
        except (ValueError, IndexError, KeyError):
            self.holes.add(name)
            self.bad_lines += 1
            self.first_bad = self.first_bad or line[:200]

    def values(self, names: tuple[str, ...]) -> list[float]:
        """One value a data-parallel rank (or a mode, a priority): of the first name that has any."""
        for name in (self.names.prefix + name for name in names):
            if name in self.holes:
                return []
            if samples := self.by_name.get(name):
                return [sample.value for sample in _first_ranks(list(samples.values()))]
        return []

    def total(self, names: tuple[str, ...]) -> float | None:
        """Of counts and counters, none of which can be below 0."""
        found = self.values(names)
        return sum(found) if found and min(found) >= 0 else None

    def count(self, names: tuple[str, ...]) -> int | None:
        found = self.total(names)
        return None if found is None else math.ceil(found)


def _first_ranks(samples: list[Sample]) -> list[Sample]:
    """Ranks of one tensor- or pipeline-parallel group repeat the same figure: keep the lowest of each group."""

    def rank(sample: Sample) -> tuple[int, int]:
        return _rank(sample.labels.get("pp_rank")), _rank(sample.labels.get("tp_rank"))

    lowest: dict[str, tuple[int, int]] = {}
    for sample in samples:
        group = sample.labels.get("dp_rank", "")
        lowest[group] = min(lowest.get(group, rank(sample)), rank(sample))
    return [sample for sample in samples if rank(sample) == lowest[sample.labels.get("dp_rank", "")]]


def _rank(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0


def engine_metrics(kind: EngineKind, text: str) -> EngineMetrics:
    """The figures of one scrape; all None for an engine kind whose metrics are not known."""
    names = _NAMES.get(kind)
    if names is None:
        return EngineMetrics()
    scrape = _Scrape(names, text)
    usage = scrape.values(names.kv_used)
    context = scrape.values(names.context)
    return EngineMetrics(
        running=scrape.count(names.running),
        waiting=scrape.count(names.waiting),
        kv_used=max(usage) if usage else None,
        kv_mean=sum(usage) / len(usage) if usage else None,
        capacity_tokens=_capacity(scrape),
        context_tokens=round(min(context)) if context else None,
        progress=scrape.total(names.progress),
        generated=scrape.total(names.generated),
        prompt=scrape.total(names.prompt),
        preempted=scrape.total(names.preempted),
        series=scrape.series,
        bad_lines=scrape.bad_lines,
        first_bad=scrape.first_bad,
    )


def _capacity(scrape: _Scrape) -> int | None:
    """KV tokens over all ranks. vLLM states them as a label of each engine (0.25.1 and later)."""
    if not scrape.names.info:
        return scrape.count(scrape.names.capacity)
    samples = scrape.by_name.get(scrape.names.prefix + scrape.names.info, {})
    sizes = [sample.labels.get("kv_cache_size_tokens", "") for sample in samples.values()]
    return sum(map(int, sizes)) if sizes and all(size.isdigit() for size in sizes) else None
