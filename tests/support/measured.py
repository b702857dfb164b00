"""Worlds with measured lanes: a qualification that runs, one that ended with its bundle, and two arms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from anvil_tui.core.bundle import Bundle, Identity
from anvil_tui.core.compare import compare, rows_compared
from anvil_tui.core.gates import FailureClass, GateResult, Observation, Verdict
from anvil_tui.core.holding import past_of
from anvil_tui.core.journal import GateView, OperationView, StepView
from anvil_tui.core.lanes import Instrument, LaneRow, Spread
from anvil_tui.core.matching import Arm
from anvil_tui.core.serves import derive
from anvil_tui.core.shelf import Compared, RunFiles
from anvil_tui.core.world import Lease, World
from tests.support import worlds
from tests.support.worlds import CANDIDATE, FakeEvidence, at

OPERATION = "20260902-1150-qualify"
SERVE = worlds.cid(CANDIDATE)[:12]
BUNDLE = f"{OPERATION}/{SERVE}"
DEPTHS = (4_096, 16_384, 65_536, 131_072, 262_144)
DECODE = (104.0, 99.0, 88.0, 71.0, 52.0)
TTFT = (0.42, 1.6, 7.1, 17.0, 46.0)
GOOD = Instrument(0.1, 0.5, 1.0, 0, 0.0, 0.1, 10.0, 30.0, error_p50_ms=0.3, error_p95_ms=1.2)
GATES = ({"id": "smoke", "kind": "smoke", "repeat": 3, "timeout_s": 60, "proves": "it answers at all"},
         {"id": "depth", "kind": "depth-sweep", "prompt_tokens": list(DEPTHS), "completion_tokens": 256,
          "requests": 5, "timeout_s": 1800, "decode_at_least_tok_s": 40.0, "routed": False,
          "proves": "TTFT and decode rate to the end of the context"},
         {"id": "ladder", "kind": "ladder", "prompt_tokens": [4096], "streams": [1, 2, 4], "requests": 8,
          "timeout_s": 600})  # fmt: skip
IDENTITY = Identity(
    recipe=CANDIDATE, recipe_digest="sha256:a", model="glm53", revision="r", quantization="exl3", served_name="a",
    engine="sglang", engine_version="0.5.3", image="x@sha256:1", image_id="sha256:1", container="c1",
    config="sha256:1", context_tokens=393_216, max_output_tokens=4096, concurrency=1, kv_type="fp8",
    speculation="none", thinking="none", gpus=("card", "card"), gpu_uuids=worlds.UUIDS, driver="580", cuda="13",
    kernel="6", docker="28", harness="anvil-tui 1", suite="performance", suite_digest="sha256:s",
)  # fmt: skip


def around(value: float, share: float = 0.02) -> Spread:
    return Spread(5, value * (1 - share), value, value * (1 + share))


def of(values: Iterable[float | int | None]) -> Spread:
    ordered = sorted(float(v) for v in values if v is not None)
    return Spread(len(ordered), ordered[0], ordered[len(ordered) // 2], ordered[-1])


def requests(n: int, factor: float = 1.0) -> tuple[Observation, ...]:
    """The five requests at `DEPTHS[n]`, decode rates times `factor`, 2 % around the middle one."""
    made: list[Observation] = []
    for k in range(1, 6):
        near = 0.97 + 0.01 * k
        rate, ttft = DECODE[n] * factor * near, TTFT[n] * near
        made.append(Observation(
            k, True, prompt_tokens=DEPTHS[n] + k, completion_tokens=256, ttft_any_s=ttft, ttft_visible_s=ttft,
            e2e_s=ttft + 255 / rate, decode_tok_s=rate,
            raw={"purpose": "request", "row": f"C1 {DEPTHS[n]:,} unique", "prompt": k, "finish_reason": "length",
                 "cached_tokens": 0},
        ))  # fmt: skip
    return tuple(made)


def depth_row(n: int, factor: float = 1.0, **more: Any) -> LaneRow:
    """The row of those requests."""
    seen = requests(n, factor)
    base = LaneRow(
        "depth", 1, 5, label=f"C1 {DEPTHS[n]:,} unique", nominal_tokens=DEPTHS[n],
        prompt_tokens=of(o.prompt_tokens for o in seen), completion_tokens=of(o.completion_tokens for o in seen),
        output="forced", cache="cold", cached_tokens=Spread(5, 0.0, 0.0, 0.0),
        ttft_any_s=of(o.ttft_any_s for o in seen), ttft_visible_s=of(o.ttft_visible_s for o in seen),
        e2e_s=of(o.e2e_s for o in seen), decode_tok_s=of(o.decode_tok_s for o in seen),
        aggregate_tok_s=DECODE[n] * factor * 0.7, instrument=GOOD,
    )  # fmt: skip
    return replace(base, **more)


def ladder_row(streams: int) -> LaneRow:
    return LaneRow(
        "ladder", streams, 8, failed=int(streams == 4), label=f"C{streams} 4,096 unique", nominal_tokens=4096,
        prompt_tokens=around(4096, 0.001), output="not forced", cache="unknown",
        ttft_any_s=around(0.4 * streams), decode_tok_s=around(104 / streams**0.4),
        aggregate_tok_s=104 * streams**0.6, instrument=replace(GOOD, invalid="event-loop lag p99 7.1 ms"),
        notes=("a request waited in the engine's queue",) if streams == 4 else (),
    )  # fmt: skip


def _views(rows: int, verdict: str) -> tuple[GateView, ...]:
    depth = GateView("depth", "depth-sweep", "running", 5 * rows, 25, recipe=CANDIDATE, started_at=at(130),
                     rows=tuple(depth_row(n) for n in range(rows)))  # fmt: skip
    if verdict == "passed":
        depth = replace(depth, verdict="passed", done=1, of=1, elapsed_s=412.6, reason="5 rows, to 262,144")
    return (
        GateView("smoke", "smoke", "passed", 3, 3, "3/3", 2.4, CANDIDATE, started_at=at(140)), depth,
        GateView("ladder", "ladder", "pending", recipe=CANDIDATE),
    )  # fmt: skip


def operation(rows: int = 3, *, paused: bool = False) -> OperationView:
    step = StepView("gates", "run the gates of suite performance", "running", at(140), None, 3600)
    return OperationView(
        OPERATION, "qualify", CANDIDATE, "a1b2c3d4e5f6", "primary", at(141), None, 4300, (step,),
        gates=_views(rows, "running"), paused=paused, last_note="gate depth 15/25",
    )  # fmt: skip


def earlier() -> OperationView:
    """The same suite passed yesterday: what its gates usually take."""
    gates = tuple(
        replace(g, verdict="passed", done=1, of=g.of if g.kind == "smoke" else 1, elapsed_s=took)
        for g, took in zip(_views(5, "passed"), (2.2, 398.0, 41.0), strict=True)
    )
    return replace(operation(5), id="20260901-1000-qualify", gates=gates, outcome="done", ended_at=at(80_000))


def measuring(rows: int = 3, *, paused: bool = False, read_only: bool = False) -> World:
    """A qualification of what serves: `rows` of five depths are measured."""
    now = operation(rows, paused=paused)
    return derive(replace(
        worlds.calm(read_only), operations=(earlier(), now), lease=Lease(now.id, 4300, "sekou", at(141)),
    ))  # fmt: skip


def measured(name: str = OPERATION) -> World:
    """The same one, ended: depth passed, the ladder failed."""
    ladder = GateView("ladder", "ladder", "failed", 0, 1, "C4: 1 of 8 requests failed", 44.0, CANDIDATE)
    done = replace(
        operation(5), id=name, gates=(*_views(5, "passed")[:2], ladder), outcome="undone", ended_at=at(10),
        why="suite performance did not pass",
    )  # fmt: skip
    return derive(replace(worlds.calm(), operations=(earlier(), done)))


def observations(factor: float = 1.0) -> tuple[Observation, ...]:
    """Five requests a row, with the row's own facts before them."""
    seen: list[Observation] = []
    for k, tokens in enumerate(DEPTHS):
        label = f"C1 {tokens:,} unique"
        facts = {"purpose": "row", "row": label, "prompts": "sha256:p", "completion_tokens": 256,
                 "request": {"temperature": 0.0}}  # fmt: skip
        seen.append(Observation(0, True, raw=facts))
        seen += requests(k, factor)
    return tuple(seen)


