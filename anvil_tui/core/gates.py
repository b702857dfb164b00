"""Gates: checks with a predeclared pass rule, their verdicts, and what they observed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from anvil_tui.core.recipe import NonNegative, Positive, Slug, Table

SUITE_SCHEMA = "anvil.suite/1"


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


GateKind = Literal[
    "identity", "smoke", "json", "tools", "streaming-tools", "tool-result", "needle",
    "log-audit", "container-state", "reserve",
]  # fmt: skip


_COMMON = frozenset({"id", "kind", "proves", "timeout_s", "accept"})
_REQUESTS = frozenset({"repeat", "pass_at_least", "visible_tokens", "reasoning_tokens", "routed"})
GATE_KEYS: Mapping[str, frozenset[str]] = {
    "identity": frozenset({"routed"}),
    "smoke": _REQUESTS,
    "json": _REQUESTS,
    "tools": _REQUESTS,
    "streaming-tools": _REQUESTS,
    "tool-result": _REQUESTS,
    "needle": _REQUESTS | {"prompt_tokens_at_least", "depth_pct"},
    "log-audit": frozenset(),
    "container-state": frozenset(),
    "reserve": frozenset({"when"}),
}
"""Keys that apply to a kind of gate, besides id, kind, proves, timeout_s and accept, which apply to all."""


class Gate(Table):
    """One entry of a suite. Which keys apply depends on `kind`; a key that does not apply is an error.

    `repeat` is N in k-of-N; `pass_at_least` is k (None = all). `prompt_tokens_at_least` is the floor that
    the engine's own count must reach. `depth_pct` is where in the prompt a needle stands.
    `routed` runs the requests through the gateway's private alias of the serve instead of its own port.
    `accept` names verdicts other than passed that this gate's own rule lets through.
    """

    id: Slug
    kind: GateKind
    proves: str = ""
    repeat: Positive = 1
    pass_at_least: Positive | None = None
    timeout_s: Positive = 120
    visible_tokens: Positive | None = None
    reasoning_tokens: NonNegative | None = None
    prompt_tokens_at_least: NonNegative = 0
    depth_pct: Annotated[int, Field(ge=0, le=100)] = 50
    routed: bool = False
    when: Literal["idle", "after-work"] = "idle"
    accept: tuple[Literal["unverified", "unsupported"], ...] = ()

    @model_validator(mode="after")
    def _applies(self) -> Gate:
        problems = []
        for key in sorted(self.model_fields_set - GATE_KEYS[self.kind] - _COMMON):
            kinds = ", ".join(k for k, keys in GATE_KEYS.items() if key in keys)
            problems.append(f"{key} does not apply to kind {self.kind} (applies to: {kinds})")
        if self.pass_at_least and self.pass_at_least > self.repeat:
            problems.append(f"pass_at_least {self.pass_at_least} is more than repeat = {self.repeat}")
        if self.kind == "needle" and not self.prompt_tokens_at_least:
            problems.append("a needle needs prompt_tokens_at_least: without a floor it proves nothing")
        if problems:
            raise ValueError("\n".join(problems))
        return self

    @property
    def generates(self) -> bool:
        """Whether the gate makes the model generate."""
        return "repeat" in GATE_KEYS[self.kind]


class Suite(Table):
    """`gates/ID.toml`: an ordered list of gates."""

    schema_: Literal["anvil.suite/1"] = Field(alias="schema")
    id: Slug
    title: str = ""
    gates: tuple[Gate, ...]

    @model_validator(mode="after")
    def _distinct(self) -> Suite:
        if not self.gates:
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

    `accepted` is True for a verdict other than passed that the gate's own rule lets through.
    """

    gate: str
    kind: str
    verdict: Verdict
    reason: str
    passed: int
    of: int
    elapsed_s: float
    failures: tuple[FailureClass, ...] = ()
    observations: tuple[Observation, ...] = ()
    accepted: bool = False


@dataclass(frozen=True, slots=True)
class GateProgress:
    """Where a running gate stands: `done` of `of` observations."""

    gate: str
    kind: str
    done: int
    of: int
