"""A way back that is damaged behind the console: what `status` says, that plans refuse for exactly that check, and
that a waiver lets them go on. A simulated box behind a real HAProxy."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.adapters.box_file import BoxFile
from anvil_tui.adapters.docker_engine import DockerReader
from anvil_tui.adapters.toml_files import load_workspace
from anvil_tui.cli.main import main
from anvil_tui.cli.wiring import open_box, open_probes
from anvil_tui.core.plan import Intent, Plan, Verb
from anvil_tui.core.status import status_json
from anvil_tui.core.world import World
from anvil_tui.service.planning import plan

pytestmark = pytest.mark.real
INCUMBENT, BACK, CANDIDATE = "glm53-524k-k5-xgfix", "glm53-1m-k5", "glm53-393k-c1"


@dataclass
class Damaged:
    """`folder` is the workspace of a demo without its console."""

    folder: Path
    process: subprocess.Popen[str]

    def __post_init__(self) -> None:
        self.workspace = load_workspace(self.folder)
        self.docker = DockerReader(self.workspace.containers.url)
        reader = self.workspace.gpus.reader
        self.control = reader[reader.index("--socket") + 1]
        self.box = open_box(self.folder)
        self.probes = open_probes(self.box, read_only=True)

    def verb(self, *words: str) -> tuple[int, str]:
        """The command line's own, in this process."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            try:
                code = main(["--workspace", str(self.folder), *words])
            except SystemExit as left:
                code = int(left.code or 0)
        return code, out.getvalue()

    def ask(self, **request: Any) -> None:
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(self.control)
            link.sendall(json.dumps(request).encode() + b"\n")
            assert json.loads(link.makefile("rb").readline())["ok"]

    def fault(self, name: str, **args: str) -> None:
        self.ask(do="fault", name=name, args=args)

    def ids(self) -> tuple[str, str]:
        role = BoxFile(self.folder / "state").read().roles["primary"]
        return role.incumbent, role.rollback[0]

    def world(self) -> World:
        return self.probes.once()

    def failing(self, of: str) -> dict[str, str]:
        """Check -> state of the role's `rollbacks` (the way back) or `returns` (the incumbent)."""
        return {c["name"]: c["state"] for c in self.checks(of) if c["state"] != "ok"}

    def checks(self, of: str) -> list[dict[str, str]]:
        """As `status --json` has them."""
        found: list[dict[str, str]] = status_json(self.world())[of]["primary"]["checks"]
        return found

    def plan(self, verb: Verb, **target: str) -> Plan:
        return plan(self.box, Intent(verb, **target))  # type: ignore[arg-type]

    def promotion(self) -> Plan:
        return self.plan("promote", recipe=CANDIDATE)


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Damaged]:
    folder = tmp_path_factory.mktemp("demo") / "w"
    argv = [sys.executable, "-m", "anvil_tui", "demo", "--serve", "--scale", "400", "--dir", str(folder)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline().startswith("workspace")
        made = Damaged(folder, process)
        yield made
        made.probes.stop()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def test_a_whole_box_is_ready_both_ways(box: Damaged) -> None:
    code, text = box.verb("status")
    assert code == 0 and f"primary -> {BACK}: ready" in text
    assert f"primary, once promoted over -> {INCUMBENT}: ready" in text
    assert box.failing("rollbacks") == box.failing("returns") == {}
    assert box.promotion().refusals == box.plan("rollback").refusals == ()


def test_weights_that_were_cut_short(box: Damaged) -> None:
    (source, target, _), *_ = box.docker.inspect(box.ids()[0]).mounts
    assert target == "/models"
    weights = next(p for p in Path(source).rglob("*.safetensors") if p.stat().st_size == 137_095_744_155)
    os.truncate(weights, 137_000_000_000)
    try:
        assert box.failing("returns") == {"weights": "missing"}
        (said,) = box.promotion().refusals
        assert said.startswith(f"no way back to {INCUMBENT}: weights: ") and "137,000,000,000 bytes" in said
        code, text = box.verb("promote", CANDIDATE)
        assert code == 3 and f"REFUSED: {said}" in text
        _waived(box, "weights", "restored from the mirror on demand")
    finally:
        os.truncate(weights, 137_095_744_155)
    assert box.failing("returns") == {}


def _waived(box: Damaged, check: str, reason: str) -> None:
    """The waiver lets the plan through, and its reason stands in plan and status."""
    code, told = box.verb("waive", INCUMBENT, "--way-back", check, "--reason", reason)
    assert code == 0 and f"{INCUMBENT} as a way back, {check}: waived" in told
    made = box.promotion()
    assert made.refusals == ()
    assert any(w.startswith(f"way back {INCUMBENT}: {check}: ") and reason in w for w in made.warnings)
    assert made.facts["way_back"]["checks"][check].endswith(f": {reason}")
    assert box.failing("returns") == {check: "waived"} and box.world().returns["primary"].ready


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("no-such-recipe", "--way-back", "weights", "--reason", "x"), 2),
        ((INCUMBENT, "--way-back", "no-such-check", "--reason", "x"), 2),
        ((INCUMBENT, "--way-back", "record", "--reason", "x"), 2),
        ((INCUMBENT, "--way-back", "weights", "--reserve", "0", "--reason", "x"), 2),
        ((INCUMBENT, "--way-back", "weights", "--reason", " "), 3),
        ((INCUMBENT, "--way-back", "weights", "--reason", "x", "--until", "2020-01-01"), 3),
    ],
)
def test_a_waiver_that_says_nothing_clear_is_none(box: Damaged, words: tuple[str, ...], code: int) -> None:
    before = box.box.store.check_waivers()
    assert box.verb("waive", *words)[0] == code and box.box.store.check_waivers() == before


