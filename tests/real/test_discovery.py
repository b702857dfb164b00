"""A box without a workspace, with a llama.cpp that somebody else started: it is found, and becomes a workspace."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anvil_tui.adapters.clock import SystemClock
from anvil_tui.adapters.engine_http import HttpEngineReader
from anvil_tui.adapters.toml_files import load_recipe, load_workspace
from anvil_tui.cli.adopting import init
from anvil_tui.cli.main import main
from anvil_tui.cli.wiring import open_box
from anvil_tui.core.errors import BadFile
from anvil_tui.core.plan import Intent
from anvil_tui.core.shape import changed, shape_of, write
from anvil_tui.ports import ContainerSpec
from anvil_tui.service.planning import plan
from tests.pty.terminal_process import TerminalProcess
from tests.real.fixtures import RealDocker
from tests.real.workspace import KEY, running_gateway
from tests.support.docker_box import LLAMA, MODEL, Box, free_port
from tests.support.wait import wait_until

pytestmark = pytest.mark.real
Ask = Callable[..., str]


@pytest.fixture(scope="module")
def theirs(real_docker: RealDocker, llama_image: str, models_dir: Path) -> Iterator[tuple[Box, str, int]]:
    """As `docker run` would start it: their labels, their variables, no word of ours; and a plain container."""
    box, port = Box(real_docker.url, llama_image, models_dir), free_port()
    made = box.raw.create_container(
        llama_image, name="their-llama", labels={"team": "search"}, stop_timeout=7,
        command=["-m", MODEL, "--host", "127.0.0.1", "--port", str(port), "-t", "1", "-c", "2048", "-np", "2",
                 "--metrics", "--alias", "their-model"],
        environment={"LLAMA_ARG_NO_WARMUP": "1", "HF_TOKEN": "hf_" + "a1" * 16},
        host_config=box.raw.create_host_config(
            network_mode="host", binds=[f"{models_dir}:/models:ro"], restart_policy={"Name": "unless-stopped"},
            mem_limit=1 << 30, cap_add=["SYS_NICE"],
        ),
    )  # fmt: skip
    box.ids.append(made["Id"])
    box.raw.start(made["Id"])
    box.foreign("while true; do sleep 1; done")
    reader = HttpEngineReader(SystemClock())
    try:
        wait_until(lambda: reader.read(LLAMA, port).http == "ready", "their engine is ready", 60)
        yield box, made["Id"], port
    finally:
        box.close()


@pytest.fixture
def ask(
    theirs: tuple[Box, str, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Ask:
    """A verb as typed in an empty folder of a person whose Docker this is; its standard output."""
    monkeypatch.setenv("DOCKER_HOST", theirs[0].url)
    monkeypatch.delenv("ANVIL_TUI_WORKSPACE", raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*argv: str) -> str:
        assert main(argv) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return run


def test_status_without_a_workspace_shows_the_engine_that_runs(
    theirs: tuple[Box, str, int], ask: Ask, tmp_path: Path
) -> None:
    _, container_id, port = theirs
    told = json.loads(ask("status", "--json"))
    [serve] = told["serves"]
    assert serve["container"]["id"] == container_id
    assert serve["phase"] == "ready"
    assert serve["position"] == "foreign"
    engine = serve["engine"]["value"]
    assert (engine["kind"], engine["served"], engine["slots"]) == ("llamacpp", ["their-model"], 2)
    assert (engine["running"], engine["waiting"]) == (0, 0)
    assert f"llamacpp on 127.0.0.1:{port}" in serve["why"]
    assert "no workspace" in told["gateway"]["reason"]
    assert list(tmp_path.iterdir()) == []


def test_the_console_opens_on_it_and_follows_its_log(theirs: tuple[Box, str, int], tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TERM": "xterm-256color", "LANG": "C.UTF-8",
           "DOCKER_HOST": theirs[0].url}  # fmt: skip
    here = "import os, sys; os.chdir(sys.argv.pop()); from anvil_tui.cli.main import main; sys.exit(main([]))"
    terminal = TerminalProcess(["-c", here, str(tmp_path)], env, (160, 50))
    try:
        terminal.until(b"serves their-model", 60)
        terminal.until(f"listening on http://127.0.0.1:{theirs[2]}".encode(), 60)
        assert b"NO WORKSPACE" in terminal.words
        terminal.press(b"q")
        code, _ = terminal.wait(20)
        assert code == 0, terminal.words[-2000:]
    finally:
        if terminal.alive():
            terminal.kill(9)


def test_init_writes_a_workspace_that_is_what_runs_and_works(
    theirs: tuple[Box, str, int], ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, container_id, port = theirs
    folder = tmp_path / "made"
    said = ask("init", "made")
    [path] = (folder / "recipes").glob("*.toml")
    recipe, workspace = load_recipe(path), load_workspace(folder)
    assert recipe.loadable, recipe.not_loadable_because
    assert recipe.decision is None
    assert (recipe.image.ref, recipe.served_name) == (box.image, "their-model")
    assert (recipe.envelope.context_tokens, recipe.envelope.concurrency) == (1024, 2)
    assert (recipe.launch.memory_limit_mib, recipe.launch.stop_grace_s) == (1024, 7)
    assert recipe.launch.env == {"LLAMA_ARG_NO_WARMUP": "1"}
    assert port in [s.port for s in workspace.roles[0].slots]
    for text in (said, path.read_text()):
        assert "HF_TOKEN holds a secret" in text
        assert "SYS_NICE" in text
        assert "unless-stopped" in text
        assert "a1a1a1" not in text
    there = box.reader.inspect(container_id)
    ours = box.create(
        ContainerSpec(
            name="ours", image_ref=recipe.image.ref, argv=recipe.filled_argv(port), env=recipe.launch.env,
            mounts=tuple((m.source, m.target, m.read_only) for m in recipe.launch.mounts),
            memory_limit_mib=recipe.launch.memory_limit_mib, labels={"anvil.op": "o", "anvil.recipe": recipe.id},
        )
    )  # fmt: skip
    differs = changed(write(shape_of(box.reader.inspect(ours))), there)
    assert set(differs) == {"env", "labels", "restart"}
    assert all(f"differs in {name}:" in said for name in differs)

    (folder / "state" / "client.key").write_text(KEY)
    monkeypatch.chdir(folder)
    assert ask("recipes", "check").startswith("1 of 1 recipes good, 0 bad suites")
    assert "undecided" in ask("recipes")
    with running_gateway(folder):
        told = json.loads(ask("status", "--json"))
        assert told["gateway"]["state"] == "known"
        real = open_box(folder)
        try:
            promotion = plan(real, Intent("promote", recipe=recipe.id))
        finally:
            real.gpus.close()
    assert promotion.refusals == ()
    assert [s.deed for s in promotion.steps][:2] == ["create", "start"]


def test_init_never_overwrites(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "anvil.toml").write_text("mine")
    with pytest.raises(BadFile, match=r"already holds anvil\.toml"):
        init(argparse.Namespace(directory=tmp_path, bare=True, json=False, read_only=False))
    assert (tmp_path / "anvil.toml").read_text() == "mine"
