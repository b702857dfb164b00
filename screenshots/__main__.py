"""Makes the pictures of this folder from the demo: `python -m screenshots`.

The simulated box and HAProxy are the demo's own processes; the console is the real one, drawn off screen and
driven by its keys. SVG for the README, PNG to look at. A test fails when what draws has changed since.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import resvg_py
from textual.pilot import Pilot

from anvil_tui.cli.console import Deeds, Service
from anvil_tui.cli.wiring import open_box, open_probes
from anvil_tui.core.world import World
from anvil_tui.ui.app import Console
from anvil_tui.ui.screens.board import Board
from anvil_tui.ui.seams import ConsoleOptions
from anvil_tui.ui.theme import THEMES
from screenshots import FACTS, HERE, MADE_OF, drawn_by, words

FONTS = ("/usr/share/fonts",)
WIDE, NARROW = (120, 40), (80, 24)
SCREENS = {
    "recipes": "2",
    "operations": "3",
    "logs": "5",
    "gateway": "7",
    "standing": "8",
    "storage": "9",
    "history": "0",
}
LANES = """schema = "anvil.suite/1"
id = "lanes"
title = "Lanes of the pictures"
[[gates]]
id = "smoke"
kind = "smoke"
[[gates]]
id = "depth"
kind = "depth-sweep"
prompt_tokens = [500, 2000, 8000, 20000]
completion_tokens = 64
requests = 5
"""


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="anvil-pictures-") as folder:
        for name, size in (("wide", WIDE), ("narrow", NARROW)):
            _one_box(Path(folder) / name, size)
    MADE_OF.write_text(drawn_by() + "\n")
    for picture in sorted(HERE.glob("*.svg")):
        picture.with_suffix(".png").write_bytes(_png(picture.read_text()))
        print(picture.name)
    return 0


def _one_box(folder: Path, size: tuple[int, int]) -> None:
    command = [sys.executable, "-m", "anvil_tui", "demo", "--serve", "--dir", str(folder), "--scale", "25"]
    box = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert box.stdout and box.stdout.readline().startswith("workspace")
        asyncio.run(_session(folder, size))
    finally:
        box.terminate()
        box.wait(150)


async def _session(folder: Path, size: tuple[int, int]) -> None:
    box = open_box(folder)
    probes = open_probes(box, read_only=False)
    service = Service(box, probes, Deeds(box, probes.store))
    app = Console(service, ConsoleOptions(crash_dir=folder))
    suffix = f"{size[0]}x{size[1]}"
    try:
        async with app.run_test(size=size) as pilot:
            await _until(pilot, app, lambda w: any(s.phase == "serving" for s in w.serves))
            await asyncio.sleep(8)
            _save(app, f"overview-{suffix}")
            if size == WIDE:
                await _themes(pilot, app)
            await _promote(pilot, app, suffix)
            await _measure(pilot, app, folder, suffix)
            await _screens(pilot, app, suffix)
    finally:
        service.end()


async def _promote(pilot: Pilot[int], app: Console, suffix: str) -> None:
    await pilot.press("p")
    await pilot.pause(0.5)
    await pilot.press(*"393")
    await pilot.pause(0.3)
    _save(app, f"choose-{suffix}")
    await pilot.press("enter")
    await pilot.pause(3)
    _save(app, f"plan-{suffix}")
    await pilot.press("tab")
    await pilot.pause(0.3)
    await pilot.press(*"adaptive-mtp", "enter")
    await _until(pilot, app, lambda w: bool(w.operation and len(_judged(w)) >= 4))
    _save(app, f"promoting-{suffix}")
    await _until(pilot, app, lambda w: bool(w.operation and w.operation.outcome))
    await pilot.pause(3)
    _save(app, f"promoted-{suffix}")


async def _measure(pilot: Pilot[int], app: Console, folder: Path, suffix: str) -> None:
    """The serve measured twice by a suite of lanes, watched, and the two bundles compared."""
    (folder / "gates" / "lanes.toml").write_text(LANES)
    await pilot.press("4")
    for _ in range(2):
        before = len(app.world.operations)
        await asyncio.to_thread(_qualify, app, folder)
        await _until(
            pilot, app, lambda w, n=before: len(w.operations) > n and w.operations[-1].outcome is not None
        )
    measured = app.world.operations[-1].id
    app.look(replace(app.view, operation=measured))
    await pilot.press("home", "down")
    await _until(pilot, app, lambda w: bool((run := app.view.shelf.run_of(measured)) and run.bundles))
    _save(app, f"gates-{suffix}")
    await pilot.press("6")
    await _until(pilot, app, lambda w: len(w.pasts) >= 2 and "lanes" in (w.pasts[-1].identity.suite or ""))
    await pilot.press("home", "space", "space", "down", "space")
    await _until(pilot, app, lambda w: app.view.shelf.compared is not None)
    _save(app, f"compare-{suffix}")


async def _themes(pilot: Pilot[int], app: Console) -> None:
    """The overview in each other theme, in their order; then the first one again."""
    for name in (*list(THEMES)[1:], ""):
        await pilot.press("T")
        await pilot.pause(0.5)
        if name:
            _save(app, f"overview-{name}-120x40")


async def _screens(pilot: Pilot[int], app: Console, suffix: str) -> None:
    """Every other screen, with what the session has left on it."""
    for name, key in SCREENS.items():
        await pilot.press(key)
        await _until(pilot, app, lambda w, n=name: FACTS[n] in " ".join(_board(app).visible_text()))
        _save(app, f"{name}-{suffix}")
    await pilot.press("question_mark")
    await pilot.pause(1)
    _save(app, f"help-{suffix}")
    await pilot.press("escape")


def _board(app: Console) -> Board:
    assert isinstance(app.screen, Board)
    return app.screen


def _qualify(app: Console, folder: Path) -> None:
    serving = next(s for s in app.world.serves if s.phase == "serving")
    command = [sys.executable, "-m", "anvil_tui", "--workspace", str(folder), "qualify", serving.container.id]
    subprocess.run([*command, "--suite", "lanes", "--yes"], check=False, capture_output=True)


def _judged(world: World) -> list[str]:
    gates = world.operation.gates if world.operation else ()
    return [g.id for g in gates if g.verdict not in ("pending", "running")]


async def _until(pilot: Pilot[int], app: Console, so: Callable[[World], bool], seconds: float = 240) -> None:
    for _ in range(int(seconds / 0.1)):
        if so(app.world):
            return await pilot.pause(0.5)
        await pilot.pause(0.1)
    raise SystemExit("the demo did not come as far as the next picture")


def _save(app: Console, name: str) -> None:
    svg = app.export_screenshot(title="anvil-tui demo")
    # The fonts that the picture names are asked of the reader's machine, never of a network.
    assert (fact := FACTS[name.rpartition("-")[0]]) in words(svg), f"{name} does not show {fact!r}"
    (HERE / f"{name}.svg").write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S))


def _png(svg: str) -> bytes:
    return bytes(resvg_py.svg_to_bytes(svg_string=svg, font_dirs=list(FONTS)))


if __name__ == "__main__":
    sys.exit(main())
