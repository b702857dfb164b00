"""Pictures of the console: each with one fact in words beside it, so that a wrong picture is not approved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anvil_tui.core.engine_log import LoadPhase
from anvil_tui.core.world import World
from anvil_tui.ui.app import Console
from anvil_tui.ui.modals.dialog import Dialog
from anvil_tui.ui.modals.picker import Picker
from tests.support import bare, measured, standings, worlds
from tests.support.console import Driver, make

WIDE, NARROW, TINY, HUGE = (120, 40), (80, 24), (40, 12), (200, 60)

ARMS = ("6", "space", "space", "down", "space")


def _loading() -> World:
    return standings.loading(detail=LoadPhase("weights", 41, 96))


def _read_only() -> World:
    return worlds.calm(read_only=True)


CASES: dict[str, tuple[Callable[[], World], tuple[int, int], tuple[str, ...], str]] = {
    "calm-wide": (worlds.calm, WIDE, (), "primary ● serving glm53-393k-c1"),
    "calm-narrow": (worlds.calm, NARROW, (), "rollback of primary: ready ✔"),
    "calm-narrow-gates": (worlds.calm, NARROW, ("tab",), "windows  C1         1.00"),
    "calm-narrow-work": (worlds.calm, NARROW, ("tab", "tab", "tab"), "following"),
    "calm-tiny": (worlds.calm, TINY, (), "glm53-393k-c1"),
    "promoting-wide": (worlds.promoting, WIDE, (), "HELD 6 min 15 s, 3 waiting"),
    "promoting-narrow": (worlds.promoting, NARROW, (), "step 7/10"),
    "promoting-huge": (worlds.promoting, HUGE, (), "206,296 prompt tokens measured"),
    "degraded-wide": (worlds.degraded, WIDE, (), "LOST GPU is lost"),
    "degraded-narrow": (worlds.degraded, NARROW, (), "✖ lost"),
    "alarms-wide": (worlds.alarmed, WIDE, (), "✖ ALARM (+1): GPU 1 compute-b (GPU-9b8c7d6e) is lost"),
    "alarms-narrow": (worlds.alarmed, NARROW, ("8", "down", "down"), "acked by ana"),
    "stale-wide": (worlds.stale, WIDE, (), "STALE 42 s"),
    "stale-narrow": (worlds.stale, NARROW, (), "ERROR unix:///var/run/docker.sock"),
    "interrupted-wide": (worlds.interrupted, WIDE, (), "r resume or z undo"),
    "interrupted-narrow": (worlds.interrupted, NARROW, (), "promote INTERRUPTED"),
    "read-only-wide": (lambda: worlds.calm(read_only=True), WIDE, (), "READ-ONLY"),
    "production-narrow": (lambda: worlds.calm(kind="production"), NARROW, (), "PRODUCTION"),
    "empty-wide": (worlds.empty, WIDE, (), "unknown: not read yet"),
    "sixteen-gpus-narrow": (worlds.many_gpus, NARROW, (), "gpu 7"),
    "recipes-wide": (worlds.calm, WIDE, ("2", "down", "down"), "served name"),
    "recipes-narrow": (worlds.calm, NARROW, ("2",), "Recipes 12"),
    "operations-wide": (worlds.promoting, WIDE, ("3",), "Steps 6/10"),
    "operations-narrow": (worlds.interrupted, NARROW, ("3",), "INTERRUPTED"),
    "gates-wide": (worlds.promoting, WIDE, ("4", *["down"] * 4), "206,296 prompt tokens measured"),
    "gates-charts-wide": (measured.measuring, WIDE, ("4",), "decode, tok/s a stream"),
    "gates-charts-narrow": (measured.measuring, NARROW, ("4",), "usually 6 min 38 s"),
    "gates-paused-narrow": (lambda: measured.measuring(paused=True), NARROW, (), "qualify PAUSED"),
    "gates-rows-wide": (measured.measured, WIDE, ("4", "down", "down"), "INVALID, its times must not be used"),
    "compare-wide": (measured.shelf_of_bundles, WIDE, ARMS, "+25.0 % [+25.0, +25.0]"),
    "compare-narrow": (measured.shelf_of_bundles, NARROW, ARMS, "varies image"),
    "compare-charts-wide": (measured.shelf_of_bundles, WIDE, (*ARMS, "enter", "pagedown", "pagedown"), "A  ○ B"),
    "operation-evidence-wide": (measured.measured, WIDE, ("3",), "not checked here: v checks it"),
    "detail-wide": (worlds.calm, WIDE, ("enter",), worlds.cid(worlds.CANDIDATE)),
    "plan-wide": (worlds.calm, WIDE, ("b",), "type adaptive-mtp to confirm"),
    "plan-narrow": (worlds.calm, NARROW, ("b",), "type adaptive-mtp to confirm"),
    "plan-reversible": (worlds.calm, NARROW, ("u",), "quiesce primary"),
    "resume-narrow": (worlds.interrupted, NARROW, ("r",), "or an interrupted operation, go on"),
    "palette-wide": (worlds.calm, WIDE, ("colon",), "screen     overview"),
    "picker-narrow": (worlds.calm, NARROW, ("l",), "load which recipe? for role primary"),
    "gateway-wide": (standings.busy, WIDE, ("7",), "✖ stalled"),
    "gateway-narrow": (standings.busy, NARROW, ("7",), "✖ stalled"),
    "standing-wide": (standings.wired, WIDE, ("8", *["down"] * 5), "✖ port           port 9131 is held by pid"),
    "standing-narrow": (standings.wired, NARROW, ("8",), "▲ client pi drifts"),
    "not-ready-narrow": (standings.not_ready, NARROW, (), "not ready: weights: /models/glm: 12 of 41"),
    "drill-waiting-wide": (lambda: standings.drilling(3, waits=True), WIDE, (), "waits before step 4 of 12"),
    "drill-waiting-narrow": (lambda: standings.drilling(8, waits=True), NARROW, ("3",), "home 8/12 done"),
    "drill-done-wide": (standings.drilled, WIDE, ("3",), "DIFFERS: image was sha256:1"),
    "evicted-narrow": (standings.evicted, NARROW, (), "primary ○ EVICTED"),
    "apply-narrow": (standings.wired, NARROW, ("A", "enter"), '-  "contextWindow": 524288,'),
    "help-wide": (worlds.calm, WIDE, ("question_mark",), "What every key does"),
    "discovery-wide": (bare.discovered, WIDE, (), "serves acme/m-8b; vllm on 127.0.0.1:8000"),
    "discovery-narrow": (bare.discovered, NARROW, (), "not reachable: it publishes no port on this machine"),
    # six screens at rest, at both sizes: those that are not above
    "operations-calm-wide": (worlds.calm, WIDE, ("3",), "Operations 2"),
    "operations-calm-narrow": (worlds.calm, NARROW, ("3",), "Operations 2"),
    "gates-calm-wide": (worlds.calm, WIDE, ("4",), "Gates 10/10"),
    "gates-calm-narrow": (worlds.calm, NARROW, ("4",), "Gates 10/10"),
    "logs-wide": (worlds.calm, WIDE, ("5",), "? [2026-09-02 11:53:03 TP0] WARNING nccl plugin not found"),
    "logs-narrow": (worlds.calm, NARROW, ("5", "right", "up"), "PAUSED  +1 waiting"),
    "recipes-diff-wide": (worlds.calm, WIDE, ("2", "space", "down", "space"), "fields differ"),
    "recipes-diff-narrow": (worlds.calm, NARROW, ("2", "space", "down", "space"), "fields differ"),
    "gates-running-narrow": (worlds.promoting, NARROW, ("4",), "Gate tools"),
    # the overview, one serve and the operations in each state
    "loading-wide": (_loading, WIDE, (), "weights 41/96 (43 %)"),
    "loading-narrow": (_loading, NARROW, (), "weights 41/96 (43 %)"),
    "error-wide": (standings.broken, WIDE, (), "unavailable: NVML Shared Library Not Found"),
    "error-narrow": (standings.broken, NARROW, (), "unix:///var/run/docker.sock: permission denied"),
    "read-only-narrow": (_read_only, NARROW, (), "READ-ONLY"),
    "serve-loading-narrow": (_loading, NARROW, ("down", "enter"), "weights 41/96 (43 %)"),
    "serve-degraded-narrow": (worlds.degraded, NARROW, ("enter",), "progress"),
    "serve-stale-narrow": (worlds.stale, NARROW, ("enter",), "ERROR unix:///var/run/docker.sock"),
    "serve-error-narrow": (standings.broken, NARROW, ("enter",), "phase        lost"),
    "serve-read-only-narrow": (_read_only, NARROW, ("enter",), "READ-ONLY"),
    "operations-loading-narrow": (_loading, NARROW, ("3",), "step 6/10"),
    "operations-degraded-narrow": (worlds.degraded, NARROW, ("3",), "▲ 2"),
    "operations-stale-narrow": (worlds.stale, NARROW, ("3",), "▲ 1"),
    "operations-error-narrow": (standings.broken, NARROW, ("3",), "▲ 3"),
    "operations-read-only-narrow": (_read_only, NARROW, ("3",), "READ-ONLY"),
    # dialogs in their second state, and below the smallest layout
    "help-narrow": (worlds.calm, NARROW, ("question_mark", *["pagedown"] * 7), "New requests wait, or get 503"),
    "palette-typed-narrow": (standings.wired, NARROW, ("colon", *"primary"), "alias"),
    "cancel-narrow": (worlds.promoting, NARROW, ("c",), "Why? The reason is kept in the journal:"),
    "quit-narrow": (worlds.promoting, NARROW, ("q",), "is running in its own process"),
    "promoting-tiny": (worlds.promoting, TINY, (), "promote 7/10 gates"),
    "degraded-tiny": (worlds.degraded, TINY, (), "lost"),
    "stale-60x16": (worlds.stale, (60, 16), (), "lost"),
}  # fmt: skip


async def _settle(c: Driver, keys: tuple[str, ...]) -> None:
    assert c.app.bridge is not None
    c.app.bridge.pump()
    await c.pilot.pause()
    await c.press(*keys)
    if keys and keys[-1] in "bur":
        await c.dialog()
    if keys[:1] == ("A",):
        await c.dialog()
        await c.press(*["down"] * 8)
    if keys and keys[-1] in ("l", "colon"):
        await c.until(lambda: isinstance(c.app.screen, Picker))
    if keys and keys[0] in ("question_mark", "c", "q"):
        await c.until(lambda: isinstance(c.app.screen, Dialog))
        await c.dialog()
    if keys and keys[0] in "346":
        await c.until(lambda: not (c.app.shelves.busy or c.app.view.shelf.comparing))
    if keys[:1] == ("9",):
        await c.until(lambda: c.app.view.shelf.disks is not None)
        await c.press("down")
    await c.pilot.pause()


def shoot(snap_compare: Any, app: Console, size: tuple[int, int], keys: tuple[str, ...], fact: str) -> bool:
    said: list[str] = []

    async def before(pilot: Any) -> None:
        c = Driver(app, pilot)
        await _settle(c, keys)
        said.append(c.text)

    same = bool(snap_compare(app, terminal_size=size, run_before=before))
    assert fact in said[0], said[0]
    return same


@pytest.mark.parametrize("name", CASES)
def test_picture(name: str, snap_compare: Any, tmp_path: Path) -> None:
    world, size, keys, fact = CASES[name]
    assert shoot(snap_compare, make(world(), tmp_path, evidence=measured.on_disk()), size, keys, fact)


def test_ascii(snap_compare: Any, tmp_path: Path) -> None:
    """`--ascii` swaps every glyph and keeps every fact."""
    app = make(worlds.degraded(), tmp_path, ascii_only=True)
    assert shoot(snap_compare, app, WIDE, (), "LOST GPU is lost")


def test_ascii_dialog(snap_compare: Any, tmp_path: Path) -> None:
    app = make(worlds.calm(), tmp_path, ascii_only=True)
    assert shoot(snap_compare, app, NARROW, ("b",), "type adaptive-mtp to confirm")


def test_no_colour(snap_compare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR: the same words and shapes."""
    monkeypatch.setenv("NO_COLOR", "1")
    assert shoot(snap_compare, make(worlds.degraded(), tmp_path), WIDE, (), "LOST GPU is lost")


