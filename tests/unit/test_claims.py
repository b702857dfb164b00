"""A sentence without a source cannot be written, and a figure is always one that was looked up."""

from __future__ import annotations

import hashlib

import pytest

from anvil_tui.core.claims import HASH, SIZE, Claim, Fact, Shown, claim, documents, label, looked_up, number, show
from anvil_tui.core.errors import BadFile

FILES = {"r.json": '[{"a/b": {"c~d": 3.5}, "n": null}]\n', "o.ndjson": '{"x": 1}\n{"x": 2}\n'}


@pytest.mark.parametrize(
    "parts",
    [
        ("all gates passed",),
        (),
        ("decode 83.08 tok/s at ", Shown((Fact("f", "", 4000),), str)),
        ("at 4K: ", Shown((Fact("f", "", 1),), str)),
        ("about -3 % of ", Shown((Fact("f", "", 1),), str)),
    ],
)
def test_words_alone_and_figures_in_words_are_refused(parts: tuple[str | Shown, ...]) -> None:
    with pytest.raises(ValueError, match=r"has no source|holds a figure"):
        Claim(parts)


def test_nothing_is_shown_without_a_fact() -> None:
    with pytest.raises(ValueError, match="without a fact"):
        Shown((), str)
    with pytest.raises(ValueError, match="figure"):
        label("20/20 tools")
    assert label("TTFT p50, SHA-256, C1 by (N-1)/T") == "TTFT p50, SHA-256, C1 by (N-1)/T"


def test_a_fact_knows_its_place_and_the_place_leads_back_to_it() -> None:
    fact = documents(FILES)["r.json"][0]["a/b"]["c~d"]
    assert (fact.file, fact.pointer, fact.value) == ("r.json", "/0/a~1b/c~0d", 3.5)
    assert looked_up(FILES, fact.file, fact.pointer) == 3.5
    second = documents(FILES)["o.ndjson"][1]["x"]
    assert (second.pointer, looked_up(FILES, "o.ndjson", second.pointer)) == ("/1/x", 2)
    text = FILES["r.json"].encode()
    assert looked_up(FILES, "r.json", HASH) == hashlib.sha256(text).hexdigest()
    assert looked_up(FILES, "r.json", SIZE) == len(text)


def test_what_is_not_recorded_says_so_and_is_never_zero() -> None:
    row = documents(FILES)["r.json"][0]
    assert claim("n: ", show(row["n"], number(2))).text == "n: not recorded"
    gone = row["later"]["p50"]
    assert (gone.value, gone.pointer) == (None, "/0")
    assert claim(show(Fact("f", "", 0), number(2))).text == "0"


@pytest.mark.parametrize(
    ("file", "pointer"), [("x.json", ""), ("r.json", "/7"), ("r.json", "/0/q"), ("o.ndjson", "/x")]
)
def test_a_pointer_to_nothing_is_named(file: str, pointer: str) -> None:
    with pytest.raises(BadFile, match=file):
        looked_up(FILES, file, pointer)


@pytest.mark.parametrize(
    ("digits", "value", "text"),
    [
        (2, 83.08, "83.08"),
        (2, 82.1, "82.1"),
        (2, 16545, "16,545"),
        (3, 0.179, "0.179"),
        (2, 35, "35"),
        (2, 100.0, "100"),
    ],
)
def test_numbers_lose_no_digit_and_gain_none(digits: int, value: float, text: str) -> None:
    assert number(digits)(value) == text
