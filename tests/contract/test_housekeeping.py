"""Gates that look at the box around the serve: each passes, fails, and says when it cannot tell."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from anvil_tui.core.box import MIB, CgroupMemory, GpuGrant, Host, SharedFile
from anvil_tui.core.errors import EffectFailed, NotFound
from anvil_tui.core.gates import GateResult
from anvil_tui.core.reading import Reading
from anvil_tui.service.gates import housekeeping
from anvil_tui.service.gates.conductor import Conductor
from tests.contract.test_conductor import GPU_RECIPE, ID, Bench, Box, bench, good, recipe, suite
from tests.support.scripted import Seen, Step
from tests.support.wait import wait_until

__all__ = ["bench"]

XID = "NVRM: Xid (PCI:0000:65:00): 79, pid=1234, GPU has fallen off the bus."


@dataclass
class Inspector:
    """What a test says about the box; a list is told value by value, its last for ever."""

    shared: list[Reading[tuple[SharedFile, ...]]] = field(default_factory=lambda: [known(())])
    kernel: Reading[tuple[str, ...]] = field(default_factory=lambda: known(()))
    cgroup: Reading[CgroupMemory] = field(default_factory=lambda: known(CgroupMemory(700 * MIB, 1024 * MIB, 2)))
    mark: Reading[int] | None = None
    available: int | None = 8000
    swap: int = 100
    asked: list[int | None] = field(default_factory=list)

    def read(self) -> Reading[Host]:
        free = None if self.available is None else self.available * MIB
        return known(Host(16000 * MIB, free, 1000 * MIB, self.swap * MIB, None, None, None, None, 0.1, 2))

    def shared_files(self, pid: int | None) -> Reading[tuple[SharedFile, ...]]:
        self.asked.append(pid)
        return self.shared.pop(0) if len(self.shared) > 1 else self.shared[0]

    def kernel_mark(self) -> Reading[int]:
        return known(7) if self.mark is None else self.mark

    def kernel_lines(self, after: int) -> Reading[tuple[str, ...]]:
        assert after in (0, 7)
        return self.kernel

    def cgroup_memory(self, pid: int) -> Reading[CgroupMemory]:
        return self.cgroup

    def containers_of(self, pids: Iterable[int]) -> dict[int, str]:
        return {}


def known(value: Any) -> Reading[Any]:
    return Reading.known(value, 0.0, "test")


def unknown(reason: str) -> Reading[Any]:
    return Reading.unknown(reason, "test", 0.0)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two scans that are a second apart on a real box may follow each other here."""
    monkeypatch.setattr(housekeeping, "SCANS_APART_S", 0.0)


Start = Callable[..., Bench]


def result(
    start: Start, inspector: Inspector, gate: dict[str, Any], box: Box | None = None, **fields: Any
) -> GateResult:
    made = start(good, box)
    assert made.box.container
    made.box.container = replace(made.box.container, pid=4321)
    conductor = made.conductor()
    conductor = Conductor(replace(conductor._parts, host=inspector))
    what, target = suite(gate), made.target(recipe(**{**GPU_RECIPE, **fields}))
    assert conductor.unrunnable(what, target) == {}
    (found,) = conductor.run(what, target, lambda e: None, lambda: False)
    return found


def orphan(name: str, written_at: float = 2e9, users: tuple[int, ...] | None = ()) -> SharedFile:
    return SharedFile(name, 64 * MIB, written_at, users)


