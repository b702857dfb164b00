"""The GPU reader: our real child program over the stand-in NVML library, faults included."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from anvil_tui.adapters.gpu_reader import ChildGpuReader, nvml_argv
from anvil_tui.core.box import MIB, Gpu, GpuSnapshot
from anvil_tui.core.gpu_wire import snapshot_from_json
from anvil_tui.core.reading import Reading
from anvil_tui.core.vram import fit, gpus_free
from tests.real.nvml.stub_nvml import SONAME, State, build, uuid

Readings = Reading[GpuSnapshot]


class RealClock:
    def monotonic_s(self) -> float:
        return time.monotonic()

    def utc(self) -> datetime:
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.getbasetemp())


class Rig:
    """Readers over one state file, all closed at the end."""

    def __init__(self, library: Path, folder: Path) -> None:
        self.library, self.folder = library, folder
        self.readers: list[ChildGpuReader] = []

    def reader(
        self, argv: tuple[str, ...] = (), deadline_s: float = 5.0, start_deadline_s: float = 20.0
    ) -> ChildGpuReader:
        argv = argv or nvml_argv(0.05, str(self.library))
        if path := os.environ.get("FAKE_NVML"):  # a reader inherits nothing
            argv = ("/usr/bin/env", f"FAKE_NVML={path}", *argv)
        self.readers.append(ChildGpuReader(argv, deadline_s, RealClock(), start_deadline_s=start_deadline_s))
        return self.readers[-1]


@pytest.fixture
def rig(library: Path, tmp_path: Path) -> Iterator[Rig]:
    made = Rig(library, tmp_path)
    yield made
    for reader in made.readers:
        reader.close()


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> State:
    path = tmp_path / "gpus.conf"
    monkeypatch.setenv("FAKE_NVML", str(path))
    return State(path, 2)


def until(reader: ChildGpuReader, wanted: Callable[[Readings], bool], seconds: float = 8.0) -> Readings:
    end = time.monotonic() + seconds
    while not wanted(reader.read()):
        assert time.monotonic() < end, f"not in {seconds} s; last: {reader.read()}"
        time.sleep(0.01)
    return reader.read()


def gone(pid: int, seconds: float = 3.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False


def gpus(reading: Readings) -> tuple[Gpu, ...]:
    assert reading.value is not None
    return reading.value.gpus


def known(reading: Readings) -> bool:
    return reading.ok


def test_every_field_of_a_healthy_gpu(rig: Rig, state: State) -> None:
    state.procs = [f"1,{os.getpid()},98784247808"]
    state.set(
        cuda=12080,
        g1__used=98784247808,
        g1__util=87,
        g1__throttle=0x44,
        g1__fan=30,
        g1__ecc=2,
        g1__tx=10,
        g1__rx=20,
    )
    reading = until(rig.reader(), lambda r: r.ok and gpus(r)[1].pcie_rx_kib_s is not None)
    assert reading.value is not None and (reading.value.driver, reading.value.cuda) == ("580.95.05", "12.8")
    assert [g.uuid for g in gpus(reading)] == [uuid(0), uuid(1)]
    gpu = gpus(reading)[1]
    assert (gpu.total_bytes, gpu.used_bytes, gpu.reserved_bytes) == (150754820096, 98784247808, 657457152)
    assert gpu.free_bytes == 150754820096 - 98784247808 - 657457152 and not gpu.used_includes_reserved
    assert (gpu.utilization_pct, gpu.temperature_c, gpu.power_w, gpu.power_limit_w) == (87, 31, 76.0, 700.0)
    assert (gpu.sm_clock_mhz, gpu.memory_clock_mhz, gpu.fan_pct, gpu.ecc_uncorrected) == (345, 3201, 30, 2)
    assert gpu.throttle == ("sw-power-cap", "hw-thermal")
    assert (gpu.pcie_tx_kib_s, gpu.pcie_rx_kib_s, gpu.bus_id) == (10, 20, "00000000:02:00.0")
    assert gpu.processes is not None and [(p.pid, p.used_bytes) for p in gpu.processes] == [
        (os.getpid(), 98784247808)
    ]
    assert gpus(reading)[0].processes == () and gpus(reading)[0].fan_pct is None


RECORDED = json.loads((Path(__file__).parents[2] / "fixtures" / "nvml_h200.json").read_text())


@pytest.mark.parametrize("load", ["idle", "loaded"])
def test_replayed_answers_of_a_real_h200_give_what_nvidia_smi_said(rig: Rig, state: State, load: str) -> None:
    raw = {k: v["answer"] for k, v in RECORDED[load]["raw"].items() if isinstance(v, dict)}
    smi = RECORDED[load]["nvidia_smi"]
    state.values, state.procs = {}, [f"0,{p['pid']},{p['usedGpuMemory']}" for p in raw["processes_v3"]]
    memory = raw["memory_v2"]
    state.set(
        driver=raw["driver"], g0__name=raw["name"], g0__uuid=raw["uuid"], g0__bus=smi["pci.bus_id"],
        g0__total=memory["total"], g0__used=memory["used"], g0__reserved=memory["reserved"],
        g0__util=raw["utilization"]["gpu"], g0__temp=raw["temperature_v"], g0__power=raw["power"],
        g0__limit=raw["power_limit"], g0__smclock=raw["sm_clock"], g0__memclock=raw["memory_clock"],
        g0__throttle=raw["event_reasons"], g0__ecc=raw["ecc"], g0__unsupported="fan",
    )  # fmt: skip
    reading = until(rig.reader(), known)
    gpu = gpus(reading)[0]
    recorded = snapshot_from_json(RECORDED[load]["child"])
    assert isinstance(recorded, GpuSnapshot) and reading.value is not None
    assert recorded.driver == reading.value.driver == smi["driver_version"]
    for row in (gpu, recorded.gpus[0]):
        assert (row.uuid, row.name, row.bus_id) == (smi["uuid"], smi["name"], smi["pci.bus_id"])
        assert abs((row.total_bytes or 0) / MIB - int(smi["memory.total"])) <= 1
        assert abs((row.reserved_bytes or 0) / MIB - int(smi["memory.reserved"])) <= 1
        assert abs((row.used_bytes or 0) / MIB - int(smi["memory.used"])) <= 1
        assert abs((row.free_bytes or 0) / MIB - int(smi["memory.free"])) <= 1
        assert abs((row.utilization_pct or 0) - int(smi["utilization.gpu"])) <= 5
        assert abs((row.temperature_c or 0) - int(smi["temperature.gpu"])) <= 2
        assert abs((row.power_w or 0) - float(smi["power.draw"])) <= 10
        assert row.power_limit_w == float(smi["enforced.power.limit"])
        assert row.memory_clock_mhz == int(smi["clocks.mem"])
        assert row.throttle == (("idle",) if load == "idle" else ("sw-power-cap",))
        assert (row.fan_pct, row.ecc_uncorrected) == (None, 0)
        assert [p.pid for p in row.processes or ()] == [p["pid"] for p in raw["processes_v3"]]


def test_ecc_row_remapping_and_xids(rig: Rig, state: State) -> None:
    """An Xid of before the reader is not told; one that a call of another GPU follows is that GPU's alone."""
    state.set(g0__xid=31, g0__xids=3, g1__ecc=4, g1__pending=1, g1__unsupported="events")
    reader = rig.reader()
    first, second = gpus(until(reader, lambda r: r.ok and all(g.ecc_uncorrected is not None for g in gpus(r))))
    assert (first.xid, first.xids, first.remap_pending, first.remap_failed) == (0, 0, False, False)
    assert (second.xid, second.xids, second.ecc_uncorrected) == (None, None, 4)
    assert (second.remap_pending, second.remap_failed) == (True, False)
    state.set(g0__xid=48, g0__xids=5)
    first = gpus(until(reader, lambda r: gpus(r)[0].xids == 2))[0]
    assert first.xid == 48
    state.set(g0__xid=94, g0__xids=7, g0__then=45)
    first = gpus(until(reader, lambda r: gpus(r)[0].xids == 4))[0]
    assert first.xid == 94, "what its programs then did is no more than what follows"
    state.set(g0__then=None)
    state.set(g0__xid=79, g0__xids=8, g0__lost=1)
    first = gpus(until(reader, lambda r: gpus(r)[0].state == "lost"))[0]
    assert first.total_bytes is None
    state.set(g0__lost=None)
    first = gpus(until(reader, lambda r: gpus(r)[0].state == "ok"))[0]
    assert (first.xid, first.xids) == (79, 5)


