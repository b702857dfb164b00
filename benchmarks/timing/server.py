"""The server of known timing with the scenarios of this benchmark, on the chat route and the completions route.

`python -m benchmarks.timing.server SCENARIO` prints its port and ends when its stdin closes. Usage comes only when
it is asked for. The schedule is in `anvil_tui.adapters.timing_server`; the truth is what that server did.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from anvil_tui.adapters.timing_server import TOKEN_S, TTFT_S, Script, TimingServer, Write, event

TOKENS = 50


@dataclass(frozen=True, slots=True)
class Scenario:
    """`per_chunk` tokens come together; the first `reasoning` are reasoning; after every `stall_every` chunks
    nothing comes for `stall_s` more."""

    per_chunk: int = 1
    reasoning: int = 0
    stall_every: int = 0
    stall_s: float = 0.0

    def at_s(self, token: int) -> float:
        stalls = token // self.per_chunk // self.stall_every if self.stall_every else 0
        return TTFT_S + token * TOKEN_S + stalls * self.stall_s


SCENARIOS = {
    "plain": Scenario(),
    "chunks": Scenario(per_chunk=4),
    "reasoning": Scenario(reasoning=16),
    "stalls": Scenario(stall_every=25, stall_s=0.5),
}


def true_token_s(scenario: Scenario, tokens: int) -> float:
    """Seconds a token after the first chunk."""
    last = (tokens - 1) // scenario.per_chunk * scenario.per_chunk
    return (scenario.at_s(last) - TTFT_S) / (tokens - scenario.per_chunk)


@cache
def script(scenario: Scenario, chat: bool, tokens: int, usage: bool) -> Script:
    writes = []
    for token in range(0, tokens, scenario.per_chunk):
        text = " t" * min(scenario.per_chunk, tokens - token)
        thinks = chat and token < scenario.reasoning
        fields = {"reasoning_content" if thinks else "content": text} if chat else text
        writes.append(Write(scenario.at_s(token), "token" if thinks else "visible", event(_chunk(fields, None))))
    last = event(_chunk({} if chat else "", "length"))
    if usage:
        last += event(_head() | {"choices": [], "usage": _usage(tokens)})
    return (*writes, Write(writes[-1].at_s, "other", last + event("[DONE]") + b"0\r\n\r\n"))


def _head() -> dict[str, object]:
    return {"id": "cmpl-1", "object": "chat.completion.chunk", "created": 1700000000, "model": "timing"}


def _chunk(fields: object, finish: str | None) -> dict[str, object]:
    said = {"text": fields} if isinstance(fields, str) else {"delta": fields}
    return _head() | {"choices": [{"index": 0, "logprobs": None, "finish_reason": finish} | said]}


def _usage(tokens: int) -> dict[str, object]:
    return {"prompt_tokens": 64, "completion_tokens": tokens, "total_tokens": 64 + tokens,
            "prompt_tokens_details": {"cached_tokens": 0}}  # fmt: skip


def serve(scenario: Scenario) -> None:
    def make(path: str, asked: Mapping[str, object]) -> Script:
        limit = asked.get("max_completion_tokens") or asked.get("max_tokens")
        options = asked.get("stream_options")
        usage = isinstance(options, dict) and bool(options.get("include_usage"))
        return script(scenario, "chat" in path, limit if isinstance(limit, int) else TOKENS, usage)

    card = {"id": "timing", "object": "model", "created": 0, "owned_by": "benchmark", "max_model_len": 1 << 20}
    server = TimingServer(make, {"/v1/models": {"object": "list", "data": [card]}, "/health": {"status": "ok"}})
    sys.stdout.write(f"{json.dumps(server.port)}\n")
    sys.stdout.flush()
    server.run(sys.stdin.fileno())


if __name__ == "__main__":
    serve(SCENARIOS[sys.argv[1]])
