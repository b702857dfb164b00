"""GPU readings through nvidia-ml-py. Runs in the reader's child process only (`nvml_child.py`).

Each call is wrapped alone: one that a GPU does not support is asked once per GPU and start of NVML, then
left out; a failing sensor costs that field, a failing handle or memory call costs that row, a failing
NVML costs the snapshot. Measured on an H200: 7 ms a GPU and tick (utilization 3.8, power 1.8, the rest below
0.5 each), and 44 ms when its slow counters are read too.
"""

from __future__ import annotations

import contextlib
import ctypes
import platform
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pynvml

from anvil_tui.adapters import nvml_calls as calls
from anvil_tui.core.box import Gpu, GpuProcess, GpuSnapshot, GpuState
from anvil_tui.core.gpu_wire import APPLICATION_XIDS, GpuFault

T = TypeVar("T")

LIBRARY = "libnvidia-ml.so.1"
WSL_LIBRARY_DIR = "/usr/lib/wsl/lib"
# PCIe throughput samples a counter for 20 ms a call, ECC takes 2 ms: one GPU a tick, each this often at most.
SLOW_S = 5.0
RETRY_S = (2.0, 60.0)

UNINITIALIZED, NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, GPU_IS_LOST, VERSION_MISMATCH = (
    1,
    3,
    4,
    13,
    15,
    25,
)
# Of a GPU that does nothing but report Xids not more than this many are taken in one tick.
XIDS_A_TICK = 64
_ABSENT = (NOT_SUPPORTED, FUNCTION_NOT_FOUND, VERSION_MISMATCH)
_ROW_FATAL = (UNINITIALIZED, GPU_IS_LOST, 16)
_INTEGRATED = re.compile(r"\b(GB10|Tegra|Orin|Xavier|Thor|nvgpu)\b", re.IGNORECASE)
_HINTS = {
    1: "NVML was shut down under the reader; it is being started again",
    4: "the reader's user may not open /dev/nvidia*",
    9: "load the nvidia kernel module (modprobe nvidia), then nvidia-smi must answer",
    12: "install the driver, or set gpus.library_dir in anvil.toml to the folder that holds " + LIBRARY,
    13: "this driver's library is too old for nvidia-ml-py",
    15: "a GPU fell off the bus; look for Xid 79 in the kernel log",
    16: "it must be reset (nvidia-smi --gpu-reset, or reboot) before it can be used again",
    17: "the operating system denied the device files (cgroup rules?)",
    18: "driver and library differ: reboot or reload the nvidia module",
    999: "device files may be gone (container after a systemd reload?); nvidia-smi should fail too",
}
_THROTTLE = {
    0x1: "idle", 0x2: "app-clocks", 0x4: "sw-power-cap", 0x8: "hw-slowdown", 0x10: "sync-boost",
    0x20: "sw-thermal", 0x40: "hw-thermal", 0x80: "hw-power-brake", 0x100: "display",
}  # fmt: skip


def preload(library_dir: str) -> None:
    """Load NVML by absolute path, so that nvidia-ml-py finds it by its soname.

    Where neither folder has it, the loader's own path decides.
    """
    for folder in filter(None, (library_dir, WSL_LIBRARY_DIR)):
        path = Path(folder, LIBRARY)
        if path.exists():
            ctypes.CDLL(str(path.absolute()))
            return


def is_wsl() -> bool:
    return "microsoft" in platform.release().lower()


@dataclass(slots=True)
class _Slot:
    """One place of NVML's enumeration. `handle` None: NVML would not give one, and `fault` is the row to show."""

    index: int
    handle: Any = None
    uuid: str | None = None
    name: str | None = None
    bus_id: str | None = None
    fault: Gpu | None = None
    events: Any = None
    mig: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Slow:
    """The counters that are read seldom."""

    at_s: float = float("-inf")
    tx: int | None = None
    rx: int | None = None
    ecc: int | None = None
    remapped: tuple[bool | None, bool | None] = (None, None)


