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
from anvil_tui.core.gates import Observation
from anvil_tui.core.lanes import Spread
from anvil_tui.core.publish import REMOVED, image, published, scrubbed
from anvil_tui.core.report import make_report
from anvil_tui.core.verify import report_texts
from anvil_tui.core.waivers import Waiver, waiver_text
from tests.support.bundles import DECODE, PREFIX, PRIVATE, PROMPT, TTFT, UUIDS, measured, results, sealed_anew
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
        "| Setup | Value |", "| Headline measurement | Local result | Conditions |", "2x NVIDIA H200",
        "32,768 context tokens, 2,048 output tokens, scheduler C4, thinking off",
        "the suite did not pass; 1 failed, 1 unverified, 3 passed", "4,100 / 3,900 MiB", "4,000 / 3,800 MiB",
        "unverified, accepted by its rule", "strict JSON", "waived 2026-09-02",
        "Not recorded of the setup: cuda.", "It qualifies nothing: the suite did not pass.",
    ):  # fmt: skip
        assert text in REPORT, text
    asked, came, instrument = (line for line in REPORT.splitlines() if line.startswith("| 16K |"))
    low, middle, high = sorted(TTFT["16K"])
    assert f"| {middle:g} ({low:g} to {high:g}) |" in came
    assert f"| C1 | closed | 3/3 completed | 16,000 | {PROMPT['16K']:,} | 64 | forced | cold | 0 |" in asked
    assert "| 0.4 / 0.9 | 0.1 / 0.2 / 0.3 | 1 / 2 | 0.5 / 12 |" in instrument


def test_no_figure_of_the_headline_stands_without_its_conditions() -> None:
    """Path, load, n, cache, output length and the instrument's error; what is not known says so."""
    first = "depth, path not recorded: 2K; C1, p50 of 3; TTFT any 0.375 s; prefix cache cold; output forced; "
    assert first + "instrument error 0.4 ms |" in REPORT
    made = list(results())
    odd = [replace(r, cache="unknown", output="unknown", instrument=None) for r in made[2].rows]
    made[2] = replace(made[2], rows=tuple(odd))
    files = measured(tuple(made))
    name = f"{PREFIX}identity.json"
    files = {**files, name: files[name].replace('"id": "depth",', '"id": "depth", "routed": true,')}
    report = report_texts(sealed_anew(files), PREFIX, pages=False)[f"{PREFIX}report.md"]
    unknown = "prefix cache not recorded; output not recorded; instrument error not recorded |"
    assert report.count(unknown) == 2 and "| depth, through the gateway: 2K;" in report
    assert "| not recorded | not recorded |" in next(line for line in report.splitlines() if "| 2K | C1" in line)


