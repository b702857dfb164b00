"""`storage`: images, model caches and stopped containers, each with who refers to it. Reads only."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any

from anvil_tui.cli.wiring import box_of
from anvil_tui.core.storage import storage_json
from anvil_tui.core.text import clean
from anvil_tui.service.storage import survey


def storage(args: argparse.Namespace) -> int:
    box = box_of(args)
    told = storage_json(*survey(box))
    print(json.dumps(told) if args.json else "\n".join(clean(line, 400) for line in _lines(told)))
    return 0


def _lines(told: Mapping[str, Any]) -> Iterator[str]:
    yield f"Images: {_size(told['image_bytes'])} in all, shared layers once"
    for i in told["images"] or ():
        yield f"  {i['id']} {_size(i['bytes'])}"
        yield from (f"      {name}" for name in (*i["pins"], *i["tags"]))
        yield from _held(i["held_by"])
    yield f"Model caches:{_no(told['revisions'])}"
    for r in told["revisions"] or ():
        yield f"  {r['name']} {_size(r['bytes'])}, frees {_size(r['own_bytes'])}, {r['files']} files, {r['path']}"
        yield from (f"      also called {ref}" for ref in r["refs"])
        yield from (f"      not whole: {flaw}" for flaw in r["flaws"])
        yield from _held(r["held_by"])
    yield f"Stopped containers to which no role refers (`unload` removes one):{_no(told['containers'])}"
    yield from (f"  {c['id'][:12]} {c['name']} {c['status']}" for c in told["containers"])
    yield from (f"not read: {why}" for why in told["why"])


def _no(rows: list[Any] | None) -> str:
    return " not read" if rows is None else "" if rows else " none"


def _held(holders: list[str]) -> Iterator[str]:
    yield from (f"      needed by {holder}" for holder in holders)
    if not holders:
        yield "      nobody refers to it"


def _size(number: int | None) -> str:
    return "n/a" if number is None else f"{number / 1e9:,.2f} GB"
