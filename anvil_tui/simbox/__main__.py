"""`python -m anvil_tui.simbox run|gpus|fault|status`. Each part imports only what it needs."""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    """0 done, 1 the box said no, 2 wrong usage, 4 no box answers."""
    args = _parser().parse_args(argv)
    try:
        code: int = args.act(args)
    except (FileNotFoundError, ConnectionError) as why:
        print(f"{args.socket}: no simulated box answers ({why.strerror}); is `simbox run` up?", file=sys.stderr)  # noqa: T201
        return 4
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m anvil_tui.simbox", description="A simulated box.")
    parts = parser.add_subparsers(required=True, metavar="run|gpus|fault|status")
    run = parts.add_parser("run", help="start the box in an empty folder; prints READY; ends on SIGTERM")
    run.add_argument("--dir", type=Path, required=True)
    run.add_argument(
        "--from", dest="source", type=Path, default=_repository(), help="folder with recipes/ and gates/"
    )
    run.add_argument("--scale", type=float, default=40.0, help="times faster than a real box (default 40)")
    run.add_argument("--seed", type=int, default=1)
    run.add_argument("--traffic", action="store_true", help="send a request through the gateway now and then")
    run.add_argument(
        "--like", type=Path, help="a sheet of another box (simbox/likeness.py); --dir holds its workspace"
    )
    run.set_defaults(act=_run, socket="")
    gpus = parts.add_parser("gpus", help="print GPU snapshots, one JSON object a line")
    gpus.add_argument("--socket", required=True)
    gpus.add_argument("--interval", type=float, default=0.5)
    gpus.set_defaults(act=_gpus)
    fault = parts.add_parser("fault", help="NAME key=value …, `list`, or `clear [name=NAME]`")
    fault.add_argument("--socket", required=True)
    fault.add_argument("name")
    fault.add_argument("pairs", nargs="*", metavar="key=value")
    fault.set_defaults(act=_fault)
    status = parts.add_parser("status", help="what runs and which faults are on")
    status.add_argument("--socket", required=True)
    status.set_defaults(act=lambda args: _show(_ask(args.socket, {"do": "status"})))
    return parser


def _repository() -> Path:
    """The checkout this package runs from, which has recipes/ and gates/ beside the package."""
    return Path(__file__).resolve().parents[2]


def _run(args: argparse.Namespace) -> int:
    import asyncio

    from anvil_tui.simbox.run import Options, run
    from anvil_tui.simbox.workspace import NoWorkspace

    try:
        asyncio.run(run(Options(args.dir, args.source, args.scale, args.seed, args.traffic, args.like)))
    except NoWorkspace as why:
        print(f"simbox: {why}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


def _gpus(args: argparse.Namespace) -> int:
    """Relays the box's lines; ends when the box or the reading side goes."""
    with _connected(args.socket) as link, link.makefile("rwb") as lines:
        lines.write(json.dumps({"do": "gpus", "interval_s": args.interval}).encode() + b"\n")
        lines.flush()
        try:
            for line in lines:
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
        except (BrokenPipeError, KeyboardInterrupt):
            # Nobody reads any more. Keep the interpreter from flushing into the closed pipe at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
    raise ConnectionResetError(104, "the box closed the connection")


def _fault(args: argparse.Namespace) -> int:
    pairs = dict(pair.partition("=")[::2] for pair in args.pairs)
    if args.name in ("list", "clear"):
        return _show(_ask(args.socket, {"do": args.name, **pairs}))
    return _show(_ask(args.socket, {"do": "fault", "name": args.name, "args": pairs}))


def _connected(path: str) -> socket.socket:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.connect(path)
    except OSError:
        link.close()
        raise
    return link


def _ask(path: str, request: dict[str, object]) -> dict[str, object]:
    with _connected(path) as link, link.makefile("rwb") as lines:
        lines.write(json.dumps(request).encode() + b"\n")
        lines.flush()
        line = lines.readline()
    if not line:
        raise ConnectionResetError(104, "the box closed the connection")
    reply: dict[str, object] = json.loads(line)
    return reply


def _show(reply: dict[str, object]) -> int:
    text = reply["text"]
    out = sys.stdout if reply["ok"] else sys.stderr
    print(text if isinstance(text, str) else json.dumps(text, indent=1), file=out)
    return 0 if reply["ok"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