def test_a_stranger_on_the_port_of_the_way_back(box: Damaged) -> None:
    """A listener that is nobody's container: only binding finds it, and /proc names it."""
    port = BoxFile(box.folder / "state").read().serves[box.ids()[1]].port
    stranger = subprocess.Popen(
        [sys.executable, "-c", f"import socket; s = socket.create_server(('0.0.0.0', {port})); print(1); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
    )  # fmt: skip
    try:
        assert stranger.stdout is not None and stranger.stdout.readline() == "1\n"
        assert box.failing("rollbacks") == {"port": "missing"} and box.failing("returns") == {}
        told = f"port {port} of slot-b is taken by process {stranger.pid} (python"
        assert any(f"rollback of primary not ready: port: {told}" in p for p in box.world().problems)
        (said,) = box.plan("rollback").refusals
        assert said.startswith(f"no way back to {BACK}: port: {told}")
        assert box.promotion().refusals == ()
    finally:
        stranger.communicate("\n", timeout=20)
    assert box.failing("rollbacks") == {}


def test_a_key_that_the_gateway_no_longer_takes(box: Damaged) -> None:
    key = box.folder / "state" / "secrets" / "client.key"
    text = key.read_text()
    key.write_text("another-key-0123456789")
    try:
        (check,) = [c for c in box.checks("rollbacks") if c["state"] != "ok"]
        assert (check["name"], check["state"]) == ("credential", "missing") and "401" in check["why"]
        assert any("refuses credential" in r for r in box.promotion().refusals)
        assert box.verb("waive", INCUMBENT, "--way-back", "credential", "--reason", "x")[0] == 2
    finally:
        key.write_text(text)
    assert box.failing("rollbacks") == {}


def test_an_image_that_was_removed_behind_the_console(box: Damaged) -> None:
    """The daemon keeps the container, which starts without it: a warning of the rollback, and no way back of a
    promotion that would leave it."""
    box.fault("image_gone", container=box.ids()[1])
    try:
        assert box.failing("rollbacks") == {"image": "missing"}
        made = box.plan("rollback")
        assert made.refusals == () and any(
            w.startswith(f"way back {BACK}: image: the image ") for w in made.warnings
        )
        (said,) = box.plan("drill").refusals
        assert said.startswith(f"no way back to {BACK}: image: the image ") and "--way-back image" in said
    finally:
        box.ask(do="clear")
    assert box.failing("rollbacks") == {}


def test_a_container_made_again_under_the_same_name(box: Damaged) -> None:
    """O-22: the id on record is gone; the name answers with another one. Last, since it cannot be taken back."""
    _, back = box.ids()
    name = box.docker.inspect(back).name
    box.fault("replaced", container=back)
    (check,) = [c for c in box.checks("rollbacks") if c["state"] != "ok"]
    assert (check["name"], check["state"]) == ("container", "missing")
    assert check["why"].startswith(f"the retained container {back[:12]} does not exist; {name} (")
    assert "not on record" in check["why"]
    assert any(r.startswith(f"no way back to {BACK}: container: ") for r in box.plan("rollback").refusals)
