"""A client key is rotated on real HAProxy while clients stream, each with the key of its own file: no request is
refused. A gateway that restarts in the middle takes both keys."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from anvil_tui.adapters.clock import SystemClock
from anvil_tui.adapters.config_files import ConfigFileControl
from anvil_tui.adapters.haproxy import HaproxyControl, install_files
from anvil_tui.adapters.key_proof import GatewayKeyProof
from anvil_tui.adapters.secrets import resolve
from anvil_tui.cli.setup import rotating
from anvil_tui.core.workspace import Workspace
from tests.support.gateway import KEY, Rig
from tests.support.membox import World
from tests.support.wait import wait_until

pytestmark = pytest.mark.real
REFS = ("file:router.env#ROUTER_TOKEN",)


def world_of(gateway: Rig) -> World:
    """A box whose gateway, files, clock and proofs are real."""
    folder = gateway.directory
    (folder / "router.env").write_text(f"ROUTER_TOKEN={KEY}\n")
    (folder / "client.json").write_text(json.dumps({"apiKey": KEY}))
    world = World(folder)
    raw = {
        "schema": "anvil.workspace/1", "box": {"name": "b", "kind": "lab"},
        "gateway": {**gateway.settings.model_dump(mode="json"), "client_keys": REFS},
        "roles": [r.model_dump(mode="json") for r in gateway.roles],
        "credentials": [{
            "name": "clients", "ref": REFS[0],
            "targets": [{"file": "client.json", "key": "apiKey", "format": "json"}],
        }],
    }  # fmt: skip
    made = Workspace.model_validate_json(json.dumps(raw))
    keys: Callable[[], tuple[str, ...]] = lambda: (resolve(REFS[0], folder, {}),)  # noqa: E731
    control = HaproxyControl(folder, made.gateway, made.roles, keys)
    clock = SystemClock()
    world.box = dataclasses.replace(
        world.box, workspace=made, gateway=gateway.reader, clock=clock,
        prove_key=GatewayKeyProof(f"http://{made.gateway.bind}", clock),
    )  # fmt: skip
    files = ConfigFileControl(folder, folder / "copies")
    world.controls = dataclasses.replace(world.controls, gateway=control, files=files)
    return world


class Loop:
    """A client that reads its key before each request, as one does that is started anew each time."""

    def __init__(self, gateway: Rig, key: Callable[[], str]) -> None:
        self.answers: list[int] = []
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(gateway, key))
        self._thread.start()

    def _run(self, gateway: Rig, key: Callable[[], str]) -> None:
        while not self._stop.is_set():
            answer = gateway.client(key()).post("llm.primary")
            self.answers.append(answer.status)
            if not answer.whole:
                self.errors.append(f"{answer.status}: {answer.text[:200]}")

    def end(self) -> None:
        self._stop.set()
        self._thread.join(20)


def test_clients_stream_through_a_rotation_without_a_refused_request(gateway: Rig) -> None:
    gateway.point(llm_primary="a")
    world, folder = world_of(gateway), gateway.directory
    pid = gateway.reader.snapshot().pid
    loops = [
        Loop(gateway, lambda: (folder / "router.env").read_text().split("=")[1].strip()),
        Loop(gateway, lambda: json.loads((folder / "client.json").read_text())["apiKey"]),
    ]
    before: dict[str, int] = {}
    try:
        wait_until(lambda: all(len(loop.answers) > 3 for loop in loops), "clients are at work")
        world.hooks["grace:intended"] = lambda: before.update(both=_both(gateway, folder))
        assert world.do("rotate", target="clients", timeout_s=1) == "done"
        counts = [len(loop.answers) for loop in loops]
        wait_until(lambda: all(len(x.answers) > n + 3 for x, n in zip(loops, counts, strict=True)), "they go on")
    finally:
        for loop in loops:
            loop.end()
    errors = [e for loop in loops for e in loop.errors]
    assert errors == [], f"client_errors={len(errors)}"
    assert before == {"both": 2}
    new = (folder / "router.env").read_text().split("=")[1].strip()
    assert new != KEY and gateway.client(new).post("llm.primary").whole
    assert gateway.client(KEY).post("llm.primary").status == 401
    assert gateway.reader.snapshot().pid == pid, "nothing was loaded anew"


def _both(gateway: Rig, folder: Path) -> int:
    new = json.loads((folder / "client.json").read_text())["apiKey"]
    assert new != KEY
    return sum(gateway.client(key).post("llm.primary").whole for key in (KEY, new))


@pytest.mark.parametrize(("point", "outcome"), [("write-0:after", "undone"), ("expel:intended", "done")])
def test_a_gateway_restarted_within_a_killed_rotation_takes_both_keys(
    gateway: Rig, point: str, outcome: str
) -> None:
    gateway.point(llm_primary="a")
    world, folder = world_of(gateway), gateway.directory
    assert world.do("rotate", kill_at=point, target="clients", timeout_s=1) == "killed"
    new = (folder / "router.env").read_text().split("=")[1].strip()
    assert rotating(world.box.operations) == world.last
    gateway.stop()
    install_files(folder, gateway.settings, gateway.roles, (new,), keep_keys=True)
    gateway.start()
    assert new != KEY and all(gateway.client(k).post("llm.primary").whole for k in (KEY, new))
    assert world.operate("resume") == outcome
    good, bad = (new, KEY) if outcome == "done" else (KEY, new)
    assert (folder / "router.env").read_text() == f"ROUTER_TOKEN={good}\n"
    assert gateway.client(good).post("llm.primary").whole and gateway.client(bad).post("llm.primary").status == 401
    assert rotating(world.box.operations) == ""
