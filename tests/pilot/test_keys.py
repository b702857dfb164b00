"""Keys become intents; nothing is confirmed by accident; closed deeds say why; the cursor stays on its key."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from textual.geometry import Region
from textual.widgets import Button, Input

from anvil_tui.core.errors import Refused
from anvil_tui.core.plan import Intent
from anvil_tui.core.reading import Reading
from anvil_tui.core.serves import derive
from anvil_tui.core.world import World
from anvil_tui.ui.modals.dialog import Dialog
from anvil_tui.ui.modals.picker import Picker
from anvil_tui.ui.modals.plan_dialog import PlanDialog
from anvil_tui.ui.screens.listing import Detail, Operations, Recipes
from anvil_tui.ui.screens.overview import Overview
from anvil_tui.ui.widgets.strips import Strips
from tests.support import worlds
from tests.support.console import Driver, console

SERVING, BACK = worlds.cid(worlds.CANDIDATE), worlds.cid(worlds.INCUMBENT)


def held() -> World:
    return derive(replace(worlds.calm(), gateway=Reading.known(worlds.gateway("hold"), worlds.NOW_S, "haproxy")))


@pytest.mark.parametrize(
    ("key", "world", "intent"),
    [
        ("g", worlds.calm(), Intent("qualify", container_id=SERVING)),
        ("u", worlds.calm(), Intent("quiesce", role="primary")),
        ("d", worlds.calm(), Intent("drain", role="primary")),
        ("a", held(), Intent("readmit", role="primary")),
        ("b", worlds.calm(), Intent("rollback", role="primary")),
        ("D", worlds.calm(), Intent("drill", role="primary")),
        ("S", worlds.calm(), Intent("drill", role="primary", stepwise=True)),
        ("x", worlds.calm(), Intent("unload", container_id=SERVING)),
    ],
)
async def test_a_key_asks_for_the_plan_of_its_deed(key: str, world: World, intent: Intent, tmp_path: Path) -> None:
    async with console(world, tmp_path) as c:
        await c.press(key)
        await c.dialog()
        assert c.deeds.intents == [intent]
        assert c.deeds.started == []


async def test_a_suite_is_chosen_by_typing_a_part_of_its_name(tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path) as c:
        await c.press("G")
        await c.until(lambda: "qualify with which suite?" in c.text)
        await c.press("p", "r", "o", "enter")
        dialog = await c.dialog()
        assert c.deeds.intents == [Intent("qualify", container_id=SERVING, suite="promotion")]
        assert dialog.yes == "Qualify"
        assert c.deeds.started == []


async def test_cancel_has_the_focus_and_enter_takes_it(tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path) as c:
        await c.press("g")
        dialog = await c.dialog()
        assert dialog.focused is dialog.query_one("#cancel", Button)
        await c.press("enter")
        await c.until(lambda: isinstance(c.app.screen, Overview))
        assert c.deeds.started == []


async def test_confirming_starts_exactly_the_plan_that_was_shown(tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path) as c:
        await c.press("g")
        dialog = await c.dialog()
        assert isinstance(dialog, PlanDialog)
        shown = dialog.plan
        assert f"plan {shown.hash}" in c.text
        await c.press("tab", "enter")
        await c.until(lambda: bool(c.deeds.started), "the operation is started")
        assert c.deeds.started == [shown]
        await c.until(lambda: "qualify started: operation 20260902-1155-qualify" in c.text)
        ended = replace(worlds.qualified(), id="20260902-1155-qualify")
        await c.publish(replace(worlds.calm(), operations=(ended,)))
        assert "qualify started" not in c.text


async def test_the_opening_key_pressed_again_confirms_nothing(tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path) as c:
        await c.press("b")
        await c.dialog()
        await c.press("b", "b", "y", "space")
        assert isinstance(c.app.screen, PlanDialog)
        assert c.deeds.started == [] and len(c.deeds.intents) == 1


async def test_type_ahead_is_dropped(tmp_path: Path) -> None:
    """Three keys in one burst, before anything is drawn: one dialog, still open, nothing confirmed."""
    async with console(worlds.calm(), tmp_path) as c:
        c.app.simulate_key("g")
        for key in ("g", "tab", "enter", "y"):
            c.app.simulate_key(key)
        dialog = await c.dialog()
        assert dialog.focused is dialog.query_one("#cancel", Button)
        assert c.deeds.started == []
        assert sum(isinstance(s, Dialog) for s in c.app.screen_stack) == 1


class TestTypedConfirmation:
    async def open(self, c: Driver) -> PlanDialog:
        await c.press("b")
        dialog = await c.dialog()
        assert isinstance(dialog, PlanDialog)
        assert "type adaptive-mtp to confirm" in c.text
        return dialog

    async def test_the_button_alone_is_not_enough(self, tmp_path: Path) -> None:
        async with console(worlds.calm(), tmp_path) as c:
            await self.open(c)
            await c.press("tab", "tab", "enter")
            assert c.deeds.started == []
            assert "Type adaptive-mtp exactly" in c.text

    @pytest.mark.parametrize("typed", ["adaptive", "adaptive-mtpp", "ADAPTIVE-MTP", ""])
    async def test_another_word_is_not_enough(self, typed: str, tmp_path: Path) -> None:
        async with console(worlds.calm(), tmp_path) as c:
            dialog = await self.open(c)
            dialog.query_one(Input).focus()
            dialog.query_one(Input).value = typed
            await c.press("enter")
            assert c.deeds.started == [] and isinstance(c.app.screen, PlanDialog)

    async def test_the_last_segment_of_the_served_name_confirms(self, tmp_path: Path) -> None:
        async with console(worlds.calm(), tmp_path) as c:
            dialog = await self.open(c)
            await c.press("tab")
            assert dialog.focused is dialog.query_one(Input)
            await c.type("adaptive-mtp")
            await c.press("enter")
            await c.until(lambda: bool(c.deeds.started))
            assert c.deeds.started[0].intent == Intent("rollback", role="primary")


class TestFactsMove:
    async def test_a_new_plan_is_shown_and_what_was_typed_is_forgotten(self, tmp_path: Path) -> None:
        async with console(worlds.calm(), tmp_path) as c:
            await c.press("b")
            dialog = await c.dialog()
            assert isinstance(dialog, PlanDialog)
            old = dialog.plan.hash
            dialog.query_one(Input).focus()
            dialog.query_one(Input).value = "adaptive-mtp"
            await c.publish(worlds.calm())
            moved = replace(
                worlds.calm(), record=replace(worlds.calm().record, generation=99), now_s=worlds.NOW_S + 3
            )
            await c.publish(moved)
            await c.until(lambda: dialog.plan.hash != old, "the dialog re-plans")
            await c.pilot.pause()
            assert f"plan {old} is now {dialog.plan.hash}" in c.text
            assert dialog.query_one(Input).value == ""
            assert dialog.focused is dialog.query_one("#cancel", Button)
            assert c.deeds.started == []

    async def test_the_same_facts_change_nothing(self, tmp_path: Path) -> None:
        async with console(worlds.calm(), tmp_path) as c:
            await c.press("b")
            dialog = await c.dialog()
            dialog.query_one(Input).value = "adap"
            await c.publish(worlds.calm())
            await c.publish(replace(worlds.calm(), now_s=worlds.NOW_S + 3))
            await c.until(lambda: len(c.deeds.intents) == 2, "the plan is made again")
            await c.pilot.pause()
            assert dialog.query_one(Input).value == "adap"

    async def test_a_plan_that_cannot_be_made_any_more_closes_the_button(self, tmp_path: Path) -> None:
        async with console(worlds.calm(), tmp_path) as c:
            await c.press("g")
            dialog = await c.dialog()
            await c.publish(worlds.calm())
            c.deeds.refuse = Refused("container 1a0fee0aee17 is gone")
            await c.publish(replace(worlds.calm(), now_s=worlds.NOW_S + 3))
            await c.until(lambda: "No plan any more: container 1a0fee0aee17 is gone" in c.text)
            assert dialog.query_one("#yes", Button).disabled


class TestClosed:
    async def test_a_closed_deed_says_why_and_asks_for_no_plan(self, tmp_path: Path) -> None:
        async with console(worlds.calm(), tmp_path) as c:
            await c.press("a")
            assert "readmit: primary is admitted already" in c.text
            assert c.deeds.intents == []
            await c.press("up")
            assert "admitted already" not in c.text

    async def test_read_only_has_no_control_object_and_every_deed_says_so(self, tmp_path: Path) -> None:
        async with console(worlds.calm(read_only=True), tmp_path) as c:
            assert c.app.deeds is None
            for key in "lgudapbxrzcw":
                await c.press(key)
                assert "read-only: this console was started with --read-only" in c.text, key
                assert isinstance(c.app.screen, Overview)

    async def test_a_refused_plan_can_be_read_and_not_confirmed(self, tmp_path: Path) -> None:
        async with console(worlds.calm(), tmp_path) as c:
            c.deeds.refuse = Refused("the gateway's alias file [/x] and its running map differ")
            await c.press("g")
            await c.dialog()
            assert "the gateway's alias file [/x] and its running map differ" in c.text
            assert not c.app.screen.query("#yes")
            await c.press("enter")
            c.deeds.refuse = None
            await c.press("g")
            await c.dialog()

    async def test_a_bug_in_a_plan_leaves_a_trace_and_the_console_lives(self, tmp_path: Path) -> None:
        async with console(worlds.calm(), tmp_path) as c:

            def broken(intent: Intent) -> None:
                local = "-".join(("only", "in", "a", "local"))
                raise KeyError("authorization: bearer abcdef0123456789" if local else "")

            c.deeds.plan = broken  # type: ignore[method-assign, assignment]
            await c.press("g")
            await c.dialog()
            assert "internal error: KeyError" in c.text
            (trace,) = tmp_path.glob("crash-*.txt")
            assert trace.stat().st_mode & 0o777 == 0o600
            text = trace.read_text()
            assert "KeyError" in text
            assert "abcdef0123456789" not in text and "only-in-a-local" not in text


class TestPalette:
    async def test_it_obeys_the_policy(self, tmp_path: Path) -> None:
        async with console(worlds.calm(), tmp_path) as c:
            await c.press("colon")
            assert isinstance(c.app.screen, Picker)
            await c.type("readmit")
            assert "not now: primary is admitted already" in c.text
            await c.press("enter")
            assert isinstance(c.app.screen, Picker)
            assert c.deeds.intents == []

    async def test_it_runs_the_same_road_as_the_key(self, tmp_path: Path) -> None:
        async with console(worlds.calm(), tmp_path) as c:
            await c.press("ctrl+p")
            await c.type("rollback")
            await c.press("enter")
            dialog = await c.dialog()
            assert isinstance(dialog, PlanDialog) and dialog.word == "adaptive-mtp"

    async def test_read_only_closes_it_too(self, tmp_path: Path) -> None:
        async with console(worlds.calm(read_only=True), tmp_path) as c:
            for name in ("load", "promote", "unload"):
                await c.press("colon")
                await c.type(name)
                await c.press("enter")
                assert isinstance(c.app.screen, Picker)
                assert "not now: read-only" in c.text
                await c.press("escape")


class TestChoosing:
    async def test_promote_asks_which_recipe_and_says_why_one_is_closed(self, tmp_path: Path) -> None:
        async with console(worlds.calm(), tmp_path) as c:
            await c.press("p")
            await c.until(lambda: isinstance(c.app.screen, Picker))
            await c.type("393k")
            assert "not now: glm53-393k-c1 already serves primary" in c.text
            await c.press("enter", *["backspace"] * 4)
            await c.type("245k")
            await c.press("enter")
            await c.dialog()
            assert c.deeds.intents == [Intent("promote", recipe="glm53-245k-c1", role="primary")]

    async def test_esc_in_the_picker_forgets_the_deed(self, tmp_path: Path) -> None:
        async with console(worlds.calm(), tmp_path) as c:
            await c.press("l", "escape")
            assert isinstance(c.app.screen, Overview)
            await c.press("g")
            await c.dialog()
            assert [i.verb for i in c.deeds.intents] == ["qualify"]

    async def test_on_the_recipes_screen_the_cursor_is_the_target(self, tmp_path: Path) -> None:
        async with console(worlds.calm(), tmp_path) as c:
            await c.press("2", "down", "down", "down")
            assert isinstance(c.app.screen, Recipes) and c.app.view.recipe == worlds.FALLBACK
            await c.press("p")
            await c.dialog()
            assert c.deeds.intents == [Intent("promote", recipe=worlds.FALLBACK, role="primary")]


class TestSelection:
    """O-96: selection by key; a deed goes to what was selected, never to a row number."""

    async def test_a_new_row_above_does_not_move_the_cursor(self, tmp_path: Path) -> None:
        async with console(worlds.calm(), tmp_path) as c:
            await c.press("down")
            assert c.pane("serves").cursor == BACK
            world = worlds.calm()
            reordered = replace(
                world, serves=(worlds.with_containers(world, worlds.alien()).serves[-1], *world.serves)
            )
            await c.publish(reordered)
            assert c.pane("serves").cursor == BACK
            await c.press("x")
            await c.dialog()
            assert c.deeds.intents == [Intent("unload", container_id=BACK)]
            assert "unload glm53-524k-k5-xgfix" in c.text

    async def test_a_vanished_target_drops_the_deed_once(self, tmp_path: Path) -> None:
        async with console(worlds.calm(), tmp_path) as c:
            await c.press("down")
            world = worlds.calm()
            await c.publish(replace(world, serves=world.serves[:1]))
            assert c.pane("serves").cursor == SERVING
            await c.press("x")
            assert f"unload dropped: {BACK[:12]} is gone, the cursor is on glm53-393k-c1 now" in c.text
            assert c.deeds.intents == []
            await c.press("x")
            await c.dialog()
            assert c.deeds.intents == [Intent("unload", container_id=SERVING)]

    async def test_two_worlds_before_the_move_is_handled_keep_the_neighbour(self, tmp_path: Path) -> None:
        three = worlds.with_containers(worlds.calm(), worlds.alien(1), worlds.alien(2))
        async with console(three, tmp_path) as c:
            await c.press("down", "down")
            assert c.pane("serves").cursor == worlds.alien(1).id
            less = replace(three, serves=tuple(s for s in three.serves if s.container.id != worlds.alien(1).id))
            for world in (less, replace(less, now_s=less.now_s + 0.1)):
                c.pane("serves").show(world, c.app.view)
            await c.publish(less)
            assert c.pane("serves").cursor == worlds.alien(2).id == c.app.view.serve

    async def test_unchanged_data_paints_nothing(self, tmp_path: Path) -> None:
        async with console(worlds.calm(), tmp_path) as c:
            painted: list[object] = []
            for pane in c.app.screen.query("Strips"):
                pane.refresh = lambda *regions, **_: painted.append(regions)  # type: ignore[method-assign, assignment]
            await c.publish(replace(worlds.calm(), now_s=worlds.NOW_S + 0.1))
            assert painted == []

    async def test_one_changed_number_draws_its_line_only(self, tmp_path: Path) -> None:
        """Of which only the cells that differ go to the terminal: `tests/unit/test_painter.py`."""
        async with console(worlds.calm(), tmp_path) as c:
            gpus = c.pane("gpus")
            painted: list[Region] = []
            gpus.refresh = lambda *regions, **_: painted.extend(regions)  # type: ignore[method-assign, assignment]
            snap = worlds.calm().gpus
            warmer = replace(snap.value, gpus=(worlds.gpu(0, temperature_c=62), worlds.gpu(1)))  # type: ignore[type-var]
            await c.publish(replace(worlds.calm(), gpus=replace(snap, value=warmer)))
            assert [(r.y, r.width, r.height) for r in painted] == [(1, gpus.size.width, 1)]

    async def test_log_follows_the_selected_container(self, tmp_path: Path) -> None:
        async with console(worlds.calm(), tmp_path) as c:
            await c.press("down")
            assert c.service.followed == [SERVING, BACK]

    async def test_log_follows_the_candidate_of_an_operation_unless_a_person_chose(self, tmp_path: Path) -> None:
        """The stopped incumbent is the first row: nobody wants its log while the candidate loads."""
        async with console(worlds.promoting(), tmp_path) as c:
            assert c.service.followed == [SERVING]
            await c.press("down", "up")
            assert c.service.followed == [SERVING, BACK]
            await c.publish(replace(worlds.promoting(), now_s=worlds.NOW_S + 1))
            assert c.service.followed == [SERVING, BACK]

    async def test_log_of_a_container_that_starts_again_is_followed_again(self, tmp_path: Path) -> None:
        async with console(worlds.calm(), tmp_path) as c:
            have = worlds.calm().containers.value or ()
            again = tuple(replace(x, started_at=worlds.at(1)) if x.id == SERVING else x for x in have)
            world = derive(replace(worlds.calm(), containers=Reading.known(again, worlds.NOW_S, "docker")))
            await c.publish(world)
            assert c.service.followed == [SERVING, SERVING]

    async def test_a_paused_log_stays_until_another_serve_is_chosen(self, tmp_path: Path) -> None:
        async with console(worlds.promoting(), tmp_path) as c:
            await c.press("f")
            turned = {SERVING: "exited", BACK: "running"}
            have = tuple(replace(x, status=turned[x.id]) for x in worlds.promoting().containers.value or ())
            back = Reading.known(have, worlds.NOW_S, "docker")
            await c.publish(derive(replace(worlds.promoting(), containers=back)))
            assert c.service.followed == [SERVING] and "PAUSED" in c.text
            await c.press("down", "up")
            assert c.service.followed == [SERVING, BACK]

    async def test_what_was_said_of_an_operation_goes_when_it_is_interrupted(self, tmp_path: Path) -> None:
        async with console(worlds.promoting(), tmp_path) as c:
            c.app.say("it goes on without this console", "20260902-1150-promote")
            await c.publish(replace(worlds.promoting(), now_s=worlds.NOW_S + 1))
            assert "goes on without this console" in c.text
            await c.publish(worlds.interrupted())
            assert "goes on without this console" not in c.text


class TestOperations:
    async def test_interrupted_can_be_resumed_or_undone_with_one_look(self, tmp_path: Path) -> None:
        for key, verb in (("r", "resume"), ("z", "undo")):
            async with console(worlds.interrupted(), tmp_path) as c:
                await c.press(key)
                await c.dialog()
                await c.press("enter")
                assert c.deeds.steered == []
                await c.press(key)
                await c.dialog()
                await c.press("tab", "enter")
                await c.until(partial(bool, c.deeds.steered), verb)
                assert c.deeds.steered == [(verb, "20260902-1150-promote")]

    async def test_cancel_wants_a_reason(self, tmp_path: Path) -> None:
        async with console(worlds.promoting(), tmp_path) as c:
            await c.press("c")
            dialog = await c.dialog()
            said = [str(b.label) for b in dialog.query(Button)]
            assert said == ["[ Let it go on ]", "[ Cancel the promote ]"], "one Cancel, not two"
            await c.type("wrong")
            await c.press("enter")
            await c.until(lambda: bool(c.deeds.steered))
            assert c.deeds.steered == [("cancel", "20260902-1150-promote", "wrong")]

    async def test_quit_while_one_runs_says_that_it_goes_on(self, tmp_path: Path) -> None:
        async with console(worlds.promoting(), tmp_path) as c:
            await c.press("q")
            await c.dialog()
            assert "goes on without" in c.text
            await c.press("enter")
            assert isinstance(c.app.screen, Overview) and c.app.is_running
            await c.press("q")
            await c.dialog()
            await c.press("tab", "enter")
            await c.until(lambda: not c.app.is_running)
        assert c.app.return_code == 0

    async def test_quit_at_rest_quits(self, tmp_path: Path) -> None:
        async with console(worlds.calm(), tmp_path) as c:
            await c.press("q")
            await c.until(lambda: not c.app.is_running)
        assert c.app.return_code == 0
        assert c.service.followed[-1] is None


class TestScreens:
    async def test_every_screen_by_its_key_and_esc_goes_back(self, tmp_path: Path) -> None:
        async with console(worlds.promoting(), tmp_path) as c:
            for key in "23456":
                await c.press(key)
                assert not isinstance(c.app.screen, Overview)
                await c.press("escape")
                assert isinstance(c.app.screen, Overview)
            await c.press("3", "2", "4", "1")
            assert isinstance(c.app.screen, Overview)
            await c.press("escape", "escape")
            assert isinstance(c.app.screen, Overview)

    async def test_enter_opens_the_selected_thing(self, tmp_path: Path) -> None:
        async with console(worlds.promoting(), tmp_path) as c:
            await c.press("enter")
            assert isinstance(c.app.screen, Detail)
            assert BACK in c.text
            await c.press("escape")
            c.pane("events").focus()
            await c.press("enter")
            assert isinstance(c.app.screen, Operations)
            assert "Steps 6/10" in c.text

    async def test_filter_is_shown_and_esc_clears_it(self, tmp_path: Path) -> None:
        async with console(worlds.calm(), tmp_path) as c:
            await c.press("2", "slash")
            await c.dialog()
            await c.type("499k")
            await c.press("enter")
            await c.pilot.pause()
            assert 'Recipes filter "499k" 2/12' in c.text
            await c.press("escape")
            assert isinstance(c.app.screen, Recipes) and "Recipes 12" in c.text
            await c.press("escape")
            assert isinstance(c.app.screen, Overview)

    async def test_local_time_and_utc(self, tmp_path: Path) -> None:
        async with console(worlds.calm(), tmp_path) as c:
            assert "11:54:09 UTC" in c.text
            await c.press("t")
            assert c.app.view.zone is None
            await c.press("t")
            assert "11:54:09 UTC" in c.text

    async def test_copy_says_what_was_sent(self, tmp_path: Path) -> None:
        async with console(worlds.calm(), tmp_path) as c:
            await c.press("y")
            assert f"sent to the terminal's clipboard, if it takes that: {SERVING}" in c.text
            assert c.app.clipboard == SERVING

    async def test_help_lists_the_closed_with_their_reason(self, tmp_path: Path) -> None:
        async with console(worlds.calm(), tmp_path, (120, 60)) as c:
            await c.press("question_mark")
            await c.dialog()
            await c.press(*["pagedown"] * 3)
            assert "not now: primary is admitted already" in c.text

    async def test_silence_of_the_store_is_said(self, tmp_path: Path) -> None:
        async with console(worlds.calm(), tmp_path) as c:
            now = [100.0]
            assert c.app.bridge is not None
            c.app.bridge._clock = lambda: now[0]
            c.app.bridge._heard_s = 100.0
            now[0] = 112.0
            c.app.bridge.pump()
            await c.pilot.pause()
            assert "NO NEWS for 12 s" in c.text
            await c.publish(worlds.calm())
            assert "NO NEWS" not in c.text


class TestAtRest:
    async def test_the_clock_goes_by_the_minute_where_nothing_else_moves(self, tmp_path: Path) -> None:
        """A box at rest sends nothing; where a figure moves the clock is that moment's."""
        first = worlds.calm()
        async with console(first, tmp_path) as c:
            header = c.app.screen.query_one("#header", Strips)
            shown = header.lines
            assert f"{first.now_utc:%H:%M:%S} UTC" in c.text
            for seconds in (1, 2):
                drawn = Strips.drawn
                await c.publish(replace(first, now_utc=first.now_utc + timedelta(seconds=seconds)))
                assert header.lines == shown and Strips.drawn == drawn
            assert first.gpus.value is not None
            hot = tuple(replace(g, temperature_c=99) for g in first.gpus.value.gpus)
            hotter = replace(first.gpus, value=replace(first.gpus.value, gpus=hot))
            await c.publish(replace(first, gpus=hotter, now_utc=first.now_utc + timedelta(seconds=3)))
            assert f"{first.now_utc + timedelta(seconds=3):%H:%M:%S} UTC" in c.text
            await c.publish(replace(first, gpus=hotter, now_utc=first.now_utc + timedelta(seconds=63)))
            assert f"{first.now_utc + timedelta(seconds=63):%H:%M:%S} UTC" in c.text

    async def test_lines_of_a_log_draw_the_log_alone(self, tmp_path: Path) -> None:
        first = worlds.calm()
        assert first.log is not None
        async with console(first, tmp_path) as c:
            await c.publish(first)
            drawn = Strips.drawn
            await c.publish(replace(first, log=replace(first.log, lines=(*first.log.lines, "the newest line"))))
            assert "the newest line" in c.text and Strips.drawn == drawn + 1


