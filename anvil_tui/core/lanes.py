"""One measured row of a load lane, and the instrument that measured it. Pure values; seconds and tokens.

Definitions: TTFT and E2E run from the last byte of the request written; `any` is the first token-bearing chunk,
`visible` the first with content or a tool call; decode is tokens after the first chunk over the time after it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

CacheState = Literal["cold", "warm", "shared", "unknown"]
"""What the prefix cache held: nothing of the prompt, all of it from before, a common head, or nobody knows."""

P95_NEEDS = 59
"""Below 59 samples p95 has no 95 % upper bound: the maximum and n are shown instead."""


@dataclass(frozen=True, slots=True)
class Spread:
    """`n` values by their order statistics (nearest rank). `p5` and `p95` are None below `P95_NEEDS` values.

    `low` and `high` are None only in a historical row whose record gives the median alone.
    """

    n: int
    low: float | None
    p50: float
    high: float | None
    p5: float | None = None
    p95: float | None = None


@dataclass(frozen=True, slots=True)
class Instrument:
    """How good the load generator was during the lane: milliseconds, CPU seconds of its process.

    `error_*` is what it read too much of a known 200.0 ms TTFT at the same number of streams just before.
    `invalid` says why the lane's times must not be used; "" = they may.
    """

    lag_p50_ms: float
    lag_p99_ms: float
    lag_max_ms: float
    collections: int
    collection_max_ms: float
    cpu_s: float
    wall_s: float
    rss_mib: float
    error_p50_ms: float | None = None
    error_p95_ms: float | None = None
    invalid: str = ""


@dataclass(frozen=True, slots=True)
class LaneRow:
    """One row: so many requests of one shape under one load.

    `source` is `measured`, or names the record that a historical row was taken from; `missing` names what such
    a record does not say. `ttft_failed_p95_s` counts failures as infinitely late (None = infinite or too few).
    `aggregate_tok_s` is output tokens over the wall time of the lane, `steady_tok_s` over the window in which
    at least 90 % of the streams were in flight. `kv_peak` is a fraction; `*_peak` are the engine's own figures.
    `label` names the row; `notes` are sentences without which it would be misread.
    """

    lane: str
    streams: int
    requests: int
    failed: int = 0
    loop: Literal["closed", "burst"] = "closed"
    label: str = ""
    nominal_tokens: int | None = None
    prompt_tokens: Spread | None = None
    completion_tokens: Spread | None = None
    output: Literal["forced", "not forced", "unknown"] = "unknown"
    cache: CacheState = "unknown"
    cached_tokens: Spread | None = None
    queue_s: Spread | None = None
    ttft_any_s: Spread | None = None
    ttft_visible_s: Spread | None = None
    ttft_failed_p95_s: float | None = None
    e2e_s: Spread | None = None
    e2e_tok_s: Spread | None = None
    decode_tok_s: Spread | None = None
    decode_seeds_tok_s: Spread | None = None
    chunk_gap_s: Spread | None = None
    prefill_tok_s: Spread | None = None
    aggregate_tok_s: float | None = None
    steady_tok_s: float | None = None
    first_wave_ttft_s: Spread | None = None
    kv_peak: float | None = None
    running_peak: int | None = None
    waiting_peak: int | None = None
    preempted: int | None = None
    wall_s: float | None = None
    instrument: Instrument | None = None
    source: str = "measured"
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def drawable(row: LaneRow) -> LaneRow:
    """Times that must not be used are not drawn."""
    spoilt = row.instrument is not None and row.instrument.invalid
    return replace(row, decode_tok_s=None, ttft_any_s=None) if spoilt else row
