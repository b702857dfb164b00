"""One serve or one GPU in full: the whole names and ids, nothing cut."""

from __future__ import annotations

from collections.abc import Sequence

from anvil_tui.core.box import Container, Gpu
from anvil_tui.core.redact import redact_argv
from anvil_tui.core.world import Serve, World
from anvil_tui.ui import glyphs
from anvil_tui.ui.presenters import gpus
from anvil_tui.ui.presenters.cells import BLANK, Cell, Panel, Row, View, facts, row, sentence
from anvil_tui.ui.presenters.freshness import gpu_limit_s, state_note
from anvil_tui.ui.presenters.serves import PHASE_TONES, light_words, place
from anvil_tui.ui.text import NA, literal, mib, number, stamp

Pairs = list[tuple[str, str | Sequence[Cell]]]


def serve_panel(world: World, view: View, width: int, height: int) -> Panel:
    serve = world.serve(view.serve)
    note = state_note(world.containers, world.now_s)
    if serve is None:
        return Panel("Serve", tuple(sentence("This serve is not there any more.", width, "warn")), note)
    rows = [
        *facts(_identity(world, serve), width),
        *_group("Lights", light_words(serve), width),
        *_group("Container", _container(serve.container, view), width),
        *_group("Record", _record(serve, view), width),
    ]
    return Panel(f"Serve {literal(serve.name, 200)}", tuple(rows), note)


def _group(title: str, pairs: Sequence[tuple[str, str | Sequence[Cell]]], width: int) -> list[Row]:
    return [BLANK, row(Cell(title, "accent")), *facts(pairs, width)] if pairs else []


def _identity(world: World, serve: Serve) -> Pairs:
    engine = serve.engine.value
    told = ", ".join(literal(n) for n in engine.served) if engine and engine.served else NA
    pairs: Pairs = [
        ("name", literal(serve.name, 400)),
        ("container", literal(serve.container.id, 128)),
        ("phase", [Cell(serve.phase, PHASE_TONES[serve.phase])]),
        ("place", place(world, serve)),
        ("served name", literal(serve.record.served_name, 400) if serve.record else NA),
        ("engine says", told),
        ("context", number(engine.context_tokens if engine else None, "tok")),
        ("in flight", NA if serve.in_flight is None else str(serve.in_flight)),
    ]
    if serve.why:
        pairs.append(("why", literal(serve.why, 2000)))
    return pairs


def _container(c: Container, view: View) -> Pairs:
    ended = f", exit {c.exit_code}" if c.exit_code is not None else ""
    oom = {True: "yes", False: "no", None: NA}[c.oom_killed]
    pairs: Pairs = [
        ("docker name", literal(c.name, 300)),
        ("status", f"{literal(c.status)}{ended}, OOM killed {oom}, restarts {number(c.restart_count)}"),
        ("image", literal(c.image_ref, 400)),
        ("image id", literal(c.image_id, 128)),
        ("created", stamp(c.created_at, view.zone)),
        ("started", stamp(c.started_at, view.zone) if c.started_at else _unstarted(c)),
        ("GPUs", _grant(c)),
        ("command", literal(" ".join(redact_argv(c.argv)), 4000) or NA),
    ]
    if c.error:
        pairs.append(("daemon says", [Cell(literal(c.error, 4000), "bad")]))
    if c.ports:
        pairs.append(("ports", literal(", ".join(map(_reach, c.ports)), 1000)))
    return pairs


def _unstarted(c: Container) -> str:
    return "never started" if c.status in ("created", "exited", "dead") else "-"


def _reach(endpoint: str) -> str:
    """A published port, marked when it is not bound to the loopback alone."""
    return endpoint if endpoint.startswith(("127.", "[::1]")) else f"{endpoint} reachable from outside"


def _grant(c: Container) -> str:
    named = ", ".join(c.gpus.uuids) or c.gpus.effective
    return f"{literal(named, 600)} (by {literal(c.gpus.via, 40)})"


def _record(serve: Serve, view: View) -> Pairs:
    record = serve.record
    if record is None:
        return []
    passed = (
        f"{literal(record.qualified_suite)} at {stamp(record.qualified_at, view.zone)} in {record.qualified_by}"
    )
    return [
        ("recipe", f"{literal(record.recipe_id, 200)}  {record.recipe_digest[:12]}"),
        ("role, slot", f"{literal(record.role)}, {literal(record.slot)} on port {record.port}"),
        ("made by", literal(record.made_by)),
        ("qualified", passed if record.qualified_by else "no"),
        ("exclusive", "yes: it holds the whole box" if record.exclusive else "no"),
    ]


def gpu_panel(world: World, view: View, width: int, height: int) -> Panel:
    snap = world.gpus.value
    gpu = next((g for g in snap.gpus if gpus.key_of(g) == view.gpu), None) if snap else None
    note = state_note(world.gpus, world.now_s, gpu_limit_s(world))
    if gpu is None:
        return Panel("GPU", tuple(sentence("This GPU is not reported any more.", width, "warn")), note)
    curve = gpus.history(world, gpu, max(10, width - 20))
    pairs = [*_gpu_facts(world, gpu), ("over time", [Cell(curve, "spark"), Cell("")])]
    rows = [*facts(pairs, width), *_group("Processes", _processes(gpu), width)]
    return Panel(f"GPU {gpus.role_of(world, gpu)}", tuple(rows), note)


def _gpu_facts(world: World, gpu: Gpu) -> Pairs:
    snap = world.gpus.value
    state = {"ok": Cell(f"{glyphs.OK} ok", "good"), "lost": Cell("LOST", "bad"), "error": Cell("ERROR", "bad")}[
        gpu.state
    ]
    power = NA if gpu.power_w is None else f"{gpu.power_w:.0f} W of {number(gpu.power_limit_w, 'W')}"
    return [
        ("uuid", literal(gpu.uuid or NA, 100)),
        ("name", literal(gpu.name or NA, 120)),
        ("index, bus", f"{gpu.index}, {literal(gpu.bus_id or NA)}"),
        ("state", [state, Cell(f" {literal(gpu.reason, 300)}" if gpu.reason else "", "bad")]),
        ("driver", literal((snap.driver if snap else None) or NA)),
        ("memory", f"used {mib(gpu.used_bytes)}, free {mib(gpu.free_bytes)}, total {mib(gpu.total_bytes)}"),
        ("driver keeps", mib(gpu.reserved_bytes) + (" (inside used)" if gpu.used_includes_reserved else "")),
        ("reserve", gpus.reserve(world, gpu)),
        ("owner", gpus.owner(world, gpu)),
        ("load", NA if gpu.utilization_pct is None else f"{gpu.utilization_pct} %"),
        ("temperature", NA if gpu.temperature_c is None else f"{gpu.temperature_c} °C"),
        ("power", power),
        ("clocks", f"SM {number(gpu.sm_clock_mhz, 'MHz')}, memory {number(gpu.memory_clock_mhz, 'MHz')}"),
        ("throttled", NA if gpu.throttle is None else literal(", ".join(gpu.throttle)) or "no"),
        ("ECC errors", number(gpu.ecc_uncorrected)),
        ("PCIe", f"out {number(gpu.pcie_tx_kib_s, 'KiB/s')}, in {number(gpu.pcie_rx_kib_s, 'KiB/s')}"),
    ]


def _processes(gpu: Gpu) -> Pairs:
    if gpu.processes is None:
        return [("", "n/a: the process list is not available here")]
    if not gpu.processes:
        return [("", "none")]
    return [(f"pid {p.pid}", f"{literal(p.name or NA, 200)}, {mib(p.used_bytes)}") for p in gpu.processes]