class TestLog:
    def lines(self, first: int, last: int, dropped: int = 0) -> World:
        log = worlds.calm().log
        assert log is not None
        return replace(
            worlds.calm(), log=replace(log, lines=tuple(f"line {i}" for i in range(first, last)), dropped=dropped)
        )

    async def test_paused_stays_on_its_line_and_counts(self, tmp_path: Path) -> None:
        async with console(self.lines(0, 50), tmp_path) as c:
            assert "line 49" in c.text and "following" in c.text
            await c.press("f")
            await c.publish(self.lines(30, 80, dropped=30))
            assert "PAUSED  +30 waiting  30 dropped" in c.text
            assert "line 49" in c.text and "line 50" not in c.text
            await c.press("f")
            assert "line 79" in c.text and "PAUSED" not in c.text

    async def test_a_line_that_fell_off_is_said(self, tmp_path: Path) -> None:
        async with console(self.lines(0, 10), tmp_path) as c:
            await c.press("f")
            await c.publish(self.lines(100, 110, dropped=100))
            assert "line 9 has fallen off the front" in c.text

    async def test_another_container_is_followed_from_its_end(self, tmp_path: Path) -> None:
        async with console(self.lines(0, 10), tmp_path) as c:
            await c.press("f")
            log = replace(worlds.calm().log, container_id=BACK, lines=("new one",))  # type: ignore[type-var]
            await c.publish(replace(worlds.calm(), log=log))
            assert "new one" in c.text and "following" in c.text


