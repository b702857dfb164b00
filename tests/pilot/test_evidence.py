"""Gates, comparisons and checks by key: rows arrive, gates are paused, arms are chosen, nothing waits."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from anvil_tui.core.errors import BadFile
from anvil_tui.core.shelf import Compared, RunFiles, Verified
from anvil_tui.core.verify import Checked
from anvil_tui.ui.modals.dialog import Dialog
from anvil_tui.ui.screens.listing import Compare, Detail, Gates
from anvil_tui.ui.screens.overview import Overview
from tests.support import measured
from tests.support.console import Driver, console
from tests.support.worlds import FakeEvidence

OLDER = "20260901-1000-qualify/aaaaaaaaaaaa"


async def armed(c: Driver) -> None:
    """The older bundle in arm A, the newer in arm B."""
    await c.press("6", "space", "space", "down", "space")


class TestGates:
    async def test_rows_arrive_while_the_lane_runs(self, tmp_path: Path) -> None:
        async with console(measured.measuring(1), tmp_path) as c:
            await c.press("4")
            assert "Rows 1" in c.text and "A chart needs rows at two places" in c.text
            await c.publish(measured.measuring(2))
            assert "Rows 2" in c.text and "decode, tok/s a stream" in c.text and "65.5K" not in c.text
            await c.publish(measured.measuring(3))
            assert "Rows 3" in c.text and "65.5K" in c.text

    async def test_when_it_has_ended_its_bundle_is_read(self, tmp_path: Path) -> None:
        async with console(measured.measuring(5), tmp_path, evidence=measured.on_disk()) as c:
            await c.press("4", "end")
            assert "No row is complete yet" not in c.text and c.app.view.gate == "ladder"
            await c.publish(measured.measured())
            await c.until(lambda: "INVALID, its times must not be used" in c.text, "rows of the bundle")
            asked = c.evidence.asked
            await c.publish(replace(measured.measured(), now_s=6000.0))
            assert c.evidence.asked == asked == [("run", measured.OPERATION)] * 2, "once while it ran, once ended"

    async def test_enter_shows_one_gate_on_the_whole_screen(self, tmp_path: Path) -> None:
        async with console(measured.measured(), tmp_path, (80, 24), evidence=measured.on_disk()) as c:
            await c.press("4", "down", "enter")
            assert isinstance(c.app.screen, Detail) and "Gate depth" in c.text
            await c.until(lambda: "TTFT any, s (log)" in c.text)
            await c.press("y")
            assert c.app.clipboard == "depth"
            await c.press("escape")
            assert isinstance(c.app.screen, Gates)
            await c.press("escape")
            assert isinstance(c.app.screen, Overview)

    async def test_a_slow_disk_holds_nothing_up(self, tmp_path: Path) -> None:
        """The files are read off the loop: keys work while the reading hangs."""
        go = threading.Event()

        class Slow(FakeEvidence):
            def run(self, operation: str) -> RunFiles:
                go.wait(20)
                return measured.run_files()

        async with console(measured.measured(), tmp_path, evidence=Slow()) as c:
            await c.press("4", "down", "down")
            assert "Gate ladder" in c.text and "INVALID" not in c.text
            go.set()
            await c.until(lambda: "INVALID" in c.text)


class TestPause:
    async def test_w_pauses_and_r_lets_it_go_on(self, tmp_path: Path) -> None:
        async with console(measured.measuring(), tmp_path) as c:
            await c.press("4", "w")
            await c.dialog()
            assert "Hold the gates before their next request" in c.text
            await c.press("enter")
            assert c.deeds.steered == [], "Cancel has the focus"
            await c.press("w")
            await c.dialog()
            await c.press("tab", "enter")
            await c.until(partial(bool, c.deeds.steered))
            assert c.deeds.steered == [("pause", measured.OPERATION)]
            await c.press("r")
            assert "resume: no operation is paused, interrupted or halted" in c.text
            await c.publish(measured.measuring(paused=True))
            assert "PAUSED" in c.text
            await c.press("w")
            assert "pause: no operation is running" in c.text
            await c.press("r")
            await c.dialog()
            await c.press("tab", "enter")
            await c.until(lambda: len(c.deeds.steered) == 2)
            assert c.deeds.steered[1] == ("go on", measured.OPERATION), (
                "its process lives: nothing is started again"
            )

    async def test_a_paused_one_can_be_cancelled_with_a_reason(self, tmp_path: Path) -> None:
        async with console(measured.measuring(paused=True), tmp_path) as c:
            await c.press("4", "c")
            await c.dialog()
            await c.type("wrong")
            await c.press("enter")
            await c.until(partial(bool, c.deeds.steered))
            assert c.deeds.steered == [("cancel", measured.OPERATION, "wrong")]

    async def test_read_only_offers_neither(self, tmp_path: Path) -> None:
        async with console(measured.measuring(read_only=True), tmp_path) as c:
            await c.press("4")
            hints = c.text.splitlines()[-1]
            assert "esc back" in c.text and "pause" not in hints and "cancel" not in hints
            await c.press("w")
            assert "read-only" in c.text and not isinstance(c.app.screen, Dialog)


class TestCompare:
    async def test_two_bundles_by_key_and_back(self, tmp_path: Path) -> None:
        async with console(measured.shelf_of_bundles(), tmp_path, evidence=measured.on_disk()) as c:
            await armed(c)
            await c.until(lambda: "matched" in c.text)
            assert c.evidence.asked == [("compare", {measured.BUNDLE: "B", OLDER: "A"})]
            assert "+25.0 % [+25.0, +25.0]" in c.text
            await c.press("enter")
            assert isinstance(c.app.screen, Detail) and "Comparison matched: B against A" in c.text
            await c.press("escape")
            assert isinstance(c.app.screen, Compare)
            await c.press("space")
            assert "+25.0" not in c.text, "another arm: what was compared before is gone"
            await c.press("escape")
            assert isinstance(c.app.screen, Overview)

    async def test_what_comes_for_arms_of_before_is_dropped(self, tmp_path: Path) -> None:
        first, go = threading.Event(), threading.Event()

        class Slow(FakeEvidence):
            def compare(self, arms: Mapping[str, str]) -> Compared:
                if OLDER in arms:
                    first.set()
                    go.wait(20)
                    return Compared(error="of the first arms")
                return Compared(error="of the second arms")

        async with console(measured.shelf_of_bundles(), tmp_path, evidence=Slow()) as c:
            await armed(c)
            await c.until(first.is_set)
            await c.press("space", "space", "down", "space")
            await c.until(lambda: "of the second arms" in c.text)
            go.set()
            await c.until(lambda: not any(t.name == "work" for t in threading.enumerate()))
            await c.pilot.pause()
            assert "of the second arms" in c.text and "of the first arms" not in c.text

    async def test_a_bundle_that_cannot_be_compared_says_why(self, tmp_path: Path) -> None:
        disk = measured.on_disk()
        disk.compared = BadFile(
            "evidence/x", "o/s cannot be compared: manifest.json: was changed after it was sealed"
        )
        async with console(measured.shelf_of_bundles(), tmp_path, evidence=disk) as c:
            await armed(c)
            await c.until(lambda: "was changed after it was sealed" in c.text)
            await c.press("end", "space")
            assert "cannot be read, so it cannot be compared" in c.text

    async def test_the_filter_narrows_and_esc_clears_it(self, tmp_path: Path) -> None:
        async with console(measured.shelf_of_bundles(), tmp_path) as c:
            await c.press("6", "slash")
            await c.dialog()
            await c.type("524k")
            await c.press("enter")
            await c.pilot.pause()
            assert 'Bundles filter "524k" 2/4' in c.text
            await c.press("escape")
            assert isinstance(c.app.screen, Compare) and "Bundles 4" in c.text


class TestVerify:
    async def test_v_checks_the_bundles_of_an_operation(self, tmp_path: Path) -> None:
        disk = measured.on_disk()
        disk.checked[measured.BUNDLE] = Verified(
            "2026-09-02T11:54:00+00:00", Checked(("results.json: is cut off",))
        )
        async with console(measured.measured(), tmp_path, evidence=disk) as c:
            await c.press("3")
            await c.until(lambda: "not checked here" in c.text)
            await c.press("v")
            await c.until(lambda: "NOT SOUND, checked 11:54:00" in c.text)
            assert disk.asked[-1] == ("verify", (measured.BUNDLE,))
            assert f"verify: {measured.BUNDLE} IS NOT SOUND" in c.text

    async def test_where_there_is_none_it_says_where_they_are(self, tmp_path: Path) -> None:
        async with console(measured.measured(), tmp_path) as c:
            await c.press("v")
            assert "no bundle is selected here" in c.text
            await c.press("space")
            assert "arms are chosen on the compare screen" in c.text
