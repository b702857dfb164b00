"""The page of a report in a real browser: it reads on a telephone, a desk and paper; no script, error or fetch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from anvil_tui.core.verify import report_texts
from tests.support.browser import Page, browser
from tests.support.bundles import PREFIX, PRIVATE, measured


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    """One browser for the module: it starts in a second."""
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    texts = report_texts(measured(), PREFIX, pages=True)
    paths = {stem: folder / f"{stem}.html" for stem in ("report", "report-public")}
    for stem, path in paths.items():
        path.write_text(texts[f"{PREFIX}{stem}.html"])
    return paths


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_fits_and_reads(page: Page, written: dict[str, Path], width: int, dark: bool) -> None:
    page.open(written["report"], width, dark=dark, scripts=False)
    assert page.value("document.documentElement.scrollWidth") <= width, "no sideways scrolling"
    text = page.value("document.body.innerText")
    for words in ("Qualification of glm-small", "Result card", "51.25 tok/s", "4,100 / 3,900 MiB"):
        assert words in text, words
    assert page.complaints() == []
    assert page.requested() == [written["report"].resolve().as_uri()]
    light, ground = (
        page.value("getComputedStyle(document.body).color"),
        page.value("getComputedStyle(document.body).backgroundColor"),
    )
    assert contrast(light, ground) >= 7.0


def contrast(ink: str, ground: str) -> float:
    """WCAG contrast of two `rgb(r, g, b)`."""

    def luminance(colour: str) -> float:
        parts = [int(n) / 255 for n in colour[colour.index("(") + 1 : -1].split(",")[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(ink), luminance(ground)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_the_plots_are_drawn_inside_the_page(page: Page, written: dict[str, Path]) -> None:
    page.open(written["report"], 390)
    boxes = page.value(
        "[...document.querySelectorAll('figure svg')].map(s => {const b = s.getBoundingClientRect();"
        " return [b.left, b.right, b.height, s.querySelectorAll('circle').length]})"
    )
    assert len(boxes) == 2
    for left, right, height, points in boxes:
        assert left >= 0 and right <= 390 and height > 150 and points >= 2


def test_wide_tables_scroll_in_their_own_box_by_keyboard(page: Page, written: dict[str, Path]) -> None:
    page.open(written["report"], 390)
    wide = page.value(
        "[...document.querySelectorAll('.wide')].filter(e => e.scrollWidth > e.clientWidth)"
        ".map(e => [e.tabIndex, e.getAttribute('role'), e.getAttribute('aria-label')])"
    )
    assert wide and all(index == 0 and role == "region" and name for index, role, name in wide)


def test_on_paper_nothing_is_cut_off(page: Page, written: dict[str, Path]) -> None:
    page.open(written["report"], 760)
    page.ask("Emulation.setEmulatedMedia", media="print")
    cut = page.value(
        "[...document.querySelectorAll('.wide')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
    )
    assert cut == 0
    assert page.value("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"


def test_the_public_page_shows_nothing_private(page: Page, written: dict[str, Path]) -> None:
    page.open(written["report-public"], 1280)
    text = page.value("document.documentElement.outerHTML")
    assert [secret for secret in PRIVATE if secret in text] == []
    assert "Removed from this public copy" in page.value("document.body.innerText")
