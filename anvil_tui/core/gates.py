"""Gates: checks with a predeclared pass rule, their verdicts, and what they observed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

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


class Gate(Table):
    """One entry of a suite. Which keys apply depends on `kind`; a key that does not apply is an error.

    `repeat` is N in k-of-N; `pass_at_least` is k (None = all). `prompt_tokens_at_least` is the floor that
    the engine's own count must reach. `depth_pct` is where in the prompt a needle stands.
    `routed` runs the requests through the gateway's private alias of the serve instead of its own port.
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


class Suite(Table):
    """`gates/ID.toml`: an ordered list of gates."""

    schema_: Literal["anvil.suite/1"] = Field(alias="schema")
    id: Slug
    title: str = ""
    gates: tuple[Gate, ...]


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
    """Verdict of one gate over its observations. `reason` is one sentence an operator can act on."""

    gate: str
    kind: str
    verdict: Verdict
    reason: str
    passed: int
    of: int
    elapsed_s: float
    failures: tuple[FailureClass, ...] = ()
    observations: tuple[Observation, ...] = ()


@dataclass(frozen=True, slots=True)
class GateProgress:
    """Where a running gate stands: `done` of `of` observations."""

    gate: str
    kind: str
    done: int
    of: int
