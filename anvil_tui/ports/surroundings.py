"""What a return to a serve needs of the machine besides its container: files that it mounts, and its port."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True)
class FileLook:
    """What lies at a path. `bytes` and `files` count all below a folder, links followed.

    `special` is a socket, a pipe or a device. `flaws` are sentences: incomplete downloads, broken links, parts
    that an index names and that are not there. `why` says why it is `unreadable` (this user may not look) or
    `silent` (its file system did not answer in time; who else is sent to look would hang there, too).
    """

    kind: Literal["file", "folder", "special", "absent", "unreadable", "silent"]
    bytes: int = 0
    files: int = 0
    flaws: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class HashLook:
    """The SHA-256 of a file as it is now, lower-case hex; "" = not read to its end, `done` of `of` bytes are."""

    sha256: str = ""
    done: int = 0
    of: int = 0


class FileReader(Protocol):
    """Files of the machine on which the containers run."""

    def look(self, path: str, *, below: bool = True) -> FileLook:
        """Never raises, and answers within seconds whatever the file system does. Without `below` nothing in a
        folder is looked at: it may be a whole cache of models."""

    def sha256(self, path: str, budget_s: float, *, keep: bool) -> HashLook:
        """Reads on for at most so many seconds; a file that did not change since is not read again. `keep` = other
        processes may learn it. Unreachable when the file cannot be read, or its file system is silent."""


@dataclass(frozen=True, slots=True)
class PortLook:
    """`pid` and `name` of who listens, where the kernel tells; None and "" else."""

    state: Literal["free", "taken", "unknown"]
    pid: int | None = None
    name: str = ""
    why: str = ""


class PortReader(Protocol):
    def look(self, port: int) -> PortLook:
        """Whether an engine could listen on 127.0.0.1:port now. Never raises; nothing is left bound."""
