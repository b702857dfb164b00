"""A whole promotion and rollback behind the gateway of anvil-serving, by the command line, under clients."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from anvil_tui.adapters.box_file import BoxFile
from anvil_tui.adapters.toml_files import load_workspace
from anvil_tui.cli.wiring import gateway_reader
from anvil_tui.core.box import Expected
from anvil_tui.core.gateway_routes import Routes
from anvil_tui.simbox.workspace import ALIASES, CANDIDATE, INCUMBENT
from tests.support.simbox import SimProcess, until

pytestmark = pytest.mark.real
CLI = (sys.executable, "-m", "anvil_tui.cli.main")
ADMIN = "admin-token-of-this-box-0001"
SUITE = """schema = "anvil.suite/1"
id = "promotion"
[[gates]]
id = "identity"
kind = "identity"
[[gates]]
id = "routed"
kind = "smoke"
routed = true
repeat = 2
[[gates]]
id = "length"
kind = "length"
routed = true
"""
FAILS = """[[gates]]
id = "never"
kind = "command"
argv = ["/bin/false"]
"""


class Box:
    """The simulated box, its gateway in the foreground of a process of its own, and a client for each alias."""

    def __init__(self, folder: Path) -> None:
        self.sim = SimProcess(folder)
        self.folder = folder
        toml = (folder / "anvil.toml").read_text()
        kind = '[gateway]\nkind = "anvil-serving"\nadmin_key = "file:state/secrets/admin.key"\n'
        (folder / "anvil.toml").write_text(toml.replace("[gateway]\n", kind))
        (folder / "state/secrets/admin.key").write_text(ADMIN)
        serve = self.sim.record.serves[self.sim.incumbent]
        expects = {"slot-a": Expected(serve.served_name, 524_288)}
        at = dict.fromkeys(ALIASES, "slot-a")
        (folder / "state/gateway").mkdir(mode=0o700)
        (folder / "state/gateway/routes.json").write_text(Routes(at, at, expects, 1).text())
        self.key = (folder / "state/secrets/client.key").read_text().strip()
        self.url = f"http://{load_workspace(folder).gateway.bind}"
        self.http = httpx.Client(
            trust_env=False, verify=False, timeout=60,
            headers={"Authorization": f"Bearer {self.key}", "Connection": "close"},
        )  # fmt: skip
        self.log = (folder / "gateway.log").open("wb")
        argv = (*CLI, "--workspace", str(folder), "gateway", "run")
        self.gateway = subprocess.Popen(argv, stdout=self.log, stderr=self.log, start_new_session=True)
        until(lambda: self.answer("llm.voice") == "200", "the gateway answers")
        self.seen: list[tuple[datetime, datetime, str]] = []
        self._stop = threading.Event()
        self._clients: list[threading.Thread] = []

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = (*CLI, "--workspace", str(self.folder), *words)
        return subprocess.run(argv, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)

    def answer(self, alias: str) -> str:
        """ "200" for an answer that came whole, else the status or the name of what went wrong."""
        body = {"model": alias, "stream": True, "messages": [{"role": "user", "content": "Say pong."}]}
        try:
            got = self.http.post(f"{self.url}/v1/chat/completions", json=body)
        except httpx.HTTPError as why:
            return type(why).__name__
        whole = got.status_code != 200 or got.text.rstrip().endswith("data: [DONE]")
        return str(got.status_code) if whole else "torn"

    def _client(self, alias: str) -> None:
        while not self._stop.is_set():
            began = datetime.now(UTC)
            told = self.answer(alias)
            self.seen.append((began, datetime.now(UTC), told))
            time.sleep(0.1)

    def start_clients(self) -> None:
        self.seen = []
        self._stop.clear()
        self._clients = [threading.Thread(target=self._client, args=(a,)) for a in ALIASES[:2]]
        for client in self._clients:
            client.start()

    def stop_clients(self) -> None:
        self._stop.set()
        for client in self._clients:
            client.join()

    def newest(self) -> tuple[str, tuple[datetime, datetime]]:
        """What the newest operation announced, with the restarts that there were, and when it was so: from `hold`
        begun to `flip` done."""
        newest = max((self.folder / "state/operations").iterdir())
        rows = [json.loads(line) for line in (newest / "journal.ndjson").read_text().splitlines()]
        at = {(r["kind"], r["step"]): datetime.fromisoformat(r["at"]) for r in rows}
        told = json.loads((newest / "plan.json").read_text())["interrupts"]
        restarts = [f"`{s}`" for s in ("route-gates", "flip") if ("done", s) in at]
        assert f"restarts at {', '.join(restarts)}: each time every alias (" in told
        return told, (at["intent", "hold"], at["done", "flip"])

    def end(self) -> str:
        self.stop_clients()
        self.gateway.terminate()
        self.gateway.wait(40)
        self.log.close()
        return self.sim.end()


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    made = Box(tmp_path_factory.mktemp("promotion") / "w")
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def box(standing: Box) -> Iterator[Box]:
    """The incumbent serves, as each test leaves it."""
    (standing.folder / "gates/promotion.toml").write_text(SUITE)
    standing.start_clients()
    try:
        until(lambda: len(standing.seen) > 4, "clients are answered")
        yield standing
    finally:
        standing.stop_clients()


def serving(box: Box) -> str:
    serve = BoxFile(box.folder / "state").read().serve_in("primary")
    return serve.recipe_id if serve else ""


def test_a_failed_promotion_gives_every_alias_back(box: Box) -> None:
    """The gateway was told of the candidate by then, and its last gate says no: what served before serves again,
    at its slot, by the gateway's own account."""
    (box.folder / "gates/promotion.toml").write_text(SUITE + FAILS)
    failed = box.command("promote", CANDIDATE, "--yes")
    assert failed.returncode == 1, failed.stdout + failed.stderr
    enough = len(box.seen) + 4
    until(lambda: len(box.seen) > enough, "clients are answered at the end")
    box.stop_clients()
    assert serving(box) == INCUMBENT
    assert {s[2] for s in box.seen[-3:]} == {"200"}
    assert {s[2] for s in box.seen} <= {"200", "503", "ConnectError", "ReadError", "RemoteProtocolError"}
    workspace = load_workspace(box.folder)
    gateway = gateway_reader(box.folder, workspace).snapshot()
    assert (dict(gateway.aliases), gateway.file_equal) == (dict.fromkeys(ALIASES, "slot-a"), True)
    last = json.loads((box.folder / "state/gateway/decisions.jsonl").read_text().splitlines()[-1])
    assert last["served_tier"].endswith("@slot-a")


