"""Rewriting one value: no other byte changes, no lost update, and never a file that would not load."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from anvil_tui.adapters.toml_files import load_workspace, read_revision, set_value
from anvil_tui.core.errors import BadFile, EffectFailed, Refused
from tests.support.workspace import WORKSPACE, box


@pytest.mark.parametrize(
    ("key", "value", "old", "new"),
    [
        ("roles[0].slots[0].port", 8011, "port = 8001  # do not move", "port = 8011  # do not move"),
        ("roles[0].slots[1].port", 8012, "  port = 8002", "  port = 8012"),
        ("box.name", "c", 'name = "b"  # shown', 'name = "c"  # shown'),
        ("gateway.client_keys", ["env:A", "env:B"], '["env:KEY"]', '["env:A", "env:B"]'),
        ("gateway.client_keys[0]", "file:k", '["env:KEY"]', '["file:k"]'),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_a_rewrite_changes_the_value_and_no_other_byte(
    tmp_path: Path, key: str, value: str | int | list[str], old: str, new: str, end: str, bom: bytes
) -> None:
    """O-87; O-81: the BOM goes once, and that is said; O-83: line ends stay."""
    text = WORKSPACE.replace("\n", end)
    path = box(tmp_path, bom + text.encode())
    assert set_value(path, key, value) == (f"{path}: its byte order mark (BOM) was dropped" if bom else "")
    assert text.count(old) == 1
    assert path.read_bytes() == text.replace(old, new).encode()
    assert set_value(path, key, value) == ""
    load_workspace(tmp_path)


def test_an_indented_table_and_the_comments_around_stay(tmp_path: Path) -> None:
    """O-87: the case's own file; exactly one line is another."""
    before = (
        "# pool note\n[pool]\nport = 8001  # do not move\n# alt = 9\n\n"
        "  [pool.limits]   # indented on purpose\n  c = 1\n"
    )
    path = box(tmp_path, before)
    set_value(path, "pool.port", 8002)
    assert path.read_text() == before.replace("port = 8001", "port = 8002")
    set_value(path, "pool.limits.c", 2)
    assert path.read_text() == before.replace("port = 8001", "port = 8002").replace("c = 1", "c = 2")


def test_mixed_line_ends_and_a_missing_last_one_stay(tmp_path: Path) -> None:
    """O-83: line by line as they were."""
    path = box(tmp_path, b"a = 1\r\nb = 2\n\r\n[t]\nc = 3 # x")
    set_value(path, "a", 10)
    set_value(path, "t.c", 30)
    assert path.read_bytes() == b"a = 10\r\nb = 2\n\r\n[t]\nc = 30 # x"


def test_the_case_of_the_pool_file(tmp_path: Path) -> None:
    """O-83."""
    path = box(tmp_path, b"# pool\r\n[pool]\r\nport = 8001 # keep\r\n")
    set_value(path, "pool.port", 8002)
    assert path.read_bytes() == b"# pool\r\n[pool]\r\nport = 8002 # keep\r\n"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_missing_key_is_added_to_its_table_as_one_line(tmp_path: Path, end: str) -> None:
    before = WORKSPACE.replace("\n", end)
    path = box(tmp_path, before)
    set_value(path, "gateway.hold_max_s", 60)
    lines = path.read_bytes().decode().split(end)
    lines.remove("hold_max_s = 60")
    assert end.join(lines) == before
    assert load_workspace(tmp_path).gateway.hold_max_s == 60


def test_paths_are_written_as_literal_strings(tmp_path: Path) -> None:
    """O-82."""
    path = box(tmp_path, WORKSPACE.replace("[gateway]", '[gateway]\ndir = "x"'))
    set_value(path, "gateway.dir", "C:\\new")
    assert "dir = 'C:\\new'\n" in path.read_text()
    assert load_workspace(tmp_path).gateway.dir == "C:\\new"


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("roles[0].slots[0].port", True, "must be an integer, not a boolean"),
        ("roles[0].slots[0].port", 8002, "used twice"),
        ("box.nam", "x", "nearest known key: name"),
        ("box", "x", "is a table"),
        ("roles[7].name", "x", "does not exist"),
        ("policie.drain_timeout_s", 3, "does not exist"),
    ],
)
def test_a_rewrite_that_would_not_load_is_refused(tmp_path: Path, key: str, value: str | int, says: str) -> None:
    path = box(tmp_path)
    with pytest.raises(BadFile, match=says):
        set_value(path, key, value)
    assert path.read_text() == WORKSPACE


def test_a_broken_file_can_be_mended_one_value_at_a_time(tmp_path: Path) -> None:
    path = box(tmp_path, WORKSPACE.replace("8001", '"x"').replace("8002", "true"))
    set_value(path, "roles[0].slots[0].port", 8001)
    set_value(path, "roles[0].slots[1].port", 8002)
    assert path.read_text() == WORKSPACE


def test_a_rewrite_of_a_file_with_a_lone_cr_leaves_it(tmp_path: Path) -> None:
    """O-83."""
    path = box(tmp_path, b"a = 1 # x\r y\n")
    with pytest.raises(BadFile, match=r"anvil.toml:1: a lone carriage return"):
        set_value(path, "a", 2)
    assert path.read_bytes() == b"a = 1 # x\r y\n"


def test_a_full_disk_leaves_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """O-88."""
    path = box(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(EffectFailed, match="not saved: no space"):
        set_value(path, "box.name", "c")
    assert path.read_text() == WORKSPACE


# concurrency


def test_the_second_save_on_an_old_revision_is_refused_with_a_diff(tmp_path: Path) -> None:
    """O-91."""
    path = box(tmp_path)
    seen_by_both = read_revision(path)
    set_value(path, "box.name", "first", seen_by_both)
    with pytest.raises(Refused) as refused:
        set_value(path, "gateway.client_keys", ["env:NEW"], seen_by_both)
    assert "nothing was written" in str(refused.value)
    assert seen_by_both[:12] in str(refused.value)
    assert '-client_keys = ["env:KEY"]' in str(refused.value)
    assert '+client_keys = ["env:NEW"]' in str(refused.value)
    set_value(path, "gateway.client_keys", ["env:NEW"], read_revision(path))
    made = load_workspace(tmp_path)
    assert (made.box.name, made.gateway.client_keys) == ("first", ("env:NEW",))


def test_a_touched_but_equal_file_is_the_same_revision(tmp_path: Path) -> None:
    path = box(tmp_path)
    seen = read_revision(path)
    path.write_text(WORKSPACE)
    os.utime(path, (1, 1))
    set_value(path, "box.name", "c", seen)
    assert load_workspace(tmp_path).box.name == "c"


def test_writers_at_the_same_moment_lose_nothing(tmp_path: Path) -> None:
    path = box(tmp_path)
    seen, wins, refusals = read_revision(path), [], []

    def save(key: str, value: str) -> None:
        try:
            set_value(path, key, value, seen)
            wins.append(key)
        except Refused:
            refusals.append(key)

    threads = [threading.Thread(target=save, args=("box.name", f"w{n}")) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (len(wins), len(refusals)) == (1, 7)
