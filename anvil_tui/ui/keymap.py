"""Which key does what in this process: the registry's own keys, or those that a person gave by an action's id.

Set once, before the first screen. Hints, help, palette and every sentence that names a key ask here.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

# as a person writes them, where Textual's name is another
_WRITTEN = {
    "question_mark": "?", "colon": ":", "slash": "/", "escape": "esc", "exclamation_mark": "!", "comma": ",",
    "full_stop": ".", "left_square_bracket": "[", "right_square_bracket": "]", "semicolon": ";", "plus": "+",
    "minus": "-", "underscore": "_", "equals_sign": "=", "number_sign": "#", "percent_sign": "%", "asterisk": "*",
    "ampersand": "&", "apostrophe": "'", "at": "@", "backslash": "\\", "dollar_sign": "$", "tilde": "~",
    "circumflex_accent": "^", "grave_accent": "`", "vertical_line": "|", "quotation_mark": '"',
    "left_parenthesis": "(", "right_parenthesis": ")", "less_than_sign": "<", "greater_than_sign": ">",
    "left_curly_bracket": "{", "right_curly_bracket": "}",
}  # fmt: skip

_own: dict[str, tuple[str, ...]] = {}
_given: dict[str, tuple[str, ...]] = {}


def own(action: str, keys: tuple[str, ...]) -> None:
    """The registry tells each action's own keys."""
    _own[action] = keys


def use(given: Mapping[str, str]) -> None:
    """Keys by id of an action, with commas between, checked by `core.settings`; all others keep their own."""
    _given.clear()
    _given.update({action: tuple(keys.split(",")) for action, keys in given.items()})


def keys(action: str) -> tuple[str, ...]:
    """By Textual's names, the first one first."""
    if not _own:
        import_module("anvil_tui.ui.actions")  # its policies name keys, so it cannot be imported above
    return _given.get(action) or _own[action]


def key(action: str) -> str:
    """The first key as a person writes it."""
    return written(keys(action)[0])


def written(name: str) -> str:
    return _WRITTEN.get(name, name)


def by_key() -> dict[str, str]:
    """The action of each key. A given key wins over an own one, which the settings refuse anyway."""
    table = {k: action for action in _own for k in keys(action)}
    return table | {k: action for action, given in _given.items() for k in given}
