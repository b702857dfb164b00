"""A context ladder over a scripted model: what counts at which depth, and what the verdict follows from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from anvil_tui.core.box import Container
from anvil_tui.core.gates import FailureClass, Gate
from anvil_tui.core.reading import Reading
from anvil_tui.ports import ChatAnswer, ChatRequest
from anvil_tui.service.gates.context_curve import context_ladder
from anvil_tui.service.gates.session import Finding, GateParts, GateTarget, Session
from anvil_tui.simbox.answer import answer
from tests.support.membox import Clock, recipe

Answer = Callable[[str, int], ChatAnswer]


class Chat:
    """Counts ten tokens a sentence, nine in prompts of more than forty: a unit costs less than the probes say."""

    def __init__(self, say: Answer) -> None:
        self.say = say

    def chat(self, base_url: str, request: ChatRequest, *, api_key: str | None, timeout_s: float) -> ChatAnswer:
        text = str(request.messages[-1]["content"])
        sentences = text.count(".")
        return self.say(text, sentences * (9 if sentences > 40 else 10))


class Running:
    def inspect(self, container_id: str) -> Container:
        return Container(container_id, "n", "running", "img", "ref")


class NoGpus:
    def read(self) -> Reading[Any]:
        return Reading.unknown("none", "test")


def said(content: str, tokens: int | None, **more: Any) -> ChatAnswer:
    return ChatAnswer(200, content, finish_reason="stop", prompt_tokens=tokens, completion_tokens=5, **more)


def right(text: str, tokens: int) -> ChatAnswer:
    return said(answer([{"role": "user", "content": text}]).content, tokens)


def ladder(say: Answer, **more: Any) -> tuple[Finding, list[dict[str, Any]]]:
    fields = {"id": "g", "kind": "context-ladder", "prompt_tokens": (300, 700), "positions_pct": (10, 90), **more}
    parts: Any = GateParts(Chat(say), None, Running(), NoGpus(), Clock())  # type: ignore[arg-type]
    session = Session(GateTarget(recipe("a"), "c" * 64, "http://127.0.0.1:1"), parts, "salt")
    finding = context_ladder(session, Gate.model_validate(fields), 1)
    return finding, finding.observations[-1].raw["curve"]


def test_a_wrong_answer_to_a_prompt_that_missed_its_depth_does_not_count() -> None:
    """Found on a real model: a unit cost less than probed, and a failure was booked at a depth not reached."""
    finding, rows = ladder(lambda text, tokens: said("wrong", tokens))
    assert [(r["right"], r["asked"]) for r in rows] == [(0, 8), (0, 8)]
    assert rows[1]["prompt_tokens"][0] >= 700
    tried = [o for o in finding.observations if o.raw.get("purpose") == "calibration" and o.note != "calibration"]
    assert tried and all((o.prompt_tokens or 0) < 700 for o in tried), "the short ones are kept, and marked"


def test_right_at_every_depth_passes_and_the_rule_counts_at_each_depth() -> None:
    finding, rows = ladder(right)
    assert finding.judged.outcome == "ok" and [r["right"] for r in rows] == [8, 8]

    def deep_wrong(text: str, tokens: int) -> ChatAnswer:
        return said("wrong", tokens) if tokens > 600 and "parcels" in text else right(text, tokens)

    finding, rows = ladder(deep_wrong)
    assert [(r["right"], r["asked"]) for r in rows] == [(8, 8), (6, 8)]
    assert finding.judged.outcome == "failed" and "fewer than 8 of 8 at 700; 14/16" in finding.judged.note
    assert ladder(deep_wrong, pass_at_least=6)[0].judged.outcome == "ok"
    assert ladder(deep_wrong, pass_at_least=7)[0].judged.outcome == "failed"


@pytest.mark.parametrize(
    ("odd", "outcome", "lost"),
    [
        (ChatAnswer(None, error="timeout", error_message="too late"), "errored", [0, 2]),
        (said("x", None), "unverified", [0, 2]),
        (ChatAnswer(501, error="http", error_message="not supported"), "unsupported", [0, 2]),
    ],
    ids=["timeout", "no usage", "unsupported"],
)
def test_what_could_not_be_judged_is_no_wrong_answer(odd: ChatAnswer, outcome: str, lost: list[int]) -> None:
    def say(text: str, tokens: int) -> ChatAnswer:
        if tokens > 600 and "parcels" in text:
            return odd if odd.error else said(right(text, tokens).content, None)
        return right(text, tokens)

    finding, rows = ladder(say)
    assert (finding.judged.outcome, [r["not_judged"] for r in rows]) == (outcome, lost)
    assert [(r["right"], r["asked"]) for r in rows] == [(8, 8), (6, 6)]
    assert "2 not judged" in finding.judged.note
    assert ladder(say, pass_at_least=6)[0].judged.outcome == "ok", "enough were right all the same"


def test_a_cut_answer_is_named_by_its_budget() -> None:
    def cut(text: str, tokens: int) -> ChatAnswer:
        whole = right(text, tokens)
        return ChatAnswer(200, whole.content, finish_reason="length", prompt_tokens=tokens, completion_tokens=9)

    finding, rows = ladder(cut)
    assert (finding.judged.outcome, finding.judged.failure) == ("failed", FailureClass.VISIBLE_BUDGET)
    assert [r["right"] for r in rows] == [0, 0], "a match with a bad finish reason is never right"
