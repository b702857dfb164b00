"""What tests may see of the caller's environment: an allow-list, fixed time zone and language."""

from __future__ import annotations

import os
from collections.abc import Mapping

KEPT = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH",
    "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONPATH", "PYTHONWARNINGS", "PYENV_VERSION", "PYENV_ROOT",
    "TEXTUAL_SNAPSHOT_TEMPDIR", "ANVIL_REAL_CACHE", "ANVIL_REAL_NETNS",
)  # fmt: skip
KEPT_PREFIX = "PYTEST_"
FIXED = {"TZ": "UTC", "LANG": "C.UTF-8"}


def cut(environment: Mapping[str, str]) -> dict[str, str]:
    """A snapshot's failure report embeds the whole environment; NO_COLOR and TEXTUAL_THEME change the picture."""
    kept = {k: v for k, v in environment.items() if k in KEPT or k.startswith(KEPT_PREFIX)}
    return kept | FIXED


def read_too_early(environment: Mapping[str, str]) -> list[str]:
    """Variables that Textual reads once, at import, which the snapshot plugin does before any conftest runs."""
    return sorted(k for k in environment if k.startswith("TEXTUAL_") and k not in KEPT)


def cut_process() -> None:
    kept = cut(os.environ)
    os.environ.clear()
    os.environ.update(kept)
