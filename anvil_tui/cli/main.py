"""`anvil-tui`: the console without arguments, or one headless verb. Data on stdout, narration on stderr."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import date
from functools import partial
from pathlib import Path

from anvil_tui import __version__
from anvil_tui.cli.traces import hide_secrets
from anvil_tui.core.errors import AnvilError
from anvil_tui.core.standing import WAIVABLE

ACTIONS = ("list", "show", "pause", "resume", "undo", "cancel", "accept")
Command = Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 undone, 2 usage or bad file, 3 refused, 4 unreachable, 5 a person must act."""
    hide_secrets()
    code = _run(parser().parse_args(argv))
    if argv is None and any(not t.daemon for t in threading.enumerate() if t is not threading.main_thread()):
        # Python waits for threads of pools, and one of them may hang in its source for ever.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _run(args: argparse.Namespace) -> int:
    try:
        return int(args.run(args))
    except AnvilError as why:
        print(f"anvil-tui: {why}", file=sys.stderr)
        return why.exit_code
    except BrokenPipeError:
        return 0
    except OSError as why:
        print(f"anvil-tui: {why.filename or 'a file'}: {why.strerror or why}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("anvil-tui: interrupted; a running operation goes on: `anvil-tui operations list`", file=sys.stderr)
        return 130


def _lazy(module: str, name: str) -> Command:
    """Import a command only when it is asked for: `status` must not pay for the console."""

    def run(args: argparse.Namespace) -> int:
        import importlib

        command: Command = getattr(importlib.import_module(f"anvil_tui.cli.{module}"), name)
        return command(args)

    return run


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="anvil-tui", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("--workspace", type=Path, metavar="DIR", help="where anvil.toml is (default: here)")
    parser.add_argument("--read-only", action="store_true", help="make no control object; nothing can be changed")
    parser.add_argument("--ascii", action="store_const", const="yes", help="draw with ASCII only")
    parser.add_argument("--theme", metavar="NAME", help="colours of the console")
    parser.add_argument("--utc", action="store_const", const="yes", help="show times in UTC from the start")
    parser.add_argument("--mouse", metavar="yes|no|auto", help="auto: off over SSH")
    parser.set_defaults(run=_lazy("console", "open_console"), json=False)
    verbs = parser.add_subparsers(metavar="VERB", title="headless verbs")
    _add_reading(verbs)
    _add_changing(verbs)
    _add_clients(verbs)
    _add_storage(verbs)
    _add_waive(verbs)
    _add_comparing(verbs)
    _add_operations(verbs)
    _add_setup(verbs)
    return parser


Verbs = "argparse._SubParsersAction[argparse.ArgumentParser]"


def _verb(verbs: Verbs, name: str, text: str, module: str, function: str) -> argparse.ArgumentParser:  # type: ignore[valid-type]
    made: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)  # type: ignore[attr-defined]
    made.add_argument("--json", action="store_true", help="one JSON document on stdout")
    made.set_defaults(run=_lazy(module, function))
    return made


