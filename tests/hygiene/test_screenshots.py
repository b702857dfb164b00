"""The pictures of `screenshots/` are complete, show what they are called by, and were made by this console."""

from __future__ import annotations

from screenshots import FACTS, HERE, MADE_OF, drawn_by, words

WIDE_ONLY = {"overview-light", "overview-high-contrast", "overview-colour-blind"}


def test_the_console_draws_as_it_did_when_the_pictures_were_made() -> None:
    """Otherwise: `make screenshots`, and look at them."""
    assert MADE_OF.read_text().strip() == drawn_by()


def test_every_picture_is_there_at_both_sizes_and_no_other() -> None:
    wanted = {f"{name}-120x40.svg" for name in FACTS} | {
        f"{name}-80x24.svg" for name in FACTS if name not in WIDE_ONLY
    }
    assert {p.name for p in HERE.glob("*.svg")} == wanted


def test_every_picture_shows_its_fact_and_no_secret() -> None:
    for path in HERE.glob("*.svg"):
        text = words(path.read_text())
        assert FACTS[path.stem.rpartition("-")[0]] in text, path.name
        assert "font-face" not in path.read_text(), path.name
