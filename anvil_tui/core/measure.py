"""From the answers of a lane to its row. Percentiles are nearest rank; seconds and tokens; None stays None.

What the figures mean stands in `core.lanes`. Rates and latencies are those of the answers that did not fail;
failures are counted beside them, and `ttft_failed_p95_s` takes them as infinitely late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil, inf
from typing import Literal, Protocol

from anvil_tui.core.chat import ChatAnswer, decode_seeds_tok_s, decode_tok_s
from anvil_tui.core.lanes import P95_NEEDS, CacheState, Instrument, LaneRow, Spread

STEADY_SHARE = 0.9
"""Of the streams, in flight, for a moment to count as steady."""


class TimedAnswer(Protocol):
    """`ports.LoadAnswer`: `began_s` is when its stream decided to send, from the start of the lane."""

    @property
    def n(self) -> int: ...
    @property
    def began_s(self) -> float: ...
    @property
    def answer(self) -> ChatAnswer: ...


class TimedRun(Protocol):
    """`ports.LoadRun`."""

    @property
    def answers(self) -> Sequence[TimedAnswer]: ...
    @property
    def wall_s(self) -> float: ...
    @property
    def instrument(self) -> Instrument: ...


def nearest_rank(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed. Of no values: ValueError."""
    if not values:
        raise ValueError("no values")
    return sorted(values)[max(1, ceil(round(share * len(values), 9))) - 1]


def spread(values: Iterable[float | None]) -> Spread | None:
    """Order statistics of the values that are known; None when none is."""
    known = sorted(float(v) for v in values if v is not None)
    if not known:
        return None
    many = len(known) >= P95_NEEDS
    return Spread(
        n=len(known), low=known[0], p50=nearest_rank(known, 0.5), high=known[-1],
        p5=nearest_rank(known, 0.05) if many else None, p95=nearest_rank(known, 0.95) if many else None,
    )  # fmt: skip


def chunk_gaps_s(answer: ChatAnswer) -> tuple[float, ...]:
    """Times between the reads that bore tokens. Not the time of a token: a read may bear several."""
    return tuple(b - a for a, b in pairwise(answer.token_times_s) if b > a)


def e2e_tok_s(answer: ChatAnswer) -> float | None:
    """Output tokens over the whole time of the request, TTFT inside."""
    return answer.completion_tokens / answer.e2e_s if answer.completion_tokens and answer.e2e_s else None


def prefill_tok_s(answer: ChatAnswer) -> float | None:
    """Prompt tokens that were not cached over TTFT, queueing included; None where the cache is unknown."""
    if answer.cached_tokens is None or answer.prompt_tokens is None or not answer.ttft_any_s:
        return None
    computed = answer.prompt_tokens - answer.cached_tokens
    return computed / answer.ttft_any_s if computed > 0 else None