def _add_reading(verbs: Verbs) -> None:  # type: ignore[valid-type]
    _verb(verbs, "status", "what is true on the box now", "reading", "status")
    _verb(
        verbs, "watch", "a console without a screen: one line for each event; keeps the alarms and tells of them",
        "watch", "watch",
    )  # fmt: skip
    alarms = _verb(verbs, "alarms", "list, ack ID: open alarms of the box", "alarms", "alarms")
    alarms.add_argument("action", choices=("list", "ack"), nargs="?", default="list")
    alarms.add_argument("alarm", nargs="?", default="", metavar="ID")
    _add_history(verbs)
    _verb(verbs, "paths", "files, sockets and settings, and what set each", "paths", "paths")
    _verb(verbs, "doctor", "what is missing, and what to do about it; safe to paste", "doctor", "doctor")
    evidence = _verb(
        verbs, "evidence", "bundles of qualifications: list, show, verify, report", "evidence", "evidence"
    )
    evidence.add_argument("action", choices=("list", "show", "verify", "report"), nargs="?", default="list")
    evidence.add_argument("bundle", nargs="?", default="", metavar="ID|PATH")
    evidence.add_argument("--html", action="store_true", help="report: write the pages too")
    drills = _verb(verbs, "drills", "list, show, recheck: past drills, and whether their start still holds",
                   "drills", "drills")  # fmt: skip
    drills.add_argument("action", choices=("list", "show", "recheck"), nargs="?", default="list")
    drills.add_argument("operation", nargs="?", default="", metavar="ID")
    record = _verb(verbs, "record", "what the box remembers; a damaged record against the box, and mended",
                   "record", "record")  # fmt: skip
    record.add_argument("--plan", default="", metavar="HASH", help="put exactly what was shown in its place")
    recipes = _verb(verbs, "recipes", "recipes of the workspace", "recipes", "recipes")
    recipes.add_argument(
        "action", choices=("list", "show", "check", "diff", "feasibility"), nargs="?", default="list"
    )
    recipes.add_argument("recipe", nargs="*")
    dossier = _verb(verbs, "dossier", "decisions, negatives and way back of a model family", "judging", "dossier")
    dossier.add_argument("family")
    dossier.add_argument("--markdown", action="store_true", help="as a document")


def _add_history(verbs: Verbs) -> None:  # type: ignore[valid-type]
    history = _verb(verbs, "history", "list, export: what was recorded of the box", "history", "history")
    history.add_argument("action", choices=("list", "export"), nargs="?", default="list")
    history.add_argument("file", nargs="?", type=Path, metavar="FILE", help="export: where to write it")
    history.add_argument("--from", dest="begin", default="15m", metavar="T",
                         help="14:05, 2026-09-02 14:05, or 2h (ago; default 15m)")  # fmt: skip
    history.add_argument("--to", dest="end", default="0s", metavar="T", help="default: now")
    replay = _verb(verbs, "replay", "the console on a recording that somebody sent; needs no workspace", "history",
                   "replay")  # fmt: skip
    replay.add_argument("file", type=Path, metavar="FILE")


def _change(verbs: Verbs, name: str, text: str) -> argparse.ArgumentParser:  # type: ignore[valid-type]
    made = _verb(verbs, name, text, "changing", "change")
    made.add_argument("--plan", metavar="HASH", help="run exactly this plan")
    made.add_argument("--yes", action="store_true", help="run the plan without asking")
    made.add_argument("--reason", default="", help="kept in the journal")
    made.set_defaults(verb=name)
    return made


def _add_changing(verbs: Verbs) -> None:  # type: ignore[valid-type]
    add = partial(_change, verbs)
    load = add("load", "start a recipe beside what runs")
    load.add_argument("recipe")
    load.add_argument("--role", default="")
    _evict_option(load)
    unload = add("unload", "stop a serve (its container is kept), or remove a stopped one")
    unload.add_argument("serve")
    _drain_options(unload)
    qualify = add("qualify", "run a suite of gates on a serve")
    qualify.add_argument("serve")
    qualify.add_argument("--suite", default="")
    add("quiesce", "hold new requests to a role").add_argument("role")
    drain = add("drain", "hold new requests and wait for the running ones")
    drain.add_argument("role")
    _drain_options(drain)
    add("readmit", "let requests through again").add_argument("role")
    _add_credentials(verbs, add)
    promote = add("promote", "make a recipe the role's serve")
    promote.add_argument("recipe")
    promote.add_argument("--role", default="")
    promote.add_argument("--suite", default="")
    _evict_option(promote)
    _drain_options(promote)
    rollback = add("rollback", "return to the exact retained serve")
    rollback.add_argument("--role", default="")
    rollback.add_argument(
        "--suite", default="", help="judge it by this suite (default: the one that qualified it)"
    )
    _drain_options(rollback)
    drill = add("drill", "roll back and come home, timed and compared fact by fact")
    drill.add_argument("role", nargs="?", default="")
    drill.add_argument("--step", action="store_true", help="wait for a person before each step")
    drill.add_argument("--copy", action="store_true", help="on a simulated copy; nothing of this box is touched")
    drill.add_argument("--scale", type=float, default=40.0, help="of --copy: times faster than a box (default 40)")
    drill.add_argument("--suite", default="", help="judge both serves by this suite (default: each by its own)")
    _drain_options(drill)
    drill.set_defaults(run=_lazy("drills", "drill"))


