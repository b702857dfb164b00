"""`anvil-tui demo`: a simulated box, a real HAProxy in front of it, and the console; nothing is left behind."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType

from anvil_tui.adapters.box_file import BoxFile
from anvil_tui.adapters.child_env import child_env
from anvil_tui.adapters.haproxy import HaproxyControl, HaproxyReader, install_files, run_argv
from anvil_tui.adapters.lease import FileLease
from anvil_tui.adapters.toml_files import load_workspace
from anvil_tui.cli.wiring import client_keys
from anvil_tui.core.errors import EffectFailed, Refused, Unreachable

READY_WITHIN_S = 60.0
GATEWAY_WITHIN_S = 10.0
END_WITHIN_S = 10.0
OPERATION_WITHIN_S = 120.0
PR_SET_PDEATHSIG = 1


def demo(args: argparse.Namespace) -> int:
    """The console's exit code; with --serve 0 after SIGTERM or Ctrl-C."""
    with _folder(args.dir) as directory, contextlib.ExitStack() as ending:
        leave_on_signals(ending)
        ending.enter_context(simulated(directory, args.scale, "--seed", str(args.seed), "--traffic"))
        ending.enter_context(gateway(directory))
        ending.callback(let_operations_end, directory)
        if args.serve:
            return _serve(directory)
        from anvil_tui.cli.console import open_console

        return open_console(argparse.Namespace(**{**vars(args), "workspace": directory}))


@contextlib.contextmanager
def _folder(wanted: Path | None) -> Iterator[Path]:
    """--dir, kept; else a temporary one, removed at the end."""
    if wanted is not None:
        if (wanted / "anvil.toml").exists():
            raise Refused(f"{wanted} holds a workspace already; a demo needs a folder of its own")
        wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield wanted.resolve()
        return
    made = Path(tempfile.mkdtemp(prefix="anvil-demo-")).resolve()
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def leave_on_signals(ending: contextlib.ExitStack) -> None:
    """While no console handles them, these signals end the demo the ordinary way."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for name in (signal.SIGTERM, signal.SIGHUP):
        ending.callback(signal.signal, name, signal.signal(name, leave))


@contextlib.contextmanager
def simulated(directory: Path, scale: float, *more: str) -> Iterator[None]:
    """The simulated box of a folder, from READY on; ended with the block."""
    argv = [
        sys.executable, "-m", "anvil_tui.simbox", "run", "--dir", str(directory), "--scale", str(scale), *more
    ]  # fmt: skip
    log = directory / "simbox.log"
    with _child(argv, log, subprocess.PIPE) as process:
        assert process.stdout is not None
        answered, _, _ = select.select([process.stdout], [], [], READY_WITHIN_S)
        if not answered or process.stdout.readline().strip() != b"READY":
            raise EffectFailed(
                f"the simulated box did not start: {log.read_text(errors='replace').strip()[-800:]}"
            )
        yield


@contextlib.contextmanager
def gateway(directory: Path, aliases: Mapping[str, str] | None = None) -> Iterator[None]:
    """HAProxy on the workspace's address, with `aliases` at their slots, else each role's at its incumbent's."""
    workspace = load_workspace(directory)
    keys = client_keys(workspace, directory)()
    install_files(directory, workspace.gateway, workspace.roles, keys)
    log = directory / "gateway.log"
    with _child(run_argv(directory, workspace.gateway), log, None) as process:
        reader = HaproxyReader(directory, workspace.gateway, workspace.roles)
        deadline = time.monotonic() + GATEWAY_WITHIN_S
        while (why := _unreachable(reader)) is not None:
            if process.poll() is not None or time.monotonic() > deadline:
                raise EffectFailed(
                    f"HAProxy did not start: {why}; {log.read_text(errors='replace').strip()[-800:]}"
                )
            time.sleep(0.05)
        record = BoxFile(directory / "state").read()
        control = HaproxyControl(directory, workspace.gateway, workspace.roles, lambda: keys)
        served = {r: record.serve_in(r.name) for r in workspace.roles}
        usual = {a: serve.slot for role, serve in served.items() if serve for a in role.aliases}
        control.point(usual if aliases is None else aliases, record.generation, lambda _: None)
        yield


def _unreachable(reader: HaproxyReader) -> Unreachable | None:
    try:
        reader.snapshot()
    except Unreachable as why:
        return why
    return None


@contextlib.contextmanager
def _child(argv: list[str], log: Path, stdout: int | None) -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own session, ended by its pid; the kernel ends it too should this one be killed."""
    libc = ctypes.CDLL(None, use_errno=True)
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out if stdout is None else stdout, stderr=out,
            start_new_session=True, cwd=log.parent, env=child_env(),
            preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM),
        )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(END_WITHIN_S)
        if process.stdout is not None:
            process.stdout.close()


def let_operations_end(directory: Path) -> None:
    """The box goes with the demo, so an operation that runs is let finish first."""
    lease = FileLease(directory / "state" / "lease")
    deadline = time.monotonic() + OPERATION_WITHIN_S
    told = False
    while (holder := lease.holder()) is not None and time.monotonic() < deadline:
        if not told:
            print(f"operation {holder.operation} ends first, then the demo's box goes", file=sys.stderr)
            told = True
        time.sleep(0.1)


def _serve(directory: Path) -> int:
    workspace = load_workspace(directory)
    print(f"workspace {directory}\ngateway   http://{workspace.gateway.bind}/v1", flush=True)
    print(f"console   anvil-tui --workspace {directory}", file=sys.stderr, flush=True)
    try:
        signal.pause()
    except (KeyboardInterrupt, SystemExit):
        return 0
    return 0
