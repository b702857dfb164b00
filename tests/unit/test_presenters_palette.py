"""What the palette knows, how it ranks, what stands above while nothing is typed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anvil_tui.core.world import World
from anvil_tui.ui.actions import ACTIONS, Action
from anvil_tui.ui.presenters import palette
from anvil_tui.ui.presenters.cells import View
from tests.support import measured, standings, worlds

EVERY = {
    "action", "screen", "serve", "recipe", "GPU", "role", "alias", "operation", "gate", "bundle", "credential",
    "client",
}  # fmt: skip


def known(world: World, closed: str = "") -> list[palette.Entry]:
    def why(action: Action) -> str | None:
        return closed or None if action.mutates else None

    return palette.entries(world, View(), why)


def whole() -> World:
    """A box with one of everything."""
    return replace(standings.wired(), pasts=measured.shelf_of_bundles().pasts, broken_bundles={"bad-one": "torn"})


def best(text: str, world: World | None = None) -> list[str]:
    return [e.id for e in palette.found(text, known(world or whole()))]


def test_it_knows_every_kind_of_noun_and_every_action() -> None:
    entries = known(whole())
    assert {e.kind for e in entries} == EVERY
    assert [e.key for e in entries if e.kind in ("action", "screen")] == [a.id for a in ACTIONS]
    assert len({e.id for e in entries}) == len(entries)


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("overview", "screen:view.overview"),
        ("rollback", "action:role.rollback"),
        ("unload", "action:serve.unload"),
        ("serve 393k", f"serve:{worlds.cid(worlds.CANDIDATE)}"),
        ("393k serve", f"serve:{worlds.cid(worlds.CANDIDATE)}"),
        (worlds.cid(worlds.INCUMBENT)[:12], f"serve:{worlds.cid(worlds.INCUMBENT)}"),
        ("recipe 245k", f"recipe:{worlds.FALLBACK}"),
        ("compute-b", f"GPU:{worlds.UUIDS[1]}"),
        (worlds.UUIDS[1][4:12], f"GPU:{worlds.UUIDS[1]}"),
        ("role primary", "role:primary"),
        ("llm.primary", "alias:llm.primary"),
        ("1048 promote", "operation:20260902-1048-promote"),
        ("gate needle", "gate:needle"),
        ("bundle bad", "bundle:bad-one"),
        ("client pi", "client:pi"),
        ("credential batch", "credential:batch"),
        ("rlbk", "action:role.rollback"),
    ],
)
def test_words_in_any_order_and_letters_in_order_find_it(typed: str, first: str) -> None:
    assert best(typed)[0] == first


def test_every_word_must_be_found_and_brackets_are_text() -> None:
    assert best("rollback zebra") == []
    assert best("[/]") == []


def test_a_name_that_begins_with_it_stands_before_one_that_only_contains_it() -> None:
    found = best("load")
    assert found.index("action:recipe.load") < found.index("action:serve.unload")


def test_a_closed_action_says_why_and_stays_in_its_place() -> None:
    entries = known(whole(), "read-only")
    (row, *_) = palette.rows("qualify", entries, (), 110)
    text = "".join(c.text for c in row.cells)
    assert row.key == "action:serve.qualify"
    assert "(qualify)" in text and "read-only" in text
    assert palette.why_closed(entries, row.key) == "read-only"
    assert palette.why_closed(entries, f"{palette.AGAIN}{row.key}") == "read-only"
    assert palette.why_closed(entries, "role:primary") is None


def test_the_last_choices_stand_above_and_the_cursor_begins_below_them() -> None:
    entries, recent = known(whole()), ("screen:view.logs", "gone:x", "action:role.drain")
    keys = [r.key for r in palette.rows("", entries, recent, 110)]
    assert keys[:3] == ["again:screen:view.logs", "again:action:role.drain", "action:view.help"]
    assert palette.begin(keys) == "action:view.help"
    assert palette.begin(["again:x"]) == "" == palette.begin([])
    assert not [r for r in palette.rows("drain", entries, recent, 110) if r.key.startswith(palette.AGAIN)]


@pytest.mark.parametrize("width", [30, 56, 97, 110])
def test_a_row_keeps_kind_name_and_key(width: int) -> None:
    (row, *_) = palette.rows("qualify", known(whole()), (), width)
    text = "".join(c.text for c in row.cells)
    assert text.startswith("action") and "qualify" in text and text.rstrip().endswith("g")
    assert len(text) == width
