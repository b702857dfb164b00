"""Below the smallest layout: one line of health for each serve, one for each GPU, all selectable."""

from __future__ import annotations

from anvil_tui.core.box import Gpu
from anvil_tui.core.world import Serve, World
from anvil_tui.ui import glyphs
from anvil_tui.ui.presenters import alarms, gpus
from anvil_tui.ui.presenters.cells import Cell, Panel, Row, View, sentence, spread
from anvil_tui.ui.presenters.freshness import gpu_limit_s, state_note
from anvil_tui.ui.presenters.header import worst
from anvil_tui.ui.presenters.operations import current_step, elapsed, state_mark, state_word
from anvil_tui.ui.presenters.serves import PHASE_TONES, shown
from anvil_tui.ui.text import NA, clip, fit, gib, literal


def panel(world: World, view: View, width: int, height: int) -> Panel:
    rows: list[Row] = _operation(world, width)
    if rows and (alarm := alarms.line(world, view, width)):  # with no operation open the strip shows it
        rows.insert(0, alarm)
    if world.problems:
        many = f"{glyphs.WARN} {len(world.problems)}: {literal(world.problems[0], 200)}"
        rows.append(spread([Cell(many, "warn")], [], width))
    rows += [_serve(s, width) for s in shown(world, view)]
    if not world.serves:
        words = "no serve" if world.containers.ok else f"serves unknown: {literal(world.containers.reason)}"
        rows += sentence(words, width, "dim")[:1]
    rows += _gpus(world, width)
    old = state_note(world.containers, world.now_s) or state_note(world.gpus, world.now_s, gpu_limit_s(world))
    return Panel("Health", tuple(rows), old)


def _operation(world: World, width: int) -> list[Row]:
    """The operation that runs or waits for a person in one short line: how far it is gives way to nothing."""
    operation = world.operation
    if operation is None or not (operation.outcome is None or operation.needs_person):
        return []
    glyph, tone = state_mark(operation)
    place, count, step = current_step(operation)
    head = [
        Cell(f"{glyph} {literal(operation.kind, 16)} ", tone),
        Cell(f"{place}/{count} "),
        Cell(literal(step.name) if step else "", "dim"),
    ]
    word = "" if operation.state == "running" else state_word(operation)
    tail = [Cell(f" {word}", tone)] if word else elapsed(world, operation, step, limit=False)[:1]
    return [spread(head, tail, width, operation.id)]


def _serve(serve: Serve, width: int) -> Row:
    glyph, tone = worst(serve.lights) if serve.container.running else (" ", "dim")
    fly = NA if serve.in_flight is None else str(serve.in_flight)
    phase = Cell(f" {serve.phase}", PHASE_TONES[serve.phase])
    name = Cell(fit(literal(serve.name), max(6, width - 18)), "strong")
    return spread([Cell(f"{glyph} ", tone), name], [phase, Cell(f" {fly:>3}", "dim")], width, serve.container.id)


def _gpus(world: World, width: int) -> list[Row]:
    snap = world.gpus.value
    if snap is None:
        return sentence(f"GPUs {world.gpus.state}: {literal(world.gpus.reason)}", width, "dim")[:1]
    return [_gpu(world, g, width) for g in snap.gpus] or sentence("0 GPUs", width, "dim")


def _gpu(world: World, gpu: Gpu, width: int) -> Row:
    role = Cell(gpus.role_of(world, gpu), "strong")
    if gpu.state != "ok":
        word = "LOST" if gpu.state == "lost" else "ERROR"
        why = clip(f"{word} {literal(gpu.reason, 60)}", max(8, width - 10))
        return spread([role], [Cell(why, "bad")], width, gpus.key_of(gpu))
    heat = NA if gpu.temperature_c is None else f"{gpu.temperature_c}°"
    used = f"{gib(gpu.used_bytes, unit=False)}/{gib(gpu.total_bytes)}"
    return spread([role], [Cell(used), Cell(f" {heat:>4}", "dim")], width, gpus.key_of(gpu))
