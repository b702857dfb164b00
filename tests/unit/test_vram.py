"""Proof of free GPUs and fit: the smallest card decides, n/a is not 0, unknown is not free."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anvil_tui.core.box import MIB, Gpu, GpuProcess, GpuSnapshot
from anvil_tui.core.reading import Reading
from anvil_tui.core.vram import fit, free_basis, gpus_free

A, B, C = (f"GPU-aaaaaaaa-0000-4000-8000-{n:012d}" for n in range(3))


def gpu(index: int, uuid: str, total: int, free: int | None, **more: object) -> Gpu:
    known = Gpu(
        index, uuid, total_bytes=total * MIB, free_bytes=None if free is None else free * MIB, processes=()
    )
    return replace(known, **more)  # type: ignore[arg-type]


def read(*gpus: Gpu) -> Reading[GpuSnapshot]:
    return Reading.known(GpuSnapshot("1", gpus), 0.0, "nvml")


def test_tensor_parallel_fit_uses_the_smallest_card() -> None:
    """O-14, vllm-project/vllm#2317: 24 + 8 GiB are not a pool of 32."""
    answer = fit(read(gpu(0, A, 24576, 23900), gpu(1, B, 8192, 7900)), [A, B], 13312)
    assert answer.answer == "short" and len(answer.reasons) == 1
    assert "GPU 1" in answer.reasons[0] and "short by 5412 MiB" in answer.reasons[0]
    assert "31800" not in answer.reasons[0]


@pytest.mark.parametrize(
    ("gpus", "uuids", "answer"),
    [
        ((gpu(0, A, 24576, 13312),), [A], "fits"),
        ((gpu(0, A, 24576, 13311),), [A], "short"),
        ((gpu(0, A, 24576, 0),), [A], "short"),
        ((gpu(0, A, 24576, None),), [A], "unknown"),
        ((gpu(0, A, 24576, None), gpu(1, B, 24576, 10)), [A, B], "short"),
        ((gpu(0, A, 24576, 20000, state="lost"),), [A], "unknown"),
        ((gpu(0, A, 24576, 20000),), [B], "short"),
        ((gpu(0, A, 24576, 20000), Gpu(1, None, state="error")), [B], "unknown"),
        ((), [], "fits"),
        ((gpu(0, A, 24576, 20000),), [A.upper()], "fits"),
    ],
)
def test_fit(gpus: tuple[Gpu, ...], uuids: list[str], answer: str) -> None:
    assert fit(read(*gpus), uuids, 13312).answer == answer


def test_fit_without_a_good_reading_is_unknown() -> None:
    last = GpuSnapshot("1", (gpu(0, A, 24576, 20000),))
    for reading in (Reading.error("code 18", 1.0, "nvml", last), Reading.unknown("not read yet")):
        answer = fit(reading, [A], 1)
        assert answer.answer == "unknown" and reading.reason in answer.reasons[0]


def test_memory_that_did_not_come_back_is_named_with_its_holders() -> None:
    """O-10, vllm-project/vllm-omni#2317."""
    workers = tuple(GpuProcess(pid, "VLLM::Worker", 11020 * MIB) for pid in (41207, 41208))
    snapshot = GpuSnapshot("1", (gpu(0, A, 97887, 74900, processes=workers),))
    held, missing = gpus_free(snapshot, [A], 0, {A: 97000})
    assert "pid 41207 VLLM::Worker 11020 MiB" in held and "pid 41208" in held
    assert "22100 MiB not released" in missing and "22040 MiB attributed" in missing


def test_back_at_the_baseline_is_free() -> None:
    near = GpuSnapshot("1", (gpu(0, A, 97887, 96900),))
    assert gpus_free(near, [A], 0, {A: 97000}) == []
    assert gpus_free(GpuSnapshot("1", (gpu(0, A, 97887, 96700),)), [A], 0, {A: 97000}) != []


@pytest.mark.parametrize(
    ("row", "need", "words"),
    [
        (gpu(0, A, 100, 90, processes=(GpuProcess(7),)), 0, "pid 7 name n/a n/a MiB"),
        (gpu(0, A, 100, None), 50, "n/a"),
        (gpu(0, A, 100, None, processes=None), 0, "not provable"),
        (gpu(0, A, 100, 90, processes=None), 0, "not provable"),
        (gpu(0, A, 100, 90, state="lost", reason="Xid 79"), 0, "is lost: Xid 79"),
        (gpu(0, A, 100, 40, processes=None), 50, "10 MiB not released (no process list here)"),
        (Gpu(0, None, state="error", reason="999"), 0, "GPU 0 cannot be read (999)"),
        (gpu(0, B, 100, 90), 0, "no such GPU"),
    ],
)
def test_not_free(row: Gpu, need: int, words: str) -> None:
    reasons = gpus_free(GpuSnapshot("1", (row,)), [A], need)
    assert len(reasons) == 1 and words in reasons[0]


def test_memory_of_unknown_owners_is_never_summed_up_as_zero() -> None:
    rows = (GpuProcess(1, "x", 5 * MIB), GpuProcess(2, "y", None))
    _, missing = gpus_free(GpuSnapshot("1", (gpu(0, A, 100, 40, processes=rows),)), [A], 50)
    assert missing.endswith("n/a of it attributed")


def test_without_a_process_list_the_proof_rests_on_free_memory_and_says_so() -> None:
    """Syllo/nvtop#318: WSL2."""
    snapshot = GpuSnapshot("1", (gpu(0, A, 98304, 6144, processes=None), gpu(1, B, 98304, 98000)))
    assert gpus_free(snapshot, [A], 6000) == []
    assert free_basis(snapshot, [A]).startswith("free memory only")
    assert free_basis(snapshot, [B]) == "process list and free memory"


def test_a_serve_without_gpus_needs_no_proof() -> None:
    assert gpus_free(GpuSnapshot(None, ()), [], 0) == []


def test_integrated_gpu_with_an_empty_process_list_and_no_floor_is_free() -> None:
    assert gpus_free(GpuSnapshot("1", (gpu(0, A, 1, None, integrated=True),)), [A], 0) == []
