"""The demo without its console: a living box behind a real HAProxy, and nothing left when it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from anvil_tui.adapters.box_file import BoxFile
from anvil_tui.adapters.toml_files import load_workspace
from tests.support.simbox import until

pytestmark = pytest.mark.real

CLI = (sys.executable, "-m", "anvil_tui.cli.main")


class Demo:
    def __init__(self, temp: Path) -> None:
        env = {**os.environ, "TMPDIR": str(temp)}
        argv = (*CLI, "demo", "--serve", "--scale", "400")
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        assert self.process.stdout is not None and self.process.stderr is not None
        words = self.process.stdout.readline().split()
        assert words[:1] == ["workspace"], self.process.stderr.read()
        self.folder = Path(words[1])
        self.workspace = load_workspace(self.folder)
        self.key = (self.folder / "state/secrets/client.key").read_text().strip()
        self.children = _children(self.process.pid)

    def chat(self, alias: str, timeout: float = 60) -> httpx.Response:
        """By the gateway's path form; vLLM knows no alias as `model`."""
        return httpx.post(
            f"http://{self.workspace.gateway.bind}/{alias}/v1/chat/completions",
            headers={"Authorization": f"Bearer {self.key}"},
            json={"messages": [{"role": "user", "content": "Reply with exactly the single word: pong"}]},
            timeout=timeout,
        )

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            (*CLI, "--workspace", str(self.folder), *words), capture_output=True, text=True, timeout=120
        )

    def incumbent(self) -> str:
        serve = BoxFile(self.folder / "state").read().serve_in("primary")
        return serve.recipe_id if serve else ""


def _children(pid: int) -> list[int]:
    """Process ids below one, at any depth."""
    own = [int(p) for t in Path(f"/proc/{pid}/task").iterdir() for p in (t / "children").read_text().split()]
    return own + [deep for child in own for deep in _children(child)]


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    made = Demo(tmp_path)
    yield made
    if made.process.poll() is None:
        made.process.send_signal(signal.SIGTERM)
    made.process.communicate(timeout=60)


def test_full_box_promotion_and_back_under_traffic(demo: Demo) -> None:
    assert demo.incumbent() == "glm53-524k-k5-xgfix"
    answers: list[tuple[int, str]] = []
    stop = threading.Event()

    def client() -> None:
        while not stop.is_set():
            reply = demo.chat("llm.primary")
            answers.append((reply.status_code, reply.headers["x-anvil-backend"]))
            time.sleep(0.05)

    asking = threading.Thread(target=client)
    asking.start()
    promoted = demo.command("promote", "glm53-393k-c1", "--role", "primary", "--yes")
    assert promoted.returncode == 0, promoted.stdout + promoted.stderr
    assert demo.incumbent() == "glm53-393k-c1"
    back = demo.command("rollback", "--role", "primary", "--yes")
    assert back.returncode == 0, back.stdout + back.stderr
    until(lambda: answers[-1][1] == "slot-a", "served by the old slot again")
    stop.set()
    asking.join(60)
    assert demo.incumbent() == "glm53-524k-k5-xgfix"
    assert {status for status, _ in answers} == {200} and {slot for _, slot in answers} == {"slot-a", "slot-b"}


def test_it_leaves_nothing_behind(demo: Demo) -> None:
    assert demo.chat("vision.ocr").json()["choices"][0]["message"]["content"] == "pong"
    assert len(demo.children) >= 3  # simulated box, HAProxy master and worker
    demo.process.send_signal(signal.SIGTERM)
    assert demo.process.wait(30) == 0
    until(lambda: not any(_alive(p) for p in demo.children), "children ended")
    assert not demo.folder.exists()


def test_children_end_with_a_demo_that_is_killed(demo: Demo) -> None:
    demo.process.kill()
    until(lambda: not any(_alive(p) for p in demo.children), "children ended")


def test_a_folder_that_holds_a_workspace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "anvil.toml").write_text("")
    done = subprocess.run(
        (*CLI, "demo", "--serve", "--dir", str(tmp_path)), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 3 and "a demo needs a folder of its own" in done.stderr
