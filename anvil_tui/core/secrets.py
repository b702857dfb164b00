"""References to secrets, and where one was found. A value is never part of a message."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import AfterValidator

_REF = re.compile(
    r"env:(?P<env>[A-Za-z_][A-Za-z0-9_]*)|file:(?P<file>[^#\x00-\x1f]+)(#(?P<key>[A-Za-z_][A-Za-z0-9_]*))?"
)
_FORMS = "env:NAME, file:PATH (the whole file) or file:PATH#NAME (one line NAME=VALUE of an env file)"


def _check(text: str) -> str:
    """a reference to a secret: env:NAME, file:PATH or file:PATH#NAME"""
    if not _REF.fullmatch(text):
        raise ValueError(f"must be a reference to a secret, never the secret: {_FORMS}")
    return text


SecretRef = Annotated[str, AfterValidator(_check)]


@dataclass(frozen=True, slots=True)
class Reference:
    """A parsed reference: `env` names a variable, or `file` a path with `key` "" or a name in that env file."""

    env: str = ""
    file: str = ""
    key: str = ""


def parse_reference(text: str) -> Reference:
    """ValueError for anything that is no reference; the text itself is not repeated, it may be the secret."""
    found = _REF.fullmatch(_check(text))
    assert found
    return Reference(found["env"] or "", found["file"] or "", found["key"] or "")


@dataclass(frozen=True, slots=True)
class Secret:
    """A resolved secret. `source` names the winner, `note` anything odd about it; both are safe to show."""

    value: str = field(repr=False)
    source: str
    note: str = ""

    def __str__(self) -> str:
        return f"secret from {self.source}"
