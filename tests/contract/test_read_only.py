"""Report 2, the road of the command line: with --read-only each verb that changes is refused and writes nothing.

`operations`, `alarms ack`, `evidence report` and `ab` need something to act on: their own tests have them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from anvil_tui.cli.main import main, parser
from tests.support.workspace import box

CHANGES: dict[str, tuple[str, ...]] = {
    "load": ("r", "--yes"), "unload": ("s", "--yes"), "qualify": ("s", "--yes"), "quiesce": ("primary", "--yes"),
    "drain": ("primary", "--yes"), "readmit": ("primary", "--yes"), "promote": ("r", "--plan", "0f1e2d3c4b5a"),
    "rollback": ("--yes",), "drill": ("primary", "--yes"), "remove": ("sha256:1", "--yes"),
    "apply": ("--all", "--yes"), "rotate": ("batch", "--yes"), "waive": ("r", "--reserve", "0", "--reason", "x"),
    "init": ("made", "--bare"), "gateway": ("install",), "record": ("--plan", "0f1e2d3c4b5a"),
}  # fmt: skip
READS = {
    "status", "watch", "alarms", "history", "replay", "paths", "doctor", "evidence", "drills", "recipes",
    "dossier", "credentials", "clients", "storage", "compare", "ab", "operations", "demo", "gpu-reader",
}  # fmt: skip


def test_every_verb_is_known_to_change_or_to_read() -> None:
    verbs = next(a for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    assert set(verbs.choices) == set(CHANGES) | READS and not set(CHANGES) & READS


@pytest.mark.parametrize(
    "words", [*((verb, *rest) for verb, rest in CHANGES.items()), ("drill", "--copy")], ids=" ".join
)
def test_a_verb_that_changes_is_refused(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    box(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["--workspace", str(tmp_path), "--read-only", *words]) == 3
    said = capsys.readouterr()
    assert said.err.startswith("anvil-tui: --read-only: nothing is ") and said.err.count("\n") == 1
    assert said.out == ""
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["anvil.toml"]
