"""GPU requests through a real Docker Engine: the container sees exactly the GPUs that its recipe names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import docker
import pytest

from anvil_tui.adapters.docker_engine import DockerControl, DockerReader
from anvil_tui.core.errors import EffectFailed
from anvil_tui.ports import ContainerSpec
from tests.real.fixtures import need_netns
from tests.real.nvidia.engine import GPUS, NvidiaDocker, nvidia_engine
from tests.real.nvml.stub_nvml import uuid
from tests.support.wait import wait_until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def nvidia(short_tmp: Path) -> Iterator[NvidiaDocker]:
    need_netns()
    with nvidia_engine(short_tmp / "n") as made:
        yield made


@pytest.fixture
def control(nvidia: NvidiaDocker) -> Iterator[DockerControl]:
    with contextlib.closing(DockerControl(nvidia.url)) as made:
        yield made


@pytest.fixture
def reader(nvidia: NvidiaDocker) -> Iterator[DockerReader]:
    with contextlib.closing(DockerReader(nvidia.url)) as made:
        yield made


def listing(nvidia: NvidiaDocker, *gpus: str) -> ContainerSpec:
    """A container that prints the GPUs that its NVML shows."""
    return ContainerSpec(
        name=f"anvil-{uuid4().hex[:8]}",
        image_ref=nvidia.image,
        argv=(),
        entrypoint=("/tools/list-gpus",),
        mounts=((str(nvidia.tools), "/tools", True),),
        labels={"anvil.op": uuid4().hex},
        gpu_uuids=gpus,
    )


def seen(reader: DockerReader, container_id: str) -> list[str]:
    wait_until(lambda: reader.inspect(container_id).status == "exited", "the list is printed")
    assert reader.inspect(container_id).exit_code == 0
    return [line.text for line in reader.logs(container_id)]


@pytest.mark.parametrize("wanted", [(0,), (2,), (1, 3), (3, 0), tuple(range(GPUS))])
def test_a_container_sees_exactly_the_gpus_it_names(
    nvidia: NvidiaDocker, control: DockerControl, reader: DockerReader, wanted: tuple[int, ...]
) -> None:
    uuids = tuple(uuid(n) for n in wanted)
    container_id = control.create(listing(nvidia, *uuids))
    grant = reader.inspect(container_id).gpus
    assert (grant.effective, set(grant.uuids)) == ("uuids", set(uuids))
    control.start(container_id)
    assert seen(reader, container_id) == sorted(uuids)
    assert nvidia.asked()[-1] == {"id": container_id, "visible": ",".join(uuids)}


def test_a_serve_without_gpus_reaches_none(
    nvidia: NvidiaDocker, control: DockerControl, reader: DockerReader
) -> None:
    before = len(nvidia.asked())
    container_id = control.create(listing(nvidia))
    assert reader.inspect(container_id).gpus.effective == "none"
    control.start(container_id)
    wait_until(lambda: reader.inspect(container_id).status == "exited", "no library, no list")
    assert reader.inspect(container_id).exit_code == 127
    assert [a for a in nvidia.asked()[before:] if a["visible"] not in ("void", "none", "")] == []


def test_a_gpu_that_is_not_there_is_an_error_that_names_it(
    nvidia: NvidiaDocker, control: DockerControl, reader: DockerReader
) -> None:
    absent = uuid(GPUS)
    container_id = control.create(listing(nvidia, uuid(0), absent))
    with pytest.raises(EffectFailed, match=f"gpu_unknown: .*{absent}"):
        control.start(container_id)
    assert reader.inspect(container_id).status == "created"


def test_the_product_never_asks_by_index(nvidia: NvidiaDocker, control: DockerControl) -> None:
    with pytest.raises(EffectFailed, match="not full GPU UUIDs: 0"):
        control.create(listing(nvidia, "0"))


def test_a_foreign_container_with_every_gpu_is_seen_as_such(nvidia: NvidiaDocker, reader: DockerReader) -> None:
    with contextlib.closing(docker.DockerClient(base_url=nvidia.url)) as client:
        everything = docker.types.DeviceRequest(count=-1, capabilities=[["gpu"]])
        made = client.containers.create(
            nvidia.image.partition("@")[2],
            entrypoint=["/tools/list-gpus"],
            device_requests=[everything],
            volumes={str(nvidia.tools): {"bind": "/tools", "mode": "ro"}},
        )
        made.start()
        assert seen(reader, str(made.id)) == [uuid(n) for n in range(GPUS)]
    assert reader.inspect(str(made.id)).gpus.effective == "all"
