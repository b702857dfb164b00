"""What calls for a person: raised and cleared with hysteresis, acknowledged by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["warn", "bad"]


@dataclass(frozen=True, slots=True)
class Alarm:
    """`id` is `KIND:TARGET`, with the target's stable id. `since` is UTC text; `acked_by` "" = nobody yet."""

    id: str
    kind: str
    target: str
    severity: Severity
    since: str
    text: str
    acked_by: str = ""
    acked_at: str = ""
