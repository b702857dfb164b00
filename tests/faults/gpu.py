"""Faults of GPUs, on the simulated box: incumbent and candidate each need both cards; HAProxy is real."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.realbox import RealBox
from tests.e2e.worker import Worker
from tests.faults.matrix import fault
from tests.faults.rig import Gateway, Rig
from tests.real.client_loop import ClientLoop
from tests.support.tmux import anvil

PAIR = ("glm53-524k-k5-xgfix", "glm53-393k-c1")
SCALE, RELEASE_S = 300, 3


@contextlib.contextmanager
def rig() -> Iterator[Rig]:
    folder = Path(tempfile.mkdtemp(prefix="avg"))
    command = anvil("demo", "--serve", "--dir", str(folder / "w"), "--scale", str(SCALE))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout and process.stdout.readline().startswith("workspace")
        toml = folder / "w" / "anvil.toml"
        text = toml.read_text().replace("gpu_release_timeout_s = 60", f"gpu_release_timeout_s = {RELEASE_S}")
        toml.write_text(text.replace('"]\ninterval_s = 0.5', '", "--interval", "0.1"]\ninterval_s = 0.1'))
        candidate = folder / "w" / "recipes" / f"{PAIR[1]}.toml"
        candidate.write_text(candidate.read_text().replace("start_deadline_s = 1800", "start_deadline_s = 10"))
        with Worker() as worker:
            clients = ClientLoop(folder / "w", by_path=True)
            made = Rig(
                RealBox(folder / "w"), worker, clients, PAIR, Gateway(lambda _: contextlib.nullcontext(0)), "quick"
            )
            with clients:
                clients.wait_answers(2)
                yield made
    finally:
        process.terminate()
        process.wait(60)
        shutil.rmtree(folder)


def control(r: Rig, **request: object) -> str:
    reader = r.box.workspace.gpus.reader
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(reader[reader.index("--socket") + 1])
        link.sendall(json.dumps(request).encode() + b"\n")
        reply = json.loads(link.makefile("rb").readline())
    assert reply["ok"], reply["text"]
    return str(reply["text"])


def halts_then_undone(r: Rig, point: str, name: str, **args: str) -> str:
    """The fault stays on: nothing is started into it. When it is gone, the operator's `undo` brings all back."""
    with r.at(point):
        said = control(r, do="fault", name=name, args=args)
    why = str(r.view.why)
    assert set(r.box.gateway().aliases.values()) == {"hold"}, r.box.gateway().aliases
    assert r.box.running() == [], r.box.running()
    control(r, do="clear")
    r.recover("undo")
    return f"{said}; {why}"[:170]


@fault("memory not released", "stop", "halted", "undone", source="2.3 GPU memory not free", parts="simbox")
def memory_kept(r: Rig) -> str:
    said = halts_then_undone(r, "stop-incumbent:intended", "vram_not_released")
    assert "MiB" in said or "process" in said, said
    return said


@fault("GPU lost", "load", "halted", "undone", source="2.3 GPU lost", parts="simbox")
def gpu_lost(r: Rig) -> str:
    return halts_then_undone(r, "ready:intended", "gpu_lost", gpu="0")


@fault("GPU driver fails as a whole", "stop", "halted", "undone", source="2.3 GPU lost", parts="simbox")
def driver_fault(r: Rig) -> str:
    return halts_then_undone(r, "stop-incumbent:intended", "gpu_driver_fault")


@fault("daemon knows no GPU driver any more", "start", "halted", "undone", source="2.3 GPU lost inside",
       parts="simbox")  # fmt: skip
def no_driver(r: Rig) -> str:
    return halts_then_undone(r, "start:intended", "no_gpu_driver")


@fault("engine answers 401", "load", "undone", source="issue 401 mid-way", parts="simbox")
def locked(r: Rig) -> str:
    """An engine that wants a key which nobody has is never ready."""
    with r.at("start:intended"):
        said = control(r, do="fault", name="unauthorized", args={"next": "1"})
    control(r, do="clear")
    assert "401" in r.view.why or "unauthorized" in r.view.why, r.view.why
    return f"{said}; {r.view.why}"[:170]


@fault("engine dies", "load", "undone", source="issue", parts="simbox")
def dies(r: Rig) -> str:
    with r.at("ready:intended"):
        return control(r, do="fault", name="engine_dies", args={"container": r.candidate().id, "oom": "1"})


@fault("engine answers nothing visible", "gates", "undone", source="2.3 health is 200", parts="simbox")
def no_answer(r: Rig) -> str:
    with r.at("gates:intended"):
        said = control(r, do="fault", name="no_answer", args={"container": r.candidate().id})
    control(r, do="clear")
    failed = [f"{g.id} {g.verdict}" for g in r.view.gates if g.verdict != "passed"]
    return f"{said}; {', '.join(failed)}"
