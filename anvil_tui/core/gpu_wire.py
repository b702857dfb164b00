"""The wire form of GPU readings: one JSON object a line, made by a reader program, read by the console.

    {"schema": "anvil.gpus/1", "driver": "580.95.05", "gpus": [{"index": 0, "uuid": "GPU-…", …}]}
    {"schema": "anvil.gpus/1", "fault": {"kind": "error", "code": 18, "text": "…", "hint": "…"}}

A GPU's keys are the fields of `core.box.Gpu`; a key that is absent or null means `n/a`, 0 means measured
zero, `"processes": []` means no process and an absent list means that the list is not available there.
Keys this version does not know are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, cast, get_args

from anvil_tui.core.box import Gpu, GpuProcess, GpuSnapshot, GpuState

GPU_SCHEMA = "anvil.gpus/1"
APPLICATION_XIDS = (13, 31, 43, 45, 69)
"""Xids that a program on the GPU can cause, by NVIDIA's list; any other speaks of the GPU or its driver."""


@dataclass(frozen=True, slots=True)
class GpuFault:
    """Why there is no snapshot at all. `unavailable` = this box has no NVML; `error` = it has, and it fails."""

    kind: Literal["unavailable", "error"]
    code: int | None
    text: str
    hint: str = ""

    def __str__(self) -> str:
        code = f" (NVML code {self.code})" if self.code is not None else ""
        return f"{self.text}{code}" + (f": {self.hint}" if self.hint else "")


def snapshot_to_json(value: GpuSnapshot | GpuFault) -> dict[str, Any]:
    """The object of one line; fields that are None are left out."""
    if isinstance(value, GpuFault):
        return {"schema": GPU_SCHEMA, "fault": asdict(value)}
    head = _present({"cuda": value.cuda})
    return {
        "schema": GPU_SCHEMA,
        "driver": value.driver,
        **head,
        "gpus": [_present(asdict(g)) for g in value.gpus],
    }


def _present(row: Mapping[str, Any]) -> dict[str, Any]:
    kept = {k: v for k, v in row.items() if v is not None}
    if "processes" in kept:
        kept["processes"] = [_present(p) for p in kept["processes"]]
    return kept


def snapshot_from_json(obj: object) -> GpuSnapshot | GpuFault:
    """Reads what `snapshot_to_json` made. ValueError names the key that is wrong."""
    table = _mapping(obj, "line")
    if table.get("schema") != GPU_SCHEMA:
        raise ValueError(f"schema: expected {GPU_SCHEMA}, got {table.get('schema')!r}")
    if "fault" in table:
        return _fault(_mapping(table["fault"], "fault"))
    rows = table.get("gpus")
    if not isinstance(rows, list):
        raise ValueError("gpus: expected a list")
    gpus = tuple(_gpu(_mapping(row, f"gpus[{i}]"), f"gpus[{i}]") for i, row in enumerate(rows))
    return GpuSnapshot(_text(table.get("driver"), "driver"), gpus, _text(table.get("cuda"), "cuda"))


def _fault(table: Mapping[str, Any]) -> GpuFault:
    kind = table.get("kind")
    if kind not in ("unavailable", "error"):
        raise ValueError(f"fault.kind: expected unavailable or error, got {kind!r}")
    return GpuFault(
        cast(Literal["unavailable", "error"], kind),
        _int(table.get("code"), "fault.code"),
        _text(table.get("text"), "fault.text") or "no text",
        _text(table.get("hint"), "fault.hint") or "",
    )


def _mapping(value: object, key: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{key}: expected an object, got {type(value).__name__}")
    return value


def _text(value: object, key: str) -> str | None:
    if value is None or isinstance(value, str):
        return value[:400] if value else value
    raise ValueError(f"{key}: expected text, got {value!r:.40}")


def _int(value: object, key: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ValueError(f"{key}: expected a whole number, got {value!r:.40}")


def _number(value: object, key: str) -> float | None:
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    raise ValueError(f"{key}: expected a number, got {value!r:.40}")


def _flag(value: object, key: str) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(f"{key}: expected true or false, got {value!r:.40}")


def _state(value: object, key: str) -> str:
    if value in get_args(GpuState):
        return cast(str, value)
    raise ValueError(f"{key}: expected ok, lost or error, got {value!r:.40}")


def _texts(value: object, key: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, list) and all(isinstance(v, str) for v in value):
        return tuple(value)
    raise ValueError(f"{key}: expected a list of texts")


def _processes(value: object, key: str) -> tuple[GpuProcess, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise ValueError(f"{key}: expected a list")
    return tuple(_process(_mapping(v, f"{key}[{i}]"), f"{key}[{i}]") for i, v in enumerate(value))


def _process(row: Mapping[str, Any], key: str) -> GpuProcess:
    pid = _int(row.get("pid"), f"{key}.pid")
    if pid is None:
        raise ValueError(f"{key}.pid: missing")
    return GpuProcess(pid, _text(row.get("name"), f"{key}.name"), _int(row.get("used_bytes"), f"{key}.used_bytes"))


_SPECIAL = {
    "state": _state, "reason": _text, "used_includes_reserved": _flag, "integrated": _flag,
    "remap_pending": _flag, "remap_failed": _flag,
    "throttle": _texts, "mig": _texts, "processes": _processes,
    "uuid": _text, "name": _text, "bus_id": _text, "power_w": _number, "power_limit_w": _number,
}  # fmt: skip
_READERS: Mapping[str, Any] = {f.name: _SPECIAL.get(f.name, _int) for f in fields(Gpu)}


def _gpu(row: Mapping[str, Any], key: str) -> Gpu:
    known = {k: _READERS[k](v, f"{key}.{k}") for k, v in row.items() if k in _READERS and v is not None}
    if known.get("index") is None:
        raise ValueError(f"{key}.index: missing")
    return Gpu(**{"uuid": None, **known})


def keep_rows(known: Iterable[Gpu], fresh: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """`fresh` with every GPU that was known before: a lost one keeps its row, UUID and index, without numbers.

    A row whose UUID could not be read takes the identity last known at its index, unless that GPU answers
    elsewhere now. A known GPU that no row stands for is added as lost. Indexes never close up.
    """
    rows = list(fresh)
    answering = {g.uuid for g in rows if g.uuid}
    missing = {g.index: g for g in known if g.uuid and g.uuid not in answering}
    for n, row in enumerate(rows):
        if row.uuid is None and row.index in missing:
            before = missing.pop(row.index)
            rows[n] = replace(row, uuid=before.uuid, name=before.name, bus_id=before.bus_id)
    rows += [_gone(g) for g in missing.values()]
    return tuple(sorted(rows, key=lambda g: (g.index, g.uuid or "")))


def _gone(before: Gpu) -> Gpu:
    reason = before.reason if before.state == "lost" else "no longer listed by the driver"
    return Gpu(before.index, before.uuid, before.name, "lost", reason, bus_id=before.bus_id)
