"""HAProxy's runtime sockets: one command a connection, and the shapes of its answers."""

from __future__ import annotations

import csv
import hashlib
import os
import re
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from anvil_tui.core.errors import BadFile, EffectFailed, Unreachable

TIMEOUT_S = 2.0
# Seen refused once in some hundred runs, under load, right after a start; it listens milliseconds later.
REEXEC_S = 0.5
# HAProxy binds PATH.PID.tmp first and takes 97 bytes at most; ours is checked without that ending.
_LONGEST = 80
_PLAIN = re.compile(r"[A-Za-z0-9/._+-]+")
_SESSION = re.compile(
    r"(?P<address>0x\w+): \[.*?\] id=(?P<number>\d+) .*?^  backend=(?P<backend>\S+) .*?^  server=(?P<server>\S+) "
    r".*?^  task=.*? age=(?P<age>[\w?]+)\).*?^  res=\S+ \(.*? total=(?P<total>\d+)\)"
    r".*? o=(?P<out>\d+) p=\d+ i=(?P<new>\d+)",
    re.MULTILINE | re.DOTALL,
)
_UNIT_S = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def socket_dir(directory: Path) -> Path:
    """Where the sockets of the gateway in `directory` live: there, or in a short folder when its path cannot
    name a socket. Depends on the folder alone, so that every session of every user finds the same one."""
    directory = directory.resolve()
    name = str(directory / "master.sock")
    if len(os.fsencode(name)) <= _LONGEST and _PLAIN.fullmatch(name):
        return directory
    owner = directory.stat().st_uid if directory.exists() else os.geteuid()
    return Path(f"/tmp/anvil-{owner}-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:12]}")


def make_socket_dir(directory: Path) -> Path:
    """As `socket_dir`, made if need be; BadFile when a stranger owns it or others may enter."""
    place = socket_dir(directory)
    if not place.is_symlink() and not place.exists():
        place.mkdir(mode=0o700, parents=True)
        if os.geteuid() == 0:
            os.chown(place, directory.stat().st_uid, -1)
    found = place.lstat()
    if place.is_symlink() or found.st_uid not in (directory.stat().st_uid, os.geteuid()) or found.st_mode & 0o077:
        raise BadFile(str(place), "must be a folder of yours with mode 0700: remove it, then start again")
    return place


def ask(path: Path, command: str, timeout_s: float = TIMEOUT_S) -> str:
    """The answer to one command. Unreachable when nobody answers; an empty answer is an answer."""
    start = time.monotonic()
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(timeout_s)
            _connect(link, path, start + REEXEC_S)
            link.sendall(f"{command}\n".encode())
            link.shutdown(socket.SHUT_WR)
            return _all(link, start + timeout_s).decode(errors="replace").strip("\n")
    except OSError as why:
        reason = f"the gateway does not answer ({why.strerror or why}); start it with `anvil-tui gateway run`"
        raise Unreachable(str(path), reason, time.monotonic() - start) from why


def _connect(link: socket.socket, path: Path, until: float) -> None:
    """A master that starts or reloads refuses for a moment, with its socket's file in place."""
    while True:
        try:
            return link.connect(str(path))
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def answers(path: Path) -> bool:
    """Whether somebody listens at `path`."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(TIMEOUT_S)
        return link.connect_ex(str(path)) == 0


def _all(link: socket.socket, deadline_s: float) -> bytes:
    parts = []
    while part := link.recv(65536):
        parts.append(part)
        link.settimeout(max(0.001, deadline_s - time.monotonic()))
    return b"".join(parts)


def command(path: Path, text: str) -> None:
    """A command that answers nothing when it worked; EffectFailed carries HAProxy's words."""
    if answer := ask(path, text).strip():
        raise EffectFailed(f"{path}: `{text.splitlines()[0]}` was answered: {answer}")


# shapes


