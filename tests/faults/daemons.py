"""Faults of Docker Engine and of HAProxy, and of what they share with other hands."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

from anvil_tui.adapters.haproxy_socket import ask
from tests.faults.matrix import fault
from tests.faults.rig import Rig
from tests.real.client_loop import ask as ask_engine
from tests.support.wait import wait_until

RESTARTS = "a gateway that restarts drops what it holds"


# Docker Engine


@fault("dockerd restarted", "stop", "done", source="issue", serves="candidate")
def dockerd_before_the_stop(r: Rig) -> str:
    """The incumbent ends with the daemon, drained and held: that is what the step wanted."""
    with r.at("stop-incumbent:intended"):
        return restart(r)


@fault("dockerd restarted", "start", "done", source="issue", serves="candidate")
def dockerd_before_the_start(r: Rig) -> str:
    with r.at("start:intended"):
        return restart(r)


@fault("dockerd restarted", "gates", "undone", source="issue")
def dockerd_in_the_gates(r: Rig) -> str:
    with r.at("gates:intended"):
        return restart(r)


@fault("dockerd killed, away for a while", "start", "done", source="issue", serves="candidate")
def dockerd_away(r: Rig) -> str:
    with r.at("start:intended"):
        r.docker.kill()
        later = threading.Timer(1.5, r.docker.start)
        later.start()
        old = r.docker.socket
    later.join()
    assert "asking again" in r.journal_text() or "no answer" in r.journal_text(), "nobody noticed"
    return f"{old.name} was gone for 1.5 s; the operation asked again"


@fault("dockerd hangs", "stop", "done", source="issue", serves="candidate")
def dockerd_hangs(r: Rig) -> str:
    with r.at("stop-incumbent:intended"):
        pid = r.docker.pid
        os.kill(pid, signal.SIGSTOP)
        later = threading.Timer(2, os.kill, (pid, signal.SIGCONT))
        later.start()
        began = time.monotonic()
    later.join()
    assert time.monotonic() - began >= 2, "nothing waited for it"
    return "dockerd stood still for 2 s"


def restart(r: Rig) -> str:
    before = r.docker.pid
    r.docker.restart()
    after = r.docker.pid
    assert before != after
    return f"dockerd {before} -> {after}"


# HAProxy


@fault("HAProxy restarted", "drain", "done", source="2.1 quiesce lost", serves="candidate",
       cut=RESTARTS)  # fmt: skip
def haproxy_while_held(r: Rig) -> str:
    with r.at("hold:after"):
        evidence = restart_gateway(r)
        assert set(r.box.gateway().aliases.values()) == {"hold"}, "the hold was lost"
    return evidence


@fault("HAProxy restarted", "flip", "done", source="2.1, 2.3 config install half done", serves="candidate",
       cut=RESTARTS)  # fmt: skip
def haproxy_between(r: Rig) -> str:
    """Between the durable half and the running half of the flip."""
    with r.at("flip:gateway:between"):
        return restart_gateway(r)


@fault("HAProxy down", "plan", "refused", source="issue", cut=RESTARTS)
def haproxy_down(r: Rig) -> str:
    with r.cutting():
        r.gateway.down()
        made = r.box.anvil("promote", r.other, "--suite", r.suite, "--yes")
        r.gateway.up()
    assert made.returncode == 4, f"exit {made.returncode}: {made.stdout}{made.stderr}"
    r.outcomes.append("refused")
    return made.stderr.strip()[:110]


@fault("HAProxy reloaded by another hand", "gates", "done", source="2.1", serves="candidate", shape="spare")
def haproxy_reloaded(r: Rig) -> str:
    with r.at("gates:intended"):
        before = r.box.gateway().pid
        os.kill(r.gateway.pid, signal.SIGUSR2)
        after = wait_until(lambda: new_pid(r, before), "a new worker listens")
    return f"worker {before} -> {after}"


@fault("HAProxy refuses the file", "install", "exit 3", source="issue")
def haproxy_refuses(r: Rig) -> str:
    """An address that this host does not have: HAProxy's own check passes, ours does not; the old one goes on."""
    before = r.box.gateway()
    config = r.state / "gateway" / "haproxy.cfg"
    text = config.read_text()
    back = r.change(r.box.dir / "anvil.toml", lambda t: t.replace(r.box.workspace.gateway.bind, "192.0.2.9:9999"))
    try:
        ran = r.box.anvil("gateway", "install")
    finally:
        back()
    r.outcomes.append(f"exit {ran.returncode}")
    assert config.read_text() == text, "the refused file was left in place"
    assert r.box.gateway().aliases == before.aliases
    return (ran.stderr or ran.stdout).strip()[-110:]


@fault("another hand changes the running map", "gates", "done", source="2.4 restored configuration", shape="spare",
       serves="candidate")  # fmt: skip
def map_changed(r: Rig) -> str:
    with r.at("gates:intended"):
        ask(r.state / "gateway" / "cli.sock", "set map alias.map __gen 1")
        assert r.box.gateway().generation == 1 and not r.box.gateway().file_equal, "the running map is as it was"
    return "the running map's generation was set back to 1"


