"""O-74 and its kind: secrets are planted wherever one may come from, and looked for in all that comes out."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import quote

import psutil
import pytest

from anvil_tui.adapters.box_file import BoxFile
from anvil_tui.adapters.docker_engine import DockerControl, DockerReader
from anvil_tui.cli.main import main
from anvil_tui.ports import ContainerSpec
from tests.e2e.test_demo import Demo
from tests.pty.terminal_process import TerminalProcess

pytestmark = pytest.mark.real

SHELL = "planted-shell-value-4247"
PLANTED = {
    "engine log api_key": "-".join(("sk", "planted", "logkey", "0123456789")),
    "engine log hf_token": "_".join(("hf", "PlantedLogTokenAbCdEf0123456789")),
    "engine log bearer": "planted.bearer.value-77",
    "container argv": "planted-argv-key-4242",
    "container env": "planted-env-token-4243",
    "daemon error variable": "planted-daemon-key-4244",
    "daemon error URL": "planted-url-pass-4245",
    "TOML line": "_".join(("hf", "PlantedTomlTokenAbCdEf0123456789")),
    "command output": "planted-cmd-out-4246",
    "operator's shell": SHELL,
}
LOG = (
    "PLANTEDLINE non-default args: {{'api_key': ['{engine log api_key}'], 'hf_token': '{engine log hf_token}'}} "
    "Authorization: Bearer {engine log bearer}"
)
DAEMON = (
    "PLANTEDWORDS invalid VLLM_API_KEY={daemon error variable} at https://u:{daemon error URL}@registry.example/v2"
)
SUITE = """schema = "anvil.suite/1"
id = "planted"
[[gates]]
id = "said"
kind = "command"
argv = ["./say.sh"]
"""
SAY = """#!/bin/sh
echo "PLANTEDSAID api_key={}"
cat state/secrets/client.key >&2
exit 1
"""


@dataclass
class Found:
    """`out` is what came out, by where; `arguments` and `environments` those of every process seen."""

    demo: Demo
    out: dict[str, bytes] = field(default_factory=dict)
    arguments: set[str] = field(default_factory=set)
    environments: dict[str, str] = field(default_factory=dict)

    def command(self, *words: str) -> str:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main(["--workspace", str(self.demo.folder), *words])
        text = out.getvalue() + err.getvalue()
        self.out[f"{len(self.out)}: {' '.join(words)}"] = text.encode()
        return text

    def fault(self, name: str, **args: str) -> None:
        reader = self.demo.workspace.gpus.reader
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(reader[reader.index("--socket") + 1])
            link.sendall(json.dumps({"do": "fault", "name": name, "args": args}).encode() + b"\n")
            reply = json.loads(link.makefile("rb").readline())
        assert reply["ok"], reply

    def watch(self, over: threading.Event) -> None:
        while not over.wait(0.01):
            for child in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    words = " ".join(child.cmdline())
                    self.arguments.add(words)
                    self.environments[words] = json.dumps(child.environ())


def forms(secret: str) -> dict[str, bytes]:
    raw = secret.encode()
    return {
        "as it is": raw, "quoted": quote(secret, safe="").encode(), "JSON": json.dumps(secret)[1:-1].encode(),
        "base64": base64.b64encode(raw), "half of it": raw[: len(raw) // 2 + 1],
    }  # fmt: skip


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Found]:
    made = Found(Demo(tmp_path_factory.mktemp("planted")))
    over = threading.Event()
    watching = threading.Thread(target=made.watch, args=(over,))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPERATORS_OWN", SHELL)
        watching.start()
        try:
            plant(made)
            look(made)
            yield made
        finally:
            over.set()
            watching.join(10)
            made.demo.process.terminate()
            made.demo.process.communicate(timeout=60)


def plant(made: Found) -> None:
    folder, url = made.demo.folder, made.demo.workspace.containers.url
    (folder / "recipes" / "planted.toml").write_text(
        f'schema = "anvil.recipe/1"\nhf_token = "{PLANTED["TOML line"]}\n'
    )
    (folder / "gates" / "planted.toml").write_text(SUITE)
    (folder / "say.sh").write_text(SAY.format(PLANTED["command output"]))
    (folder / "say.sh").chmod(0o755)
    serving = BoxFile(folder / "state").read().roles["primary"].incumbent
    made.command("qualify", made.demo.incumbent(), "--suite", "planted", "--yes")
    made.fault("start_fails", text=DAEMON.format(**PLANTED) + f" {made.demo.key}")
    made.command("promote", "glm53-393k-c1", "--role", "primary", "--yes")
    reader, control = DockerReader(url, 10), DockerControl(url, 10)
    argv, env = ("serve", "--api-key", PLANTED["container argv"]), {"HF_TOKEN": PLANTED["container env"]}
    stranger = control.create(ContainerSpec("stranger", reader.list()[0].image_ref, argv, env=env))
    made.out["what every pane and record knows of a container"] = repr(reader.inspect(stranger)).encode()
    made.fault("engine_dies", text=LOG.format(**PLANTED) + f" {made.demo.key}", container=serving)


def look(made: Found) -> None:
    for words in ("status", "status --json", "doctor", "credentials --json", "operations list --json",
                  "recipes check", "evidence list --json"):  # fmt: skip
        made.command(*words.split())
    operations = sorted(p.name for p in (made.demo.folder / "state" / "operations").iterdir())
    for operation in operations:
        made.command("operations", "show", operation)
    made.command("evidence", "show", operations[0])
    made.command("evidence", "report", operations[0], "--html")
    made.out["console"] = console(made)
    for path in made.demo.folder.rglob("*"):
        planted_by_us = path.name in ("planted.toml", "say.sh", "client.key")
        if path.is_file() and not planted_by_us and path.stat().st_size < 4_000_000:
            made.out[str(path.relative_to(made.demo.folder))] = path.read_bytes()


def console(made: Found) -> bytes:
    """Every screen, the details of what is selected, the log on the whole screen, and a copy (OSC 52)."""
    env = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    argv = ["-m", "anvil_tui.cli.main", "--workspace", str(made.demo.folder)]
    terminal = TerminalProcess(argv, env, (280, 50))
    try:
        terminal.until(b"qualify", 30)
        screens = (b"\r", b"\x1b", b"y", b"2", b"\r", b"\x1b", b"3", b"\r", b"\x1b", b"4", b"6", b"?", b"\x1b")
        serves = (b"1", b"\r", b"\x1b", b"5", b"1", b"\x1b[B") * 2
        for keys in (*screens, *serves):
            terminal.press(keys)
            terminal.read(0.2)
        terminal.press(b"q")
        terminal.read(1.0)
        return bytes(terminal.out) + terminal.words
    finally:
        if terminal.alive():
            terminal.kill(9)


def test_what_was_planted_did_arrive(found: Found) -> None:
    """Else nothing would be proven: the lines are there, with the secrets masked."""
    everything = b"\n".join(found.out.values())
    for mark in (b"PLANTEDLINE", b"PLANTEDWORDS", b"PLANTEDSAID"):
        at = [where for where, text in found.out.items() if mark in text]
        assert at, mark
    for mark in (b"stranger", b"planted.toml", b"'--api-key', '***'", b"HF_TOKEN"):
        assert mark in everything, mark
    assert b"PLANTEDLINE" in found.out["console"], "its pane was open"
    assert any("operate" in words for words in found.arguments)


@pytest.mark.parametrize("kind", [*PLANTED, "client key"])
def test_no_output_holds_it_in_any_form(found: Found, kind: str) -> None:
    secret = found.demo.key if kind == "client key" else PLANTED[kind]
    leaks = [
        f"{where} ({form})"
        for where, text in found.out.items()
        for form, raw in forms(secret).items() if raw in text
    ]  # fmt: skip
    assert not leaks, leaks


def test_no_process_was_started_with_a_secret(found: Found) -> None:
    secrets = {**PLANTED, "client key": found.demo.key}
    assert not [(w, k) for w in found.arguments for k, s in secrets.items() if s in w]
    # The console and the demo itself were started by hand, in the operator's own shell.
    inherited = [w for w, env in found.environments.items() if SHELL in env and "--workspace" not in w]
    assert not inherited
    assert not [w for w, env in found.environments.items() if found.demo.key in env]
