"""A measured bundle in memory: gates of several kinds, one lane, and things that must never be published."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anvil_tui.core.bundle import (
    EVIDENCE_SCHEMA,
    About,
    Identity,
    Manifest,
    about_text,
    document,
    fact_of,
    manifest_text,
    observations_text,
    prompts_digest,
    results_text,
)
from anvil_tui.core.gates import FailureClass, GateResult, Observation, Verdict
from anvil_tui.core.lanes import Instrument, LaneRow, Spread

CONTAINER = "c0ffee" + "1" * 58
SERVE = CONTAINER[:12]
PREFIX = f"{SERVE}-"
UUIDS = ("GPU-aaaa0000-0000-0000-0000-000000000001", "GPU-aaaa0000-0000-0000-0000-000000000002")
PRIVATE = (
    CONTAINER, *UUIDS, "127.0.0.1:9131", "10.1.2.3", "box17.lan", "/srv/models", "registry.lan:5000",
    "Tell me about lighthouses", "the keeper of the lamp", "--secret-path",
)  # fmt: skip

IDENTITY = Identity(
    recipe="glm-small", recipe_digest="sha256:" + "ab" * 32, family="glm", model="org/Model-9B",
    revision="feed" * 10, quantization="Q4_K_M", served_name="glm-small", engine="vllm", engine_version="0.11.2",
    image="registry.lan:5000/team/vllm@sha256:" + "d" * 64, image_id="sha256:" + "e" * 64, container=CONTAINER,
    config="sha256:" + "0f" * 32, context_tokens=32_768, max_output_tokens=2_048, concurrency=4, kv_type="fp8",
    speculation="none", thinking="off", gpus=("NVIDIA H200", "NVIDIA H200"), gpu_uuids=UUIDS, driver="580.95.05",
    cuda=None, kernel="6.8.0", docker="27.5.1", gateway="3.0.11", harness="anvil-tui 0.3.0", suite="promotion",
    suite_digest="sha256:e3c3c55fd07075853690fdeb3143fc2fcde30df88281bcd3447e08adf3f9720b",
)  # fmt: skip

SUITE: dict[str, Any] = {
    "schema": "anvil.suite/1", "id": "promotion", "gates": [
        {"id": "json", "kind": "json", "repeat": 3, "pass_at_least": None, "accept": [], "proves": "strict JSON"},
        {"id": "effort", "kind": "smoke", "repeat": 1, "pass_at_least": None, "accept": ["unverified"],
         "proves": ""},
        {"id": "depth", "kind": "depth-sweep", "repeat": 1, "pass_at_least": None, "accept": [], "proves": ""},
        {"id": "room", "kind": "reserve", "repeat": 1, "pass_at_least": None, "accept": [], "proves": ""},
        {"id": "own", "kind": "command", "repeat": 1, "pass_at_least": None, "accept": [], "proves": "",
         "argv": ["check", "--secret-path"]},
    ],
}  # fmt: skip

NOTES = ("reserve 0 MiB instead of 3,072 MiB, waived 2026-09-02 by hand on box17.lan (in force)",)
DECODE = {"2K": (50.0, 52.5, 51.25), "16K": (40.5, 41.0, 44.0)}
TTFT = {"2K": (0.5, 0.25, 0.375), "16K": (2.5, 2.0, 4.0)}
PROMPT = {"2K": 2_001, "16K": 16_010}


def _lane() -> GateResult:
    seen: list[Observation] = []
    rows: list[LaneRow] = []
    for label, prompt in PROMPT.items():
        seen.append(Observation(0, True, raw={"purpose": "row", "row": label, "prompts": "sha256:aa"}))
        for k, (rate, late) in enumerate(zip(DECODE[label], TTFT[label], strict=True)):
            raw = {"purpose": "request", "row": label, "cached_tokens": 0, "decode_seeds_tok_s": rate + 1}
            seen.append(
                Observation(len(seen) + k, True, None, "", prompt, 64, late, late, late + 2.0, rate,
                            "the keeper of the lamp", raw)
            )  # fmt: skip
        low, mid, high = sorted(DECODE[label])
        t_low, t_mid, t_high = sorted(TTFT[label])
        ttft = Spread(3, t_low, t_mid, t_high)
        rows.append(LaneRow(
            "depth", 1, 3, label=label, nominal_tokens=2_000 if label == "2K" else 16_000,
            prompt_tokens=Spread(3, prompt, prompt, prompt), completion_tokens=Spread(3, 64, 64, 64),
            output="forced", cache="cold", cached_tokens=Spread(3, 0, 0, 0), ttft_any_s=ttft, ttft_visible_s=ttft,
            e2e_s=Spread(3, t_low + 2, t_mid + 2, t_high + 2), decode_tok_s=Spread(3, low, mid, high),
            decode_seeds_tok_s=Spread(3, low + 1, mid + 1, high + 1), aggregate_tok_s=38.5, wall_s=12.0,
            instrument=Instrument(0.1, 0.2, 0.3, 1, 2.0, 0.5, 12.0, 40.0, 0.4, 0.9),
        ))  # fmt: skip
    return GateResult(
        "depth", "depth-sweep", Verdict.PASSED, "2/2 rows", 1, 1, 25.0, (), tuple(seen), rows=tuple(rows)
    )


def results() -> tuple[GateResult, ...]:
    tries = tuple(
        Observation(n, n != 2, FailureClass.CHECK if n == 2 else None, "expected {}, got 'the keeper of the lamp'",
                    excerpt="the keeper of the lamp", raw={"asked": "Tell me about lighthouses"})
        for n in (1, 2, 3)
    )  # fmt: skip
    room = Observation(1, True, raw={"free_mib": {UUIDS[0]: 4_100, UUIDS[1]: 3_900},
                                     "least_free_mib": {UUIDS[0]: 4_000, UUIDS[1]: 3_800},
                                     "reserve_mib": 3_072, "when": "after-work"})  # fmt: skip
    reason = "2/3; request 2: check_failed: http://127.0.0.1:9131/v1 said 'the keeper of the lamp' from 10.1.2.3"
    return (
        GateResult("json", "json", Verdict.FAILED, reason, 2, 3, 1.5, (FailureClass.CHECK,), tries),
        GateResult("effort", "smoke", Verdict.UNVERIFIED, "0/1, unverified", 0, 1, 0.5, (),
                   (Observation(1, False, note="no proof"),), accepted=True),
        _lane(),
        GateResult("room", "reserve", Verdict.PASSED, f"3,800 MiB free on {UUIDS[1]}", 1, 1, 0.1, (), (room,)),
        GateResult("own", "command", Verdict.PASSED, "read /srv/models/x", 1, 1, 0.1, (),
                   (Observation(1, True, raw={"stdout": "/srv/models/x"}),)),
    )  # fmt: skip


def measured(made: tuple[GateResult, ...] | None = None, passed: bool = False) -> dict[str, str]:
    """File name -> text of the bundle, its plan among them."""
    kept = made if made is not None else results()
    identity = replace(IDENTITY, prompts=prompts_digest(kept))
    files = {
        "plan.json": document({"title": "qualify on box17.lan"}),
        f"{PREFIX}identity.json": about_text(About(identity, SUITE, NOTES)),
        f"{PREFIX}observations.ndjson": observations_text(kept),
        f"{PREFIX}results.json": results_text(kept),
    }
    return sealed_anew(files, passed)


def sealed_anew(files: dict[str, str], passed: bool = False) -> dict[str, str]:
    """The files with a manifest that fits them, as somebody could write it who changed one."""
    own = {name: text for name, text in files.items() if not name.endswith("manifest.json")}
    facts = {name: fact_of(text.encode()) for name, text in own.items()}
    manifest = Manifest(
        EVIDENCE_SCHEMA, f"20261129T100000Z-qualify-glm/{SERVE}", "measured", "2026-11-29T10:00:00.000+00:00",
        "2026-11-29T10:05:00.000+00:00", passed, facts,
    )  # fmt: skip
    return {**own, f"{PREFIX}manifest.json": manifest_text(manifest)}
