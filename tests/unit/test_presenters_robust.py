"""Drills, owners, drains, evicted roles, clients, credentials and disks, as the panes say them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC

import pytest
from rich.cells import cell_len

from anvil_tui.core.box import Gpu, GpuProcess, GpuSnapshot
from anvil_tui.core.plan import Intent, Step
from anvil_tui.core.reading import Reading
from anvil_tui.core.serves import derive
from anvil_tui.core.shelf import Disks
from anvil_tui.core.standing import Owner
from anvil_tui.core.world import World
from anvil_tui.ui.actions import ACTIONS
from anvil_tui.ui.presenters import (
    gates,
    gpus,
    header,
    lifecycle,
    operations,
    plans,
    serves,
    standing,
    storage,
    tiny,
)
from anvil_tui.ui.presenters.cells import Panel, Row, View
from anvil_tui.ui.presenters.help import HINT_LIMIT, help_rows, hints, urgent
from tests.support import standings, worlds

VIEW = View(zone=UTC)
DRAINING = "2 in flight on primary-b (1 stalled), oldest 312 s, 58 bytes/s"


def line(r: Row) -> str:
    return "".join(c.text for c in r.cells).strip()


def text(panel: Panel) -> str:
    return "\n".join([panel.title, *(line(r) for r in panel.rows)])


def strip(world: World, width: int = 120) -> list[str]:
    return [line(r) for r in lifecycle.strip(world, VIEW, width, lambda verb: None)]


def head(world: World, width: int = 120) -> str:
    return line(header.header(world, VIEW, width))


# drills


@pytest.mark.parametrize(("done", "place", "leg"), [(0, 1, ""), (3, 4, "away "), (8, 9, "home "), (11, 12, "")])
def test_a_drill_by_steps_says_for_which_step_it_waits_and_on_which_leg(done: int, place: int, leg: str) -> None:
    first, second = strip(standings.drilling(done, waits=True))
    assert f"home  {leg}{done}/12 done" in first
    assert second.startswith(f"waits before step {place} of 12: {standings.STEPS[done][1][:40]}")
    assert second.endswith("r one step on · c back")


def test_two_legs_have_steps_of_the_same_title_and_the_one_to_come_is_meant() -> None:
    hold_home = next(i for i, (name, _) in enumerate(standings.STEPS) if name == "hold-home")
    assert operations.waits(standings.drilling(hold_home, waits=True).operations[-1]).startswith(
        f"waits before step {hold_home + 1} of 12: hold llm.primary"
    )


def test_the_steps_of_a_drill_stand_under_their_legs() -> None:
    told = text(operations.detail_panel(standings.drilling(8), VIEW, 100, 40)).splitlines()
    away, home = told.index("away 5/5"), told.index("home 2/5")
    assert [row.split()[0] for row in told[away + 1 : home]] == ["2", "3", "4", "5", "6"]


def test_a_finished_drill_shows_what_differs_and_the_phases_of_both_legs() -> None:
    told = text(operations.detail_panel(standings.drilled(), replace(VIEW, operation=standings.DRILL), 100, 40))
    assert "DIFFERS: image was sha256:1, is sha256:2" in told and "restored with 1 difference" in told
    phases = {
        row.split()[0]: row.split()[1:] for row in told.splitlines() if row.endswith(" s") and row[0].isalpha()
    }
    assert phases["ready"] == ["37.7", "s", "35.6", "s"] and phases["answered"] == ["41.0", "s", "39.0", "s"]


def test_the_strip_names_the_last_drill() -> None:
    assert strip(standings.not_ready())[1].endswith("drill 3 d 00 h ago, back in 41 s")
    assert "drill" not in strip(worlds.calm())[1]
    undone = replace(standings.not_ready(), drills=(standings.drill(outcome="undone", restore_s=None),))
    assert strip(undone)[1].endswith("drill undone 3 d 00 h ago")


def test_the_gates_of_both_legs_are_items_of_their_own() -> None:
    views = worlds.passed_gates(2)
    both = (*(replace(g, step="gates") for g in views), *(replace(g, step="gates-home") for g in views))
    keys = [gates.line(g, 80).key for g in both]
    assert len(set(keys)) == len(keys) == 2 * len(views) and f"{views[0].id} home" in keys


# drains


@pytest.mark.parametrize("width", [120, 80])
def test_a_drain_tells_what_is_in_flight_and_what_happens_when_the_time_is_over(width: int) -> None:
    world = standings.drilling(3, note=DRAINING)
    assert DRAINING in strip(world, width)[1]
    said = " ".join(text(operations.events_panel(world, VIEW, width - 3, 8)).split())
    assert DRAINING in said and "after 300 s everything is put back" in said


def test_a_draining_serve_has_count_states_age_and_rate_and_the_outcome_chosen() -> None:
    """The gateway holds the role while four requests are still in flight."""
    drain = standings.drilling(3)
    world = derive(replace(drain, gateway=standings.busy(held=True).gateway))
    said = " ".join(text(serves.panel(world, VIEW, 77, 12)).split())
    assert "4 in flight on primary-b (1 stalled, 1 waiting), oldest 312 s, 58 bytes/s" in said
    assert "after 300 s everything is put back" in said


# owners


def cards(*processes: GpuProcess) -> tuple[Gpu, ...]:
    return (worlds.gpu(0, processes=processes), worlds.gpu(1))


def test_owners_are_named_where_the_gpu_is_strangers_and_doubt_as_a_warning() -> None:
    uuid = worlds.UUIDS[0]
    claims = (
        Owner(uuid, "ours", "a" * 64, "glm53-393k-c1", "uuids"), Owner(uuid, "foreign", "b" * 64, "stray", "all"),
        Owner(uuid, "process", "4711", "python3", "in no container", 1024),
        Owner(uuid, "process", "7", "x", "in no container"),
        Owner(worlds.UUIDS[1], "foreign", "c" * 64, "maybe", "count=1", certain=False),
    )  # fmt: skip
    world = replace(worlds.calm(), owners=claims)
    first, second = (gpus.owner(world, g) for g in cards())
    assert "".join(c.text for c in first) == (
        "SHARED by 4: glm53-393k-c1, foreign stray, foreign pid 4711 python3 +1"
    )
    assert {c.text: c.tone for c in first}["glm53-393k-c1"] == "text"
    assert {c.text: c.tone for c in first}["foreign stray"] == "warn"
    assert [(c.text, c.tone) for c in second] == [("foreign maybe?", "warn")]


def test_with_unreadable_containers_nobody_is_not_said_to_own_a_gpu() -> None:
    stale = worlds.stale()
    world = derive(replace(stale, gpus=Reading.known(GpuSnapshot("580", cards()), worlds.NOW_S, "nvml")))
    said = text(gpus.panel(world, VIEW, 77, 8))
    assert "owner n/a: containers cannot be read" in said and "no owner" not in said


# evicted, and a gateway that cannot hold


def test_an_evicted_role_says_for_what_and_that_a_rollback_returns_it() -> None:
    assert f"○ EVICTED for {worlds.FALLBACK}" in head(standings.evicted())
    assert "EVICTED" in head(standings.evicted(), 80)
    assert strip(standings.evicted())[1] == "next      b rollback"


def test_a_gateway_without_a_hold_is_not_said_to_hold() -> None:
    world = standings.busy(held=True, holds=False)
    for width in (120, 80):
        told = head(world, width)
        assert "QUIESCED" in told and ", clients get 503" in told and "HELD" not in told
    told = head(standings.busy(held=True))
    assert "HELD" in told and ", 0 waiting" in told


# attach


def test_the_header_says_who_changes_the_box_from_where_and_for_how_long() -> None:
    assert "lease sekou@gpu-desk:4300 for 3 min 30 s" in head(standings.drilling(3), 130)
    assert "lease sekou:4300" in head(standings.drilling(3), 80)


# standing


def test_every_problem_is_on_the_standing_screen_in_full() -> None:
    world = standings.wired()
    assert len(world.problems) == 5
    listed = text(standing.list_panel(world, VIEW, 60, 40))
    assert listed.splitlines()[1] == "Problems" and listed.count("▲") >= 5
    for number, problem in enumerate(world.problems):
        told = standing.detail_panel(world, replace(VIEW, standing=f"problem:{number}"), 60, 40)
        assert problem.split() == [w for r in told.rows for w in line(r).split()] or "".join(problem.split()) == (
            "".join("".join(line(r).split()) for r in told.rows)
        )
    assert "Problems" not in text(standing.list_panel(worlds.calm(), VIEW, 60, 40))


def test_the_smallest_view_has_the_first_problem() -> None:
    said = text(tiny.panel(standings.wired(), VIEW, 57, 12))
    assert "▲ 5: rollback of primary not ready: weights" in said


def test_a_copy_that_holds_another_value_is_named_with_its_credential() -> None:
    told = text(standing.detail_panel(standings.wired(), replace(VIEW, standing="credential:agents"), 90, 30))
    assert "✖ ~/.pi/auth.json: key holds another value, fingerprint ff00ff00ff00" in " ".join(told.split())


def test_what_was_not_looked_at_yet_is_no_state() -> None:
    world = replace(standings.wired(), clients=(), credentials=())
    listed = text(standing.list_panel(world, VIEW, 100, 40))
    assert "? agents  not looked at yet" in listed and "? laptop  not looked at yet" in listed
    rows = standing.choices(world, "client", "", 100)
    assert [r.key for r in rows] == [standing.ALL, "pi", "hermes", "laptop"]
    assert "0 of 3 converged" in line(rows[0])


def test_a_choice_is_narrowed_by_a_part_of_a_name() -> None:
    assert [r.key for r in standing.choices(standings.wired(), "client", "her", 100)] == ["hermes"]
    assert [r.key for r in standing.choices(standings.wired(), "credential", "", 100)] == ["agents", "batch"]


# disks


def shelved(disks: Disks | None) -> View:
    return replace(VIEW, shelf=replace(VIEW.shelf, disks=disks))


def test_disks_not_looked_at_not_readable_and_empty_are_three_things() -> None:
    def said(disks: Disks | None) -> str:
        return text(storage.list_panel(worlds.calm(), shelved(disks), 80, 30))

    none: dict[str, object] = {"images": [], "revisions": None, "containers": [], "why": [], "image_bytes": None}
    assert "are being looked at" in said(None)
    assert "cannot be read: no answer" in said(Disks(worlds.at(1), error="no answer"))
    rows = said(Disks(worlds.at(1), none)).splitlines()
    assert rows[rows.index("Model caches") + 1] == "n/a: not read"
    assert rows[rows.index("Images  n/a in all, shared layers once") + 1] == "none"


def test_stored_things_say_their_size_and_who_needs_them() -> None:
    view = shelved(standings.disks())
    listed = text(storage.list_panel(worlds.calm(), view, 110, 30))
    image, revision, container = (
        next(r for r in listed.splitlines() if w in r) for w in ("engine:1", "glm@", "old")
    )
    assert "needed by the incumbent of primary" in image and image.endswith("9.40 GB")
    assert "not whole" in revision and "nobody needs it" in revision and revision.endswith("104.00 GB")
    assert container.endswith("n/a")
    told = text(storage.detail_panel(worlds.calm(), replace(view, stored=f"stored:{standings.REVISION}"), 110, 30))
    assert "61.50 GB" in told and "not whole: 1 blob is missing" in told and "main" in told


def test_what_is_needed_cannot_be_chosen_for_a_removal() -> None:
    disks = standings.disks()
    assert storage.why_kept(disks, standings.REVISION) is None
    assert storage.why_kept(disks, standings.IMAGE) == (
        f"needed by the incumbent of primary, {worlds.CANDIDATE} (1a0fee0aee17); recipe {worlds.CANDIDATE}"
    )
    assert "`unload` removes it" in (storage.why_kept(disks, "d" * 64) or "")
    assert storage.why_kept(disks, "gone") == "it is not there any more"


# plans


@pytest.mark.parametrize("width", [97, 60, 40])
def test_a_diff_in_a_plan_keeps_its_blanks_and_loses_nothing(width: int) -> None:
    long = "+    " + "x" * 150 + "  y"
    plan = replace(worlds.plan_for(Intent("apply"), worlds.calm()), details=(f"{worlds.DIFF}\n{long}",))
    rows = plans.panel(plan, width).rows
    assert all(cell_len("".join(c.text for c in r.cells)) <= width for r in rows)
    added = [r for r in rows if r.cells and r.cells[-1].tone == "good"]
    assert added[0].cells[0].text.startswith('+  "contextWindow": 393216'[: width - 2])
    assert "".join(r.cells[-1].text for r in added).endswith(long)
    assert any(r.cells and r.cells[0].tone == "bad" and r.cells[0].text.startswith("-  ") for r in rows)


def test_a_plan_of_a_drill_has_its_legs_and_the_gates_of_each_serve() -> None:
    made = worlds.plan_for(Intent("drill", role="primary"), worlds.calm())
    steps = tuple(Step(name, name, title, 30) for name, title in standings.STEPS)
    both = tuple(
        {"id": "smoke", "kind": "smoke", "of": 3, "recipe": r} for r in (worlds.INCUMBENT, worlds.CANDIDATE)
    )
    told = [line(r) for r in plans.panel(replace(made, steps=steps, gates=both, warnings=("it waits",)), 77).rows]
    assert told.index("away") < told.index("home")
    assert f"{worlds.INCUMBENT}: smoke" in told and f"{worlds.CANDIDATE}: smoke" in told and "▲ it waits" in told


# hints, help, palette


@pytest.mark.parametrize(
    ("world", "ways"),
    [
        (standings.drilling(3, waits=True), ["operation.resume", "operation.cancel"]),
        (worlds.interrupted(), ["operation.resume", "operation.undo"]),
        (worlds.promoting(), []),
        (worlds.calm(), []),
    ],
)
def test_hints_offer_what_an_operation_waits_for_once_and_are_no_more_than_six(
    world: World, ways: list[str]
) -> None:
    usual = ("view.help", "view.back", "operation.resume", "operation.undo", "operation.cancel", "view.verify")
    found = urgent(world, usual)
    assert found[1 : 1 + len(ways)] == ways and len(found) == len(set(found)) == len(usual)
    shown = line(hints([a for i in found for a in ACTIONS if a.id == i] * 2, lambda a: None, 400))
    assert len(shown.split("  ")) == HINT_LIMIT


def test_help_has_every_action() -> None:
    helped = "\n".join(line(r) for r in help_rows(lambda a: None, 120))
    assert [a.id for a in ACTIONS if a.help not in helped] == []
