"""One lane of our own load generator, as the other tools are run: a program that writes its figures to a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from anvil_tui.adapters.load_generator import ChildLoadGenerator
from anvil_tui.core.chat import ChatRequest, request_body
from anvil_tui.core.lanes import Spread
from anvil_tui.core.measure import nearest_rank, row_of
from anvil_tui.ports import LoadLane, LoadRequest


def measure(url: str, streams: int, count: int, tokens: int) -> dict[str, float | str | None]:
    """TTFT and chunk gap in ms, tokens in ms and tok/s. Raises AnvilError."""
    asked = ChatRequest("timing", ({"role": "user", "content": "go"},), tokens, stream=True)
    requests = tuple(LoadRequest(n, request_body(asked)) for n in range(count))
    run = ChildLoadGenerator().run(LoadLane(url, requests, streams, 60.0), lambda done: None, lambda: False)
    row = row_of(run, lane="timing", streams=streams)
    if row.failed or row.requests != count:
        raise SystemExit(f"{row.failed} of {row.requests} requests failed, {count} were asked for")
    first = [1000 * a.answer.ttft_any_s for a in run.answers if a.answer.ttft_any_s is not None]
    decode = middle(row.decode_tok_s)
    instrument = run.instrument
    return {
        "ttft_p50_ms": nearest_rank(first, 0.5), "ttft_p95_ms": nearest_rank(first, 0.95),
        "visible_p50_ms": 1000 * (middle(row.ttft_visible_s) or 0) or None,
        "token_ms": 1000 / decode if decode else None, "tok_s": row.aggregate_tok_s,
        "note": f"the process that measures: {instrument.cpu_s / instrument.wall_s:.3f} cores, "
                f"{instrument.rss_mib:.0f} MiB; {instrument.invalid or f'lag p99 {instrument.lag_p99_ms} ms'}",
    }  # fmt: skip


def middle(spread: Spread | None) -> float | None:
    return None if spread is None else spread.p50


if __name__ == "__main__":
    found = measure(sys.argv[1], *map(int, sys.argv[2:5]))
    Path(sys.argv[5]).write_text(json.dumps(found))
