"""Runs an operator's program for a command gate: nothing inherited, bounded in time and output, secrets masked.

The program has a session and a process group of its own, so that a shell's children end with it and nothing can
ask for a password on our terminal. A process that makes yet another session leaves the group and is not reached.
"""

from __future__ import annotations

import hashlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

from anvil_tui.core.command_rules import filled
from anvil_tui.core.errors import EffectFailed
from anvil_tui.core.redact import redact, redact_values
from anvil_tui.ports import Command, CommandRun

KEPT_BYTES = {"stdout": 256 * 1024, "stderr": 64 * 1024}
MAX_RESULT = 4 * 1024 * 1024
TERM_GRACE_S = 3.0
KILL_GRACE_S = 5.0
POLL_S = 0.05
DRAIN_READS = 64
PLAIN = frozenset({"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TERM", "TMPDIR", "PYTHONPATH"})
PLAIN_PREFIX = "LC_"

Ended = Literal["exit", "deadline", "cancelled"]


class ChildCommands:
    """`ports.CommandRunner`. `directory` is the workspace, `environ` the operator's environment as it is then."""

    def __init__(self, directory: Path, environ: Mapping[str, str] | None = None) -> None:
        self._directory = directory
        self._environ: Mapping[str, str] = os.environ if environ is None else environ

    def why_not(self, command: Command) -> str:
        if not self._program(command):
            return f"argv: no program {command.argv[0]!r} on the PATH or in {self._directory}"
        unset = [n for n in command.env if n not in command.given and not self._environ.get(n)]
        if unset:
            return f"env: {unset[0]} is not set in the environment of this program"
        return next((why for path, digest in command.fixtures.items() if (why := self._fixture(path, digest))), "")

    def _program(self, command: Command) -> str | None:
        name = command.argv[0]
        if "/" in name:
            name = str(self._directory / name)
        return shutil.which(name, path=self._environ.get("PATH"))

    def _fixture(self, path: str, digest: str) -> str:
        try:
            with (self._directory / path).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as why:
            return f"fixture_sha256: {path} cannot be read: {why.strerror}"
        return "" if found == digest else f"fixture_sha256: {path} has {found}, not {digest}"

    def run(self, command: Command, cancelled: Callable[[], bool]) -> CommandRun:
        if why := self.why_not(command):
            raise EffectFailed(why)
        given = {n: command.given.get(n) or self._environ.get(n, "") for n in command.env}
        secrets = tuple(v for n, v in given.items() if n not in PLAIN and not n.startswith(PLAIN_PREFIX))
        with tempfile.TemporaryDirectory(prefix="anvil-gate-") as folder:
            out = Path(folder) / "result.json"
            argv = filled(command.argv, {"out": str(out)})
            began = time.monotonic()
            child = self._start(self._program(command) or argv[0], argv, given, command.stdin)
            streams = _Streams(child)
            try:
                with _watched(cancelled) as asked:
                    ended = _follow(child, streams, began + command.timeout_s, asked)
            finally:
                streams.close()
            elapsed = time.monotonic() - began
            written, trouble = _written(out, secrets)
        code = child.returncode if ended == "exit" else None
        return CommandRun(
            code,
            ended,
            streams.text("stdout", secrets),
            streams.text("stderr", secrets),
            elapsed,
            written,
            trouble,
        )

    def _start(
        self, program: str, argv: tuple[str, ...], env: Mapping[str, str], stdin: str
    ) -> subprocess.Popen[bytes]:
        """What it reads stands in a file: a program that does not read it blocks nobody."""
        try:
            with tempfile.TemporaryFile() as given:
                given.write(stdin.encode())
                given.seek(0)
                return subprocess.Popen(
                    argv, executable=program, cwd=self._directory, env=dict(env), stdin=given,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                )  # fmt: skip
        except (OSError, ValueError) as why:
            raise EffectFailed(f"{argv[0]} cannot be started: {why}") from why


@contextmanager
def _watched(cancelled: Callable[[], bool]) -> Iterator[threading.Event]:
    """An event that is set once `cancelled` says yes; a pause makes that wait, and the clock here goes on."""
    asked, over = threading.Event(), threading.Event()

    def ask() -> None:
        while not over.wait(POLL_S):
            if cancelled():
                asked.set()
                return

    threading.Thread(target=ask, name="command-cancel", daemon=True).start()
    try:
        yield asked
    finally:
        over.set()


