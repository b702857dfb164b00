"""What a gate run leaves on disk: complete, hashed, without secrets."""

# ruff: noqa: E501
from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from anvil_tui.adapters.journal_file import OperationFolders
from anvil_tui.core.gates import FailureClass, GateResult, Observation, Suite, Verdict
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.redact import redact
from anvil_tui.service.evidence import suite_digest, write_evidence
from anvil_tui.service.gates.conductor import GateTarget

OPERATION = "20261129T000000Z-qualify-r"
SUITE: dict[str, Any] = {
    "schema": "anvil.suite/1",
    "id": "s",
    "gates": ({"id": "smoke", "kind": "smoke", "proves": "a"},),
}


def recipe() -> Recipe:
    return Recipe.model_validate({
        "schema": "anvil.recipe/1", "id": "r", "family": "f", "engine": "vllm", "served_name": "m", "exclusive": False,
        "rollback": "none: test", "image": {"ref": "x@sha256:" + "a" * 64}, "model": {"repo": "r"},
        "launch": {"argv": ("{port}",)}, "envelope": {"context_tokens": 4096, "max_output_tokens": 256, "concurrency": 1},
    })  # fmt: skip


def results() -> tuple[GateResult, ...]:
    seen = Observation(
        1, False, FailureClass.CHECK, "said 'x'", prompt_tokens=7, excerpt='{"api_key": "abcdef123456"} modèle',
        raw={"max_tokens": 512, "token_times_s": [0.1], "served": ("m",)},
    )  # fmt: skip
    return (GateResult("smoke", "smoke", Verdict.FAILED, "0/1", 0, 1, 0.5, (FailureClass.CHECK,), (seen,)),)


def test_every_file_is_as_the_manifest_says(tmp_path: Path) -> None:
    store = OperationFolders(tmp_path, redact)
    store.create(OPERATION, {})
    suite = Suite.model_validate(SUITE)
    names = write_evidence(store, OPERATION, suite, GateTarget(recipe(), "c" * 64, "http://x", None), results())
    assert names == tuple(f"{'c' * 12}-{n}" for n in ("observations.ndjson", "results.json", "manifest.json"))
    folder = tmp_path / OPERATION
    manifest = json.loads((folder / names[-1]).read_text())
    assert set(manifest["files"]) == set(names[:2])
    for name, digest in manifest["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    assert (manifest["passed"], manifest["container"], manifest["suite_sha256"]) == (
        False,
        "c" * 64,
        suite_digest(suite),
    )
    row = json.loads((folder / names[0]).read_text())
    assert (row["gate"], row["prompt_tokens"], row["raw"]["max_tokens"]) == ("smoke", 7, 512)
    (result,) = json.loads((folder / names[1]).read_text())
    assert (result["verdict"], result["failures"], result["observations"]) == ("failed", ["check_failed"], 1)
    assert "abcdef123456" not in (folder / names[0]).read_text()


def test_the_suite_digest_follows_the_demand_not_the_words() -> None:
    def digest(**gate: Any) -> str:
        return suite_digest(Suite.model_validate({**SUITE, "gates": ({**SUITE["gates"][0], **gate},)}))

    assert digest() == digest(proves="b")
    assert digest() != digest(repeat=2)
