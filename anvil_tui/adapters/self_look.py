"""What `doctor` looks at on this machine besides the box: the terminal and tmux, Python and its packages, NVML."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from anvil_tui.adapters.child_env import child_env
from anvil_tui.adapters.nvml import LIBRARY, WSL_LIBRARY_DIR, is_wsl
from anvil_tui.core.text import clean

DISTRIBUTION = "anvil-console"
_MODULE_VERSION = Path("/proc/driver/nvidia/version")
_LIBRARY_DIRS = (
    WSL_LIBRARY_DIR, "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
    "/usr/local/nvidia/lib64", "/run/opengl-driver/lib",
)  # fmt: skip
_TIMEOUT_S = 3.0


def said_by(argv: list[str], env: Mapping[str, str] | None = None) -> str | None:
    """What a program prints on its standard output; None when it is not there, fails or hangs."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, check=False,
            env=child_env() if env is None else dict(env),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return clean(done.stdout.decode("utf-8", "replace"), 2000).strip() if done.returncode == 0 else None


def tmux_options(environ: Mapping[str, str]) -> Mapping[str, str] | None:
    """Version and the options that a copy needs, of the tmux around us; None outside of one."""
    if not environ.get("TMUX"):
        return None
    env = {**child_env(), "TMUX": environ["TMUX"]}
    found = {"version": said_by(["tmux", "-V"], env) or ""}
    for name in ("set-clipboard", "allow-passthrough", "default-terminal"):
        found[name] = (
            said_by(["tmux", "show-options", "-gqv", name], env)
            or said_by(["tmux", "show-options", "-sqv", name], env)
            or ""
        )
    return found


def terminal_size() -> tuple[int, int] | None:
    """Columns and rows; None when the standard output is no terminal."""
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        return None
    return size.columns, size.lines


def wrong_pins() -> tuple[str, list[str]]:
    """Our own version, and a sentence for each package that is not the one that this version was made with."""
    try:
        own, needs = metadata.version(DISTRIBUTION), metadata.requires(DISTRIBUTION) or ()
    except metadata.PackageNotFoundError:
        return "", []
    wrong = []
    for need in needs:
        match = re.match(r"([A-Za-z0-9._-]+)\s*(?:==([\w.]+))?", need)
        if match is None or "extra ==" in need:
            continue
        try:
            has = metadata.version(match[1])
        except metadata.PackageNotFoundError:
            wrong.append(f"{match[1]} is not installed")
            continue
        if match[2] and has != match[2]:
            wrong.append(f"{match[1]} is {has}, made with {match[2]}")
    return own, wrong


def nvml_library(library_dir: str, environ: Mapping[str, str]) -> str:
    """Where NVML's library lies, "" = in none of the usual folders."""
    named = environ.get("LD_LIBRARY_PATH", "").split(":")
    for folder in (library_dir, *named, *_LIBRARY_DIRS):
        if folder and Path(folder, LIBRARY).exists():
            return str(Path(folder, LIBRARY))
    return ""


def module_version() -> str:
    """Version of the NVIDIA kernel module that runs, "" = none does (WSL has none of its own)."""
    try:
        text = _MODULE_VERSION.read_text("utf-8", "replace")
    except OSError:
        return ""
    found = re.search(r"\b(\d{3}\.\d+(?:\.\d+)?)\b", text)
    return found[1] if found else ""


def system() -> str:
    wsl = ", WSL" if is_wsl() else ""
    return f"Python {platform.python_version()}, {platform.system()} {platform.release()}{wsl}"


def program_version(path: str, flag: str) -> str:
    """The first line that a program says of its version, "" = nothing."""
    return (said_by([path, flag]) or "").split("\n", 1)[0][:120]


def free_bytes(path: Path) -> int | None:
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return None
