"""Verbs that set a box up: the gateway's files and process, the GPU reader."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from anvil_tui.adapters.child_env import child_env
from anvil_tui.adapters.journal_file import OperationFolders
from anvil_tui.cli.wiring import anvil_gateway, box_of, client_keys, open_controls, workspace_dir
from anvil_tui.core.errors import Refused
from anvil_tui.ports.operations import OperationStore


def gateway(args: argparse.Namespace) -> int:
    """`install` renders, validates and installs; `run` is the gateway in the foreground, for a service manager."""
    if args.read_only:
        raise Refused("--read-only: nothing is changed")
    return _run_gateway(args) if args.action == "run" else _install(args)


def _install(args: argparse.Namespace) -> int:
    box = box_of(args)
    try:
        box.lease.take("gateway install")
        try:
            if open_one := rotating(box.operations):
                raise Refused(
                    f"rotation {open_one} has no end, and both its keys must stay: `anvil-tui operations resume "
                    f"{open_one}` or `undo` first"
                )
            control = open_controls(box).gateway
            _may_interrupt(control.would_interrupt(), args.yes)
            changed = control.install()
        finally:
            box.lease.release()
    finally:
        box.gpus.close()
    print("installed and read back" if changed else "already as anvil.toml says")
    return 0


def _may_interrupt(what: str, yes: bool) -> None:
    """An install that clients notice is said before it is done, and done only when somebody agrees."""
    if not what:
        return
    print(f"install: {what}", file=sys.stderr, flush=True)
    if yes:
        return
    if not sys.stdin.isatty():
        raise Refused("nothing was changed: `anvil-tui gateway install --yes` does it")
    if input("install now? [y/N] ").strip().lower() != "y":
        raise Refused("nothing was changed")


def rotating(operations: OperationStore) -> str:
    """The rotation that has not come to a good end, "" = none."""
    return next((o.id for o in operations.views() if o.kind == "rotate" and o.needs_person), "")


def _run_gateway(args: argparse.Namespace) -> int:
    from anvil_tui.adapters.haproxy import install_files, run_argv
    from anvil_tui.adapters.toml_files import load_workspace

    directory: Path = workspace_dir(args)
    workspace = load_workspace(directory)
    if workspace.gateway.kind == "anvil-serving":
        print(f"gateway on {workspace.gateway.bind}: anvil-serving", file=sys.stderr, flush=True)
        return anvil_gateway(directory).run()
    install_files(
        directory, workspace.gateway, workspace.roles, client_keys(workspace, directory)(),
        keep_keys=bool(rotating(OperationFolders(directory / "state" / "operations"))),
    )  # fmt: skip
    argv = run_argv(directory, workspace.gateway)
    print(f"gateway on {workspace.gateway.bind}: {' '.join(argv)}", file=sys.stderr, flush=True)
    os.execve(argv[0], argv, child_env())


def gpu_reader(args: argparse.Namespace) -> int:
    from anvil_tui.adapters.nvml_child import main

    return int(main(["--interval", str(args.interval)]) or 0)
