"""Whether two arms may be compared at all: what differs between them, and what each difference means. Pure.

An arm is one serve in one or more runs. Nothing is pooled: runs of one arm must be runs of the same thing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from anvil_tui.core.arguments import arguments_apart
from anvil_tui.core.arguments import shown as shown
from anvil_tui.core.bundle import Bundle, Identity
from anvil_tui.core.gates import Observation
from anvil_tui.core.lanes import LaneRow, Spread
from anvil_tui.core.recipe import Recipe

Standing = Literal["same", "named", "confounds", "warning", "blocking"]

GROUPS: Mapping[str, tuple[str, ...]] = {
    "model": ("model", "revision", "quantization"),
    "image": ("image", "image_id", "engine", "engine_version"),
    "gpus": ("gpus", "gpu_uuids"),
    "driver": ("driver", "cuda"),
    "host": ("kernel", "docker"),
    "envelope": ("context_tokens", "max_output_tokens", "concurrency"),
    "kv": ("kv_type",),
    "speculation": ("speculation",),
}
"""What can be the variable under test, and the fields of the identity that make it."""

ARGUMENTS = "arguments"
VARIABLES = (*GROUPS, ARGUMENTS)


def group_of(field: str) -> str:
    """The variable that a field of the identity belongs to; a variable is its own."""
    return next((group for group, fields in GROUPS.items() if field in fields), field)


OUTPUT, OUTPUT_LENGTH = "output", "output length"
PROMPT_TOKENS_APART, SALT_TOKENS = 0.01, 4
OUTPUT_APART = 0.05
FINISH_APART = 0.05
CACHED_APART = 0.05
"""Of the prompt: from here on two arms found different things in the prefix cache."""


@dataclass(frozen=True, slots=True)
class Arm:
    """`runs` in the order of their time."""

    name: str
    runs: tuple[Bundle, ...]

    @property
    def historical(self) -> bool:
        return any(run.kind == "historical" for run in self.runs)


@dataclass(frozen=True, slots=True)
class FieldRow:
    """One thing that two arms have or do not have in common. `why` is empty for what is the same."""

    field: str
    a: str
    b: str
    standing: Standing
    why: str = ""

    def __str__(self) -> str:
        sides = [f"{arm} {text}" for arm, text in (("A", self.a), ("B", self.b)) if text]
        return f"{self.field}: {', '.join(sides)}" + (f" ({self.why})" if self.why else "")


# the serve


def identity_rows(a: Arm, b: Arm, varies: str, recipes: Mapping[str, Recipe]) -> tuple[FieldRow, ...]:
    """The serves of two arms field by field.

    `varies` is the variable under test, "" = whatever differs, if it is one group alone: several are confounded.
    """
    mine, theirs = a.runs[0].identity, b.runs[0].identity
    groups = [g for g, fields in GROUPS.items() if any(_differs(mine, theirs, f) for f in fields)]
    arguments = arguments_apart(mine, theirs, recipes)
    found = groups or ([ARGUMENTS] if arguments else [])
    under_test = varies or (found[0] if len(found) == 1 else "")
    rows = []
    for group, fields in GROUPS.items():
        rows += [r for f in fields if (r := _identity_row(mine, theirs, f, group, under_test))]
    if arguments:
        alone = under_test == ARGUMENTS
        part = f"part of {under_test or 'what differs'}, if it is nothing else"
        why = "the variable under test" if alone else part
        rows.append(FieldRow(ARGUMENTS, *arguments, "named" if alone else "warning", why))
    if varies and not any(r.standing == "named" for r in rows):
        rows.append(_not_varied(mine, theirs, varies))
    return tuple(rows)


def _not_varied(a: Identity, b: Identity, varies: str) -> FieldRow:
    fields = GROUPS.get(varies, ("config",))
    dark = [f for f in fields if getattr(a, f) is None or getattr(b, f) is None]
    field = (dark or fields)[0]
    why = "not known to differ" if dark else "is the same"
    return FieldRow(
        varies, shown(getattr(a, field)), shown(getattr(b, field)), "blocking",
        f"named as the variable under test, and {why}",
    )  # fmt: skip


def _differs(a: Identity, b: Identity, field: str) -> bool:
    mine, theirs = getattr(a, field), getattr(b, field)
    return mine is not None and theirs is not None and mine != theirs


def _identity_row(a: Identity, b: Identity, field: str, group: str, under_test: str) -> FieldRow | None:
    mine, theirs = getattr(a, field), getattr(b, field)
    if group == "driver" and a.gpus == () and b.gpus == ():
        return None
    texts = (field, shown(mine), shown(theirs))
    if mine is None or theirs is None:
        return FieldRow(*texts, "warning", "not known, so not known to be the same")
    if mine == theirs:
        return FieldRow(*texts, "same")
    if group == under_test:
        return FieldRow(*texts, "named", "the variable under test")
    why = f"differs besides {under_test}" if under_test else "one of several differences"
    return FieldRow(*texts, "confounds", why)


# the measurement


def measuring_rows(a: Arm, b: Arm) -> tuple[FieldRow, ...]:
    """The harness of two arms, and whether the runs of each are runs of one thing.

    A record of other times that does not say is warned about; a run of ours must say.
    """
    rows = [r for arm in (a, b) for r in _repeats(arm)]
    lenient = a.historical or b.historical
    mine, theirs = a.runs[0].identity.harness, b.runs[0].identity.harness
    return (*rows, must_equal("harness", mine, theirs, lenient))


def must_equal(field: str, mine: Any, theirs: Any, lenient: bool) -> FieldRow:
    """A condition of the measurement: different refuses; unknown does too, unless a record is historical."""
    texts = (field, shown(mine), shown(theirs))
    if mine is None or theirs is None or "unknown" in (mine, theirs):
        why = "not known, so not known to be the same"
        return FieldRow(*texts, "warning" if lenient else "blocking", why)
    return FieldRow(*texts, "same") if mine == theirs else FieldRow(*texts, "blocking", "must be the same")


_OF_A_RUN = frozenset({"container", "gateway", "suite"})


def _repeats(arm: Arm) -> Iterable[FieldRow]:
    first = arm.runs[0].identity
    for field in Identity.__dataclass_fields__:
        if field in _OF_A_RUN or (field in GROUPS["driver"] and first.gpus == ()):
            continue
        told = [getattr(run.identity, field) for run in arm.runs]
        known = [value for value in told if value is not None]
        other = next((value for value in known if value != known[0]), None)
        if other is not None:
            why = f"runs of arm {arm.name} are not of one thing"
            yield FieldRow(field, shown(known[0]), shown(other), "blocking", why)
        elif 0 < len(known) < len(told):
            yield FieldRow(
                field, shown(known[0]), shown(None), "warning", f"not known of every run of arm {arm.name}"
            )


def order_warnings(a: Arm, b: Arm) -> tuple[str, ...]:
    """One sentence when the arms were not measured in turn: what drifts meanwhile is in the difference."""
    stamps = sorted([(run.at, n) for n, arm in enumerate((a, b)) for run in arm.runs])
    days = {at[:10] for at, _ in stamps}
    if len(days) > 1:
        return (f"measured on different days, {min(days)} to {max(days)}: what drifts is in the difference",)
    order = "".join("AB"[n] for _, n in stamps)
    blocks = order in ("A" * len(a.runs) + "B" * len(b.runs), "B" * len(b.runs) + "A" * len(a.runs))
    if len(order) > 2 and blocks:
        return (f"measured in the order {order}, not in turn: what drifts is in the difference",)
    return ()


# one lane


@dataclass(frozen=True, slots=True)
class LaneRun:
    """One row of one run. `requests` by prompt item and `facts` of how it was measured are {} where none are kept.

    `gate` is the gate as the suite had it; `thinking` what it asked the serve for.
    """

    row: LaneRow
    requests: Mapping[str, Observation]
    facts: Mapping[str, Any]
    gate: Mapping[str, Any]
    thinking: str | None


def lane_rows(a: Sequence[LaneRun], b: Sequence[LaneRun], lenient: bool) -> tuple[FieldRow, ...]:
    """The conditions of one lane in two arms, in every run of each; only what is not the same."""
    first, other = a[0], b[0]
    rows = [must_equal(n, of(first), of(other), lenient) for n, of in _CONDITIONS.items()]
    for arm, runs in (("A", a), ("B", b)):
        for run in runs[1:]:
            rows += [
                FieldRow(n, shown(of(runs[0])), shown(of(run)), "blocking", f"runs of arm {arm} differ")
                for n, of in _CONDITIONS.items()
                if of(run) != of(runs[0])
            ]
        rows += [r for run in runs for r in _sound(arm, run, lenient)]
    rows += [*_prompt_tokens(a, b), *_cached(a, b), *_outputs(a, b), *_finishes(a, b)]
    return tuple(r for r in rows if r.standing != "same")


_SAMPLING = ("temperature", "seed", "top_p", "top_k", "min_p")


def _sampling(run: LaneRun) -> str | None:
    sent = run.facts.get("request")
    if not isinstance(sent, Mapping):
        return None
    return ", ".join(f"{k} {sent[k]}" for k in _SAMPLING if k in sent) or "the engine's own"


_CONDITIONS: Mapping[str, Callable[[LaneRun], Any]] = {
    "streams": lambda r: r.row.streams,
    "loop": lambda r: r.row.loop,
    "nominal tokens": lambda r: r.row.nominal_tokens,
    "prompts": lambda r: r.facts.get("prompts"),
    "sampling": _sampling,
    "max_tokens": lambda r: r.facts.get("completion_tokens"),
    "thinking": lambda r: r.thinking,
    "through the gateway": lambda r: r.gate.get("routed"),
}


def _sound(arm: str, run: LaneRun, lenient: bool) -> Iterable[FieldRow]:
    """Failures that the suite did not allow beforehand, and times that must not be used."""

    def told(field: str, text: str, standing: Standing, why: str) -> FieldRow:
        return FieldRow(
            field, text if arm == "A" else "", text if arm == "B" else "", standing, f"arm {arm}: {why}"
        )

    row = run.row
    if row.failed:
        allowed = row.failed <= int(run.gate.get("failed_at_most", 0))
        why = "the suite allows as many" if allowed else "nothing explains them"
        yield told("failures", f"{row.failed} of {row.requests}", "warning" if allowed else "blocking", why)
    if row.instrument is None:
        why = "it does not say how good its client was"
        yield told("instrument", "not known", "warning" if lenient else "blocking", why)
    elif row.instrument.invalid:
        yield told("instrument", "invalid", "blocking", row.instrument.invalid)


def _middle(
    runs: Sequence[LaneRun], of: Callable[[Observation], float | None], row: Spread | None
) -> float | None:
    """Median over all requests of an arm; of a record without requests, what its row says."""
    known = [v for r in runs for o in r.requests.values() if (v := of(o)) is not None]
    return median(known) if known else row.p50 if row else None


def _prompt_tokens(a: Sequence[LaneRun], b: Sequence[LaneRun]) -> Iterable[FieldRow]:
    """The engine's own counts item by item: another tokenizer or template is another question.

    Every run has a salt of its own, which moves single counts by a token or two and not their middle.
    """
    mine, theirs = _counts(a), _counts(b)
    both = [item for item in mine if item in theirs]
    ours, others = (_middle(runs, lambda o: o.prompt_tokens, runs[0].row.prompt_tokens) for runs in (a, b))
    more = median(theirs[i] - mine[i] for i in both) if both else (others or 0) - (ours or 0) if ours else 0
    texts = shown(ours and f"{ours:,.0f}"), shown(others and f"{others:,.0f}")
    if ours and others and abs(more) > max(PROMPT_TOKENS_APART * ours, SALT_TOKENS):
        yield FieldRow("prompt tokens", *texts, "blocking", "the engines do not count the same prompts alike")
    elif not both:
        yield FieldRow("prompt tokens", *texts, "warning", "not kept prompt by prompt")


def _counts(runs: Sequence[LaneRun]) -> dict[str, float]:
    found: dict[str, list[int]] = {}
    for item, seen in (pair for r in runs for pair in r.requests.items()):
        if seen.prompt_tokens:
            found.setdefault(item, []).append(seen.prompt_tokens)
    return {item: median(counts) for item, counts in found.items()}


def _cached(a: Sequence[LaneRun], b: Sequence[LaneRun]) -> Iterable[FieldRow]:
    """What the prefix cache held: known and different is another experiment, unknown is said."""
    mine, theirs = ({r.row.cache for r in runs} for runs in (a, b))
    texts = ", ".join(sorted(mine)), ", ".join(sorted(theirs))
    if len((mine | theirs) - {"unknown"}) > 1:
        yield FieldRow("cache", *texts, "blocking", _apart(mine - {"unknown"}, theirs - {"unknown"}))
    elif "unknown" in mine | theirs:
        yield FieldRow("cache", *texts, "warning", "not known, so not known to be the same")
    shares = [[s for r in runs if (s := _cached_share(r)) is not None] for runs in (a, b)]
    both = [*shares[0], *shares[1]]
    if both and max(both) - min(both) > CACHED_APART:
        wide = [{"low", "high"} if s and max(s) - min(s) > CACHED_APART else {"one"} for s in shares]
        yield FieldRow(
            "cached tokens", _told_shares(shares[0]), _told_shares(shares[1]), "blocking", _apart(*wide)
        )


def _apart(mine: Collection[str], theirs: Collection[str]) -> str:
    """Why it blocks: runs of one arm are no repeats of each other, or the arms differ."""
    mixed = "A" if len(mine) > 1 else "B" if len(theirs) > 1 else ""
    return f"runs of arm {mixed} differ" if mixed else "must be the same"


def _told_shares(shares: Sequence[float]) -> str:
    told = dict.fromkeys(f"{s:.0%}" for s in shares)
    return f"{', '.join(told)} of the prompt" if told else "not known"


def _cached_share(run: LaneRun) -> float | None:
    row = run.row
    if row.cached_tokens is None or row.prompt_tokens is None:
        return None
    return row.cached_tokens.p50 / row.prompt_tokens.p50


def _outputs(a: Sequence[LaneRun], b: Sequence[LaneRun]) -> Iterable[FieldRow]:
    forced, free = (", ".join(sorted({r.row.output for r in runs})) for runs in (a, b))
    if forced != free:
        yield FieldRow(OUTPUT, forced, free, "warning", "decode and TTFT only")
    mine, theirs = (_middle(runs, lambda o: o.completion_tokens, runs[0].row.completion_tokens) for runs in (a, b))
    if mine and theirs and abs(theirs / mine - 1) > OUTPUT_APART:
        why = "over 5 % apart: decode and TTFT only"
        yield FieldRow(OUTPUT_LENGTH, f"{mine:g} tokens", f"{theirs:g} tokens", "warning", why)


def _finishes(a: Sequence[LaneRun], b: Sequence[LaneRun]) -> Iterable[FieldRow]:
    mine, theirs = _mix(a), _mix(b)
    if any(abs(mine.get(end, 0) - theirs.get(end, 0)) > FINISH_APART for end in {*mine, *theirs}):
        texts = _told_mix(mine), _told_mix(theirs)
        yield FieldRow("finish", *texts, "warning", "answers end for other reasons")


def _told_mix(mix: Mapping[str, float]) -> str:
    return ", ".join(f"{end} {share:.0%}" for end, share in sorted(mix.items())) or "not known"


def _mix(runs: Sequence[LaneRun]) -> dict[str, float]:
    ends = [str(o.raw.get("finish_reason") or "not told") for r in runs for o in r.requests.values()]
    return {why: ends.count(why) / len(ends) for why in dict.fromkeys(ends)}
