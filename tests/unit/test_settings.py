"""A person's settings: which layer wins, what a key may be, which keys meet."""

from __future__ import annotations

import pytest

from anvil_tui.core.settings import MOVES, Settings, choose, key_name, key_problems, keys_of, over_ssh

OWN = {
    "view.help": ("question_mark",), "view.filter": ("slash",), "view.pause": ("f",),
    "view.quit": ("q", "ctrl+c"), "role.drain": ("d",), "view.arm": ("space",), "view.play": ("space",),
}  # fmt: skip


@pytest.mark.parametrize(
    ("flag", "variable", "file", "want"),
    [
        ("", "", {}, ("anvil", "default")),
        ("", "", {"theme": "light"}, ("light", "file")),
        ("", "high-contrast", {"theme": "light"}, ("high-contrast", "env")),
        ("colour-blind", "high-contrast", {"theme": "light"}, ("colour-blind", "flag")),
    ],
)
def test_a_flag_wins_over_a_variable_over_the_file_over_the_default(flag, variable, file, want):  # type: ignore[no-untyped-def]
    found, problems = choose({"theme": flag or None}, {"ANVIL_TUI_THEME": variable}, Settings.model_validate(file))
    assert (found["theme"].value, found["theme"].layer) == want
    assert problems == ()


def test_a_bad_variable_is_named_and_the_file_holds() -> None:
    found, problems = choose({}, {"ANVIL_TUI_MOUSE": "of", "ANVIL_TUI_BELL": "no"}, Settings(mouse="yes"))
    assert problems == ("ANVIL_TUI_MOUSE: must be auto, yes or no",)
    assert (found["mouse"].value, found["mouse"].layer) == ("yes", "file")
    assert found["bell"].value is False


def test_a_bad_flag_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"--theme: must be .*, nearest high-contrast"):
        choose({"theme": "high-contrats"}, {}, Settings())


@pytest.mark.parametrize(
    ("text", "name"),
    [("?", "question_mark"), ("/", "slash"), ("-", "minus"), ("A", "A"), ("7", "7"), ("Esc", "escape"),
     ("ctrl+P", "ctrl+p"), ("F5", "f5"), ("question_mark", "question_mark")],
)  # fmt: skip
def test_keys_are_written_as_people_write_them(text: str, name: str) -> None:
    assert key_name(text) == name


@pytest.mark.parametrize(
    ("text", "why"),
    [("ctrl+m", "is Enter"), ("ctrl+i", "is Tab"), ("ctrl+h", "Backspace"), ("ctrl+s", "stops"),
     ("alt+x", "is no key"), ("ctrl+shift+a", "is no key"), ("ä", "is no key"), ("", "is no key")],
)  # fmt: skip
def test_keys_that_not_every_terminal_sends_are_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        key_name(text)


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ({"view.filter": ("F",)}, []),
        ({"view.filter": ("f",)}, [("view.filter", "f is a key of view.pause too")]),
        ({"view.filter": ("f",), "view.pause": ("F",)}, []),
        ({"view.filter": ("x",), "view.pause": ("x",)}, [("view.filter", "x is a key of view.pause too")]),
        ({"view.fliter": ("F",)}, [("view.fliter", "is no action, nearest view.filter")]),
        ({"view.filter": ()}, [("view.filter", "needs one key at least")]),
        ({"view.filter": ("ctrl+c",), "view.quit": ("Q",)}, [("view.filter", "ctrl+c is a key of view.quit too")]),
        ({"view.filter": ("F", "F")}, [("view.filter", "F is there twice")]),
        ({"view.arm": ("space", "B")}, []),
        ({"view.filter": ("space",)}, [("view.filter", "space is a key of view.arm too"),
                                       ("view.filter", "space is a key of view.play too")]),
        *(({"view.filter": (m,)}, [("view.filter", f"{m} moves the cursor")]) for m in MOVES),
    ],
)  # fmt: skip
def test_clashes_and_unknown_actions_are_told_by_name(given, want) -> None:  # type: ignore[no-untyped-def]
    found = list(key_problems(OWN, given))
    assert [a for a, _ in found] == [a for a, _ in want]
    assert all(text.startswith(start) for (_, text), (_, start) in zip(found, want, strict=True))


def test_own_keys_that_meet_on_different_screens_are_nobodys_mistake() -> None:
    assert list(key_problems(OWN, {})) == []


def test_a_given_key_takes_the_place_of_the_own_ones_and_ctrl_c_always_quits() -> None:
    assert keys_of(OWN, {"view.filter": ("/", "F"), "view.quit": ("Q",)}) == {
        "view.filter": "slash,F", "view.quit": "Q,ctrl+c",
    }  # fmt: skip


def test_tables_and_quoted_names_of_actions_are_the_same() -> None:
    quoted = Settings.model_validate({"keys": {"view.filter": ("F",), "view.quit": ("Q",)}})
    assert Settings.model_validate({"keys": {"view": {"filter": ("F",), "quit": ("Q",)}}}) == quoted


@pytest.mark.parametrize(("environ", "want"), [({}, False), ({"SSH_TTY": "/dev/pts/1"}, True)])
def test_over_ssh(environ: dict[str, str], want: bool) -> None:
    assert over_ssh(environ) is want
