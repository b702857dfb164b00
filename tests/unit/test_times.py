"""Docker times (field cases O-93, O-94)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from anvil_tui.core.times import age, age_s, epoch_ns, parse_time, utc_text, with_zone

FORMS = [
    "2026-09-02T12:15:45.7094Z",
    "2026-09-02T12:15:45.795969549Z",
    "2026-09-02T14:15:45.109950958+02:00",
    "2026-09-02T12:15:45Z",
]
ZERO = "0001-01-01T00:00:00Z"


def test_all_forms_are_instants_of_one_second() -> None:
    base = datetime(2026, 9, 2, 12, 15, 45, tzinfo=UTC)
    for text in FORMS:
        at = parse_time(text)
        assert at is not None
        assert timedelta(0) <= at - base < timedelta(seconds=1)


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo", "UTC"])
@pytest.mark.parametrize("text", [ZERO, "0001-01-01T00:00:00.000Z", "", None])
def test_never_is_a_dash_in_every_zone(text: str | None, zone: str) -> None:
    at = parse_time(text)
    assert at is None
    assert epoch_ns(text) is None
    assert with_zone(at, ZoneInfo(zone)) == "-"
    assert age(at, datetime(2026, 9, 2, tzinfo=UTC)) == "-"


@pytest.mark.parametrize("text", ["yesterday", "2026-09-02", "2026-13-02T00:00:00Z"])
def test_what_is_no_time_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"RFC 3339|month"):
        parse_time(text)


def test_nanoseconds_survive() -> None:
    a, b = (epoch_ns(f"2026-09-02T12:00:00.{tail}Z") for tail in ("000000001", "000000002"))
    assert a is not None
    assert b == a + 1
    assert a == 1_788_350_400 * 10**9 + 1
    assert epoch_ns("2026-09-02T12:00:00.5Z") == 1_788_350_400 * 10**9 + 500_000_000


def test_offset_and_utc_are_the_same_instant_and_sort_together() -> None:
    a, b = "2026-09-02T12:00:00.000000001Z", "2026-09-02T14:00:00.000000001+02:00"
    assert parse_time(a) == parse_time(b)
    assert epoch_ns(a) == epoch_ns(b)
    b_at = parse_time(b)
    assert b_at is not None
    assert utc_text(b_at) == "2026-09-02T12:00:00.000000Z"


def test_zone_is_written() -> None:
    at = parse_time("2026-09-02T12:00:00Z")
    assert with_zone(at, UTC) == "2026-09-02 12:00:00 UTC"
    assert with_zone(at, ZoneInfo("Europe/Berlin")) == "2026-09-02 14:00:00 CEST"
    assert with_zone(at, timezone(timedelta(hours=-7))) == "2026-09-02 05:00:00 UTC-07:00"


def test_ages() -> None:
    now = datetime(2026, 9, 2, 12, 0, tzinfo=UTC)
    assert age(now - timedelta(seconds=5), now) == "5 s"
    assert age(now - timedelta(minutes=3, seconds=2), now) == "3 min 02 s"
    assert age(now + timedelta(seconds=12), now) == "clock skew 12 s"
    assert age(now + timedelta(milliseconds=300), now) == "0 s"
    assert age_s(now - timedelta(seconds=90), now) == 90.0
    assert age_s(None, now) is None
