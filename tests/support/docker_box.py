"""A real Docker Engine for tests: the adapter, a raw client for what the adapter must never do, clean-up by id."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import docker

from anvil_tui.adapters.docker_engine import DockerControl, DockerReader
from anvil_tui.core.box import Container
from anvil_tui.core.recipe import EngineKind
from anvil_tui.ports import ContainerSpec
from tests.support.ports import free_ports
from tests.support.wait import wait_until

MODEL = "/models/smollm2-135m-instruct-q4_1.gguf"
SHELL = ("/usr/bin/busybox", "sh", "-c")
LLAMA = EngineKind.LLAMACPP


def free_port() -> int:
    [port] = free_ports(1)
    return port


class Box:
    """The adapter, a raw client for what the adapter must never do, and clean-up by id."""

    def __init__(self, url: str, image: str, models: Path) -> None:
        self.url, self.image, self.models = url, image, models
        self.reader, self.control = DockerReader(url), DockerControl(url)
        self.raw = docker.APIClient(base_url=url, timeout=60)
        self.ids: list[str] = []

    def spec(self, argv: tuple[str, ...], **more: Any) -> ContainerSpec:
        mark = uuid.uuid4().hex[:12]
        fields: dict[str, Any] = {
            "name": f"anvil-{mark}",
            "image_ref": self.image,
            "argv": argv,
            "mounts": ((str(self.models), "/models", True),),
            "labels": {"anvil.op": f"op-{mark}", "anvil.recipe": "r"},
            "stop_grace_s": 2,
        }
        return ContainerSpec(**{**fields, **more})

    def shell(self, script: str, **more: Any) -> ContainerSpec:
        return self.spec((script,), entrypoint=SHELL, mounts=(), **more)

    def create(self, spec: ContainerSpec) -> str:
        container_id = self.control.create(spec)
        self.ids.append(container_id)
        return container_id

    def started(self, spec: ContainerSpec) -> str:
        container_id = self.create(spec)
        self.control.start(container_id)
        return container_id

    def llama(self, *more: str, port: int | None = None, **fields: Any) -> str:
        argv = (
            "-m",
            MODEL,
            "--host",
            "127.0.0.1",
            "--port",
            str(port or free_port()),
            "-t",
            "1",
            "-c",
            "512",
            *more,
        )
        return self.started(self.spec(argv, **fields))

    def foreign(self, script: str, host: dict[str, Any] | None = None, **fields: Any) -> str:
        """A container that some other tool made."""
        start = fields.pop("start", True)
        made = self.raw.create_container(
            fields.pop("image", self.image),
            entrypoint=list(SHELL),
            command=[script],
            host_config=self.raw.create_host_config(**(host or {})),
            **fields,
        )
        self.ids.append(made["Id"])
        if start:
            self.raw.start(made["Id"])
        return str(made["Id"])

    def log(self, container_id: str) -> list[str]:
        return [line.text for line in self.reader.logs(container_id)]

    def ended(self, container_id: str) -> Container:
        def look() -> Container | None:
            found = self.reader.inspect(container_id)
            return found if found.status == "exited" else None

        return wait_until(look, "container exited")

    def close(self) -> None:
        for container_id in self.ids:
            try:
                self.raw.remove_container(container_id, force=True)
            except docker.errors.NotFound:
                continue
        self.reader.close()
        self.control.close()
        self.raw.close()
