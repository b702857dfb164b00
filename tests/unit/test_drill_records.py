"""What a drill leaves behind: facts that are compared one by one, its record, rechecks, and the trend of many."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.core.box import SharedFile
from anvil_tui.core.drills import Fact, compare, last_drill, outcome_words, trend_line, trends
from anvil_tui.core.standing import DrillPhase, DrillRecord
from anvil_tui.service.drill import recheck
from tests.support.drills import at, drilled, ids, newest, view
from tests.support.membox import World


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """What survives a power cut is the journal's own test; here it would only cost time."""
    monkeypatch.setattr("os.fsync", lambda fd: None)


@pytest.fixture
def full(tmp_path: Path) -> World:
    return drilled(tmp_path / "full", exclusive=True)


# facts


def test_what_differs_what_moves_and_what_is_not_known_are_three_things() -> None:
    start = (Fact("image", "x"), Fact("started", "1", moves=True), Fact("shm", None, "why"), Fact("context", "8"))
    end = (Fact("image", "y"), Fact("started", "2", moves=True), Fact("shm", None, "why"),
           Fact("context", None, "silent"))  # fmt: skip
    found = compare(start, end)
    assert found.differences == ("image was x, is y", "context was 8, is not known (silent)")
    assert found.expected == ("started was 1, is 2",)
    assert found.unread == ("shm: not known: why",)
    assert compare(start, start).differences == ()
    assert compare((), (Fact("image", "x"),)).differences == (
        "image was not known (not taken at the start), is x",
    )


def changed(world: World, **fields: Any) -> None:
    incumbent = ids(world)["b"]
    world.docker.all[incumbent] = dataclasses.replace(world.docker.all[incumbent], **fields)


@pytest.mark.parametrize(
    ("hurt", "said"),
    [
        (lambda w: changed(w, argv=("x", "9132")), "configuration was "),
        (lambda w: changed(w, restart_count=2), "restart count was 0, is 2"),
        (lambda w: changed(w, image_id="sha256:other"), "image was sha256:bbb"),
        (lambda w: setattr(w, "shared", (SharedFile("vllm_offload_1.mmap", 9, 0.0, ()),)),
         "shared memory left unused was none, is vllm_offload_1.mmap"),
        (lambda w: w.gate.file.update({"llm.secondary": "primary-a"}), "gateway file was as the process"),
        (lambda w: w.gate.live.update({"llm.secondary": "primary-a"}), "alias llm.secondary was primary-b"),
    ],
)  # fmt: skip
def test_each_fact_that_is_not_as_it_was_is_told_and_the_drill_is_not_restored(
    full: World, hurt: Callable[[World], None], said: str
) -> None:
    assert at(full, "compare:before", lambda: hurt(full)) == "done"
    record = newest(full)
    assert record.outcome == "differs"
    assert any(said in d for d in record.differences), record.differences
    assert view(full).why.startswith(f"restored with {len(record.differences)} difference")


def test_a_recheck_is_a_later_record_of_the_same_drill(full: World) -> None:
    assert full.do("drill", role="primary") == "done"
    again = recheck(full.box, newest(full))
    assert (again.outcome, again.recheck, again.phases) == ("restored", True, ())
    changed(full, restart_count=1)
    later = recheck(full.box, full.box.store.drills()[0])
    assert later.outcome == "differs" and later.differences == ("restart count was 0, is 1",)
    kept = full.box.store.drills()
    assert {d.operation for d in kept} == {full.last} and not kept[0].recheck
    assert last_drill(kept, "primary") == kept[0]


# many


def drill(n: int, away: float | None, back: float | None = None, **more: Any) -> DrillRecord:
    made: dict[str, Any] = {
        "operation": f"op-{n}", "role": "primary", "at": f"2026-11-{n:02}T10:00:00+00:00", "place": "box",
        "incumbent": "b" * 64, "way_back": "a" * 64, "outcome": "restored", "restore_s": away, "home_s": back,
        "way_back_name": "a",
    }  # fmt: skip
    return DrillRecord(**{**made, **more})


def test_the_trend_is_of_this_box_by_role_and_way_back() -> None:
    kept = (
        drill(1, 40.0, 50.0), drill(2, 10.0, None, outcome="undone"), drill(3, 1.0, place="copy"),
        drill(4, None, outcome="halted"), drill(5, 44.0, 30.0), drill(5, None, recheck=True),
        drill(6, 7.0, way_back_name="z"),
    )  # fmt: skip
    first, second = trends(kept)
    assert (first.drills, first.newest_s, first.median_s) == (3, 44.0, 40.0)
    assert (first.home_newest_s, first.home_median_s) == (30.0, 40.0)
    assert (second.way_back, second.drills, second.home_median_s) == ("z", 1, None)
    assert trend_line(second) == "primary by z: 1 drill, the way back answered after 7.0 s (median 7.0 s)"


def test_words_never_say_restored_where_something_differs() -> None:
    assert outcome_words(drill(1, 1.0)) == "restored"
    assert outcome_words(drill(1, 1.0, outcome="differs", differences=("x",))) == "restored with 1 difference"
    assert outcome_words(drill(1, None, outcome="undone", differences=("x", "y"))) == "undone, 2 differences"


def test_phases_are_the_seconds_of_each_step_of_both_legs(full: World) -> None:
    start = full.docker.start

    def slow(container_id: str) -> None:
        full.clock.now += 30.0 if container_id == ids(full)["a"] else 50.0
        start(container_id)

    full.docker.start = slow  # type: ignore[method-assign]
    assert full.do("drill", role="primary") == "done"
    record = newest(full)
    assert (
        DrillPhase("away", "start", 30.0) in record.phases and DrillPhase("home", "start", 50.0) in record.phases
    )
    assert 30.0 <= (record.restore_s or 0) < 32.0 and 50.0 <= (record.home_s or 0) < 52.0
