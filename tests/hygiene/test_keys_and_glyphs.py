"""Keys that mean one thing, and glyphs that take one cell, over the whole console."""

from __future__ import annotations

import ast
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from rich.cells import cell_len
from textual.keys import Keys, _character_to_key

from anvil_tui.ui import actions, glyphs
from anvil_tui.ui.actions import ACTIONS

UI = Path(glyphs.__file__).parent
MOVES = {"up", "down", "left", "right", "home", "end", "pageup", "pagedown", "j", "k"}


def test_a_key_means_one_thing() -> None:
    keys = Counter(key for action in ACTIONS for key in action.keys)
    assert {key: n for key, n in keys.items() if n > 1} == {}
    assert not MOVES & set(keys)


def test_ids_are_public_and_unique_and_every_action_says_what_it_does() -> None:
    assert len(actions.REGISTRY) == len(ACTIONS)
    assert [a.id for a in ACTIONS if not (a.label and a.keys and a.help)] == []
    assert [a.id for a in ACTIONS if a.help.endswith(".") or not a.help[0].isupper()] == []


def test_what_changes_the_box_has_a_policy_and_what_only_looks_has_no_intent() -> None:
    always = actions.REGISTRY["view.help"].policy
    assert [a.id for a in ACTIONS if a.mutates and a.policy is always] == []
    assert [a.id for a in ACTIONS if not a.mutates and a.intent] == []


def test_every_key_is_one_that_a_terminal_sends_under_this_name() -> None:
    same_byte = {"ctrl+i", "ctrl+m", "ctrl+h"}
    known = {str(key.value) for key in Keys} - same_byte
    known |= {_character_to_key(chr(n)) for n in range(0x21, 0x7F)}
    assert {key for action in ACTIONS for key in action.keys} - known == set()


def drawn() -> list[str]:
    """Every character outside ASCII in a string of the console that is no documentation."""
    found: set[str] = set()
    for path in UI.rglob("*.py"):
        tree = ast.parse(path.read_text())
        docs = {
            id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                found.update(ch for ch in node.value if not ch.isascii())
    return sorted(found)


@pytest.mark.parametrize("glyph", [*drawn(), *glyphs.TWINS, *glyphs.LEVELS], ids=lambda g: f"U+{ord(g):04X}")
def test_a_glyph_takes_one_cell_and_has_an_ascii_twin_of_one_cell(glyph: str) -> None:
    assert (len(glyph), cell_len(glyph)) == (1, 1)
    assert unicodedata.east_asian_width(glyph) not in ("W", "F")
    twin = glyphs.TWINS[glyph]
    assert twin.isascii() and twin.isprintable() and len(twin) == 1


def test_no_emoji_selector_is_drawn() -> None:
    """Terminals disagree about the width of a character followed by U+FE0F."""
    assert "\ufe0f" not in drawn()
    assert len(drawn()) > 5
