"""The console's own colours: teal and orange-red for good and bad, which colour-blind readers tell apart."""

from __future__ import annotations

from textual.theme import Theme

ANVIL = Theme(
    name="anvil",
    primary="#7aa2c8",
    secondary="#456480",
    accent="#7fb4e0",
    success="#6cc0ad",
    warning="#e0b060",
    error="#f0785a",
    foreground="#c8ced6",
    background="#0f1317",
    surface="#151b21",
    panel="#1c242c",
    dark=True,
    variables={
        "dim": "#8792a0",
        "faint": "#4b5764",
        "strong": "#eef2f6",
        "cursor": "#22303d",
        "input-cursor-background": "#c8ced6",
        "input-cursor-foreground": "#0f1317",
    },
)
