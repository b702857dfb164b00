"""What no tracked file may hold: package mirrors, paths of one machine, secrets, people, binaries."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_LINES, MAX_FUNCTION, MAX_BYTES = 400, 40, 1_500_000

# Patterns are written so that they do not match themselves.
FORBIDDEN = {
    "a package mirror": r"pypi\.(org|python)|pythonhosted\.|[a-z]\.debian\.(org|net)/|npmjs\.|-index-ur[l] ?=",
    "a path of one machine": r"(?<![\w.@}])/(work|root|home/\w+|Users/\w+|opt/(pypi|wheels))/|\.pyenv/versions/\d",
    "a secret": r"\b(gh[pousr]_|hf_|glpat-|xox[bp]-|sk-)\w{20,}|\bAKIA[0-9A-Z]{16}\b|BEGIN [A-Z ]*PRIVATE KE[Y]-",
    "a person's address": r"[\w.+-]+@(?!([\w-]+\.)*example\.)[\w-]+\.(com|org|net|io|dev|de|fr|uk)\b",
}
# Made-up keys by which the redactor is tested.
EXCEPT = {("tests/unit/test_redact.py", "a secret")}


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def text_of(path: Path) -> str | None:
    try:
        return path.read_text()
    except UnicodeDecodeError:
        return None


def findings(name: str, text: str) -> list[str]:
    return [
        f"{name}:{text.count(chr(10), 0, found.start()) + 1}: {what}: {found[0]}"
        for what, pattern in FORBIDDEN.items()
        if (name, what) not in EXCEPT
        for found in re.finditer(pattern, text)
    ]


def test_no_tracked_file_names_a_mirror_a_machine_a_secret_or_a_person() -> None:
    files = tracked()
    assert len(files) > 100
    texts = {str(p.relative_to(ROOT)): text_of(p) for p in files}
    assert [f for name, text in texts.items() if text is not None for f in findings(name, text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "https://pypi." + "org/simple",
        "http://deb." + "debian.org/debian",
        "extra-index-" + "url=x",
        "source = '/" + "root/x'",
        "at /" + "home/ann/models",
        "token hf_" + "a" * 30,
        "-----BEGIN OPENSSH PRIVATE" + " KEY-----",
        "ann.b@" + "corp.com",
    ],
)
def test_each_kind_is_found(text: str) -> None:
    assert findings("some/file", f"first line\n{text}\n")[0].startswith("some/file:2: ")


@pytest.mark.parametrize(
    "text",
    [
        "a/work/b",
        "{root}/x",
        "${HOME}/x",
        "user@host",
        "ann@mail.example.com",
        "ssh://anvil@example.com",
        "sk-short",
    ],
)
def test_what_is_none_of_them_is_left_alone(text: str) -> None:
    assert findings("some/file", text) == []


def test_no_weights_and_no_binaries_are_tracked() -> None:
    assert [str(p) for p in tracked() if p.stat().st_size > MAX_BYTES] == []
    assert [str(p) for p in tracked() if text_of(p) is None and p.suffix not in (".png", ".avi")] == []


def test_the_product_stays_in_files_and_functions_that_can_be_read() -> None:
    long = []
    for path in (p for p in tracked() if p.suffix == ".py" and p.is_relative_to(ROOT / "anvil_tui")):
        name, text = path.relative_to(ROOT), path.read_text()
        if (lines := text.count("\n")) > MAX_LINES:
            long.append(f"{name}: {lines} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                long += [f"{name}:{node.lineno}: {node.name} has {length} lines"] if length > MAX_FUNCTION else []
    assert long == []
