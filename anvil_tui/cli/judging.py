"""Headless verbs that judge recipes: feasibility before a load, waivers of the reserve, a family's dossier."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from anvil_tui.adapters.lease import user_name
from anvil_tui.cli.wiring import box_of, client_keys, known, open_probes
from anvil_tui.core.dossier import dossier as dossier_of
from anvil_tui.core.dossier import dossier_json, dossier_lines, dossier_markdown
from anvil_tui.core.errors import BadFile, NotFound, Refused
from anvil_tui.core.holding import Holding
from anvil_tui.core.present import ground_of
from anvil_tui.core.recipe import Recipe
from anvil_tui.core.redact import redact
from anvil_tui.core.screening import Feasible, Ground, as_json, feasible, lines, under
from anvil_tui.core.waivers import CheckWaiver, Waiver, check_waiver_text, in_force, scope, waiver_text
from anvil_tui.core.world import RecipeFile, World
from anvil_tui.service.box import Box


def world_of(box: Box) -> World:
    """Every source asked once; one that does not answer leaves its readings unknown."""
    try:
        return open_probes(box, read_only=True).once()
    finally:
        box.gpus.close()


def one_recipe(files: tuple[RecipeFile, ...], name: str) -> Recipe:
    for f in files:
        if Path(f.path).stem == name:
            if f.recipe is None:
                raise BadFile(f.path, f.error)
            return f.recipe
    raise NotFound(f"no recipe {name!r} (have: {', '.join(sorted(Path(f.path).stem for f in files))})")


def held_now(box: Box) -> Mapping[str, Holding]:
    """The newest qualification of each recipe; nothing is asked of the box when there is no evidence at all."""
    if box.bundles is not None and any(at.complete for at in box.bundles.all()):
        return world_of(box).qualified
    return {f.recipe.id: Holding(f.recipe.id, "never") for f in box.recipes() if f.recipe}


def feasibility(args: argparse.Namespace, box: Box) -> int:
    """The screen of the named recipes; 0 whatever the class: the answer is the data."""
    if not args.recipe:
        raise NotFound("recipes feasibility needs a recipe id")
    files = box.recipes()
    recipes = [one_recipe(files, name) for name in args.recipe]
    world = world_of(box)
    found = [feasible(r, ground_of(world, r)) for r in recipes]
    if args.json:
        print(json.dumps([as_json(f) for f in found], default=str))
    else:
        print("\n".join(line for f in found for line in lines(f)))
    return 0


def waive(args: argparse.Namespace) -> int:
    """Record a waiver of the reserve for one recipe on its GPUs (it changes the class and nothing else), or of one
    check of its way back."""
    if args.read_only:
        raise Refused("--read-only: nothing is changed")
    box = box_of(args)
    if args.check:
        return _waive_check(args, box)
    recipe = one_recipe(box.recipes(), args.recipe)
    ground = ground_of(world_of(box), recipe)
    before = feasible(recipe, ground)
    made = _waiver(args, box, before, recipe, ground)
    after = feasible(recipe, under(ground, made))
    made = replace(made, was=before.cls, became=after.cls)
    box.lease.take("waive")
    try:
        box.store.waive(made)
    finally:
        box.lease.release()
    if args.json:
        print(json.dumps({"waiver": waiver_text(made), "was": before.cls, "became": after.cls}))
    else:
        print(f"recorded: {waiver_text(made)}")
        print(f"class: {before.cls} -> {after.cls}; no measurement changed, and nothing else is waived")
    return 0


def _waive_check(args: argparse.Namespace, box: Box) -> int:
    kept = box.store.kept_recipes().values()
    have = sorted({f.recipe.id for f in box.recipes() if f.recipe} | {r.id for r in kept})
    if args.recipe not in have:
        raise NotFound(f"no recipe {args.recipe!r} (have: {', '.join(have)})")
    if args.until and args.until < box.clock.utc().date():
        raise Refused(f"--until {args.until} is in the past")
    made = CheckWaiver(
        box.clock.utc().isoformat(timespec="seconds"), args.recipe, args.check, _reason(args, box),
        by=user_name(), until=str(args.until) if args.until else "",
    )  # fmt: skip
    box.lease.take("waive")
    try:
        box.store.waive_check(made)
    finally:
        box.lease.release()
    told = f"{made.recipe} as a way back, {made.check}: {check_waiver_text(made)}"
    print(json.dumps({"waiver": told}) if args.json else f"recorded: {told}")
    return 0


def _reason(args: argparse.Namespace, box: Box) -> str:
    reason = redact(args.reason.strip(), known(client_keys(box.workspace, Path(box.directory))))
    if not reason:
        raise Refused("--reason is empty: a waiver says why")
    return reason


def _waiver(args: argparse.Namespace, box: Box, before: Feasible, recipe: Recipe, ground: Ground) -> Waiver:
    if not before.gpus:
        raise Refused(f"a waiver is for one recipe on its GPUs: {before.note or 'none can be told'}")
    counts = in_force(recipe, before.gpus, ground.waivers, ground.today, ground.workspace.policies.reserve_mib)
    if args.reserve >= before.standing_mib and counts is None:
        raise Refused(
            f"--reserve {args.reserve} is not below the standing {before.standing_mib} MiB: nothing to waive"
        )
    if args.until and args.until < ground.today:
        raise Refused(f"--until {args.until} is in the past")
    reason = _reason(args, box)
    return Waiver(
        box.clock.utc().isoformat(timespec="seconds"), recipe.id, scope(before.gpus), before.standing_mib,
        args.reserve, reason, by=user_name(), until=str(args.until) if args.until else "",
    )  # fmt: skip


def dossier(args: argparse.Namespace) -> int:
    """Decisions, negatives, the way back, and what still holds, of one model family."""
    box = box_of(args)
    world = world_of(box)
    recipes = [f.recipe for f in world.recipes if f.recipe]
    made = dossier_of(
        args.family, recipes, today=world.now_utc.date(), pasts=world.pasts,
        holdings=dict(world.qualified), waivers=world.waivers, record=world.record,
        box_mib=box.workspace.policies.reserve_mib,
    )  # fmt: skip
    if args.json:
        print(json.dumps(dossier_json(made), default=str))
    else:
        print(dossier_markdown(made) if args.markdown else "\n".join(dossier_lines(made)))
    return 0
