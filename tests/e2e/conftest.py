from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.realbox import RealBox
from tests.real.fixtures import RealDocker
from tests.real.workspace import make_workspace, running_gateway


@pytest.fixture
def real_box(real_docker: RealDocker, llama_image: str, models_dir: Path, tmp_path: Path) -> Iterator[RealBox]:
    """An empty real box with a gateway that answers 503 until something is promoted."""
    folder = make_workspace(tmp_path / "box", real_docker.url, llama_image, models_dir)
    with running_gateway(folder):
        box = RealBox(folder)
        yield box
        box.drop(keep=[])