def _follow(
    child: subprocess.Popen[bytes], streams: _Streams, deadline: float, cancelled: threading.Event
) -> Ended:
    """Reads until the program has ended or must end, then ends what is left of its group."""
    ended: Ended = "exit"
    while child.poll() is None:
        streams.read(POLL_S)
        if time.monotonic() >= deadline:
            ended = "deadline"
            break
        if cancelled.is_set():
            ended = "cancelled"
            break
    _end_group(child, streams)
    return ended


def _end_group(child: subprocess.Popen[bytes], streams: _Streams) -> None:
    """TERM, then KILL, to every process of the group; one that was left behind by its leader included."""
    for sent, grace in ((signal.SIGTERM, TERM_GRACE_S), (signal.SIGKILL, KILL_GRACE_S)):
        end = time.monotonic() + grace
        if not _signal(child.pid, sent):
            break
        while time.monotonic() < end and (child.poll() is None or _signal(child.pid, 0)):
            streams.read(POLL_S)
    try:
        child.wait(KILL_GRACE_S)
    except subprocess.TimeoutExpired:
        raise EffectFailed(f"process {child.pid} does not die: it is stuck in the kernel") from None
    left = DRAIN_READS
    while streams.read(0) and left:
        left -= 1


def _signal(group: int, number: int) -> bool:
    """Whether the group was there. Its number is not given to anybody else while it has a member."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        # macOS says so of a group of zombies; a program that changed its user cannot be reached either.
        return False
    return True


@dataclass(slots=True)
class _Kept:
    """The last bytes of one stream; `total` is how many there were."""

    source: IO[bytes]
    limit: int
    data: bytearray = field(default_factory=bytearray)
    total: int = 0


class _Streams:
    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout is not None and child.stderr is not None
        sources = {"stdout": child.stdout, "stderr": child.stderr}
        self._kept = {name: _Kept(source, KEPT_BYTES[name]) for name, source in sources.items()}
        self._selector = selectors.DefaultSelector()
        for kept in self._kept.values():
            os.set_blocking(kept.source.fileno(), False)
            self._selector.register(kept.source, selectors.EVENT_READ, kept)

    def read(self, seconds: float) -> bool:
        """Whether anything came within so many seconds; with nothing left to read it waits all the same."""
        if not self._selector.get_map():
            time.sleep(seconds)
            return False
        events = self._selector.select(seconds)
        for key, _ in events:
            kept: _Kept = key.data
            chunk = os.read(kept.source.fileno(), 65536)
            if not chunk:
                self._selector.unregister(kept.source)
            kept.total += len(chunk)
            kept.data = (kept.data + chunk)[-kept.limit :]
        return bool(events)

    def text(self, name: str, secrets: tuple[str, ...]) -> str:
        """Redacted. What the cut may have left of a secret at the front goes with the front's unfinished line."""
        kept = self._kept[name]
        text = kept.data.decode(errors="replace")
        if kept.total > len(kept.data):
            text = text[max((len(s) for s in secrets), default=0) :]
            line = text.find("\n")
            text = text[line + 1 :] if line >= 0 else text
            text = f"[{kept.total:,} bytes, the last of them:]\n{text}"
        return "\n".join(_hidden(line, secrets) for line in text.split("\n"))

    def close(self) -> None:
        self._selector.close()
        for kept in self._kept.values():
            kept.source.close()


def _written(out: Path, secrets: tuple[str, ...]) -> tuple[str | None, str]:
    """(what the program wrote to its file, why that cannot be used)."""
    if not out.exists():
        return None, ""
    if not out.is_file() or out.is_symlink():
        return None, "the result is no plain file"
    with out.open("rb") as file:
        raw = file.read(MAX_RESULT + 1)
    if len(raw) > MAX_RESULT:
        return None, f"the result file is larger than {MAX_RESULT:,} bytes"
    return _hidden(raw.decode(errors="replace"), secrets), ""


def _hidden(text: str, secrets: tuple[str, ...]) -> str:
    """Redacted; of a JSON object or list only the texts in it, so that it stays one."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.dumps(redact_values(json.loads(text), lambda t: redact(t, secrets)), ensure_ascii=False)
        except (ValueError, RecursionError):
            pass  # it only begins like JSON: hidden as the text it is
    return redact(text, secrets)
