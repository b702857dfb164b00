"""What a lane measures and what its rows prove: shapes, cache and output states, predeclared rules. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Literal

from anvil_tui.core.box import KvCapacity
from anvil_tui.core.capacity import pool_doubt
from anvil_tui.core.gates import FailureClass, Gate
from anvil_tui.core.lanes import CacheState, LaneRow, Spread
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.verdicts import Judged, failed

Prefix = Literal["unique", "shared", "warm"]

COMPLETION_TOKENS = 256
FIRST_DEPTH = 4096
END_SHARE = 0.99
"""Of what the context leaves beside the answer: so deep goes a sweep without depths of its own."""

MOST_TOKENS = 1 << 24
"""Prompt tokens of one row: about 90 MB of text."""

SHARED_SHARE = 0.9
"""Of a shared prompt: the common head."""

HIT_SHARE = 0.8
"""Of what could be cached: from here on a request counts as one that found it. Engines keep whole blocks."""

OFF_NOMINAL = 0.02
QUEUED_SAMPLES = 2
"""One reading that shows a waiting request may be the moment of its arrival."""

MAX_TOLD = 3
UNUSABLE = "its times cannot be used"
BUSY = "the machine that measures was too busy; such times say nothing of the serve: run it again when it is idle"


@dataclass(frozen=True, slots=True)
class Shape:
    """One row to be measured; `prefix` is what is arranged, which is not yet what the engine's cache holds."""

    streams: int
    tokens: int
    prefix: Prefix
    requests: int
    completion: int
    burst: bool = False

    @property
    def label(self) -> str:
        return f"C{self.streams} {self.tokens:,} {self.prefix}"


