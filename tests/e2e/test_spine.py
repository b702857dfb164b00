"""A real serve goes from recipe to production and back, by command, while clients never stop."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.realbox import RealBox
from tests.real.client_loop import ClientLoop, LongStream

Record = Callable[[str, object], None]
pytestmark = [pytest.mark.real, pytest.mark.e2e]


def no_errors(clients: ClientLoop, record_property: Record) -> None:
    record_property("client_errors", len(clients.errors()))
    assert clients.errors() == []


def test_spare_room_load_qualify_promote_and_roll_back(real_box: RealBox, record_property: Record) -> None:
    box = real_box
    box.do("load", "smol-4k", "--yes")
    box.do("qualify", "smol-4k", "--yes")
    box.do("promote", "smol-4k", "--yes")
    first = box.record().roles["primary"].incumbent
    with ClientLoop(box.dir) as clients:
        clients.wait_answers(5)
        box.do("load", "smol-8k", "--yes")
        assert box.running() == ["smol-4k", "smol-8k"]
        box.do("qualify", "smol-8k", "--yes")
        box.do("promote", "smol-8k", "--yes")
        box.settled("smol-8k")
        clients.wait_answers(5)
        box.do("rollback", "--yes")
        box.settled("smol-4k")
        clients.wait_answers(5)
    no_errors(clients, record_property)
    assert {a["backend"] for a in clients.answers()} == {s.name for s in box.workspace.roles[0].slots}
    assert box.record().roles["primary"].incumbent == first


def test_full_box_exclusive_to_exclusive_without_one_failed_request(
    real_box: RealBox, record_property: Record
) -> None:
    """Defect 1 of the system this learns from: the incumbent stopped, then candidate and rollback both refused."""
    box = real_box
    box.do("promote", "smol-x4k", "--yes")
    first = box.record().roles["primary"].incumbent
    with ClientLoop(box.dir) as clients:
        clients.wait_answers(5)
        refused = box.do("load", "smol-x8k", "--yes", code=3)
        assert "needs the whole box" in refused["refusals"][0]
        box.do("promote", "smol-x8k", "--yes")
        box.settled("smol-x8k")
        clients.wait_answers(5)
        box.do("rollback", "--yes")
        box.settled("smol-x4k")
        clients.wait_answers(5)
    no_errors(clients, record_property)
    assert box.record().roles["primary"].incumbent == first


@pytest.mark.parametrize("bad", ["smol-broken", "smol-dead"])
def test_a_candidate_that_cannot_start_costs_no_request(
    real_box: RealBox, bad: str, record_property: Record
) -> None:
    box = real_box
    box.do("promote", "smol-x4k", "--yes")
    with ClientLoop(box.dir) as clients:
        clients.wait_answers(3)
        ended = box.do("promote", bad, "--yes", code=1)
        assert ended["outcome"] == "undone" and "exit code 1" in ended["why"]
        box.settled("smol-x4k")
        clients.wait_answers(3)
    no_errors(clients, record_property)
    kept = list((box.dir / "state" / "operations" / ended["id"]).glob("*.log"))
    assert any("error" in log.read_text() for log in kept)


def test_a_model_that_cannot_call_tools_fails_the_tools_gate_and_is_not_promoted(real_box: RealBox) -> None:
    box = real_box
    box.do("promote", "smol-4k", "--yes")
    box.do("load", "smol-8k", "--yes")
    ended = box.do("qualify", "smol-8k", "--suite", "tools", "--yes", code=1)
    assert "tool_call_failed" in ended["why"] or "tool" in ended["why"]
    assert [g["verdict"] for g in ended["gates"]] == ["failed"]
    refused = box.do("promote", "smol-8k", "--yes", code=3)
    assert "not qualified" in refused["refusals"][0]


def test_plan_first_and_a_stale_plan_is_refused(real_box: RealBox) -> None:
    box = real_box
    box.do("promote", "smol-4k", "--yes")
    made = box.do("quiesce", "primary")
    assert made["steps"][1]["name"] == "hold" and box.gateway().aliases["llm.primary"] != "hold"
    box.do("quiesce", "primary", "--plan", made["hash"])
    assert box.gateway().aliases["llm.primary"] == "hold"
    stale = box.anvil("quiesce", "primary", "--plan", made["hash"])
    assert stale.returncode == 3 and "is already quiesced" in stale.stdout
    stale = box.anvil("readmit", "primary", "--plan", made["hash"])
    assert stale.returncode == 3 and "aliases.llm.primary: was primary-" in stale.stderr
    box.do("readmit", "primary", "--yes")
    box.settled("smol-4k")
    _a_long_stream_outlasts_a_drain_and_is_cut_only_by_decision(box)


def _a_long_stream_outlasts_a_drain_and_is_cut_only_by_decision(box: RealBox) -> None:
    """ai-dynamo/dynamo#13559: what runs is harmed by no deadline that nobody decided to cut at."""
    with LongStream(box.dir) as kept:
        ended = box.do("drain", "primary", "--timeout", "1", "--yes", code=1)
        assert "drain_timeout: 1 in flight on primary-" in ended["why"] and "nothing was cut" in ended["why"]
        box.settled("smol-4k")
        [listed] = box.gateway().requests or ()
        assert listed.bytes_out and kept.whole() == ""
    with LongStream(box.dir) as cut:
        ended = box.do("drain", "primary", "--timeout", "1", "--sever", "--yes")
        assert cut.whole() != ""
    told = [r.data for r in box.operations.journal(ended["id"]).records() if r.step == "drain"]
    first, done = next(d for d in told if "in_flight" in d), told[-1]
    assert (first["in_flight"], first["engine"], done["in_flight"], done["engine"]) == (1, 1, 0, 0)
    [to_cut] = next(d["to_cut"] for d in told if "to_cut" in d)
    assert [r["id"] for r in done["severed"]] == [to_cut["id"]]
    box.do("readmit", "primary", "--yes")


def test_unload_answers_503_and_rollback_brings_the_same_container_back(real_box: RealBox) -> None:
    box = real_box
    box.do("promote", "smol-4k", "--yes")
    first = box.record().roles["primary"].incumbent
    box.do("unload", "smol-4k", "--yes")
    assert (box.running(), box.gateway().aliases["llm.primary"]) == ([], "none")
    box.do("rollback", "--yes")
    box.settled("smol-4k")
    assert box.record().roles["primary"].incumbent == first
