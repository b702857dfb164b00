"""The console's own colours. Every tone of text has 4.5:1 on each of its backgrounds, 7:1 in high contrast.

Colour is never the only sign: each state has a word or a glyph too. In `colour-blind` good is blue, bad is orange.
"""

from __future__ import annotations

from textual.theme import Theme


def _theme(
    name: str,
    backgrounds: str,
    plain: str,
    states: str,
    *,
    border: str,
    spark: str,
    line: str,
    dark: bool = True,
) -> Theme:
    """`backgrounds`: screen, dialog, header, cursor. `plain`: text, strong, dim, faint. `states`: good, warning,
    bad, accent. `line` is for what carries no fact: rules, separators, the empty part of a bar."""
    background, surface, panel, cursor = backgrounds.split()
    text, strong, dim, faint = plain.split()
    good, warning, bad, accent = states.split()
    more = {"dim": dim, "faint": faint, "strong": strong, "cursor": cursor, "spark": spark, "line": line}
    return Theme(
        name, accent, border, warning, bad, good, accent, text, background, surface, panel, dark=dark,
        variables={**more, "input-cursor-background": text, "input-cursor-foreground": background},
    )  # fmt: skip


THEMES: dict[str, Theme] = {
    theme.name: theme
    for theme in (
        _theme("anvil", "#0f1317 #151b21 #1c242c #1b2833", "#c8ced6 #eef2f6 #a2adba #8793a1",
               "#6cc0ad #e0b060 #f0785a #7fb4e0", border="#456480", spark="#6d9cc6", line="#4b5764"),
        _theme("light", "#f7f8fa #ffffff #e9edf1 #dce7f2", "#1f2933 #000000 #444f5a #57626d",
               "#0a6350 #7d5200 #b0241c #0b57a4", border="#7b93aa", spark="#2a6592", line="#a3aeb9", dark=False),
        _theme("high-contrast", "#000000 #000000 #14181c #00264d", "#ffffff #ffffff #dcdcdc #c4c4c4",
               "#66ffb8 #ffd75f #ff9f8a #8ad8ff", border="#ffffff", spark="#8ad8ff", line="#8a8a8a"),
        _theme("colour-blind", "#0f1317 #151b21 #1c242c #1b2833", "#c8ced6 #eef2f6 #a2adba #8793a1",
               "#5fb0f2 #f2e34c #ff8a1f #d9a6cf", border="#456480", spark="#8fa7bd", line="#4b5764"),
    )
}  # fmt: skip
DEFAULT = "anvil"


def named(name: str) -> tuple[str, str]:
    """The theme to use for a name, and a sentence when there is none of that name."""
    if name in THEMES:
        return name, ""
    return DEFAULT, f"no theme {name}: {DEFAULT} is used; there are {', '.join(THEMES)}"


def after(name: str) -> str:
    """The next one, round and round."""
    names = list(THEMES)
    return names[(names.index(name) + 1) % len(names)] if name in names else DEFAULT
