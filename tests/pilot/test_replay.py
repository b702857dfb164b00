"""A replay in the console: the same screens, its own clock, keys that move it, and no way to change the box."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from anvil_tui.cli.past import Past, Replayed
from anvil_tui.core.recording import Head
from anvil_tui.core.shelf import Disks
from anvil_tui.service.replay import Player
from anvil_tui.ui.actions import ACTIONS
from anvil_tui.ui.app import Console
from anvil_tui.ui.screens.listing import History
from anvil_tui.ui.screens.overview import Overview
from anvil_tui.ui.seams import ConsoleOptions
from tests.support import tapes, worlds
from tests.support.console import Driver, console, make

LOST = "11:29:09"
CHANGES = [a for a in ACTIONS if a.mutates]


async def opened(c: Driver) -> None:
    """The history screen with what is kept on it."""
    c.service.history = tapes.FakePast(tapes.hour())
    await c.press("0")
    await c.until(lambda: "everything" in c.text, "the history is read")


async def stands(c: Driver, *said: str) -> None:
    """The replay has come to where these words stand; the timer is off, so each look is a pump."""

    def there() -> bool:
        assert c.app.bridge is not None
        c.app.bridge.pump()
        return c.app.world.replayed and all(word in c.text for word in said)

    await c.until(there, f"{said}")


async def replaying(c: Driver) -> None:
    """At the moment in which the card is lost."""
    await opened(c)
    kept = c.app.view.shelf.history
    assert kept is not None
    c.app.replays.go(next(m.at for m in kept.index.moments if "lost" in m.text))
    await stands(c, LOST, "REPLAY")


@asynccontextmanager
async def replay(tmp_path: Path, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Driver]:
    async with console(worlds.calm(), tmp_path, size) as c:
        await replaying(c)
        yield c


async def test_the_history_screen_shows_spans_gaps_figures_and_moments(tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path) as c:
        await opened(c)
        for word in (
            "Recorded 2",
            "not recorded for 600 s",
            "3.1 MiB",
            "GPU 1 is lost",
            "▶ promote",
            "VRAM",
            "96%",
        ):
            assert word in c.text, word
        recorded = next(line for line in c.text.splitlines() if "recorded " in line and "━" in line)
        assert "━ " in recorded and " ━" in recorded, "the gap is drawn as a gap"
        assert not c.app.world.replayed


async def test_enter_on_a_moment_replays_it_and_esc_returns_to_now(tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path) as c:
        await opened(c)
        await c.press("tab")
        while not _at(c, "GPU 1 is lost"):
            await c.press("down")
        await c.press("enter")
        await stands(c, "REPLAY", LOST, "LOST GPU is lost")
        assert isinstance(c.app.screen, Overview)
        followed = list(c.service.followed)
        c.service.store.publish(worlds.many_gpus())
        await c.press("escape")
        await c.until(lambda: "gpu 7" in c.text or "16" in c.text, "the newest world of the box")
        assert not c.app.world.replayed and "REPLAY" not in c.text and "11:54:09" in c.text
        assert c.app.deeds is not None and c.app.replays.player is None
        assert c.service.followed[: len(followed)] == followed


def _at(c: Driver, text: str) -> bool:
    pane = c.pane("moments")
    lines = ["".join(cell.text for cell in r.cells) for r in pane.panel.rows if r.key and r.key == pane.cursor]
    return any(text in line for line in lines)


async def test_enter_on_a_span_replays_it_from_its_begin(tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path) as c:
        await opened(c)
        await c.press("down", "enter")
        await stands(c, "2026-09-02 11:24:09 UTC", "11:24:09 – 11:54:09")


async def test_keys_move_the_replay(tmp_path: Path) -> None:
    async with replay(tmp_path) as c:
        for key, words in (
            ("full_stop", ("11:29:24",)), ("comma", (LOST,)),
            ("right_square_bracket", ("11:34:09", "gpus: GPU 1 is back")),
            ("left_square_bracket", (LOST, "gpus: GPU 1 is lost")), ("greater_than_sign", ("paused",)),
            ("greater_than_sign", ("paused",)), ("space", ("▶ 16×",)), ("space", ("paused",)),
            ("less_than_sign", ("paused",)), ("space", ("▶ 4×",)),
        ):  # fmt: skip
            await c.press(key)
            await stands(c, *words)


async def test_a_time_is_jumped_to(tmp_path: Path) -> None:
    async with replay(tmp_path) as c:
        await c.press("at")
        dialog = await c.dialog()
        assert "14:05" in c.text
        dialog.query_one("Input").value = "11:05"  # type: ignore[attr-defined]
        await c.press("enter")
        await stands(c, "11:04:54 UTC")
        await c.press("at")
        (await c.dialog()).query_one("Input").value = "soon"  # type: ignore[attr-defined]
        await c.press("enter")
        await c.until(lambda: "'soon' is no time like 14:05" in c.text)


async def test_nothing_can_be_changed_from_a_replay(tmp_path: Path) -> None:
    """Every action of the registry that changes the box, by its key, and by the road that the palette takes."""
    assert len(CHANGES) > 15
    async with replay(tmp_path) as c:
        for action in CHANGES:
            for way in ("key", "palette"):
                c.app.say("")
                if way == "key":
                    await c.press(action.keys[0])
                else:
                    c.app.dispatch(action)
                    await c.pilot.pause()
                said = f"{action.label}: this is a replay of 2026-09-02 11:29:09 UTC; esc returns to now"
                assert said in c.text, (action.id, way)
                assert isinstance(c.app.screen, Overview), action.id
        assert c.app.deeds is None and c.deeds.intents == [] and c.deeds.started == []


async def test_a_key_that_a_person_gave_changes_nothing_either(tmp_path: Path) -> None:
    app = make(worlds.calm(), tmp_path)
    app = Console(app.service, ConsoleOptions(tmp_path, utc=True, keys={"role.rollback": "f9"}), autopump=False)
    async with app.run_test(size=(120, 40)) as pilot:
        c = Driver(app, pilot)
        assert app.bridge is not None
        app.bridge.pump()
        await pilot.pause()
        await replaying(c)
        await c.press("f9")
        await c.until(lambda: "rollback: this is a replay of" in c.text)
        assert c.deeds.intents == []


async def test_a_deed_that_is_being_prepared_keeps_a_replay_from_opening(tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path) as c:
        await opened(c)
        assert c.app.deeds is not None
        c.app.deeds.pending = True
        await c.press("enter")
        await c.until(lambda: "decide on it first" in c.text)
        assert not c.app.world.replayed and isinstance(c.app.screen, History)


async def test_a_late_world_of_the_box_is_not_shown_in_a_replay(tmp_path: Path) -> None:
    async with replay(tmp_path) as c:
        c.service.store.publish(worlds.many_gpus())
        assert c.app.bridge is not None
        c.app.bridge.pump()
        await c.pilot.pause()
        assert c.app.world.replayed and LOST in c.text and "NO NEWS" not in c.text


async def test_screens_that_read_the_disk_say_that_it_was_not_recorded(tmp_path: Path) -> None:
    async with replay(tmp_path) as c:
        await c.press("9")
        await c.until(lambda: "not recorded" in c.text)
        assert c.service.looked == 0
        await c.press("escape")
        assert isinstance(c.app.screen, Overview) and c.app.world.replayed, "esc goes back one screen first"


async def test_what_was_read_of_the_disk_now_is_not_shown_as_then_nor_the_other_way_round(tmp_path: Path) -> None:
    """The run of the same operation, in the same state, before the replay, in it and after it."""
    promoted = replace(worlds.promoted(), started_at=worlds.at(3200), ended_at=worlds.at(2800))
    async with console(replace(worlds.calm(), operations=(promoted,)), tmp_path) as c:

        def run() -> str:
            found = c.app.view.shelf.run
            return "unread" if found is None else found.error or "read"

        await c.press("4")
        await c.until(lambda: run() == "read", "the run is read")
        await replaying(c)
        assert run() != "read" and c.app.view.shelf.history is not None
        await c.press("4")
        await c.until(lambda: "not recorded" in run(), "the replay has none")
        await c.press("escape", "escape")
        await c.until(lambda: not c.app.world.replayed, "now")
        await c.press("4")
        await c.until(lambda: run() == "read", "the run is read again")
        assert c.evidence.asked == [("run", promoted.id)] * 2


async def test_a_look_at_the_disks_that_comes_late_is_dropped(tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path) as c:
        late = c.app.shelves
        await replaying(c)
        late.looked_at_disks(Disks("2026-09-02T11:54:00Z", {}))
        assert c.app.view.shelf.disks is None


async def test_keys_of_a_replay_say_so_when_there_is_none(tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path) as c:
        for key in ("left_square_bracket", "comma", "at", "greater_than_sign"):
            await c.press(key)
            assert "there is no replay: 0 shows what was recorded" in c.text
        await c.press("0")
        await c.until(lambda: "history: nothing is recorded without a" in c.text)


async def test_an_export_says_where_it_is(tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path) as c:
        c.service.history = tapes.FakePast(tapes.hour())
        await c.press("E")
        await c.until(lambda: "export: wrote /box/state/exports/fakoli-dark.ndjson.gz" in c.text)
        assert c.service.history.exported == [worlds.calm()]


async def test_a_console_that_does_not_record_says_why(tmp_path: Path) -> None:
    async with console(worlds.calm(), tmp_path) as c:
        c.service.history = tapes.FakePast(tapes.hour(), "another process records this box already (pid 7)")
        await c.press("0")
        await c.until(lambda: "this console does not record: another process" in " ".join(c.text.split()))


async def test_what_was_read_too_late_finds_a_console_that_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`q` was typed while the history was still read: its answer came to a screen without lines."""
    told = []
    async with console(worlds.calm(), tmp_path) as c:
        app, close_all = c.app, c.app._close_all

        async def closing() -> None:
            await app.screen.remove_children()
            app.look(app.view)
            told.append(app.is_running)
            await close_all()

        monkeypatch.setattr(app, "_close_all", closing)
    assert told == [False] and not list(tmp_path.glob("crash-*"))


