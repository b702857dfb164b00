"""The records of August and September 2026 as bundles: each figure is the record's own, written here by hand."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from anvil_tui.core.bundle import Bundle, bundle_from
from anvil_tui.core.gates import GateResult
from anvil_tui.core.lanes import LaneRow, Spread
from anvil_tui.core.verify import check, report_texts

KEPT = Path(__file__).parents[2] / "evidence"
NAMES = ("identity.json", "observations.ndjson", "results.json", "manifest.json")
FOLDERS = sorted(p.name for p in KEPT.iterdir() if p.is_dir())

# nominal tokens, n, decode (N-1)/T, TTFT, prompt tokens, effective prefill, E2E, aggregate; "" = not recorded
Row = tuple[str, int, str, str, str, str, str, str]
FIGURES: dict[str, dict[str, list[Row]]] = {
    "2026-08-31-524k-k5": {
        "depth": [
            ("4000", 5, "83.08", "0.974", "", "", "", ""),
            ("240000", 5, "64.51", "59.80", "", "", "", ""),
            ("240000", 5, "70.50", "59.67", "", "", "", ""),
            ("240000", 10, "69.99", "", "", "", "", ""),
        ],
        "c2-250k": [("250000", 2, "", "", "206630", "", "", "")],
    },
    "2026-08-31-524k-nospec": {
        "depth": [("4000", 5, "42.61", "", "", "", "", ""), ("240000", 5, "43.63", "", "", "", "", "")],
        "c2-250k": [("250000", 2, "", "", "206630", "", "", "")],
    },
    "2026-08-30-1m-k5": {
        "depth": [
            ("4000", 5, "82.1", "1.00", "", "", "", ""),
            ("32000", 5, "62.2", "7.81", "", "", "", ""),
            ("65000", 5, "67.2", "11.16", "", "", "", ""),
            ("131000", 5, "67.4", "19.17", "", "", "", ""),
            ("240000", 5, "67.9", "38.15", "", "", "", ""),
            ("500000", 3, "61.4", "123.36", "", "", "", ""),
        ],
        "c2": [
            ("131000", 4, "", "54.39", "", "", "55.21", ""),
            ("240000", 2, "", "37.41", "", "", "43.76", ""),
            ("500000", 2, "", "75.33", "", "", "85.25", ""),
        ],
        "c16": [("", 32, "", "", "", "", "", "35"), ("", 32, "", "", "", "", "", "26")],
    },
    "2026-08-30-1m-k3": {
        "depth": [("4000", 5, "66.8", "", "", "", "", "")],
        "c16": [("", 32, "", "", "", "", "", "36"), ("", 32, "", "", "", "", "", "42")],
    },
    "2026-08-30-1m-k5-b4096": {
        "depth": [("4000", 5, "62.5", "", "", "", "", "")],
        "c16": [("", 32, "", "", "", "", "", "32")],
    },
    "2026-08-30-262k-tr3": {
        "depth": [
            ("4000", 5, "64.5", "1.08", "", "", "", ""),
            ("32000", 5, "50.5", "8.19", "", "", "", ""),
            ("65000", 5, "55.2", "16.60", "", "", "", ""),
            ("131000", 5, "48.0", "34.39", "", "", "", ""),
            ("240000", 5, "45.7", "64.32", "", "", "", ""),
        ],
    },
    "2026-09-02-393k-c1": {
        "depth": [
            ("4000", 3, "112.07", "", "2969", "16729", "", ""),
            ("120000", 3, "96.17", "", "", "5749", "", ""),
            ("262000", 3, "102.42", "", "", "5579", "", ""),
            ("380000", 3, "99.79", "", "304491", "5457", "", ""),
        ],
        "endurance": [("4000", 60, "102.19", "", "", "", "", "")],
    },
    "2026-09-02-245k-c1": {
        "depth": [
            ("4000", 3, "108.57", "0.179", "2969", "16545", "", ""),
            ("120000", 3, "93.35", "16.707", "96278", "5763", "", ""),
            ("230000", 3, "95.00", "33.815", "189627", "5608", "", ""),
        ],
        "endurance": [("4000", 60, "105.82", "0.175", "2969", "16969", "", "")],
    },
    "2026-09-02-499k-c4": {
        "capacity": [("4000", 12, "", "", "", "", "", "147.54"), ("120000", 4, "", "148.86", "", "", "", "0.61")],
    },
    "2026-09-02-499k-c1": {},
}
COUNTS = {
    "2026-08-31-524k-k5": {"preflight": "28/28", "tools": "20/20", "intelligence": "6/6", "tool-use": "3/3",
                           "recall": "3/3", "context-ladder": "3/3"},
    "2026-08-31-524k-nospec": {"preflight": "28/28"},
    "2026-08-30-1m-k5": {"tools": "20/20", "vision-corpus": "12/12", "intelligence": "6/6", "recall": "3/3",
                         "tool-use": "3/3", "needle-950k": "1/1"},
    "2026-09-02-393k-c1": {"preflight": "10/10", "tools": "20/20", "coding": "15/15", "vision-corpus": "12/12"},
    "2026-09-02-245k-c1": {"preflight": "10/10", "tools": "20/20", "coding": "15/15", "vision-corpus": "12/12"},
}  # fmt: skip
FREE = {
    "2026-09-02-393k-c1": [3351, 2101, 2543], "2026-09-02-245k-c1": [4733, 3487], "2026-09-02-499k-c4": [49],
    "2026-09-02-499k-c1": [2347],
}  # fmt: skip
TOLD = {
    "2026-08-31-524k-k5": ["2,493,817 tokens", "4.76", "19.18 GiB", "+95.0%", "+60.4%", "+47.9%"],
    "2026-08-30-1m-k5": ["2,917,371 tokens", "2.78", "16.61 GiB", "242.0 s"],
}


def kept(folder: str) -> Bundle:
    return bundle_from({name: (KEPT / folder / name).read_text() for name in NAMES}, folder)


def middle(spread: Spread | None) -> Decimal | None:
    return None if spread is None else Decimal(repr(spread.p50))


def wanted(text: str) -> Decimal | None:
    return Decimal(text) if text else None


def same(row: LaneRow, figures: Row) -> None:
    nominal, n, decode, ttft, prompt, prefill, e2e, aggregate = figures
    assert (row.nominal_tokens, row.requests) == (int(nominal) if nominal else None, n)
    assert middle(row.decode_seeds_tok_s) == wanted(decode)
    assert middle(row.ttft_any_s) == wanted(ttft)
    assert middle(row.prompt_tokens) == wanted(prompt)
    assert middle(row.prefill_tok_s) == wanted(prefill)
    assert middle(row.e2e_s) == wanted(e2e)
    assert (None if row.aggregate_tok_s is None else Decimal(repr(row.aggregate_tok_s))) == wanted(aggregate)


def rows_of(bundle: Bundle) -> dict[str, tuple[LaneRow, ...]]:
    return {r.gate: r.rows for r in bundle.results if r.rows}


def test_the_records_are_the_ones_listed_here() -> None:
    assert sorted(FIGURES) == FOLDERS


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_figure_is_the_records_own(folder: str) -> None:
    bundle = kept(folder)
    assert bundle.kind == "historical" and bundle.id == folder and bundle.at == folder[:10]
    have = rows_of(bundle)
    assert {gate: len(rows) for gate, rows in have.items()} == {g: len(f) for g, f in FIGURES[folder].items()}
    for gate, rows in have.items():
        for row, figures in zip(rows, FIGURES[folder][gate], strict=True):
            same(row, figures)
    counts = {r.gate: f"{r.passed}/{r.of}" for r in bundle.results}
    assert {g: c for g, c in counts.items() if g in COUNTS.get(folder, {})} == COUNTS.get(folder, {})
    assert free(bundle.results) == FREE.get(folder, [])
    told = [o.raw["figure"] for r in bundle.results if r.kind == "record" for o in r.observations]
    assert told == TOLD.get(folder, [])


def free(results: tuple[GateResult, ...]) -> list[int]:
    """The same on both cards, as the records say: one figure a card."""
    found = []
    for seen in (o for r in results if r.kind == "reserve" for o in r.observations):
        first, second = seen.raw["free_mib"].values()
        assert first == second and seen.raw["reserve_mib"] == 3072
        found.append(first)
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_a_record_does_not_say_is_named_and_not_invented(folder: str) -> None:
    for row in (row for rows in rows_of(kept(folder)).values() for row in rows):
        assert row.source != "measured" and {"cache state", "spread (median only)"} <= set(row.missing)
        assert (row.cache, row.instrument, row.decode_tok_s, row.queue_s) == ("unknown", None, None, None)
        for spread in (row.decode_seeds_tok_s, row.ttft_any_s, row.prompt_tokens, row.prefill_tok_s, row.e2e_s):
            assert spread is None or (spread.low, spread.high) == (None, None)


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_is_sound_and_drawn_again(folder: str) -> None:
    data = {name: (KEPT / folder / name).read_bytes() for name in NAMES}
    assert check(data, "").problems == ()
    texts = report_texts({n: d.decode() for n, d in data.items()}, "", pages=True)
    for rows in FIGURES[folder].values():
        for row in rows:
            for figure in filter(None, row[2:4]):
                shown = figure.rstrip("0").rstrip(".") if "." in figure else figure
                assert f"| {shown} " in texts["report.md"]
    assert check({**data, **{n: t.encode() for n, t in texts.items()}}, "").problems == ()