def test_what_a_gpu_has_not_got_is_no_zero(rig: Rig, state: State) -> None:
    state.set(g0__unsupported="ecc,remap,events,throttle")
    first, second = gpus(until(rig.reader(), lambda r: r.ok and gpus(r)[1].ecc_uncorrected is not None))
    assert (first.ecc_uncorrected, first.remap_pending, first.remap_failed) == (None, None, None)
    assert (first.xid, first.xids, first.throttle) == (None, None, None)
    assert (second.ecc_uncorrected, second.xids, second.throttle) == (0, 0, ())


def test_zero_is_measured_zero(rig: Rig, state: State) -> None:
    gpu = gpus(until(rig.reader(), known))[0]
    assert (gpu.used_bytes, gpu.utilization_pct, gpu.throttle) == (0, 0, ())


def test_unified_memory_is_not_zero_memory(rig: Rig, state: State) -> None:
    """O-01, XuehaiPan/nvitop#208: memory of a GB10 is n/a, its other figures stay."""
    state.set(g0__name="NVIDIA GB10", g0__unsupported="mem", g0__power=11200, g0__temp=36, g1__unsupported="mem")
    reading = until(rig.reader(), known)
    gpu, discrete = gpus(reading)
    assert (gpu.total_bytes, gpu.used_bytes, gpu.free_bytes, gpu.integrated) == (None, None, None, True)
    assert (gpu.power_w, gpu.temperature_c, gpu.utilization_pct, gpu.state) == (11.2, 36, 0, "ok")
    assert fit(reading, [uuid(0)], 1).answer == "unknown"
    assert discrete.total_bytes is None and not discrete.integrated


