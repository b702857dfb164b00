"""The supervisor of the anvil-serving gateway: runs it in the foreground, and starts it anew when asked over a
socket of its own.

A restart is prepared by quiescing every tier of every role. Whoever does so holds a link to the supervisor, which
lets all admit again when the link ends without a restart, also because its process was killed.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable

from anvil_tui.adapters.anvil_gateway_http import Admin
from anvil_tui.adapters.anvil_gateway_run import (
    DRAINED_STOP_S,
    START_S,
    STOP_S,
    Setup,
    control_socket,
    find_program,
    install_files,
    read_routes,
    spawn,
    write_files,
)
from anvil_tui.adapters.haproxy_socket import answers, make_socket_dir
from anvil_tui.core.errors import AnvilError, EffectFailed, Refused
from anvil_tui.core.gateway_routes import RESTART, Routes, merged, quiesced

_POLL_S = 0.05
# A gateway that did not come up, and tiers that could not be readmitted, are tried again.
_AGAIN_S = 2.0


class Supervisor:
    """Runs the gateway until it is told to end. `load` reads anvil.toml and the secrets anew at each start."""

    def __init__(self, load: Callable[[], Setup]) -> None:
        self._load, self._setup = load, load()
        self._child: subprocess.Popen[bytes] | None = None
        self._ending = False
        self._links: list[socket.socket] = []
        self._closed = False
        self._again_at = 0.0

    def run(self) -> int:
        """0 after a signal; the gateway's own exit code when it ends by itself."""
        folder = self._setup.folder
        install_files(self._setup, tried=False)
        make_socket_dir(folder)
        path = control_socket(folder)
        if answers(path):
            raise Refused(f"the gateway of {self._setup.directory} runs already ({path} answers)")
        path.unlink(missing_ok=True)
        woken, wake = socket.socketpair()
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno())
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, self._end)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            path.chmod(0o600)
            listener.listen()
            try:
                self._start(self._setup, ())
                return self._serve(listener, woken)
            finally:
                self._stop(STOP_S)
                path.unlink(missing_ok=True)

    def _end(self, *_: object) -> None:
        self._ending = True

    def _serve(self, listener: socket.socket, woken: socket.socket) -> int:
        while not self._ending:
            ready, _, _ = select.select([listener, woken, *self._links], [], [], 0.2)
            if listener in ready:
                self._answer(listener)
            for link in [one for one in self._links if one in ready]:
                self._left(link)
            if self._child and (code := self._child.poll()) is not None:
                _say(f"the gateway ended by itself, exit code {code}")
                return code or 1
            if time.monotonic() >= self._again_at:
                self._mend()
        return 0

    def _answer(self, listener: socket.socket) -> None:
        """A client that leaves in the middle is its own loss."""
        link = listener.accept()[0]
        with contextlib.suppress(OSError):
            link.settimeout(2)
            words = link.recv(65536).decode(errors="replace").strip().partition(" ")
            if words[0] == "watch":
                link.sendall(b"ok")
                self._links.append(link)
                self._closed = True
                return
            link.settimeout(None)
            link.sendall(self._told(words[0], words[2]).encode())
        link.close()

    def _left(self, link: socket.socket) -> None:
        """Whoever meant to restart is done, or dead."""
        self._links.remove(link)
        self._mend()
        with contextlib.suppress(OSError):
            link.sendall(b"ok")
        link.close()

    def _told(self, command: str, rest: str) -> str:
        if command == "status":
            return json.dumps({"pid": self._child.pid if self._child else None})
        if command != "restart":
            return f"no command {command!r}"
        try:
            held_back = tuple(str(tier) for tier in json.loads(rest))
            self._start(self._load(), held_back)
        except (AnvilError, OSError, ValueError, TypeError) as why:
            return str(why)
        self._closed = False
        return "ok"

    def _mend(self) -> None:
        """Start a gateway that did not come up, and open what was closed for a restart that did not come."""
        self._again_at = time.monotonic() + _AGAIN_S
        try:
            if self._child is None:
                self._start(self._load(), ())
                self._closed = False
            elif self._closed and not self._links:
                self._closed = self._reopen()
        except (AnvilError, OSError) as why:
            _say(f"{why}; tried again in {_AGAIN_S:.0f} s")

    def _reopen(self) -> bool:
        """Whether a tier is left closed: its engine is not ready, as the gateway finds."""
        settings = self._setup.settings
        admin = Admin(settings.bind, lambda: self._setup.admin_key, settings.admin_key or "")
        tiers = [t for t in admin.running().tiers.values() if not t.admits and t.reason == RESTART]
        left = {t.id: why for t in tiers if (why := admin.readmit(t.id))}
        for tier, why in left.items():
            _say(f"{tier} was closed for a restart that did not come, and is not readmitted: {why}")
        return bool(left)

    def _start(self, setup: Setup, held_back: tuple[str, ...]) -> None:
        """Everything it reads is written before the old one ends; what it should not admit is so from its first
        moment on. After an error that comes before the end of the old one, that one goes on."""
        routes = merged(read_routes(setup.folder) or Routes(), setup.roles)
        reasons = {**dict.fromkeys(held_back, RESTART), **quiesced(routes, setup.roles)}
        host, _, port = setup.settings.bind.rpartition(":")
        find_program(setup.settings)
        write_files(setup.folder, setup.rendered(routes)[0], setup, reasons)
        self._stop(DRAINED_STOP_S)
        self._setup = setup
        self._child = spawn(setup, setup.folder, host, int(port), None)
        until = time.monotonic() + START_S
        while not _healthy(host, int(port)):
            if (code := self._child.poll()) is not None:
                self._child = None
                raise EffectFailed(f"it ended at once, exit code {code}; its own output says why")
            if time.monotonic() > until:
                self._stop(DRAINED_STOP_S)
                raise EffectFailed(f"no answer on {setup.settings.bind} within {START_S:.0f} s")
            time.sleep(_POLL_S)

    def _stop(self, within_s: float) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.terminate()
        try:
            child.wait(within_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def _healthy(host: str, port: int) -> bool:
    link = http.client.HTTPConnection(
        "127.0.0.1" if host in ("0.0.0.0", "[::]") else host.strip("[]"), port, timeout=2
    )
    try:
        link.request("GET", "/healthz")
        return link.getresponse().status == 200
    except OSError:
        return False
    finally:
        link.close()
