"""How the arguments of two serves differ, beyond the typed fields that an identity holds. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from anvil_tui.core.bundle import Identity
from anvil_tui.core.recipe import Recipe


def shown(value: Any) -> str:
    """A value of an identity as a word; None is not known, an empty tuple is none."""
    if value is None or value == "":
        return "not known"
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    return str(value)


_LAUNCH_ONLY = ("launch", "patches")


def arguments_apart(a: Identity, b: Identity, recipes: Mapping[str, Recipe]) -> tuple[str, str] | None:
    """How the two serves are started, where that differs: by the recipes, else by the hash of argv alone.

    Recipes write typed fields as names in braces, so their arguments differ only by what no field says.
    """
    made = [recipes.get((i.recipe_digest or "").removeprefix("sha256:")) for i in (a, b)]
    if made[0] and made[1]:
        mine, theirs = (_started(r) for r in made if r)
        odd = [k for k in sorted({*mine, *theirs}) if mine.get(k) != theirs.get(k)]
        if not odd:
            return None
        return "; ".join(_only(k, mine, theirs) for k in odd), "; ".join(_only(k, theirs, mine) for k in odd)
    if a.config is None or b.config is None or a.config == b.config or a.recipe_digest == b.recipe_digest:
        return None
    return shown(a.config)[:19], shown(b.config)[:19]


def _started(recipe: Recipe) -> dict[str, Any]:
    """How it is started, with the typed fields that fill argv and that no identity holds."""
    facts = recipe.model_dump(mode="json", include=set(_LAUNCH_ONLY))
    limits = recipe.envelope
    return {
        **facts["launch"], "patches": facts["patches"], "tensor_parallel": recipe.gpus.tensor_parallel,
        "images": limits.images, "videos": limits.videos, "weights": recipe.model.sha256,
    }  # fmt: skip


def _only(key: str, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """What of a launch field one side has and the other has not."""
    value, other = mine.get(key), theirs.get(key)
    if isinstance(value, list) and isinstance(other, list):
        return f"{key} {' '.join(_words_only(value, other)) or '(nothing more)'}"
    if isinstance(value, dict) and isinstance(other, dict):
        left = [f"{k}={v}" for k, v in value.items() if other.get(k) != v]
        return f"{key} {' '.join(left) or '(nothing more)'}"
    return f"{key} {shown(value)}"


def _words_only(mine: Sequence[Any], theirs: Sequence[Any]) -> Iterable[str]:
    """The words that the other list has not; a value comes with the option before it."""
    for n, word in enumerate(mine):
        if word not in theirs:
            before = str(mine[n - 1]) if n else ""
            option = before.startswith("-") and not str(word).startswith("-") and before in theirs
            yield f"{before} {word}" if option else str(word)
