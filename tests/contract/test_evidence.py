"""What a gate run leaves on disk: complete, hashed, without secrets, and all that its results depend on."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.adapters.journal_file import OperationFolders
from anvil_tui.core.box import Gpu, GpuGrant, GpuSnapshot
from anvil_tui.core.bundle import bundle_from, sealed, suite_digest
from anvil_tui.core.gates import FailureClass, GateResult, Observation, Suite, Verdict
from anvil_tui.core.reading import Reading
from anvil_tui.core.redact import redact
from anvil_tui.service.evidence import Basis, basis_of, write_evidence
from anvil_tui.service.targets import target_of
from tests.support.membox import GPU, World, recipe

OPERATION = "20261129T000000Z-qualify-r"
SECRET = "abcdef123456"
SUITE: dict[str, Any] = {
    "schema": "anvil.suite/1",
    "id": "s",
    "gates": ({"id": "smoke", "kind": "smoke", "proves": "a"},),
}
WAIVED = {"waived_on": "2026-09-02", "waiver": f"api_key={SECRET}", "waiver_scope": "this pair"}


def results() -> tuple[GateResult, ...]:
    seen = Observation(
        1, False, FailureClass.CHECK, "said 'x'", prompt_tokens=7, excerpt=f'{{"api_key": "{SECRET}"}} modèle',
        raw={"max_tokens": 512, "token_times_s": [0.1], "served": ("m",)},
    )  # fmt: skip
    return (GateResult("smoke", "smoke", Verdict.FAILED, "0/1", 0, 1, 0.5, (FailureClass.CHECK,), (seen,)),)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, recipe("r", gpus={"select": (GPU,), "need_free_mib": 1}))


def basis(world: World, **container: Any) -> Basis:
    assert world.do("load", recipe="r", role="primary") == "done"
    (running,) = world.docker.running()
    world.docker.all[running.id] = replace(running, **container)
    target = target_of(world.box, world.recipes[0], running.id, 9131, "primary-a")
    return basis_of(world.box, Suite.model_validate(SUITE), target)


def kept(world: World, made: Basis, tmp_path: Path) -> dict[str, str]:
    store = OperationFolders(tmp_path / "kept", redact)
    store.create(OPERATION, {"title": "a plan"})
    name, digest = write_evidence(store, OPERATION, made, results(), "2026-11-29T00:05:00+00:00", ("a note",))
    files = {p.name: p.read_text() for p in (tmp_path / "kept" / OPERATION).iterdir()}
    assert hashlib.sha256(files[name].encode()).hexdigest() == digest
    return files


def test_every_file_is_as_the_manifest_says_and_no_secret_is_in_any(world: World, tmp_path: Path) -> None:
    """O-74: stored evidence holds no secret, and its hashes are those of what was stored."""
    reserve = world.recipes[0].reserve.model_validate_json(json.dumps(WAIVED))
    world.recipes[0] = world.recipes[0].model_copy(update={"reserve": reserve})
    made = basis(world)
    files = kept(world, made, tmp_path)
    serve = made.target.container_id[:12]
    manifest = json.loads(files[f"{serve}-manifest.json"])
    assert set(manifest["files"]) == {"plan.json"} | {
        f"{serve}-{name}" for name in ("identity.json", "observations.ndjson", "results.json")
    }
    for name, fact in manifest["files"].items():
        data = files[name].encode()
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (fact["sha256"], fact["bytes"])
    assert sealed(files[f"{serve}-manifest.json"], manifest)
    assert [name for name, text in files.items() if SECRET in text] == []
    bundle = bundle_from(files)
    assert (bundle.id, bundle.kind, bundle.passed) == (f"{OPERATION}/{serve}", "measured", False)
    assert (bundle.at, bundle.ended_at) == (made.started_at, "2026-11-29T00:05:00+00:00")
    assert bundle.results[0].observations[0].raw["max_tokens"] == 512
    assert "waived 2026-09-02" in bundle.notes[0] and bundle.notes[1:] == ("a note",)
    assert bundle.suite["gates"][0]["id"] == "smoke"


def test_identity_says_what_was_read_and_leaves_unknown_what_was_not(world: World) -> None:
    grant = GpuGrant((GPU,), "uuids", (GPU,), "device-request")
    found = basis(world, env_names=("B", "A"), argv=("engine", "--x"), gpus=grant).identity
    assert (found.recipe, found.recipe_digest) == ("r", f"sha256:{world.recipes[0].digest()}")
    assert (found.docker, found.kernel) == ("27.0", "6.8.0")
    assert (found.gpus, found.gpu_uuids, found.driver, found.cuda) == (("card",), (GPU,), "1", None)
    config = '{"argv": ["engine", "--x"], "environment": ["A", "B"]}\n'
    assert found.config == f"sha256:{hashlib.sha256(config.encode()).hexdigest()}"
    assert (found.image, found.image_id) == (world.recipes[0].image.ref, "sha256:" + "b" * 64)
    assert (found.speculation, found.engine_version, found.gateway, found.prompts) == ("none", None, None, None)


def test_gpus_none_and_unknown_are_two_things(world: World) -> None:
    none = basis(world, gpus=GpuGrant()).identity
    assert (none.gpus, none.gpu_uuids) == ((), ())
    (running,) = world.docker.running()
    target = target_of(world.box, world.recipes[0], running.id, 9131, "primary-a")

    def asked() -> Any:
        return basis_of(world.box, Suite.model_validate(SUITE), target).identity

    world.docker.all[running.id] = replace(running, gpus=GpuGrant(effective="unknown"))
    assert (asked().gpus, asked().gpu_uuids) == (None, None)
    world.docker.all[running.id] = replace(running, gpus=GpuGrant((GPU,), "uuids", (GPU,)))
    blind: Any = type(
        "Blind", (), {"read": lambda self: Reading.known(GpuSnapshot("1", (Gpu(0, GPU),)), 0.0, "t")}
    )
    world.box = replace(world.box, gpus=blind())
    assert (asked().gpus, asked().gpu_uuids) == (None, (GPU,)), "a card without a name is not no card"


def test_an_image_that_is_not_the_recipes_is_not_called_so(world: World) -> None:
    """O-24: the running image's own digests are kept, never the recipe's pin or a tag in their place."""
    other = "registry.invalid/other@sha256:" + "c" * 64
    found = basis(world, image_ref="registry.invalid/other:stable", image_id="sha256:" + "d" * 64, pins=(other,))
    assert (found.identity.image, found.identity.image_id) == (other, "sha256:" + "d" * 64)
    (running,) = world.docker.running()
    world.docker.all[running.id] = replace(running, pins=())
    assert basis_of(world.box, found.suite, found.target).identity.image is None


def test_a_silent_source_leaves_unknown_fields_and_no_error(world: World) -> None:
    made = basis(world)
    world.docker.silent_calls = 9
    world.gate.silent_calls = 9
    found = basis_of(world.box, made.suite, made.target).identity
    assert (found.docker, found.kernel, found.config, found.image_id, found.gpus) == (None,) * 5
    assert found.recipe == "r"


def test_the_suite_digest_follows_the_demand_not_the_words() -> None:
    def digest(**gate: Any) -> str:
        return suite_digest(Suite.model_validate({**SUITE, "gates": ({**SUITE["gates"][0], **gate},)}))

    assert digest() == digest(proves="b") == digest(timeout_s=120), "what is as by default adds nothing"
    assert digest() != digest(repeat=2)