def test_of_repeats_none_is_picked() -> None:
    made = list(results())
    first, last = made[2].rows
    again = replace(last, label="16K again", decode_tok_s=Spread(3, 60.0, 61.0, 62.0))
    wide = [replace(last, label=f"C4 run {n}", streams=4, aggregate_tok_s=100.0 + n) for n in (1, 2)]
    made[2] = replace(made[2], rows=(first, last, again, *wide))
    report = report_texts(measured(tuple(made)), PREFIX, pages=False)[f"{PREFIX}report.md"]
    for figure in ("41 tok/s", "61 tok/s", "101 output tok/s", "102 output tok/s"):
        assert f"| {figure} |" in report, figure


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
        ("ann@box17", REMOVED),
        ("fe80::1%eth0 and [::1]:8000", f"{REMOVED} and {REMOVED}"),
        ("2001:db8:0:1:2:3:4:5 02:42:ac:11:00:02", f"{REMOVED} {REMOVED}"),
        ("10.0.0.0/24", REMOVED),
        ("gpu01.mycompany.com:8443/x box17.tail1234.ts.net", f"{REMOVED} {REMOVED}"),
        (r"C:/models/x \\nas\share\models", f"{REMOVED} {REMOVED}"),
        ("nfs:/srv/models (~/x)", f"nfs:{REMOVED} ({REMOVED})"),
        ("Bearer abcdef123456", "Bearer ***"),
    ],
)
def test_shapes_that_give_a_machine_away_go(text: str, left: str) -> None:
    assert scrubbed(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "org/Model-9B@319d66a8", "anvil@sha256:" + "4" * 64, "2026-08-31T10:00:00+00:00", "6/6, session 3/3",

        "decode by N(1-1/C)/T",
        "std::vector", "10:00:00", "vllm.entrypoints.openai", "Qwen2.5-7B.gguf",
        "driver 580.95.05", "0.1.dev20051+g487ecf187", "n/a", "C2 at 206,630", "[3,5]",
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
    assert removed[f"{PREFIX}observations.ndjson"]["excerpt"] == 9


def test_no_free_text_of_an_operator_goes_out_and_a_waiver_still_shows() -> None:
    """Waivers are written by `core.waivers`, notes by whoever ran the suite."""
    waiver = Waiver(
        "2026-11-01T10:00:00Z", "glm-small", UUIDS, 3_072, 0, "ann says box17 is hers; class a became b"
    )
    notes = (f"{waiver_text(waiver)} (no longer in force)", "moved from rack nine to box17 by ann")
    files = measured()
    name = f"{PREFIX}identity.json"
    about = json.loads(files[name]) | {"notes": notes}
    texts = report_texts(sealed_anew({**files, name: json.dumps(about)}), PREFIX, pages=True)
    public = texts[f"{PREFIX}report-public.md"]
    said = "reserve 0 MiB instead of 3,072 MiB, waived 2026-11-01 for \\[removed] (no longer in force)"
    assert f"- {said}\n- \\[removed]\n" in public
    assert not any(word in text for word in ("box17", "rack") for n, text in texts.items() if "public" in n)
    assert "box17" in texts[f"{PREFIX}report.md"]


def test_keys_of_foreign_json_are_no_field_of_the_public_copy() -> None:
    made = list(results())
    seen = Observation(1, True, raw={"json": {"keeperofthelamp": "x"}})
    made[4] = replace(made[4], observations=(seen,))
    texts = report_texts(measured(tuple(made)), PREFIX, pages=True)
    assert not any("keeperofthelamp" in text for text in texts.values())
    assert "| observations.ndjson: raw |" in texts[f"{PREFIX}report-public.md"]


def test_foreign_text_begins_no_heading_list_or_link() -> None:
    notes = ("# 5 of 5", "1. first", "- more", "> said", "![x](http://a.example/t.png) &lt; ~~no~~ _so_ a_b")
    files = measured()
    name = f"{PREFIX}identity.json"
    about = json.loads(files[name]) | {"notes": notes}
    report = report_texts(sealed_anew({**files, name: json.dumps(about)}), PREFIX, pages=False)[
        f"{PREFIX}report.md"
    ]
    for line in (
        "- \\# 5 of 5", "- 1\\. first", "- \\- more", "- \\> said",
        "- !\\[x](http://a.example/t.png) \\&lt; \\~~no\\~~ \\_so\\_ a_b",
    ):  # fmt: skip
        assert f"{line}\n" in report.replace("\\~\\~", "\\~~"), line


def test_a_ledger_does_not_grow_with_the_requests() -> None:
    """10,000 observations once took minutes: one source a removed value, each looked up in a file read anew."""
    made = list(results())
    one = made[1].observations[0]
    made[1] = replace(made[1], observations=tuple(replace(one, n=n) for n in range(1, 2_001)), of=2_000)
    texts = report_texts(measured(tuple(made)), PREFIX, pages=False)
    name = f"{PREFIX}report-public-claims.json"
    assert len(texts[name]) < 1.1 * len(TEXTS[name])


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
    _, row, _ = (line for line in report.splitlines() if line.startswith("| 16K |"))
    assert "| must not be used |" in row
    assert "row 16K: its times must not be used: it looked late." in report
    assert texts[f"{PREFIX}report.html"].count("not known: C1 at 16K") == 2
