"""`make bench-timing`: how wrong load generators read a server whose timing is exactly known, ours and others.

`python -m benchmarks.timing [NAME...]` compares ours with those peers only. Each runs alone, in turn, in an order
that moves on by one each round; a figure is the median over the rounds. Errors are what a tool reports less what
the server did, by the tool's own kind of percentile. The last line is the result.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

from benchmarks.timing.install import CannotInstall, home_of, tokenizer
from benchmarks.timing.lane import Failed, Measured, measure
from benchmarks.timing.peers import NOT_RUN, OURS, PEERS, Peer
from benchmarks.timing.server import SCENARIOS, TOKENS, true_token_s

LEVELS = ((1, 4, 1), (16, 48, 1), (64, 192, 3), (256, 768, 1))
"""(streams, requests, rounds)"""

MAIN = 64
SCENARIO_STREAMS, SCENARIO_TOKENS = 4, 40
BUSY_CORES = 0.3

Homes = dict[str, Path]


def main(names: Sequence[str]) -> int:
    unknown = sorted(set(names) - {p.name for p in PEERS})
    if unknown:
        sys.exit(f"no peer {unknown[0]}; there are {', '.join(p.name for p in PEERS)}")
    began = time.monotonic()
    homes: Homes = {OURS.name: Path()}
    tools = [OURS]
    for peer in PEERS:
        if names and peer.name not in names:
            continue
        try:
            homes[peer.name] = home_of(peer)
            tools.append(peer)
        except CannotInstall as why:
            print(f"{peer.name} {peer.version}: left out: {why}", flush=True)
    for absent, reason in NOT_RUN:
        print(f"{absent}: left out: {reason}", flush=True)
    words, installed = tokenizer(), time.monotonic()
    found = {streams: level(tools, homes, words, streams, count, rounds) for streams, count, rounds in LEVELS}
    for name in ("chunks", "reasoning", "stalls"):
        scenario(tools, homes, words, name)
    print(f"\ninstalling took {installed - began:.0f} s, measuring {time.monotonic() - installed:.0f} s")
    return result(found[MAIN])


def in_turn(tools: Sequence[Peer], rounds: int) -> Iterator[Peer]:
    for n in range(rounds):
        at = n % len(tools)
        yield from (*tools[at:], *tools[:at])


def level(
    tools: Sequence[Peer], homes: Homes, words: Path, streams: int, count: int, rounds: int
) -> dict[str, list[Measured]]:
    """Prints a row a tool: medians over the rounds in which it gave a result."""
    ideal = streams * TOKENS / (0.2 + 0.02 * (TOKENS - 1))
    print(f"\n{streams} streams, {count} requests of {TOKENS} tokens, {rounds} round(s); ideal {ideal:.0f} tok/s")
    print(f"  {'':15} {'TTFT p50':>9} {'p95':>7} {'error p50':>10} {'p95':>7} {'ms/token':>9} {'tok/s':>7} "
          f"{'cores':>6} {'RSS MiB':>8} {'own':>6} {'proc':>5}  server late, other CPU")  # fmt: skip
    found: dict[str, list[Measured]] = {tool.name: [] for tool in tools}
    why: dict[str, str] = {}
    for tool in in_turn(tools, rounds):
        try:
            got = measure(tool, "plain", streams, count, TOKENS, homes[tool.name], words)
            found[tool.name].append(got)
        except Failed as failure:
            why[tool.name] = str(failure)
    for tool in tools:
        print(f"  {tool.name:15} " + (row(found[tool.name]) if found[tool.name] else f"FAILED: {why[tool.name]}"))
        if found[tool.name] and found[tool.name][-1].said.note:
            print(f"  {'':15} {found[tool.name][-1].said.note}")
        if found[tool.name] and tool.name in why:
            print(f"  {'':15} failed in {rounds - len(found[tool.name])} round(s): {why[tool.name]}")
    sys.stdout.flush()
    return found


def row(got: Sequence[Measured]) -> str:
    def mid(figure: Callable[[Measured], float]) -> float:
        return median(figure(m) for m in got)

    token_ms = [m.said.token_ms for m in got if m.said.token_ms is not None]
    rates = [m.said.tok_s for m in got if m.said.tok_s is not None]
    costs = [m.cost for m in got]
    other = max(c.other_cores for c in costs)
    return (
        f"{mid(lambda m: m.said.ttft_p50_ms):9.1f} {mid(lambda m: m.said.ttft_p95_ms):7.1f} "
        f"{mid(lambda m: m.p50_error_ms):+10.2f} {mid(lambda m: m.p95_error_ms):+7.2f} "
        f"{figure(token_ms, 9, 2)} {figure(rates, 7, 0)} {mid(lambda m: m.cost.cores):6.3f} "
        f"{max(c.rss_mib for c in costs):8.0f} {max(c.own_mib for c in costs):6.0f} "
        f"{max(c.processes for c in costs):5d}  {max(m.true.late_ms for m in got):.1f} ms, {other:.2f} cores"
        + ("  <- NOT QUIET" if other > BUSY_CORES else "")
    )


def figure(values: Sequence[float], width: int, digits: int) -> str:
    return f"{median(values):{width}.{digits}f}" if values else f"{'-':>{width}}"


def scenario(tools: Sequence[Peer], homes: Homes, words: Path, name: str) -> None:
    """Prints what each tool makes of a stream that is not one token a chunk."""
    true_ms = 1000 * true_token_s(SCENARIOS[name], SCENARIO_TOKENS)
    head = True
    for tool in tools:
        try:
            got = measure(tool, name, SCENARIO_STREAMS, SCENARIO_STREAMS, SCENARIO_TOKENS, homes[tool.name], words)
        except Failed as why:
            print(f"  {tool.name:15} FAILED: {why}")
            continue
        if head:
            print(f"\nscenario {name}: first token {got.true.ttft_p50_ms:.1f} ms, first visible "
                  f"{got.true.visible_p50_ms:.1f} ms, {true_ms:.2f} ms a token after the first chunk")  # fmt: skip
            head = False
        said = got.said
        visible = "-" if said.visible_p50_ms is None else f"{said.visible_p50_ms:.1f}"
        token = "-" if said.token_ms is None else f"{said.token_ms:.2f}"
        wrong = "" if said.token_ms is None else f" ({100 * (said.token_ms / true_ms - 1):+.1f} %)"
        print(f"  {tool.name:15} TTFT {said.ttft_p50_ms:.1f}, visible {visible}, ms a token {token}{wrong}"
              + (f"  [{tool.note}]" if tool.note else ""))  # fmt: skip
    sys.stdout.flush()


def result(found: dict[str, list[Measured]]) -> int:
    """The last line. 1 when ours, or every peer, gave nothing."""
    p95 = {name: abs(median(m.p95_error_ms for m in got)) for name, got in found.items() if got}
    peers = {name: error for name, error in p95.items() if name != OURS.name}
    if OURS.name not in p95 or not peers:
        print("timing: no result: " + ("no peer gave one" if OURS.name in p95 else "ours gave none"))
        return 1
    best = min(peers, key=lambda name: peers[name])
    p50 = abs(median(m.p50_error_ms for m in found[OURS.name]))
    print(f"timing: streams={MAIN} ttft_p50_error_ms={p50:.2f} ttft_p95_error_ms={p95[OURS.name]:.2f} "
          f"best_peer_p95_ms={peers[best]:.2f} best_peer={best}")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
