"""config.toml of a person as a file: where it is found, and what is said of one that cannot be used."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from anvil_tui.cli.settings import settings_of, settings_path
from anvil_tui.core.errors import NotFound


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "mine.toml"
    monkeypatch.setenv("ANVIL_TUI_CONFIG", str(path))
    for name in ("SSH_CONNECTION", "SSH_TTY", "SSH_CLIENT"):
        monkeypatch.delenv(name, raising=False)
    return path


def test_the_file_is_found_by_variable_then_by_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert settings_path({}) == (tmp_path / "anvil-tui" / "config.toml", "default")
    assert settings_path({"ANVIL_TUI_CONFIG": "/etc/mine.toml"}) == (Path("/etc/mine.toml"), "env")


def test_a_good_file_is_used(config: Path) -> None:
    config.write_text(
        'theme = "light"\nmouse = "no"\nutc = true\n[keys]\nview.filter = ["F"]\n"view.quit" = ["Q"]\n'
    )
    used = settings_of(Namespace(ascii="yes"))
    assert used.notice == ""
    assert (used.chosen["theme"].value, used.chosen["utc"].value) == ("light", True)
    assert (used.ascii, used.mouse) == (True, False)
    assert used.keys == {"view.filter": "F", "view.quit": "Q,ctrl+c"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('thema = "light"\n', ":1: thema: unknown key; nearest known key: theme"),
        ('\ntheme = "lihgt"\n', ":2: theme: must be 'anvil', 'light', "),
        ('[keys]\n"view.filter" = ["f"]\n', ':2: keys."view.filter": f is a key of view.pause too'),
        ('[keys]\n"view.filter" = ["ctrl+m"]\n', ':2: keys."view.filter": ctrl+m is Enter'),
        ('[keys]\nview.zone = ["Z"]\nview.filter = "F"\n', ':3: keys."view.filter": must be an array'),
        ('[keys]\n[keys.view]\nzone = ["Z"]\nfliter = ["F"]\n', ':4: keys."view.fliter": is no action'),
        ('[keys]\nview.filter = ["F"]\n"view.filter" = ["G"]\n', ":1: keys: view.filter is there twice"),
        ('[keys]\n"view.fliter" = ["F"]\n', ':2: keys."view.fliter": is no action, nearest view.filter'),
        ('[keys]\n"view.filter" = "F"\n', ':2: keys."view.filter": must be an array'),
        ('schema = "anvil.settings/2"\n', ':1: schema: must be "anvil.settings/1"'),
        ("theme = \n", ":1: not TOML"),
    ],
)  # fmt: skip
def test_a_bad_file_gives_defaults_and_one_notice_with_file_line_and_key(
    config: Path, text: str, said: str
) -> None:
    config.write_text(text)
    used = settings_of(Namespace())
    assert f"{config}{said}" in used.notice
    assert "nothing of this file is used" in used.notice
    assert {c.layer for c in used.chosen.values()} == {"default"}
    assert used.keys == {}


def test_the_example_of_the_documentation_is_accepted(config: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
    config.write_text(text.partition("```toml\n")[2].partition("```")[0])
    used = settings_of(Namespace())
    assert used.notice == ""
    assert used.keys == {"view.filter": "slash,F", "view.zone": "Z"}


def test_a_named_file_that_is_not_there_is_said(config: Path) -> None:
    assert "no such file" in settings_of(Namespace()).notice


def test_the_mouse_is_off_over_ssh_unless_asked_for(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text("")
    assert settings_of(Namespace()).mouse
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.1 5000 192.0.2.2 22")
    assert not settings_of(Namespace()).mouse
    assert settings_of(Namespace(mouse="yes")).mouse


def test_a_bad_flag_is_an_error(config: Path) -> None:
    config.write_text("")
    with pytest.raises(NotFound, match="--mouse: must be auto, yes or no"):
        settings_of(Namespace(mouse="of"))
