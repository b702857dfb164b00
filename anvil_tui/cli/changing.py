"""Headless verbs that change the box: plan first, then the same operation process as the console starts."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from anvil_tui.cli.credentials import given_key
from anvil_tui.cli.launch import counted, follow, spawn, view_of
from anvil_tui.cli.operate import EXIT
from anvil_tui.cli.wiring import box_of
from anvil_tui.core.errors import EffectFailed, NotFound, Refused
from anvil_tui.core.facts import Facts
from anvil_tui.core.journal import OperationView
from anvil_tui.core.moved import moved
from anvil_tui.core.plan import Intent, Plan
from anvil_tui.service.box import Box
from anvil_tui.service.operation import Mode, accept, prepare
from anvil_tui.service.planning import gather, plan
from anvil_tui.service.steering import cancel, live, pause


def change(args: argparse.Namespace) -> int:
    """Print the plan and stop, or run it with --yes or --plan HASH."""
    if args.read_only:
        raise Refused("--read-only: nothing is changed")
    box = box_of(args)
    try:
        return planned_change(args, box)
    finally:
        box.gpus.close()


def planned_change(args: argparse.Namespace, box: Box) -> int:
    facts = gather(box)
    made = plan(box, _intent(args, facts), facts)
    if made.refusals or not (args.yes or args.plan):
        _show(args, made)
        if made.refusals:
            return 3
        _keep(box, made)
        how = "--yes" if getattr(args, "copy", False) else f"--plan {made.hash} (or --yes)"
        print(f"nothing was done; run it with {how}", file=sys.stderr)
        return 0
    if args.plan and args.plan != made.hash:
        _show(args, made)
        raise Refused(f"plan {args.plan} no longer holds: {_why_moved(box, args.plan, made)}; this is {made.hash}")
    key = given_key(args, box)
    operation = prepare(box, made)
    if key:
        box.operations.stage(operation, {"new": key})
    print(f"operation {operation}: {made.title}", file=sys.stderr)
    return _follow(args, box, operation, "start")


def _keep(box: Box, made: Plan) -> None:
    """So that what moved can be told when somebody comes back with its hash. A full disk hinders no preview."""
    try:
        box.operations.keep_shown(made.hash, made.to_json())
    except EffectFailed as why:
        print(f"the plan is not kept for a later comparison: {why}", file=sys.stderr)


def _why_moved(box: Box, wanted: str, made: Plan) -> str:
    shown = box.operations.shown(wanted)
    if shown is None:
        return "what it rested on is not known here"
    return "; ".join(moved(Plan.from_json(shown), made)) or "it is another plan"


def _intent(args: argparse.Namespace, facts: Facts) -> Intent:
    serve = facts.serve_named(args.serve).container_id if getattr(args, "serve", "") else ""
    return Intent(
        verb=args.verb,
        recipe=getattr(args, "recipe", ""),
        container_id=serve,
        role=getattr(args, "role", ""),
        suite=getattr(args, "suite", ""),
        timeout_s=getattr(args, "timeout", None),
        on_timeout="extend" if getattr(args, "extend", None) else getattr(args, "on_timeout", ""),
        extend_s=getattr(args, "extend", None),
        stepwise=getattr(args, "step", False),
        target=getattr(args, "target", ""),
        evict=getattr(args, "evict", False),
        reason=args.reason,
    )


def _show(args: argparse.Namespace, made: Plan) -> None:
    if args.json:
        print(json.dumps(made.to_json(), default=str))
        return
    print("\n".join(plan_lines(made)))


def plan_lines(made: Plan) -> list[str]:
    """The plan as text; the dialog of the console shows the same facts."""
    lines = [f"plan {made.hash}  {made.title}"]
    rows = (
        ("interrupts", made.interrupts), ("outage", made.outage), ("memory", made.memory),
        ("rollback", made.rollback), ("on failure", made.on_failure),
    )  # fmt: skip
    lines += [f"  {name:11}{text}" for name, text in rows if text]
    lines += [f"  {n:2}. {s.name:15} {s.title}" for n, s in enumerate(made.steps, 1)]
    lines += [f"  back {s.name.removeprefix('undo:'):15} {s.title}" for s in made.undo_steps]
    lines += [f"  {line}" for text in made.details for line in text.splitlines()]
    lines += [f"  warning: {w}" for w in made.warnings]
    lines += [f"  REFUSED: {r}" for r in made.refusals]
    return lines


def _follow(args: argparse.Namespace, box: Box, operation: str, mode: Mode) -> int:
    process = spawn(box, operation, mode)
    view = follow(box, operation, process, lambda text: print(text, file=sys.stderr, flush=True))
    if view is None or view.outcome is None:
        return _no_end(box, operation, process.returncode, began=bool(view and view.started_at))
    if args.json:
        print(json.dumps(asdict(view), default=str))
    else:
        print(f"{view.outcome}: {view.kind} {view.target}" + (f" — {view.why}" if view.why else ""))
        for left in view.residue:
            print(f"left: {left}")
        if view.outcome == "halted":
            print(
                f"go on: `anvil-tui operations show|resume|undo|accept {view.id}`; until then nothing else starts"
            )
    if view.why.startswith("refused before step 1"):
        return 3
    return EXIT[view.outcome] or int(view.kind == "drill" and bool(view.why))  # a difference is no success


def _no_end(box: Box, operation: str, code: int, *, began: bool) -> int:
    """What to do about an operation whose process is gone without an end."""
    log = Path(box.directory) / "state" / "operations" / operation / "process.log"
    if not began:
        print(f"nothing was done: {log.read_text(errors='replace').strip()[-800:]}", file=sys.stderr)
        return code if code in (2, 3, 4) else 1
    print(
        f"operation {operation} did not end (its process: exit {code}, {log}): "
        f"`anvil-tui operations resume {operation}` or `undo`",
        file=sys.stderr,
    )
    return 5


def operations(args: argparse.Namespace) -> int:
    box = box_of(args)
    try:
        if args.action == "list":
            return _list(args, box)
        if not args.operation:
            raise NotFound(f"operations {args.action} needs an operation; `anvil-tui operations list`")
        view = view_of(box, args.operation)
        if view is None:
            raise NotFound(f"no operation {args.operation!r}; `anvil-tui operations list`")
        if args.action == "show":
            return _show_operation(args, box, view)
        if args.read_only:
            raise Refused("--read-only: nothing is changed")
        if args.action == "pause" or (args.action == "resume" and live(box, view.id).alive):
            return _pause(box, view, args.action == "pause")
        if args.action == "cancel":
            cancel(box, view.id, args.reason)
            print(f"{view.id}: asked to stop; it goes back before its decision, and finishes after it")
            return 0
        if args.action == "accept":
            accept(box, view.id, args.reason or "no reason given")
            print(f"{view.id}: accepted; new operations may start")
            return 0
        return _recover(args, box, view)
    finally:
        box.gpus.close()


def _pause(box: Box, view: OperationView, on: bool) -> int:
    pause(box, view.id, on)
    if on:
        print(f"{view.id}: its gates wait after the request under way")
    else:
        stepwise = Plan.from_json(box.operations.plan(view.id)).intent.stepwise
        print(f"{view.id}: " + ("goes one step further" if stepwise else "its gates go on"))
    return 0


def _list(args: argparse.Namespace, box: Box) -> int:
    views = [live(box, v.id) for v in box.operations.views()]
    if args.json:
        print(json.dumps([asdict(v) | {"state": v.state} for v in views], default=str))
        return 0
    for v in views:
        print(f"{v.id}  {v.state:12} {v.kind} {v.target}" + (f" — {v.why}" if v.why else ""))
    return 0


def _show_operation(args: argparse.Namespace, box: Box, view: OperationView) -> int:
    view = live(box, view.id)
    if args.json:
        print(json.dumps(asdict(view) | {"state": view.state}, default=str))
        return 0
    print(f"{view.id}  {view.state}  {view.kind} {view.target}")
    held = next((s for s in view.steps if s.state == "pending" and s.title == view.waits_for), None)
    for s in (*view.steps, *view.undo_steps):
        note = "waits for you" if s is held else s.note or (view.last_note if s.state == "running" else "")
        print(f"  {s.state:8} {s.name:18} {s.title}" + (f" — {note}" if note else ""))
    for g in view.gates:
        print(f"  gate {g.verdict:10} {g.id} {counted(g.done, g.of, g.reason)}")
    for text in (view.why, view.torn, *view.residue):
        if text:
            print(f"  {text}")
    return 0


def _recover(args: argparse.Namespace, box: Box, view: OperationView) -> int:
    if view.outcome and view.state != "halted":
        raise Refused(f"operation {view.id} has ended ({view.outcome}); a new one is a new plan")
    if args.action == "undo" and view.decision == "forward":
        raise Refused(
            f"operation {view.id} decided forward: only finishing is safe (`operations resume {view.id}`); "
            "`rollback` afterwards returns to the former serve"
        )
    mode: Mode = "resume" if args.action == "resume" else "undo"
    return _follow(args, box, view.id, mode)