async def test_a_file_is_replayed_without_a_way_to_now(tmp_path: Path) -> None:
    player = Player(tapes.hour())
    player.open()
    past = Past(tmp_path, worlds.workspace())
    app = Console(Replayed(player, past), ConsoleOptions(tmp_path, utc=True), autopump=False)
    async with app.run_test(size=(120, 40)) as pilot:
        c = Driver(app, pilot)
        await stands(c, "REPLAY", "2026-09-02 10:54:09 UTC")
        await c.press("escape", "b")
        await c.until(lambda: "it is a file, and no box can be changed from it" in c.text)
        assert "esc now" not in c.text and app.world.replayed
    player.close()


def test_an_export_of_now_holds_the_last_minutes_and_now(tmp_path: Path) -> None:
    """Through the real files: what the key `E` writes is a recording of its own."""
    from anvil_tui.adapters.history_files import HistoryFiles
    from anvil_tui.adapters.recordings import RecordingFile
    from anvil_tui.core.workspace import History as Settings

    made = HistoryFiles(tmp_path / "state" / "history", "box", Settings(), lambda: str, floor_bytes=0)
    made.open()
    now = worlds.calm()
    for n in (1200, 600, 300):
        made.append(replace(now, now_s=now.now_s - n, now_utc=now.now_utc - timedelta(seconds=n)))
    made.close()
    path = Path(Past(tmp_path, worlds.workspace()).export(now))
    assert path.parent == tmp_path / "state" / "exports" and path.parent.stat().st_mode & 0o777 == 0o700
    sent = RecordingFile(path)
    found = [f.at for name, _ in sent.parts() for f in sent.frames(name)]
    assert found == [now.now_utc - timedelta(seconds=s) for s in (600, 300, 0)]
    assert isinstance(sent.head, Head) and sent.head.box == "fakoli-dark"
