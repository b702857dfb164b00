"""One Docker daemon: a connection made at first use, and its errors turned into ours.

`unix://PATH` is used as it is. `ssh://[USER@]HOST[:PORT][/PATH]` goes through the system's own ssh client
(its configuration, agent and known hosts; never a password prompt), which forwards the remote socket to a
private local one: so time-outs and closing work as on a local socket.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NoReturn
from urllib.parse import urlsplit

import docker
import docker.errors
import requests
import urllib3

from anvil_tui.adapters.child_env import child_env
from anvil_tui.core.errors import EffectFailed, NotFound, Unreachable
from anvil_tui.core.text import clean

_CONNECT_S = 10.0
_POLL_S = 0.02


class SshTunnel:
    """A forwarded Docker socket. The remote `cat` ends when our end of its pipe does, so no ssh outlives us."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if not parts.hostname or parts.hostname.startswith("-"):
            raise Unreachable(url, "no host in this URL; write ssh://[USER@]HOST[:PORT][/SOCKET]")
        remote = parts.path if len(parts.path) > 1 else "/var/run/docker.sock"
        self._dir = Path(tempfile.mkdtemp(prefix="anvil-docker-"))
        self.socket, self._errors = self._dir / "docker.sock", self._dir / "ssh.err"
        target = f"{parts.username}@{parts.hostname}" if parts.username else parts.hostname
        options = {
            "BatchMode": "yes",
            "ConnectTimeout": "5",
            "ExitOnForwardFailure": "yes",
            "ServerAliveInterval": "5",
            "ServerAliveCountMax": "2",
            "ControlPath": "none",
            "StreamLocalBindMask": "0177",
        }
        argv = ["ssh", "-T", *(f"-o{key}={value}" for key, value in options.items())]
        argv += ["-p", str(parts.port)] if parts.port else []
        argv += ["-L", f"{self.socket}:{remote}", "--", target, "cat"]
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors,
                start_new_session=True, env=child_env(),
            )  # fmt: skip
        self._wait(url)

    def _wait(self, url: str) -> None:
        started = time.monotonic()
        while not self.socket.exists():
            elapsed = time.monotonic() - started
            if not self.alive or elapsed > _CONNECT_S:
                reason = self._errors.read_text("utf-8", "replace").strip() or "ssh did not forward the socket"
                self.close()
                raise Unreachable(url, f"ssh: {clean(reason, 400)}", elapsed)
            time.sleep(_POLL_S)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        self._process.terminate()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(2)
        shutil.rmtree(self._dir, ignore_errors=True)


class DockerLink:
    """Hands out API clients of one daemon; connects at first use and anew after a broken connection.

    `timeout_s` bounds every read of an answer; calls that may rightly be silent for longer pass their own.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        self.endpoint, self.timeout_s = url, timeout_s
        self._lock = threading.Lock()
        self._client: docker.APIClient | None = None
        self._tunnel: SshTunnel | None = None
        self._containerd: bool | None = None

    def api(self) -> docker.APIClient:
        with self._lock:
            if self._client is None or (self._tunnel and not self._tunnel.alive):
                self._drop()
                self._client = docker.APIClient(base_url=self._socket_url(), timeout=math.ceil(self.timeout_s))
            return self._client

    def _socket_url(self) -> str:
        if self.endpoint.startswith("unix:///"):
            return self.endpoint
        if not self.endpoint.startswith("ssh://"):
            raise Unreachable(self.endpoint, "a container engine is unix:///PATH or ssh://[USER@]HOST")
        self._tunnel = SshTunnel(self.endpoint)
        return f"unix://{self._tunnel.socket}"

    def container(self, container_id: str) -> dict[str, Any]:
        """The inspect of a container; the library's own errors."""
        return as_object(self.api().inspect_container(container_id))

    def image(self, ref: str) -> dict[str, Any]:
        """The inspect of a local image; the library's own errors."""
        untyped: Any = self.api()
        return as_object(untyped.inspect_image(ref))

    def containerd_store(self) -> bool:
        """True when the daemon keeps images in containerd, where an image id is a manifest digest."""
        if self._containerd is None:
            status = self.api().info().get("DriverStatus") or []
            self._containerd = any("io.containerd.snapshotter" in str(value) for row in status for value in row)
        return self._containerd

    def _drop(self) -> None:
        if self._client is not None:
            self._client.close()
        if self._tunnel is not None:
            self._tunnel.close()
        self._client = self._tunnel = None

    def close(self) -> None:
        with self._lock:
            self._drop()

    @contextlib.contextmanager
    def asking(self, what: str, *, failure: Literal["unreachable", "effect"] = "unreachable") -> Iterator[None]:
        """Everything that the library raises inside becomes Unreachable, NotFound or EffectFailed.

        A daemon's refusal of a control call is `effect`; of a reading call, `unreachable`.
        """
        started = time.monotonic()
        try:
            yield
        except docker.errors.APIError as error:
            self._refused(what, error, failure, time.monotonic() - started)
        except (
            docker.errors.DockerException,
            requests.RequestException,
            urllib3.exceptions.HTTPError,
            OSError,
            ValueError,
        ) as error:
            with self._lock:
                self._drop()
            raise Unreachable(self.endpoint, f"{what}: {_reason(error)}", time.monotonic() - started) from error

    def _refused(self, what: str, error: docker.errors.APIError, failure: str, elapsed_s: float) -> NoReturn:
        said = daemon_text(error)
        if error.status_code == 404:
            raise NotFound(f"{self.endpoint}: {what}: {said}") from error
        if failure == "effect":
            raise EffectFailed(f"{self.endpoint}: {what}: {said}") from error
        raise Unreachable(self.endpoint, f"{what}: {said}", elapsed_s) from error


def daemon_text(error: docker.errors.APIError) -> str:
    """The daemon's own words, whole but sanitised."""
    return clean(str(error.explanation or error), 2000)


def _reason(error: Exception) -> str:
    """What went wrong, without the library's nesting."""
    if isinstance(error, requests.Timeout | urllib3.exceptions.TimeoutError | TimeoutError):
        return "no answer in time"
    root: BaseException = error
    while root.__cause__ or root.__context__:
        root = root.__cause__ or root.__context__ or root
    if isinstance(root, FileNotFoundError):
        return "no such socket; is the container engine running?"
    if isinstance(root, PermissionError):
        return "permission denied; may this user use the container engine?"
    if isinstance(root, ConnectionRefusedError):
        return "connection refused; is the container engine running?"
    return clean(str(root) or type(root).__name__, 400)


def as_object(value: Any) -> dict[str, Any]:
    """A JSON object, or ValueError: the daemon answered nonsense."""
    if not isinstance(value, dict):
        raise ValueError(f"answered nonsense: {clean(repr(value), 80)}")
    return value
