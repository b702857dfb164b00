"""A Docker Engine that has four GPUs, as far as it and its containers can tell."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker

from tests.real.docker_engine import RealDocker, import_llama
from tests.real.nvml.stub_nvml import SONAME, State, build

HERE = Path(__file__).parent
GPUS = 4
# A second engine in one network namespace would take the first one's bridge.
OWN_NETWORK = ("unshare", "--net", "--", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")


@dataclass(frozen=True)
class NvidiaDocker:
    """`tools` holds list-gpus, to be mounted; `image` is llama.cpp's server, pinned by its image id."""

    engine: RealDocker
    image: str
    tools: Path
    gpus: Path

    @property
    def url(self) -> str:
        return self.engine.url

    def asked(self) -> list[dict[str, Any]]:
        """What each container asked of the hook: `id` and `visible`."""
        log = self.gpus / "hook.log"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


@contextmanager
def nvidia_engine(folder: Path) -> Iterator[NvidiaDocker]:
    tools, gpus = folder / "bin", folder / "gpus"
    for made in (tools, gpus):
        made.mkdir(parents=True)
    library = build(gpus) / SONAME
    (gpus / SONAME).symlink_to(library)
    State(gpus / "gpus.conf", GPUS)
    subprocess.run(["gcc", "-Wall", "-o", tools / "list-gpus", HERE / "list_gpus.c", library], check=True)
    hook = tools / "nvidia-container-runtime-hook"
    hook.write_text(f"#!{sys.executable}\n{(HERE / 'hook.py').read_text()}")
    hook.chmod(0o755)
    env = {"PATH": f"{tools}:{os.environ['PATH']}", "ANVIL_FAKE_GPUS": str(gpus)}
    engine = RealDocker(folder / "d", env, OWN_NETWORK)
    try:
        yield NvidiaDocker(engine, _image(engine), tools, gpus)
    finally:
        engine.close()


def _image(engine: RealDocker) -> str:
    import_llama(engine, "local/llama")
    with contextlib.closing(docker.DockerClient(base_url=engine.url)) as client:
        return f"local/llama@{client.images.get('local/llama:1').id}"
