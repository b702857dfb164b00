"""Somebody else's configuration files: here through the file system, elsewhere through the system's own ssh.

Over there only a POSIX shell is asked for: cat, cp, mv, readlink, and sha256sum or shasum.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import subprocess
import time
from pathlib import Path

from anvil_tui.adapters.child_env import child_env
from anvil_tui.adapters.files import folder_lock, revision, write_atomic
from anvil_tui.core.errors import BadFile, EffectFailed, NoCredential, NotFound, Refused, Unreachable
from anvil_tui.core.text import clean

MAX_BYTES = 1024 * 1024
_OPTIONS = {
    "BatchMode": "yes", "ConnectTimeout": "5", "ConnectionAttempts": "1", "ServerAliveInterval": "3",
    "ServerAliveCountMax": "2", "ControlPath": "none", "ClearAllForwardings": "yes", "LogLevel": "ERROR",
}  # fmt: skip
_TIMEOUT_S = 15.0
_DENIED = re.compile(r"Permission denied|Too many authentication failures|no such identity", re.IGNORECASE)
_CHECK = """\
[ -e "$p" ] || exit 40
[ -f "$p" ] || exit 41
[ -r "$p" ] || exit 42
"""
_READ = _CHECK + f'exec head -c {MAX_BYTES + 1} < "$p"'
# The copy is made with `cp -p`, so that it has the file's mode before it has the new content.
_REPLACE = """\
sum() { if command -v sha256sum > /dev/null; then sha256sum; else shasum -a 256; fi | cut -c1-64; }
t=$(readlink -f "$p") || exit 44
umask 077
n=$(mktemp "$(dirname "$t")/.anvil.XXXXXX") || exit 44
trap 'rm -f "$n"' EXIT
cp -p "$t" "$n" && cat > "$n" || exit 44
[ "$(sum < "$n")" = "$2" ] || exit 44
[ "$(sum < "$t")" = "$1" ] || exit 43
mv -f "$n" "$t" || exit 44
sync
"""


class ConfigFileReader:
    """Reads. `directory` is the workspace; `ssh` the program."""

    def __init__(self, directory: Path, ssh: str = "ssh") -> None:
        self.directory, self._ssh = directory, ssh

    def read(self, host: str, path: str) -> bytes:
        raw = self.run(host, path, _READ) if host else self._here(self.local(path))
        if len(raw) > MAX_BYTES:
            raise BadFile(where(host, path), f"larger than {MAX_BYTES} bytes")
        return raw

    def local(self, path: str) -> Path:
        return self.directory / Path(path).expanduser()

    def _here(self, path: Path) -> bytes:
        try:
            if not path.is_file():
                if path.exists():
                    raise BadFile(str(path), "not a plain file")
                raise NotFound(f"{path}: no such file")
            with path.open("rb") as file:
                return file.read(MAX_BYTES + 1)
        except OSError as why:
            raise BadFile(str(path), f"cannot be read: {why.strerror}") from why

    def run(self, host: str, path: str, script: str, *args: str, data: bytes = b"") -> bytes:
        """One script over there, with the path in `$p` and `data` on its input; what it printed."""
        home = path.startswith("~/")
        name = f'"$HOME"/{shlex.quote(path[2:])}' if home else shlex.quote(path)
        remote = shlex.join(["sh", "-c", f"p={name}\n{script}", "anvil", *args])
        argv = [self._ssh, "-T", *(f"-o{key}={value}" for key, value in _OPTIONS.items()), "--", host, remote]
        began = time.monotonic()
        try:
            done = subprocess.run(
                argv, input=data, capture_output=True, timeout=_TIMEOUT_S, check=False, env=child_env()
            )
        except subprocess.TimeoutExpired:
            raise Unreachable(f"ssh {host}", "no answer in time", time.monotonic() - began) from None
        except OSError as why:
            raise Unreachable(f"ssh {host}", f"ssh cannot be started: {why.strerror}") from why
        if done.returncode:
            self._failed(host, path, done, time.monotonic() - began)
        return done.stdout

    def _failed(self, host: str, path: str, done: subprocess.CompletedProcess[bytes], elapsed_s: float) -> None:
        at, said = where(host, path), clean(done.stderr.decode("utf-8", "replace").strip(), 300)
        if done.returncode == 255:
            if _DENIED.search(said):
                raise NoCredential(f"ssh {host}: no credential: {said}")
            raise Unreachable(f"ssh {host}", said or "the connection ended", elapsed_s)
        if done.returncode == 40:
            raise NotFound(f"{at}: no such file")
        if done.returncode in (41, 42):
            raise BadFile(at, "not a plain file" if done.returncode == 41 else "may not be read")
        if done.returncode == 43:
            raise Refused(moved(at))
        raise EffectFailed(f"{at}: not saved: {said or f'exit {done.returncode}'}; what was there is unchanged")


class ConfigFileControl(ConfigFileReader):
    """Reads and changes. Copies lie in `copies`, which only this user can look into."""

    def __init__(self, directory: Path, copies: Path, ssh: str = "ssh") -> None:
        super().__init__(directory, ssh)
        self._copies = copies

    def replace(self, host: str, path: str, data: bytes, expected: str) -> None:
        if host:
            self.run(host, path, _CHECK + _REPLACE, expected, hashlib.sha256(data).hexdigest(), data=data)
            return
        target = self.local(path)
        if not target.exists():
            raise NotFound(f"{target}: no such file")
        with folder_lock(target):
            if revision(self._here(target)) != expected:
                raise Refused(moved(str(target)))
            write_atomic(target, data)

    def keep(self, name: str, data: bytes) -> str:
        path = self._copies / name
        try:
            self._copies.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.parent.mkdir(mode=0o700, exist_ok=True)
        except OSError as why:
            raise EffectFailed(f"{path}: not saved: {why.strerror}") from why
        if not path.exists():
            write_atomic(path, data, 0o600)
        return str(path)

    def kept(self, name: str) -> bytes:
        return self._here(self._copies / name)


def where(host: str, path: str) -> str:
    return f"{host}:{path}" if host else path


def moved(at: str) -> str:
    return f"{at}: changed since it was read; nothing was written: look at it again"
