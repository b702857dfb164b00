"""What every gateway adapter must keep, against real gateways: what it claims to be able to do, it does, and what
it says that it cannot, it refuses. Few tests move an alias to another slot, which can be a restart."""

from __future__ import annotations

import signal
import threading

import httpx
import pytest

from anvil_tui.core.errors import Refused
from tests.support.fronts import Front, Stream
from tests.support.wait import wait_until

pytestmark = pytest.mark.real


def in_flight(gateway: Front, slot: str) -> int | None:
    backend = gateway.seen().backend(slot)
    assert backend is not None
    return backend.in_flight


def running(gateway: Front, to: str = "llm.primary") -> Stream:
    """A stream whose first bytes have arrived and which goes on until the upstream is let go."""
    stream = gateway.stream(to)
    assert stream.begun.wait(20)
    return stream


def test_each_slot_has_a_way_of_its_own_whatever_the_aliases_say(gateway: Front) -> None:
    gateway.point(llm_primary="hold", llm_fast="none")
    assert [gateway.ask(f"@{slot}").by for slot in "abcd"] == list("abcd")


def test_the_gateways_own_account_names_the_slot_and_nothing_else_does(gateway: Front) -> None:
    """O-79, O-80: the answer echoes the model that was asked for, the engine claims a backend and a request id and
    lists the alias among its names; none of it says who answered."""
    for to, slot in (("llm.primary", "a"), ("other", "c"), ("@d", "d")):
        told = gateway.ask(to)
        origin = gateway.reader.served_by(told.answer)
        assert (told.by, origin.slot, origin.model) == (slot, slot, origin.model)
        assert origin.model in (None, f"model-{slot}")
        assert origin.unlike(slot, f"model-{slot}") is None
        assert "not z" in (origin.unlike("z", f"model-{slot}") or "")
    strange = gateway.reader.served_by(type(told.answer)(200, headers={}))
    assert (strange.slot, bool(strange.why)) == ("", True)
    assert set(gateway.ups["a"].served) == {"model-a", "llm.primary"}


def test_a_quiesced_alias_is_held_or_answered_503_as_it_says(gateway: Front) -> None:
    gateway.point(llm_primary="hold")
    assert gateway.seen().aliases["llm.primary"] == "hold"
    asked = len(gateway.ups["a"].asked)
    stream = gateway.stream("llm.primary", "hi")
    if gateway.seen().can.holds:
        wait_until(lambda: gateway.seen().held == 1, "the request is held")
        assert len(gateway.ups["a"].asked) == asked
        gateway.point(llm_primary="a")
        assert stream.end().by == "a"
    else:
        assert stream.end().status == 503
        assert gateway.seen().held is None
        gateway.point(llm_primary="a")
        assert gateway.ask("llm.primary").by == "a"
    assert gateway.ask("llm.fast").by == "a"


def test_none_answers_503_and_is_told_apart_from_hold(gateway: Front) -> None:
    gateway.point(llm_primary="none", llm_fast="hold")
    assert {a: t for a, t in gateway.seen().aliases.items() if a != "other"} == {
        "llm.primary": "none", "llm.fast": "hold",
    }  # fmt: skip
    assert gateway.ask("llm.primary").status == 503
    assert gateway.seen().file_equal


def test_an_older_operation_is_fenced_off(gateway: Front) -> None:
    before = gateway.seen()
    with pytest.raises(Refused, match=f"is {gateway.generation - 1}: it is stale"):
        gateway.control.point({"llm.primary": "hold"}, gateway.generation - 1, lambda at: None)
    assert gateway.seen() == before


@pytest.mark.parametrize(
    ("targets", "why"),
    [({"llm.nobody": "a"}, "llm.nobody is in no role"), ({"llm.primary": "c"}, "role primary has a, b")],
)
def test_unknown_names_are_refused_and_nothing_moves(gateway: Front, targets: dict[str, str], why: str) -> None:
    before = gateway.seen()
    with pytest.raises(Refused, match=why):
        gateway.control.point({"llm.fast": "b", **targets}, gateway.generation + 1, lambda at: None)
    assert gateway.seen() == before
    assert gateway.ask("llm.nobody").status == 404


def test_strangers_are_let_nowhere(gateway: Front) -> None:
    assert gateway.ask("llm.primary", key="nobodys-key-of-the-tests").status == 401


