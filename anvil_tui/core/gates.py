"""Gates: checks with a predeclared pass rule, their verdicts, and what they observed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from anvil_tui.core.command_rules import command_problems
from anvil_tui.core.gate_kinds import COMMON, DEEP, GATE_KEYS, LOOKS, RETRIEVALS
from anvil_tui.core.gate_kinds import GateKind as GateKind
from anvil_tui.core.lanes import LaneRow
from anvil_tui.core.recipe import NonNegative, Positive, Recipe, Slug, Table

SUITE_SCHEMA = "anvil.suite/1"

Thinking = Literal["none", "on", "off", "low", "medium", "high"]


class Verdict(StrEnum):
    """`failed` = the serve did wrong, `errored` = our harness or the network did; the rest as named."""

    PASSED = "passed"
    FAILED = "failed"
    ERRORED = "errored"
    UNRUNNABLE = "unrunnable"
    UNSUPPORTED = "unsupported"
    UNVERIFIED = "unverified"
    CANCELLED = "cancelled"


class FailureClass(StrEnum):
    REASONING_BUDGET = "reasoning_budget_exhausted"
    VISIBLE_BUDGET = "visible_answer_budget_exhausted"
    BUDGET_AFTER_VISIBLE = "completion_budget_exhausted_after_visible_output"
    FINISH_REASON = "unexpected_finish_reason"
    NO_ANSWER = "visible_answer_missing"
    REASONING_LEAK = "reasoning_leak"
    CHECK = "check_failed"
    TOOL_CALL = "tool_call_failed"
    IDENTITY = "identity_mismatch"
    CONTEXT = "context_rejected"
    STREAM = "stream_broken"


class Needs(Table):
    """What a recipe must promise; else a suite is refused, and a single gate is left out.

    `without` are modalities that it must not promise; `thinking` names controls, one of which is the recipe's.
    """

    modalities: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    thinking: tuple[Thinking, ...] = ()
    context_tokens: NonNegative = 0
    output_tokens: NonNegative = 0
    concurrency: NonNegative = 0
    images: NonNegative = 0
    gpus: NonNegative = 0
    pinned_files: NonNegative = 0

    def unmet(self, recipe: Recipe) -> str:
        """What is needed that the recipe does not promise; "" = it promises all of it."""
        limits = recipe.envelope
        lacks = [f"{m} (the recipe has {', '.join(limits.modalities)})" for m in self.modalities
                 if m not in limits.modalities]  # fmt: skip
        lacks += [f"a recipe without {m}" for m in self.without if m in limits.modalities]
        if self.thinking and recipe.thinking not in self.thinking:
            lacks.append(f"thinking {' or '.join(self.thinking)} (the recipe has {recipe.thinking})")
        figures = (
            ("context_tokens", self.context_tokens, limits.context_tokens),
            ("output_tokens", self.output_tokens, limits.max_output_tokens),
            ("concurrency", self.concurrency, limits.concurrency),
            ("images", self.images, limits.images),
            ("gpus", self.gpus, len(recipe.gpus.select)),
            ("pinned_files", self.pinned_files, len(recipe.pinned_files)),
        )
        lacks += [
            f"{name} {need:,} (the recipe {'does not say' if have is None else f'has {have:,}'})"
            for name, need, have in figures if need and (have is None or have < need)
        ]  # fmt: skip
        return ", ".join(lacks)

    def joined(self, more: Needs) -> Needs:
        """Both at once."""
        return Needs(
            modalities=tuple(dict.fromkeys((*self.modalities, *more.modalities))),
            without=tuple(dict.fromkeys((*self.without, *more.without))),
            thinking=tuple(t for t in self.thinking if t in more.thinking) or self.thinking or more.thinking,
            context_tokens=max(self.context_tokens, more.context_tokens),
            output_tokens=max(self.output_tokens, more.output_tokens),
            concurrency=max(self.concurrency, more.concurrency),
            images=max(self.images, more.images),
            gpus=max(self.gpus, more.gpus),
            pinned_files=max(self.pinned_files, more.pinned_files),
        )


class Gate(Table):
    """One entry of a suite. Which keys apply depends on `kind`; a key that does not apply is an error.

    `repeat` is N in k-of-N; `pass_at_least` is k (None = all); `parallel` of them are in flight at once.
    `prompt_tokens_at_least` is the floor that the engine's own count must reach; `positions_pct` is where in the
    prompt a needle stands, one position a repeat, in turn. `thinking` overrides the recipe's control.
    `routed` runs the requests through the gateway's private alias of the serve instead of its own port.
    `accept` names verdicts other than passed that this gate's own rule lets through.
    A context ladder asks every retrieval at every position `repeat` times at each depth of `prompt_tokens`; k is
    counted at each depth. A command's `env` names variables; `json_expect` is a dotted path into its JSON result
    -> a value, or {min =, max =}.
    Lanes make one row for each of `streams` x `prompt_tokens`, of `requests` requests each; the rules `*_at_most`
    and `*_at_least` are compared with a row's medians.
    """

    id: Slug
    kind: GateKind
    proves: str = ""
    needs: Needs = Needs()
    timeout_s: Positive = 120
    accept: tuple[Literal["unverified", "unsupported"], ...] = ()
    routed: bool = False

    repeat: Positive = 1
    pass_at_least: Positive | None = None
    parallel: Annotated[int, Field(ge=1, le=128)] = 1
    visible_tokens: Positive | None = None
    reasoning_tokens: NonNegative | None = None
    thinking: Thinking | None = None
    prompt_tokens_at_least: NonNegative = 0
    positions_pct: tuple[Annotated[int, Field(ge=0, le=100)], ...] = (50,)
    images: Positive | None = None

    streams: tuple[Annotated[int, Field(ge=1, le=256)], ...] = (1,)
    requests: Annotated[int, Field(ge=1, le=10_000)] = 5
    prompt_tokens: tuple[Positive, ...] = ()
    completion_tokens: Positive | None = None
    prefix: Literal["unique", "shared", "warm"] = "unique"
    warmup: NonNegative = 1
    burst: bool = False
    failed_at_most: NonNegative = 0
    ttft_at_most_s: Annotated[float, Field(gt=0)] | None = None
    decode_at_least_tok_s: Annotated[float, Field(gt=0)] | None = None
    aggregate_at_least_tok_s: Annotated[float, Field(gt=0)] | None = None

    argv: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    json_expect: dict[str, Any] = {}
    fixture_sha256: dict[str, str] = {}

    when: Literal["idle", "during", "after-work", "after-routed"] = "idle"
    free_at_least_mib: NonNegative = 0
    swap_at_most_mib: NonNegative | None = None

    @model_validator(mode="after")
    def _applies(self) -> Gate:
        problems = []
        for key in sorted(self.model_fields_set - GATE_KEYS[self.kind] - COMMON):
            kinds = ", ".join(k for k, keys in GATE_KEYS.items() if key in keys)
            problems.append(f"{key} does not apply to kind {self.kind} (applies to: {kinds})")
        if self.pass_at_least and self.pass_at_least > self.most:
            of = "repeat" if self.most == self.repeat else "questions at each depth"
            problems.append(f"pass_at_least {self.pass_at_least} is more than {of} = {self.most}")
        if self.kind in ("needle", "needle-absent", "client-shape") and not self.prompt_tokens_at_least:
            problems.append(f"{self.kind} needs prompt_tokens_at_least: without a floor it proves nothing")
        if self.kind in DEEP and not self.prompt_tokens:
            problems.append(f"a gate of kind {self.kind} needs prompt_tokens: the depths to be asked at")
        if self.kind == "command":
            problems += command_problems(self.argv, self.env, self.json_expect, self.fixture_sha256)
        if self.kind == "host-memory" and not (self.free_at_least_mib or self.swap_at_most_mib is not None):
            problems.append("host-memory needs free_at_least_mib or swap_at_most_mib: no rule proves nothing")
        if problems:
            raise ValueError("\n".join(problems))
        return self

    @property
    def repeats(self) -> bool:
        """Whether the gate is made `repeat` times; any other is one piece of work with one finding."""
        return "repeat" in GATE_KEYS[self.kind] and self.kind != "context-ladder"

    @property
    def most(self) -> int:
        """What `pass_at_least` counts: the repeats; of a context ladder, the questions at each depth."""
        ladder = self.kind == "context-ladder"
        return self.repeat * (len(RETRIEVALS) * len(self.positions_pct) if ladder else 1)

    @property
    def generates(self) -> bool:
        """Whether the gate makes the model generate."""
        return self.kind not in LOOKS and self.kind != "identity"


class Suite(Table):
    """`gates/ID.toml`: an ordered list of gates. `include` names plain suites whose gates come first."""

    schema_: Literal["anvil.suite/1"] = Field(alias="schema")
    id: Slug
    title: str = ""
    needs: Needs = Needs()
    include: tuple[Slug, ...] = ()
    gates: tuple[Gate, ...] = ()

    @model_validator(mode="after")
    def _distinct(self) -> Suite:
        if not self.gates and not self.include:
            raise ValueError("gates needs at least one [[gates]]: an empty suite proves nothing")
        ids = [g.id for g in self.gates]
        twice = [
            f"gates[{n}].id {gate} is used twice (also gates[{ids.index(gate)}].id)"
            for n, gate in enumerate(ids)
            if ids.index(gate) < n
        ]
        if twice:
            raise ValueError("\n".join(twice))
        return self

    def resolved(self, others: Mapping[str, Suite]) -> Suite:
        """With the gates of the included suites before its own; what a suite needs becomes a need of its gates.

        A gate that several suites hold alike is made once: one that asks at its first place, one that looks at
        its last. Raises ValueError for a suite that is not there, or that includes others itself.
        """
        gates: list[Gate] = []
        for part in [_part(self.id, name, others) for name in self.include] + [self]:
            own = part is self
            for gate in part.gates:
                need = gate.needs if own else gate.needs.joined(part.needs)
                _add(gates, gate.model_copy(update={"needs": need}), "" if own else part.id)
        return self.model_copy(update={"gates": tuple(gates)})

    def for_recipe(self, recipe: Recipe) -> tuple[Suite, tuple[str, ...]]:
        """The suite without gates that need what the recipe does not promise, and a sentence for each of those."""
        left = {g.id: why for g in self.gates if (why := g.needs.unmet(recipe))}
        kept = self.model_copy(update={"gates": tuple(g for g in self.gates if g.id not in left)})
        return kept, tuple(f"gate {gate} is left out: needs {why}" for gate, why in left.items())


def _part(suite: str, name: str, others: Mapping[str, Suite]) -> Suite:
    if name not in others:
        raise ValueError(f"include: suite {name} is not in gates/ or cannot be used")
    if others[name].include:
        raise ValueError(f"include: suite {name} includes others itself; name those in {suite}")
    return others[name]


def _add(gates: list[Gate], gate: Gate, part: str) -> None:
    alike = next((g for g in gates if _alike(g, gate)), None)
    if alike is not None:
        need = alike.needs if gate.needs == alike.needs else Needs()
        if gate.kind not in LOOKS or (gate.when == "idle" and gate.kind == "reserve"):
            gates[gates.index(alike)] = alike.model_copy(update={"needs": need})
            return
        gates.remove(alike)
        gate = gate.model_copy(update={"needs": need})
    if any(g.id == gate.id for g in gates):
        gate = gate.model_copy(update={"id": f"{part or 'own'}.{gate.id}"})
    gates.append(gate)


def _alike(one: Gate, other: Gate) -> bool:
    """One stands for both: they ask the same of the same recipes, or one asks it of any recipe."""
    needs = one.needs == other.needs or Needs() in (one.needs, other.needs)
    return needs and _demand(one) == _demand(other)


def _demand(gate: Gate) -> dict[str, Any]:
    return gate.model_dump(exclude={"id", "proves", "needs"})


@dataclass(frozen=True, slots=True)
class SuiteFile:
    """A suite file of the workspace: the suite, or the sentence why it cannot be used. `id` is the file's stem."""

    id: str
    suite: Suite | None
    error: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """One request or one reading, kept raw (bounded, redacted). Times are monotonic seconds of the client."""

    n: int
    ok: bool
    failure: FailureClass | None = None
    note: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    ttft_any_s: float | None = None
    ttft_visible_s: float | None = None
    e2e_s: float | None = None
    decode_tok_s: float | None = None
    excerpt: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GateResult:
    """Verdict of one gate over its observations. `reason` is one sentence an operator can act on.

    `accepted` is True for a verdict other than passed that the gate's own rule lets through. `elapsed_s` None = a
    historical record that does not say.
    """

    gate: str
    kind: str
    verdict: Verdict
    reason: str
    passed: int
    of: int
    elapsed_s: float | None
    failures: tuple[FailureClass, ...] = ()
    observations: tuple[Observation, ...] = ()
    accepted: bool = False
    rows: tuple[LaneRow, ...] = ()


@dataclass(frozen=True, slots=True)
class GateProgress:
    """Where a running gate stands: `done` of `of` observations; `row` is a row that was just completed."""

    gate: str
    kind: str
    done: int
    of: int
    row: LaneRow | None = None


def suite_passed(results: Sequence[GateResult]) -> bool:
    """Every gate passed, or ended in a verdict that its own rule accepts. No result is no pass."""
    return bool(results) and all(r.verdict is Verdict.PASSED or r.accepted for r in results)
