"""The console in a real terminal, by keyboard, on the simulated box and a real HAProxy."""

from __future__ import annotations

import contextlib
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


def confirmed(screen: Terminal, *opening: str) -> None:
    """Open a dialog and type the word it asks for. Keys that come before it counts them are dropped, which is
    the safe side: a person who does not see the word types it again, and so does this."""
    for _ in range(4):
        for key in opening:
            screen.keys(key)
            if key == "p":
                screen.wait("promote which recipe?")
        shown = screen.wait("to confirm", "[ Cancel ]")
        word = shown.split("then type ")[1].split(" to confirm")[0]
        screen.keys("Tab", word)
        with contextlib.suppress(AssertionError):
            screen.wait(f"│   {word} ", deadline_s=3)
            return screen.keys("Enter")
        screen.keys("Escape")
        wait_until(lambda: "to confirm" not in screen.screen(), "the dialog is closed", 10)
    raise AssertionError(f"the word never stood in the field\n{screen.screen()}")


def settled(box: Path, recipe: str) -> None:
    """The operation has ended and the record names the recipe."""

    def so() -> bool:
        serve = BoxFile(box / "state").read().serve_in("primary")
        views = OperationFolders(box / "state" / "operations").views()
        return bool(serve and serve.recipe_id == recipe and views[-1].outcome)

    wait_until(so, f"{recipe} holds the role", 120)


def promote(screen: Terminal) -> None:
    confirmed(screen, "p", "393", "Enter")


@pytest.mark.parametrize(("columns", "lines"), [(120, 40), (80, 24)])
def test_promote_and_roll_back_by_keyboard(screen: Terminal, served_box: Path, columns: int, lines: int) -> None:
    screen.open(anvil("--workspace", str(served_box)), columns, lines)
    screen.wait("● serving", "524k")
    first = BoxFile(served_box / "state").read().roles["primary"].incumbent
    promote(screen)
    settled(served_box, CANDIDATE)
    assert "393k" in screen.wait("● serving", "lease free", "incumbent")
    confirmed(screen, "b")
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