def test_total_zero_is_not_available_either(rig: Rig, state: State) -> None:
    state.set(g0__total=0, g0__reserved=0)
    gpu = gpus(until(rig.reader(), known))[0]
    assert (gpu.total_bytes, gpu.free_bytes, gpu.integrated) == (None, None, False)


@pytest.mark.parametrize("code", [13, 25, 3])
def test_old_memory_call_says_that_it_includes_reserved(rig: Rig, state: State, code: int) -> None:
    """O-02, wookayin/gpustat#141: v1 counts the driver's reserve as used; free is the same in both forms."""
    state.set(g0__reserved=310 * MIB, g0__code__mem2=code, g0__total=24576 * MIB)
    state.set(g1__reserved=310 * MIB, g1__total=24576 * MIB)
    old, new = gpus(until(rig.reader(), known))
    assert (old.used_bytes, old.reserved_bytes, old.used_includes_reserved) == (310 * MIB, None, True)
    assert (new.used_bytes, new.reserved_bytes, new.used_includes_reserved) == (0, 310 * MIB, False)
    assert old.free_bytes == new.free_bytes == 24266 * MIB
    both = GpuSnapshot("1", (old, new))
    assert gpus_free(both, [uuid(0), uuid(1)], 0, {uuid(0): 24266, uuid(1): 24266}) == []


def test_unattributed_process_memory_is_none(rig: Rig, state: State) -> None:
    """O-03, XuehaiPan/nvitop#55."""
    state.procs = ["0,812,-1", "0,977,-1"]
    state.set(g0__total=96 << 30, g0__used=92 << 30, g0__reserved=0)
    reading = until(rig.reader(), known)
    gpu = gpus(reading)[0]
    assert gpu.used_bytes == 92 << 30
    assert gpu.processes is not None and [(p.pid, p.used_bytes) for p in gpu.processes] == [
        (812, None),
        (977, None),
    ]
    assert reading.value is not None and "n/a MiB" in gpus_free(reading.value, [uuid(0)], 0)[0]


