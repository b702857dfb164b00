"""Faults of engines and containers, on Docker Engine and llama.cpp."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import urllib.request
from collections.abc import Iterator

import psutil

from anvil_tui.adapters.docker_engine import DockerControl
from anvil_tui.core.box import MIB
from tests.faults.matrix import fault
from tests.faults.rig import Rig
from tests.support.wait import wait_until

DEAD_SERVES = "requests to a serve that died are answered 503 until the aliases are held again"
DEAD_STREAMS = "the streams of the engine that dies"


# the engine dies, in each phase


@fault("engine dies", "load", "undone", source="issue")
def dies_loading(r: Rig) -> str:
    with r.at("ready:intended"):
        return r.kill_engine(r.candidate())


@fault("engine dies", "gates", "undone", source="issue")
def dies_in_the_gates(r: Rig) -> str:
    with r.at("gates:intended"):
        return r.kill_engine(r.candidate())


@fault("engine dies", "after decide", "undone", source="issue")
def dies_decided(r: Rig) -> str:
    """Nobody is told: the aliases do not move to an engine that is gone."""
    with r.at("decide:after"):
        evidence = r.kill_engine(r.candidate())
    assert '"way": "undo"' in r.journal_text(), "there is no second decision"
    return evidence


@fault("engine dies", "verify", "undone", source="issue", cut=DEAD_SERVES)
def dies_verifying(r: Rig) -> str:
    with r.cutting(), r.at("verify:intended"):
        return r.kill_engine(r.candidate())


@fault("incumbent dies", "drain", "done", source="issue", serves="candidate", cut=DEAD_STREAMS)
def dies_draining(r: Rig) -> str:
    with r.cutting(), r.at("drain:intended"):
        return r.kill_engine(r.incumbent())


@fault("engine dies again on the way back", "undo", "halted", "undone", source="2.4 rollback loops")
def undo_fails_twice(r: Rig) -> str:
    """At most one automatic undo: the port of the incumbent is somebody else's, so it is not started into that."""
    with r.at("undo:start-incumbent:intended", r.intent("tiny-dead")):
        taken = socket.create_server(("127.0.0.1", r.box.record().serves[r.incumbent().id].port))
    text = r.view.why
    assert set(r.box.gateway().aliases.values()) == {"hold"}, r.box.gateway().aliases
    taken.close()
    r.recover("undo")
    assert "failed twice" in text, text
    return text[:110]


# engines that lie


@fault("wedged engine, health 200", "load", "undone", source="2.3 health is 200 but nothing generates")
def wedged(r: Rig) -> str:
    """Both slots of the candidate are taken for good, so that a completion waits while /health says 200."""
    with contextlib.ExitStack() as busy, r.at("ready:intended", r.intent("tiny-hasty")):
        port = slot_port(r)
        wait_until(lambda: _health(port) == 200, "the candidate is healthy")
        for _ in range(2):
            busy.enter_context(_endless(port))
        wait_until(lambda: _slots_busy(port) == 2, "both slots are busy")
        said = f"/health {_health(port)} with {_slots_busy(port)} slots taken for good"
    assert "start_timeout" in r.view.why or "completion" in r.view.why, r.view.why
    return said


def slot_port(r: Rig) -> int:
    """The port of the slot that the operation's candidate has."""
    plan = json.loads((r.state / "operations" / r.operation / "plan.json").read_text())
    return int(next(s["args"]["port"] for s in plan["steps"] if s["deed"] == "create"))


def _get(port: int, path: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read()
    except OSError:
        return 0, b""


def _health(port: int) -> int:
    return _get(port, "/health")[0]


def _slots_busy(port: int) -> int:
    text = _get(port, "/metrics")[1].decode()
    found = [line for line in text.splitlines() if line.startswith("llamacpp:requests_processing ")]
    return int(float(found[0].split()[1])) if found else 0


@contextlib.contextmanager
def _endless(port: int) -> Iterator[None]:
    """A direct request that never ends by itself, read by nobody."""
    body = json.dumps(
        {"prompt": "1 2 3", "n_predict": -1, "ignore_eos": True, "stream": True, "cache_prompt": False}
    )
    with socket.create_connection(("127.0.0.1", port), 5) as link:
        head = f"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}"
        link.sendall(f"{head}\r\n\r\n{body}".encode())
        yield


@fault("candidate with a wrong identity", "load", "undone", source="issue")
def wrong_name(r: Rig) -> str:
    r.run(r.intent("tiny-other-name"))
    assert "identity_mismatch" in r.view.why, r.view.why
    return str(r.view.why)[:110]


@fault("candidate with a smaller context", "load", "undone", source="issue")
def wrong_context(r: Rig) -> str:
    r.run(r.intent("tiny-small-context"))
    assert "identity_mismatch: context" in r.view.why, r.view.why
    return str(r.view.why)[:110]


@fault("engine ignores SIGTERM", "stop", "done", source="2.2 process ignores SIGTERM", serves="candidate")
def deaf(r: Rig) -> str:
    with r.at("stop-incumbent:intended"):
        old = r.incumbent()
        process = r.engine_process(old)
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: process.status() == "stopped", "the engine is stopped")
    code = r.box.docker.inspect(old.id).exit_code
    assert code == 137, f"exit code {code}"
    return f"{old.name} was killed after its grace, exit code {code}"


@fault("memory limit kills the engine", "load", "undone", source="issue host memory low")
def out_of_memory(r: Rig) -> str:
    r.run(r.intent("tiny-starved"))
    assert "OOM-killed" in r.view.why, r.view.why
    return str(r.view.why)[:110]


