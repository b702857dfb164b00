"""What a gate run leaves behind: every observation, the results, and a manifest with their hashes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from anvil_tui import __version__
from anvil_tui.core.gates import GateResult, Suite
from anvil_tui.ports.operations import OperationStore
from anvil_tui.service.gates.conductor import suite_passed
from anvil_tui.service.gates.session import GateTarget

EVIDENCE_SCHEMA = "anvil.evidence/1"


def write_evidence(
    store: OperationStore, operation: str, suite: Suite, target: GateTarget, results: Sequence[GateResult]
) -> tuple[str, ...]:
    """Saves `SERVE-observations.ndjson`, `SERVE-results.json`, `SERVE-manifest.json` with the operation.

    SERVE is the short container id: one operation may judge two serves. The manifest comes last, so that
    a bundle with a manifest is complete. Returns the names.
    """
    prefix = target.container_id[:12]
    files = {
        f"{prefix}-observations.ndjson": _observations(results),
        f"{prefix}-results.json": json.dumps([_result(r) for r in results], indent=1) + "\n",
    }
    kept = {name: store.save(operation, name, text) for name, text in files.items()}
    manifest = {
        "schema": EVIDENCE_SCHEMA,
        "harness": f"anvil-tui {__version__}",
        "suite": suite.id,
        "suite_sha256": suite_digest(suite),
        "passed": suite_passed(results),
        "recipe": target.recipe.id,
        "recipe_sha256": target.recipe.digest(),
        "container": target.container_id,
        "files": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in kept.items()},
    }
    store.save(operation, f"{prefix}-manifest.json", json.dumps(manifest, indent=1) + "\n")
    return (*kept, f"{prefix}-manifest.json")


def suite_digest(suite: Suite) -> str:
    """Hash of what the suite demands; its title and what its gates say they prove do not change it."""
    facts = suite.model_dump(mode="json", exclude={"title": True, "gates": {"__all__": {"proves"}}})
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _observations(results: Sequence[GateResult]) -> str:
    rows = ({"gate": r.gate, "kind": r.kind, **asdict(o)} for r in results for o in r.observations)
    return "".join(json.dumps(row, default=str) + "\n" for row in rows)


def _result(result: GateResult) -> dict[str, Any]:
    return asdict(result) | {"observations": len(result.observations)}
