"""The process of the anvil-serving gateway: its program and files, a trial of a configuration, and what can be
asked of the supervisor that runs it."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from anvil_tui.adapters.files import folder_lock, write_atomic
from anvil_tui.adapters.haproxy_socket import ask, socket_dir
from anvil_tui.core.errors import AnvilError, BadFile, EffectFailed, Refused, Unreachable
from anvil_tui.core.gateway_routes import (
    ADMISSION_FILE,
    CLIENTS_FILE,
    CONFIG_FILE,
    ROUTES_FILE,
    Routes,
    admission_text,
    clients_text,
    environment,
    merged,
    parse_routes,
    render,
)
from anvil_tui.core.workspace import GatewaySettings, Role

# 0.6 s seen from start to the first answer, 0.2 s from TERM to the end with nothing in flight.
START_S = 20.0
# Its own shutdown waits 20 s for open streams.
STOP_S = 25.0
# Everything was drained before: idle connections are all that could keep it.
DRAINED_STOP_S = 1.0
# Of all aliases together; its own limit of 64 lets one role's stuck streams refuse another's requests.
MOST_REQUESTS = 1024
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Setup:
    """What anvil.toml says, with the secrets themselves."""

    directory: Path
    settings: GatewaySettings
    roles: tuple[Role, ...]
    admin_key: str
    client_keys: tuple[str, ...]

    @property
    def folder(self) -> Path:
        return (self.directory / self.settings.dir).resolve()

    @property
    def secrets(self) -> dict[str, str]:
        return environment(self.admin_key, self.client_keys)

    def rendered(self, routes: Routes, folder: Path | None = None) -> tuple[str, str]:
        return render(str(folder or self.folder), routes, self.roles, self.secrets)


def control_socket(folder: Path) -> Path:
    return socket_dir(folder) / "gateway.sock"


def find_program(settings: GatewaySettings) -> str:
    """The configured program, else `anvil-serving` beside this Python or on the PATH."""
    if settings.binary:
        if found := shutil.which(Path(settings.binary).expanduser()):
            return found
        raise Refused(f"gateway.binary {settings.binary} is no program")
    beside = str(Path(sys.executable).parent)
    if found := shutil.which("anvil-serving", path=f"{beside}:{os.environ.get('PATH', os.defpath)}"):
        return found
    raise Refused('no anvil-serving here: `pip install "anvil-serving>=2,<3"`, or name it in gateway.binary')


def read_routes(folder: Path) -> Routes | None:
    """None when there is no file yet. BadFile when it is damaged: never routes that are short."""
    path = folder / ROUTES_FILE
    try:
        return parse_routes(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as why:
        raise BadFile(
            str(path), f"damaged ({why}); put back a copy, or remove it so that every alias starts at `none`"
        ) from why


def write_routes(folder: Path, routes: Routes) -> None:
    if (folder / ROUTES_FILE).is_file() and read_routes(folder) == routes:
        return
    write_atomic(folder / ROUTES_FILE, routes.text())


def install_files(setup: Setup, *, tried: bool = True) -> bool:
    """The routes from which the gateway starts, every new alias at `none`; False when they were so already.
    `tried`: only after a trial; not asked by who starts the gateway itself at once."""
    folder = setup.folder
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    with folder_lock(folder / ROUTES_FILE):
        stored = read_routes(folder)
        wanted = merged(stored or Routes(), setup.roles)
        if tried:
            trial(setup, wanted)
        write_routes(folder, wanted)
    return stored != wanted


def trial(setup: Setup, routes: Routes) -> None:
    """The gateway itself starts with the new configuration, on a free port and in a folder of its own. Refused
    carries its words; nothing was changed."""
    with tempfile.TemporaryDirectory(prefix=".check-", dir=setup.folder) as name:
        folder = Path(name)
        write_files(folder, setup.rendered(routes, folder)[0], setup, {})
        with _started(setup, folder, "127.0.0.1", 0, subprocess.PIPE) as child:
            said = _first_words(child)
        if "front door on http://" not in said:
            words = said.replace(str(folder), str(setup.folder)).strip() or "nothing"
            raise Refused(f"anvil-serving refuses the new {CONFIG_FILE}; the old one stays. It says: {words}")


def _first_words(child: subprocess.Popen[bytes]) -> str:
    """What it prints until it serves, ends, or its time is over."""
    assert child.stdout is not None
    said, until = b"", time.monotonic() + START_S
    while b"front door on http://" not in said and (left := until - time.monotonic()) > 0:
        if select.select([child.stdout], [], [], left)[0]:
            part = os.read(child.stdout.fileno(), 65536)
            if not part:
                break
            said += part
    return said.decode(errors="replace")[-2000:]


def write_files(folder: Path, config: str, setup: Setup, reasons: Mapping[str, str]) -> None:
    write_atomic(folder / CLIENTS_FILE, clients_text(len(setup.client_keys)))
    write_atomic(folder / ADMISSION_FILE, admission_text(reasons))
    write_atomic(folder / CONFIG_FILE, config)


@contextlib.contextmanager
def _started(
    setup: Setup, folder: Path, host: str, port: int, out: int | None
) -> Iterator[subprocess.Popen[bytes]]:
    child = spawn(setup, folder, host, port, out)
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        if child.stdout:
            child.stdout.close()


def spawn(setup: Setup, folder: Path, host: str, port: int, out: int | None) -> subprocess.Popen[bytes]:
    """With a built environment: the secrets stand there and in no argument. It ends with its parent."""
    argv = [
        find_program(setup.settings), "router", "run", "--config", str(folder / CONFIG_FILE),
        "--host", host.strip("[]"), "--port", str(port),
    ]  # fmt: skip
    env = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "LC_ALL", "TZ")}
    env |= {"ANVIL_SERVING_HOME": str(folder), "HOME": str(folder), "PYTHONUNBUFFERED": "1"}
    env |= {"ANVIL_MAX_CONCURRENCY": str(MOST_REQUESTS), **setup.secrets}
    libc = ctypes.CDLL(None, use_errno=True)
    return subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT if out else None, env=env,
        cwd=folder, start_new_session=True, preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM),
    )  # fmt: skip


# asking the supervisor


def pid_of(folder: Path) -> int | None:
    """The gateway's process; None when no supervisor of ours has it."""
    try:
        return int(json.loads(ask(control_socket(folder), "status"))["pid"])
    except (AnvilError, ValueError, KeyError, TypeError):
        return None


