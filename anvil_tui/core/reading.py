"""A measured value that can also be unknown or an error, and can grow stale.

Known, zero, unknown, stale and error are different answers and stay different: a `Reading`
is never collapsed to 0 or to an empty text on its way to a pane, to JSON or to evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

T = TypeVar("T")
U = TypeVar("U")

State = Literal["known", "unknown", "error"]


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """One answer of one source.

    `at_s` is the monotonic second of the reading (None when nothing was ever read);
    `source` names where it came from; `reason` says why a value is missing.
    """

    state: State
    value: T | None = None
    at_s: float | None = None
    source: str = ""
    reason: str = ""

    @classmethod
    def known(cls, value: T, at_s: float, source: str) -> Reading[T]:
        return cls("known", value, at_s, source)

    @classmethod
    def unknown(cls, reason: str, source: str = "", at_s: float | None = None) -> Reading[T]:
        """The source cannot tell, or was not asked yet. `at_s` is when that was learnt."""
        return cls("unknown", None, at_s, source, reason)

    @classmethod
    def error(cls, reason: str, at_s: float, source: str, last: T | None = None) -> Reading[T]:
        """Asking failed. `last` keeps the last good value for panes that show it as stale."""
        return cls("error", last, at_s, source, reason)

    @property
    def ok(self) -> bool:
        return self.state == "known"

    def age_s(self, now_s: float) -> float | None:
        return None if self.at_s is None else max(0.0, now_s - self.at_s)

    def is_stale(self, now_s: float, limit_s: float) -> bool:
        """True for a known value older than `limit_s`. An error or an unknown is not stale, it is itself."""
        age = self.age_s(now_s)
        return self.state == "known" and age is not None and age > limit_s

    def map(self, fn: Callable[[T], U]) -> Reading[U]:
        if self.value is None:
            return Reading(self.state, None, self.at_s, self.source, self.reason)
        return Reading(self.state, fn(self.value), self.at_s, self.source, self.reason)