def test_unsupported_calls_are_asked_once(rig: Rig, state: State, tmp_path: Path) -> None:
    log = tmp_path / "calls"
    state.set(g0__unsupported="temp,fan,ecc,pcie,util,power,throttle,procs,clock", log=log)
    reader = rig.reader()
    until(reader, known)
    until(reader, lambda r: log.read_text().count("mem 0\n") >= 5)
    calls = log.read_text().splitlines()
    # temperature has a new and an old call, power a reading and a limit, clocks two, PCIe two directions
    assert calls.count("temp 0") == 2 and calls.count("power 0") == 2 and calls.count("pcie 0") == 2
    assert calls.count("fan 0") == calls.count("ecc 0") == calls.count("util 0") == 1
    assert calls.count("temp 1") >= 4
    gpu = gpus(reader.read())[0]
    assert (gpu.temperature_c, gpu.power_w, gpu.processes, gpu.throttle) == (None, None, None, None)
    assert gpu.state == "ok" and gpu.used_bytes == 0


def test_a_failing_sensor_costs_one_field(rig: Rig, state: State) -> None:
    state.set(g0__code__temp=10)
    gpu = gpus(until(rig.reader(), known))[0]
    assert gpu.temperature_c is None and gpu.state == "ok" and gpu.power_w == 76.0
    assert gpu.reason == "temperature: Timeout"


def test_slow_counters_are_read_seldom(rig: Rig, state: State, tmp_path: Path) -> None:
    log = tmp_path / "calls"
    state.set(log=log)
    reader = rig.reader()
    until(reader, lambda r: log.exists() and log.read_text().count("mem 0\n") >= 10)
    calls = log.read_text().splitlines()
    assert calls.count("pcie 0") == calls.count("pcie 1") == 2
    assert calls.count("ecc 0") == calls.count("ecc 1") == 1


def test_lost_gpu_keeps_its_row(rig: Rig, state: State) -> None:
    """O-04, XuehaiPan/nvitop#139: one of four falls off the bus."""
    state.count(4)
    reader = rig.reader()
    until(reader, known)
    state.set(g2__lost=1, g3__used=7 * MIB)
    reading = until(reader, lambda r: gpus(r)[2].state == "lost" and gpus(r)[3].used_bytes == 7 * MIB)
    row = gpus(reading)[2]
    assert [g.uuid for g in gpus(reading)] == [uuid(n) for n in range(4)]
    assert (row.used_bytes, row.free_bytes, row.temperature_c, row.processes) == (None, None, None, None)
    assert "NVML error 15" in row.reason and [g.state for g in gpus(reading)] == ["ok", "ok", "lost", "ok"]
    # also after NVML was started again, when it gives no handle and so no UUID
    state.set(g0__used=MIB, epoch=1)
    reading = until(reader, lambda r: gpus(r)[0].used_bytes == MIB)
    assert (gpus(reading)[2].uuid, gpus(reading)[2].state) == (uuid(2), "lost")
    state.set(g2__lost=None)
    assert known(until(reader, lambda r: gpus(r)[2].state == "ok" and gpus(r)[2].temperature_c == 31))


def test_lost_from_the_start_has_no_identity(rig: Rig, state: State) -> None:
    state.set(g0__lost=1)
    row, other = gpus(until(rig.reader(), known))
    assert (row.uuid, row.state, other.uuid, other.index) == (None, "lost", uuid(1), 1)


def test_unknown_error_of_one_handle_leaves_indexes_alone(rig: Rig, state: State) -> None:
    """O-100, XuehaiPan/nvitop#45."""
    state.count(4)
    state.set(g1__handle=999)
    reading = until(rig.reader(), known)
    assert [(g.index, g.uuid, g.state) for g in gpus(reading)] == [
        (0, uuid(0), "ok"), (1, None, "error"), (2, uuid(2), "ok"), (3, uuid(3), "ok"),
    ]  # fmt: skip
    assert "999" in gpus(reading)[1].reason
    assert reading.value is not None and not reading.value.complete
    answer = fit(reading, [uuid(1)], 1)
    assert answer.answer == "unknown" and "GPU 1 cannot be read" in answer.reasons[0]


def test_failing_memory_call_fails_the_row(rig: Rig, state: State) -> None:
    state.set(g0__code__mem=999)
    row = gpus(until(rig.reader(), known))[0]
    assert (row.state, row.uuid, row.temperature_c) == ("error", uuid(0), None)


