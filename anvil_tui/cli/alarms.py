"""`alarms`: what is open on the box and who watches it, and the acknowledgement of one."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime

from anvil_tui.adapters.lease import user_name
from anvil_tui.cli.wiring import alarm_book, box_of, watcher_of
from anvil_tui.core.alarms import Alarm, acknowledge, alarm_text, ordered
from anvil_tui.core.errors import NotFound, Refused
from anvil_tui.service.box import Box

NOBODY = "nobody watches this box: alarms are raised by an open console or `anvil-tui watch`; these were left open"


def alarms(args: argparse.Namespace) -> int:
    """`list` shows what is kept; `ack ID` writes who has seen it, and when."""
    box = box_of(args)
    try:
        return _ack(args, box) if args.action == "ack" else _list(args, box)
    finally:
        box.gpus.close()


def _list(args: argparse.Namespace, box: Box) -> int:
    found, watcher = ordered(alarm_book(box).read()), watcher_of(box)
    if args.json:
        print(json.dumps({"watcher": asdict(watcher) if watcher else None, "alarms": [asdict(a) for a in found]}))
        return 0
    if watcher is None:
        print(f"anvil-tui: {NOBODY}", file=sys.stderr)
    for alarm in found:
        print(f"{alarm.since[:19]}Z {alarm.id}\n    {alarm_text(alarm)}")
    if not found:
        print("no alarm is open")
    return 0


def _ack(args: argparse.Namespace, box: Box) -> int:
    if args.read_only:
        raise Refused("--read-only: nothing is acknowledged")
    book = alarm_book(box)
    alarm = _chosen(book.read(), args.alarm)
    kept = book.change(acknowledge(alarm, user_name(), datetime.now(UTC)))
    done = next(k for k in kept if k.id == alarm.id)
    print(json.dumps(asdict(done)) if args.json else alarm_text(done))
    return 0


def _chosen(found: tuple[Alarm, ...], name: str) -> Alarm:
    """By its id, or by a beginning of it that no other has."""
    exact = [a for a in found if a.id == name]
    near = exact or [a for a in found if name and a.id.startswith(name)]
    if len(near) == 1:
        return near[0]
    have = ", ".join(a.id for a in ordered(near or found)) or "none is open"
    which = "more than one" if near else "no"
    raise NotFound(f"alarms ack: {name or 'no id'} is {which} alarm; there are: {have}")
