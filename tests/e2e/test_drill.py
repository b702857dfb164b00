"""A drill on a box of real parts, while clients never stop: to the way back, and home to the exact container."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anvil_tui.core.box import Container
from tests.e2e.realbox import RealBox
from tests.real.client_loop import ClientLoop

pytestmark = [pytest.mark.real, pytest.mark.e2e]


def test_a_full_box_is_drilled_under_traffic_and_is_as_it_was(
    real_box: RealBox, record_property: Callable[[str, object], None]
) -> None:
    box = real_box
    for recipe in ("smol-x4k", "smol-x8k"):
        box.do("promote", recipe, "--suite", "quick", "--yes")
    before, record = {c.id: c for c in box.ours()}, box.record()
    with ClientLoop(box.dir) as clients:
        clients.wait_answers(3)
        ended = box.do("drill", "primary", "--suite", "quick", "--yes")
        clients.wait_answers(3)
    record_property("client_errors", len(clients.errors()))
    assert clients.errors() == []
    assert {a["backend"] for a in clients.answers()} == {s.name for s in box.workspace.roles[0].slots}
    box.settled("smol-x8k")
    assert (box.record().roles, box.record().serves) == (record.roles, record.serves)
    assert {c.id: _kept(c) for c in box.ours()} == {i: _kept(c) for i, c in before.items()}
    assert (ended["outcome"], ended["why"]) == ("done", "")
    (drill,) = box.record_file.drills()
    held = record.roles["primary"]
    assert (drill.incumbent, drill.way_back) == (held.incumbent, held.rollback[0])
    assert (drill.operation, drill.outcome, drill.differences, drill.unread) == (ended["id"], "restored", (), ())
    assert any(e.startswith("started was ") for e in drill.expected)
    assert drill.restore_s and drill.home_s
    record_property("restore_s", drill.restore_s)
    assert box.do("drills", "recheck", ended["id"])["outcome"] == "restored"


def _kept(c: Container) -> tuple[object, ...]:
    return c.name, c.status, c.image_id, c.argv, c.created_at, c.restart_count
