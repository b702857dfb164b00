"""The environment of every child that the product starts: the names here, those a caller adds, and nothing else.

A key of the operator's shell, or a stale one, reaches no engine tool, no ssh and no gateway by accident. Command
gates and the sandbox get less still: exactly what they name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

NAMES = (
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_RUNTIME_DIR", "SSH_AUTH_SOCK",
    "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH",
)  # fmt: skip


def child_env(named: Iterable[str] = (), environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """What of `environ` (ours, if None) a child gets. `named` are variables that it needs besides."""
    found = os.environ if environ is None else environ
    return {k: found[k] for k in (*NAMES, *named) if k in found}
