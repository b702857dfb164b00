"""A client on another host: an operation over a real ssh, and what its end says of a host that lets nobody in."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from anvil_tui.adapters.config_files import ConfigFileControl, ConfigFileReader
from anvil_tui.core.clients import Client
from tests.support.membox import World, recipe
from tests.support.sshd import Sshd, sshd

pytestmark = pytest.mark.real
__all__ = ["sshd"]


def test_a_client_on_another_host_converges_until_it_lets_us_in_no_more(sshd: Sshd, tmp_path: Path) -> None:
    sshd.trust()
    world = World(tmp_path, recipe("a"), recipe("b", envelope={"context_tokens": 1024, "concurrency": 2,
                                                              "max_output_tokens": 128}))  # fmt: skip
    assert world.do("promote", recipe="a") == "done"
    file = tmp_path / "over there.json"
    file.write_text('{"models": [{"id": "llm.primary", "contextWindow": 524288}]}\n')
    far = Client.model_validate({
        "name": "far", "host": "mini", "file": str(file), "format": "json", "role": "primary",
        "aliases": ("llm.primary",), "entries": {"models[id={alias}].contextWindow": "{context_tokens}"},
    })  # fmt: skip
    settings = world.box.workspace.model_copy(update={"clients": (far,)})
    world.box = dataclasses.replace(world.box, workspace=settings, files=ConfigFileReader(tmp_path))
    world.controls = dataclasses.replace(world.controls, files=ConfigFileControl(tmp_path, tmp_path / "copies"))

    assert world.do("apply", target="far") == "done"
    assert file.read_text() == '{"models": [{"id": "llm.primary", "contextWindow": 2048}]}\n'
    assert world.plan("apply").refusals == ("nothing to do: every client is converged",)

    sshd.distrust()
    assert world.do("promote", recipe="b") == "done", "a client that cannot be reached stops no switch"
    [end] = [r for r in world.box.operations.journal(world.last).records() if r.kind == "end"]
    assert "client far is not converged: no credential: ssh mini" in json.dumps(end.data["residue"])
    assert "not converged: no credential" in world.plan("apply", target="far").refusals[0]
    assert "2048" in file.read_text()
