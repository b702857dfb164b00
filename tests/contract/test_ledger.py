"""Append-only records on a real file system: torn lines, damage, order, rights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from anvil_tui.adapters.box_file import BoxFile
from anvil_tui.core.errors import BadFile, EffectFailed
from anvil_tui.core.loads import CardLoad, MeasuredLoad
from anvil_tui.core.waivers import Waiver

WAIVER = Waiver("2026-09-02T10:00:00+00:00", "a", ("GPU-1", "GPU-2"), 3072, 0, "model-only", "someone")
LOAD = MeasuredLoad("op-1", "2026-09-02T10:00:00+00:00", "a", "d" * 64, "s", 2048, 1, pool_tokens=4096,
                    cards=(CardLoad("GPU-1", 10, 9, None),))  # fmt: skip


def test_what_is_written_is_read_back_in_order(tmp_path: Path) -> None:
    box = BoxFile(tmp_path / "state")
    assert box.waivers() == () and box.loads() == ()
    second = replace(WAIVER, reserve_mib=512, until="2026-12-31", was="policy-infeasible", became="unresolved")
    box.waive(WAIVER)
    box.waive(second)
    box.keep_load(LOAD)
    for reader in (box, BoxFile(tmp_path / "state")):
        assert reader.waivers() == (WAIVER, second) and reader.loads() == (LOAD,)
    path = tmp_path / "state" / "waivers.ndjson"
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700


def test_a_load_that_is_recorded_twice_counts_once(tmp_path: Path) -> None:
    box = BoxFile(tmp_path)
    box.keep_load(LOAD)
    box.keep_load(replace(LOAD, operation="op-2"))
    box.keep_load(replace(LOAD, pool_tokens=8192))
    assert [(x.operation, x.pool_tokens) for x in box.loads()] == [("op-2", 4096), ("op-1", 8192)]


def test_every_cut_through_the_last_line_loses_only_that_line(tmp_path: Path) -> None:
    box, path = BoxFile(tmp_path), tmp_path / "waivers.ndjson"
    box.waive(WAIVER)
    first = path.read_bytes()
    box.waive(replace(WAIVER, recipe="b"))
    whole = path.read_bytes()
    for cut in range(len(first), len(whole) - 1):
        path.write_bytes(whole[:cut])
        assert BoxFile(tmp_path).waivers() == (WAIVER,), cut
    path.write_bytes(whole[: len(first) + 9])
    box.waive(replace(WAIVER, recipe="c"))
    assert [w.recipe for w in BoxFile(tmp_path).waivers()] == ["a", "c"]
    assert path.with_suffix(".torn").read_bytes() == whole[len(first) : len(first) + 9]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"at": 1} x', "damaged"),
        ('{"at": "2026-09-02"}', "recipe"),
        (
            '{"at":"t","recipe":"a","gpus":["g"],"standing_mib":"x","reserve_mib":0,"reason":"r"}',
            "standing_mib",
        ),
    ],
)
def test_damage_is_named_with_file_and_line(tmp_path: Path, line: str, said: str) -> None:
    box, path = BoxFile(tmp_path), tmp_path / "waivers.ndjson"
    box.waive(WAIVER)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(BadFile, match=rf"waivers.ndjson:2.*{said}"):
        box.waivers()


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "waivers.ndjson").mkdir()
    with pytest.raises(EffectFailed, match="not recorded"):
        BoxFile(tmp_path).waive(WAIVER)
