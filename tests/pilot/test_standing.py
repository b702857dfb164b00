"""Deeds whose target is chosen by name: clients, credentials, stored things; drills by steps; plans with diffs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from anvil_tui.core.errors import Refused
from anvil_tui.core.plan import Intent
from anvil_tui.ui.modals.dialog import Dialog
from anvil_tui.ui.modals.picker import Picker
from anvil_tui.ui.screens.listing import Standing, Storage
from anvil_tui.ui.widgets.pane import Pane
from tests.support import standings, worlds
from tests.support.console import Driver, console


async def picker(c: Driver, key: str) -> Picker:
    await c.press(key)
    await c.until(lambda: isinstance(c.app.screen, Picker), "a picker")
    found = c.app.screen
    assert isinstance(found, Picker)
    await c.pilot.pause()
    return found


async def test_apply_asks_for_a_client_each_with_its_state_or_all_of_them(tmp_path: Path) -> None:
    async with console(standings.wired(), tmp_path) as c:
        await picker(c, "A")
        assert "apply to which client?" in c.text and "1 of 3 converged" in c.text
        assert "✖ pi  contextWindow: has 524,288" in c.text and "▲ laptop  unreachable" in c.text
        await c.press("enter")
        await c.dialog()
        assert c.deeds.intents == [Intent("apply", target="")]


async def test_a_converged_client_is_closed_and_a_drifting_one_is_planned(tmp_path: Path) -> None:
    async with console(standings.wired(), tmp_path) as c:
        await picker(c, "A")
        await c.type("herm")
        assert "not now: hermes is converged" in c.text
        await c.press("enter")
        assert isinstance(c.app.screen, Picker) and c.deeds.intents == []
        await c.press(*["backspace"] * 4)
        await c.type("pi")
        await c.press("enter")
        await c.dialog()
        assert c.deeds.intents == [Intent("apply", target="pi")]


async def test_the_diff_of_an_apply_is_in_its_dialog_with_its_blanks(tmp_path: Path) -> None:
    async with console(standings.wired(), tmp_path, (80, 24)) as c:
        await picker(c, "A")
        await c.press("enter")
        await c.dialog()
        for _ in range(30):
            if '+  "contextWindow": 393216' in c.text:
                break
            await c.press("down")
        assert '-  "contextWindow": 524288' in c.text and '+  "contextWindow": 393216' in c.text


async def test_rotate_asks_for_a_credential_and_a_refused_one_says_why_it_is_closed(tmp_path: Path) -> None:
    async with console(standings.wired(), tmp_path) as c:
        await picker(c, "K")
        assert "▲ agents  accepted, 1 of 1 copies does not hold it" in c.text and "✖ batch  refused" in c.text
        await c.press("down")
        assert "not now: the gateway refuses credential batch" in c.text
        await c.press("up", "enter")
        await c.dialog()
        assert c.deeds.intents == [Intent("rotate", target="agents")]


async def test_a_line_of_the_standing_screen_is_the_target(tmp_path: Path) -> None:
    async with console(standings.wired(), tmp_path) as c:
        await c.press("8")
        while c.app.view.standing != "client:pi":
            await c.press("down")
        await c.press("A")
        await c.dialog()
        assert c.deeds.intents == [Intent("apply", target="pi")]


async def test_remove_looks_at_the_disks_and_what_is_needed_is_closed_with_who_needs_it(tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path) as c:
        c.service.on_disk = standings.disks()
        await picker(c, "X")
        assert "1 of 2 are needed by nobody" in c.text
        assert c.service.looked == 1
        await c.press("up")
        assert f"not now: needed by the incumbent of primary, {worlds.CANDIDATE}" in c.text
        await c.press("enter")
        assert c.deeds.intents == []
        await c.press("down", "enter")
        await c.dialog()
        assert c.deeds.intents == [Intent("remove", target=standings.REVISION)]


async def test_disks_that_cannot_be_looked_at_say_so(tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path) as c:
        c.service.on_disk = Refused("unix:///var/run/docker.sock: no answer")
        await c.press("X")
        await c.dialog()
        assert "no answer" in c.text
        await c.press("escape", "9")
        await c.until(lambda: "cannot be read: unix:///var/run/docker.sock" in c.text)


async def test_storage_is_read_when_it_opens_on_ctrl_l_and_after_a_removal(tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path) as c:
        c.service.on_disk = standings.disks()
        await c.press("9")
        await c.until(lambda: "read 3 s ago" in c.text)
        assert isinstance(c.app.screen, Storage) and c.service.looked == 1
        await c.press("ctrl+l")
        await c.until(lambda: c.service.looked == 2)
        await c.publish(replace(worlds.calm(), operations=(replace(worlds.qualified(), kind="remove"),)))
        await c.until(lambda: c.service.looked == 3)
        await c.publish(replace(worlds.calm(), operations=(replace(worlds.qualified(), kind="remove"),)))
        assert c.service.looked == 3


async def test_a_stored_line_is_the_target_of_its_removal(tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path) as c:
        c.service.on_disk = standings.disks()
        await c.press("9")
        await c.until(lambda: "read 3 s ago" in c.text)
        await c.press("down")
        assert "Nobody refers to it" in c.text and "61.50 GB" in c.text
        await c.press("X")
        await c.dialog()
        assert c.deeds.intents == [Intent("remove", target=standings.REVISION)]


async def test_r_lets_a_drill_by_steps_go_one_step_on_and_no_two(tmp_path: Path) -> None:
    async with console(standings.drilling(3, waits=True), tmp_path) as c:
        assert "waits before step 4 of 12: wait until primary-b" in c.text and "r one step on · c back" in c.text
        await c.press("r")
        await c.until(lambda: c.deeds.steered == [("go on", standings.DRILL)])
        await c.until(lambda: "resume: asked" in c.text)
        await c.press("r")
        assert "asked already" in c.text and len(c.deeds.steered) == 1
        await c.publish(standings.drilling(4, waits=True))
        await c.press("r")
        await c.until(lambda: len(c.deeds.steered) == 2)
        assert not any(isinstance(s, Dialog) for s in c.app.screen_stack)


async def test_a_step_that_could_not_be_let_go_can_be_asked_for_again(tmp_path: Path) -> None:
    async with console(standings.drilling(3, waits=True), tmp_path) as c:
        c.deeds.refuse = Refused("state/operations: read-only file system")
        await c.press("r")
        await c.dialog()
        assert "read-only file system" in c.text
        c.deeds.refuse = None
        await c.press("escape", "r")
        await c.until(lambda: c.deeds.steered == [("go on", standings.DRILL)])


async def test_the_hints_offer_the_ways_of_an_operation_that_waits(tmp_path: Path) -> None:
    async with console(standings.drilling(3, waits=True), tmp_path, (80, 24)) as c:
        assert "? help  r resume  c cancel" in c.text
        await c.publish(worlds.interrupted())
        assert "? help  r resume  z undo" in c.text
        await c.publish(worlds.calm())
        assert "r resume" not in c.text


async def test_a_problem_is_read_in_full_on_the_standing_screen(tmp_path: Path) -> None:
    async with console(standings.wired(), tmp_path, (80, 24)) as c:
        await c.press("8")
        assert isinstance(c.app.screen, Standing)
        assert "port: port 9131 is held by pid 4711 (python3)" in " ".join(c.text.split())


@pytest.mark.parametrize("size", [(80, 24), (60, 16)])
async def test_no_row_is_wider_than_its_pane_whatever_is_wrong(size: tuple[int, int], tmp_path: Path) -> None:
    gone = standings.busy(held=True, holds=False)
    made = (standings.drilled(), standings.evicted(), gone)
    async with console(standings.wired(), tmp_path, size, ascii_only=True) as c:
        c.service.on_disk = standings.disks()
        for key in "13789":
            await c.press(key)
            for world in (standings.wired(), *made):
                await c.publish(world)
                for pane in (p for p in c.app.screen.query(Pane) if p.size.width):
                    widths = [sum(cell_len(x.text) for x in r.cells) for r in pane.lines]
                    assert max(widths, default=0) <= pane.size.width, (key, pane.id, widths)
