"""A client key that goes bad, and one that is rotated, on the demo's box: simulated engines, real HAProxy, the
operation in a process of its own."""

from __future__ import annotations

import json
import secrets
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from anvil_tui.adapters.journal_file import OperationFolders
from anvil_tui.cli.main import main
from anvil_tui.core.journal import Record
from tests.e2e.test_demo import CLI, Demo
from tests.support.wait import wait_until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    made = Demo(tmp_path_factory.mktemp("credentials"))
    yield made
    made.process.terminate()
    made.process.communicate(timeout=60)


def key_file(demo: Demo) -> Path:
    return demo.folder / "state/secrets/client.key"


def newest(demo: Demo) -> tuple[Record, ...]:
    store = OperationFolders(demo.folder / "state/operations")
    folders = sorted(p.name for p in (demo.folder / "state/operations").glob("*"))
    return store.journal(folders[-1]).records() if folders else ()


def told(demo: Demo, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(["--workspace", str(demo.folder), *words])
    return code, capsys.readouterr().out


def test_a_refused_key_stops_a_promotion_before_anything_and_a_mended_one_lets_it_go_on(
    demo: Demo, capsys: pytest.CaptureFixture[str]
) -> None:
    """O-73: what the file holds now is what is used, in an operation that runs, too."""
    good = key_file(demo).read_text()
    key_file(demo).write_text("not-a-key-of-this-gateway\n")
    code, said = told(demo, capsys, "promote", "glm53-393k-c1", "--role", "primary", "--yes")
    assert code == 3 and "HTTP 401" in said and str(key_file(demo)) in said
    code, said = told(demo, capsys, "credentials", "--json")
    (state,) = json.loads(said)
    assert (code, state["state"]) == (5, "refused") and "not-a-key" not in said
    code, said = told(demo, capsys, "doctor")
    assert code == 4 and "missing secrets" in said and "gateway install" in said
    key_file(demo).write_text(good)
    argv = (*CLI, "--workspace", str(demo.folder), "promote", "glm53-393k-c1", "--role", "primary", "--yes")
    running = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_until(lambda: any(r.kind == "intent" and r.step == "gates" for r in newest(demo)) or None, "gates", 60)
    key_file(demo).write_text("not-a-key-of-this-gateway\n")
    wait_until(
        lambda: any("refuses credential" in str(r.data.get("text")) for r in newest(demo)) or None, "it waits", 60
    )
    assert [r.data["way"] for r in newest(demo) if r.kind == "decide"] == ["forward"]
    key_file(demo).write_text(good)
    out, _ = running.communicate(timeout=120)
    assert running.returncode == 0, out
    assert demo.incumbent() == "glm53-393k-c1"


def test_a_key_from_standard_input_is_rotated_in_under_traffic(demo: Demo) -> None:
    old, new = key_file(demo).read_text().strip(), secrets.token_urlsafe(24)
    answers: list[int] = []
    stop = threading.Event()

    def client() -> None:
        while not stop.is_set():
            demo.key = key_file(demo).read_text().strip()
            answers.append(demo.chat("llm.primary").status_code)

    asking = threading.Thread(target=client)
    asking.start()
    argv = (
        *CLI,
        "--workspace",
        str(demo.folder),
        "rotate",
        "gateway.client_keys[0]",
        "--from",
        "-",
        "--grace",
        "2",
    )
    done = subprocess.run(
        (*argv, "--yes"), input=f"{new}\n", capture_output=True, text=True, timeout=120, check=False
    )
    stop.set()
    asking.join(60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(answers) == {200}, f"client_errors={sum(a != 200 for a in answers)}"
    assert key_file(demo).read_text() == f"{new}\n"
    demo.key = old
    assert demo.chat("llm.primary").status_code == 401
    demo.key = new
    assert demo.chat("llm.primary").status_code == 200
    told = done.stdout + done.stderr + "".join(str(r.data) for r in newest(demo))
    assert new not in told and old not in told
    assert not list((demo.folder / "state").rglob("staged.json"))
