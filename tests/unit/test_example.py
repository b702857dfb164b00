"""The evidence that docs/ shows: sound, drawn again byte for byte, and its links end somewhere."""

from __future__ import annotations

import re
from pathlib import Path

from anvil_tui.adapters.bundle_files import BundleFolders
from anvil_tui.core.bundle import REPORTS
from anvil_tui.core.verify import report_texts
from anvil_tui.service.bundles import read_bundle
from anvil_tui.service.evidence import check_bundle

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "evidence"
AGAIN = "write it again: anvil-tui evidence report docs/evidence/example-smollm2 --html"


def test_the_example_is_sound_and_its_reports_are_what_the_bundle_says() -> None:
    store = BundleFolders(DOCS / "none", DOCS)
    (at,) = store.all()
    found = check_bundle(store, at)
    assert found.problems == (), AGAIN
    bundle = read_bundle(store, at)
    assert (bundle.kind, bundle.passed, bundle.identity.suite) == ("measured", True, "full-small")
    assert {r.verdict.value for r in bundle.results} == {"passed"}
    files = {name: data.decode() for name, data in store.read(at).items()}
    made = {name: text for name, text in files.items() if name.removeprefix(at.prefix) in REPORTS}
    assert len(made) == len(REPORTS)
    whole = {name: text for name, text in files.items() if name not in made}
    assert report_texts(whole, at.prefix, pages=True) == made, AGAIN


def test_the_public_report_names_no_address_and_no_identifier() -> None:
    for path in (DOCS / "example-smollm2").glob("*-report-public.*"):
        text = path.read_text()
        assert not re.search(r"127\.0\.0\.1|e4860200280f[0-9a-f]|/(models|proc|dev|srv|tmp)\b", text), path.name


def test_every_link_of_the_page_ends_at_a_file_and_no_bundle_is_without_one() -> None:
    text = (DOCS / "README.md").read_text()
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert [link for link in links if not (DOCS / link).exists()] == []
    linked = {(DOCS / link).resolve().name for link in links}
    assert {p.name for p in (ROOT / "evidence").iterdir() if p.is_dir()} <= linked
