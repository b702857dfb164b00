"""What every typed TOML table is made of: the strict base, and kinds of text and number. Pure."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def matching(pattern: str, wanted: str) -> AfterValidator:
    """A text rule whose message says what is wanted and never repeats the text."""
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if not compiled.fullmatch(text):
            raise ValueError(f"must be {wanted}")
        return text

    check.__doc__ = wanted
    return AfterValidator(check)


Slug = Annotated[
    str, matching(r"[a-z0-9][a-z0-9._-]{0,79}", "1 to 80 lower-case letters, digits, dots, dashes or underscores")
]
Sha256 = Annotated[str, matching(r"[0-9a-f]{64}", "64 lower-case hex digits")]
PinnedImage = Annotated[
    str, matching(r"|[^\s@]+@sha256:[0-9a-f]{64}", "pinned by digest: NAME@sha256: and 64 hex digits")
]
PathText = Annotated[str, matching(r"[^\x00-\x1f\x7f]*", "a path without control characters")]
Line = Annotated[str, matching(r"[^\x00-\x1f\x7f]{1,200}", "one line of 1 to 200 characters")]
Positive = Annotated[int, Field(ge=1)]
NonNegative = Annotated[int, Field(ge=0)]


Layer = Literal["flag", "env", "file", "default"]
"""What set a value of a run: the first of them that says anything."""


class Table(BaseModel):
    """Base of every table: unknown keys and lax types are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
