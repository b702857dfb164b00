"""The lookers at files and ports, on real files and real sockets."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from anvil_tui.adapters.file_look import LocalFiles
from anvil_tui.adapters.folder_rows import FolderRows
from anvil_tui.adapters.port_look import LocalPorts
from anvil_tui.core.errors import Unreachable
from anvil_tui.ports.surroundings import FileLook, PortLook
from tests.real import netns

MIB = 1024 * 1024


def test_a_folder_is_parsed_again_when_a_file_came_changed_or_went(tmp_path: Path) -> None:
    asked: list[int] = []

    def load(folder: Path) -> tuple[str, ...]:
        asked.append(1)
        return tuple(p.read_text() for p in sorted(folder.glob("*.toml")))

    rows, one, two = FolderRows(tmp_path, load), tmp_path / "a.toml", tmp_path / "b.toml"
    assert rows() == ()
    one.write_text("x")
    asked.clear()
    assert (rows(), rows(), len(asked)) == (("x",), ("x",), 1)
    two.write_text("z")
    assert rows() == ("x", "z")
    new = tmp_path / "new"
    new.write_text("y")
    os.utime(new, ns=(one.stat().st_atime_ns, one.stat().st_mtime_ns))
    new.replace(one)  # another file of the same size and time
    assert rows() == ("y", "z")
    two.unlink()
    assert (rows(), len(asked)) == (("y",), 4)


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    return LocalFiles(tmp_path / "hashes.json")


def snapshot(tmp: Path) -> Path:
    """A Hugging Face cache as its library lays it out: blobs, and a snapshot of links to them."""
    blobs, snap = tmp / "models--o--m" / "blobs", tmp / "models--o--m" / "snapshots" / "abc"
    blobs.mkdir(parents=True)
    snap.mkdir(parents=True)
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    parts = {"model-1.safetensors": b"x" * 100, "model-2.safetensors": b"y" * 50}
    for name, body in {**parts, "model.safetensors.index.json": json.dumps(index).encode()}.items():
        blob = blobs / hashlib.sha256(body).hexdigest()
        blob.write_bytes(body)
        (snap / name).symlink_to(os.path.relpath(blob, snap))
    return snap


def test_a_whole_snapshot_is_told_with_the_size_behind_its_links(tmp_path: Path, files: LocalFiles) -> None:
    snap = snapshot(tmp_path)
    size = 150 + (snap / "model.safetensors.index.json").stat().st_size
    assert files.look(str(snap)) == FileLook("folder", size, 3)


def test_what_lies_in_a_mounted_folder_is_left_alone(tmp_path: Path, files: LocalFiles) -> None:
    """A mount may be the cache of every model of the box, on a file system that is slow."""
    part = snapshot(tmp_path).parents[1] / "blobs" / "ff.incomplete"
    part.touch()
    assert files.look(str(part.parents[1]), below=False) == FileLook("folder")
    assert files.look(str(part), below=False).kind == "file"


def test_what_a_broken_download_leaves_is_named(tmp_path: Path, files: LocalFiles) -> None:
    snap = snapshot(tmp_path)
    part = tmp_path / "models--o--m" / "blobs" / "ff.incomplete"
    part.touch()
    assert files.look(str(snap)).flaws == ("models--o--m/blobs/ff.incomplete is an incomplete download",)
    part.unlink()
    (snap / "model-2.safetensors").resolve().unlink()
    assert files.look(str(snap)).flaws == (
        "model-2.safetensors is a broken link",
        "model-2.safetensors, which model.safetensors.index.json names, is not there",
    )
    (snap / "model-2.safetensors").unlink()
    assert files.look(str(snap)).flaws == (
        "model-2.safetensors, which model.safetensors.index.json names, is not there",
    )
    assert files.look(str(snap / "model-2.safetensors")).kind == "absent"


def test_a_split_gguf_is_all_of_its_parts(tmp_path: Path, files: LocalFiles) -> None:
    for n in (1, 2, 3):
        (tmp_path / f"m-{n:05d}-of-00003.gguf").write_bytes(b"x" * 10 * n)
    assert files.look(str(tmp_path / "m-00001-of-00003.gguf")) == FileLook("file", 60, 3)
    (tmp_path / "m-00002-of-00003.gguf").unlink()
    assert files.look(str(tmp_path / "m-00001-of-00003.gguf")).flaws == ("m-00002-of-00003.gguf is not there",)


def test_absent_is_told_from_what_may_not_be_looked_at(tmp_path: Path) -> None:
    """As another user, since root may look everywhere."""
    closed = tmp_path / "closed"
    closed.mkdir()
    (closed / "m.gguf").write_bytes(b"x")
    for folder in (tmp_path, *tmp_path.parents[:-1]):
        folder.chmod(folder.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
    closed.chmod(0o700)
    told = as_nobody(
        "from pathlib import Path",
        "from anvil_tui.adapters.file_look import LocalFiles",
        look="[LocalFiles(Path('/nonexistent/h')).look(p).kind for p in sys.argv[1:]]",
        args=(str(closed / "m.gguf"), str(closed), "/nonexistent"),
    )
    assert told == "['unreadable', 'unreadable', 'absent']"


def as_nobody(*imports: str, look: str, args: tuple[str, ...]) -> str:
    """What an expression gives to a user without any right; its parts are imported before."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    code = "\n".join(("import os, sys", *imports, "os.setuid(65534)", f"print({look})"))
    env = {"PYTHONPATH": ":".join(p for p in sys.path if p)}
    ran = subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=60, env=env, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_a_hash_is_read_over_several_looks_and_kept_until_the_file_changes(tmp_path: Path) -> None:
    big, kept = tmp_path / "big", tmp_path / "hashes.json"
    with big.open("wb") as file:
        file.truncate(65 * MIB)
    want = hashlib.sha256(bytes(65 * MIB)).hexdigest()
    first, seen = LocalFiles(kept), []
    while not (look := first.sha256(str(big), 0.0, keep=True)).sha256:
        seen.append(look.done)
    assert seen == sorted(set(seen)) and len(seen) > 3 and look.of == 65 * MIB and look.sha256 == want
    assert LocalFiles(kept).sha256(str(big), 0.0, keep=True).sha256 == want  # another process, at once
    os.utime(big, ns=(1, 1))
    assert LocalFiles(kept).sha256(str(big), 0.0, keep=True).sha256 == ""
    assert first.sha256(str(big), 60.0, keep=False).sha256 == want
    kept.write_text("damaged")
    assert LocalFiles(kept).sha256(str(big), 0.0, keep=False).sha256 == ""
    with pytest.raises(Unreachable, match="No such file"):
        first.sha256(str(tmp_path / "gone"), 1.0, keep=False)


