"""Every error code of NVML at every call: the real binding over the stand-in library, in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from anvil_tui.adapters.nvml import Sampler
from anvil_tui.core.box import Gpu, GpuSnapshot
from anvil_tui.core.gpu_wire import GpuFault, keep_rows, snapshot_from_json, snapshot_to_json
from tests.real.nvml.stub_nvml import State, build, uuid

NAMED = sorted(v for k, v in vars(pynvml).items() if k.startswith("NVML_ERROR_") and isinstance(v, int))
CODES = (*NAMED, 77)  # and one that no binding knows
ABSENT, FATAL = (3, 13, 25), (1, 15, 16)
# What NVML is asked: the stand-in's name of the call, the field that it fills, the words of a note.
FIELDS = {
    "util": ("utilization_pct", "utilization"), "temp": ("temperature_c", "temperature"),
    "power": ("power_w", "power"), "clock": ("sm_clock_mhz", "sm clock"), "throttle": ("throttle", "throttle"),
    "fan": ("fan_pct", "fan"), "procs": ("processes", "processes"), "ecc": ("ecc_uncorrected", "ecc"),
    "pcie": ("pcie_tx_kib_s", "pcie tx"), "name": ("name", "name"), "bus": ("bus_id", "bus"),
    "remap": ("remap_pending", "remapped rows"), "events": ("xids", "xid events"), "mig": ("mig", "MIG"),
}  # fmt: skip


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Box:
    """A fresh reader over the stand-in for each question; `again` is the same reader later."""

    def __init__(self, library: Path, state: State) -> None:
        self.library, self.state, self.clock = library, state, Clock()
        self.sampler = Sampler(str(library), self.clock)

    def fresh(self, **faults: object) -> GpuSnapshot | GpuFault:
        self.sampler = Sampler(str(self.library), self.clock)
        return self.again(0, **faults)

    def again(self, later_s: float, **faults: object) -> GpuSnapshot | GpuFault:
        self.state.set(**faults)
        self.clock.now += later_s
        found = self.sampler.sample()
        assert snapshot_from_json(json.loads(json.dumps(snapshot_to_json(found)))) == found, (
            "the console gets what the reader saw"
        )
        return found


def rows(found: GpuSnapshot | GpuFault) -> tuple[Gpu, ...]:
    assert isinstance(found, GpuSnapshot)
    return found.gpus


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.getbasetemp())


@pytest.fixture
def box(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    state = State(tmp_path / "gpus.conf", 2)
    monkeypatch.setenv("FAKE_NVML", str(state.path))
    state.set(g0__fan=30, g0__mig="MIG-a")
    made = Box(library, state)
    whole = rows(made.fresh())[0]
    unread = [field for field, _ in FIELDS.values() if getattr(whole, field) is None]
    assert unread == [], "without a fault every field is read"
    yield made
    pynvml.nvmlShutdown()


@pytest.mark.parametrize("call", FIELDS)
def test_a_failing_call_costs_its_field_or_its_row_and_never_the_other_gpu(box: Box, call: str) -> None:
    """O-01, O-04, O-06, O-100: unsupported is n/a without a word, a lost GPU has no numbers, the rest is told."""
    field, words = FIELDS[call]
    healthy = rows(box.fresh())[1]
    for code in CODES:
        row, other = rows(box.fresh(**{f"g0__code__{call}": code}))
        assert (other.state, other.used_bytes, other.reason) == ("ok", healthy.used_bytes, ""), code
        assert (row.index, row.uuid, getattr(row, field)) == (0, uuid(0), None), code
        if code in FATAL:
            assert row.state == ("lost" if code == 15 else "error") and f"NVML error {code}" in row.reason
            assert (row.total_bytes, row.used_bytes, row.processes) == (None, None, None)
        else:
            assert (row.state, row.used_bytes) == ("ok", 0), code
            assert (words in row.reason) is (code not in ABSENT), (code, row.reason)
        box.state.set(**{f"g0__code__{call}": None})


def test_memory_decides_the_row(box: Box) -> None:
    """O-01, O-02: not supported and not permitted are n/a; any other failure is the row's, with its code."""
    for code in CODES:
        row = rows(box.fresh(g0__code__mem=code))[0]
        assert (row.total_bytes, row.used_bytes, row.free_bytes) == (None, None, None), code
        if code in (*ABSENT, 4):
            assert (row.state, row.temperature_c, "memory" in row.reason) == ("ok", 31, code == 4)
        else:
            assert (row.state, row.temperature_c) == ("lost" if code == 15 else "error", None)
            assert f"NVML error {code}" in row.reason


