"""NVML's calls as values of ours, one function each. Like nvidia-ml-py they raise NVMLError."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import psutil
import pynvml


@dataclass(frozen=True, slots=True)
class Memory:
    total: int
    used: int
    free: int
    reserved: int | None = None


def text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def driver() -> str | None:
    """None where the driver does not say; NVML that was shut down meanwhile is no driver without a version."""
    try:
        return text(pynvml.nvmlSystemGetDriverVersion())
    except UnicodeDecodeError:
        return None
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_UNINITIALIZED:
            raise
        return None


def mig(handle: Any) -> tuple[str, ...] | None:
    """UUIDs of the slices of a GPU in MIG mode; None = it is whole."""
    if not pynvml.nvmlDeviceGetMigMode(handle)[0]:
        return None
    found = []
    for n in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        with contextlib.suppress(pynvml.NVMLError_NotFound):  # places of which no slice was made
            found.append(text(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, n))))
    return tuple(found)


def cuda() -> str | None:
    """The newest CUDA version of the driver as people write it (12080 -> `12.8`); None where it cannot say."""
    try:
        number = int(pynvml.nvmlSystemGetCudaDriverVersion_v2())
    except pynvml.NVMLError:
        return None
    return f"{number // 1000}.{number % 1000 // 10}"


def temperature_v(handle: Any) -> int:
    return int(pynvml.nvmlDeviceGetTemperatureV(handle, 0))


def temperature(handle: Any) -> int:
    return int(pynvml.nvmlDeviceGetTemperature(handle, 0))


def xid_events(handle: Any) -> Any:
    """An event set of this GPU alone, so that an event needs no look at whose it is."""
    made = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, made)
    return made


def remapped(handle: Any) -> tuple[bool | None, bool | None]:
    _, _, pending, failed = pynvml.nvmlDeviceGetRemappedRows(handle)
    return bool(pending), bool(failed)


def memory_v2(handle: Any) -> Memory:
    m = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    return Memory(int(m.total), int(m.used), int(m.free), int(m.reserved))


def memory_v1(handle: Any) -> Memory:
    m = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return Memory(int(m.total), int(m.used), int(m.free))


def process_name(pid: int) -> str | None:
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return None
