"""Docker times: digits, offsets, never, clocks that differ."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from anvil_tui.adapters.docker_shape import container
from anvil_tui.core.times import age, age_s, epoch_ns, parse_time, utc_text, with_zone
from anvil_tui.ui.text import clock, stamp
from tests.unit.test_serves import box, stopped, world

FORMS = [
    "2026-09-02T12:15:45.7094Z",
    "2026-09-02T12:15:45.795969549Z",
    "2026-09-02T14:15:45.109950958+02:00",
    "2026-09-02T12:15:45Z",
    "2026-09-02T12:15:45.1Z",
    "2026-09-02T12:15:45.123456789123Z",
    "2026-09-02T14:15:45+0200",
    "2026-09-02t12:15:45z",
    "2026-09-02T12:15:45,5Z",
    "2026-09-02T17:45:45.5+05:30",
    "2026-09-02T05:15:45-07:00",
]
ZERO = "0001-01-01T00:00:00Z"


def test_all_forms_are_instants_of_one_second() -> None:
    """O-93: the first four are the case's; shorter, longer and other offsets beside them."""
    base = datetime(2026, 9, 2, 12, 15, 45, tzinfo=UTC)
    for text in FORMS:
        at = parse_time(text)
        assert at is not None
        assert timedelta(0) <= at - base < timedelta(seconds=1)


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo", "UTC"])
@pytest.mark.parametrize(
    "text",
    [
        ZERO, "0001-01-01T00:00:00.000Z", "0001-01-01T00:00:00+00:00", "0001-01-01T09:18:59+09:18",
        "0000-12-31T19:03:58-04:56", "", None,
    ],
)  # fmt: skip
def test_never_is_a_dash_in_every_zone(text: str | None, zone: str) -> None:
    """O-93, funkyfuture/deck-chores#66: also as a daemon of another zone writes it, in year 0."""
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


@pytest.fixture(params=["America/New_York", "Asia/Tokyo"])
def local(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The process itself in that zone."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def test_in_a_process_of_any_zone_never_is_drawn_as_a_dash(local: str) -> None:
    """O-93: from the daemon's JSON to what is drawn, in local time."""
    never = container({"Id": "a" * 64, "State": {"Status": "created", "StartedAt": ZERO, "FinishedAt": ZERO}})
    assert (never.started_at, never.finished_at) == (None, None)
    assert (stamp(never.started_at, None), clock(never.started_at, None)) == ("-", "-")
    assert stamp(ZERO, None) == "-"
    hour, zone = {"America/New_York": ("08", "EDT"), "Asia/Tokyo": ("21", "JST")}[local]
    assert stamp("2026-09-02T12:15:45.7094Z", None) == f"2026-09-02 {hour}:15:45 {zone}"
    assert stamp("2026-09-02T14:15:45.109950958+02:00", UTC) == "2026-09-02 12:15:45 UTC"


def test_a_start_in_the_future_is_a_skew_of_clocks_and_no_negative_age() -> None:
    """O-93: in the problems, and on a box whose clocks agree not."""
    now = datetime(2026, 9, 2, 10, 0, 3, tzinfo=UTC)
    ahead = box(started_at="2026-09-02T10:00:15Z")
    told = [p for p in world(ahead, stopped(), now_utc=now).problems if "clock" in p]
    assert told == [
        f"a: clock skew 12 s: container {ahead.id[:12]} started at 2026-09-02T10:00:15Z, "
        "which is still to come here"
    ]
    assert not [p for p in world(box(), stopped(), now_utc=now).problems if "clock" in p]


def test_offset_and_utc_are_the_same_instant_and_sort_together() -> None:
    """O-94, moby/moby#46910; what is stored is UTC with Z."""
    a, b = "2026-09-02T12:00:00.000000001Z", "2026-09-02T14:00:00.000000001+02:00"
    assert parse_time(a) == parse_time(b)
    assert epoch_ns(a) == epoch_ns(b)
    b_at = parse_time(b)
    assert b_at is not None
    assert utc_text(b_at) == "2026-09-02T12:00:00.000000Z"


def test_zone_is_written() -> None:
    """O-94."""
    at = parse_time("2026-09-02T12:00:00Z")
    assert with_zone(at, UTC) == "2026-09-02 12:00:00 UTC"
    assert with_zone(at, ZoneInfo("Europe/Berlin")) == "2026-09-02 14:00:00 CEST"
    assert with_zone(at, timezone(timedelta(hours=-7))) == "2026-09-02 05:00:00 UTC-07:00"


def test_ages() -> None:
    """O-93: never negative."""
    now = datetime(2026, 9, 2, 12, 0, tzinfo=UTC)
    assert age(now - timedelta(seconds=5), now) == "5 s"
    assert age(now - timedelta(minutes=3, seconds=2), now) == "3 min 02 s"
    assert age(now + timedelta(seconds=12), now) == "clock skew 12 s"
    assert age(now + timedelta(milliseconds=300), now) == "0 s"
    assert age_s(now - timedelta(seconds=90), now) == 90.0
    assert age_s(None, now) is None
