"""What every test run has in common: real-part fixtures, and an environment that decides nothing."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from anvil_tui.core import redact

pytest_plugins = ["tests.real.fixtures"]

# The snapshot report embeds the whole environment, so what it may show is decided before anything is loaded.
ALLOWED = {
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "TERM",
    "TMPDIR",
    "VIRTUAL_ENV",
    "PYTHONPATH",
    "CI",
    "OPENBLAS_CORETYPE",
}
ALLOWED_PREFIXES = ("PYTEST_", "COV_", "ANVIL_TEST_", "ANVIL_REAL_", "PIP_", "LD_LIBRARY")
KEPT = {"TEXTUAL_SNAPSHOT_TEMPDIR"}


def pytest_configure(config: pytest.Config) -> None:
    gc.set_threshold(50_000, 20, 50)  # every console is a large graph: a fifth of the time went into looking at it
    for name in list(os.environ):
        if name not in ALLOWED | KEPT and not name.startswith(ALLOWED_PREFIXES):
            del os.environ[name]
    os.environ |= {"TZ": "UTC", "LANG": "C.UTF-8", "TERM": "xterm-256color"}
    if getattr(config.option, "update_snapshots", False) and sys.version_info[:2] != (3, 11):
        raise pytest.UsageError("pictures are made on Python 3.11 only: run --snapshot-update there")


@pytest.fixture(autouse=True)
def _forget_secrets() -> Iterator[None]:
    """A secret of one test is a word of another."""
    yield
    redact._RESOLVED.clear()


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    home: Path = tmp_path_factory.getbasetemp() / "home"
    home.mkdir(exist_ok=True)
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    yield
