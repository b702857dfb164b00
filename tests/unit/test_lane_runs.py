"""Lanes over engines that exist only as a count of tokens: what must be the same in every run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from anvil_tui.core.box import Engine
from anvil_tui.core.chat import ChatAnswer, ChatRequest
from anvil_tui.core.errors import NotFound
from anvil_tui.core.gates import Suite
from anvil_tui.core.lanes import Instrument
from anvil_tui.core.reading import Reading
from anvil_tui.ports import LoadAnswer, LoadLane, LoadRun
from anvil_tui.service.gates.conductor import Conductor, GateTarget
from anvil_tui.service.gates.lane_prompts import SALT_WORDS
from anvil_tui.service.gates.session import GateParts
from tests.support.membox import recipe

GATE = {"id": "depth", "kind": "depth-sweep", "prompt_tokens": (200, 1900), "completion_tokens": 8, "requests": 2}
SUITE = Suite.model_validate({"schema": "anvil.suite/1", "id": "s", "gates": (GATE,)})


def counted(text: str) -> int:
    """A vocabulary in which some salts take a few tokens more than others, as SmolLM2's does."""
    words = text.split()
    return len(words) + sum(map(len, words[:SALT_WORDS])) % 7


class Parts:
    """Chat, load generator, engine and GPUs of a run that began at `now`."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        any_: Any = self
        self.gate = GateParts(any_, any_, any_, any_, any_, load=any_)

    def chat(self, base_url: str, request: ChatRequest, **more: Any) -> ChatAnswer:
        return self._answer(str(request.messages[0]["content"]))

    def run(self, lane: LoadLane, on_done: Callable[[int], None], cancelled: Callable[[], bool]) -> LoadRun:
        texts: list[Any] = [r.body["messages"] for r in lane.requests]
        answers = (self._answer(messages[0]["content"]) for messages in texts)
        made = tuple(LoadAnswer(r.n, 0.0, a) for r, a in zip(lane.requests, answers, strict=True))
        return LoadRun(made, 1.0, Instrument(0, 0, 0, 0, 0, 0, 1, 1))

    def error_ms(self, streams: int) -> tuple[float, float]:
        return 0.0, 0.0

    def _answer(self, text: str) -> ChatAnswer:
        return ChatAnswer(
            200, "words", finish_reason="length", prompt_tokens=counted(text), completion_tokens=8,
            cached_tokens=0, ttft_any_s=0.1, ttft_visible_s=0.1, e2e_s=0.2, token_times_s=(0.1, 0.2), end_s=0.2,
        )  # fmt: skip

    def read(self, *asked: Any) -> Any:
        return Engine("llamacpp", "ready") if asked else Reading.unknown("no GPU", "test")

    def inspect(self, container_id: str) -> Any:
        raise NotFound("no container in this test")

    def logs(self, container_id: str, *, tail: int) -> tuple[Any, ...]:
        return ()

    def utc(self) -> datetime:
        return self.now

    def monotonic_s(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here waits")


def prompts(now: datetime) -> list[tuple[str, str]]:
    target = GateTarget(recipe("r"), "c" * 64, "http://127.0.0.1:1")
    (result,) = Conductor(Parts(now).gate).run(SUITE, target, lambda event: None, lambda: False)
    rows = [o.raw for o in result.observations if o.raw["purpose"] == "row"]
    assert len(rows) == 2, result.reason
    return [(str(raw["row"]), str(raw["prompts"])) for raw in rows]


def test_runs_at_other_times_have_other_salts_and_the_same_prompts() -> None:
    """A warm-up whose salt counted a token more once made the deeper rows a word shorter: A and A were refused."""
    began = datetime(2026, 11, 29, 12, tzinfo=UTC)
    runs = [prompts(began + timedelta(seconds=n)) for n in range(8)]
    assert [run for run in runs if run != runs[0]] == []
