"""What one qualification leaves behind, as values: identity of everything, results, where it came from. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from anvil_tui.core.gates import GateResult

EVIDENCE_SCHEMA = "anvil.evidence/2"

BundleKind = Literal["measured", "historical"]


@dataclass(frozen=True, slots=True)
class Identity:
    """Everything that a result depends on. None = nobody could tell, which matches nothing.

    Digests are `sha256:` hex. `config` is the hash of the container's full argv and environment names,
    `suite` of what the suite demands, `prompts` of the prompt set (seed and generator included).
    """

    recipe: str | None = None
    recipe_digest: str | None = None
    family: str | None = None
    model: str | None = None
    revision: str | None = None
    quantization: str | None = None
    served_name: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    image: str | None = None
    image_id: str | None = None
    container: str | None = None
    config: str | None = None
    context_tokens: int | None = None
    max_output_tokens: int | None = None
    concurrency: int | None = None
    kv_type: str | None = None
    speculation: str | None = None
    thinking: str | None = None
    gpus: tuple[str, ...] = ()
    gpu_uuids: tuple[str, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    kernel: str | None = None
    docker: str | None = None
    gateway: str | None = None
    harness: str | None = None
    suite: str | None = None
    suite_digest: str | None = None
    prompts: str | None = None


@dataclass(frozen=True, slots=True)
class Bundle:
    """One bundle as read back. `id` is OPERATION/SERVE or the folder's name; `at` ISO 8601 with offset or a date.

    `notes` are sentences kept with it (waivers, reclassifications, what a historical record does not say).
    """

    id: str
    kind: BundleKind
    at: str
    identity: Identity
    passed: bool | None
    results: tuple[GateResult, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    path: str = ""
