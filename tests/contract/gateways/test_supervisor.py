"""What happens to every alias when a restart of the anvil-serving gateway is not brought to its end."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from anvil_tui.adapters.anvil_gateway_run import control_socket, pid_of
from anvil_tui.adapters.haproxy_socket import ask
from anvil_tui.core.box import Gateway
from anvil_tui.core.errors import AnvilError, EffectFailed
from tests.support.fronts import Front, front
from tests.support.wait import wait_until

pytestmark = pytest.mark.real
# The program of anvil.toml: it ends at once while `fail` stands beside it, but not in a trial.
WRAPPER = """#!/bin/sh
case "$*" in *"--port 0") ;; *) [ -e "{folder}/fail" ] && exit 7 ;; esac
exec "{program}" "$@"
"""


@pytest.fixture(scope="module")
def made(keys: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    folder = tmp_path_factory.mktemp("supervised")
    program = folder / "program"
    program.write_text(WRAPPER.format(folder=folder, program=Path(sys.executable).parent / "anvil-serving"))
    program.chmod(0o755)
    with front(folder, "anvil-serving", binary=str(program), drain_timeout_s=60) as running:
        yield running


@pytest.fixture
def gateway(made: Front) -> Front:
    for up in made.ups.values():
        up.go.clear()
    made.home()
    return made


def as_before(gateway: Front, before: Gateway) -> Gateway | None:
    """What it has now, once it is again as it was and all of it is proven by the durable file."""
    try:
        now = gateway.seen()
    except AnvilError:
        return None
    return now if (now.aliases, now.file_equal) == (before.aliases, True) else None


@pytest.mark.parametrize("words", ["restart", "restart 5", "restart {", "no such thing", ""])
def test_words_that_make_no_sense_end_nothing(gateway: Front, words: str) -> None:
    before = gateway.seen()
    assert ask(control_socket(gateway.folder), words) not in ("", "ok")
    assert gateway.seen() == before


def test_a_restart_that_cannot_be_prepared_ends_nothing(gateway: Front) -> None:
    """The file is being edited, or a secret cannot be read: the gateway that runs goes on."""
    before, toml = gateway.seen(), gateway.directory / "anvil.toml"
    whole = toml.read_text()
    try:
        toml.write_text(whole + "half a line = [\n")
        with pytest.raises(EffectFailed, match=r"anvil\.toml:\d+: not TOML"):
            gateway.point(llm_primary="b")
    finally:
        toml.write_text(whole)
    gateway.generation = gateway.seen().generation
    assert (gateway.seen().aliases, gateway.seen().pid) == (before.aliases, before.pid)
    assert as_before(gateway, before) and gateway.ask("other").by == "c"


def test_whoever_dies_while_it_drains_leaves_no_alias_closed(gateway: Front) -> None:
    """Not even those of the other role: nobody may be there to take the operation up."""
    before = gateway.seen()
    argv = (sys.executable, "-m", "anvil_tui.cli.main", "--workspace", str(gateway.directory))
    toml = gateway.directory / "anvil.toml"
    whole = toml.read_text()
    with gateway.stream("other") as stream:
        assert stream.begun.wait(20)
        try:
            toml.write_text(whole.replace('"llm.fast"]', '"llm.fast", "llm.new"]'))
            install = subprocess.Popen(
                (*argv, "gateway", "install", "--yes"), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            wait_until(lambda: set(gateway.seen().aliases.values()) == {"hold"}, "every alias is closed")
            install.kill()
            install.wait(20)
        finally:
            toml.write_text(whole)
        after = wait_until(lambda: as_before(gateway, before), "every alias is open again")
        assert (after.pid, stream.over) == (before.pid, False)
        assert gateway.ask("llm.primary").by == "a"
        gateway.ups["c"].go.set()
        assert stream.end().by == "c"


def test_a_gateway_that_does_not_come_up_is_put_back_and_tried_again(gateway: Front) -> None:
    before, fail = gateway.seen(), gateway.directory / "fail"
    fail.touch()
    try:
        with pytest.raises(EffectFailed, match="did not start anew: it ended at once, exit code 7"):
            gateway.point(llm_primary="b")
        assert (pid_of(gateway.folder), gateway.control.would_interrupt()) == (None, "")
        routes = json.loads((gateway.folder / "routes.json").read_text())
        assert routes["aliases"]["llm.primary"] == {"target": "a", "at": "a"}
        with pytest.raises(EffectFailed, match="exit code 7"):
            gateway.control.install()
    finally:
        fail.unlink()
    wait_until(lambda: as_before(gateway, before), "it runs again")
    assert [gateway.ask(a).by for a in ("llm.primary", "other")] == ["a", "c"]
