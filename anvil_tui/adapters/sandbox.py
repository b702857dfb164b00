"""Tries queries and patterns that a model wrote in a child that can be killed and is limited in all it may use."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from anvil_tui.adapters import sandbox_child
from anvil_tui.core.errors import EffectFailed
from anvil_tui.ports import Trial

# The child's own limit is two seconds of computing; on a busy box they take longer by the clock.
DEADLINE_S = 30.0
_SIGNALLED = "it takes more than 2 s of computing, or too much memory"


class ChildSandbox:
    """`ports.Sandbox`. A fresh child for every text; it sees no environment and no file of ours."""

    def query(self, script: str, sql: str) -> Trial:
        trial = self._try({"query": [script, sql]})
        return Trial(tuple(tuple(row) for row in trial.value), trial.wrong)

    def matches(self, pattern: str, texts: tuple[str, ...]) -> Trial:
        return self._try({"matches": [pattern, list(texts)]})

    def _try(self, task: dict[str, Any]) -> Trial:
        program = str(Path(sandbox_child.__file__))
        try:
            ran = subprocess.run(
                (sys.executable, "-I", "-S", program), input=json.dumps(task), text=True, capture_output=True,
                timeout=DEADLINE_S, env={}, cwd="/",
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise EffectFailed(f"the sandbox did not end within {DEADLINE_S:.0f} s") from None
        except OSError as why:
            raise EffectFailed(f"the sandbox cannot be started: {sys.executable}: {why.strerror}") from why
        if ran.returncode < 0:
            return Trial(wrong=_SIGNALLED)
        try:
            said = json.loads(ran.stdout)
        except ValueError:
            raise EffectFailed(f"the sandbox broke: exit {ran.returncode}: {ran.stderr[-200:]}") from None
        return Trial(tuple(said.get("value", ())), str(said.get("wrong", "")))
