"""Builds the stand-in NVML library and writes its state file."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_nvml.c")
SONAME = "libnvidia-ml.so.1"


def build(cache: Path) -> Path:
    """The folder that holds the compiled stand-in; compiled once for each content of its source (0.5 s)."""
    folder = cache / f"nvml-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]}"
    library = folder / SONAME
    if library.exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / "fresh.so"
    gcc = shutil.which("gcc")
    if gcc is None:
        raise RuntimeError("gcc is needed to build the stand-in NVML library: apt-get install gcc")
    flags = ["-O2", "-Wall", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{SONAME}"]
    subprocess.run([gcc, *flags, "-o", str(fresh), str(SOURCE)], check=True, timeout=60)
    fresh.replace(library)
    return folder


def uuid(n: int) -> str:
    return f"GPU-00000000-0000-4000-8000-{n:012d}"


class State:
    """The state file of one stand-in; `set` changes it under a running program, atomically."""

    def __init__(self, path: Path, gpus: int) -> None:
        self.path, self.procs = path, list[str]()
        self.values: dict[str, object] = {"driver": "580.95.05"}
        self.count(gpus)

    def count(self, gpus: int) -> None:
        """Idle GPUs 0..gpus-1."""
        for i in range(gpus):
            self.values |= {
                f"{i}.name": "NVIDIA H200", f"{i}.uuid": uuid(i), f"{i}.bus": f"00000000:{i + 1:02X}:00.0",
                f"{i}.total": 150754820096, f"{i}.reserved": 657457152, f"{i}.used": 0, f"{i}.temp": 31,
                f"{i}.power": 76000, f"{i}.limit": 700000, f"{i}.smclock": 345, f"{i}.memclock": 3201,
            }  # fmt: skip
        self.set()

    def set(self, **changes: object) -> None:
        """Keys with `__` for the dot and a leading `g` for a GPU: `g0__used=5`; None takes a key away."""
        for key, value in changes.items():
            name = (key.removeprefix("g") if key[:2].strip("g").isdigit() else key).replace("__", ".")
            self.values.pop(name, None)
            if value is not None:
                self.values[name] = value
        lines = [f"{k}={v}" for k, v in self.values.items()] + [f"proc={p}" for p in self.procs]
        fresh = self.path.with_suffix(".fresh")
        fresh.write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))
        fresh.replace(self.path)
