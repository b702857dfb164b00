"""What a person chooses for their own console: config.toml, variables and flags, and keys by action. Pure.

A flag wins over a variable `ANVIL_TUI_NAME`, that over the file, that over the default.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, ValidationError

from anvil_tui.core.tables import Layer, Line, Table

SETTINGS_SCHEMA: Literal["anvil.settings/1"] = "anvil.settings/1"
Theme = Literal["anvil", "light", "high-contrast", "colour-blind"]
Choice = Literal["auto", "yes", "no"]

MOVES = ("up", "down", "j", "k", "pageup", "pagedown", "home", "end")
"""Keys that move the cursor on every screen; no action can have them."""
ALWAYS = {"view.quit": ("ctrl+c",)}
"""Keys that an action keeps whatever the file says: there is a way out of every console."""
# In a plain terminal these are another key, or never arrive: flow control, suspend, and what Enter and Tab send.
_UNSENT = {
    "ctrl+i": "is Tab", "ctrl+m": "is Enter", "ctrl+j": "is Enter in some terminals",
    "ctrl+h": "is Backspace in some terminals", "ctrl+z": "suspends", "ctrl+s": "stops a terminal's output",
    "ctrl+q": "lets a terminal's output go on",
}  # fmt: skip
_RENAMED = {
    "solidus": "slash", "reverse_solidus": "backslash", "commercial_at": "at", "hyphen_minus": "minus",
    "plus_sign": "plus", "low_line": "underscore",
}  # fmt: skip
_NAMED = (
    "escape", "enter", "tab", "shift+tab", "space", "backspace", "delete", "insert", "left", "right",
    *(f"f{n}" for n in range(1, 13)), *(f"ctrl+{c}" for c in string.ascii_lowercase),
)  # fmt: skip
_FORMS = "a letter, a digit, a sign, f1 to f12, ctrl+LETTER, esc, enter, tab, shift+tab, space, left or right"


def _flat(value: Any) -> Any:
    """TOML reads `view.filter = ["F"]` as a table `view`; it means the same as with quotes."""
    if not isinstance(value, dict):
        return value
    flat: dict[str, Any] = {}
    for name, inner in value.items():
        ids = {f"{name}.{k}": v for k, v in inner.items()} if isinstance(inner, dict) else {name: inner}
        if twice := flat.keys() & ids.keys():
            raise ValueError(f"{min(twice)} is there twice")
        flat |= ids
    return flat


class Settings(Table):
    """The whole of config.toml. `mouse` auto is off over SSH, `ascii` auto looks at the terminal.

    `keys` maps the id of an action to the keys that it has in place of its own.
    """

    schema_: Literal["anvil.settings/1"] = Field(default=SETTINGS_SCHEMA, alias="schema")
    theme: Theme = "anvil"
    ascii: Choice = "auto"
    utc: bool = False
    mouse: Choice = "auto"
    bell: bool = True
    keys: Annotated[dict[str, tuple[Line, ...]], BeforeValidator(_flat)] = {}


NAMES = ("theme", "ascii", "utc", "mouse", "bell")
"""What has a variable too: `ANVIL_TUI_THEME` and so on."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """One value and the layer that set it."""

    value: Any
    layer: Layer


def choose(
    flags: Mapping[str, str | None], environ: Mapping[str, str], file: Settings
) -> tuple[Mapping[str, Chosen], tuple[str, ...]]:
    """Each of `NAMES` with its layer, and a sentence for each variable that cannot be used.

    A flag that was not given is None or absent; ValueError for one that cannot be used.
    """
    found: dict[str, Chosen] = {}
    problems = []
    for name in NAMES:
        layer: Layer = "file" if name in file.model_fields_set else "default"
        found[name] = Chosen(getattr(file, name), layer)
        variable = f"ANVIL_TUI_{name.upper()}"
        if text := environ.get(variable, ""):
            try:
                found[name] = Chosen(_worded(name, text), "env")
            except ValueError as why:
                problems.append(f"{variable}: {why}")
        if text := flags.get(name) or "":
            try:
                found[name] = Chosen(_worded(name, text), "flag")
            except ValueError as why:
                raise ValueError(f"--{name}: {why}") from None
    return found, tuple(problems)


def _worded(name: str, text: str) -> object:
    """ValueError with what is wanted."""
    plain = text.strip().lower()
    on = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}.get(plain)
    if isinstance(getattr(Settings(), name), bool):
        if on is None:
            raise ValueError("must be yes or no")
        return on
    wanted = get_args(Theme if name == "theme" else Choice)
    if name != "theme" and on is not None:
        plain = "yes" if on else "no"
    try:
        return getattr(Settings.model_validate({name: plain}), name)
    except ValidationError:
        raise ValueError(f"must be {', '.join(wanted[:-1])} or {wanted[-1]}{_near(plain, wanted)}") from None


def over_ssh(environ: Mapping[str, str]) -> bool:
    """Whether sshd started this session. In tmux: whether it started the pane's shell."""
    return any(environ.get(name) for name in ("SSH_CONNECTION", "SSH_TTY", "SSH_CLIENT"))


