"""Expected failures, each with the exit code a command ends with.

Every message names the file, key or endpoint concerned and what to do about it.
"""

from __future__ import annotations

from anvil_tui.core.redact import redact


class AnvilError(Exception):
    """Base of every expected failure. `exit_code` follows the command-line contract."""

    exit_code = 1

    def __str__(self) -> str:
        """Without secrets: a daemon, an engine or a parser may have put one into its words."""
        return redact(super().__str__())


class BadFile(AnvilError):
    """A file the operator wrote cannot be used.

    `path` is the file, `line` is 1-based or None, `key` is the dotted key or None.
    """

    exit_code = 2

    def __init__(self, path: str, message: str, *, line: int | None = None, key: str | None = None) -> None:
        where = f"{path}:{line}" if line else path
        super().__init__(f"{where}: {key}: {message}" if key else f"{where}: {message}")
        self.path, self.line, self.key, self.message = path, line, key, message


class Refused(AnvilError):
    """A policy or an unmet precondition says no; nothing was changed."""

    exit_code = 3


class NoCredential(Refused):
    """A host lets nobody in with what we have; nothing was changed."""


class Stale(Refused):
    """Somebody else has taken over since: this process stops where it is, and writes and undoes nothing more."""


class Unreachable(AnvilError):
    """A target did not answer, or answered nonsense. Names endpoint, reason and elapsed seconds."""

    exit_code = 4

    def __init__(self, endpoint: str, reason: str, elapsed_s: float = 0.0) -> None:
        super().__init__(f"{endpoint}: {reason} (after {elapsed_s:.1f} s)")
        self.endpoint, self.reason, self.elapsed_s = endpoint, reason, elapsed_s


class NotFound(AnvilError):
    """What was named does not exist: a recipe, a suite, a serve, an operation."""

    exit_code = 2


class EffectFailed(AnvilError):
    """A control call was answered with a failure, or its effect could not be read back."""

    exit_code = 1
