"""What the console reads of the disk: bundles of an operation, damaged ones, comparisons, checks, suites."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from anvil_tui.adapters.bundle_files import BundleFolders
from anvil_tui.adapters.journal_file import OperationFolders
from anvil_tui.core.bundle import (
    IDENTITY,
    MANIFEST,
    OBSERVATIONS,
    RESULTS,
    About,
    Bundle,
    Manifest,
    about_text,
    fact_of,
    manifest_text,
    observations_text,
    prompts_digest,
    results_text,
    suite_digest,
)  # fmt: skip
from anvil_tui.core.errors import BadFile
from anvil_tui.core.gates import Suite, SuiteFile
from anvil_tui.core.journal import GateView
from anvil_tui.service import library
from anvil_tui.service.box import Box
from anvil_tui.service.library import Library
from anvil_tui.service.pasts import Pasts
from tests.support import measured, worlds
from tests.support.membox import World

GATE = GateView("depth", "depth-sweep", recipe=worlds.CANDIDATE)
SUITE = Suite.model_validate_json(
    json.dumps({"schema": "anvil.suite/1", "id": "performance", "gates": measured.GATES})
)


def whole(bundle: Bundle) -> Bundle:
    """With a whole suite, and the digests that belong to it and to what was sent."""
    suite = SUITE.model_copy(update={"gates": SUITE.gates[1:2]})
    identity = replace(
        bundle.identity, suite_digest=f"sha256:{suite_digest(suite)}", prompts=prompts_digest(bundle.results)
    )
    return replace(bundle, suite=suite.model_dump(mode="json", by_alias=True), identity=identity)


def write(folder: Path, bundle: Bundle) -> None:
    """As the gate run writes it, at a fixed time."""
    prefix = bundle.id.rpartition("/")[2] + "-"
    texts = {
        IDENTITY: about_text(About(bundle.identity, bundle.suite)),
        OBSERVATIONS: observations_text(bundle.results),
        RESULTS: results_text(bundle.results),
    }  # fmt: skip
    facts = {prefix + name: fact_of(text.encode()) for name, text in texts.items()}
    facts["plan.json"] = fact_of((folder / "plan.json").read_bytes())
    texts[MANIFEST] = manifest_text(
        Manifest("anvil.evidence/2", bundle.id, "measured", bundle.at, bundle.at, bundle.passed, facts)
    )
    for name, text in texts.items():
        (folder / (prefix + name)).write_text(text)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    """Two operations with a bundle each, and one that is still running its gates."""
    operations = OperationFolders(tmp_path / "state" / "operations")
    plan = {"title": "qualify x", "steps": [{"name": "gates", "args": {"suite": "performance"}}]}
    for bundle in measured.arms():
        operation = bundle.id.partition("/")[0]
        operations.create(operation, plan)
        write(operations.folder(operation), whole(bundle))
        manifest = operations.folder(operation) / f"{bundle.id.rpartition('/')[2]}-{MANIFEST}"
        told = {manifest.name: fact_of(manifest.read_bytes()).sha256}
        operations.journal(operation).append("note", text="evidence kept", evidence=told)
    operations.create("20260903-0000-qualify", plan)
    bundles = BundleFolders(tmp_path / "state" / "operations", tmp_path / "evidence")
    yield replace(
        World(tmp_path / "box").box, operations=operations, bundles=bundles,
        suites=lambda: (SuiteFile("performance", SUITE),),
    )  # fmt: skip


def folder(box: Box, operation: str) -> Path:
    assert isinstance(box.operations, OperationFolders)
    return box.operations.folder(operation)


def test_a_run_has_the_results_and_the_rule_that_it_was_judged_by(box: Box) -> None:
    run = Library(box).run(measured.OPERATION)
    (bundle,) = run.bundles
    result = run.result(GATE)
    assert bundle.id == measured.BUNDLE and result is not None
    assert [r.nominal_tokens for r in result.rows] == list(measured.DEPTHS)
    assert run.rule(GATE)["decode_at_least_tok_s"] == 40.0


def test_while_it_goes_on_its_ended_gates_and_the_suites_file_are_read(box: Box) -> None:
    old, _ = measured.arms()
    results = json.loads(results_text(old.results))
    results[0]["observations"] = []
    text = json.dumps({"under_test": {}, "results": results})
    box.operations.save("20260903-0000-qualify", "gates-kept.json", text)
    run = Library(box).run("20260903-0000-qualify")
    assert run.bundles == () and run.result(GATE) is not None
    assert run.rule(GATE)["requests"] == 5
    (folder(box, "20260903-0000-qualify") / "gates-kept.json").write_text("{")
    assert "gates-kept.json" in Library(box).run("20260903-0000-qualify").error


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("results.json", "[{", "is no JSON document"),
        ("observations.ndjson", "", "observations"),
        ("identity.json", "{}", "identity"),
    ],
)
def test_a_damaged_bundle_is_named_and_a_mended_one_is_read_again(
    name: str, text: str, said: str, box: Box
) -> None:
    """O-73: a cache must not hide what happened to a file."""
    kept, pasts = Library(box), Pasts(box.bundles)  # type: ignore[arg-type]
    assert len(pasts.all()) == 2 and kept.run(measured.OPERATION).bundles
    path = folder(box, measured.OPERATION) / f"{measured.SERVE}-{name}"
    good = path.read_text()
    path.write_text(text)
    run = kept.run(measured.OPERATION)
    assert run.bundles == () and said in run.broken[measured.BUNDLE]
    assert [p.id for p in pasts.all()] == [measured.arms()[0].id] and said in pasts.broken[measured.BUNDLE]
    path.write_text(good)
    assert kept.run(measured.OPERATION).broken == {}
    assert len(pasts.all()) == 2 and pasts.broken == {}


def test_a_bundle_without_a_manifest_is_partial_and_no_qualification(box: Box) -> None:
    (folder(box, measured.OPERATION) / f"{measured.SERVE}-manifest.json").unlink()
    pasts = Pasts(box.bundles)  # type: ignore[arg-type]
    assert len(pasts.all()) == 1
    assert pasts.broken == {measured.BUNDLE: "partial: its manifest was never written"}


def test_a_comparison_is_of_bundles_that_were_checked(box: Box) -> None:
    old, new = measured.arms()
    found = Library(box).compare({new.id: "B", old.id: "A"})
    assert found.comparison is not None and found.comparison.runs_a == (old.id,)
    assert {name: len(rows) for name, rows in found.rows.items()} == {"A": 5, "B": 5}
    path = folder(box, measured.OPERATION) / f"{measured.SERVE}-results.json"
    path.write_text(path.read_text().replace('"p50": 52.0', '"p50": 62.0'))
    with pytest.raises(BadFile, match="cannot be compared"):
        Library(box).compare({new.id: "B", old.id: "A"})
    told = Library(box).verify([new.id, old.id])
    assert told[new.id].found.problems and not told[old.id].found.problems


def test_only_the_last_bundles_are_held(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "KEPT_BUNDLES", 1)
    kept = Library(box)
    for bundle in measured.arms():
        kept.run(bundle.id.partition("/")[0])
    assert [at.id for at in kept._read] == [measured.BUNDLE]
