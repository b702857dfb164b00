"""The rows of a lane in a report: what was asked, what came of it, how good the instrument was; plots. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from anvil_tui.core.claims import (
    NOT_RECORDED,
    RATE,
    SECONDS,
    Fact,
    Section,
    Shown,
    Table,
    claim,
    count,
    label,
    show,
    words,
)
from anvil_tui.core.lanes import LaneRow, drawable
from anvil_tui.core.plots import Chart, over_depth, over_streams
from anvil_tui.core.publish import scrubbed
from anvil_tui.core.report_close import Source, completed, completed_text
from anvil_tui.core.text import clean


def way(s: Source, result: Fact) -> tuple[str | Shown, ...]:
    """The gate, and whether its requests went to the serve's own port; a suite that was not kept does not say."""
    gates = (g for g in s.about["suite"]["gates"] if g["id"].value == result["gate"].value)
    routed = next((g["routed"] for g in gates), Fact(s.about.file, "/suite", None))
    return show(result["gate"]), ", ", show(routed, _routed), ": "


def _routed(routed: Any) -> str:
    return {True: "through the gateway", False: "direct"}.get(routed, f"path {NOT_RECORDED}")


def state(row: Fact) -> tuple[str | Shown, ...]:
    """What a figure means nothing without: prefix cache, length of output, error of the instrument."""
    error = row["instrument"]["error_p50_ms"]
    return (
        "; prefix cache ", show(row["cache"], known_state), "; output ", show(row["output"], known_state),
        "; instrument error ", show(error, SECONDS), *((" ms",) if error.value is not None else ()),
    )  # fmt: skip


def known_state(state: Any) -> str:
    return words("" if state == "unknown" else state)


def depth(row: Fact) -> Shown:
    return Shown((row["prompt_tokens"]["p50"], row["nominal_tokens"]), depth_text)


def depth_text(actual: Any, nominal: Any) -> str:
    if actual is not None:
        return f"{actual:,.0f} prompt tokens"
    return f"depth {NOT_RECORDED}" if nominal is None else f"nominal {nominal:,} tokens"


Column = tuple[str, Callable[[Fact], Sequence[Fact]], Callable[..., str]]


def _spread_column(title: str, key: str, how: Callable[[Any], str]) -> Column:
    """Median and ends; `n` where not every request that completed has the figure."""

    def text(middle: Any, low: Any, high: Any, n: Any, asked: Any, bad: Any) -> str:
        if middle is None or low is None or high is None:
            return how(middle)
        of = "" if n == asked - bad else f", of {n}"
        return f"{how(middle)} ({how(low)} to {how(high)}{of})" if low != high or of else how(middle)

    return (
        title,
        lambda row: (*(row[key][k] for k in ("p50", "low", "high", "n")), row["requests"], row["failed"]),
        text,
    )


def _plain_column(title: str, key: str, how: Callable[[Any], str] = words) -> Column:
    return title, lambda row: (row[key],), how


def _share_of_one(part: Any) -> str:
    return NOT_RECORDED if part is None else f"{100 * part:.1f} %"


def _instrument(title: str, *keys: str) -> Column:
    return title, lambda row: tuple(row["instrument"][k] for k in keys), _figures


def _figures(*values: Any) -> str:
    return NOT_RECORDED if values[0] is None else " / ".join(map(SECONDS, values))


def _loop(loop: Any, source: Any) -> str:
    """How requests followed each other; no record says it."""
    return str(loop) if source == "measured" else NOT_RECORDED


