"""Times as Docker, logs and journals write them: RFC 3339 text with any number of fraction digits.

Docker writes year 1 for "never", west of UTC the last day of year 0. That is None here, before any zone is
applied: year 1 cannot be moved to a zone west of UTC without an overflow.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo

_RFC3339 = re.compile(r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?\s*([Zz]|[+-]\d\d:?\d\d)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Clocks of two processes of one box may differ by their granularity: below this it is not a skew.
_SKEW_S = 1.0


def parse_time(text: str | None) -> datetime | None:
    """An aware datetime (microseconds, own offset kept; no offset means UTC). None for "", None and year 1.

    ValueError when the text is no RFC 3339 time.
    """
    found = _fields(text)
    return None if found is None else found[0]


def epoch_ns(text: str | None) -> int | None:
    """Nanoseconds since 1970, with every digit that the text has (up to nine). None as in `parse_time`."""
    found = _fields(text)
    if found is None:
        return None
    at, fraction = found
    whole = at.replace(microsecond=0) - _EPOCH
    return (whole.days * 86400 + whole.seconds) * 1_000_000_000 + int(fraction[:9].ljust(9, "0"))


def _fields(text: str | None) -> tuple[datetime, str] | None:
    """The instant and its fraction digits."""
    if not text or text.startswith(("0001-", "0000-")):
        return None
    match = _RFC3339.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not an RFC 3339 time: {text[:60]!r}")
    year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
    fraction = match[7] or ""
    micro = int(fraction[:6].ljust(6, "0"))
    return datetime(year, month, day, hour, minute, second, micro, tzinfo=_zone(match[8])), fraction


def _zone(text: str | None) -> tzinfo:
    if text is None or text in "Zz":
        return UTC
    sign = -1 if text[0] == "-" else 1
    return timezone(sign * timedelta(hours=int(text[1:3]), minutes=int(text[-2:])))


def is_before(at: str | None, start: str | None) -> bool:
    """Whether one stamp is known to be earlier than another; one that is missing is not.

    >>> is_before("2026-01-01T00:00:00.119999999Z", "2026-01-01T00:00:00.12Z")
    True
    >>> is_before("2026-01-01T00:00:00.120000001Z", "2026-01-01T00:00:00.12Z")
    False
    """
    one, other = epoch_ns(at), epoch_ns(start)
    return one is not None and other is not None and one < other


def age_s(at: datetime | None, now: datetime) -> float | None:
    """Seconds since `at`; negative for a time in the future; None for never."""
    return None if at is None else (now - at).total_seconds()


def age(at: datetime | None, now: datetime) -> str:
    """A short age: `-` for never, `clock skew 12 s` for the future, else as `span` writes it."""
    seconds = age_s(at, now)
    return "-" if seconds is None else skew(at, now) or span(max(0.0, seconds))


def skew(at: datetime | None, now: datetime) -> str:
    """`clock skew 12 s` for a time that is still to come, "" for any other."""
    seconds = age_s(at, now)
    return f"clock skew {span(-seconds)}" if seconds is not None and seconds < -_SKEW_S else ""


def span(seconds: float) -> str:
    """
    >>> [span(s) for s in (4.9, 61, 3600 * 5 + 120, 86400 * 3)]
    ['4 s', '1 min 01 s', '5 h 02 min', '3 d 00 h']
    """
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


_CLOCK = re.compile(r"(?:(\d{4})-(\d\d)-(\d\d)[ T])?(\d{1,2}):(\d\d)(?::(\d\d))?")
_AGO = re.compile(r"-?(\d+(?:\.\d+)?)\s*(s|min|m|h|d)")
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def when(text: str, near: datetime, zone: tzinfo | None) -> datetime:
    """A moment as a person writes it: `14:05`, `14:05:30`, `2026-09-02 14:05`, `15m` before `near`, RFC 3339.

    A clock without a date is of the day of `near`; without an offset it is in `zone`, None = this machine's own.
    ValueError with a sentence for anything else.
    """
    text = text.strip()
    ago, clock = _AGO.fullmatch(text), _CLOCK.fullmatch(text)
    try:
        if ago:
            return near - timedelta(seconds=float(ago[1]) * _UNITS[ago[2]])
        if clock:
            local = near.astimezone(zone)
            date = {k: int(clock[n]) for n, k in ((1, "year"), (2, "month"), (3, "day")) if clock[n]}
            time = {"hour": int(clock[4]), "minute": int(clock[5]), "second": int(clock[6] or 0), "microsecond": 0}
            return local.replace(**date, **time, tzinfo=zone).astimezone(UTC)
        at = parse_time(text)
    except (ValueError, OverflowError):
        at = None
    if at is None:
        raise ValueError(
            f"{text[:40]!r} is no time like 14:05, 2026-09-02 14:05, 15m (ago) or 2026-09-02T14:05:00Z"
        )
    return at


def with_zone(at: datetime | None, zone: tzinfo) -> str:
    """The time in `zone` with the zone written behind it; `-` for never."""
    if at is None:
        return "-"
    local = at.astimezone(zone)
    return f"{local:%Y-%m-%d %H:%M:%S} {local.tzname() or 'UTC'}"


def utc_text(at: datetime) -> str:
    """The stored form: UTC, microseconds, `Z`."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
