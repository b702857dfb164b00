"""Makes the environment of each peer under `.real/peers/NAME`, once; why one cannot be had is said, not hidden."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.timing.peers import Peer

ROOT = Path(__file__).parents[2]
PEERS_DIR = ROOT / ".real" / "peers"
REQUIREMENTS = Path(__file__).parent / "requirements"
INSTALL_S = 1200


class CannotInstall(Exception):
    """With the reason."""


def home_of(peer: Peer) -> Path:
    """The peer's folder with `venv` and, for some, `wheel`. Raises CannotInstall."""
    home, wanted = PEERS_DIR / peer.name, REQUIREMENTS / f"{peer.name}.txt"
    mark = hashlib.sha256(f"{wanted.read_text()}{peer.wheel}{peer.version}{peer.python}".encode()).hexdigest()
    stamp = home / "installed"
    if stamp.exists() and stamp.read_text() == mark:
        return home
    shutil.rmtree(home, ignore_errors=True)
    python = _python(peer.python)
    print(f"installing {peer.name} {peer.version} into {home.relative_to(ROOT)}", flush=True)
    _run([python, "-m", "venv", str(home / "venv")])
    pip = [str(home / "venv/bin/python"), "-m", "pip", "--disable-pip-version-check"]
    _run([*pip, "install", "-q", "-r", str(wanted)])
    if peer.wheel:
        _unpack(pip, peer, home / "wheel")
    stamp.write_text(mark)
    return home


def _python(needs: tuple[int, int]) -> str:
    if sys.version_info[:2] >= needs:
        return sys.executable
    for candidate in _candidates(needs):
        asked = [candidate, "-c", "import sys; print(*sys.version_info[:2])"]
        try:
            said = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            continue
        if tuple(map(int, said.split())) >= needs:
            return candidate
    raise CannotInstall(f"it needs Python {needs[0]}.{needs[1]} or newer, and none was found on PATH or in pyenv")


def _candidates(needs: tuple[int, int]) -> Iterator[str]:
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for minor in range(needs[1], needs[1] + 4):
        if found := shutil.which(f"python{needs[0]}.{minor}"):
            yield found
        yield from (str(p) for p in sorted(pyenv.glob(f"{needs[0]}.{minor}.*/bin/python3")))


def _run(argv: list[str]) -> None:
    try:
        ran = subprocess.run(argv, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    except subprocess.TimeoutExpired as why:
        raise CannotInstall(f"not installed within {INSTALL_S} s") from why
    if ran.returncode:
        lines = [line for line in ran.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        raise CannotInstall((lines or ["no reason given"])[-1][:200])


def _unpack(pip: list[str], peer: Peer, into: Path) -> None:
    """The benchmark modules of a wheel, whose requirements (an engine) are not installed."""
    assert peer.wheel
    package, folder = peer.wheel
    with tempfile.TemporaryDirectory(dir=into.parent) as temporary:
        _run([*pip, "download", "-q", "--no-deps", "-d", temporary, f"{package}=={peer.version}"])
        with zipfile.ZipFile(next(Path(temporary).glob("*.whl"))) as wheel:
            wheel.extractall(into, [name for name in wheel.namelist() if name.startswith(folder)])


def tokenizer() -> Path:
    """A tokenizer of one word a token: peers want a local one, and the hub is not to be asked."""
    folder = PEERS_DIR / "tokenizer"
    folder.mkdir(parents=True, exist_ok=True)
    words = ["<unk>", "<s>", "</s>", "t", *(f"w{n}" for n in range(2000))]
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    whole = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "decoder": None, "pre_tokenizer": {"type": "WhitespaceSplit"},
        "added_tokens": [{"id": n, "content": words[n]} | special for n in range(3)],
        "model": {"type": "WordLevel", "vocab": {w: n for n, w in enumerate(words)}, "unk_token": "<unk>"},
    }  # fmt: skip
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "bos_token": "<s>",
              "eos_token": "</s>", "pad_token": "</s>", "model_max_length": 1 << 20}  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
