"""The same tests against every kind of gateway; each is started once and put back to its home before each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from unittest import mock

import pytest

from tests.support.fronts import ADMIN, CLIENT, KINDS, Front, front


@pytest.fixture(scope="module", autouse=True)
def keys() -> Iterator[None]:
    with mock.patch.dict(os.environ, {"CLIENT_KEY": CLIENT, "ADMIN_KEY": ADMIN}):
        yield


@pytest.fixture(scope="module", params=KINDS)
def made(keys: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with front(tmp_path_factory.mktemp("front"), request.param) as running:
        yield running


@pytest.fixture
def gateway(made: Front) -> Front:
    for up in made.ups.values():
        up.go.clear()
    made.home()
    return made
