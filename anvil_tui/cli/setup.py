"""Verbs that set a box up: a new workspace, the gateway's files and process, the GPU reader."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from anvil_tui.cli.wiring import box_of, client_keys, open_controls, workspace_dir
from anvil_tui.core.errors import Refused


def init(args: argparse.Namespace) -> int:
    from anvil_tui.adapters.toml_files import write_workspace

    write_workspace(args.directory)
    print(
        f"{args.directory}: anvil.toml, recipes/, gates/, state/ written; edit anvil.toml, then `anvil-tui doctor`"
    )
    return 0


def gateway(args: argparse.Namespace) -> int:
    """`install` renders, validates and installs; `run` is HAProxy in the foreground, for a service manager."""
    if args.read_only:
        raise Refused("--read-only: nothing is changed")
    return _run_gateway(args) if args.action == "run" else _install(args)


def _install(args: argparse.Namespace) -> int:
    box = box_of(args)
    try:
        box.lease.take("gateway install")
        try:
            changed = open_controls(box).gateway.install()
        finally:
            box.lease.release()
    finally:
        box.gpus.close()
    print("installed and read back" if changed else "already as anvil.toml says")
    return 0


def _run_gateway(args: argparse.Namespace) -> int:
    from anvil_tui.adapters.haproxy import install_files, run_argv
    from anvil_tui.adapters.toml_files import load_workspace

    directory: Path = workspace_dir(args)
    workspace = load_workspace(directory)
    install_files(directory, workspace.gateway, workspace.roles, client_keys(workspace, directory)())
    argv = run_argv(directory, workspace.gateway)
    print(f"gateway on {workspace.gateway.bind}: {' '.join(argv)}", file=sys.stderr, flush=True)
    os.execv(argv[0], argv)


def gpu_reader(args: argparse.Namespace) -> int:
    from anvil_tui.adapters.nvml_child import main

    return int(main(["--interval", str(args.interval)]) or 0)
