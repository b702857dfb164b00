"""The consoles that are compared: how each is run at one reading a second, and what its first picture shows."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.console import install

ANVIL = str(Path(sys.executable).with_name("anvil-tui"))


@dataclass(frozen=True, slots=True)
class Tool:
    """`paints` stands in its first picture, `reads` in the first that holds a reading of the kind that it shows.

    `keys` are pressed in turn, each with what it must bring to the screen.
    """

    name: str
    argv: tuple[str, ...]
    paints: bytes
    reads: bytes
    keys: tuple[tuple[bytes, bytes], ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


def ours(directory: Path, name: str = "anvil-tui") -> Tool:
    """The console on a workspace. Its keys move the cursor and open screens: the least and the most to draw."""
    bar = rb"\xe2\x96\x8c"  # of the cursor; no log line has one
    keys = ((b"j", bar), (b"k", bar), (b"2", rb"Recipes \d"), (b"1", rb"Operations and events"))
    return Tool(name, (ANVIL, "--workspace", str(directory)), rb"anvil +bench", rb"/140\.4 GiB", keys)


def nvitop(name: str = "nvitop", mode: str = "full") -> Tool:
    return Tool(
        name, (str(install.HOME / "gpu/bin/nvitop"), "--monitor", mode, "--interval", "1"),
        b"NVITOP", rb"/ 140\.4GiB",
        ((b"h", b"Press any key"), (b"h", b"Press h for help")),
    )  # fmt: skip


def others() -> tuple[Tool, ...]:
    pypi, debian = install.HOME / "gpu/bin", install.HOME / "debian/usr/bin"
    return (
        nvitop("nvitop, its own mode", "auto"),
        Tool("btop", (str(debian / "btop"), "--utf-force"), b"menu", b"menu"),
        Tool("glances", (str(pypi / "glances"), "-t", "1", "--disable-check-update"), b"CPU", b"H200"),
        Tool("htop", (str(debian / "htop"), "-d", "10"), b"Load average", b"Load average"),
        Tool("bpytop", (str(install.HOME / "bpytop/bin/bpytop"),), b"CPU", b"CPU"),
        Tool("gpustat", (str(pypi / "gpustat"), "-i", "1"), b"H200", b"H200"),
    )


def environment(home: Path, library: Path) -> dict[str, str]:
    """One for all: a terminal with 16 million colours, a home with each peer's rate in its settings."""
    for folder, file, text in (
        ("btop", "btop.conf", "update_ms = 1000\n"),
        ("bpytop", "bpytop.conf", "#? Config file for bpytop v. 1.0.68\nupdate_ms=1000\nupdate_check=False\n"),
    ):
        (home / ".config" / folder).mkdir(parents=True, exist_ok=True)
        (home / ".config" / folder / file).write_text(text)
    unpacked = install.HOME / "debian"
    libraries = [library, *(unpacked / part / "x86_64-linux-gnu" for part in ("lib", "usr/lib"))]
    return {
        "PATH": os.environ["PATH"], "HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), "LANG": "C.UTF-8",
        "TERM": "xterm-256color", "COLORTERM": "truecolor", "TZ": "UTC",
        "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
    }  # fmt: skip