def test_no_colour_dialog(snap_compare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The button with the focus is seen without colour."""
    monkeypatch.setenv("NO_COLOR", "1")
    assert shoot(snap_compare, make(worlds.calm(), tmp_path), NARROW, ("b",), "type adaptive-mtp to confirm")


def test_refused_arms(snap_compare: Any, tmp_path: Path) -> None:
    """Unmatched arms: the reason, and no difference."""
    disk = measured.on_disk(measured.compared(harness="anvil-tui 2"))
    app = make(measured.shelf_of_bundles(), tmp_path, evidence=disk)
    assert shoot(snap_compare, app, WIDE, ARMS, "REFUSED    harness")


def test_storage(snap_compare: Any, tmp_path: Path) -> None:
    app = make(worlds.calm(), tmp_path)
    app.service.on_disk = standings.disks()  # type: ignore[attr-defined]
    assert shoot(snap_compare, app, WIDE, ("9",), "Nobody refers to it: X removes exactly it.")


def test_ascii_charts(snap_compare: Any, tmp_path: Path) -> None:
    app = make(measured.measured(), tmp_path, ascii_only=True, evidence=measured.on_disk())
    assert shoot(snap_compare, app, NARROW, ("4", "down", "enter"), "TTFT any, s (log)")


def test_no_colour_charts(snap_compare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = make(measured.shelf_of_bundles(), tmp_path, evidence=measured.on_disk())
    assert shoot(snap_compare, app, NARROW, (*ARMS, "enter"), "varies     image")


@pytest.mark.parametrize("theme", ["light", "high-contrast", "colour-blind"])
def test_theme(theme: str, snap_compare: Any, tmp_path: Path) -> None:
    """Good, warning and bad beside each other in every theme."""
    app = make(worlds.degraded(), tmp_path, theme=theme)
    assert shoot(snap_compare, app, WIDE, (), "LOST GPU is lost")


@pytest.mark.parametrize("theme", ["light", "high-contrast"])
def test_theme_of_a_dialog(theme: str, snap_compare: Any, tmp_path: Path) -> None:
    app = make(worlds.calm(), tmp_path, theme=theme)
    assert shoot(snap_compare, app, NARROW, ("b",), "type adaptive-mtp to confirm")


def test_refused_plan(snap_compare: Any, tmp_path: Path) -> None:
    """Nothing to type, nothing to confirm."""
    app = make(worlds.calm(), tmp_path)
    made = app.service.deeds.plan  # type: ignore[union-attr]
    app.service.deeds.plan = lambda intent: replace(  # type: ignore[method-assign, union-attr]
        made(intent), refusals=("the way back is gone: container 5a1b was removed",)
    )
    assert shoot(snap_compare, app, NARROW, ("b",), "This plan is refused: nothing can be confirmed.")
