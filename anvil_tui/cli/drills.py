"""`drill`: on the box by the same road as every change, or on a simulated copy; `drills`: what came of them."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from anvil_tui.cli.changing import change
from anvil_tui.cli.wiring import box_of
from anvil_tui.core.drills import drill_line, drill_lines, outcome_words, trend_line, trends
from anvil_tui.core.errors import NotFound, Refused
from anvil_tui.core.standing import DrillRecord
from anvil_tui.service.box import Box
from anvil_tui.service.drill import recheck


def drill(args: argparse.Namespace) -> int:
    if not args.copy:
        return change(args)
    from anvil_tui.cli.copies import drill_copy

    return int(drill_copy(args))


def drills(args: argparse.Namespace) -> int:
    """0; `recheck` 1 when the box is not what the drill began with."""
    box = box_of(args)
    try:
        if args.action == "list":
            return _list(args, box)
        found = _named(box, args.operation, args.action)
        if args.action == "show":
            return _show(args, found)
        return _recheck(args, box, found[0])
    finally:
        box.gpus.close()


def _list(args: argparse.Namespace, box: Box) -> int:
    kept = box.store.drills()
    if args.json:
        print(json.dumps({"drills": [asdict(d) for d in kept], "trends": [asdict(t) for t in trends(kept)]}))
        return 0
    for line in (*map(drill_line, kept), *map(trend_line, trends(kept))) or ("no drill yet: `anvil-tui drill`",):
        print(line)
    return 0


def _named(box: Box, operation: str, action: str) -> list[DrillRecord]:
    """The drill of that operation, and its rechecks."""
    if not operation:
        raise NotFound(f"drills {action} needs an operation; `anvil-tui drills list`")
    found = [d for d in box.store.drills() if d.operation == operation]
    if not found:
        raise NotFound(f"no drill {operation!r}; `anvil-tui drills list`")
    return found


def _show(args: argparse.Namespace, found: list[DrillRecord]) -> int:
    if args.json:
        print(json.dumps([asdict(d) for d in found]))
        return 0
    for drill in found:
        print("\n".join(drill_lines(drill)))
    return 0


def _recheck(args: argparse.Namespace, box: Box, found: DrillRecord) -> int:
    if args.read_only:
        raise Refused("--read-only: nothing is recorded")
    made = recheck(box, found)
    if args.json:
        print(json.dumps(asdict(made)))
    else:
        print("\n".join(drill_lines(made)))
        print(f"recheck of {made.operation}: {outcome_words(made)}")
    return int(bool(made.differences))
