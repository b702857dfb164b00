"""The Docker adapter over ssh:// through a real sshd on loopback (Debian package openssh-server)."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.adapters.docker_engine import DockerReader
from anvil_tui.core.errors import Unreachable
from tests.support.docker_box import Box, free_port
from tests.support.wait import wait_until

pytestmark = pytest.mark.real

SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {dir}/host
AuthorizedKeysFile {dir}/user.pub
PidFile {dir}/pid
StrictModes no
UsePAM no
PasswordAuthentication no
AllowStreamLocalForwarding yes
"""
CLIENT = """\
Host *
  IdentityFile {dir}/user
  IdentitiesOnly yes
  UserKnownHostsFile {dir}/known
  GlobalKnownHostsFile /dev/null
"""


class Sshd:
    """A server with keys of its own, and an `ssh` first on PATH that uses them."""

    def __init__(self, folder: Path) -> None:
        self.dir, self.port = folder, free_port()
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        (folder / "server").write_text(SERVER.format(port=self.port, dir=folder))
        (folder / "client").write_text(CLIENT.format(dir=folder))
        wrapper = folder / "bin" / "ssh"
        wrapper.parent.mkdir()
        wrapper.write_text(
            f'#!/bin/sh\necho $$ >> {folder}/clients\nexec {shutil.which("ssh")} -F {folder}/client "$@"\n'
        )
        wrapper.chmod(0o755)
        # sshd wants its own full path and, as root, this folder for its unprivileged half.
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self.process = subprocess.Popen(
            ["/usr/sbin/sshd", "-D", "-e", "-f", folder / "server"], stderr=subprocess.DEVNULL
        )
        wait_until((folder / "pid").exists, "sshd listens")

    def trust(self) -> None:
        key = (self.dir / "host.pub").read_text().split()
        (self.dir / "known").write_text(f"[127.0.0.1]:{self.port} {key[0]} {key[1]}\n")

    def url(self, socket: str) -> str:
        return f"ssh://{getpass.getuser()}@127.0.0.1:{self.port}{socket}"

    def clients(self) -> list[int]:
        """The ssh clients that still run."""
        pids = [int(line) for line in (self.dir / "clients").read_text().split()]
        return [pid for pid in pids if Path(f"/proc/{pid}/cmdline").exists() and _alive(pid)]

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(5)


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def sshd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    made = Sshd(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    yield made
    made.close()


@pytest.fixture
def box(real_docker: Any, llama_image: str, models_dir: Path) -> Iterator[Box]:
    made = Box(real_docker.url, llama_image, models_dir)
    yield made
    made.close()


def test_read_follow_and_close_over_ssh(sshd: Sshd, box: Box) -> None:
    sshd.trust()
    container_id = box.started(box.shell("echo hello; exec sleep 600"))
    reader = DockerReader(sshd.url(box.url.removeprefix("unix://")))
    assert container_id in {c.id for c in reader.list()}
    follow = reader.follow(container_id)
    got: list[str] = []
    thread = threading.Thread(target=lambda: got.extend(line.text for line in follow))
    thread.start()
    wait_until(lambda: got, "first line")
    follow.close()
    thread.join(5)
    assert not thread.is_alive()
    assert got == ["hello"]
    assert len(sshd.clients()) == 1, "one connection for everything"
    reader.close()
    wait_until(lambda: not sshd.clients(), "ssh client ended")


def test_broken_link_is_made_anew(sshd: Sshd, box: Box) -> None:
    sshd.trust()
    reader = DockerReader(sshd.url(box.url.removeprefix("unix://")))
    reader.list()
    [client] = sshd.clients()
    os.kill(client, signal.SIGKILL)
    wait_until(lambda: not sshd.clients(), "client gone")
    reader.list()
    reader.close()


def test_unknown_host_is_refused_and_never_asked_about(sshd: Sshd, box: Box) -> None:
    with pytest.raises(Unreachable, match="Host key verification failed"):
        DockerReader(sshd.url(box.url.removeprefix("unix://"))).list()
    assert not sshd.clients()


def test_absent_remote_socket_is_unreachable(sshd: Sshd) -> None:
    sshd.trust()
    reader = DockerReader(sshd.url("/none/docker.sock"))
    with pytest.raises(Unreachable, match="list containers"):
        reader.list()
    reader.close()
