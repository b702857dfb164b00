"""Session fixtures: the real parts that tests start, by name."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from tests.real import netns, parts
from tests.real.docker_engine import RealDocker as RealDocker
from tests.real.docker_engine import import_llama
from tests.support.wait import wait_until

REGISTRY = "127.0.0.1:5000"


def need_netns() -> None:
    if not netns.inside():
        pytest.fail(f"starts daemons, so it runs in namespaces of its own: {netns.COMMAND} ...", pytrace=False)


@pytest.fixture(scope="session")
def short_tmp() -> Iterator[Path]:
    """A short folder: a Unix socket's path has 107 characters at most."""
    folder = Path(tempfile.mkdtemp(prefix="av"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def real_docker(short_tmp: Path) -> Iterator[RealDocker]:
    need_netns()
    engine = RealDocker(short_tmp / "d")
    yield engine
    engine.close()


@contextlib.contextmanager
def running_registry(folder: Path) -> Iterator[str]:
    """HOST:PORT of a registry of its own that knows nothing yet."""
    config = folder / "registry.yml"
    config.write_text(
        f"version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {folder}/registry\n"
        f"  delete:\n    enabled: true\nhttp:\n  addr: {REGISTRY}\n"
    )
    with (folder / "registry.log").open("wb") as log:
        process = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=log, stderr=log)
    try:
        yield REGISTRY
    finally:
        process.terminate()
        process.wait(20)


@contextlib.contextmanager
def llama_stand() -> Iterator[tuple[RealDocker, str]]:
    """Docker Engine and registry of their own, and llama.cpp's server by digest, for what runs without pytest."""
    need_netns()
    folder = Path(tempfile.mkdtemp(prefix="av"))  # short: a Unix socket's path has 107 characters at most
    engine = RealDocker(folder / "d")
    try:
        with running_registry(folder):
            yield engine, _llama(engine)
    finally:
        engine.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def registry(short_tmp: Path) -> Iterator[str]:
    need_netns()
    with running_registry(short_tmp) as address:
        yield address


def pinned(engine: RealDocker, name: str) -> str:
    """NAME@sha256:… of the image NAME:1, pushed to its registry, removed, and pulled again."""
    with contextlib.closing(docker.DockerClient(base_url=engine.url, timeout=120)) as client:
        wait_until(lambda: "error" not in client.images.push(name, tag="1"), "the push is accepted", 60)
        digest: str = client.images.get(f"{name}:1").attrs["RepoDigests"][0]
        client.images.remove(f"{name}:1")
        client.images.pull(digest)
    return digest


def _llama(engine: RealDocker) -> str:
    """llama.cpp's server by digest: pushed to the registry, removed, and pulled again (4 s)."""
    name = f"{REGISTRY}/anvil/llama"
    import_llama(engine, name)
    return pinned(engine, name)


@pytest.fixture(scope="session")
def llama_image(real_docker: RealDocker, registry: str) -> str:
    return _llama(real_docker)


@pytest.fixture(scope="session")
def llama_rootfs() -> Path:
    """The same root unpacked: run usr/bin/llama-server without Docker."""
    return parts.llama_root()


@pytest.fixture(scope="session")
def models_dir() -> Path:
    """Holds SmolLM2; and Qwen, which can call tools, when it was fetched."""
    return parts.model("smol").parent


@pytest.fixture(scope="session")
def qwen_model() -> Path:
    return parts.model("qwen")
