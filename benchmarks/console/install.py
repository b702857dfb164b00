"""What the benchmark needs beside us, under `.real/console`: peers of PyPI and Debian, and NVML libraries."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".real" / "console"
HERE = Path(__file__).parent
SONAME = "libnvidia-ml.so.1"
PYPI = {
    "gpu": ("nvitop==1.7.2", "glances[gpu]==4.5.8", "gpustat==1.1.1"),
    "bpytop": ("bpytop==1.0.68",),  # it keeps psutil below 6, which the others do not
}
DEBS = ("btop", "htop", "libnl-3-200", "libnl-genl-3-200")
INSTALL_S = 600


class CannotInstall(Exception):
    """With the reason."""


def pypi(name: str) -> Path:
    """The folder of programs of the peers of that environment."""
    home, wanted = HOME / name, " ".join(PYPI[name])
    if _stamped(home, wanted):
        return home / "bin"
    print(f"installing {wanted} into {home.relative_to(ROOT)}", flush=True)
    shutil.rmtree(home, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(home)])
    _run([str(home / "bin/python"), "-m", "pip", "--disable-pip-version-check", "install", "-q", *PYPI[name]])
    _stamp(home, wanted)
    return home / "bin"


def debian() -> Path:
    """A folder with usr/bin and usr/lib of the peers that are Debian's, unpacked and not installed."""
    home, wanted = HOME / "debian", " ".join(DEBS)
    if _stamped(home, wanted):
        return home
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise CannotInstall("it is taken from Debian, and there is no apt-get or dpkg-deb here")
    print(f"unpacking {', '.join(DEBS)} into {home.relative_to(ROOT)}", flush=True)
    shutil.rmtree(home, ignore_errors=True)
    (home / "debs").mkdir(parents=True)
    try:
        _run(["apt-get", "-q", "download", *DEBS], home / "debs")
    except CannotInstall:  # no lists of packages yet
        _run(["apt-get", "-qq", "update"])
        _run(["apt-get", "-q", "download", *DEBS], home / "debs")
    for deb in sorted((home / "debs").glob("*.deb")):
        _run(["dpkg-deb", "-x", str(deb), str(home)])
    _stamp(home, wanted)
    return home


def library(gpus: int, *, still: bool = False) -> Path:
    """The folder of a stub NVML library with so many GPUs, compiled once for each content of its source."""
    source = HERE / "stub_nvml.c"
    folder = HOME / f"nvml-{gpus}{'-still' if still else ''}"
    if _stamped(folder, source.read_text()):
        return folder
    gcc = shutil.which("gcc")
    if gcc is None:
        raise CannotInstall("gcc is needed to build the stub NVML library: apt-get install gcc libc6-dev")
    folder.mkdir(parents=True, exist_ok=True)
    flags = ["-O2", "-Wall", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{SONAME}", f"-DGPUS={gpus}"]
    still_flag = ["-DSTILL"] if still else []
    _run([gcc, *flags, *still_flag, "-o", str(folder / "fresh.so"), str(source), "-lm"])
    (folder / "fresh.so").replace(folder / SONAME)
    _stamp(folder, source.read_text())
    return folder


def _mark(text: str) -> str:
    return hashlib.sha256(f"{sys.version_info[:2]}{text}".encode()).hexdigest()


def _stamped(folder: Path, text: str) -> bool:
    stamp = folder / "made"
    return stamp.exists() and stamp.read_text() == _mark(text)


def _stamp(folder: Path, text: str) -> None:
    (folder / "made").write_text(_mark(text))


def _run(argv: list[str], cwd: Path | None = None) -> None:
    try:
        ran = subprocess.run(argv, capture_output=True, text=True, timeout=INSTALL_S, check=False, cwd=cwd)
    except subprocess.TimeoutExpired as why:
        raise CannotInstall(f"{argv[0]}: not done within {INSTALL_S} s") from why
    if ran.returncode:
        lines = [line for line in ran.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        raise CannotInstall(f"{argv[0]}: {(lines or ['no reason given'])[-1][:200]}")