@pytest.mark.parametrize("fault", ["handle", "code__uuid"])
def test_a_gpu_without_identity_keeps_its_row_and_its_place(box: Box, fault: str) -> None:
    """O-04, O-100: whatever the code; what was known of the place is told, its numbers are not."""
    known = rows(box.fresh())
    for code in CODES:
        bare = rows(box.fresh(**{f"g0__{fault}": code}))
        assert [(g.index, g.uuid) for g in bare] == [(0, None), (1, uuid(1))], code
        assert bare[0].state == ("lost" if code == 15 else "error") and f"NVML error {code}" in bare[0].reason
        kept = keep_rows(known, bare)[0]
        assert (kept.uuid, kept.name, kept.used_bytes, kept.processes) == (uuid(0), "NVIDIA H200", None, None)
        box.state.set(**{f"g0__{fault}": None})
        assert rows(box.again(61))[0].state == "ok", "it heals without a restart of the console"


@pytest.mark.parametrize("call", ["init", "count"])
def test_nvml_that_fails_as_a_whole_is_no_empty_box(box: Box, call: str) -> None:
    """O-05, O-12: at the start and later, each code said; only a missing library is `unavailable`."""
    for code in CODES:
        key = "init" if call == "init" else "code__count"
        for later_s in (None, 61):
            box.fresh()
            box.state.set(g1__handle=999)  # makes the reader start NVML again
            box.fresh() if later_s else None
            box.state.set(**{key: code})
            found = box.again(later_s) if later_s else box.fresh()
            assert isinstance(found, GpuFault) and found.code == code, (code, later_s)
            assert found.kind == ("unavailable" if code == 12 else "error") and str(code) in str(found)
            box.state.set(**{key: None, "g1__handle": None})
            assert len(rows(box.again(61))) == 2


@pytest.mark.parametrize(("call", "field"), [("driver", "driver"), ("cuda", "cuda")])
def test_a_version_that_is_not_told_costs_nothing_else(box: Box, call: str, field: str) -> None:
    for code in CODES:
        found = box.fresh(**{f"code__{call}": code})
        if call == "driver" and code == 1:
            assert isinstance(found, GpuFault)
        else:
            assert getattr(found, field) is None and [g.state for g in rows(found)] == ["ok", "ok"], code


def test_text_that_is_none_costs_its_field(box: Box) -> None:
    """O-100: a broken driver answers bytes; the reader does not end."""
    broken = "NVIDIA \udcff\udcfe"
    row, other = rows(box.fresh(g0__name=broken))
    assert (row.name, row.state, row.used_bytes, "name is no text" in row.reason) == (None, "ok", 0, True)
    row, other = rows(box.fresh(g0__name="NVIDIA H200", g0__uuid=broken))
    assert (row.uuid, row.state, other.uuid) == (None, "error", uuid(1)) and "UUID is no text" in row.reason
    found = box.fresh(g0__uuid=uuid(0), driver=broken)
    assert isinstance(found, GpuSnapshot) and found.driver is None and found.complete


def test_processes_that_nobody_knows_are_listed_as_they_are(box: Box) -> None:
    """O-03, XuehaiPan/nvitop#75: numbers that are no process here, twice the same, and memory that is not told."""
    box.state.procs = ["0,4294967295,5", "0,0,-1", "0,812,-1", "0,812,7"]
    listed = rows(box.fresh())[0].processes or ()
    assert [(p.pid, p.name, p.used_bytes) for p in listed][:2] == [(4294967295, None, 5), (0, None, None)]
    assert [(p.pid, p.used_bytes) for p in listed][2:] == [(812, None), (812, 7)]


def test_slices_of_a_gpu_in_mig_mode(box: Box) -> None:
    """O-07: with free places between them; changed under the reader; the other GPU is whole."""
    names = [f"MIG-5a10c0de-0000-0000-0000-{n:012d}" for n in range(3)]
    first, second = rows(box.fresh(g0__mig=",".join(names)))
    assert (first.mig, second.mig) == (tuple(names), None)
    box.state.set(g0__mig=names[1], g0__unsupported="util", g0__code__mem=4, g0__code__procs=4)
    for _ in range(4):
        first = rows(box.again(6))[0]
    assert (first.mig, first.state, first.used_bytes, first.utilization_pct) == ((names[1],), "ok", None, None)
    assert first.processes is None and "memory: " in first.reason


@pytest.mark.parametrize(
    "name", ["NVIDIA GB10", "NVIDIA Thor", "Orin (nvgpu)", "Tegra X1", "NVIDIA A16-8Q", "GH200 480GB"]
)
def test_memory_of_unified_virtual_and_superchip_gpus(box: Box, name: str) -> None:
    """O-01: what has no memory of its own is n/a and called integrated by its name alone; a virtual GPU without
    sensors and a superchip with memory of its own are as any other."""
    own = name in ("NVIDIA A16-8Q", "GH200 480GB")
    row = rows(box.fresh(g0__name=name, g0__unsupported="fan,power,temp,clock,procs" + ("" if own else ",mem")))[0]
    assert (row.state, row.used_bytes, row.integrated) == ("ok", 0 if own else None, not own)
    assert (row.utilization_pct, row.power_w, row.processes) == (0, None, None)
