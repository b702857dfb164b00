"""`history` lists and exports what was recorded of the box; `replay FILE` shows what somebody sent."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from datetime import UTC, datetime

from platformdirs import user_state_path

from anvil_tui.adapters.toml_files import load_workspace
from anvil_tui.cli.past import FilePast, Past, expanded
from anvil_tui.cli.wiring import workspace_dir
from anvil_tui.core.errors import BadFile
from anvil_tui.core.recording import Kept
from anvil_tui.core.text import clean
from anvil_tui.core.times import parse_time, span, utc_text, when
from anvil_tui.service.replay import cut

MIB = 1024 * 1024
HISTORY_SCHEMA = "anvil.history-list/1"


def history(args: argparse.Namespace) -> int:
    directory = workspace_dir(args)
    past = Past(directory, load_workspace(directory))
    if args.action == "export":
        return _export(args, past)
    _print(args, past.kept())
    return 0


def _export(args: argparse.Namespace, past: Past) -> int:
    if args.file is None:
        raise BadFile("history export", "FILE is missing: where the file is to be written")
    now = datetime.now(UTC)
    begin, end = _when(args.begin, now), _when(args.end, now)
    count = past.write(expanded(args.file), lambda: cut(past.folder, begin, end))
    told = {"file": str(args.file), "frames": count, "from": utc_text(begin), "to": utc_text(end)}
    print(
        json.dumps(told)
        if args.json
        else f"{args.file}: {count} frames; `anvil-tui replay {args.file}` shows them"
    )
    return 0


def _when(text: str, now: datetime) -> datetime:
    try:
        return when(text, now, None)
    except ValueError as why:
        raise BadFile("history export", str(why)) from why


def _print(args: argparse.Namespace, kept: Kept) -> None:
    index = kept.index
    if args.json:
        about = {"schema": HISTORY_SCHEMA, "where": kept.where, "bytes": kept.bytes, "note": kept.note}
        held = asdict(index)
        print(json.dumps(about | {k: held[k] for k in ("damage", "spans", "moments", "ran")}))
        return
    for s in index.spans:
        if s.why:
            print(f"  {s.why}")
        print(f"{_local(s.begin)}  {_local(s.end)}  {span(s.seconds):>12}  {s.frames:7,} frames")
    size = f"{kept.bytes / MIB:.1f} MiB in {kept.where}"
    print(
        "; ".join(t for t in (size, clean(kept.note, 300)) if t)
        + (f"\ndamage: {index.damage}" * bool(index.damage))
    )


def _local(at: str) -> str:
    found = parse_time(at)
    return "-" if found is None else f"{found.astimezone():%Y-%m-%d %H:%M:%S %Z}"


def replay(args: argparse.Namespace) -> int:
    """The console on a file. Nothing of this machine is read, and no workspace is needed."""
    past = FilePast(args.file)
    if args.json:
        _print(args, past.kept())
        return 0
    from anvil_tui.cli.console import options_of
    from anvil_tui.cli.settings import settings_of
    from anvil_tui.ui.app import run

    service = past.replay("")
    try:
        return run(service, options_of(settings_of(args), user_state_path("anvil-tui")))
    finally:
        service.end()