@contextlib.contextmanager
def interrupting(folder: Path) -> Iterator[None]:
    """While it is open tiers may be quiesced for a restart. When it ends without one, they have been readmitted as
    far as their engines are ready; the supervisor goes on trying with the others."""
    path = control_socket(folder)
    with socket.socket(socket.AF_UNIX) as link:
        try:
            link.settimeout(START_S + STOP_S)
            link.connect(str(path))
            link.sendall(b"watch\n")
            watched = link.recv(16) == b"ok"
        except OSError:
            watched = False
        if not watched:
            raise Unreachable(
                str(path), "no `anvil-tui gateway run` of this workspace answers: start the gateway so"
            )
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # a supervisor that went away admits all when it starts
                link.shutdown(socket.SHUT_WR)
                link.recv(16)


def restart(folder: Path, held_back: tuple[str, ...]) -> None:
    """End the gateway, which must be drained, and start it with what anvil.toml and the routes say now; tiers in
    `held_back` come up quiesced. EffectFailed when it does not come up, or goes on as it was."""
    path = control_socket(folder)
    told = ask(path, f"restart {json.dumps(held_back)}", START_S + STOP_S)
    if told != "ok":
        raise EffectFailed(f"{path}: the gateway did not start anew: {told or 'its supervisor went away'}")
