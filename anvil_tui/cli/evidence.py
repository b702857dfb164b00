"""`anvil-tui evidence`: what qualifications left behind, checked and reported offline."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from anvil_tui.adapters.bundle_files import BundleFolders
from anvil_tui.cli.launch import counted
from anvil_tui.cli.wiring import open_bundles, workspace_dir
from anvil_tui.core.bundle import Bundle
from anvil_tui.core.errors import AnvilError, NotFound, Refused
from anvil_tui.ports.operations import BundleAt
from anvil_tui.service.bundles import read_bundle
from anvil_tui.service.evidence import check_bundle, report_bundle


def evidence(args: argparse.Namespace) -> int:
    """Exit 1 when `verify` finds a problem."""
    store = open_bundles(workspace_dir(args))
    if args.action == "list":
        return _list(args, store)
    if args.action == "verify":
        return _verify(args, store)
    if not args.bundle:
        raise NotFound(f"evidence {args.action} needs a bundle: an operation, OPERATION/SERVE or a folder")
    at = store.find(args.bundle)
    return _show(args, store, at) if args.action == "show" else _report(args, store, at)


def _list(args: argparse.Namespace, store: BundleFolders) -> int:
    rows = [_row(store, at) for at in store.all()]
    if args.json:
        print(json.dumps(rows))
        return 0
    for r in rows:
        if r["state"] != "complete":
            print(f"{r['id']:56} {r['state']:9} {r.get('error', 'its manifest was never written')}")
        else:
            print(
                f"{r['id']:56} {r['kind']:10} {r['at'][:19]:19} {_passed(r['passed']):10} "
                f"{r['suite'] or 'n/a':18} {r['recipe'] or 'n/a'}"
            )
    return 0


def _row(store: BundleFolders, at: BundleAt) -> dict[str, Any]:
    if not at.complete:
        return {"id": at.id, "folder": at.folder, "state": "partial"}
    try:
        bundle = read_bundle(store, at, seen=False)
    except AnvilError as why:
        return {"id": at.id, "folder": at.folder, "state": "broken", "error": str(why)}
    return {
        "id": at.id, "folder": at.folder, "state": "complete", "kind": bundle.kind, "at": bundle.at,
        "passed": bundle.passed, "recipe": bundle.identity.recipe, "suite": bundle.identity.suite,
        "gates": len(bundle.results), "schema": bundle.schema,
    }  # fmt: skip


def _passed(passed: bool | None) -> str:
    return {True: "passed", False: "not passed"}.get(passed, "no verdict") if passed is not None else "no verdict"


def _show(args: argparse.Namespace, store: BundleFolders, at: BundleAt) -> int:
    bundle = read_bundle(store, at)
    if args.json:
        print(json.dumps(asdict(bundle), default=str))
        return 0
    print("\n".join(_lines(bundle, at)))
    return 0


def _lines(bundle: Bundle, at: BundleAt) -> list[str]:
    lines = [f"{at.id}  {bundle.kind}  {bundle.at or 'n/a'}  {_passed(bundle.passed)}  {bundle.schema}"]
    for key, value in asdict(bundle.identity).items():
        known = ", ".join(value) or "none" if isinstance(value, tuple) else value
        lines.append(f"  {key:18} {'n/a' if known is None else known}")
    for r in bundle.results:
        lines.append(f"  gate {r.verdict:10} {r.gate} {counted(r.passed, r.of, r.reason)}")
        lines += [f"    row {row.label or row.lane} C{row.streams}, {row.requests} requests" for row in r.rows]
    return lines + [f"  note: {note}" for note in bundle.notes]


def _verify(args: argparse.Namespace, store: BundleFolders) -> int:
    """One bundle, or all of them."""
    checked = [(at, check_bundle(store, at)) for at in ([store.find(args.bundle)] if args.bundle else store.all())]
    if args.json:
        print(json.dumps([{"id": at.id, "problems": c.problems, "unchecked": c.unchecked} for at, c in checked]))
    else:
        for at, found in checked:
            print(f"{'FAIL' if found.problems else 'ok  '} {at.id}")
            for text in found.problems:
                print(f"     problem: {text}")
            for text in found.unchecked:
                print(f"     not proven: {text}")
    return 1 if any(found.problems for _, found in checked) else 0


def _report(args: argparse.Namespace, store: BundleFolders, at: BundleAt) -> int:
    if args.read_only:
        raise Refused("--read-only: nothing is written")
    paths = report_bundle(store, at, pages=args.html)
    print(json.dumps({"files": paths}) if args.json else "\n".join(paths))
    return 0