def planned(gate: Gate, recipe: Recipe) -> tuple[Shape, ...]:
    """The rows in their order: depths, within a depth the streams, unique prompts before shared ones."""
    context, most = recipe.envelope.context_tokens, recipe.envelope.max_output_tokens or COMPLETION_TOKENS
    completion = gate.completion_tokens or min(COMPLETION_TOKENS, most, context // 4)
    depths = gate.prompt_tokens or depths_to(int((context - completion) * END_SHARE))
    prefixes: tuple[Prefix, ...] = ("unique", "shared") if gate.kind == "prefix-cache" else (gate.prefix,)
    return tuple(
        Shape(
            streams, depth, prefix, streams if gate.burst else max(gate.requests, streams), completion, gate.burst
        )
        for depth in depths
        for streams in _streams(gate, recipe)
        for prefix in prefixes
    )


def depths_to(end: int) -> tuple[int, ...]:
    """From 4K doubled up to the end.

    >>> depths_to(25_000)
    (4096, 8192, 16384, 25000)
    """
    steps = (FIRST_DEPTH << n for n in range(32))
    return (*takewhile(lambda depth: depth < 0.75 * end, steps), end)


def _streams(gate: Gate, recipe: Recipe) -> tuple[int, ...]:
    if gate.kind == "depth-sweep":
        return (1,)
    if gate.kind == "ladder" and "streams" not in gate.model_fields_set:
        top = min(256, recipe.envelope.concurrency)
        return (*takewhile(lambda streams: streams < top, (1 << n for n in range(9))), top)
    return gate.streams


def why_not(gate: Gate, recipe: Recipe) -> str:
    """Why rows of this gate could not be run on this recipe; "" = all can."""
    limits, shapes = recipe.envelope, planned(gate, recipe)
    completion = shapes[0].completion
    if limits.max_output_tokens and completion > limits.max_output_tokens:
        most = f"the recipe's max_output_tokens {limits.max_output_tokens:,}"
        return f"completion_tokens {completion:,} is more than {most}"
    deep = list(dict.fromkeys(s.tokens for s in shapes if s.tokens + completion > limits.context_tokens))
    if deep:
        named = ", ".join(f"{depth:,}" for depth in deep)
        context = f"the recipe's context of {limits.context_tokens:,}"
        return f"prompts of {named} and {completion:,} tokens of answer exceed {context}"
    wide = [s for s in shapes if s.tokens * s.requests > MOST_TOKENS]
    if wide:
        first = wide[0]
        return f"{first.label}: {first.requests:,} requests exceed {MOST_TOKENS:,} prompt tokens in one row"
    return ""


@dataclass(frozen=True, slots=True)
class Held:
    """What of a prompt the cache could hold, in tokens: `base` the chat template's own, `head` the common part."""

    base: float
    head: float
    whole: float


def cache_state(prefix: Prefix, cached: Sequence[int | None], tells: bool, held: Held) -> tuple[CacheState, str]:
    """(state, sentence where it is not what was arranged), by the engine's own counts of each request.

    `tells`: the engine was seen to report cached tokens, so that one that names none had none. Tokens of the chat
    template, which every request has, are no part of the prompt.
    """
    if not tells:
        return "unknown", "the engine does not report cached tokens"
    counts = [n or 0 for n in cached]
    if not counts:
        return "unknown", ""
    low, high = min(counts), max(counts)
    told = f"{low:,} to {high:,} tokens were cached" if low != high else f"{low:,} tokens were cached"
    if high <= held.base:
        return "cold", "" if prefix == "unique" else f"arranged as {prefix}, found cold: {told}"
    if prefix == "unique":
        return "unknown", f"not cold: {told}"
    if low >= HIT_SHARE * (held.whole if prefix == "warm" else held.head):
        return prefix, ""
    return "unknown", f"arranged as {prefix}, found mixed: {told}"


def output_state(
    forced: bool, asked: int, counts: Sequence[int | None]
) -> tuple[Literal["forced", "not forced", "unknown"], str]:
    """(state, sentence): forced only when the engine was told to and every answer has exactly that length."""
    known = [n for n in counts if n is not None]
    if not known or len(known) < len(counts):
        return "unknown", "the engine does not report completion tokens"
    if forced and set(known) == {asked}:
        return "forced", ""
    return "not forced", f"answers of {min(known):,} to {max(known):,} tokens, {asked:,} asked"


def notes_of(shape: Shape, recipe: Recipe, row: LaneRow, readings: int, queued: int) -> list[str]:
    """What a reader of the row must know; of `readings` of the engine meanwhile, `queued` showed a queue."""
    promised, notes = recipe.envelope.concurrency, []
    waited = f"up to {row.waiting_peak} requests waited in the engine"
    if shape.streams > promised:
        notes.append(f"C{shape.streams} is above the recipe's concurrency {promised}")
    if queued >= QUEUED_SAMPLES:
        within = f" although C{shape.streams} is within the recipe's concurrency {promised}"
        notes.append(waited + ("" if shape.streams > promised else within))
    if row.running_peak is None:
        why = "no reading fell into the lane" if readings else "the engine showed no metrics"
        notes.append(f"queue and KV use are unknown: {why}")
    elif row.running_peak > shape.streams:
        notes.append(f"other requests ran meanwhile: {row.running_peak} at once, {shape.streams} were ours")
    if row.preempted:
        notes.append(f"{row.preempted} preemptions")
    got = row.prompt_tokens
    if got and abs(got.p50 - shape.tokens) > OFF_NOMINAL * shape.tokens:
        notes.append(f"prompts of {got.p50:,.0f} tokens, nominal {shape.tokens:,}")
    return notes


def notes_of_start(
    shape: Shape, pool: KvCapacity | None, limit: int | None, layers: tuple[int, int] | None, odd: float | None
) -> list[str]:
    """What the engine said of itself that a reader of the row must know; `odd` is a KV use below 0 or above 1."""
    notes, each = [], shape.tokens + shape.completion
    held = pool.tokens // each if pool and pool.tokens and not pool.inconsistent else None
    fit = min((n for n in (limit, held) if n is not None), default=None)
    if fit is not None and fit < shape.streams:
        notes.append(
            f"the engine can run C{fit} of these at once (running limit {limit or 'n/a'}, room in its KV pool for "
            f"{'n/a' if held is None else held})"
        )
    if layers and layers[0] < layers[1]:
        notes.append(f"{'partly_on_gpu' if layers[0] else 'not_on_gpu'}: {layers[0]} of {layers[1]} layers")
    if odd is not None:
        notes.append(f"the engine tells a KV use of {100 * odd:.1f} %, which cannot be")
    return notes


def doubt(gate: Gate, shape: Shape, pool: KvCapacity | None, odd: float | None) -> str:
    """Why a capacity row that is good proves no capacity: the figures that it would rest on cannot be right."""
    if gate.kind != "capacity":
        return ""
    if odd is not None:
        return f"a KV use of {100 * odd:.1f} % cannot be, so what the pool holds is not known"
    head = int(SHARED_SHARE * shape.tokens) if shape.prefix == "shared" else 0
    return pool_doubt(pool, shape.streams * (shape.tokens + shape.completion - head) + head)


@dataclass(frozen=True, slots=True)
class _Rule:
    name: str
    limit: float | None
    of: Callable[[LaneRow], float | None]
    unit: str
    digits: int
    at_most: bool = False

    def breach(self, row: LaneRow) -> str:
        """By how much the row breaks the rule; "" = it holds."""
        got, limit = self.of(row), self.limit
        if limit is None or got is None or (got <= limit if self.at_most else got >= limit):
            return ""
        word = "most" if self.at_most else "least"
        shown = f"{got:.{self.digits}f}"
        return f"{self.name} {shown} {self.unit}, at {word} {limit:g} asked ({100 * (got / limit - 1):+.1f} %)"


def _p50(of: Spread | None) -> float | None:
    return None if of is None else of.p50


def _rules(gate: Gate) -> tuple[_Rule, ...]:
    return (
        _Rule("median TTFT", gate.ttft_at_most_s, lambda r: _p50(r.ttft_any_s), "s", 3, at_most=True),
        _Rule(
            "median decode",
            gate.decode_at_least_tok_s,
            lambda r: _p50(r.decode_tok_s),
            "tok/s",
            1,
        ),
        _Rule("aggregate", gate.aggregate_at_least_tok_s, lambda r: r.aggregate_tok_s, "tok/s", 1),
    )


def judge_row(gate: Gate, row: LaneRow, broken: Sequence[Judged]) -> Judged:
    """One row against the rules of its gate. `broken` are the requests that did not complete."""
    if row.failed > gate.failed_at_most:
        return _incomplete(row, broken)
    if row.instrument and row.instrument.invalid:
        return Judged("errored", None, f"{row.label}: {row.instrument.invalid}; {UNUSABLE}")
    rules = [r for r in _rules(gate) if r.limit is not None]
    if breaches := [why for rule in rules if (why := rule.breach(row))]:
        return failed(FailureClass.CHECK, f"{row.label}: {', '.join(breaches)}")
    if untold := [rule.name for rule in rules if rule.of(row) is None]:
        return Judged("unverified", None, f"{row.label}: no figure for {', '.join(untold)}")
    return _prefix_claim(row) if gate.kind == "prefix-cache" else Judged("ok", None, _told(row))


def _incomplete(row: LaneRow, broken: Sequence[Judged]) -> Judged:
    """The serve's doing if one of them was; else the way to it failed."""
    worst = next((j for j in broken if j.outcome == "failed"), broken[0] if broken else Judged("errored"))
    note = f"{row.label}: {row.failed} of {row.requests} requests did not complete"
    return Judged(worst.outcome, worst.failure, f"{note}, first: {worst.note}" if worst.note else note)


def _prefix_claim(row: LaneRow) -> Judged:
    """A unique row must be cold and a shared one must have found its head, by the engine's own counts."""
    arranged = row.label.rsplit(" ", 1)[-1]
    if row.cache == ("cold" if arranged == "unique" else arranged):
        return Judged("ok", None, _told(row))
    why = f"{row.label}: {'; '.join(n for n in row.notes if 'cached' in n)}"
    if "does not report" in why:
        return Judged("unverified", None, why)
    return failed(FailureClass.CHECK, why) if arranged == "shared" else Judged("errored", None, why)


def _told(row: LaneRow) -> str:
    parts = [f"{row.label}: {row.requests - row.failed}/{row.requests}"]
    if row.ttft_any_s:
        parts.append(f"TTFT {row.ttft_any_s.p50:.3f} s")
    if row.decode_tok_s:
        parts.append(f"decode {row.decode_tok_s.p50:.1f} tok/s")
    if row.aggregate_tok_s:
        parts.append(f"aggregate {row.aggregate_tok_s:.1f} tok/s")
    return " ".join([parts[0], ", ".join(parts[1:])]).strip()


_WORST = ("failed", "errored", "unsupported", "unverified", "ok")


def verdict(judged: Sequence[Judged], planned_rows: int, cancelled: bool) -> Judged:
    """One verdict over the rows that were measured: the worst. A gate cut short without a fault has none."""
    worst = next((j for outcome in _WORST for j in judged if j.outcome == outcome), None)
    if cancelled and (worst is None or worst.outcome in ("ok", "unverified")):
        return Judged("cancelled", None, f"after {len(judged)} of {planned_rows} rows")
    if worst is None:
        return Judged("errored", None, "no row was measured")
    alike = [j.note for j in judged if j.outcome == worst.outcome]
    notes = sorted(alike, key=lambda note: note.endswith(UNUSABLE))  # what broke before what was only imprecise
    more = len(notes) - MAX_TOLD
    told = "; ".join(notes[:MAX_TOLD]) + (f"; and {more} more rows" if more > 0 else "")
    return replace(worst, note=told)
