"""Faults from public reports have tests that carry their numbers, so that none of them is lost with a test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
KINDS = {
    "gpu-identity": (7, 8, 9),
    "vram-release": (10, 11),
    "container-state": (16, 17, 18),
    "container-race": (19, 20, 21, 22),
    "image-identity": (23, 24),
    "start-failure": (25, 26, 101),
    "exit-cause": (27,),
    "health": (104,),
    "auth": (73,),
    "secrets": (74,),
    "drain": (75, 76, 77, 107),
    "promotion": (78,),
    "route-identity": (79, 80),
    "toml-parse": (81, 82, 83),
    "toml-validate": (84, 85, 86),
    "toml-rewrite": (87,),
    "state-crash": (88, 89, 90),
    "concurrency": (91, 92),
    "time": (93, 94),
}


def labels(path: Path) -> set[int]:
    """Numbers in the text of tests: docstrings, parameters, messages. What only heads a file names no test."""
    tree = ast.parse(path.read_text())
    body = tree.body[1:] if ast.get_docstring(tree) else tree.body
    texts = (n.value for part in body for n in ast.walk(part) if isinstance(n, ast.Constant))
    return {int(n) for text in texts if isinstance(text, str) for n in re.findall(r"\bO-(\d+)\b", text)}


def test_every_case_has_a_test() -> None:
    found = {n for path in TESTS.rglob("test_*.py") if path != Path(__file__) for n in labels(path)}
    missing = {kind: left for kind, cases in KINDS.items() if (left := [n for n in cases if n not in found])}
    assert missing == {}


def test_the_head_of_a_file_names_no_test(tmp_path: Path) -> None:
    file = tmp_path / "test_x.py"
    file.write_text('"""Of O-07."""\n\ndef test_a() -> None:\n    """O-08, a/b#9."""\n    assert 1, "O-101"\n')
    assert labels(file) == {8, 101}
