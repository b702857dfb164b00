"""What several files here share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anvil_tui.cli.main import main
from tests.support.simbox import SimProcess


@pytest.fixture
def run(box: SimProcess, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """A command on the workspace of the file's own `box`; gives what it printed, and asserts how it ended."""

    def command(*words: str, want: int = 0) -> str:
        code = main(["--workspace", str(box.folder), *words])
        told = capsys.readouterr()
        assert code == want, told.err
        return told.out if not code else told.err

    return command