class TestLayout:
    @pytest.mark.parametrize("size", [(80, 24), (200, 60), (40, 12), (120, 40)])
    async def test_every_one_of_sixteen_gpus_can_be_selected(self, size: tuple[int, int], tmp_path: Path) -> None:
        """O-13"""
        async with console(worlds.many_gpus(16), tmp_path, size) as c:
            pane = c.pane("tiny" if size == (40, 12) else "gpus")
            pane.focus()
            await c.press("home")
            seen = set()
            for _ in range(20):
                seen.add(pane.cursor)
                assert pane.cursor in {r.key for r in pane.lines}, "the cursor's row is in sight"
                await c.press("down")
            assert len({k for k in seen if k.startswith("GPU-")}) == 16

    async def test_tab_walks_through_the_tabs_at_80x24(self, tmp_path: Path) -> None:
        async with console(worlds.promoting(), tmp_path, (80, 24)) as c:
            assert "[GPUs, serves]" in c.text and "Gates" not in c.text
            await c.press("tab")
            assert "[KV capacity, gates]" in c.text and "Gates 6/10" in c.text
            await c.press("tab", "tab")
            assert "[operations, log]" in c.text and "Log" in c.text
            await c.press("shift+tab")
            assert "[KV capacity, gates]" in c.text

    @pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60), (40, 12), (100, 25)])
    async def test_no_pane_of_any_screen_leaves_the_terminal(self, size: tuple[int, int], tmp_path: Path) -> None:
        async with console(worlds.promoting(), tmp_path, size) as c:
            for key in ("2", "3", "4", "5", "6", "1", "enter"):
                await c.press(key)
                shown = [s for s in c.app.screen.query("Strips") if s.display and s.size.area]
                outside = [s for s in shown if not c.app.screen.region.contains_region(s.region)]
                assert outside == [], (key, [s.region for s in outside])

    async def test_resizing_storm_during_refresh_and_dialog(self, tmp_path: Path) -> None:
        async with console(worlds.promoting(), tmp_path) as c:
            for size in ((40, 10), (200, 60), (1, 1), (80, 24), (10, 3), (120, 40)):
                await c.pilot.resize_terminal(*size)
                await c.publish(worlds.promoting())
            await c.press("question_mark")
            await c.dialog()
            for size in ((40, 10), (5, 2), (120, 40)):
                await c.pilot.resize_terminal(*size)
                await c.pilot.pause()
            await c.press("escape")
            assert isinstance(c.app.screen, Overview)
            assert "step 7/10" in c.text


@pytest.mark.parametrize(
    "foreign",
    [
        "[TP0] Load weight end",
        "x [/b] y",
        "path [/] here",
        '{"booleans": [true, false]}',
        "qwen[awq]-r7",
        "[b + and more",
    ],
)
async def test_foreign_text_is_drawn_literally_everywhere(foreign: str, tmp_path: Path) -> None:
    """O-95: as serve name, log line, event, error and dialog text."""
    world = worlds.with_containers(worlds.calm(), worlds.alien(name=foreign))
    log = replace(world.log, lines=(foreign,))  # type: ignore[type-var]
    event = replace(worlds.EVENTS[0], text=f"event {foreign}")
    async with console(replace(world, log=log, events=(event,)), tmp_path, (200, 60)) as c:
        assert c.text.count(foreign) >= 3
        c.deeds.refuse = Refused(f"refused {foreign}")
        await c.press("g")
        await c.dialog()
        assert f"refused {foreign}" in c.text
