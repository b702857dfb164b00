"""`credentials`: where each client key is found, and whether the gateway takes it. Never a value."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from anvil_tui.cli.wiring import box_of
from anvil_tui.core.credentials import copy_text, credential_text
from anvil_tui.core.errors import Refused
from anvil_tui.core.rotation import unfit
from anvil_tui.service.box import Box
from anvil_tui.service.credentials import inspect
from anvil_tui.service.rotate import copies_read

MAX_CHARACTERS = 4096


def credentials(args: argparse.Namespace) -> int:
    """0 when every credential is accepted and every copy is the same, 5 when a person must mend something."""
    box = box_of(args)
    try:
        states = copies_read(box, inspect(box))
        now = box.clock.utc()
    finally:
        box.gpus.close()
    if args.json:
        print(json.dumps([asdict(s) for s in states]))
    else:
        for s in states:
            print(credential_text(s, now))
            for copy in s.copies:
                print(f"  copy {copy_text(copy)}")
    good = all(s.state == "accepted" and all(c.state == "same" for c in s.copies) for s in states)
    return 0 if good else 5


def given_key(args: argparse.Namespace, box: Box) -> str:
    """The key that `rotate --from` names, "" = none was given. It goes by no argument and no plan."""
    source = getattr(args, "source", "")
    if not source:
        return ""
    key = sys.stdin.read(MAX_CHARACTERS + 1).strip() if source == "-" else box.secret(source).value
    if why := unfit(key):
        place = "standard input" if source == "-" else source
        raise Refused(f"the new key from {place} {why}; nothing was changed")
    return key
