"""The Docker adapter over ssh:// through a real sshd on loopback (Debian package openssh-server)."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.adapters.docker_engine import DockerReader
from anvil_tui.core.errors import Unreachable
from tests.support.docker_box import Box
from tests.support.sshd import Sshd, sshd
from tests.support.wait import wait_until

pytestmark = pytest.mark.real
__all__ = ["sshd"]


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
