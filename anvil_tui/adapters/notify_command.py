"""Tells an operator's program of an alarm: one JSON document on its standard input, bounded in time and output."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from anvil_tui.adapters.child_env import child_env
from anvil_tui.adapters.command_runner import ChildCommands
from anvil_tui.core.errors import AnvilError
from anvil_tui.core.redact import redact, redact_values
from anvil_tui.ports import Command


class CommandNotifier:
    """`ports.alarms.Notifier`. A relative program is looked for in the workspace, which is its folder, too."""

    def __init__(self, directory: Path, argv: tuple[str, ...], timeout_s: float) -> None:
        self._directory, self._argv, self._timeout_s = directory, argv, timeout_s

    def send(self, told: Mapping[str, Any], cancelled: Callable[[], bool]) -> str:
        env = child_env()
        text = json.dumps(redact_values(dict(told), redact), ensure_ascii=False) + "\n"
        command = Command(self._argv, self._timeout_s, tuple(env), env, stdin=text)
        try:
            ran = ChildCommands(self._directory, env).run(command, cancelled)
        except AnvilError as why:
            return str(why)
        if ran.exit_code == 0:
            return ""
        said = (ran.stderr.strip() or ran.stdout.strip()).splitlines()
        how = f"ended with {ran.exit_code}"
        if ran.ended != "exit":
            how = (
                f"took longer than {self._timeout_s:g} s"
                if ran.ended == "deadline"
                else "was ended with the watcher"
            )
        return f"{self._argv[0]} {how}{': ' + said[-1][:200] if said else ''}"