@pytest.mark.parametrize(
    ("scans", "verdict", "says"),
    [
        pytest.param([known((orphan("a", users=(7,)),))], "passed", "no file of this serve", id="in-use"),
        pytest.param([known((orphan("vllm_offload_1.mmap"),))], "failed", "no process uses, 64 MiB", id="left"),
        pytest.param([known((orphan("a"),)), known(())], "passed", "0 older ones", id="gone-in-the-second-scan"),
        pytest.param([known((orphan("a", users=None),))], "unverified", "run as root", id="users-unknown"),
        pytest.param([unknown("/dev/shm: Permission denied")], "unverified", "Permission denied", id="unreadable"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("ipc", ["private", "host"])
def test_a_shared_memory_file_that_nobody_uses_is_residue(
    bench: Start, scans: list[Any], verdict: str, says: str, ipc: str
) -> None:
    inspector = Inspector(shared=scans)
    launch = {"argv": ("{port}",), "ipc": ipc}
    found = result(bench, inspector, {"kind": "shared-memory"}, launch=launch)
    assert (found.verdict, says in found.reason) == (verdict, True), found.reason
    assert set(inspector.asked) == {4321 if ipc == "private" else None}


def test_a_file_on_the_host_that_is_older_than_the_serve_is_not_its_own(bench: Start) -> None:
    inspector = Inspector(shared=[known((orphan("old", written_at=1.0),))])
    found = result(bench, inspector, {"kind": "shared-memory"}, launch={"argv": ("{port}",), "ipc": "host"})
    assert (found.verdict, "1 older ones" in found.reason) == ("passed", True)


@pytest.mark.parametrize(
    ("kernel", "verdict", "says"),
    [
        (known(()), "passed", "no Xid"),
        (known(("usb 1-1: new device",)), "passed", "1 report no ECC"),
        (known((XID,)), "failed", "Xid 79 on 0000:65:00"),
        (known((XID.replace("0000:65", "0000:a1"),)), "passed", "no Xid"),
        (unknown("/dev/kmsg: Operation not permitted"), "unverified", "Xid is unknown: /dev/kmsg"),
    ],
)
def test_an_xid_of_the_serves_own_gpu_fails_and_that_of_another_does_not(
    bench: Start, kernel: Any, verdict: str, says: str
) -> None:
    box = Box(bus_id="00000000:65:00.0")
    found = result(bench, Inspector(kernel=kernel), {"kind": "gpu-errors"}, box)
    assert (found.verdict, says in found.reason) == (verdict, True), found.reason


@pytest.mark.parametrize(("then", "verdict"), [(5, "passed"), (7, "failed"), (None, "unverified")])
def test_uncorrected_ecc_errors_count_from_the_beginning_of_the_gates(
    bench: Start, then: int | None, verdict: str
) -> None:
    box = Box(bus_id="00000000:65:00.0", ecc=[5, then])
    found = result(bench, Inspector(), {"kind": "gpu-errors"}, box)
    assert found.verdict == verdict
    assert ("2 uncorrected ECC errors more" in found.reason) == (verdict == "failed")


def test_ecc_errors_that_were_not_told_at_the_beginning_cannot_be_said_not_to_have_grown(bench: Start) -> None:
    box = Box(bus_id="00000000:65:00.0", ecc=[None, 7])
    found = result(bench, Inspector(), {"kind": "gpu-errors"}, box)
    assert (found.verdict, "did not tell its ECC errors when the gates began" in found.reason) == (
        "unverified",
        True,
    )


@pytest.mark.parametrize(
    ("grant", "verdict", "says"),
    [
        (GpuGrant(("GPU-1", "GPU-2"), "uuids", ("GPU-1", "GPU-2"), "device-request"), "failed", "GPU-2 of the"),
        (GpuGrant((), "unknown", (), "env"), "errored", "the container's GPUs are unknown"),
    ],
)
def test_a_gpu_that_is_not_looked_at_has_no_clean_record(
    bench: Start, grant: GpuGrant, verdict: str, says: str
) -> None:
    box = Box()
    assert box.container
    box.container = replace(box.container, gpus=grant)
    found = result(bench, Inspector(), {"kind": "gpu-errors"}, box)
    assert (found.verdict, says in found.reason) == (verdict, True), found.reason


def test_a_kernel_log_without_a_beginning_proves_nothing(bench: Start) -> None:
    found = result(bench, Inspector(mark=unknown("EPERM")), {"kind": "gpu-errors"})
    assert (found.verdict, "when the gates began" in found.reason) == ("unverified", True), found.reason


def test_a_lost_gpu_is_a_gpu_error(bench: Start) -> None:
    found = result(bench, Inspector(), {"kind": "gpu-errors"}, Box(gpu_state="lost"))
    assert (found.verdict, "is lost" in found.reason) == ("failed", True)


@pytest.mark.parametrize(
    ("available", "swap", "rule", "verdict", "says"),
    [
        (
            8000,
            100,
            {"free_at_least_mib": 8000},
            "passed",
            "8,000 MiB; the container's peak since it started 700 MiB",
        ),
        (7999, 0, {"free_at_least_mib": 8000}, "failed", "7,999 MiB, the rule wants 8,000 MiB"),
        (8000, 101, {"swap_at_most_mib": 100}, "failed", "101 MiB of swap in use, the rule allows 100 MiB"),
        (None, 0, {"free_at_least_mib": 1}, "unverified", "does not tell"),
    ],
)
def test_host_memory_is_judged_by_its_worst_moment(
    bench: Start, available: int | None, swap: int, rule: dict[str, int], verdict: str, says: str
) -> None:
    inspector = Inspector(available=available, swap=swap)
    found = result(bench, inspector, {"kind": "host-memory", **rule})
    assert (found.verdict, says in found.reason) == (verdict, True), found.reason
    (seen,) = found.observations
    assert (seen.raw["peak_mib"], seen.raw["limit_mib"], seen.raw["limit_met"]) == (700, 1024, 2)


class Files(Box):
    """A container whose files have these hashes."""

    hashes: dict[str, str | Exception] = {}

    def sha256(self, container_id: str, path: str, timeout_s: float) -> str:
        assert container_id == ID
        found = self.hashes.get(path, NotFound(f"{path} is no file"))
        if isinstance(found, Exception):
            raise found
        return found


A, B = "a" * 64, "b" * 64
PATCHED = {
    "patches": ({"name": "template", "file": "/t.jinja", "sha256": A},),
    "model": {"repo": "r", "path": "/w", "sha256": B},
}


@pytest.mark.parametrize(
    ("hashes", "verdict", "says"),
    [
        ({"/t.jinja": A, "/w": B}, "passed", "2 pinned files as recorded"),
        ({"/t.jinja": B, "/w": B}, "failed", "template /t.jinja is bbbbbbbbbbbb…, the recipe pins aaaaaaaaaaaa…"),
        ({"/w": B}, "failed", "template /t.jinja: /t.jinja is no file"),
        (
            {"/t.jinja": A, "/w": EffectFailed("not read within 120 s")},
            "errored",
            "weights: not read within 120 s",
        ),
    ],
)
def test_a_pinned_file_is_hashed_inside_the_running_container(
    bench: Start, hashes: dict[str, Any], verdict: str, says: str
) -> None:
    box = Files()
    box.hashes = hashes
    found = result(bench, Inspector(), {"kind": "hashes"}, box, **PATCHED)
    assert (found.verdict, says in found.reason) == (verdict, True), found.reason


def test_what_cannot_be_looked_at_is_said_before_anything_starts(bench: Start) -> None:
    made = bench(good)
    memory = {"kind": "host-memory", "free_at_least_mib": 1}
    what = suite({"kind": "shared-memory"}, {"kind": "gpu-errors"}, memory, {"kind": "hashes"})
    why = made.conductor().unrunnable(what, made.target())
    assert "can look at the box itself" in why["shared-memory"] and "box itself" in why["host-memory"]
    assert "names no GPU" in why["gpu-errors"]
    assert "pins no file by hash" in why["hashes"]


def test_the_least_free_memory_is_seen_between_requests_too(bench: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane can take minutes: what is allocated and freed inside one request must still count."""
    monkeypatch.setattr(housekeeping, "WATCH_S", 0.01)
    box = Box(free_mib=9000)

    def allocates_for_a_while(seen: Seen) -> Sequence[Step]:
        before, box.free_mib = box.gpu_reads, 2000
        wait_until(lambda: box.gpu_reads > before + 1, "the watch reads the GPUs")
        box.free_mib = 9000
        return good(seen)

    gates = suite(
        {"kind": "smoke"},
        {"kind": "reserve", "when": "during"},
        {"kind": "reserve", "id": "now", "when": "after-work"},
    )
    _, during, now = bench(allocates_for_a_while, box).run(gates, recipe(**GPU_RECIPE))
    assert (during.verdict, now.verdict) == ("failed", "passed")
    assert "2,000 MiB free" in during.reason and "9,000 MiB free" in now.reason


def test_what_an_interrupted_run_saw_counts_when_it_is_taken_up(bench: Start) -> None:
    """Memory that was short, and a GPU error, before the process was killed: no later process sees them."""
    seen: dict[str, Any] = {}
    box, inspector = Box(bus_id="00000000:65:00.0", ecc=[5, 5, 7], free_mib=2000), Inspector(available=100)
    made = bench(good, box)
    assert box.container
    box.container = replace(box.container, pid=4321)
    conductor = Conductor(replace(made.conductor()._parts, host=inspector))
    target = made.target(recipe(**GPU_RECIPE))
    first = suite({"kind": "smoke"})
    conductor.run(first, target, lambda e: None, lambda: False, {}, seen)
    assert seen["kernel"] == 7
    box.free_mib, inspector.available, inspector.mark = 9000, 8000, known(99)
    rest = suite(
        {"kind": "smoke"}, {"kind": "reserve", "when": "during"},
        {"kind": "host-memory", "free_at_least_mib": 200}, {"kind": "gpu-errors"},
    )  # fmt: skip
    _, reserve, memory, gpu = conductor.run(
        rest, target, lambda e: None, lambda: False, {}, json.loads(json.dumps(seen))
    )
    assert [r.verdict for r in (reserve, memory, gpu)] == ["failed"] * 3
    assert "2,000 MiB free" in reserve.reason and "100 MiB" in memory.reason and "2 uncorrected" in gpu.reason
