"""GPU selection (O-07, O-09): roles, UUIDs, prefixes, indices become full UUIDs; what is doubtful is refused."""

from __future__ import annotations

import pytest

from anvil_tui.core.box import Gpu, GpuSnapshot
from anvil_tui.core.errors import Refused
from anvil_tui.core.gpus import resolve_gpus

A = "GPU-aaaa0000-0000-0000-0000-000000000001"
B = "GPU-bbbb0000-0000-0000-0000-000000000002"
C1 = "GPU-5a10c0de-0000-0000-0000-000000000001"
C2 = "GPU-5a10beef-0000-0000-0000-000000000002"
TWO = GpuSnapshot("580", (Gpu(0, A), Gpu(1, B)))
ALIKE = GpuSnapshot("580", (Gpu(0, C1), Gpu(1, C2)))


@pytest.mark.parametrize(
    ("select", "roles", "want"),
    [
        (["0"], {}, (A,)),
        (["1", "0"], {}, (B, A)),
        (["compute-b", "compute-a"], {"compute-a": A, "compute-b": B}, (B, A)),
        (["compute-a"], {"compute-a": "GPU-BBBB"}, (B,)),
        ([B], {}, (B,)),
        ([], {}, ()),
        (["0"], {"0": B}, (B,)),
    ],
)
def test_selection_resolves_to_full_uuids_in_order(
    select: list[str], roles: dict[str, str], want: tuple[str, ...]
) -> None:
    """O-07."""
    assert resolve_gpus(select, roles, TWO) == want


@pytest.mark.parametrize(("ask", "want"), [("GPU-5a10b", C2), (C2.lower(), C2), ("gpu-5A10C", C1)])
def test_unique_prefix_resolves_whatever_its_case(ask: str, want: str) -> None:
    """O-09."""
    assert resolve_gpus([ask], {}, ALIKE) == (want,)


def test_full_uuid_beats_a_longer_one_that_begins_with_it() -> None:
    box = GpuSnapshot("580", (Gpu(0, "GPU-1"), Gpu(1, "GPU-12")))
    assert resolve_gpus(["GPU-1"], {}, box) == ("GPU-1",)


@pytest.mark.parametrize(
    ("ask", "roles", "says"),
    [
        ("GPU-5a10", {}, ["ambiguous", C1, C2]),
        ("GPU-77", {}, ["not on this box", C1, C2]),
        ("GPU-", {}, ["no GPU role", C1, C2]),
        ("2", {}, ["index 2", C1, C2]),
        ("compute-a", {}, ["no GPU role", "roles: none", C1]),
        ("compute-a", {"compute-b": C1}, ["no GPU role", "compute-b"]),
        ("compute-a", {"compute-a": "GPU-dead"}, ["compute-a", "GPU-dead", "not on this box", C2]),
        ("compute-a", {"compute-a": "GPU-5a10"}, ["ambiguous", C1, C2]),
    ],
)
def test_unknown_and_ambiguous_are_refused_with_the_candidates(
    ask: str, roles: dict[str, str], says: list[str]
) -> None:
    """O-09."""
    with pytest.raises(Refused) as refused:
        resolve_gpus([ask], roles, ALIKE)
    assert all(word in str(refused.value) for word in says), str(refused.value)


@pytest.mark.parametrize(
    ("gpu", "ask", "says"),
    [
        (Gpu(1, B, state="lost", reason="GPU is lost"), B, "lost: GPU is lost"),
        (Gpu(1, None, state="error", reason="unknown error"), "1", "error: unknown error"),
        (Gpu(1, None), "1", "UUID n/a"),
    ],
)
def test_a_gpu_that_cannot_be_read_is_refused(gpu: Gpu, ask: str, says: str) -> None:
    with pytest.raises(Refused, match=says):
        resolve_gpus([ask], {}, GpuSnapshot("580", (Gpu(0, A), gpu)))


def test_a_gpu_that_may_be_the_unreadable_one_is_not_called_absent() -> None:
    """O-100: by UUID, prefix and role; one by index that is there is refused as itself."""
    box = GpuSnapshot("580", (Gpu(0, A), Gpu(1, None, state="error", reason="NVML error 999")))
    asks: tuple[tuple[str, dict[str, str]], ...] = ((B, {}), ("GPU-bbbb", {}), ("big", {"big": B}))
    for ask, roles in asks:
        with pytest.raises(Refused, match=r"one cannot: UUID n/a \(index 1, error: NVML error 999\)"):
            resolve_gpus([ask], roles, box)


SLICES = ("MIG-11112222-0000-0000-0000-000000000001", "MIG-11113333-0000-0000-0000-000000000002")


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (SLICES[0], ["is a MIG slice", "whole GPUs", f"{A} (index 0, in MIG mode: {', '.join(SLICES)})", B]),
        (SLICES[0].lower(), ["is a MIG slice"]),
        ("MIG-1111", ["is a MIG slice"]),
        (f"MIG-{A}/1/0", ["is a MIG slice"]),
        (A, ["cannot be used whole", "in MIG mode", SLICES[1]]),
        ("0", ["GPU index 0 cannot be used whole"]),
    ],
)
def test_slices_and_the_gpus_that_are_cut_into_them_are_refused(ask: str, says: list[str]) -> None:
    """O-09: the memory that such a GPU tells is not that of a slice, so nothing about it would hold."""
    with pytest.raises(Refused) as refused:
        resolve_gpus([ask], {}, GpuSnapshot("580", (Gpu(0, A, mig=SLICES), Gpu(1, B))))
    assert all(word in str(refused.value) for word in says), str(refused.value)


def test_two_orders_of_the_same_gpus_give_the_same_uuid_for_a_role_and_not_for_an_index() -> None:
    """O-07: after a restart of the driver the other GPU may be the first."""
    turned = GpuSnapshot("580", (Gpu(0, B, bus_id="41"), Gpu(1, A, bus_id="01")))
    asks: tuple[tuple[str, dict[str, str]], ...] = (("big", {"big": A}), (A, {}), (A[:10], {}))
    for ask, roles in asks:
        assert resolve_gpus([ask], roles, TWO) == resolve_gpus([ask], roles, turned) == (A,)
    assert resolve_gpus(["0"], {}, TWO) == (A,) and resolve_gpus(["0"], {}, turned) == (B,)


def test_the_same_gpu_twice_is_refused_under_both_names() -> None:
    with pytest.raises(Refused, match=r"twice.*'compute-a'.*'0'"):
        resolve_gpus(["compute-a", "0"], {"compute-a": A}, TWO)


def test_no_gpus_here_is_said() -> None:
    with pytest.raises(Refused, match="GPUs here: none"):
        resolve_gpus(["0"], {}, GpuSnapshot(None, ()))