def bundle(
    factor: float = 1.0, name: str = BUNDLE, when: str = "2026-09-02T11:50:00+00:00", excerpt: str = "OK",
    identity: Mapping[str, Any] = {},
) -> Bundle:  # fmt: skip
    """What the run left; smoke's second request failed with `excerpt` as the model's words."""
    said = (
        Observation(1, True, prompt_tokens=31, completion_tokens=4, ttft_any_s=0.2, e2e_s=0.4, excerpt="OK"),
        Observation(2, False, FailureClass.CHECK, "expected 'OK' alone", 31, 60, excerpt=excerpt),
    )
    results = (
        GateResult("smoke", "smoke", Verdict.FAILED, "1/3; request 2: check_failed", 1, 3, 2.4,
                   (FailureClass.CHECK,), said),
        GateResult("depth", "depth-sweep", Verdict.PASSED, "1/1", 1, 1, 412.6, (), observations(factor),
                   rows=tuple(depth_row(n, factor) for n in range(5))),
        GateResult("ladder", "ladder", Verdict.FAILED, "C4: 1 of 8 requests failed", 0, 1, 44.0,
                   rows=tuple(ladder_row(n) for n in (1, 2, 4))),
    )  # fmt: skip
    files = {f"{SERVE}-{part}": "0123456789abcdef" * 4 for part in ("identity.json", "results.json")}
    return Bundle(name, "measured", when, replace(IDENTITY, **identity), False, results, files,
                  suite={"id": "performance", "gates": list(GATES)})  # fmt: skip


