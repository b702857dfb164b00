"""A real sshd on loopback with keys of its own (Debian package openssh-server)."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.docker_box import free_port
from tests.support.wait import wait_until

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
Host mini
  HostName 127.0.0.1
  Port {port}
  HostKeyAlias [127.0.0.1]:{port}
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
        (folder / "client").write_text(CLIENT.format(port=self.port, dir=folder))
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

    def distrust(self) -> None:
        """The server takes the user's key no more."""
        (self.dir / "user.pub").write_text("")

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
