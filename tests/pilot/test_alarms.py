"""Alarms at the keyboard: where they show, `!`, and the bell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from anvil_tui.core.errors import EffectFailed
from anvil_tui.core.world import World
from anvil_tui.ui.modals.dialog import Dialog
from anvil_tui.ui.ringer import Ringer
from tests.support import worlds
from tests.support.console import console
from tests.support.worlds import UUIDS

LOST, SLOW = f"gpu:{UUIDS[1]}", f"throttle:{UUIDS[0]}"


async def test_acknowledge_takes_what_concerns_a_person_most_at_once(tmp_path: Path) -> None:
    async with console(worlds.alarmed(), tmp_path) as c:
        assert "! acknowledge" in c.text
        await c.press("exclamation_mark")
        await c.until(lambda: bool(c.deeds.steered))
        assert c.deeds.steered == [("acknowledge", LOST)]
        assert not isinstance(c.app.screen, Dialog)
        await c.until(lambda: "acknowledged: GPU 1 compute-b" in c.text)


async def test_acknowledge_takes_the_selected_one_and_says_when_it_was_seen(tmp_path: Path) -> None:
    async with console(worlds.alarmed(), tmp_path) as c:
        await c.press("8", "down", "exclamation_mark")
        await c.until(lambda: bool(c.deeds.steered))
        assert c.deeds.steered == [("acknowledge", "rollback:primary")]
        await c.press("down", "exclamation_mark")
        assert "it is acknowledged: throttle by ana" in c.text
        assert len(c.deeds.steered) == 1
        assert "acknowledged by ana" in c.text and UUIDS[0] in c.text


async def test_read_only_acknowledges_nothing_and_says_why(tmp_path: Path) -> None:
    async with console(worlds.alarmed(read_only=True), tmp_path) as c:
        assert c.service.deeds is None
        await c.press("exclamation_mark")
        assert "acknowledge: read-only" in c.text


async def test_without_an_alarm_there_is_nothing_to_acknowledge(tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path) as c:
        await c.press("exclamation_mark")
        assert "acknowledge: no alarm is open" in c.text


async def test_one_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    async with console(worlds.alarmed(), tmp_path) as c:
        c.deeds.refuse = EffectFailed("state/alarms.json: not saved: no space")
        await c.press("exclamation_mark")
        await c.dialog()
        assert "no space" in c.text


SIZES = ((120, 40), (80, 24), (40, 12))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("keys", [(), ("slash", *"zzz", "enter"), ("2",), ("7",)])
async def test_no_layout_screen_or_filter_hides_an_alarm(
    tmp_path: Path, size: tuple[int, int], keys: tuple[str, ...]
) -> None:
    async with console(worlds.alarmed(), tmp_path, size) as c:
        await c.press(*keys)
        assert "✖ ALARM (+1): GPU 1 compute-b" in c.text
        assert size == SIZES[-1] or "1 bad" in c.text.splitlines()[0]


@pytest.mark.parametrize("size", SIZES)
async def test_an_operation_does_not_hide_an_alarm(tmp_path: Path, size: tuple[int, int]) -> None:
    """The strip is the operation's then."""
    async with console(replace(worlds.promoting(), alarms=worlds.alarmed().alarms), tmp_path, size) as c:
        assert "GPU 1 compute-b" in c.text or "1 bad" in c.text.splitlines()[0]


async def test_the_bell_rings_once_for_each_new_alarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rung: list[int] = []
    async with console(worlds.calm(), tmp_path) as c:
        monkeypatch.setattr(c.app, "ringer", Ringer(lambda: rung.append(1)))
        await c.publish(worlds.alarmed())
        assert len(rung) == 1, "several at once are one bell"
        await c.publish(replace(worlds.alarmed(), now_s=worlds.NOW_S + 1))
        assert len(rung) == 1
        more = worlds.alarmed()
        again = tuple(replace(a, since=worlds.at(1), acked_by="") for a in more.alarms)
        await c.publish(replace(more, alarms=again))
        assert len(rung) == 2, "an alarm that came back is new"
        await c.publish(replace(more, alarms=tuple(replace(a, severity="bad") for a in again)))
        assert len(rung) == 3, "a warning turned bad"


def test_the_bell_is_silent_for_what_was_seen_for_a_replay_and_when_it_is_off() -> None:
    rung: list[int] = []

    def heard(world: World, on: bool = True) -> int:
        rung.clear()
        Ringer((lambda: rung.append(1)) if on else None).hear(world)
        return len(rung)

    world = worlds.alarmed()
    seen = replace(world, alarms=tuple(replace(a, acked_by="ana") for a in world.alarms))
    assert (heard(world), heard(seen), heard(replace(world, replayed=True)), heard(world, on=False)) == (
        1,
        0,
        0,
        0,
    )