_ROW = _plain_column("Row", "label")
_TABLES: tuple[tuple[Column, ...], ...] = (
    (
        _ROW,
        _plain_column("Streams", "streams", lambda n: f"C{n}"),
        ("Loop", lambda row: (row["loop"], row["source"]), _loop),
        ("Requests", lambda row: completed(row).facts, completed_text),
        _plain_column("Nominal tokens", "nominal_tokens", count),
        _spread_column("Prompt tokens p50", "prompt_tokens", count),
        _spread_column("Completion tokens p50", "completion_tokens", count),
        _plain_column("Output", "output", known_state),
        _plain_column("Prefix cache", "cache", known_state),
        _spread_column("Cached tokens p50", "cached_tokens", count),
    ),
    (
        _ROW,
        _spread_column("TTFT any p50, s", "ttft_any_s", SECONDS),
        _spread_column("TTFT visible p50, s", "ttft_visible_s", SECONDS),
        _spread_column("Decode p50, tok/s", "decode_tok_s", RATE),
        _spread_column("Decode (N-1)/T p50, tok/s", "decode_seeds_tok_s", RATE),
        _spread_column("Effective prefill p50, tok/s", "prefill_tok_s", RATE),
        _spread_column("E2E p50, s", "e2e_s", SECONDS),
        _plain_column("Aggregate, tok/s", "aggregate_tok_s", RATE),
        (
            "Times",
            lambda row: (row["instrument"]["invalid"],),
            lambda why: "must not be used" if why else "usable",
        ),
    ),
    (
        _ROW,
        _plain_column("Running, most", "running_peak"),
        _plain_column("Waiting, most", "waiting_peak"),
        _plain_column("KV use, most", "kv_peak", _share_of_one),
        _plain_column("Preempted", "preempted"),
        _spread_column("Client queue p50, s", "queue_s", SECONDS),
        _instrument("TTFT error p50 / p95, ms", "error_p50_ms", "error_p95_ms"),
        _instrument("Loop lag p50 / p99 / most, ms", "lag_p50_ms", "lag_p99_ms", "lag_max_ms"),
        _instrument("Collections / longest, ms", "collections", "collection_max_ms"),
        _instrument("CPU / wall, s", "cpu_s", "wall_s"),
    ),
)
"""What was asked, what came of it, and how far the engine and the instrument were at their limits."""

_ALWAYS = ("Row", "Output", "Prefix cache")


def lane(s: Source, result: Fact) -> Section:
    """Columns that no row has a value for are left out, but those that no figure means anything without."""
    rows = list(result["rows"])
    tables = [_table(rows, columns) for columns in _TABLES]
    origin = Shown(tuple(r["source"] for r in rows), lambda *all_: "; ".join(dict.fromkeys(all_)))
    _, _, routed, _ = way(s, result)
    source = claim(
        "Kind ", show(result["kind"]), "; requests: ", routed, "; source: ", origin, ". Figures are medians "
        "(lowest to highest request). Decode is tokens after the first chunk over the time after it; (N-1)/T, "
        "kept beside it for older records, takes the first chunk for one token.",
    )  # fmt: skip
    made = next(r.rows for r in s.bundle.results if r.gate == result["gate"].value)
    safe = scrubbed if s.public else clean
    drawn = [replace(row, label=clean(safe(row.label))) for row in made]
    shown = tuple(t for t in tables if len(t.head) > 1)
    return Section(claim("Rows of gate ", show(result["gate"])), (source,), shown, charts=_charts(drawn))


def _table(rows: Sequence[Fact], columns: Sequence[Column]) -> Table:
    known = [c for c in columns if c[0] in _ALWAYS or any(c[1](row)[0].value not in (None, "") for row in rows)]
    body = tuple(tuple(claim(Shown(tuple(pick(row)), how)) for _, pick, how in known) for row in rows)
    return Table(tuple(label(c[0]) for c in known), body)


def _charts(rows: Sequence[LaneRow]) -> tuple[Chart, ...]:
    """Decode and TTFT over depth where depths differ, over concurrency where loads do; one line a fixed other."""
    rows = [drawable(r) for r in rows]
    by = ""
    if all(r.decode_tok_s is None for r in rows):
        by, rows = ", by (N-1)/T", [replace(r, decode_tok_s=r.decode_seeds_tok_s) for r in rows]
    depths = {r.prompt_tokens.p50 for r in rows if r.prompt_tokens}
    charts: list[Chart] = []
    if len(depths) > 1:
        charts += [over_depth(_arms(rows, "depth", by), "decode"), over_depth(_arms(rows, "depth"), "ttft")]
    if len({r.streams for r in rows}) > 1:
        charts += [
            over_streams(_arms(rows, "streams", by), "decode"),
            over_streams(_arms(rows, "streams"), "ttft"),
        ]
    return tuple(c for c in charts if any(p.y is not None for a in c.series for p in a.points))


def _arms(rows: Sequence[LaneRow], over: str, by: str = "") -> dict[str, list[LaneRow]]:
    arms: dict[str, list[LaneRow]] = {}
    for row in rows:
        name = f"C{row.streams}" if over == "depth" else depth_text(None, row.nominal_tokens)
        arms.setdefault(name + by, []).append(row)
    return arms