class _RowFault(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


class Sampler:
    """Keeps NVML open and takes one snapshot a call. Not for use from two threads."""

    def __init__(self, library_dir: str = "", monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._library_dir, self._now, self._wsl = library_dir, monotonic_s, is_wsl()
        self._driver: str | None = None
        self._cuda: str | None = None
        self._slots: list[_Slot] = []
        self._absent: set[tuple[int, str, int]] = set()
        self._slow: dict[int, _Slow] = {}
        self._xids: dict[str | None, tuple[int, int]] = {}
        self._notes: list[str] = []
        self._fault: GpuFault | None = GpuFault("error", None, "not started")
        self._retry_at, self._retry_s = 0.0, RETRY_S[0]

    def sample(self) -> GpuSnapshot | GpuFault:
        """Never raises for anything NVML answers. A GPU that fails keeps its row and its index."""
        if self._fault is not None and self._now() >= self._retry_at:
            self._start()
        if self._fault is not None:
            return self._fault
        gpus = self._rows()
        if all(g.state == "ok" for g in gpus):
            self._retry_s = RETRY_S[0]
        elif self._now() >= self._retry_at:
            self._start()
            gpus = self._rows()
        return self._fault or GpuSnapshot(self._driver, gpus, self._cuda)

    def _start(self) -> None:
        """NVML shut down and started afresh, with new handles. The next try is later each time."""
        self._retry_at = self._now() + self._retry_s
        self._retry_s = min(self._retry_s * 2, RETRY_S[1])
        self._absent.clear()
        self._slow.clear()
        with contextlib.suppress(pynvml.NVMLError):  # not started yet, or gone: starting follows either way
            pynvml.nvmlShutdown()
        try:
            preload(self._library_dir)
            pynvml.nvmlInit()
            self._driver, self._cuda = calls.driver(), calls.cuda()
            self._slots = [self._open(i) for i in range(pynvml.nvmlDeviceGetCount())]
            self._fault = None
        except pynvml.NVMLError as error:
            self._slots, self._fault = [], fault_of(error)
        except OSError as error:
            self._slots = []
            self._fault = GpuFault("error", None, f"{LIBRARY} cannot be loaded: {error}", "check gpus.library_dir")

    def _open(self, index: int) -> _Slot:
        slot = _Slot(index)
        try:
            slot.handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            slot.uuid = calls.text(pynvml.nvmlDeviceGetUUID(slot.handle))
        except pynvml.NVMLError as error:
            slot.handle, slot.fault = None, _failed(Gpu(index, None), error.value, _said(error))
            return slot
        except UnicodeDecodeError as error:
            slot.handle, slot.fault = None, Gpu(index, None, state="error", reason=f"its UUID is no text: {error}")
            return slot
        self._notes = []
        try:
            slot.name = self._ask(slot, "name", lambda h: calls.text(pynvml.nvmlDeviceGetName(h)))
            slot.bus_id = self._ask(slot, "bus", lambda h: calls.text(pynvml.nvmlDeviceGetPciInfo(h).busId))
            slot.events = self._ask(slot, "xid events", calls.xid_events)
            slot.mig = self._ask(slot, "MIG", calls.mig)
        except _RowFault as error:
            slot.fault = _failed(Gpu(index, slot.uuid, slot.name), error.code, error.text)
        slot.notes = tuple(self._notes)
        return slot

    def _rows(self) -> tuple[Gpu, ...]:
        slow = self._slow_turn()
        return tuple(self._row(s, s.index == slow) for s in self._slots)

    def _slow_turn(self) -> int | None:
        """Which GPU's slow counters are read in this tick: the one longest not read, if that is long enough."""
        due = [(self._slow.get(s.index, _Slow()).at_s, s.index) for s in self._slots if not s.fault]
        at, index = min(due, default=(float("inf"), -1))
        return index if self._now() - at >= SLOW_S else None

    def _row(self, slot: _Slot, slow: bool) -> Gpu:
        if slot.fault is not None:
            return slot.fault
        xid, xids = self._take_xids(slot)
        try:
            return replace(self._readings(slot, slow), xid=xid, xids=xids)
        except _RowFault as error:
            plain = Gpu(slot.index, slot.uuid, slot.name, bus_id=slot.bus_id, xid=xid, xids=xids)
            return _failed(plain, error.code, error.text)

    def _take_xids(self, slot: _Slot) -> tuple[int | None, int | None]:
        """The Xid that counts and how many there were; measured on an H200: 4 us when there is none."""
        if slot.events is None:
            return None, None
        last, count = self._xids.get(slot.uuid, (0, 0))
        found: list[int] = []
        for _ in range(XIDS_A_TICK):
            try:
                found.append(int(pynvml.nvmlEventSetWait_v2(slot.events, 0).eventData))
            except pynvml.NVMLError as error:
                if error.value in _ABSENT:
                    slot.events = None
                break
        if found:
            last = next((x for x in reversed(found) if x not in APPLICATION_XIDS), found[-1])
            count += len(found)
        self._xids[slot.uuid] = last, count
        return (last, count) if slot.events is not None else (None, None)

    def _readings(self, slot: _Slot, slow: bool) -> Gpu:
        self._notes = list(slot.notes)
        memory = self._memory(slot)
        if slow:
            self._slow[slot.index] = self._read_slow(slot)
            slot.mig = self._ask(slot, "MIG", calls.mig)
        rare = self._slow.get(slot.index, _Slow())
        util = self._ask(slot, "utilization", lambda h: int(pynvml.nvmlDeviceGetUtilizationRates(h).gpu))
        gpu = Gpu(
            slot.index, slot.uuid, slot.name, bus_id=slot.bus_id,
            utilization_pct=util,
            temperature_c=self._ask(slot, "temperature", calls.temperature_v, calls.temperature),
            power_w=_watt(self._ask(slot, "power", pynvml.nvmlDeviceGetPowerUsage)),
            power_limit_w=_watt(self._ask(slot, "power limit", pynvml.nvmlDeviceGetEnforcedPowerLimit)),
            sm_clock_mhz=self._ask(slot, "sm clock", lambda h: pynvml.nvmlDeviceGetClockInfo(h, 1)),
            memory_clock_mhz=self._ask(slot, "memory clock", lambda h: pynvml.nvmlDeviceGetClockInfo(h, 2)),
            throttle=self._throttle(slot),
            ecc_uncorrected=rare.ecc, remap_pending=rare.remapped[0], remap_failed=rare.remapped[1],
            fan_pct=self._ask(slot, "fan", pynvml.nvmlDeviceGetFanSpeed),
            pcie_tx_kib_s=rare.tx, pcie_rx_kib_s=rare.rx,
            processes=self._processes(slot), mig=slot.mig,
        )  # fmt: skip
        return replace(_with_memory(gpu, memory), reason="; ".join(self._notes))

    def _memory(self, slot: _Slot) -> calls.Memory | None:
        return self._ask(slot, "memory", calls.memory_v2, calls.memory_v1, needed=True)

    def _throttle(self, slot: _Slot) -> tuple[str, ...] | None:
        mask = self._ask(
            slot, "throttle",
            pynvml.nvmlDeviceGetCurrentClocksEventReasons,
            pynvml.nvmlDeviceGetCurrentClocksThrottleReasons,
        )  # fmt: skip
        return None if mask is None else tuple(word for bit, word in _THROTTLE.items() if mask & bit)

    def _read_slow(self, slot: _Slot) -> _Slow:
        return _Slow(
            self._now(),
            self._ask(slot, "pcie tx", lambda h: pynvml.nvmlDeviceGetPcieThroughput(h, 0)),
            self._ask(slot, "pcie rx", lambda h: pynvml.nvmlDeviceGetPcieThroughput(h, 1)),
            self._ask(slot, "ecc", lambda h: pynvml.nvmlDeviceGetTotalEccErrors(h, 1, 0)),
            self._ask(slot, "remapped rows", calls.remapped) or (None, None),
        )

    def _processes(self, slot: _Slot) -> tuple[GpuProcess, ...] | None:
        found = self._ask(
            slot, "processes",
            pynvml.nvmlDeviceGetComputeRunningProcesses_v3,
            pynvml.nvmlDeviceGetComputeRunningProcesses_v2,
        )  # fmt: skip
        if self._wsl and not found:
            # The Windows driver offers no list to WSL2: an empty one says nothing (Syllo/nvtop#318).
            self._notes.append("process list not available under WSL2")
            return None
        if found is None:
            return None
        return tuple(GpuProcess(int(p.pid), calls.process_name(int(p.pid)), p.usedGpuMemory) for p in found)

    def _ask(self, slot: _Slot, name: str, *ways: Callable[[Any], T], needed: bool = False) -> T | None:
        """The first of `ways` that this GPU supports; None = it supports none, or the sensor failed.

        With `needed`, a failure fails the row, other than "not supported" and "not permitted": a GPU in MIG mode
        tells its memory to root alone.
        """
        for n, call in enumerate(ways):
            key = (slot.index, name, n)
            if key in self._absent:
                continue
            try:
                return call(slot.handle)
            except pynvml.NVMLLibraryMismatchError:
                self._absent.add(key)
            except pynvml.NVMLError as error:
                code = int(error.value)
                if code in _ABSENT:
                    self._absent.add(key)
                elif (needed and code != NO_PERMISSION) or code in _ROW_FATAL:
                    raise _RowFault(code, f"{name}: {_said(error)}") from error
                else:
                    self._notes.append(f"{name}: {_said(error)}")
                    return None
            except UnicodeDecodeError as error:
                self._notes.append(f"{name} is no text: {error}")
        return None


def fault_of(error: Any) -> GpuFault:
    """An NVMLError that leaves no snapshot, with what to do about it."""
    code = int(error.value)
    text = f"NVML library not found ({LIBRARY})" if code == 12 else _said(error)
    return GpuFault("unavailable" if code == 12 else "error", code, text, _HINTS.get(code, ""))


def _failed(gpu: Gpu, code: int, text: str) -> Gpu:
    hint = f": {_HINTS[code]}" if code in _HINTS else ""
    state: GpuState = "lost" if code == GPU_IS_LOST else "error"
    return replace(gpu, state=state, reason=f"NVML error {code}, {text}{hint}")


def _said(error: Any) -> str:
    return str(error) or f"code {error.value}"


def _watt(milliwatt: int | None) -> float | None:
    return None if milliwatt is None else milliwatt / 1000


def _with_memory(gpu: Gpu, memory: calls.Memory | None) -> Gpu:
    """Memory of its own, or n/a. Only a known unified-memory GPU without figures is called integrated."""
    if memory is None or memory.total == 0:
        return replace(gpu, integrated=bool(gpu.name and _INTEGRATED.search(gpu.name)))
    return replace(
        gpu, total_bytes=memory.total, used_bytes=memory.used, free_bytes=memory.free,
        reserved_bytes=memory.reserved, used_includes_reserved=memory.reserved is None,
    )  # fmt: skip
