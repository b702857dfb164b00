"""Documents that are made from the product are in step with it, and what they tell people to type is accepted."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator

import pytest

from anvil_tui.cli.main import parser
from docs.__main__ import FILES, HERE, documents, notes, tables

ROOT = HERE.parent
PAGES = sorted(
    p for p in (*ROOT.glob("*.md"), *HERE.glob("*.md"), *HERE.glob("*/README.md"), *ROOT.glob("*/README.md"))
)
WORDS = re.compile(r"anvil-tui((?: +[^\s`|;&>]+)*)")


def test_generated_pages_are_what_the_schemas_and_the_registry_say() -> None:
    """`make docs` makes them."""
    assert {name: (HERE / name).read_text() for name in documents()} == documents()


def test_every_key_has_a_note_and_every_note_a_key() -> None:
    keys = {
        file: {f"{table.strip('`[]')}.{key}".lstrip(".") for table, rows in tables(model) for key, _ in rows}
        for file, (_, model) in FILES.items()
    }
    assert {file: set(lines) for file, lines in notes().items()} == keys
    assert [
        key for lines in notes().values() for key, text in lines.items() if not text.endswith((".", "?"))
    ] == []


def commands() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for block in re.findall(r"```(?!toml)\w*\n(.*?)```", page.read_text(), re.DOTALL):
            for line in block.splitlines():
                if found := re.match(r"(?:\$ +)?anvil-tui( .*)?$", line.split("  #")[0].split(" # ")[0].strip()):
                    yield page.name, found[1] or ""
        for text in re.findall(r"`anvil-tui( [^`\n]+)`", page.read_text()):
            yield page.name, text


@pytest.mark.parametrize(("page", "text"), sorted(set(commands())), ids=lambda v: v.strip())
def test_a_command_in_a_document_is_accepted(page: str, text: str) -> None:
    """Placeholders in capitals stand for any word; `a|b` is one of several, `[--x]` may be left out."""
    words = [w.strip("[]").split("|")[0] for w in shlex.split(text.replace("…", ""))]
    if len(words) == 1:  # a verb by its name
        words.append("--help")
    filled = [{"DATE": "2026-12-31", "MIB": "512", "S": "5", "N": "1"}.get(w, w) for w in words]
    try:
        parser().parse_args(filled)
    except SystemExit as ended:
        assert ended.code == 0, text


def test_every_toml_example_can_be_read() -> None:
    blocks = [(p.name, b) for p in PAGES for b in re.findall(r"```toml\n(.*?)```", p.read_text(), re.DOTALL)]
    assert blocks
    for name, block in blocks:
        assert tomllib.loads(block), name


def test_no_page_names_a_file_of_the_project_that_is_not_there() -> None:
    gone = []
    for page in PAGES:
        for name in re.findall(
            r"\]\(([\w./-]+)\)|`((?:docs|gates|recipes|screenshots|tests|anvil_tui)/[\w./-]+)`", page.read_text()
        ):
            path = name[0] or name[1]
            base = page.parent if name[0] else ROOT
            if not (base / path).exists() and "/ID" not in path and "NAME" not in path:
                gone.append(f"{page.name}: {path}")
    assert gone == []
