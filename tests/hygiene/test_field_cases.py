"""Faults from public reports have tests that carry their numbers, so that none of them is lost with a test."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
KINDS = {
    "nvml-field": (1, 2, 3),
    "nvml-failure": (4, 5, 6, 100),
    "gpu-identity": (7, 8, 9),
    "vram-release": (10, 11),
    "fleet-shape": (12, 13, 14),
    "wsl-host": (15,),
    "container-state": (16, 17, 18),
    "container-race": (19, 20, 21, 22),
    "image-identity": (23, 24),
    "start-failure": (25, 26, 101),
    "exit-cause": (27,),
    "log-transport": (28, 29, 30),
    "log-bytes": (31, 32, 33),
    "kv-capacity": (34, 35, 36, 37, 102),
    "metric-names": (38, 39, 40),
    "metric-values": (41, 42, 43, 44, 103),
    "health": (45, 46, 47, 48, 104),
    "sse-framing": (49, 50, 51, 52),
    "stream-end": (53, 54, 55, 56, 105),
    "reasoning": (57, 58, 59, 106),
    "tool-calls": (60, 61, 62, 63),
    "structured-output": (64, 65),
    "throughput": (66, 67, 68),
    "timing": (69,),
    "http-errors": (70, 71, 72),
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
    "tui-text": (95,),
    "tui-layout": (96, 97, 98),
    "terminal-restore": (99, 108),
}
# Reports of other consoles that this one must survive; what came of them elsewhere is in their own words.
REPORTS = (
    "Textualize/textual#6690", "XuehaiPan/nvitop#139", "Syllo/nvtop#189", "derailed/k9s#3471", "derailed/k9s#1019",
)  # fmt: skip


@functools.cache
def texts(path: Path) -> list[str]:
    """The text of tests: docstrings, parameters, messages. What only heads a file names no test."""
    tree = ast.parse(path.read_text())
    body = tree.body[1:] if ast.get_docstring(tree) else tree.body
    found = (n.value for part in body for n in ast.walk(part) if isinstance(n, ast.Constant))
    return [text for text in found if isinstance(text, str)]


def labels(path: Path) -> set[int]:
    return {int(n) for text in texts(path) for n in re.findall(r"\bO-(\d+)\b", text)}


def files() -> list[Path]:
    return [path for path in TESTS.rglob("test_*.py") if path != Path(__file__)]


def test_every_case_has_a_test() -> None:
    found = {n for path in files() for n in labels(path)}
    missing = {kind: left for kind, cases in KINDS.items() if (left := [n for n in cases if n not in found])}
    assert missing == {} and sorted(n for cases in KINDS.values() for n in cases) == [*range(1, 109)]


def test_every_report_has_a_test() -> None:
    found = "\n".join(text for path in files() for text in texts(path))
    assert [report for report in REPORTS if report not in found] == []


def test_the_head_of_a_file_names_no_test(tmp_path: Path) -> None:
    file = tmp_path / "test_x.py"
    file.write_text('"""Of O-07."""\n\ndef test_a() -> None:\n    """O-08, a/b#9."""\n    assert 1, "O-101"\n')
    assert labels(file) == {8, 101}