@pytest.mark.parametrize(
    ("code", "words"), [(18, "reboot or reload"), (9, "modprobe nvidia"), (999, "nvidia-smi"), (13, "too old")]
)
def test_nvml_that_does_not_start_is_an_error_that_heals(rig: Rig, state: State, code: int, words: str) -> None:
    """O-05, Syllo/nvtop#95: not "0 GPUs"; cleared without a restart."""
    state.set(init=code)
    reader = rig.reader()
    reading = until(reader, lambda r: r.state == "error")
    assert reading.value is None and f"(NVML code {code})" in reading.reason and words in reading.reason
    state.set(init=0)
    assert len(gpus(until(reader, known))) == 2


def test_init_is_tried_again_with_a_back_off(rig: Rig, state: State, tmp_path: Path) -> None:
    log = tmp_path / "calls"
    state.set(init=18, log=log)
    reader = rig.reader()
    first = until(reader, lambda r: r.state == "error")
    until(reader, lambda r: (r.at_s or 0) > (first.at_s or 0) + 0.5)
    assert log.read_text().count("init") == 1


def test_driver_restart_is_healed_with_fresh_handles(rig: Rig, state: State) -> None:
    """O-06, LibreHardwareMonitor#2523: code 1 for a handle that was good before."""
    state.set(g0__util=97)
    reader = rig.reader()
    until(reader, lambda r: r.ok and gpus(r)[0].utilization_pct == 97)
    before = gpus(reader.read())
    # the driver comes back and enumerates the two GPUs the other way round
    state.set(epoch=1, g0__uuid=uuid(1), g1__uuid=uuid(0), g1__util=3, g0__util=40)
    reading = until(reader, lambda r: r.ok and {g.utilization_pct for g in gpus(r)} == {3, 40})
    assert {g.uuid: g.utilization_pct for g in gpus(reading)} == {uuid(0): 3, uuid(1): 40}
    assert {g.uuid for g in before} == {g.uuid for g in gpus(reading)}


def test_hung_driver_is_killed_and_the_value_is_kept_as_stale(rig: Rig, state: State) -> None:
    """O-06, NVIDIA/go-nvml#152."""
    reader = rig.reader(deadline_s=0.5, start_deadline_s=5.0)
    until(reader, known)
    state.set(delay_ms=90_000)
    reading = until(reader, lambda r: r.state == "error")
    assert "no GPU reading for 0.5 s" in reading.reason and len(gpus(reading)) == 2
    pid = int(reading.reason.split("pid ")[1].split(")")[0])
    assert gone(pid)
    started = time.monotonic()
    reader.read()
    assert time.monotonic() - started < 0.05
    state.set(delay_ms=None, g0__used=5 * MIB)
    assert gpus(until(reader, known))[0].used_bytes == 5 * MIB


@pytest.mark.parametrize("call", ["mem", "init"])
def test_a_crash_inside_the_drivers_library_ends_the_child_alone(rig: Rig, state: State, call: str) -> None:
    """O-04, XuehaiPan/nvitop#139: a segmentation fault of NVML; the last value stays as old, and it heals."""
    reader = rig.reader()
    if call == "mem":
        until(reader, known)
    state.set(crash=call)
    reading = until(reader, lambda r: r.state == "error")
    assert "was ended by SIGSEGV, as by a fault of the driver's library" in reading.reason
    assert (reading.value is None) is (call == "init")
    state.set(crash=None, g0__used=3 * MIB)
    assert gpus(until(reader, known))[0].used_bytes == 3 * MIB


def test_one_call_that_hangs_on_one_gpu_is_the_drivers_hang(rig: Rig, state: State) -> None:
    """O-06: at most one process waits in the driver; the other GPUs come back with a new one."""
    reader = rig.reader(deadline_s=0.4, start_deadline_s=5.0)
    until(reader, known)
    state.set(hang="power")
    reading = until(reader, lambda r: r.state == "error")
    assert "no GPU reading for 0.4 s" in reading.reason and len(gpus(reading)) == 2
    state.set(hang=None, g1__used=MIB)
    assert gpus(until(reader, known))[1].used_bytes == MIB


def test_close_ends_the_child_even_when_it_hangs(rig: Rig, state: State) -> None:
    reader = rig.reader()
    until(reader, known)
    child = next(c for c in psutil.Process().children() if "anvil_tui.adapters.nvml_child" in c.cmdline())
    state.set(delay_ms=90_000)
    started = time.monotonic()
    reader.close()
    assert time.monotonic() - started < 2.0
    assert gone(child.pid)


