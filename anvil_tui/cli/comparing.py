"""Headless verbs that compare: bundles that are there, or two serves measured in turn."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anvil_tui.adapters.files import write_atomic
from anvil_tui.cli.changing import plan_lines
from anvil_tui.cli.launch import follow, spawn
from anvil_tui.cli.operate import EXIT
from anvil_tui.cli.wiring import open_box, open_bundles, workspace_dir
from anvil_tui.core.compare import NAMES, Comparison, compare, rows_compared
from anvil_tui.core.compare_text import lines
from anvil_tui.core.errors import EffectFailed, NotFound, Refused
from anvil_tui.core.gate_kinds import LANES
from anvil_tui.core.gates import Suite
from anvil_tui.core.journal import OperationView
from anvil_tui.core.matching import VARIABLES, Arm
from anvil_tui.core.plan import Plan
from anvil_tui.core.plots import over_what_varies, svg
from anvil_tui.service.ab import (
    Run,
    Series,
    carry_out,
    failed_tries,
    known_recipes,
    plan_run,
    result,
    standing,
)
from anvil_tui.service.arms import arm_of, sound_bundle
from anvil_tui.service.box import Box
from anvil_tui.service.operation import Mode, prepare
from anvil_tui.service.planning import gather


def compare_bundles(args: argparse.Namespace) -> int:
    """B and every further arm against A. 0 = matched, whatever the verdict; 3 = refused."""
    directory = workspace_dir(args)
    bundles = open_bundles(directory)
    names = [args.a, args.b, *args.more]
    arms = [arm_of(bundles, text, "ABCDEFGH"[n]) for n, text in enumerate(names[:8])]
    if len(names) > len(arms):
        raise NotFound(f"{len(names)} arms are more than {len(arms)}")
    box = open_box(directory)
    try:
        recipes = known_recipes(box)
    finally:
        box.gpus.close()
    found = [
        compare(
            arms[0],
            arm,
            metric=_metric(args.metric),
            band_pct=args.band,
            varies=_variable(args.varies),
            recipes=recipes,
        )
        for arm in arms[1:]
    ]
    return _show(args, found, arms)


def _metric(name: str) -> str:
    if name not in NAMES:
        raise NotFound(f"no metric {name!r}: {', '.join(NAMES)}")
    return name


def _variable(name: str) -> str:
    if name and name not in VARIABLES:
        raise NotFound(f"--varies {name!r} is none of {', '.join(VARIABLES)}")
    return name


def _show(args: argparse.Namespace, found: Sequence[Comparison], arms: Sequence[Arm]) -> int:
    refused = any(f.refusals for f in found)
    if args.json:
        whole = [_document(f) for f in found]
        print(json.dumps(whole if len(whole) > 1 else whole[0]))
    else:
        print("\n\n".join("\n".join(lines(f)) for f in found))
    if args.svg and not refused:
        picture = svg(over_what_varies(rows_compared(found, arms), found[0].metric))
        write_atomic(args.svg, picture, mode=0o644)
    elif args.svg:
        print(f"{args.svg} was not written: the arms are not matched", file=sys.stderr)
    return 3 if refused else 0


def _document(found: Comparison) -> dict[str, Any]:
    return asdict(found) | {
        "state": found.state,
        "confounded": list(found.confounded),
        "refusals": [asdict(r) for r in found.refusals],
    }


# two serves in turn


def ab(args: argparse.Namespace) -> int:
    """Print what would be run, or with --yes run what is left of it and compare."""
    box = open_box(workspace_dir(args))
    try:
        return _ab(args, box)
    finally:
        box.gpus.close()


def _ab(args: argparse.Namespace, box: Box) -> int:
    series, names = _series(args, box)
    runs = standing(box, series)
    if any(not r.operation or r.open for r in runs):
        if args.read_only and args.yes:
            raise Refused("--read-only: nothing is changed")
        if not args.yes:
            return _preview(args, box, series, runs, names)
        failed = carry_out(
            box, series, lambda made: _run(box, made), lambda operation: _end(box, operation, "resume")
        )
        if failed:
            return _stopped(series, failed)
    bundles = open_bundles(Path(box.directory))
    found = result(box, series, lambda name: sound_bundle(bundles, name), names)
    for operation in failed_tries(standing(box, series)):
        print(f"operation {operation} did not end well and was run again", file=sys.stderr)
    arms = [
        Arm(name, tuple(sound_bundle(bundles, i) for i in ids))
        for name, ids in ((found.a, found.runs_a), (found.b, found.runs_b))
    ]
    return _show(args, [found], arms)


def _series(args: argparse.Namespace, box: Box) -> tuple[Series, tuple[str, str]]:
    facts = gather(box)
    suite = with_lanes(facts.suite(args.suite))
    a, b = facts.serve_named(args.a), facts.serve_named(args.b)
    name = args.id or f"{a.recipe_id}-{a.container_id[:6]}-{b.recipe_id}-{b.container_id[:6]}-{args.suite}"
    series = Series(
        name, a.container_id, b.container_id, suite.id, args.runs,
        _metric(args.metric), args.band, _variable(args.varies),
    )  # fmt: skip
    return series, (f"A {a.recipe_id}", f"B {b.recipe_id}")


def with_lanes(suite: Suite) -> Suite:
    """Refused before anything runs: what has no lanes has nothing to compare."""
    if not any(g.kind in LANES for g in suite.gates):
        raise Refused(f"suite {suite.id} has no lanes, so nothing of it can be compared: choose one with lanes")
    return suite


def _preview(
    args: argparse.Namespace, box: Box, series: Series, runs: Sequence[Run], names: tuple[str, str]
) -> int:
    """Both plans once, and the order of the runs. 3 when a plan would refuse."""
    begun = next((r.operation for r in runs if r.open), "")
    facts = gather(box, ignore=begun)
    plans = [plan_run(box, series, next(r for r in runs if r.arm == arm), facts) for arm in "AB"]
    refusals = [r for made in plans for r in made.refusals]
    if args.json:
        told = {"series": asdict(series), "runs": [asdict(r) for r in runs], "refusals": refusals}
        print(json.dumps(told))
    else:
        order = "".join(r.arm for r in runs)
        print(f"A/B {series.id}: suite {series.suite}, {series.runs} runs an arm, order {order}; {series.terms}")
        for name, made in zip(names, plans, strict=True):
            print("\n".join([name, *(f"  {line}" for line in plan_lines(made))]))
        for run in runs:
            print(f"  arm {run.arm}, run {run.n}: {_told(run)}")
    if refusals:
        return 3
    print(f"nothing was done; run it with --yes --id {series.id}", file=sys.stderr)
    return 0


def _told(run: Run) -> str:
    if run.open:
        return f"begun, will be taken up: {run.operation}"
    return f"done: {run.operation}" if run.operation else "to run"


def _run(box: Box, made: Plan) -> OperationView:
    operation = prepare(box, made)
    print(f"operation {operation}: {made.intent.reason}", file=sys.stderr)
    return _end(box, operation, "start")


def _end(box: Box, operation: str, mode: Mode) -> OperationView:
    process = spawn(box, operation, mode)
    view = follow(box, operation, process, lambda text: print(text, file=sys.stderr, flush=True))
    if view is None or view.outcome is None:
        raise EffectFailed(
            f"operation {operation} did not end (its process: exit {process.returncode}): "
            "the same command takes it up"
        )
    return view


def _stopped(series: Series, failed: OperationView) -> int:
    print(f"{failed.outcome}: operation {failed.id}: {failed.why}", file=sys.stderr)
    print(f"what was run is kept; the same command with --id {series.id} goes on from there", file=sys.stderr)
    if failed.why.startswith("refused before step 1"):
        raise Refused(failed.why)
    return EXIT[failed.outcome or "halted"]
