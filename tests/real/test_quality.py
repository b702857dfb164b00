"""Quality and command gates on a real llama-server: an honest verdict of a very small model, and a real client."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.adapters.command_runner import ChildCommands
from anvil_tui.adapters.engine_http import HttpEngineReader
from anvil_tui.adapters.openai_client import OpenAIClient
from anvil_tui.adapters.sandbox import ChildSandbox
from anvil_tui.core.gates import GateResult, Suite, Verdict
from anvil_tui.service.gates.conductor import Conductor, GateTarget
from anvil_tui.service.gates.session import GateParts
from tests.real.test_gates import NoGpus, ProcessReader, SameSecond, recipe
from tests.support.llama import Llama, llama_server

KEY = "a-real-key"

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def smol(llama_rootfs: Path, models_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Llama]:
    log = tmp_path_factory.mktemp("smol") / "log"
    model = models_dir / "smollm2-135m-instruct-q4_1.gguf"
    with llama_server(llama_rootfs, model, log, context=2048) as made:
        yield made


def run(llama: Llama, folder: Path, **gate: Any) -> GateResult:
    reader: Any = ProcessReader(llama)
    gpus: Any = NoGpus()
    clock = SameSecond()
    parts = GateParts(
        OpenAIClient(time.monotonic), HttpEngineReader(clock), reader, gpus, clock,
        commands=ChildCommands(folder), sandbox=ChildSandbox(),
    )  # fmt: skip
    limits = {"context_tokens": 2048, "max_output_tokens": 256, "concurrency": 1}
    target = GateTarget(
        recipe(envelope=limits, budgets={"visible_tokens": 24}), "c" * 64, llama.url, routed_key=KEY
    )
    suite = Suite.model_validate(
        {"schema": "anvil.suite/1", "id": "s", "gates": ({"id": "g", "timeout_s": 60, **gate},)}
    )
    conductor = Conductor(parts)
    assert conductor.unrunnable(suite, target) == {}
    (result,) = conductor.run(suite, target, lambda e: None, lambda: False)
    return result


def test_smollm2_gets_an_honest_verdict_on_reasoning(smol: Llama, tmp_path: Path) -> None:
    """Nothing is asserted about how clever it is: only that each item was asked, judged and counted."""
    result = run(smol, tmp_path, kind="intelligence", repeat=3)
    assert result.verdict in (Verdict.PASSED, Verdict.FAILED)
    assert (result.of, len(result.observations)) == (3, 3)
    assert result.passed == sum(o.ok for o in result.observations)
    assert result.reason.startswith(f"{result.passed}/3")
    assert all(o.failure is not None for o in result.observations if not o.ok)
    assert all(o.prompt_tokens for o in result.observations)


CLIENT = """
import json, os, sys, urllib.request
url, model = sys.argv[1:]
body = {"model": model, "max_tokens": 8, "messages": [{"role": "user", "content": "Say yes."}]}
head = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["ANVIL_GATEWAY_KEY"]}
sent = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), head)
with urllib.request.urlopen(sent) as got:
    said = json.load(got)
print("sent with", head["Authorization"], file=sys.stderr)
print(json.dumps({"status": got.status, "model": said["model"], "usage": said["usage"]}))
"""


def test_a_client_of_its_own_reaches_a_real_server_with_its_key(smol: Llama, tmp_path: Path) -> None:
    (tmp_path / "client.py").write_text(CLIENT)
    rule = {"status": 200, "model": "tiny", "usage.completion_tokens": {"min": 1, "max": 8}}
    argv = (sys.executable, "client.py", "{base_url}", "{model}")
    result = run(smol, tmp_path, kind="command", argv=argv, env=("ANVIL_GATEWAY_KEY",), json_expect=rule)
    assert result.verdict is Verdict.PASSED, result.reason
    assert 'model = "tiny"' in result.reason
    assert KEY not in json.dumps(asdict(result.observations[0]))
    refused = run(smol, tmp_path, kind="command", argv=("python3", "-c", CLIENT, *argv[2:]), env=("PATH",))
    assert (refused.verdict, "KeyError: 'ANVIL_GATEWAY_KEY'" in refused.reason) == (Verdict.FAILED, True)
