"""A bundle as text and back: nothing is lost, and what is wrong is named by file, line and key."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from anvil_tui.core.bundle import (
    EVIDENCE_SCHEMA,
    About,
    Identity,
    Manifest,
    about_text,
    bundle_from,
    fact_of,
    manifest_text,
    observations_text,
    results_text,
    sealed,
)
from anvil_tui.core.errors import BadFile
from anvil_tui.core.gates import FailureClass, GateResult, Observation, Verdict
from anvil_tui.core.lanes import LaneRow, Spread
from tests.support.bundles import measured

SEEN = Observation(
    1, False, FailureClass.CHECK, "said 'x'", 7, None, 0.25, raw={"times": [0.1, 2], "a": {"b": None}}
)
ROW = LaneRow("c1", 1, 5, decode_tok_s=Spread(5, 1.5, 2.0, 3.25), missing=("queue",))
RESULTS = (
    GateResult("smoke", "smoke", Verdict.FAILED, "0/1", 0, 1, 0.5, (FailureClass.CHECK,), (SEEN,)),
    GateResult("depth", "depth-sweep", Verdict.PASSED, "1 row", 1, 1, 9.0, rows=(ROW,)),
)
ABOUT = About(Identity(recipe="r", gpus=("card", "card"), context_tokens=4096), {"id": "s"}, ("a waiver",))


def written(prefix: str = "") -> dict[str, str]:
    files = {
        f"{prefix}identity.json": about_text(ABOUT),
        f"{prefix}observations.ndjson": observations_text(RESULTS),
        f"{prefix}results.json": results_text(RESULTS),
    }
    facts = {name: fact_of(text.encode()) for name, text in files.items()}
    manifest = Manifest(EVIDENCE_SCHEMA, "op/serve", "measured", "2026-11-29T10:00:00+00:00", "", False, facts)
    return {**files, f"{prefix}manifest.json": manifest_text(manifest)}


@pytest.mark.parametrize("prefix", ["", "abcdef012345-"])
def test_what_is_written_is_read_back(prefix: str) -> None:
    files = written(prefix)
    bundle = bundle_from(files, path="somewhere")
    assert (bundle.results, bundle.identity, bundle.notes, bundle.suite) == (
        RESULTS, ABOUT.identity, ("a waiver",), {"id": "s"},
    )  # fmt: skip
    assert (bundle.id, bundle.kind, bundle.at, bundle.passed) == (
        "op/serve", "measured", "2026-11-29T10:00:00+00:00", False,
    )  # fmt: skip
    text = files[f"{prefix}results.json"]
    assert bundle.files[f"{prefix}results.json"] == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("name", "old", "new", "error"),
    [
        ("results.json", '"streams": 1', '"streams": "1"', "results.json: 1.rows.0.streams: "),
        ("results.json", '"streams": 1', '"streams": 1, "tempo": 2', "results.json: 1.rows.0.tempo: unknown key"),
        ("results.json", '"verdict": "passed"', '"verdict": "fine"', "results.json: 1.verdict: "),
        ("results.json", '"observations": 1', '"observations": 2', "0.observations: says 2, there are 1 of smoke"),
        ("results.json", '"gate": "depth"', '"gate": "smoke"', "results.json: 1.gate: 'smoke' is named twice"),
        ("results.json", '"p50": 2.0', '"p50": NaN', "results.json: is no JSON document: NaN"),
        ("observations.ndjson", '"n": 1', '"n": 1.5', "observations.ndjson:1: n: "),
        ("observations.ndjson", '"gate": "smoke"', '"gate": "else"', "gate else has observations and no result"),
        ("observations.ndjson", "}}}\n", "}}}", "observations.ndjson:1: its last line is cut off"),
        ("identity.json", '"gpus"', '"cards"', "identity.json: identity.cards: unknown key"),
        ("manifest.json", EVIDENCE_SCHEMA, "anvil.evidence/3", "manifest.json: schema: must be anvil.evidence/2"),
        ("manifest.json", '"kind": "measured"', '"kind": "heard"', "manifest.json: kind: "),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(name: str, old: str, new: str, error: str) -> None:
    files = written()
    if name == "observations.ndjson" and new == "}}}":
        files[name] = files[name].rstrip("\n") + "\n" + files[name].rstrip("\n")
        error = error.replace(":1:", ":2:")
    else:
        assert files[name].count(old) >= 1
        files[name] = files[name].replace(old, new)
    with pytest.raises(BadFile) as caught:
        bundle_from(files)
    assert error in str(caught.value)


@pytest.mark.parametrize("gone", ["results.json", "observations.ndjson", "identity.json", "manifest.json"])
def test_a_partial_bundle_is_no_bundle(gone: str) -> None:
    files = written()
    del files[gone]
    with pytest.raises(BadFile, match=gone):
        bundle_from(files)


def test_the_seal_covers_every_byte_of_the_manifest() -> None:
    text = written()["manifest.json"]
    assert sealed(text, json.loads(text))
    for changed in (text.replace("op/serve", "op/servf"), text.replace(": ", ":", 1), text + " "):
        assert not sealed(changed, json.loads(changed))


def first_schema() -> dict[str, str]:
    row: dict[str, Any] = {
        "gate": "smoke", "kind": "smoke", "verdict": "passed", "reason": "1/1", "passed": 1, "of": 1,
        "elapsed_s": 0.5, "failures": [], "observations": 1, "accepted": False,
    }  # fmt: skip
    seen = {"gate": "smoke", "kind": "smoke", "n": 1, "ok": True, "failure": None, "note": "", "raw": {}}
    manifest = {
        "schema": "anvil.evidence/1", "harness": "anvil-tui 0.2", "suite": "s", "suite_sha256": "ab",
        "passed": True, "recipe": "r", "recipe_sha256": "cd", "container": "c" * 64,
        "files": {"x-results.json": "ef"},
    }  # fmt: skip
    return {
        "x-results.json": json.dumps([row], indent=1),
        "x-observations.ndjson": json.dumps(seen) + "\n",
        "x-manifest.json": json.dumps(manifest),
    }


def test_the_first_schema_is_still_read_and_says_what_it_knows() -> None:
    bundle = bundle_from(first_schema(), "20261129T101112Z-qualify-r/x")
    assert (bundle.schema, bundle.at, bundle.passed) == ("anvil.evidence/1", "2026-11-29T10:11:12Z", True)
    assert (bundle.identity.recipe_digest, bundle.identity.model) == ("sha256:cd", None)
    assert bundle.results[0].observations[0].ok


def test_a_head_is_the_bundle_without_its_observations() -> None:
    files = measured()
    whole, head = bundle_from(files), bundle_from(files, seen=False)
    assert [replace(r, observations=()) for r in whole.results] == list(head.results)
    assert any(r.observations for r in whole.results)
