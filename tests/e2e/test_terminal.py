"""The console in a real terminal, by keyboard, on the simulated box and a real HAProxy."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from anvil_tui.adapters.box_file import BoxFile
from anvil_tui.adapters.journal_file import OperationFolders
from tests.support.tmux import Terminal, anvil, terminal
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e

INCUMBENT, CANDIDATE = "glm53-524k-k5-xgfix", "glm53-393k-c1"


@pytest.fixture
def screen(short_tmp: Path) -> Iterator[Terminal]:
    with terminal(short_tmp) as made:
        yield made


@pytest.fixture
def served_box(tmp_path: Path) -> Iterator[Path]:
    """The demo's box without its console, so that consoles can come and go."""
    folder = tmp_path / "box"
    process = subprocess.Popen(
        anvil("demo", "--serve", "--dir", str(folder), "--scale", "150"), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout and process.stdout.readline().startswith("workspace")
    yield folder
    process.terminate()
    assert process.wait(60) == 0


def confirm(screen: Terminal) -> None:
    """Type the word that the dialog asks for: Tab goes from Cancel to it. The buttons appear when keys count."""
    shown = screen.wait("to confirm", "[ Cancel ]")
    word = shown.split("Type ")[1].split(" to confirm")[0]
    screen.keys("Tab", word)
    screen.wait(f"│   {word} ")
    screen.keys("Enter")


def settled(box: Path, recipe: str) -> None:
    """The operation has ended and the record names the recipe."""

    def so() -> bool:
        serve = BoxFile(box / "state").read().serve_in("primary")
        views = OperationFolders(box / "state" / "operations").views()
        return bool(serve and serve.recipe_id == recipe and views[-1].outcome)

    wait_until(so, f"{recipe} holds the role", 120)


def promote(screen: Terminal) -> None:
    screen.keys("p")
    screen.wait("promote which recipe?")
    screen.keys("393")
    screen.keys("Enter")
    confirm(screen)


@pytest.mark.parametrize(("columns", "lines"), [(120, 40), (80, 24)])
def test_promote_and_roll_back_by_keyboard(screen: Terminal, served_box: Path, columns: int, lines: int) -> None:
    screen.open(anvil("--workspace", str(served_box)), columns, lines)
    screen.wait("● serving", "524k")
    first = BoxFile(served_box / "state").read().roles["primary"].incumbent
    promote(screen)
    settled(served_box, CANDIDATE)
    assert "393k" in screen.wait("● serving", "lease free", "incumbent")
    screen.keys("b")
    confirm(screen)
    settled(served_box, INCUMBENT)
    assert "524k" in screen.wait("● serving", "lease free", "incumbent")
    assert BoxFile(served_box / "state").read().roles["primary"].incumbent == first
    screen.keys("q")
    screen.wait("EXIT=0")
    outcomes = [v.outcome for v in OperationFolders(served_box / "state" / "operations").views()]
    assert outcomes == ["done", "done"]


def test_a_lost_terminal_does_not_stop_a_promotion(screen: Terminal, served_box: Path) -> None:
    screen.open(anvil("--workspace", str(served_box)), 120, 40)
    screen.wait("serving", "524k")
    promote(screen)
    operations = OperationFolders(served_box / "state" / "operations")
    wait_until(lambda: any(s.state == "done" for v in operations.views() for s in v.steps), "a step is done")
    assert operations.views()[0].outcome is None
    screen.vanish()
    wait_until(lambda: operations.views()[0].outcome, "the promotion ends by itself", 120)
    assert operations.views()[0].outcome == "done"
    screen.open(anvil("--workspace", str(served_box)), 120, 40)
    assert "to primary: done" in screen.wait("● serving", "promote", "primary: done")