@dataclass(frozen=True, slots=True)
class Load:
    """Requests of one backend in one worker: in progress with the queued ones, queued, ever seen."""

    in_flight: int
    queued: int
    total: int


@dataclass(frozen=True, slots=True)
class Session:
    """One request in progress in one worker. `number` is counted up by the worker; `address` is used again.

    `on_server` = it was given to the backend's server, queued otherwise. `bytes_out` counts head and body.
    """

    address: str
    number: int
    backend: str
    on_server: bool
    age_s: float
    bytes_out: int


@dataclass(frozen=True, slots=True)
class Processes:
    """What the master tells: reloads done, the failed ones since the last good one, and its workers' pids."""

    reloads: int
    failed: int
    workers: tuple[int, ...]


def loads(text: str) -> dict[str, Load]:
    """By backend, from `show stat`. ValueError when this is no statistics table."""
    if not text.startswith("# pxname"):
        raise ValueError(f"not a statistics table: {text[:80]!r}")
    rows = csv.DictReader(text[2:].splitlines())
    return {
        r["pxname"]: Load(int(r["scur"]), int(r["qcur"]), int(r["stot"])) for r in rows if r["svname"] == "BACKEND"
    }


def info(text: str) -> dict[str, str]:
    pairs = (line.partition(": ") for line in text.splitlines())
    return {key: value for key, _, value in pairs}


def map_entries(text: str) -> list[tuple[str, str]]:
    """From `show map`: an address, a key and a value a line."""
    words = [line.split() for line in text.splitlines() if line.startswith("0x")]
    return [(w[1], w[2]) for w in words if len(w) == 3]


def addresses(text: str) -> dict[str, str]:
    """Backend -> HOST:PORT of its server, from `show servers state`."""
    lines = text.splitlines()
    header = next((line for line in lines if line.startswith("# be_id")), "# ")[2:].split()
    rows = [dict(zip(header, line.split(), strict=False)) for line in lines[2:]]
    return {r["be_name"]: f"{r['srv_addr']}:{r['srv_port']}" for r in rows if "srv_port" in r}


def sessions(text: str) -> tuple[Session, ...]:
    """From `show sess all`, or `show sess ADDRESS`. ValueError when a part of it cannot be read: a request that is
    not understood must not be left out."""
    found = []
    for part in re.split(r"^(?=0x)", text, flags=re.MULTILINE):
        if part.startswith("0x"):
            if (told := _SESSION.match(part)) is None:
                raise ValueError(f"not a session: {part[:300]!r}")
            found.append(_session(told))
    if not found:
        raise ValueError(f"not a session list: {text[:80]!r}")
    return tuple(found)


def _session(told: re.Match[str]) -> Session:
    """What still waits in the gateway's own buffer was not sent to the client."""
    sent = int(told["total"]) - int(told["out"]) - int(told["new"])
    return Session(
        told["address"], int(told["number"]), told["backend"], told["server"] != "<NONE>", seconds(told["age"]),
        max(0, sent),
    )  # fmt: skip


def seconds(text: str) -> float:
    """`?` is an age below the clock's own tick.

    >>> seconds("1h2m"), seconds("7s"), seconds("?")
    (3720.0, 7.0, 0.0)
    """
    return float(sum(int(n) * _UNIT_S[unit] for n, unit in re.findall(r"(\d+)([dhms])", text)))


def processes(text: str) -> Processes:
    """From `show proc` of the master."""
    rows = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    master = next((r for r in rows if r[1] == "master"), None)
    if master is None:
        raise ValueError(f"not a process list: {text[:80]!r}")
    failed = re.search(r"\[failed: (\d+)\]", " ".join(master))
    workers = tuple(int(r[0]) for r in rows if r[1] == "worker")
    return Processes(int(master[2]), int(failed[1]) if failed else 0, workers)


def total(parts: Iterable[int | None]) -> int | None:
    """A sum of which no part is unknown."""
    known = list(parts)
    return None if any(p is None for p in known) else sum(p for p in known if p is not None)
