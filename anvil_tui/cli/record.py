"""`record`: what the box remembers of itself; one that cannot be read is compared with the box and mended."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from anvil_tui.cli.wiring import box_of
from anvil_tui.core.errors import Refused
from anvil_tui.core.world import BoxRecord
from anvil_tui.service.box import Box
from anvil_tui.service.mending import Damage, damage, mend


def record(args: argparse.Namespace) -> int:
    """0 when the record is good or was mended, 5 when a person must confirm what would be put in its place."""
    box = box_of(args)
    try:
        return shown(args, box)
    finally:
        box.gpus.close()


def shown(args: argparse.Namespace, box: Box) -> int:
    if args.plan:
        if args.read_only:
            raise Refused("--read-only: nothing is changed")
        kept = mend(box, args.plan)
        print(f"the record is mended; the damaged file is {kept}" if kept else "the record is mended")
        return 0
    found = damage(box)
    now = box.store.read() if found is None else found.proposal.record
    if args.json:
        doubts = [] if found is None else list(found.proposal.doubts)
        why, mark = ("", "") if found is None else (str(found.why), found.hash)
        print(json.dumps({"damaged": why, "doubts": doubts, "plan": mark, "record": asdict(now)}))
    else:
        print("\n".join(_lines(now, found)))
    if found is not None:
        print(f"nothing was done; put this in its place with --plan {found.hash}", file=sys.stderr)
    return 0 if found is None else 5


def _lines(now: BoxRecord, found: Damage | None) -> list[str]:
    head = f"can be read: generation {now.generation}" if found is None else f"{found.why}"
    rows = [head] if found is None else [head, "the box shows:"]
    for name, held in now.roles.items():
        ladder = ", ".join(_named(now, i) for i in held.rollback) or "nothing"
        rows.append(f"  {name}: {_named(now, held.incumbent)}; way back: {ladder}")
    rows += [f"  serve {_named(now, i)} in slot {s.slot}" for i, s in now.serves.items()]
    return rows + ([] if found is None else [f"  in doubt: {d}" for d in found.proposal.doubts])


def _named(now: BoxRecord, container_id: str) -> str:
    serve = now.serves.get(container_id)
    return f"{serve.recipe_id} ({container_id[:12]})" if serve else container_id[:12] or "nobody"