@fault("alias file damaged", "plan", "refused", source="2.1 corrupt intent file")
def map_damaged(r: Rig) -> str:
    path = r.state / "gateway" / "alias.map"
    good = path.read_text()
    path.write_text(good[: len(good) // 2])
    text = r.refused(r.intent())
    ran = r.box.anvil("gateway", "install")
    assert ran.returncode == 0, ran.stderr
    for kept in path.parent.glob("alias.map.corrupt-*"):
        assert kept.read_text() == good[: len(good) // 2]
        kept.unlink()
    return text[:110]


def restart_gateway(r: Rig) -> str:
    before = r.box.gateway().pid
    with r.cutting():
        r.gateway.restart()
        after = r.box.gateway().pid
    assert before != after
    return f"HAProxy worker {before} -> {after}"


def new_pid(r: Rig, before: int | None) -> int | None:
    now = r.box.gateway().pid
    return now if now != before else None


# drain


@contextlib.contextmanager
def long_stream(r: Rig, tokens: int) -> Iterator[Callable[[], str]]:
    """A stream through the gateway that takes a while; the call joins it and gives its error, "" = whole."""
    key, found = (r.state / "client.key").read_text().strip(), dict[str, object]()

    def work() -> None:
        found.update(ask_engine(r.box.workspace.gateway.bind, key, 0, tokens, endless=True))

    slot = r.box.gateway().aliases["llm.primary"]
    thread = threading.Thread(target=work)
    thread.start()

    def result() -> str:
        thread.join(90)
        return str(found["error"])

    try:
        wait_until(lambda: (r.box.gateway().backend(slot) or None) and _in_flight(r, slot), "the stream runs")
        yield result
    finally:
        thread.join(90)


def _in_flight(r: Rig, slot: str) -> int:
    backend = r.box.gateway().backend(slot)
    return (backend.in_flight or 0) if backend else 0


@fault("stream longer than the drain", "drain", "undone", source="2.2 stream longer than the drain")
def drain_too_short(r: Rig) -> str:
    with long_stream(r, 300) as result:
        r.run(r.intent(timeout_s=1))
        assert "drain_timeout" in r.view.why, r.view.why
        assert result() == "", f"the stream was harmed: {result()}"
    return str(r.view.why)[:110]


@fault("stream longer than the drain, sever", "drain", "done", source="2.2", serves="candidate",
       cut="severed requests, announced")  # fmt: skip
def severed(r: Rig) -> str:
    with r.cutting(), long_stream(r, 700) as result:
        r.run(r.intent(timeout_s=1, on_timeout="sever"))
        assert result() != "", "the stream was not cut"
    rows = [json.loads(line)["data"] for line in r.journal_text().splitlines()]
    cut = [row["severed"] for row in rows if row.get("severed")]
    assert cut, "the journal does not list what was cut"
    return f"{len(cut[-1])} cut and listed: {cut[-1][0]}"[:110]


@fault("requests in a worker that a reload left", "drain", "done", source="2.2 in-flight in an old process",
       serves="candidate")  # fmt: skip
def old_worker(r: Rig) -> str:
    with long_stream(r, 200) as result:
        before = r.box.gateway().pid
        os.kill(r.gateway.pid, signal.SIGUSR2)
        after = wait_until(lambda: new_pid(r, before), "a new worker listens")
        r.run(r.intent(timeout_s=90))
        assert result() == "", f"the stream was harmed: {result()}"
    return f"worker {before} -> {after}; its stream was waited for"


@fault("second operator", "drain", "done", source="2.1 two operators", serves="candidate")
def second_operator(r: Rig) -> str:
    with r.at("drain:intended") as operation:
        ran = r.box.anvil("quiesce", "primary", "--yes")
    assert ran.returncode == 3 and operation in ran.stderr + ran.stdout, f"{ran.returncode} {ran.stderr}"
    return (ran.stderr or ran.stdout).strip()[:110]


@fault("quiesced, then HAProxy restarted", "quiesce", "done", "done", source="2.1 quiesce lost", cut=RESTARTS)
def quiesce_survives(r: Rig) -> str:
    r.run({"verb": "quiesce", "role": "primary"})
    evidence = restart_gateway(r)
    assert set(r.box.gateway().aliases.values()) == {"hold"}, "the quiesce was lost"
    r.run({"verb": "readmit", "role": "primary"})
    return evidence


@fault("more requests than the engine has slots", "quiesce", "done", "done", source="2.1 queued requests")
def queued(r: Rig) -> str:
    """Four streams on two slots of the engine, then quiesce: what was admitted is answered, queued ones too."""
    with contextlib.ExitStack() as streams:
        results = [streams.enter_context(long_stream(r, 60)) for _ in range(4)]
        r.run({"verb": "quiesce", "role": "primary"})
        said = [result() for result in results]
        assert said == ["", "", "", ""], said
        r.run({"verb": "readmit", "role": "primary"})
    return "4 streams on 2 slots were answered"