def row_of(
    run: TimedRun, *, lane: str, streams: int, label: str = "", loop: Literal["closed", "burst"] = "closed",
    nominal_tokens: int | None = None, output: Literal["forced", "not forced", "unknown"] = "unknown",
    cache: CacheState = "unknown", error_ms: tuple[float, float] | None = None,
    failed: Callable[[ChatAnswer], bool] = lambda answer: answer.error is not None,
) -> LaneRow:  # fmt: skip
    """The row of one lane. `failed` says of an answer that it does not count; a broken one never does.

    `error_ms` is what `LoadGenerator.error_ms` gave for as many streams just before.
    """
    good = [a for a in run.answers if a.answer.error is None and not failed(a.answer)]
    answers = [a.answer for a in good]
    bad = len(run.answers) - len(good)
    first = {a.n for a in sorted(run.answers, key=lambda a: (a.began_s, a.n))[:streams]}
    instrument = run.instrument
    if error_ms is not None:
        instrument = replace(instrument, error_p50_ms=error_ms[0], error_p95_ms=error_ms[1])
    return LaneRow(
        lane=lane, streams=streams, requests=len(run.answers), failed=bad, loop=loop, label=label,
        nominal_tokens=nominal_tokens, output=output, cache=cache, wall_s=run.wall_s, instrument=instrument,
        prompt_tokens=spread(a.prompt_tokens for a in answers),
        completion_tokens=spread(a.completion_tokens for a in answers),
        cached_tokens=spread(a.cached_tokens for a in answers),
        queue_s=spread(a.answer.client_queue_s for a in run.answers),
        ttft_any_s=spread(a.ttft_any_s for a in answers),
        ttft_visible_s=spread(a.ttft_visible_s for a in answers),
        ttft_failed_p95_s=_with_failures(answers, bad),
        e2e_s=spread(a.e2e_s for a in answers),
        e2e_tok_s=spread(e2e_tok_s(a) for a in answers),
        decode_tok_s=spread(decode_tok_s(a) for a in answers),
        decode_seeds_tok_s=spread(decode_seeds_tok_s(a) for a in answers),
        chunk_gap_s=spread(gap for a in answers for gap in chunk_gaps_s(a)),
        prefill_tok_s=spread(prefill_tok_s(a) for a in answers),
        aggregate_tok_s=_rate(answers, run.wall_s),
        steady_tok_s=_steady(run, good, streams),
        first_wave_ttft_s=spread(a.answer.ttft_any_s for a in good if a.n in first),
    )  # fmt: skip


def _with_failures(good: Sequence[ChatAnswer], bad: int) -> float | None:
    """p95 of TTFT with failures, and answers that never began, as infinitely late."""
    values = [inf if a.ttft_any_s is None else a.ttft_any_s for a in good] + [inf] * bad
    if len(values) < P95_NEEDS:
        return None
    found = nearest_rank(values, 0.95)
    return None if found == inf else found


def _rate(good: Sequence[ChatAnswer], seconds: float) -> float | None:
    """Tokens a second; None when one answer does not say how many it had."""
    counts = [a.completion_tokens for a in good]
    known = [n for n in counts if n is not None]
    return sum(known) / seconds if known and len(known) == len(counts) and seconds > 0 else None


def _steady(run: TimedRun, good: Sequence[TimedAnswer], streams: int) -> float | None:
    """Tokens a second over the moments at which at least `STEADY_SHARE` of the streams were in flight."""
    spans = list(_steady_spans(run.answers, streams))
    seconds = sum(end - start for start, end in spans)
    untold = any(a.answer.completion_tokens is None or not a.answer.token_times_s for a in good)
    if not good or seconds <= 0 or untold:
        return None
    within, at, tokens = [*spans, (inf, inf)], 0, 0.0
    for stamp, share in sorted(moment for a in good for moment in _token_moments(a)):
        while within[at][1] < stamp:
            at += 1
        tokens += share if within[at][0] < stamp else 0.0
    return tokens / seconds


def _steady_spans(answers: Sequence[TimedAnswer], streams: int) -> Iterator[tuple[float, float]]:
    """Disjoint (from, to) in seconds of the lane. A request is in flight from its last byte sent to its end."""
    moves: list[tuple[float, int]] = []
    for a in answers:
        if a.answer.end_s:
            sent = a.began_s + (a.answer.client_queue_s or 0.0)
            moves += [(sent, 1), (sent + a.answer.end_s, -1)]
    flying, since, needed = 0, None, ceil(STEADY_SHARE * streams - 1e-9)
    for stamp, step in sorted(moves, key=lambda m: (m[0], -m[1])):
        flying += step
        if flying >= needed and since is None:
            since = stamp
        elif flying < needed and since is not None:
            yield since, stamp
            since = None


def _token_moments(a: TimedAnswer) -> Iterator[tuple[float, float]]:
    """(second of the lane, tokens) of each chunk: its share of the answer's tokens."""
    sent, times = a.began_s + (a.answer.client_queue_s or 0.0), a.answer.token_times_s
    for stamp in times:
        yield sent + stamp, (a.answer.completion_tokens or 0) / len(times)
