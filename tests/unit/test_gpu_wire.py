"""The line form of GPU readings, and rows that outlive their GPU."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anvil_tui.core.box import Gpu, GpuProcess, GpuSnapshot
from anvil_tui.core.gpu_wire import GpuFault, keep_rows, snapshot_from_json, snapshot_to_json

FULL = Gpu(
    3, "GPU-1", "H200", "ok", "temperature: Timeout", 10, 0, 1, 9, False, 0, 31, 76.5, 700.0, 345, 3201,
    ("idle",), 0, 1, 2, 30, "00000000:01:00.0", True, (GpuProcess(7, "vllm", 0), GpuProcess(8)),
    False, True, 0, 2,
)  # fmt: skip


@pytest.mark.parametrize(
    "value",
    [
        GpuSnapshot(
            "580.95.05", (FULL, Gpu(4, None, state="error", reason="999"), Gpu(5, "GPU-5", processes=())), "13.0"
        ),
        GpuSnapshot(None, ()),
        GpuFault("error", 18, "mismatch", "reboot"),
        GpuFault("unavailable", None, "none"),
    ],
)
def test_there_and_back(value: GpuSnapshot | GpuFault) -> None:
    assert snapshot_from_json(json.loads(json.dumps(snapshot_to_json(value)))) == value


def test_not_available_is_absent_and_zero_is_there() -> None:
    row = snapshot_to_json(GpuSnapshot(None, (Gpu(0, "u", used_bytes=0),)))["gpus"][0]
    assert row["used_bytes"] == 0 and "free_bytes" not in row and "processes" not in row


def test_keys_of_later_versions_are_ignored() -> None:
    line = {"schema": "anvil.gpus/1", "driver": "1", "gpus": [{"index": 0, "uuid": "u", "energy_j": 5}], "at": "x"}
    assert snapshot_from_json(line) == GpuSnapshot("1", (Gpu(0, "u"),))


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"index": None}, "gpus[0].index"),
        ({"used_bytes": "0"}, "gpus[0].used_bytes"),
        ({"used_bytes": True}, "gpus[0].used_bytes"),
        ({"used_bytes": 1.5}, "gpus[0].used_bytes"),
        ({"power_w": "76"}, "gpus[0].power_w"),
        ({"state": "fine"}, "gpus[0].state"),
        ({"integrated": 1}, "gpus[0].integrated"),
        ({"throttle": "idle"}, "gpus[0].throttle"),
        ({"processes": {}}, "gpus[0].processes"),
        ({"processes": [{}]}, "gpus[0].processes[0].pid"),
        ({"processes": [5]}, "gpus[0].processes[0]"),
        ({"name": 5}, "gpus[0].name"),
    ],
)
def test_a_wrong_key_is_named(change: dict[str, Any], key: str) -> None:
    line = {"schema": "anvil.gpus/1", "driver": None, "gpus": [{"index": 0, "uuid": "u"} | change]}
    with pytest.raises(ValueError, match="^" + key.replace("[", r"\[")):
        snapshot_from_json(line)


@pytest.mark.parametrize("line", [5, [], {}, {"schema": "anvil.gpus/1"}, {"schema": "anvil.gpus/1", "fault": {}}])
def test_no_snapshot(line: object) -> None:
    with pytest.raises(ValueError):
        snapshot_from_json(line)


def row(index: int, uuid: str | None, **more: Any) -> Gpu:
    return Gpu(index, uuid, **more)


def test_a_row_without_identity_takes_the_one_known_at_its_index() -> None:
    known = (row(0, "a", used_bytes=1), row(1, "b", name="H200", used_bytes=2), row(2, "c"))
    kept = keep_rows(known, (row(0, "a"), row(1, None, state="lost", reason="15"), row(2, "c")))
    assert kept[1] == row(1, "b", name="H200", state="lost", reason="15")


def test_a_gpu_that_answers_elsewhere_is_not_lost() -> None:
    kept = keep_rows((row(0, "a"), row(1, "b")), (row(0, None, state="error"), row(1, "a")))
    assert [(g.index, g.uuid, g.state) for g in kept] == [(0, None, "error"), (1, "a", "ok"), (1, "b", "lost")]


def test_a_gpu_no_longer_listed_stays_as_lost_without_numbers() -> None:
    (gone,) = (g for g in keep_rows((row(0, "a"), row(1, "b", used_bytes=5)), (row(0, "a"),)) if g.uuid == "b")
    assert (gone.index, gone.state, gone.used_bytes) == (1, "lost", None)
    assert "no longer listed" in gone.reason
