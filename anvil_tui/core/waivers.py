"""Dated exceptions: from the reserve that each card must keep (one changes a class, never a measurement), and from
one check of a way back. Pure.

Of the reserve there is one road: of all waivers for a recipe on exactly its GPUs (records of `anvil-tui waive`,
and the dated one that a recipe's file may hold) the newest decides. One that has expired counts as none and brings
no earlier one back, and one whose reserve is not below the standing one takes the exception back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

from anvil_tui.core.recipe import Recipe
from anvil_tui.core.standing import CheckName


@dataclass(frozen=True, slots=True)
class Waiver:
    """One record. `gpus` are full UUIDs, sorted; `by` is the operating system's user and stays in `state/`.

    `was` and `became` are the classes of the recipe at that moment; `source` says where it was read.
    """

    at: str
    recipe: str
    gpus: tuple[str, ...]
    standing_mib: int
    reserve_mib: int
    reason: str
    by: str = ""
    until: str = ""
    was: str = ""
    became: str = ""
    source: Literal["state", "recipe"] = "state"

    def expired(self, today: date) -> bool:
        """`until` is the last day on which it counts."""
        return bool(self.until) and today > date.fromisoformat(self.until)


@dataclass(frozen=True, slots=True)
class CheckWaiver:
    """One record of `waive RECIPE --way-back CHECK`: that recipe may be a way back although this check fails.

    It makes nothing possible that is not: what the check found is shown beside it. The newest of one recipe and
    check counts, until its last day.
    """

    at: str
    recipe: str
    check: CheckName
    reason: str
    by: str = ""
    until: str = ""


def check_waived(recipe: str, check: CheckName, waivers: Iterable[CheckWaiver], today: date) -> CheckWaiver | None:
    """The waiver that counts today, None = the check does."""
    here = [w for w in waivers if (w.recipe, w.check) == (recipe, check)]
    newest = max(here, key=lambda w: w.at, default=None)
    if newest is None or (newest.until and today > date.fromisoformat(newest.until)):
        return None
    return newest


def check_waiver_text(w: CheckWaiver) -> str:
    """One waiver as a sentence. It names no person: that stays in `state/`."""
    return f"waived {w.at[:10]}{f' until {w.until}' if w.until else ''}: {w.reason}"


def scope(gpus: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(gpus))


def _same(one: Iterable[str], other: Iterable[str]) -> bool:
    return {g.lower() for g in one} == {g.lower() for g in other}


def of_recipe(recipe: Recipe, gpus: Sequence[str], box_mib: int = 0) -> Waiver | None:
    """The dated waiver in the recipe's own file: it sets the reserve to 0, on whatever GPUs the recipe selects."""
    rule = recipe.reserve
    if rule.waived_on is None:
        return None
    reason = f"{rule.waiver}; scope: {rule.waiver_scope}"
    standing = rule.needed_mib(box_mib)
    return Waiver(str(rule.waived_on), recipe.id, scope(gpus), standing, 0, reason, source="recipe")


def all_for(
    recipe: Recipe, gpus: Sequence[str], waivers: Iterable[Waiver], box_mib: int = 0
) -> tuple[Waiver, ...]:
    """Every waiver of this recipe on exactly these GPUs, oldest first."""
    here = [w for w in waivers if w.recipe == recipe.id and _same(w.gpus, gpus)]
    own = of_recipe(recipe, gpus, box_mib)
    # Of one day the record stands after the file: it was made by somebody who could read the file.
    return tuple(sorted([*([own] if own else []), *here], key=lambda w: (w.at[:10], w.source == "state", w.at)))


def in_force(
    recipe: Recipe, gpus: Sequence[str], waivers: Iterable[Waiver], today: date, box_mib: int = 0
) -> Waiver | None:
    """The waiver that counts today, None = the standing reserve does."""
    newest = next(reversed(all_for(recipe, gpus, waivers, box_mib)), None)
    if newest is None or newest.expired(today) or newest.reserve_mib >= recipe.reserve.needed_mib(box_mib):
        return None
    return newest


def waiver_text(w: Waiver) -> str:
    """One waiver as a sentence. It names no person: that stays in `state/`."""
    until = f" until {w.until}" if w.until else ""
    moved = f"; class {w.was} became {w.became}" if w.was and w.became and w.was != w.became else ""
    return (
        f"reserve {w.reserve_mib:,} MiB instead of {w.standing_mib:,} MiB, waived {w.at[:10]}{until} "
        f"for {w.recipe} on {', '.join(w.gpus) or 'the GPUs it selects'}: {w.reason}{moved}"
    )


def waivers_for(
    recipe: Recipe, gpus: Sequence[str], waivers: Iterable[Waiver], today: date, box_mib: int = 0
) -> tuple[str, ...]:
    """Sentences for evidence: every waiver and change of class of the recipe on these GPUs, and which counts."""
    have = all_for(recipe, gpus, waivers, box_mib)
    now = in_force(recipe, gpus, have, today, box_mib)
    return tuple(f"{waiver_text(w)} ({_standing(w, now, today)})" for w in have)


def _standing(w: Waiver, now: Waiver | None, today: date) -> str:
    if w == now:
        return "in force; it changes the class and no measurement"
    return f"expired {w.until}" if w.expired(today) else "no longer in force"
