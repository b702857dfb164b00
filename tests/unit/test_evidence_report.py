"""The report of a bundle: every figure has its place, the public copy gives nothing away, the bytes are fixed."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from anvil_tui.core.claims import documents
from anvil_tui.core.errors import Refused
from anvil_tui.core.publish import REMOVED, image, published, scrubbed
from anvil_tui.core.report import make_report
from anvil_tui.core.verify import report_texts
from tests.support.bundles import DECODE, PREFIX, PRIVATE, PROMPT, TTFT, measured, results, sealed_anew
from tests.unit.test_bundle import first_schema

FILES = measured()
TEXTS = report_texts(FILES, PREFIX, pages=True)
REPORT, PUBLIC = TEXTS[f"{PREFIX}report.md"], TEXTS[f"{PREFIX}report-public.md"]
FIGURE = re.compile(r"(?<![A-Za-z0-9])(?<![A-Za-z0-9]-)\d")


def resolved(file: str, pointer: str) -> Any:
    """RFC 6901 by hand; an ndjson file is the list of its lines."""
    text = FILES[file]
    if pointer == "#sha256":
        return hashlib.sha256(text.encode()).hexdigest()
    if pointer == "#bytes":
        return len(text.encode())
    value: Any = [json.loads(line) for line in text.splitlines()] if file.endswith(".ndjson") else json.loads(text)
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        value = value[int(key) if isinstance(value, list) else key]
    return value


@pytest.mark.parametrize("stem", ["report", "report-public"])
def test_every_figure_stands_in_a_sentence_whose_source_is_found(stem: str) -> None:
    ledger = json.loads(TEXTS[f"{PREFIX}{stem}-claims.json"])
    lines = TEXTS[f"{PREFIX}{stem}.md"].splitlines()
    told: dict[int, list[str]] = {}
    for row in ledger["claims"]:
        assert row["sources"], row
        for source in row["sources"]:
            resolved(source["file"], source["pointer"])
        told.setdefault(row["line"], []).append(row["sentence"])
    for n, line in enumerate(lines, 1):
        rest = line
        for sentence in sorted(told.get(n, []), key=len, reverse=True):
            assert sentence in line
            rest = rest.replace(sentence, "", 1)
        assert not FIGURE.search(rest), f"line {n}: {rest}"
    assert sum(bool(FIGURE.search(line)) for line in lines) > 30
    assert ledger["sha256"] == hashlib.sha256(TEXTS[f"{PREFIX}{stem}.md"].encode()).hexdigest()


def test_the_figure_of_a_sentence_is_the_value_at_its_place() -> None:
    """Of sentences that show one value as it is, and of the medians, which this test computes itself."""
    ledger = json.loads(TEXTS[f"{PREFIX}report-claims.json"])["claims"]
    rates = [row for row in ledger if row["sentence"].endswith(" tok/s") and "output" not in row["sentence"]]
    middles = [sorted(DECODE[label])[1] for label in DECODE]
    shown = [float(row["sentence"].removesuffix(" tok/s")) for row in rates]
    assert shown == middles == [resolved(r["sources"][0]["file"], r["sources"][0]["pointer"]) for r in rates]


def test_the_card_and_the_tables_are_those_of_the_records() -> None:
    for text in (
        "| Setup | Qualified value |", "| Headline measurement | Local result | Conditions |", "2x NVIDIA H200",
        "32,768 context tokens, 2,048 output tokens, scheduler C4, thinking off",
        "the suite did not pass; 1 failed, 1 unverified, 3 passed", "4,100 / 3,900 MiB", "4,000 / 3,800 MiB",
        "unverified, accepted by its rule", "strict JSON", "waived 2026-09-02",
        "Not recorded of the setup: prompts.", "It qualifies nothing: the suite did not pass (passed: False).",
    ):  # fmt: skip
        assert text in REPORT, text
    row = next(line for line in REPORT.splitlines() if line.startswith("| 16K |"))
    low, middle, high = sorted(TTFT["16K"])
    assert f"| {middle:g} ({low:g} to {high:g}) |" in row and f"{PROMPT['16K']:,}" in row


def test_the_public_copy_gives_nothing_away_and_says_what_it_lacks() -> None:
    page, ledger = TEXTS[f"{PREFIX}report-public.html"], TEXTS[f"{PREFIX}report-public-claims.json"]
    for secret in PRIVATE:
        for text in (PUBLIC, page, ledger):
            assert secret not in text, secret
    for secret in (PRIVATE[0], PRIVATE[1], "127.0.0.1:9131", "box17.lan"):
        assert secret in REPORT, f"{secret} would have been there to be removed"
    section = PUBLIC[PUBLIC.index("## Removed from this public copy") :]
    for field in ("identity.json: identity.container", "identity.json: identity.gpu_uuids", "identity.json: notes",
                  "identity.json: identity.image", "results.json: reason"):  # fmt: skip
        assert f"| {field} |" in section, field
    assert "4,100 / 3,900 MiB" in PUBLIC and "NVIDIA H200" in PUBLIC and "check_failed" in PUBLIC


def test_the_public_copy_names_its_private_source() -> None:
    for name, text in FILES.items():
        data = text.encode()
        assert f"| {name} | {len(data):,} | {hashlib.sha256(data).hexdigest()} |" in PUBLIC


def test_the_same_bytes_each_time_and_the_order_of_files_does_not_matter() -> None:
    assert report_texts(dict(reversed(FILES.items())), PREFIX, pages=True) == TEXTS


def test_the_page_fetches_nothing_and_runs_nothing() -> None:
    page = TEXTS[f"{PREFIX}report.html"]
    assert not re.search(r"(?i)<script|\bon\w+=|<link|<img|<iframe|@import|url\(|(?:src|href)=", page)
    assert page.count("<svg") == 2 and "default-src 'none'" in page


def test_foreign_text_is_no_markup() -> None:
    made = measured()
    name = f"{PREFIX}identity.json"
    evil = "a|b <script>alert(1)</script> `x` *y*"
    made = sealed_anew({**made, name: made[name].replace('"Q4_K_M"', json.dumps(evil))})
    texts = report_texts(made, PREFIX, pages=True)
    assert "<script>" not in texts[f"{PREFIX}report.html"] and "&lt;script&gt;" in texts[f"{PREFIX}report.html"]
    assert "a\\|b \\<script>alert(1)\\</script> \\`x\\` \\*y\\*" in texts[f"{PREFIX}report.md"]


def test_a_bundle_of_the_first_schema_has_no_report() -> None:
    with pytest.raises(Refused, match="keeps no identity"):
        make_report(first_schema())


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("http://127.0.0.1:8001/v1: refused", f"{REMOVED} refused"),
        ("see /srv/models/x and ~/a/b", f"see {REMOVED} and {REMOVED}"),
        ("box.lan:22 db01.internal", f"{REMOVED} {REMOVED}"),
        ("on gpu-host:8001 now", f"on {REMOVED} now"),
        ("10.0.0.7", REMOVED),
        ("fd00::1:2:3 and ::1", f"{REMOVED} and {REMOVED}"),
        ("GPU-aaaa0000-0000-0000-0000-000000000001", REMOVED),
        ("f" * 64, REMOVED),
        (r"C:\models\x", REMOVED),
        ("ann@box.example.com", REMOVED),
    ],
)
def test_shapes_that_give_a_machine_away_go(text: str, left: str) -> None:
    assert scrubbed(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "org/Model-9B@319d66a8", "anvil@sha256:" + "4" * 64, "2026-08-31T10:00:00+00:00", "6/6, session 3/3",
        "decode by N(1-1/C)/T", "driver 580.95.05", "0.1.dev20051+g487ecf187", "n/a", "C2 at 206,630", "[3,5]",
    ],
)  # fmt: skip
def test_what_identifies_software_and_figures_stays(text: str) -> None:
    assert scrubbed(text) == text


@pytest.mark.parametrize(
    ("ref", "left"),
    [
        ("reg.corp:5000/a/b@sha256:1", f"{REMOVED}/a/b@sha256:1"),
        ("ghcr.io/a/b", "ghcr.io/a/b"),
        ("a@sha256:1", "a@sha256:1"),
    ],
)
def test_only_hosts_of_closed_registries_are_endpoints(ref: str, left: str) -> None:
    assert image(ref) == left and image(None) is None


def test_no_observation_of_a_measured_bundle_goes_out_but_its_numbers() -> None:
    made, removed = published(documents(FILES), historical=False)
    lines = made[f"{PREFIX}observations.ndjson"].value
    texts = {
        v for line in lines for k, v in line.items() if isinstance(v, str) and k not in ("gate", "kind", "failure")
    }
    assert texts <= {REMOVED, ""}
    assert any(f.pointer.endswith("/excerpt") for f in removed)


def test_times_that_must_not_be_used_are_no_headline_and_no_point() -> None:
    made = list(results())
    first, last = made[2].rows
    assert last.instrument is not None
    spoilt = replace(last, instrument=replace(last.instrument, invalid="it looked late"))
    made[2] = replace(made[2], rows=(first, spoilt))
    texts = report_texts(measured(tuple(made)), PREFIX, pages=True)
    report = texts[f"{PREFIX}report.md"]
    headline = report[report.index("## Headline") : report.index("## Rows of gate")]
    assert "Decode at 2,001 prompt tokens" in headline and "16,010" not in headline
    (row,) = [line for line in report.splitlines() if line.startswith("| 16K |")]
    assert "| must not be used |" in row
    assert "row 16K: its times must not be used: it looked late." in report
    assert texts[f"{PREFIX}report.html"].count("not known: C1 at 16K") == 2
