"""The headless verb `recipes`: list, show, check, diff, feasibility."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anvil_tui.cli.judging import feasibility, held_now, one_recipe
from anvil_tui.cli.wiring import box_of
from anvil_tui.core.errors import NotFound
from anvil_tui.core.holding import Holding, word
from anvil_tui.core.world import RecipeFile
from anvil_tui.service.box import Box


def recipes(args: argparse.Namespace) -> int:
    box = box_of(args)
    files = box.recipes()
    names = args.recipe or sorted(Path(f.path).stem for f in files)
    if args.action == "list":
        return _list(args, box, files)
    if args.action == "feasibility":
        return feasibility(args, box)
    if args.action == "check":
        return _check(args, box, files, names)
    if args.action == "diff":
        return _diff(args, files)
    for name in args.recipe or names:
        recipe = one_recipe(files, name)
        print(recipe.model_dump_json(by_alias=True, indent=2))
    return 0


def _list(args: argparse.Namespace, box: Box, files: tuple[RecipeFile, ...]) -> int:
    held = held_now(box)
    rows = [_row(f, held) for f in files]
    if args.json:
        print(json.dumps(rows))
        return 0
    for r in rows:
        if "error" in r:
            print(f"{r['id']:52} ERROR {r['error'].splitlines()[0]}")
        else:
            shared = "exclusive" if r["exclusive"] else "shared"
            print(f"{r['id']:52} {r['decision']:18} {r['engine']:9} ctx {r['context']:>9,} C{r['concurrency']:<3} "
                  f"{shared:9} {r['licence']:14} {r['qualified']}")  # fmt: skip
    return 0


def _row(f: RecipeFile, held: Mapping[str, Holding]) -> dict[str, Any]:
    if f.recipe is None:
        return {"id": Path(f.path).stem, "error": f.error}
    r = f.recipe
    return {
        "id": r.id, "decision": str(r.decision.status) if r.decision else "undecided", "engine": str(r.engine),
        "context": r.envelope.context_tokens, "concurrency": r.envelope.concurrency, "exclusive": r.exclusive,
        "licence": r.licence.boundary, "loadable": r.loadable, "digest": r.digest(), "served_name": r.served_name,
        "qualified": word(held[r.id]) if r.id in held else "n/a",
        "qualification": asdict(held[r.id]) if r.id in held else None,
    }  # fmt: skip


def _check(args: argparse.Namespace, box: Box, files: tuple[RecipeFile, ...], names: list[str]) -> int:
    bad = [f for f in files if f.recipe is None and Path(f.path).stem in names]
    bad_suites = [s for s in box.suites() if s.suite is None]
    for name in names:
        if not any(Path(f.path).stem == name for f in bad):
            one_recipe(files, name)
    if args.json:
        print(
            json.dumps(
                {"recipes": {f.path: f.error for f in bad}, "suites": {s.path: s.error for s in bad_suites}}
            )
        )
    else:
        for text in (*(f.error for f in bad), *(s.error for s in bad_suites)):
            print(text)
        print(f"{len(names) - len(bad)} of {len(names)} recipes good, {len(bad_suites)} bad suites")
    return 2 if bad or bad_suites else 0


def _diff(args: argparse.Namespace, files: tuple[RecipeFile, ...]) -> int:
    if len(args.recipe) != 2:
        raise NotFound("recipes diff needs two recipe ids")
    left, right = (_flat(one_recipe(files, n).model_dump(mode="json", by_alias=True)) for n in args.recipe)
    keys = [k for k in sorted({*left, *right}) if left.get(k) != right.get(k)]
    if args.json:
        print(json.dumps({k: [left.get(k), right.get(k)] for k in keys}))
        return 0
    for k in keys:
        print(f"{k}\n  - {left.get(k, '(absent)')}\n  + {right.get(k, '(absent)')}")
    return 0


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {k2: v2 for k, v in value.items() for k2, v2 in _flat(v, f"{prefix}.{k}" if prefix else k).items()}
    return {prefix: value}