def test_a_read_only_look_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(65 * MIB))
    assert LocalFiles(tmp_path / "h").sha256(str(tmp_path / "f"), 60.0, keep=False).sha256
    assert not (tmp_path / "h").exists()


def test_a_port_is_free_only_when_it_can_be_bound() -> None:
    ports = LocalPorts()
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("0.0.0.0", 0))
        held.listen()
        port = held.getsockname()[1]
        name = Path("/proc/self/comm").read_text().strip()
        assert ports.look(port) == PortLook("taken", os.getpid(), name)
        with socket.create_connection(("127.0.0.1", port)):
            peer, _ = held.accept()
            peer.close()  # this end goes to TIME_WAIT, which is in no engine's way
    assert ports.look(port) == PortLook("free")
    assert ports.look(port) == PortLook("free")


def test_a_listener_that_proc_hides_is_still_there() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        told = as_nobody(
            "from anvil_tui.adapters.port_look import LocalPorts",
            look="LocalPorts().look(int(sys.argv[1]))",
            args=(str(held.getsockname()[1]),),
        )
    assert told.startswith("PortLook(state='taken', pid=None")


@pytest.fixture
def silent_mount(tmp_path: Path) -> Iterator[Path]:
    """A mount whose server never answers: a FUSE file system of which nobody reads the requests."""
    if not netns.inside():
        pytest.fail(f"mounts, so it runs in namespaces of its own: {netns.COMMAND} ...", pytrace=False)
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("no /dev/fuse on this machine, so no mount that hangs")
    folder, libc = tmp_path / "nfs", ctypes.CDLL(None, use_errno=True)
    folder.mkdir()
    server = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
    assert libc.mount(b"silent", bytes(folder), b"fuse", 0, options) == 0, os.strerror(ctypes.get_errno())
    yield folder
    os.close(server)
    libc.umount2(bytes(folder), 2)  # MNT_DETACH


def test_a_mount_that_hangs_is_silent_and_delays_nothing_else(tmp_path: Path, silent_mount: Path) -> None:
    """Not absent, not empty: it did not answer. What hangs is not asked a second time."""
    files, near = LocalFiles(tmp_path / "hashes.json", patience_s=0.3), tmp_path / "near"
    near.write_text("x")
    for _ in range(2):
        found = files.look(str(silent_mount / "m.gguf"))
        assert found.kind == "silent" and "does not answer" in found.why
        with pytest.raises(Unreachable, match="does not answer"):
            files.sha256(str(silent_mount / "m.gguf"), 0.1, keep=True)
        assert files.look(str(near)) == FileLook("file", 1, 1)
        assert files.sha256(str(near), 1.0, keep=True).sha256 == hashlib.sha256(b"x").hexdigest()
    assert sum(t.name == "file look" for t in threading.enumerate()) == 2


def test_sockets_pipes_and_devices_are_no_files(tmp_path: Path, files: LocalFiles) -> None:
    """Reading one might never end."""
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        assert {files.look(str(p)).kind for p in (tmp_path / "pipe", tmp_path / "s", Path("/dev/zero"))} == {
            "special"
        }
