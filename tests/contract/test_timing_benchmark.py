"""The timing benchmark's server and our side of it, on real sockets. No timing is asserted here."""

from __future__ import annotations

import sys

import pytest

from anvil_tui.adapters.load_generator import ChildLoadGenerator, timing_server, timing_stats
from anvil_tui.core.chat import ChatAnswer, ChatRequest, request_body
from anvil_tui.ports import LoadLane, LoadRequest
from benchmarks.timing.lane import percentile
from benchmarks.timing.ours import measure
from benchmarks.timing.server import SCENARIOS, true_token_s


def answered(scenario: str, tokens: int = 8) -> tuple[ChatAnswer, dict[str, int]]:
    asked = ChatRequest("timing", ({"role": "user", "content": "go"},), tokens, stream=True)
    with timing_server((sys.executable, "-m", "benchmarks.timing.server", scenario)) as port:
        lane = LoadLane(f"http://127.0.0.1:{port}", (LoadRequest(0, request_body(asked)),), 1, 20.0)
        (got,) = ChildLoadGenerator().run(lane, lambda done: None, lambda: False).answers
        (truth,) = timing_stats(port)
    return got.answer, truth


@pytest.mark.parametrize(
    ("scenario", "chunks", "content", "reasoning"),
    [("chunks", 2, " t" * 8, ""), ("reasoning", 8, "", " t" * 8)],
)
def test_streams_that_are_not_one_token_a_chunk(scenario: str, chunks: int, content: str, reasoning: str) -> None:
    got, truth = answered(scenario)
    assert (got.error, got.content, got.reasoning, got.completion_tokens) == (None, content, reasoning, 8)
    assert (truth["chunks"], truth["visible"] > 0) == (chunks, content != "")
    assert truth["start"] < truth["first"] <= truth["last"] <= truth["end"]


def test_our_side_of_it() -> None:
    with timing_server((sys.executable, "-m", "benchmarks.timing.server", "plain")) as port:
        found = measure(f"http://127.0.0.1:{port}", 1, 1, 4)
    assert {k for k, v in found.items() if v is None} == set()


def test_the_truth_of_a_scenario() -> None:
    """40 tokens at 20 ms each; the stalls come after 25 chunks, once."""
    assert true_token_s(SCENARIOS["plain"], 40) == pytest.approx(0.020)
    assert true_token_s(SCENARIOS["chunks"], 40) == pytest.approx(0.020)
    assert true_token_s(SCENARIOS["stalls"], 40) == pytest.approx((39 * 0.020 + 0.5) / 39)


def test_percentiles_of_both_kinds() -> None:
    values = [4.0, 1.0, 3.0, 2.0]
    assert [percentile(values, q, "nearest") for q in (0.5, 0.95)] == [2.0, 4.0]
    assert [percentile(values, q, "linear") for q in (0.5, 0.95)] == pytest.approx([2.5, 3.85])
