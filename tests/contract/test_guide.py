"""The commands of the operators' guide, in its order, on the practice box that it names."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from anvil_tui.adapters.box_file import BoxFile
from anvil_tui.cli.main import main
from tests.support.tmux import anvil

GUIDE = Path(__file__).parents[2] / "docs" / "guide.md"
COMMANDS = re.findall(
    r"^\$ anvil-tui (.*)$", "\n".join(re.findall(r"```console\n(.*?)```", GUIDE.read_text(), re.DOTALL)), re.M
)


@pytest.fixture(scope="module")
def practice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("guide") / "practice"
    line = re.search(r"^\$ anvil-tui (demo .*)$", GUIDE.read_text(), re.M)
    assert line
    words = [str(folder) if w == "practice" else w for w in shlex.split(line[1])]
    process = subprocess.Popen(anvil(*words), stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline().startswith("workspace")
    yield folder
    process.terminate()
    assert process.wait(60) == 0


def test_every_command_of_the_guide_does_what_it_says(
    practice: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(practice)
    said: dict[str, str] = {}
    serving = [_serving(practice)]
    for text in COMMANDS:
        code = main(shlex.split(text))
        out, err = capfd.readouterr()
        assert code == 0, f"{text}\n{out}\n{err}"
        said[text] = out
        serving += [now] if (now := _serving(practice)) != serving[-1] else []
    assert serving == ["glm53-524k-k5-xgfix", "glm53-524k-nospec", "glm53-524k-k5-xgfix"]
    plan = next(out for text, out in said.items() if text.startswith("promote") and "--yes" not in text)
    assert [word for word in ("interrupts", "outage", "rollback", "on failure") if word not in plan] == []
    assert [text for text in said if not said[text]] == []
    assert said["drills list"].count("restored") == 2, said["drills list"]


def _serving(practice: Path) -> str:
    record = BoxFile(practice / "state").read().serve_in("primary")
    return record.recipe_id if record else ""
