"""`clients list|preview`: what clients' own files say against what serves. Reads only."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from anvil_tui.cli.wiring import box_of
from anvil_tui.core.clients import Catalog
from anvil_tui.core.errors import NotFound
from anvil_tui.service.clients import catalogs_now


def clients(args: argparse.Namespace) -> int:
    box = box_of(args)
    if args.action == "preview" and not args.client:
        raise NotFound("clients preview needs a client; `anvil-tui clients list`")
    found = catalogs_now(box, args.client)
    if args.client and not found:
        have = ", ".join(c.name for c in box.workspace.clients) or "none"
        raise NotFound(f"no client {args.client!r} in anvil.toml (have: {have})")
    if args.json:
        print(json.dumps([{**asdict(c.state), "diff": c.diff} for c in found]))
    else:
        print("\n".join(_lines(found, preview=args.action == "preview")))
    return 0


def _lines(found: tuple[Catalog, ...], *, preview: bool) -> list[str]:
    lines = [] if found else ["no clients: [[clients]] of anvil.toml names them"]
    for c in found:
        lines.append(f"{c.state.name:20} {c.state.state:14} {c.state.where}")
        lines += [f"    {text}" for text in (*c.state.differences, c.state.why) if text]
        if preview:
            lines += c.diff.splitlines() or ["no change"]
    return lines
