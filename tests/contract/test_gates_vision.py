"""The vision suite against simulated engines that take, count, limit and refuse pictures as the real ones do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.adapters.media_files import MediaFolder
from anvil_tui.adapters.toml_files import load_recipe, load_suite, write_workspace
from anvil_tui.core.errors import BadFile
from anvil_tui.core.gates import FailureClass, GateResult, Suite, Verdict
from anvil_tui.core.recipe import Recipe
from anvil_tui.service.gates.conductor import GateTarget
from anvil_tui.simbox.profile import read_profile
from tests.contract.test_gates_simbox import ROOT, Sim

SUITE = load_suite(ROOT / "gates" / "vision.toml")
CHECK = FailureClass.CHECK


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sim]:
    """The recorded incumbent: 16 images, no video."""
    made = Sim(tmp_path_factory.mktemp("sim"))
    yield made
    made.end()


def run(sim: Sim, suite: Suite, target: GateTarget | None = None) -> dict[str, GateResult]:
    results = sim.conductor.run(suite, target or sim.target, lambda e: None, lambda: False)
    return {r.gate: r for r in results}


def gate(kind: str, **more: Any) -> Suite:
    one = {"id": kind, "kind": kind, "timeout_s": 30, **more}
    return Suite.model_validate({"schema": "anvil.suite/1", "id": "one", "gates": (one,)})


def with_recipe(target: GateTarget, **envelope: Any) -> GateTarget:
    """The same serve under a recipe that promises something else."""
    fields = target.recipe.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    fields["envelope"] |= envelope
    recipe = Recipe.model_validate_json(json.dumps(fields | {"schema": "anvil.recipe/1"}))
    return GateTarget(recipe, target.container_id, target.base_url, aliases=target.aliases)


def test_a_vllm_shaped_serve_passes_the_suite(vllm: Sim) -> None:
    assert vllm.conductor.unrunnable(SUITE, vllm.target) == {}
    results = run(vllm, SUITE)
    assert [(r.gate, r.verdict, r.reason) for r in results.values() if r.verdict is not Verdict.PASSED] == []
    assert "8 of 8 cases" in results["vision-corpus"].reason
    assert "At most 16 image(s)" in results["image-limit"].reason
    assert "At most 0 video(s)" in results["video-refused"].reason
    cards = results["multi-image"].observations[-1]
    assert len(cards.raw["media"]) == len(set(cards.raw["expected"])) == 16
    orders = [o.raw["expected"] for o in results["multi-image"].observations if "expected" in o.raw]
    assert len(orders) == 2 and orders[0] != orders[1]
    assert "base64" not in repr(results) and "iVBOR" not in repr(results)
    seen = {
        m["file"]: m["sha256"] for r in results.values() for o in r.observations for m in o.raw.get("media", ())
    }
    assert seen == {f.name: f.sha256 for f in MediaFolder(vllm.folder / "gates" / "media").corpus().files}


FAULTS: tuple[tuple[str, tuple[str, ...], str, Verdict, str], ...] = (
    ("image_dropped", (), "image", Verdict.FAILED, "was it dropped?"),
    ("image_dropped", (), "ocr", Verdict.FAILED, "was it dropped?"),
    ("image_dropped", (), "vision-corpus", Verdict.FAILED, "0 of 8 cases"),
    ("image_dropped", ("mode=last",), "multi-image", Verdict.FAILED, "is not told"),
    ("image_dropped", ("mode=uncounted",), "image-large", Verdict.UNVERIFIED, "the answer is right, but"),
    ("image_wrong", (), "image", Verdict.FAILED, "is not told"),
    ("image_wrong", (), "ocr", Verdict.FAILED, "is not told"),
    ("image_wrong", (), "image-large", Verdict.FAILED, "is not told"),
    ("image_wrong", (), "multi-image", Verdict.FAILED, "is not told"),
    ("image_wrong", (), "vision-corpus", Verdict.FAILED, "0 of 8 cases"),
    ("media_unlimited", (), "image-limit", Verdict.FAILED, "17 images were accepted"),
    ("media_unlimited", (), "video-refused", Verdict.FAILED, "1 video was accepted"),
    ("unauthorized", (), "image-limit", Verdict.ERRORED, "401"),
)


@pytest.mark.parametrize(("name", "keys", "kind", "verdict", "words"), FAULTS)
def test_each_fault_of_a_vision_serve_gets_its_verdict(
    vllm: Sim, name: str, keys: tuple[str, ...], kind: str, verdict: Verdict, words: str
) -> None:
    vllm.fault(name, *keys)
    try:
        result = run(vllm, gate(kind))[kind]
    finally:
        vllm.fault("clear")
    assert result.verdict is verdict, result.reason
    assert words in result.reason
    assert (CHECK in result.failures) is (verdict is Verdict.FAILED)


def test_an_engine_that_refuses_every_picture_does_not_pass_the_limit(vllm: Sim) -> None:
    more = with_recipe(vllm.target, images=20)
    limit = run(vllm, gate("image-limit"), more)["image-limit"]
    assert (limit.verdict, "20 images" in limit.reason) == (Verdict.ERRORED, True), limit.reason


@pytest.mark.parametrize(
    ("kind", "envelope", "more", "why"),
    [
        ("image", {"modalities": ["text"]}, {}, "does not promise image (envelope.modalities: text)"),
        ("ocr", {"modalities": ["text", "image"]}, {}, "does not promise ocr"),
        ("vision-corpus", {"modalities": ["text", "image"]}, {}, "does not promise ocr"),
        ("vision-corpus", {"images": 1}, {}, "case difference shows 2 images, the recipe promises 1"),
        ("image-limit", {"images": 0}, {}, "envelope.images is 0"),
        ("multi-image", {"images": 1}, {}, "one image is no comparison"),
        ("multi-image", {"images": 2}, {"images": 3}, "images = 3, the recipe promises 2"),
        ("multi-image", {"images": 20}, {"images": 17}, "holds 16 cards"),
        ("video-refused", {"videos": 1}, {}, "the recipe promises video"),
    ],
)
def test_what_the_recipe_does_not_promise_is_unrunnable(
    vllm: Sim, kind: str, envelope: dict[str, Any], more: dict[str, Any], why: str
) -> None:
    result = run(vllm, gate(kind, **more), with_recipe(vllm.target, **envelope))[kind]
    assert (result.verdict, result.observations) == (Verdict.UNRUNNABLE, ())
    assert why in result.reason


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("image", "chart.png"), ("ocr", "receipt.png"), ("vision-corpus", "difference-2.png"),
        ("video-refused", "clip.avi"), ("multi-image", "card-07.png"), ("image-large", "corpus.toml"),
    ],
)  # fmt: skip
def test_a_changed_or_missing_picture_is_named_and_not_shown(vllm: Sim, kind: str, name: str) -> None:
    path = vllm.folder / "gates" / "media" / name
    whole = path.read_bytes()
    try:
        path.write_bytes(b"schema = 1\n" if name == "corpus.toml" else whole[:-1] + b"x")
        changed = run(vllm, gate(kind))[kind]
        path.unlink()
        missing = run(vllm, gate(kind))[kind]
    finally:
        path.write_bytes(whole)
    assert (changed.verdict, missing.verdict) == (Verdict.UNRUNNABLE, Verdict.UNRUNNABLE)
    assert name in changed.reason and name in missing.reason
    assert "no such file" in missing.reason
    assert ("sha256" in changed.reason) is (name != "corpus.toml")


def test_an_sglang_shaped_serve_passes_it_only_with_a_limit_of_its_own(tmp_path: Path) -> None:
    """The recorded command line sets no limit of images, and SGLang has none unless it is told one."""
    sim = Sim(tmp_path)
    try:
        recorded = load_recipe(tmp_path / "recipes" / "glm53-393k-c1.toml")
        assert read_profile("", recorded.filled_argv(8001), {}, 2).media == {}
        limit = ("--limit-mm-data-per-request", '{"image":{images},"video":{videos}}')
        launch = recorded.launch.model_copy(update={"argv": (*recorded.launch.argv, *limit)})
        target = sim.start(recorded.model_copy(update={"launch": launch}))
        results = run(sim, SUITE, target)
        assert [(r.gate, r.reason) for r in results.values() if r.verdict is not Verdict.PASSED] == []
        assert "Image count 3 exceeds limit 2 per request" in results["image-limit"].reason
        assert "Video count 1 exceeds limit 0 per request" in results["video-refused"].reason
        sim.fault("media_unlimited")
        assert "3 images were accepted" in run(sim, gate("image-limit"), target)["image-limit"].reason
    finally:
        sim.end()


# the folder


def test_a_new_workspace_has_the_pictures(tmp_path: Path) -> None:
    write_workspace(tmp_path / "box")
    folder = MediaFolder(tmp_path / "box" / "gates" / "media")
    corpus = folder.corpus()
    assert all(len(folder.read(f)) == f.bytes for f in corpus.files)
    assert load_suite(tmp_path / "box" / "gates" / "vision.toml") == SUITE


def test_a_corpus_that_names_what_it_does_not_list_is_refused(tmp_path: Path) -> None:
    media = tmp_path / "media"
    shutil.copytree(ROOT / "gates" / "media", media)
    listed = (media / "corpus.toml").read_text()
    (media / "corpus.toml").write_text(listed.replace('video = "clip.avi"', 'video = "film.avi"'))
    with pytest.raises(BadFile, match=r"corpus\.toml:3: video: names film\.avi, which files does not list"):
        MediaFolder(media).corpus()
