"""Whole or not at all: saves on a real file system, with the disk full for real where that can be had."""

from __future__ import annotations

import errno
import os
import resource
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from anvil_tui.adapters import files
from anvil_tui.adapters.files import folder_lock, revision, write_atomic
from anvil_tui.core.errors import EffectFailed

BEFORE = b'{"schema":1,"owner":"pair-a"}'
AFTER = '{"schema":1,"owner":"pair-b"}'


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "box.json"
    path.write_bytes(BEFORE)
    return path


def test_new_file_is_private_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o000)
    try:
        write_atomic(tmp_path / "a", b"x\r\n")
        write_atomic(tmp_path / "b", "é", 0o644)
    finally:
        os.umask(old)
    assert (tmp_path / "a").read_bytes() == b"x\r\n"
    assert mode(tmp_path / "a") == 0o600
    assert (tmp_path / "b").read_bytes() == b"\xc3\xa9"
    assert mode(tmp_path / "b") == 0o644


def test_the_temporary_file_is_private_from_the_start(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """O-90: with a umask of 000."""
    seen: list[int] = []

    def watching(fd: int, wanted: int) -> None:
        seen.append(stat.S_IMODE(os.fstat(fd).st_mode))
        os.chmod(fd, wanted)

    saved.chmod(0o644)
    monkeypatch.setattr(os, "fchmod", watching)
    old = os.umask(0o000)
    try:
        write_atomic(saved, AFTER)
    finally:
        os.umask(old)
    assert seen == [0o600]
    assert mode(saved) == 0o644


@pytest.mark.parametrize("kept", [0o600, 0o640, 0o400])
def test_a_symlink_stays_one_and_its_target_keeps_its_mode(tmp_path: Path, kept: int) -> None:
    """O-90, imbue-ai/mngr#1238."""
    (tmp_path / "dotfiles").mkdir()
    (tmp_path / "state").mkdir()
    target = tmp_path / "dotfiles" / "router.toml"
    target.write_text("old")
    target.chmod(kept)
    link = tmp_path / "state" / "router.toml"
    link.symlink_to("../dotfiles/router.toml")
    write_atomic(link, "new")
    assert link.is_symlink()
    assert str(link.readlink()) == "../dotfiles/router.toml"
    assert (target.read_text(), mode(target)) == ("new", kept)
    assert [p.name for p in (tmp_path / "state").iterdir()] == ["router.toml"]
    assert [p.name for p in (tmp_path / "dotfiles").iterdir()] == ["router.toml"]


def test_a_link_to_a_link_and_an_absolute_one_stay(tmp_path: Path) -> None:
    """O-90: the file at the end of the chain is replaced, in its own folder."""
    (tmp_path / "far").mkdir()
    target = tmp_path / "far" / "box.json"
    target.write_text("old")
    (tmp_path / "middle").symlink_to(target)
    (tmp_path / "first").symlink_to("middle")
    write_atomic(tmp_path / "first", "new")
    assert (tmp_path / "first").readlink() == Path("middle") and (tmp_path / "middle").readlink() == target
    assert target.read_text() == "new" and not target.is_symlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["far", "first", "middle"]


def test_a_link_to_nothing_makes_its_target(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("made")
    write_atomic(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "made").read_text() == "new"
    assert mode(tmp_path / "made") == 0o600


def test_a_link_loop_and_a_missing_folder_are_not_saved(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for path in (tmp_path / "a", tmp_path / "none" / "x", tmp_path / "a" / "x"):
        with pytest.raises(EffectFailed, match="not saved"):
            write_atomic(path, "x")


@pytest.mark.parametrize("fault", ["write", "fsync", "rename"])
def test_no_space_leaves_the_old_bytes_and_no_rubbish(
    saved: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """O-88, bitcoin/bitcoin#21340."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    where = {"write": (files, "_fill"), "fsync": (os, "fsync"), "rename": (Path, "replace")}[fault]
    monkeypatch.setattr(*where, full)
    with pytest.raises(EffectFailed, match="not saved: no space; what was there is unchanged") as failed:
        write_atomic(saved, AFTER)
    assert str(saved) in str(failed.value)
    assert saved.read_bytes() == BEFORE
    assert list(saved.parent.iterdir()) == [saved]


def test_a_really_full_file_system(saved: Path) -> None:
    """O-88: the kernel itself refuses the write: a file size limit, the one such limit that needs no root."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
    try:
        with pytest.raises(EffectFailed, match="not saved: file too large"):
            write_atomic(saved, AFTER)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert saved.read_bytes() == BEFORE
    assert list(saved.parent.iterdir()) == [saved]


def test_a_folder_that_cannot_be_synced_is_told_apart(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = os.fsync, []

    def second_fails(fd: int) -> None:
        calls.append(fd)
        if len(calls) == 2:
            raise OSError(errno.EIO, "input/output error")
        real(fd)

    monkeypatch.setattr(os, "fsync", second_fails)
    with pytest.raises(EffectFailed, match="written, but not proven"):
        write_atomic(saved, AFTER)
    assert saved.read_text() == AFTER


def test_killed_at_any_moment_a_reader_sees_old_or_new(tmp_path: Path) -> None:
    """A child saves two versions in turn until it is killed; every read in between is one of them, whole."""
    path = tmp_path / "f"
    versions = {b"a" * 100_000, b"b" * 100_000}
    program = (
        "from pathlib import Path; import sys; from anvil_tui.adapters.files import write_atomic\n"
        "print('up', flush=True)\n"
        "while True:\n"
        "    for letter in (b'a', b'b'): write_atomic(Path(sys.argv[1]), letter * 100_000)\n"
    )
    for _ in range(3):
        child = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        for _ in range(50):
            assert not path.exists() or path.read_bytes() in versions
        child.kill()
        child.wait()
        child.stdout.close()
        assert not path.exists() or path.read_bytes() in versions


def test_the_lock_is_exclusive_and_leaves_nothing_behind(saved: Path) -> None:
    held, order = threading.Event(), []

    def second() -> None:
        held.wait(10)
        with folder_lock(saved):
            order.append("second")

    other = threading.Thread(target=second)
    other.start()
    with folder_lock(saved):
        held.set()
        other.join(0.05)
        order.append("first")
    other.join(10)
    assert order == ["first", "second"]
    assert list(saved.parent.iterdir()) == [saved]


def test_revision_is_of_the_content() -> None:
    assert revision(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
