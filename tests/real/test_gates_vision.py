"""The vision gates on a real llama-server: without eyes, and with random ones that see nothing."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.adapters.clock import SystemClock
from anvil_tui.adapters.engine_http import HttpEngineReader
from anvil_tui.adapters.media_files import MediaFolder
from anvil_tui.adapters.openai_client import OpenAIClient
from anvil_tui.adapters.toml_files import load_suite
from anvil_tui.core.chat import ChatRequest
from anvil_tui.core.gates import GateResult, Suite, Verdict
from anvil_tui.service.gates.conductor import Conductor, GateTarget
from anvil_tui.service.gates.session import GateParts
from tests.real.test_gates import GATES, NoGpus, ProcessReader, recipe, suite
from tests.support.llama import Llama, llama_server
from tests.support.random_eyes import PATCH, SIDE, write_projector

pytestmark = pytest.mark.real

SMOLLM2_EMBEDDING = 576
IMAGE_TOKENS = (SIDE // PATCH) ** 2
SEES: dict[str, Any] = {
    "context_tokens": 1024, "max_output_tokens": 256, "concurrency": 1, "images": 2,
    "modalities": ("text", "image", "ocr"),
}  # fmt: skip


def run(llama: Llama, gates: Suite, **more: Any) -> dict[str, GateResult]:
    clock, reader, gpus = SystemClock(), ProcessReader(llama), NoGpus()
    media = MediaFolder(GATES / "media")
    chat = OpenAIClient(time.monotonic)
    conductor = Conductor(GateParts(chat, HttpEngineReader(clock), reader, gpus, clock, media=media))  # type: ignore[arg-type]
    target = GateTarget(recipe(budgets={"visible_tokens": 8}, **more), "c" * 64, llama.url)
    return {r.gate: r for r in conductor.run(gates, target, lambda e: None, lambda: False)}


@pytest.fixture(scope="module")
def blind(llama_rootfs: Path, models_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Llama]:
    log = tmp_path_factory.mktemp("blind") / "log"
    with llama_server(llama_rootfs, models_dir / "smollm2-135m-instruct-q4_1.gguf", log) as made:
        yield made


@pytest.fixture(scope="module")
def unseeing(llama_rootfs: Path, models_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Llama]:
    folder = tmp_path_factory.mktemp("unseeing")
    write_projector(folder / "mmproj.gguf", SMOLLM2_EMBEDDING)
    model = models_dir / "smollm2-135m-instruct-q4_1.gguf"
    with llama_server(llama_rootfs, model, folder / "log", "--mmproj", str(folder / "mmproj.gguf")) as made:
        yield made


def test_a_recipe_without_images_makes_the_suite_unrunnable(blind: Llama) -> None:
    results = run(blind, load_suite(GATES / "vision.toml"))
    assert {r.verdict for r in results.values()} == {Verdict.UNRUNNABLE}
    assert "needs image (the recipe has text)" in results["image"].reason


def test_a_server_without_a_projector_says_that_it_cannot(blind: Llama) -> None:
    kinds = ("image", "ocr", "multi-image", "image-limit", "image-large", "vision-corpus")
    results = run(blind, suite(*({"kind": kind} for kind in kinds)), envelope=SEES)
    assert {r.gate: r.verdict for r in results.values()} == dict.fromkeys(kinds, Verdict.UNSUPPORTED)
    assert all("image input is not supported" in r.reason for r in results.values())


def test_a_server_without_a_projector_refuses_video_by_name(blind: Llama) -> None:
    result = run(blind, suite({"kind": "video-refused"}))["video-refused"]
    assert (result.verdict, len(result.observations)) == (Verdict.PASSED, 2), result.reason
    assert "video input is not supported" in result.reason


def test_a_server_that_cannot_decode_a_video_has_not_refused_it(unseeing: Llama) -> None:
    result = run(unseeing, suite({"kind": "video-refused"}))["video-refused"]
    assert result.verdict is Verdict.UNVERIFIED, result.reason
    assert "Failed to load image or audio file" in result.reason


def test_pictures_that_are_taken_are_counted_and_what_is_not_seen_fails(unseeing: Llama) -> None:
    results = run(unseeing, suite(*({"kind": k} for k in ("image-large", "multi-image"))), envelope=SEES)
    for kind, pictures in (("image-large", 1), ("multi-image", 2)):
        alone, looked = results[kind].observations
        assert results[kind].verdict is Verdict.FAILED, results[kind].reason
        assert looked.prompt_tokens is not None and alone.prompt_tokens is not None
        assert looked.prompt_tokens - alone.prompt_tokens == pictures * IMAGE_TOKENS
        assert f"{looked.prompt_tokens:,} prompt tokens, {alone.prompt_tokens:,} of them text" in str(looked.note)


def test_the_pictures_of_all_cases_are_decoded_by_a_real_server(unseeing: Llama) -> None:
    """All in one request: each that was read counts the same number of tokens."""

    def counted(names: list[str]) -> int | None:
        data = [base64.b64encode((GATES / "media" / name).read_bytes()).decode() for name in names]
        parts = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{d}"}} for d in data]
        messages = ({"role": "user", "content": [*parts, {"type": "text", "text": "?"}]},)
        request = ChatRequest("tiny", messages, max_tokens=1)
        return OpenAIClient(time.monotonic).chat(unseeing.url, request, api_key=None, timeout_s=60).prompt_tokens

    corpus = MediaFolder(GATES / "media").corpus()
    names = [name for case in corpus.cases for name in case.files] + [corpus.cards[0]]
    assert len(names) == 10
    assert (counted(names) or 0) - (counted([]) or 0) == len(names) * IMAGE_TOKENS


def test_llama_server_has_no_limit_of_images(unseeing: Llama) -> None:
    limit = run(unseeing, suite({"kind": "image-limit"}), envelope=SEES)["image-limit"]
    assert (limit.verdict, "3 images were accepted" in limit.reason) == (Verdict.FAILED, True), limit.reason