def key_name(text: str) -> str:
    """A key as the console names it: `?` is question_mark, `esc` is escape. ValueError for one that no terminal
    sends as itself.

    >>> key_name("?"), key_name("Ctrl+P"), key_name("A")
    ('question_mark', 'ctrl+p', 'A')
    """
    if len(text) == 1 and text.isascii() and text.isprintable() and text != " ":
        if text.isalnum():
            return text
        name = unicodedata.name(text).lower().replace("-", "_").replace(" ", "_")
        return _RENAMED.get(name, name)
    plain = {"esc": "escape", " ": "space", "return": "enter"}.get(text.lower(), text.lower())
    signs = {key_name(c) for c in string.punctuation}
    if plain in _UNSENT:
        raise ValueError(f"{text} {_UNSENT[plain]}")
    if plain in _NAMED or plain in signs or plain in MOVES:
        return plain
    raise ValueError(f"{text} is no key: {_FORMS}")


def key_problems(
    own: Mapping[str, Sequence[str]], given: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, str]]:
    """What is wrong with the keys that a person gave: (action id, sentence). `own` are the keys of every action.

    Two actions whose own keys meet on different screens are no matter of the person's; a given key meets any.
    """
    table = {action: tuple(keys) for action, keys in own.items()}
    for action, keys in given.items():
        if action not in own:
            yield action, f"is no action{_near(action, tuple(own))}"
        elif not keys:
            yield action, "needs one key at least"
        else:
            named, bad = _named(keys)
            yield from ((action, why) for why in bad)
            table[action] = named
    yield from _clashes(own, table, given)


def _named(keys: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    found: list[str] = []
    bad = []
    for text in keys:
        try:
            name = key_name(text)
        except ValueError as why:
            bad.append(str(why))
            continue
        if name in MOVES:
            bad.append(f"{text} moves the cursor")
        elif name in found:
            bad.append(f"{text} is there twice")
        found.append(name)
    return tuple(found), bad


def _clashes(
    own: Mapping[str, Sequence[str]], table: Mapping[str, Sequence[str]], given: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, str]]:
    """Each pair once. What two actions share by themselves is no clash."""
    order = list(given)
    for at, action in enumerate(order):
        for other, keys in table.items():
            if other not in order[: at + 1]:
                shared = {*own[other], *ALWAYS.get(other, ())} & {*own.get(action, ())}
                taken = {*keys, *ALWAYS.get(other, ())} - shared
                names = [name for name in table.get(action, ()) if name in taken]
                yield from ((action, f"{n} is a key of {other} too: give one of them another") for n in names)


def keys_of(own: Mapping[str, Sequence[str]], given: Mapping[str, Sequence[str]]) -> Mapping[str, str]:
    """The keys of each action that a person gave other ones, by the console's names, with commas between.
    `given` has no problems."""
    return {
        action: ",".join(dict.fromkeys((*map(key_name, keys), *ALWAYS.get(action, ()))))
        for action, keys in given.items()
        if action in own
    }


def _near(text: str, known: Sequence[str]) -> str:
    found = get_close_matches(text, known, 1)
    return f", nearest {found[0]}" if found else ""
