"""A Docker Engine of the tests' own: folders, socket and process; stopped by process id, nothing left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import docker
import psutil

from tests.real import parts
from tests.support.wait import wait_until

STOP_S = 60
ENTRYPOINT = 'ENTRYPOINT ["/usr/bin/llama-server"]'


class RealDocker:
    """A running dockerd. `pid` is dockerd's, `host` is where containers on its host network answer."""

    host = "127.0.0.1"

    def __init__(self, folder: Path, env: Mapping[str, str] | None = None, wrap: Sequence[str] = ()) -> None:
        folder.mkdir(parents=True)
        self.folder, self.socket = folder, folder / "docker.sock"
        self.url = f"unix://{self.socket}"
        self._env, self._wrap = {**os.environ, **(env or {})}, tuple(wrap)
        self.start()

    @property
    def pid(self) -> int:
        return int((self.folder / "pid").read_text())

    def start(self) -> None:
        """Start dockerd and wait until it answers (0.3 s); ends first what a killed one left."""
        self._end_containerd()
        argv = [
            *self._wrap, "dockerd", "-H", self.url, "--iptables=false", "--ip-masq=false",
            "-p", str(self.folder / "pid"),
            "--data-root", str(self.folder / "data"), "--exec-root", str(self.folder / "exec"),
        ]  # fmt: skip
        with (self.folder / "dockerd.log").open("ab") as log:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._env, start_new_session=True
            )
        wait_until(self._answers, f"dockerd answers; see {self.folder}/dockerd.log", 60)

    def stop(self) -> None:
        """SIGTERM: containers that do not restart by themselves end with it."""
        os.kill(self.pid, signal.SIGTERM)
        self._process.wait(STOP_S)

    def kill(self) -> None:
        """SIGKILL, as a crash: containers live on until dockerd starts again."""
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait(STOP_S)
        (self.folder / "pid").unlink(missing_ok=True)

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        if self._process.poll() is not None:
            self.start()
        with contextlib.closing(docker.DockerClient(base_url=self.url, timeout=60)) as client:
            for container in client.containers.list(all=True, sparse=True):
                container.remove(force=True)
        self.stop()
        for mount in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            at = mount.split()[1]
            if Path(at).is_relative_to(self.folder):
                subprocess.run(["umount", "--lazy", at], check=True)

    def _answers(self) -> bool:
        if self._process.poll() is not None:
            tail = (self.folder / "dockerd.log").read_text(errors="replace")[-1500:]
            raise AssertionError(f"dockerd ended with {self._process.returncode}:\n{tail}")
        try:
            with contextlib.closing(docker.DockerClient(base_url=self.url, timeout=5)) as client:
                return bool(client.ping())
        except (docker.errors.DockerException, OSError):
            return False

    def _end_containerd(self) -> None:
        """A containerd whose dockerd was killed makes the next dockerd give up after 15 s."""
        file = self.folder / "exec/containerd/containerd.pid"
        try:
            left = psutil.Process(int(file.read_text()))
        except (FileNotFoundError, psutil.NoSuchProcess):
            return
        if left.name() == "containerd":
            left.terminate()
            left.wait(20)
        file.unlink()


def import_llama(engine: RealDocker, repository: str) -> None:
    with contextlib.closing(docker.DockerClient(base_url=engine.url, timeout=120)) as client:
        tar = str(parts.llama_tar())
        client.api.import_image_from_file(tar, repository=repository, tag="1", changes=[ENTRYPOINT])