@fault("host memory low", "gates", "undone", source="issue host memory low")
def host_memory(r: Rig) -> str:
    """Another program takes 2 GiB of the host; the gate's floor lies 1 GiB below what was free before."""
    suite = r.box.dir / "gates" / "memory.toml"
    floor = psutil.virtual_memory().available // MIB - 1024
    suite.write_text(re.sub(r"(?m)^free_at_least_mib = .*$", f"free_at_least_mib = {floor}", suite.read_text()))
    with r.at("gates:intended", r.intent(suite="memory")):
        taken = bytearray(os.urandom(MIB)) * 2048
    del taken
    verdicts = {g.id: (g.verdict, g.reason) for g in r.view.gates}
    assert verdicts["host-memory"][0] == "failed", verdicts
    return str(verdicts["host-memory"][1])[:110]


# names, images, ports


@fault("stranger takes the new name", "create", "undone", source="2.3 same name, other container")
def name_taken(r: Rig) -> str:
    with r.at("create:intended"):
        made = r.stranger(f"anvil-{r.other}-{r.operation.split('-')[0][4:].lower()}")
    assert r.box.docker.inspect(made).status == "created", "the stranger was touched"
    assert "belongs to container" in r.view.why, r.view.why
    return str(r.view.why)[-110:]


@fault("stranger has the incumbent's name", "stop", "done", source="2.3 same name, other container",
       serves="candidate")  # fmt: skip
def incumbents_name_taken(r: Rig) -> str:
    with r.at("stop-incumbent:intended"):
        old = r.incumbent()
        with r.api() as api:
            api.api.rename(old.id, f"{old.name}-moved")
        made = r.stranger(old.name)
        with r.api() as api:
            api.api.start(made)
    assert r.box.docker.inspect(made).running, "the stranger was stopped"
    assert not r.box.docker.inspect(old.id).running, "the incumbent runs"
    return f"{old.name} is {made[:12]} and runs; {old.id[:12]} was stopped"


@fault("image tag moved", "create", "done", source="issue", serves="candidate")
def tag_moved(r: Rig) -> str:
    """The pin decides, not the tag, which is another image from here on."""
    with r.at("create:intended"), r.api() as api:
        wanted = r.incumbent().image_id
        moved = api.containers.get(r.incumbent().id).commit(
            "127.0.0.1:5000/anvil/llama", "1", changes=["ENV MOVED=1"]
        )
        assert api.images.get("127.0.0.1:5000/anvil/llama:1").id == moved.id != wanted
    with r.api() as api:
        api.images.remove("127.0.0.1:5000/anvil/llama:1")
    assert r.candidate().image_id == wanted, r.candidate().image_id
    return f"the tag was {moved.id[7:19]}, the candidate runs {wanted[7:19]}"


@fault("image gone, registry without it", "pull", "undone", source="2.3 rollback not startable")
def image_gone(r: Rig) -> str:
    r.run(r.intent("tiny-no-image"))
    hold = r.view.step("hold")
    assert hold is None or hold.state == "pending", "traffic was held"
    return str(r.view.why)[:110]


@fault("port taken", "start", "undone", source="2.3 port still bound")
def port_taken(r: Rig) -> str:
    with r.at("create:intended"):
        port = slot_port(r)
        taken = socket.create_server(("127.0.0.1", port))
    taken.close()
    assert str(port) in r.view.why, r.view.why
    return str(r.view.why)[:110]


@fault("incumbent would resurrect", "plan", "refused", source="2.3 incumbents resurrect")
def resurrects(r: Rig) -> str:
    with r.api() as api:
        api.containers.get(r.incumbent().id).update(restart_policy={"Name": "always"})
        text = r.refused(r.intent())
        api.containers.get(r.incumbent().id).update(restart_policy={"Name": "no"})
    assert "always" in text, text
    return text[:110]


@fault("way back is gone", "undo", "halted", source="2.4 rollback kills the only healthy copy", serves="candidate",
       cut="held until the person has decided")  # fmt: skip
def way_back_gone(r: Rig) -> str:
    """The incumbent's container was removed meanwhile: what runs is not stopped, and a person decides."""
    with r.at("gates:intended", r.intent(suite="strict")):
        DockerControl(r.box.workspace.containers.url).remove(r.incumbent().id)
    made = r.candidate()
    assert made.running, "the only engine that runs was stopped"
    assert any(made.id[:12] in text for text in r.view.residue), r.view.residue
    said = str(r.view.why)[:110]
    adopt(r)
    return said


def adopt(r: Rig) -> None:
    """What the person does then: take the stray away, accept, waive what is gone, and promote anew.

    The waiver goes with the row.
    """
    control, waivers = DockerControl(r.box.workspace.containers.url), r.state / "waivers.ndjson"
    before = waivers.read_bytes() if waivers.exists() else b""
    with r.cutting():
        control.stop(r.candidate().id, 5)
        control.remove(r.candidate().id)
        assert r.box.anvil("operations", "accept", r.operation, "--reason", "seen to").returncode == 0
        told, r.outcomes = list(r.outcomes), []
        for check in re.findall(r"--way-back (\S+)", r.refused(r.intent())):
            assert r.box.anvil("waive", r.now, "--way-back", check, "--reason", "it is gone").returncode == 0
        assert r.run(r.intent()) == "done"
        r.outcomes = told
    waivers.write_bytes(before)


@fault("rollback's container is gone", "plan", "refused", source="2.4 target gone", serves="candidate")
def target_gone(r: Rig) -> str:
    kept = r.incumbent().id
    assert r.run(r.intent()) == "done"
    r.outcomes = []
    DockerControl(r.box.workspace.containers.url).remove(kept)
    text = r.refused({"verb": "rollback", "role": "primary", "suite": r.suite})
    assert kept[:12] in text, text
    return text[:110]
