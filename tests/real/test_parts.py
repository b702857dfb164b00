"""The real parts themselves: what every other real test takes for granted."""

from __future__ import annotations

import contextlib
from pathlib import Path

import docker
import psutil
import pytest

from tests.real.docker_engine import RealDocker
from tests.support.wait import wait_until

pytestmark = pytest.mark.real


def test_the_image_is_pinned_by_the_digest_that_the_registry_gave(
    real_docker: RealDocker, llama_image: str
) -> None:
    with contextlib.closing(docker.DockerClient(base_url=real_docker.url)) as client:
        told = client.images.get_registry_data(llama_image)
        assert llama_image.endswith(told.id)
        assert client.images.get(llama_image).attrs["RepoDigests"] == [llama_image]
        version = client.containers.run(llama_image, ["--version"], remove=True, stderr=True)
    assert b"version" in version


def test_a_killed_engine_comes_back_and_a_stopped_one_too(tmp_path: Path, real_docker: RealDocker) -> None:
    before = real_docker.pid
    real_docker.kill()
    assert not psutil.pid_exists(before)
    real_docker.start()
    between = real_docker.pid
    real_docker.restart()
    assert len({before, between, real_docker.pid}) == 3
    wait_until(lambda: not psutil.pid_exists(between), "the stopped dockerd is gone")


def test_models_and_root_are_ready(models_dir: Path, llama_rootfs: Path) -> None:
    assert (models_dir / "smollm2-135m-instruct-q4_1.gguf").stat().st_size == 98_362_432
    assert (llama_rootfs / "usr/bin/llama-server").exists()
