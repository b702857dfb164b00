"""A person's settings for one run: flags, variables, config.toml, and what could not be used of them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_config_path

from anvil_tui.adapters.toml_files import load_settings
from anvil_tui.core.errors import BadFile, NotFound
from anvil_tui.core.settings import NAMES, Chosen, Settings, choose, key_problems, keys_of, over_ssh
from anvil_tui.core.tables import Layer
from anvil_tui.ui.actions import REGISTRY

OWN_KEYS = {action.id: action.keys for action in REGISTRY.values()}


@dataclass(frozen=True, slots=True)
class Used:
    """What holds in this run. `notice` is "" or what could not be used, all problems, one a line."""

    path: Path
    path_layer: Layer
    chosen: Mapping[str, Chosen]
    keys: Mapping[str, str]
    notice: str

    @property
    def ascii(self) -> bool | None:
        """None = look at the terminal."""
        return {"yes": True, "no": False}.get(self.chosen["ascii"].value)

    @property
    def mouse(self) -> bool:
        wanted = str(self.chosen["mouse"].value)
        return wanted == "yes" or (wanted == "auto" and not over_ssh(os.environ))


def settings_path(environ: Mapping[str, str]) -> tuple[Path, Layer]:
    """`ANVIL_TUI_CONFIG`, else config.toml in the person's own configuration folder (XDG on Linux)."""
    named = environ.get("ANVIL_TUI_CONFIG", "")
    if named:
        return Path(named).expanduser().absolute(), "env"
    return user_config_path("anvil-tui") / "config.toml", "default"


def settings_of(args: argparse.Namespace) -> Used:
    """Never raises for a bad file or variable: a console opens with defaults, and says so. NotFound for a flag."""
    path, layer = settings_path(os.environ)
    file, problems = Settings(), []
    if layer == "env" or path.exists():
        try:
            file = load_settings(path, _bad_keys)
        except BadFile as why:
            problems.append(f"{why}\nnothing of this file is used")
    try:
        chosen, bad = choose({name: getattr(args, name, None) for name in NAMES}, os.environ, file)
    except ValueError as why:
        raise NotFound(str(why)) from None
    return Used(path, layer, chosen, keys_of(OWN_KEYS, file.keys), "\n".join((*problems, *bad)))


def _bad_keys(settings: Settings) -> Iterable[tuple[str, str]]:
    return key_problems(OWN_KEYS, settings.keys)
