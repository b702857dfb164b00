"""OSC 52: bare, wrapped for tmux and for screen, refused; the file in place of it."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from anvil_tui.ui.clipboard import CAP, NotSent, keep, sequence

TEXT = "glm53 [b] ü\nsecond line"
ENCODED = base64.b64encode(TEXT.encode()).decode()
X = {"TERM": "xterm-256color"}


def test_bare() -> None:
    assert sequence(TEXT, X) == f"\x1b]52;c;{ENCODED}\x07"


def test_tmux_gets_every_escape_doubled_inside_its_own_string() -> None:
    wrapped = sequence(TEXT, {**X, "TERM": "tmux-256color", "TMUX": "/tmp/t,1,0"})
    assert wrapped == f"\x1bPtmux;\x1b\x1b]52;c;{ENCODED}\x07\x1b\\"


@pytest.mark.parametrize("env", [{"TMUX": ""}, {"TERM": "screen-256color"}, {"TERM": "tmux-256color"}])
def test_only_the_variable_tells_tmux(env: dict[str, str]) -> None:
    assert sequence(TEXT, {**X, **env}).startswith("\x1b]52;")


def test_screen_gets_it_in_pieces_that_it_passes_on() -> None:
    long = "0123456789" * 40
    wrapped = sequence(long, {**X, "STY": "1.pts-0.box"})
    pieces = wrapped.removesuffix("\x1b\\").split("\x1b\\\x1bP")
    assert pieces[0].startswith("\x1bP") and max(map(len, pieces)) <= 78
    whole = "".join(pieces).removeprefix("\x1bP")
    assert whole == f"\x1b]52;c;{base64.b64encode(long.encode()).decode()}\x07"


@pytest.mark.parametrize("term", ["dumb", "unknown", "", None])
def test_a_terminal_that_cannot_is_not_asked(term: str | None) -> None:
    with pytest.raises(NotSent, match="has no clipboard"):
        sequence(TEXT, {} if term is None else {"TERM": term})


def test_the_cap_counts_bytes_not_characters() -> None:
    assert len(sequence("x" * CAP, X)) <= 100_000
    with pytest.raises(NotSent, match="74,995 bytes are more than the 74,994"):
        sequence("x" * (CAP + 1), X)
    with pytest.raises(NotSent, match="80,000 bytes"):
        sequence("ü" * 40_000, X)


def test_the_file_is_private_and_follows_no_link(tmp_path: Path) -> None:
    target, path = tmp_path / "other", tmp_path / "state" / "copied.txt"
    target.write_text("untouched")
    path.parent.mkdir()
    path.symlink_to(target)
    keep(TEXT, path)
    keep(f"{TEXT} again", path)
    assert target.read_text() == "untouched"
    assert path.read_text() == f"{TEXT} again" and path.stat().st_mode & 0o777 == 0o600