def test_promotion_and_rollback_interrupt_what_they_announce_and_nothing_else(box: Box) -> None:
    """O-78 to O-80 behind a gateway that holds nothing and restarts to move an alias."""
    there = box.command("promote", CANDIDATE, "--yes")
    assert there.returncode == 0, there.stdout + there.stderr
    told, first = box.newest()
    assert "503 from `hold` to `flip`, no request is held" in told
    assert serving(box) == CANDIDATE
    back = box.command("rollback", "--yes")
    assert back.returncode == 0, back.stdout + back.stderr
    _, second = box.newest()
    assert serving(box) == INCUMBENT
    enough = len(box.seen) + 4
    until(lambda: len(box.seen) > enough, "clients are answered at the end")
    box.stop_clients()
    windows = (first, second)
    bad = [s for s in box.seen if s[2] != "200"]
    assert [s for s in bad if not any(s[0] <= b and s[1] >= a for a, b in windows)] == []
    kinds = {s[2] for s in bad}
    assert "503" in kinds and kinds <= {"503", "ConnectError", "ReadError", "RemoteProtocolError"}
    between = [s[2] for s in box.seen if first[1] < s[0] and s[1] < second[0]]
    assert between and set(between) == {"200"}
    decided = [json.loads(d) for d in (box.folder / "state/gateway/decisions.jsonl").read_text().splitlines()]
    tiers = {d["served_tier"] for d in decided if d["served_tier"]}
    assert {f"{a}@{s}" for a in ALIASES for s in ("slot-a", "slot-b")} | {"@slot-a", "@slot-b"} == tiers
    assert all(len(d["attempts"]) == 1 for d in decided)
