"""A real llama-server as a plain process of this machine, from an unpacked root; no Docker and no root needed."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

READY_S = 60.0


@dataclass(slots=True)
class Llama:
    """`log` holds everything it wrote."""

    port: int
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def llama_server(
    root: Path, model: Path, log: Path, *args: str, alias: str = "tiny", context: int = 1024
) -> Iterator[Llama]:
    """Start it on a free port, wait until it is healthy, end it by its process id."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    libraries = root / "usr/lib/x86_64-linux-gnu"
    argv = [
        str(root / "usr/lib64/ld-linux-x86-64.so.2"), "--library-path", f"{libraries}:{libraries}/llama",
        str(root / "usr/bin/llama-server"), "-m", str(model), "--host", "127.0.0.1", "--port", str(port),
        "-c", str(context), "-np", "1", "-t", "1", "--metrics", "--alias", alias, *args,
    ]  # fmt: skip
    backend = libraries / "ggml/backends0/libggml-cpu-haswell.so"
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, "GGML_BACKEND_PATH": str(backend)},
        )
    try:
        _wait(process, port, log)
        yield Llama(port, process, log)
    finally:
        process.kill()
        process.wait(10)


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + READY_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise AssertionError(
        f"llama-server is not ready (exit {process.poll()}): {log.read_text(errors='replace')[-2000:]}"
    )