def test_no_library_and_no_gpus_are_two_different_answers(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O-12, wookayin/gpustat#90, rapidsai/jupyterlab-nvdashboard#31."""
    missing = until(rig.reader(nvml_argv(0.05, str(tmp_path))), lambda r: r.at_s is not None)
    assert missing.state == "unknown" and missing.value is None
    assert "NVML library not found" in missing.reason and "gpus.library_dir" in missing.reason
    state = State(tmp_path / "none.conf", 0)
    monkeypatch.setenv("FAKE_NVML", str(state.path))
    none = until(rig.reader(), known)
    assert gpus(none) == ()


def test_sixteen_gpus_in_one_line(rig: Rig, state: State) -> None:
    state.count(16)
    reading = until(rig.reader(), known)
    assert [g.uuid for g in gpus(reading)] == [uuid(n) for n in range(16)]


WSL = """
import platform, sys
platform.release = lambda: "6.6.87.2-microsoft-standard-WSL2"
from anvil_tui.adapters import nvml
nvml.WSL_LIBRARY_DIR = sys.argv[1]
from anvil_tui.adapters.nvml_child import main
main(["--interval", "0.05"])
"""


def test_wsl_library_is_found_and_an_empty_process_list_says_nothing(rig: Rig, state: State) -> None:
    """O-15, Syllo/nvtop#318."""
    state.set(g0__unsupported="util", g0__used=90 << 30, g0__total=96 << 30, g0__reserved=0)
    reading = until(rig.reader((sys.executable, "-c", WSL, str(rig.library))), known)
    gpu = gpus(reading)[0]
    assert gpu.processes is None and "not available under WSL2" in gpu.reason
    assert (gpu.utilization_pct, gpu.used_bytes, gpu.total_bytes) == (None, 90 << 30, 96 << 30)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("print('hello')", "no snapshot"),
        ("print('[' * 100_000)", "no snapshot"),
        ('print(\'{"schema":"anvil.gpus/2","gpus":[]}\')', "expected anvil.gpus/1"),
        ('print(\'{"schema":"anvil.gpus/1","gpus":[{"index":true}]}\')', "gpus[0].index"),
        ('print(\'{"schema":"anvil.gpus/1","gpus":[{"index":0,"power_w":NaN}]}\')', "NaN is not a number"),
        ("import sys; print('no such box', file=sys.stderr); sys.exit(7)", "status 7: no such box"),
        ("print('x' * 3_000_000, end='')", "endless line"),
    ],
)
def test_a_foreign_reader_that_misbehaves_is_an_error(rig: Rig, program: str, words: str) -> None:
    reading = until(rig.reader((sys.executable, "-c", program)), lambda r: r.state == "error")
    assert words in reading.reason


def test_a_reader_that_cannot_be_started_is_an_error(rig: Rig, tmp_path: Path) -> None:
    reading = until(rig.reader((str(tmp_path / "absent"),)), lambda r: r.state == "error")
    assert "cannot be started" in reading.reason


def test_the_whole_process_group_is_ended(rig: Rig, tmp_path: Path) -> None:
    """A reader behind a shell or ssh has children of its own."""
    note = tmp_path / "pid"
    reader = rig.reader(("/bin/sh", "-c", f"sleep 600 & echo $! > {note}; wait"), 0.2, start_deadline_s=0.5)
    until(reader, lambda r: r.state == "error")
    assert gone(int(note.read_text()))


def test_the_program_ends_when_nobody_reads(library: Path, state: State) -> None:
    child = subprocess.Popen(nvml_argv(0.02, str(library)), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None and child.stderr is not None
    child.stdout.readline()
    child.stdout.close()
    assert child.wait(5) == 0 and child.stderr.read() == b""
    child.stderr.close()


def test_an_unusable_library_is_an_error(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / SONAME).write_text("not a library")
    reading = until(rig.reader(nvml_argv(0.05, str(tmp_path))), lambda r: r.at_s is not None)
    assert reading.state == "error" and "cannot be loaded" in reading.reason
