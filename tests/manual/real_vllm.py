"""Real vLLM, once, by hand: loaded by the product into a real container and qualified; not part of `make test`.

    export ANVIL_REAL_VLLM=VENV ANVIL_REAL_SMOL=MODEL ANVIL_REAL_QWEN=MODEL
    python -m tests.real.netns python -m pytest -s tests/manual/real_vllm.py

VENV holds vLLM's CPU build, each MODEL a small Hugging Face folder (tests/manual/README.md says how they are
made); a model that is not named is left out.
What it showed is written to ANVIL_REAL_OUT, by default the folder `real-vllm` here: the bundles and their reports.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest

from tests.e2e.realbox import RealBox
from tests.real.fixtures import RealDocker, pinned
from tests.real.workspace import make_workspace, running_gateway

ROOTS = ("bin", "lib", "lib64")
FOLDERS = ("sbin", "etc", "tmp", "proc", "sys", "dev", "usr", "run", "var", "var/tmp")
COPIED = ("passwd", "group", "nsswitch.conf", "ld.so.cache", "ld.so.conf", "ld.so.conf.d")
TOOLS = """
  "--enable-auto-tool-choice", "--tool-call-parser", "xlam",
  "--chat-template", "/templates/qwen-list-tools.jinja","""


@dataclass(frozen=True)
class Model:
    variable: str
    repo: str
    suites: tuple[str, ...]
    more: str = ""
    modalities: str = '"text"'


MODELS = {
    "vllm-smol": Model("ANVIL_REAL_SMOL", "HuggingFaceTB/SmolLM2-135M-Instruct",
                       ("full-small", "functional", "routed", "tools")),
    "vllm-qwen": Model("ANVIL_REAL_QWEN", "Qwen/Qwen2.5-Coder-0.5B-Instruct",
                       ("tools", "functional", "routed"), TOOLS, '"text", "tools"'),
}  # fmt: skip


def host_root() -> bytes:
    """A root of a few kilobytes that borrows this machine's programs: /usr is mounted when it runs."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in FOLDERS:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name.endswith("tmp") else 0o755
            tar.addfile(entry)
        for name in ROOTS:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(entry)
        for name in COPIED:
            tar.add(f"/etc/{name}", f"etc/{name}")
    return out.getvalue()


@pytest.fixture
def box(real_docker: RealDocker, registry: str, tmp_path: Path) -> RealBox:
    venv, here = Path(os.environ["ANVIL_REAL_VLLM"]), Path(__file__).parent
    name = f"{registry}/anvil/host"
    with contextlib.closing(docker.DockerClient(base_url=real_docker.url, timeout=120)) as client:
        client.api.import_image_from_data(host_root(), repository=name, tag="1")
    image = pinned(real_docker, name)
    folder = make_workspace(tmp_path / "box", real_docker.url, image, venv)
    python = (venv / "bin" / "python").resolve().parents[1]
    for key, made in MODELS.items():
        if not os.environ.get(made.variable):
            continue
        text = (here / "vllm.toml").read_text()
        for mark, value in {
            "ID": key, "IMAGE": image, "VENV": venv, "PYTHON": python, "MODEL": os.environ[made.variable],
            "HERE": here, "REPO": made.repo, "MORE": made.more, "MODALITIES": made.modalities,
        }.items():  # fmt: skip
            text = text.replace(f"@{mark}@", str(value))
        (folder / "recipes" / f"{key}.toml").write_text(text)
    found = RealBox(folder)
    found.verb_s = 1800
    return found


def test_real_vllm(box: RealBox) -> None:
    out = Path(os.environ.get("ANVIL_REAL_OUT") or "real-vllm")
    with running_gateway(box.dir):
        for key, made in MODELS.items():
            if (box.dir / "recipes" / f"{key}.toml").exists():
                _qualified(box, key, made.suites)
                (serve,) = [c for c in box.ours() if c.running]
                log = "\n".join(line.text for line in box.docker.logs(serve.id, tail=20_000))
                box.do("unload", key, "--yes")
                out.mkdir(parents=True, exist_ok=True)
                (out / f"{key}.log").write_text(log)
        for at in json.loads(box.anvil("evidence", "list", "--json").stdout):
            box.do("evidence", "report", at["id"], "--html")
        print(box.anvil("evidence", "verify").stdout)
        shutil.copytree(box.dir / "state" / "operations", out, dirs_exist_ok=True)
        box.drop(keep=[])


def _qualified(box: RealBox, key: str, suites: tuple[str, ...]) -> None:
    """Loads the recipe and prints what each suite says; a gate that fails is a finding, not an error."""
    loaded = box.do("load", key, "--yes")
    print(f"\n==== {key}: {loaded['outcome']}, {loaded['started_at']} to {loaded['ended_at']}")
    print(box.anvil("status").stdout)
    for suite in suites:
        ended = json.loads(box.anvil("qualify", key, "--suite", suite, "--yes", "--json").stdout)
        print(f"\n== {key} {suite}: {ended.get('outcome')}", *ended.get("refusals", ()))
        for gate in ended.get("gates", ()):
            print(f"{gate['id']:20} {gate['verdict']:11} {gate.get('elapsed_s') or 0:6.1f} s  {gate['reason']}")
