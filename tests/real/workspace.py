"""A workspace whose box is real: HAProxy, Docker Engine, llama.cpp recipes with the image by digest."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anvil_tui.adapters.haproxy import HaproxyReader, install_files, run_argv
from anvil_tui.adapters.toml_files import load_workspace
from anvil_tui.core.errors import AnvilError
from tests.support.ports import free_ports
from tests.support.wait import wait_until

ROOT = Path(__file__).parents[2]
KEY = "anvil-test-client-key"

TOML = """schema = "anvil.workspace/1"

[box]
name = "testbox"
kind = "lab"

[gpus]
interval_s = 0.5

[containers]
url = "{docker}"

[gateway]
bind = "127.0.0.1:{bind}"
client_keys = ["file:state/client.key"]
hold_max_s = 60

[policies]
drain_timeout_s = 20
verify_requests = 2

[[roles]]
name = "primary"
aliases = ["llm.primary", "llm.secondary"]
promotion_suite = "small"

[[roles.slots]]
name = "primary-a"
port = {a}

[[roles.slots]]
name = "primary-b"
port = {b}
"""


def make_workspace(folder: Path, docker_url: str, image: str, models: Path) -> Path:
    bind, a, b = free_ports(3)
    for name in ("recipes", "state"):
        (folder / name).mkdir(parents=True, mode=0o700, exist_ok=True)
    (folder / "anvil.toml").write_text(TOML.format(docker=docker_url, bind=bind, a=a, b=b))
    key = folder / "state" / "client.key"
    key.write_text(KEY)
    key.chmod(0o600)
    shutil.copytree(ROOT / "gates", folder / "gates")
    for template in (Path(__file__).parent / "recipes").glob("*.toml"):
        text = template.read_text().replace("@IMAGE@", image).replace("@MODELS@", str(models))
        (folder / "recipes" / template.name).write_text(text)
    return folder


@contextmanager
def running_gateway(folder: Path, *, install: bool = True) -> Iterator[int]:
    """Real HAProxy for a workspace; yields the master's process id, by which it is stopped."""
    workspace = load_workspace(folder)
    if install:
        install_files(folder, workspace.gateway, workspace.roles, (KEY,))
    reader = HaproxyReader(folder, workspace.gateway, workspace.roles)

    def answers() -> bool:
        try:
            return bool(reader.snapshot().aliases)
        except AnvilError:
            return False

    with (folder / "state" / "haproxy.log").open("ab") as log:
        process = subprocess.Popen(
            run_argv(folder, workspace.gateway), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        wait_until(answers, "HAProxy answers", 15)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(15)


# Half of llama-server's start is the memory of its context: 0.8 s for 16,384 tokens, 0.3 s for 2,048 and no trial.
FAST = '"--no-warmup", "-fit", "off", '


def fast_recipe(folder: Path, id_: str, of: str = "smol-x4k", **instead: str) -> None:
    """A recipe that starts in a third of the time, for what starts engines by the hundred.

    `instead` replaces values of the template by key, as TOML text; `flags` are further words for the engine.
    """
    text = (folder / "recipes" / f"{of}.toml").read_text()
    flags = FAST + instead.pop("flags", "")
    text = text.replace('"-t", "1", ', f'"-t", "1", {flags}', 1)
    values = {"id": f'"{id_}"', "served_name": f'"smollm2-{id_}"', "context_tokens": "1024",
              "max_output_tokens": "256", **instead}  # fmt: skip
    for key, value in values.items():
        text, count = re.subn(rf"(?m)^{key} = .*$", f"{key} = {value}", text)
        assert count == 1, f"{of}.toml has {count} lines {key} = ..."
    (folder / "recipes" / f"{id_}.toml").write_text(text)


def keep_suites(folder: Path, *names: str) -> None:
    """Only these: every plan reads all suites twice, 0.3 s for the shipped ones on a busy machine."""
    for file in (folder / "gates").glob("*.toml"):
        if file.stem not in names:
            file.unlink()
