"""Exact removal of images on a real Docker Engine: what goes, what stays, what it frees by the daemon's count."""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
from collections.abc import Iterator

import docker
import pytest

from anvil_tui.adapters.docker_images import DockerImages
from anvil_tui.core.errors import EffectFailed
from anvil_tui.core.storage import StoredImage
from tests.real.docker_engine import RealDocker
from tests.real.fixtures import pinned

pytestmark = pytest.mark.real
SIZE = 3_000_000


def layer() -> bytes:
    """A root file system of one file that does not compress."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo("data.bin")
        info.size = SIZE
        tar.addfile(info, io.BytesIO(os.urandom(SIZE)))
    return out.getvalue()


class Engine:
    def __init__(self, real: RealDocker, registry: str) -> None:
        self.docker, self.registry, self.n = real, registry, 0
        self.client = docker.DockerClient(base_url=real.url, timeout=60)
        self.images = DockerImages(real.url, 30)

    def made(self) -> str:
        """The id of a new image, with one tag."""
        self.n += 1
        name = f"{self.registry}/anvil/gone{self.n}"
        self.client.api.import_image_from_data(layer(), repository=name, tag="1", changes=["CMD none"])
        return str(self.client.images.get(f"{name}:1").id)

    def find(self, image_id: str) -> StoredImage | None:
        return next((i for i in self.images.images() if i.id == image_id), None)

    def names(self, image_id: str) -> tuple[str, ...]:
        found = self.find(image_id)
        assert found
        return found.names


@pytest.fixture(scope="module")
def engine(real_docker: RealDocker, registry: str) -> Iterator[Engine]:
    made = Engine(real_docker, registry)
    yield made
    made.images.close()
    made.client.close()


def test_an_image_goes_with_every_name_and_frees_its_layer(engine: Engine) -> None:
    other, image = engine.made(), engine.made()
    engine.client.images.get(image).tag("anvil/second-name", "x")
    before = engine.images.disk_bytes()
    names = engine.names(image)
    assert len(names) >= 2
    engine.images.remove(image, names)
    after = engine.images.disk_bytes()
    assert engine.find(image) is None and engine.find(other)
    assert before is not None and after is not None and before - after >= SIZE
    engine.images.remove(image, names)
    engine.images.remove(other, engine.names(other))


def test_a_pinned_image_goes_by_its_digest(engine: Engine) -> None:
    image = engine.made()
    pin = pinned(engine.docker, engine.names(image)[-1].rpartition(":")[0])
    found = next(i for i in engine.images.images() if pin in i.pins)
    engine.images.remove(found.id, [pin])
    assert engine.find(found.id) is None


def test_one_name_of_two_leaves_the_image_and_frees_nothing(engine: Engine) -> None:
    image = engine.made()
    engine.client.images.get(image).tag("anvil/stays", "1")
    before = engine.images.disk_bytes()
    engine.images.remove(image, [n for n in engine.names(image) if "stays" not in n])
    assert engine.names(image) == ("anvil/stays:1",) and engine.images.disk_bytes() == before
    engine.images.remove(image, engine.names(image))


def test_what_a_stopped_container_was_made_of_stays_whole(engine: Engine) -> None:
    image = engine.made()
    container = engine.client.containers.create(image, command="none")
    names = engine.names(image)
    with pytest.raises(EffectFailed, match=r"(?i)conflict.*container"):
        engine.images.remove(image, names)
    assert engine.names(image) == names
    container.remove()
    engine.images.remove(image, names)
    assert engine.find(image) is None


def test_a_kept_container_starts_after_its_image_was_removed_by_force(engine: Engine) -> None:
    """Why a rollback is not refused for an image that is gone: the layers stay with the container."""
    image = engine.made()
    container = engine.client.containers.create(image, command="/none", network_mode="host")
    engine.client.images.remove(image, force=True)
    assert engine.find(image) is None
    with pytest.raises(docker.errors.APIError, match="/none"):
        container.start()  # it came as far as to its program, of which its file system has none
    assert next(container.get_archive("/data.bin")[0])
    container.remove()


def test_a_name_that_means_another_image_by_now_takes_nothing(engine: Engine) -> None:
    first, second = engine.made(), engine.made()
    names = engine.names(first)
    engine.client.images.get(second).tag(names[0].rpartition(":")[0], "1")
    with pytest.raises(EffectFailed, match="means another image by now; nothing was removed"):
        engine.images.remove(first, names)
    assert engine.find(first) and engine.find(second)
    with contextlib.suppress(EffectFailed):
        engine.images.remove(first, ())
    engine.images.remove(second, engine.names(second))


def test_layers_that_another_image_shares_stay_and_its_child_is_known(engine: Engine) -> None:
    base = engine.made()
    container = engine.client.containers.create(base, command="none")
    child = str(container.commit("anvil/child", "1").id)
    container.remove()
    assert engine.find(child), "committed"
    base_names = engine.names(base)
    found = engine.find(child)
    assert found and found.parent in (base, ""), "the daemon names a parent, or keeps no such link"
    before = engine.images.disk_bytes()
    engine.images.remove(child, engine.names(child))
    after = engine.images.disk_bytes()
    assert before is not None and after is not None and before - after < SIZE, "the base's layer is still counted"
    engine.images.remove(base, base_names)
    assert engine.find(base) is None