def lanes(factor: float, name: str, when: str, **identity: Any) -> Bundle:
    """Only the depth sweep, passed: an arm of a comparison. It is consistent in itself: a check finds nothing."""
    whole = bundle(factor, name, when, identity=identity)
    return replace(whole, results=whole.results[1:2], passed=True, suite={**whole.suite, "gates": [GATES[1]]})


@cache
def arms() -> tuple[Bundle, Bundle]:
    """The older one on another image, a fifth slower than the newer."""
    old = lanes(0.8, "20260901-1000-qualify/aaaaaaaaaaaa", "2026-09-01T10:00:00+00:00", image="x@sha256:0",
                image_id="sha256:0", engine_version="0.5.2")  # fmt: skip
    return old, lanes(1.0, BUNDLE, "2026-09-02T11:50:00+00:00")


def compared(**identity: Any) -> Compared:
    old, new = arms()
    a, b = Arm("A", (old,)), Arm("B", (replace(new, identity=replace(new.identity, **identity)),))
    return Compared(found := compare(a, b), rows_compared([found], [a, b]))


def shelf_of_bundles() -> World:
    """Two bundles of ours, a record of other times, and one that cannot be read."""
    record = replace(arms()[0], id="2026-08-31-524k-k5", kind="historical", at="2026-08-31", passed=None)
    pasts = tuple(past_of(b) for b in (*arms(), record))
    return derive(replace(
        measured(), pasts=pasts,
        broken_bundles={"20260902-0900-qualify/cccccccccccc": "results.json: line 1 is no JSON document"},
    ))  # fmt: skip


def run_files(**more: Any) -> RunFiles:
    return RunFiles(OPERATION, (bundle(**more),))


def on_disk(compared_as: Compared | None = None) -> FakeEvidence:
    """The run's bundle and a comparison, as the console's service would read them."""
    found = FakeEvidence()
    found.runs[OPERATION] = run_files()
    found.compared = compared_as or compared()
    return found
