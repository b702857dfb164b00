"""What several readings of one engine add up to: rate, restarts, stalls, missed health checks. Pure.

A counter that goes down is an engine restart, also after a time without answers: no rate for that step, never a
negative one. Two readings closer than half an interval give no new rate; the base stays. Flat while requests run
or wait is a suspicion after `SUSPECT_S`, and a stall only after the time that a long prefill may take. An engine
whose counters move is at work, however late its health answers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from anvil_tui.core.box import Engine

SUSPECT_S = 2.0
STALL_FLOOR_S = 60.0
# A slow prefill; no token counter of vLLM or SGLang moves while one long prompt is being read.
PREFILL_TOKENS_PER_S = 2000.0
MISSES = 3


@dataclass(frozen=True, slots=True)
class Trail:
    """`rate` is in counter units (tokens or iterations) a second, None = not known yet or restarted.

    `total` is what the counter grew by since it was first seen, over restarts; `last` is what it was when it was
    last read. `moved_at_s` is the last moment without a suspicion: idle, or grown. `misses` counts health answers
    in a row that were not ready while no counter moved.
    """

    at_s: float
    started_at: str | None = None
    base_at_s: float | None = None
    base: float | None = None
    value: float | None = None
    last: float | None = None
    prompt: float | None = None
    rate: float | None = None
    total: float = 0.0
    restarts: int = 0
    moved_at_s: float = 0.0
    was_ready: bool = False
    misses: int = 0

    @property
    def flat_s(self) -> float:
        """Seconds without progress while requests ran; 0 below two readings `SUSPECT_S` apart."""
        flat = self.at_s - self.moved_at_s
        return flat if flat >= SUSPECT_S else 0.0

    def stalled(self, context_tokens: int | None) -> bool:
        return self.flat_s >= stall_limit_s(context_tokens)


def stall_limit_s(context_tokens: int | None) -> float:
    """How long no progress is normal: one full-context prefill, at least a minute.

    >>> stall_limit_s(32_768), stall_limit_s(600_000)
    (60.0, 300.0)
    """
    return max(STALL_FLOOR_S, (context_tokens or 0) / PREFILL_TOKENS_PER_S)


def advance(
    trail: Trail | None, at_s: float, engine: Engine, interval_s: float, started_at: str | None = None
) -> Trail:
    """The trail after one more reading; `started_at` is the container's start, a new one begins anew."""
    if trail is None:
        trail = Trail(at_s, started_at, moved_at_s=at_s)
    elif trail.started_at != started_at:
        begun = None if trail.last is None else 0.0
        trail = Trail(
            at_s, started_at, last=begun, total=trail.total, restarts=trail.restarts + 1, moved_at_s=at_s
        )  # fmt: skip
    ready = engine.http == "ready"
    moved = engine.progress is None or (engine.progress, engine.prompt) != (trail.value, trail.prompt)
    grown = engine.progress is not None and trail.value is not None and moved
    counted = _count(trail, at_s, engine.progress, interval_s)
    return replace(
        counted,
        at_s=at_s,
        prompt=engine.prompt,
        moved_at_s=trail.moved_at_s if ready and not moved and (engine.running or engine.waiting) else at_s,
        was_ready=trail.was_ready or ready,
        misses=0 if ready or grown else trail.misses + 1,
    )


def _count(trail: Trail, at_s: float, value: float | None, interval_s: float) -> Trail:
    if value is None:
        return replace(trail, base_at_s=None, base=None, value=None, rate=None)
    restarted = trail.last is not None and value < trail.last
    grown = replace(
        trail,
        value=value,
        last=value,
        total=trail.total + (0 if trail.last is None else value if restarted else value - trail.last),
        restarts=trail.restarts + restarted,
    )
    if restarted or trail.base is None or trail.base_at_s is None:
        return replace(grown, base_at_s=at_s, base=value, rate=None)
    elapsed = at_s - trail.base_at_s
    if elapsed < interval_s / 2 or elapsed <= 0:
        return grown
    return replace(grown, rate=(value - trail.base) / elapsed, base_at_s=at_s, base=value)