def _add_storage(verbs: Verbs) -> None:  # type: ignore[valid-type]
    what = "images, model caches, stopped containers, and who refers to each"
    _verb(verbs, "storage", what, "storage", "storage")
    remove = _change(verbs, "remove", "remove one image or one revision of a model cache, to which nothing refers")
    remove.add_argument(
        "target", metavar="TARGET", help="sha256:ID, NAME@sha256:DIGEST, ORG/NAME@REVISION or a snapshot's path"
    )


def _add_clients(verbs: Verbs) -> None:  # type: ignore[valid-type]
    clients = _verb(
        verbs, "clients", "list, preview: what clients believe against what serves", "clients", "clients"
    )
    clients.add_argument("action", choices=("list", "preview"), nargs="?", default="list")
    clients.add_argument("client", nargs="?", default="", metavar="NAME")
    apply = _change(verbs, "apply", "write what serves into a client's catalog, with a copy of what was there")
    which = apply.add_mutually_exclusive_group(required=True)
    which.add_argument("target", nargs="?", default="", metavar="CLIENT")
    which.add_argument("--all", action="store_const", const="", dest="target", help="every client")


def _add_credentials(verbs: Verbs, add: Callable[[str, str], argparse.ArgumentParser]) -> None:  # type: ignore[valid-type]
    _verb(
        verbs, "credentials", "where each client key is found, and whether the gateway takes it", "credentials",
        "credentials",
    )  # fmt: skip
    rotate = add("rotate", "a new client key in the gateway and in every copy, without a refused request")
    rotate.add_argument("target", metavar="CREDENTIAL")
    rotate.add_argument("--from", dest="source", metavar="REF", default="",
                        help="the new key: a reference, or - for standard input (default: made)")  # fmt: skip
    rotate.add_argument("--grace", dest="timeout", type=_seconds, metavar="S",
                        help="how long old and new are both taken before the decision (default 5)")  # fmt: skip


def _add_comparing(verbs: Verbs) -> None:  # type: ignore[valid-type]
    bundles = "a bundle, or several runs of one arm with commas between"
    made = _verb(verbs, "compare", "measured bundles against the first", "comparing", "compare_bundles")
    made.add_argument("a", metavar="A", help=bundles)
    made.add_argument("b", metavar="B", help=bundles)
    made.add_argument("more", metavar="C", nargs="*", help=bundles)
    ab = _verb(verbs, "ab", "measure two loaded serves in turn, and compare them", "comparing", "ab")
    ab.add_argument("a", metavar="SERVE_A")
    ab.add_argument("b", metavar="SERVE_B")
    ab.add_argument("--suite", required=True, help="a suite with lanes")
    ab.add_argument("--runs", type=_count, default=4, metavar="N", help="runs an arm (default 4)")
    ab.add_argument("--id", type=_word, help="the name by which it is taken up again")
    ab.add_argument("--yes", action="store_true", help="run what is left of it without asking")
    for verb in (made, ab):
        verb.add_argument("--metric", default="decode", help="the primary metric (default decode)")
        verb.add_argument("--band", type=_percent, default=3.0, metavar="PCT", help="what counts as equal (3 %%)")
        verb.add_argument("--varies", default="", metavar="FIELD", help="the variable under test")
        verb.add_argument("--svg", type=Path, metavar="FILE", help="write a plot of the primary metric")


