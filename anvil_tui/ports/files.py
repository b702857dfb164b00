"""Files that belong to somebody else: clients' catalogs and copies of credentials, here or over SSH."""

from __future__ import annotations

from typing import Protocol


class ConfigFiles(Protocol):
    """`host` is where ssh goes, "" = this machine. A path is absolute, begins with `~/`, or, here, is relative to
    the workspace."""

    def read(self, host: str, path: str) -> bytes:
        """The file. NotFound without it; NoCredential when the host lets nobody in with what we have; Unreachable
        when it does not answer; BadFile when it is no plain file, may not be read, or is larger than 1 MiB."""


class ConfigControl(Protocol):
    def replace(self, host: str, path: str, data: bytes, expected: str) -> None:
        """Replace a file whose SHA-256 is `expected`; Refused when it is another by now.

        Whole or not at all; a symlink stays one, the file's mode stays. EffectFailed when it could not be saved.
        """

    def keep(self, name: str, data: bytes) -> str:
        """Keep a copy under `name` (0600, in the state folder); its path. A second copy of the same name is none:
        the first stays."""

    def kept(self, name: str) -> bytes:
        """The copy. NotFound without it."""