def test_counts_are_of_every_way_into_a_slot(gateway: Front) -> None:
    with running(gateway), running(gateway, "llm.fast"), running(gateway, "@a"), running(gateway, "other"):
        assert [in_flight(gateway, slot) for slot in "abcd"] == [3, 0, 1, 0]
        gateway.point(llm_primary="hold", llm_fast="hold")
        assert in_flight(gateway, "a") == 3
        for up in gateway.ups.values():
            up.go.set()
    wait_until(lambda: [in_flight(gateway, s) for s in "ac"] == [0, 0], "nothing is in flight any more")


def test_running_requests_are_cut_or_the_cutting_is_refused(gateway: Front) -> None:
    with running(gateway) as stream:
        if gateway.seen().can.severs:
            gateway.control.sever("a")
            wait_until(lambda: stream.over, "the stream was cut")
            assert not (stream.told and stream.told.by)
            gateway.ups["a"].go.set()
        else:
            with pytest.raises(Refused, match="cannot cut"):
                gateway.control.sever("a")
            gateway.ups["a"].go.set()
            assert stream.end().by == "a"


def test_a_gateway_that_was_killed_comes_up_on_what_was_intended(gateway: Front) -> None:
    gateway.point(llm_primary="hold", llm_fast="a", other="none")
    before = gateway.seen()
    gateway.stop(signal.SIGKILL)
    gateway.start()
    after = gateway.seen()
    assert (after.aliases, after.generation, after.file_equal) == (before.aliases, before.generation, True)
    assert after.pid != before.pid
    assert gateway.ask("llm.fast").by == "a"
    assert gateway.ask("other").status == 503


# To move an alias can cost a restart: from here on each test begins where the one before has ended.


@pytest.fixture
def there(made: Front) -> str:
    """The slot that llm.primary is not at; all admit, and llm.fast and other are at home."""
    for up in made.ups.values():
        up.go.clear()
    here = "b" if made.seen().aliases["llm.primary"] == "b" else "a"
    made.point(llm_primary=here, llm_fast="a", other="c")
    return "a" if here == "b" else "b"


def test_pointing_moves_its_aliases_and_no_other(made: Front, there: str) -> None:
    before = made.generation
    made.point(llm_primary=there)
    found = made.seen()
    assert found.aliases == {"llm.primary": there, "llm.fast": "a", "other": "c"}
    assert (found.generation, found.file_equal) == (before + 1, True)
    assert [made.ask(a).by for a in ("llm.primary", "llm.fast", "other")] == [there, "a", "c"]
    again = made.seen()
    made.control.point({"llm.primary": there}, made.generation, lambda at: None)
    assert made.seen() == again
    assert (made.control.would_interrupt(), made.control.install()) == ("", False)


def test_moving_an_alias_interrupts_what_it_says_and_cuts_nothing(made: Front, there: str) -> None:
    """A running stream ends whole in both; without `atomic` the gateway restarts once it has."""
    here, before, errors, stop = "ab".replace(there, ""), made.seen(), list[object](), threading.Event()

    def client() -> None:
        url = made.reader.way("other", "model-c")
        while not stop.is_set():
            try:
                told = Stream(url.base_url, url.model, "hi", "client-key-of-the-tests")
                told.end()
                if not (told.told and told.told.by == "c"):
                    errors.append(told.told.status if told.told else "nothing")
            except AssertionError:
                errors.append(told.error)

    loop = threading.Thread(target=client)
    stream = running(made)
    loop.start()
    flip = threading.Thread(target=lambda: made.point(llm_primary=there))
    flip.start()
    if not before.can.atomic:
        wait_until(lambda: set(made.seen().aliases.values()) == {"hold"}, "every alias is quiesced")
        assert in_flight(made, here) == 1
    made.ups[here].go.set()
    assert stream.end().by == here
    flip.join()
    stop.set()
    loop.join()
    after = made.seen()
    assert (after.aliases["llm.primary"], after.aliases["other"], after.file_equal) == (there, "c", True)
    if before.can.atomic:
        assert (errors, after.pid) == ([], before.pid)
    else:
        assert after.pid != before.pid
        refused = {c.__name__ for c in (httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError)}
        assert errors and set(errors) <= {503, *refused}


def test_killed_between_the_halves_it_is_taken_up_again(made: Front, there: str) -> None:
    class Killed(BaseException):
        pass

    def die(at: str) -> None:
        raise Killed

    with pytest.raises(Killed):
        made.control.point({"llm.primary": there}, made.generation + 1, die)
    assert not made.seen().file_equal
    made.point(llm_primary=there)
    assert (made.seen().file_equal, made.ask("llm.primary").by, made.ask("other").by) == (True, there, "c")
