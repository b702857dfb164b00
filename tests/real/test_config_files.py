"""Somebody else's file, here and over a real ssh: read, compare and replace; what is said when it cannot be."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from anvil_tui.adapters.config_files import ConfigFileControl
from anvil_tui.core.errors import AnvilError, BadFile, EffectFailed, NoCredential, NotFound, Refused, Unreachable
from tests.support.sshd import Sshd, sshd

pytestmark = pytest.mark.real
__all__ = ["sshd"]

BEFORE, AFTER = b'{"a": 1}\r\n', b'{"a": 2,\x00 "b": "\xc3\xa4\'$HOME`"}\r\n' + b"x" * 70_000


@pytest.fixture
def files(sshd: Sshd, tmp_path: Path) -> ConfigFileControl:
    sshd.trust()
    return ConfigFileControl(tmp_path, tmp_path / "copies")


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def made(folder: Path) -> tuple[Path, Path]:
    """A symlink with an awkward name to a file of mode 0640, beside it nothing."""
    (folder / "real").mkdir()
    target = folder / "real" / "models.json"
    target.write_bytes(BEFORE)
    target.chmod(0o640)
    link = folder / "it's a $link.json"
    link.symlink_to(target)
    return link, target


@pytest.mark.parametrize("host", ["", "mini"])
def test_replaced_only_if_it_is_what_was_read(files: ConfigFileControl, tmp_path: Path, host: str) -> None:
    """O-90, O-91."""
    link, target = made(tmp_path)
    old = os.umask(0)
    try:
        assert files.read(host, str(link)) == BEFORE
        files.replace(host, str(link), AFTER, sha(BEFORE))
        assert target.read_bytes() == AFTER and link.is_symlink()
        assert stat.S_IMODE(target.stat().st_mode) == 0o640
        with pytest.raises(Refused, match="changed since it was read"):
            files.replace(host, str(link), b"theirs", sha(BEFORE))
    finally:
        os.umask(old)
    assert target.read_bytes() == AFTER
    assert [p.name for p in target.parent.iterdir()] == ["models.json"], "nothing is left beside it"


@pytest.mark.parametrize("host", ["", "mini"])
def test_what_is_no_file_is_said(files: ConfigFileControl, tmp_path: Path, host: str) -> None:
    asked: list[tuple[Callable[[], object], type[AnvilError], str]] = [
        (lambda: files.read(host, str(tmp_path / "none")), NotFound, "no such file"),
        (lambda: files.read(host, str(tmp_path)), BadFile, "not a plain file"),
        (lambda: files.replace(host, str(tmp_path / "none"), b"", sha(b"")), NotFound, "no such file"),
    ]
    (tmp_path / "large").write_bytes(b"x" * (1024 * 1024 + 1))
    asked.append((lambda: files.read(host, str(tmp_path / "large")), BadFile, "larger than 1048576 bytes"))
    for call, kind, says in asked:
        with pytest.raises(kind, match=says):
            call()


def test_a_home_path_is_the_home_over_there(files: ConfigFileControl, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"mini:~/\.anvil test/none"):
        files.read("mini", "~/.anvil test/none")


def test_a_disk_that_refuses_leaves_the_file(files: ConfigFileControl, tmp_path: Path) -> None:
    """O-88 over there: the folder takes no new file."""
    full = Path("/proc/self/comm")
    with pytest.raises(EffectFailed, match=r"mini:/proc/self/comm: not saved"):
        files.replace("mini", str(full), b"x", sha(b"y"))


def test_a_host_that_lets_us_in_no_more_is_no_silent_host(sshd: Sshd, files: ConfigFileControl) -> None:
    sshd.distrust()
    with pytest.raises(NoCredential, match=r"ssh mini: no credential: .*Permission denied"):
        files.read("mini", "/etc/hostname")
    with pytest.raises(NoCredential):
        files.replace("mini", "/etc/hostname", b"", sha(b""))
    (sshd.dir / "known").write_text("")
    with pytest.raises(Unreachable, match="Host key verification failed"):
        files.read("mini", "/etc/hostname")
    sshd.close()
    with pytest.raises(Unreachable, match=r"ssh mini: .*refused"):
        files.read("mini", "/etc/hostname")


def test_copies_are_private_and_the_first_one_stays(files: ConfigFileControl, tmp_path: Path) -> None:
    path = files.keep("pi/20260101T000000", b"one")
    assert files.keep("pi/20260101T000000", b"two") == path and files.kept("pi/20260101T000000") == b"one"
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "copies").stat().st_mode) & 0o077 == 0
    with pytest.raises(NotFound):
        files.kept("pi/none")
