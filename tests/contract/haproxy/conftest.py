"""The same tests against the HAProxy of Debian and the one of the package index."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.gateway import BINARIES, Rig, rig


@pytest.fixture(params=list(BINARIES))
def binary(request: pytest.FixtureRequest) -> str | None:
    return BINARIES[request.param]


@pytest.fixture
def gateway(binary: str | None, tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path, binary) as made:
        yield made
