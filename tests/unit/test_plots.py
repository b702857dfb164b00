"""Plots: positions computed by hand, gaps that stay gaps, text that fits its cells."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from anvil_tui.core.lanes import LaneRow, Spread
from anvil_tui.core.plots import (
    MARKS,
    Chart,
    Point,
    Series,
    amount,
    over_depth,
    over_streams,
    over_what_varies,
    svg,
    text_plot,
)
from anvil_tui.ui.glyphs import to_ascii

SVG = "{http://www.w3.org/2000/svg}"


def row(tokens: int | None, decode: float | None, ttft: float | None = 1.0, streams: int = 1) -> LaneRow:
    return LaneRow(
        "depth", streams, 5, label=f"about {tokens}",
        prompt_tokens=None if tokens is None else Spread(5, tokens, tokens, tokens),
        decode_tok_s=None if decode is None else Spread(5, decode - 2, decode, decode + 2),
        ttft_any_s=None if ttft is None else Spread(5, ttft, ttft, ttft),
    )  # fmt: skip


def elements(text: str, name: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(text).iter(SVG + name))


def words(text: str) -> list[str]:
    return [e.text or "" for e in elements(text, "text")]


def linear() -> Chart:
    points = (Point(0, 50, 40, 60), Point(100, 100, 90, 100), Point(200, 0))
    return Chart("t", "x", "y", (Series("a", points),))


def test_points_stand_where_the_axes_say() -> None:
    """640 x 360: the plot is 64..620 by 40..312, points 12 away from both sides; y = 50 of 0..100 is half-way."""
    circles = [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in elements(svg(linear()), "circle")]
    assert circles[:3] == [(76.0, 176.0), (342.0, 40.0), (608.0, 312.0)]


def test_a_logarithmic_axis_puts_equal_ratios_at_equal_distances() -> None:
    chart = over_depth({"a": [row(1000, 50), row(10_000, 50), row(100_000, 50)]}, "decode")
    xs = [float(c.attrib["cx"]) for c in elements(svg(chart), "circle")][:3]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1])
    assert "prompt tokens, counted by the engine (log)" in words(svg(chart))


def test_whiskers_span_lowest_to_highest() -> None:
    """100 units are 272 px, so 40..60 is y 203.2..148.8."""
    drawn = [p.attrib["d"] for p in elements(svg(linear()), "path")]
    assert any(d.startswith("M76.0 203.2V148.8") for d in drawn)


def test_what_is_not_known_is_a_gap_and_is_named() -> None:
    chart = over_depth({"a": [row(1000, 50), row(4000, None), row(9000, 40), row(None, 30)]}, "decode")
    drawn = svg(chart)
    strokes = [p for p in elements(drawn, "path") if p.attrib.get("stroke-width") == "1.5"]
    assert strokes == [], "no line passes over the unknown point"
    told = [w for w in words(drawn) if w.startswith("not known")]
    assert told == ["not known: a at about 4000", "not known: a about None (prompt tokens not counted)"]
    assert text_plot(chart, 100, 12)[-1] == (
        "not known: a at about 4000; a about None (prompt tokens not counted)"
    )


def test_series_differ_by_shape_and_names_cannot_break_the_picture() -> None:
    chart = over_streams({"<b>&": [row(1, 50)], "two": [row(1, 40)]}, "decode")
    drawn = svg(chart)
    assert "<b>&" in words(drawn)
    assert len(elements(drawn, "circle")) == 2, "the point and its legend"
    assert len(elements(drawn, "rect")) == 3, "the ground, the other point and its legend"


def test_the_same_chart_gives_the_same_bytes() -> None:
    assert svg(linear()) == svg(linear())


def test_rows_of_other_gates_and_cache_states_are_other_lines() -> None:
    """One label in two gates is not two runs of one row, and cold is not joined to warm."""
    cold, warm = replace(row(1000, 50), cache="cold"), replace(row(1000, 90), cache="warm")
    chart = over_what_varies({"A": [cold, warm, replace(cold, lane="again")]}, "decode")
    assert {s.name: [p.y for p in s.points] for s in chart.series} == {
        "A depth cold": [50], "A depth warm": [90], "A again cold": [50],
    }  # fmt: skip
    assert [s.name for s in over_what_varies({"A": [cold, cold]}, "decode").series] == ["A"]


def test_nothing_measured_is_an_empty_plot_and_no_error() -> None:
    chart = over_depth({"a": [row(1000, None)]}, "decode")
    assert "not known: a at about 1000" in words(svg(chart))
    assert len(text_plot(chart, 40, 8)) == 8
    assert svg(over_depth({}, "ttft")).startswith("<svg")


@pytest.mark.parametrize(("width", "height"), [(20, 6), (60, 12), (120, 30)])
def test_text_fits_its_cells_and_swaps_to_ascii_cell_for_cell(width: int, height: int) -> None:
    rows = [row(1000 * 2**n, 80 - 5 * n, 2.0**n) for n in range(8)]
    for measure in ("decode", "ttft"):
        lines = text_plot(over_depth({"A": rows, "B": rows[:3]}, measure), width, height)
        assert len(lines) <= height
        assert max(map(len, lines)) <= width
        assert "?" not in "".join(map(to_ascii, lines))


def test_a_text_point_stands_in_its_row_and_column() -> None:
    """12 lines: 1 label, 9 rows, 1 axis, 1 legend. 0..100 over 9 rows: 100 is row 0, 50 row 4, 0 row 8."""
    lines = text_plot(linear(), 45, 12)
    plot = [line.split("│", 1)[1] for line in lines[1:10]]
    assert len({line.index("│") for line in lines[1:10]}) == 1
    assert plot[4].startswith(MARKS[0])
    assert plot[0].index(MARKS[0]) == 20, "the middle of 41 columns (4 for numbers and the axis)"
    assert plot[8].rstrip().endswith(MARKS[0])


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.35, "0.35"), (42.61, "42.6"), (2969, "2,969"),
     (206_630, "206.6K"), (4e5, "400K"), (1_048_576, "1.05M")],
)  # fmt: skip
def test_amounts(value: float, text: str) -> None:
    assert amount(value) == text