def _count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 50:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of 1 to 50")
    return int(text)


def _word(text: str) -> str:
    if not text.strip() or len(text.split()) > 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no name without spaces")
    return text


def _percent(text: str) -> float:
    try:
        band = float(text.removesuffix("%"))
    except ValueError:
        band = 0.0
    if not 0 < band < 50:
        raise argparse.ArgumentTypeError(f"{text!r} is no percentage above 0 and below 50")
    return band


def _add_waive(verbs: Verbs) -> None:  # type: ignore[valid-type]
    text = "record an exception for one recipe: from the reserve on its GPUs, or from one check of its way back"
    waive = _verb(verbs, "waive", text, "judging", "waive")
    waive.add_argument("recipe")
    what = waive.add_mutually_exclusive_group(required=True)
    what.add_argument("--reserve", type=_mib, metavar="MIB", help="MiB each GPU must still keep")
    what.add_argument("--way-back", dest="check", choices=WAIVABLE, metavar="CHECK", help=", ".join(WAIVABLE))
    waive.add_argument("--reason", required=True, help="kept with the record and in evidence")
    waive.add_argument("--until", type=_day, metavar="DATE", help="last day on which it counts (default: no end)")


def _mib(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of MiB of 0 or more")
    return int(text)


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as why:
        raise argparse.ArgumentTypeError(f"{text!r} is no date like 2026-12-31") from why


def _seconds(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds of 1 or more")
    return int(text)


def _evict_option(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--evict", action="store_true", help="drain and stop serves of evictable roles that stand in the way"
    )


def _drain_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--timeout", type=_seconds, metavar="S", help="drain deadline in seconds")
    then = verb.add_mutually_exclusive_group()
    for name, text in (
        ("abort", "put everything back"),
        ("sever", "cut what is left, and list it"),
        ("sever-stalled", "cut what is left if all of it is stalled, else put everything back"),
    ):
        then.add_argument(f"--{name}", dest="on_timeout", action="store_const", const=name, default="",
                          help=f"at the drain deadline: {text}")  # fmt: skip
    then.add_argument("--extend", type=_seconds, metavar="S", help="at the drain deadline: S seconds more, once")


def _add_operations(verbs: Verbs) -> None:  # type: ignore[valid-type]
    made = _verb(verbs, "operations", f"{', '.join(ACTIONS)}: past and open operations", "changing", "operations")
    made.add_argument("action", choices=ACTIONS, nargs="?", default="list")
    made.add_argument("operation", nargs="?", default="")
    made.add_argument("--reason", default="")


def _add_setup(verbs: Verbs) -> None:  # type: ignore[valid-type]
    init = _verb(
        verbs, "init", "write a new workspace, with a recipe of each engine that runs", "adopting", "init"
    )
    init.add_argument("directory", type=Path)
    init.add_argument("--bare", action="store_true", help="the example alone; look at nothing that runs")
    gateway = _verb(
        verbs, "gateway", "install the gateway's configuration, or run the gateway with it", "setup", "gateway"
    )
    gateway.add_argument("action", choices=("install", "run"))
    gateway.add_argument("--yes", action="store_true", help="install without asking, also when clients notice it")
    demo = _verb(verbs, "demo", "the console on a simulated box", "demo", "demo")
    demo.add_argument("--dir", type=Path, help="keep the demo's workspace here")
    demo.add_argument("--serve", action="store_true", help="run the box without the console until SIGTERM")
    demo.add_argument("--scale", type=float, default=40.0, help="times faster than a real box (default 40)")
    demo.add_argument("--seed", type=int, default=1)
    _verb(verbs, "gpu-reader", "print GPU readings as JSON lines", "setup", "gpu_reader").add_argument(
        "--interval", type=float, default=1.0
    )


if __name__ == "__main__":
    sys.exit(main())
