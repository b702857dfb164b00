"""The real parts of a test session: a Docker Engine of its own, a registry, an image by digest, a model."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from tests.real import netns, parts
from tests.support.wait import wait_until

REGISTRY = "127.0.0.1:5000"


class RealDocker:
    """A Docker Engine with folders of its own. `pid` is dockerd's."""

    def __init__(self, folder: Path, env: dict[str, str] | None = None) -> None:
        self.folder, self.socket = folder, folder / "docker.sock"
        self.url = f"unix://{self.socket}"
        self._env = {**os.environ, **(env or {})}
        self.start()

    def start(self) -> None:
        argv = ["dockerd", "--data-root", str(self.folder / "data"), "--exec-root", str(self.folder / "exec"),
                "-p", str(self.folder / "pid"), "-H", self.url, "--iptables=false", "--ip-masq=false"]  # fmt: skip
        with (self.folder / "dockerd.log").open("ab") as log:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._env, start_new_session=True
            )
        wait_until(self._answers, f"dockerd answers; see {self.folder}/dockerd.log", 60)

    def _answers(self) -> bool:
        if self._process.poll() is not None:
            tail = (self.folder / "dockerd.log").read_text()[-1500:]
            raise AssertionError(f"dockerd ended with {self._process.returncode}:\n{tail}")
        try:
            with contextlib.closing(docker.DockerClient(base_url=self.url, timeout=5)) as client:
                return bool(client.ping())
        except (docker.errors.DockerException, OSError):
            return False

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self, with_signal: int = signal.SIGTERM) -> None:
        os.kill(self.pid, with_signal)
        self._process.wait(60)

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def close(self) -> None:
        with contextlib.closing(docker.DockerClient(base_url=self.url, timeout=60)) as client:
            for container in client.containers.list(all=True, sparse=True):
                container.remove(force=True)
        self.stop()


def need_netns() -> None:
    if not netns.inside():
        pytest.fail(
            "real parts run in a private network namespace: python -m tests.real.netns python -m pytest ..."
        )


@pytest.fixture(scope="session")
def short_tmp() -> Iterator[Path]:
    """A short folder: Unix sockets have about 100 characters."""
    folder = Path(tempfile.mkdtemp(prefix="av"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def real_docker(short_tmp: Path) -> Iterator[RealDocker]:
    need_netns()
    (short_tmp / "d").mkdir()
    engine = RealDocker(short_tmp / "d")
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def registry(short_tmp: Path) -> Iterator[str]:
    need_netns()
    config = short_tmp / "registry.yml"
    config.write_text(
        f"version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {short_tmp}/registry\n"
        f"  delete:\n    enabled: true\nhttp:\n  addr: {REGISTRY}\n"
    )
    with (short_tmp / "registry.log").open("wb") as log:
        process = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=log, stderr=log)
    yield REGISTRY
    process.terminate()
    process.wait(20)


@pytest.fixture(scope="session")
def llama_image(real_docker: RealDocker, registry: str) -> str:
    """llama.cpp's server, pushed to the registry, removed, and pulled again by digest."""
    name = f"{registry}/anvil/llama"
    with contextlib.closing(docker.DockerClient(base_url=real_docker.url, timeout=120)) as client:
        with parts.llama_tar().open("rb") as tar:
            client.api.import_image_from_data(
                tar, repository=name, tag="1", changes=['ENTRYPOINT ["/usr/bin/llama-server"]']
            )
        wait_until(lambda: "error" not in client.images.push(name, tag="1"), "the push is accepted", 60)
        pushed = client.images.get(f"{name}:1")
        digest: str = pushed.attrs["RepoDigests"][0]
        client.images.remove(f"{name}:1")
        client.images.pull(digest)
        return digest


@pytest.fixture(scope="session")
def llama_rootfs() -> Path:
    return parts.llama_root()


@pytest.fixture(scope="session")
def models_dir() -> Path:
    return parts.model("smol").parent


@pytest.fixture(scope="session")
def qwen_model() -> Path:
    return parts.model("qwen")
