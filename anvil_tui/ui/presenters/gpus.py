"""GPUs: memory, reserve, temperature, power, history with its gaps, and who owns each."""

from __future__ import annotations

from anvil_tui.core.box import MIB, Gpu
from anvil_tui.core.standing import Owner
from anvil_tui.core.waivers import in_force
from anvil_tui.core.world import Serve, World
from anvil_tui.ui.presenters.cells import Cell, Panel, Row, Tone, View, joined, left, right, row, sentence, spread
from anvil_tui.ui.presenters.freshness import gpu_limit_s, state_note
from anvil_tui.ui.text import NA, bar, clip, gib, literal, mib, number, spark

_ROLE = 11


def key_of(gpu: Gpu) -> str:
    """The UUID; a GPU that never told it is known by its index."""
    return gpu.uuid or f"index-{gpu.index}"


def role_of(world: World, gpu: Gpu) -> str:
    roles = [name for name, uuid in world.workspace.gpus.roles.items() if uuid == gpu.uuid]
    return roles[0] if roles else f"gpu {gpu.index}"


def panel(world: World, view: View, width: int, height: int) -> Panel:
    note = state_note(world.gpus, world.now_s, gpu_limit_s(world))
    snap = world.gpus.value
    if snap is None:
        return Panel("GPUs", tuple(_absent(world, width)), note)
    if not snap.gpus:
        return Panel("GPUs", tuple(sentence("0 GPUs: the driver answers and names none.", width, "dim")), note)
    full = 3 * len(snap.gpus) <= height
    old = note is not None
    rows: list[Row] = []
    for gpu in snap.gpus:
        rows.extend(_full(world, gpu, width, old) if full else [_short(world, gpu, width, old)])
    return Panel(f"GPUs {len(snap.gpus)}", tuple(rows), note)


def _absent(world: World, width: int) -> list[Row]:
    if world.gpus.state == "error":
        return sentence(f"unavailable: {literal(world.gpus.reason)}", width, "bad")
    return sentence(f"unknown: {literal(world.gpus.reason)}", width, "dim")


def _memory_tone(gpu: Gpu) -> Tone:
    return "accent" if gpu.state == "ok" else "bad"


def _bar(gpu: Gpu, width: int, old: bool) -> list[Cell]:
    if gpu.used_bytes is None or not gpu.total_bytes:
        return [Cell(" " * width)]
    filled, rest = bar(gpu.used_bytes / gpu.total_bytes, width)
    return [Cell(filled, "dim" if old else _memory_tone(gpu)), Cell(rest, "line")]


def _amount(gpu: Gpu) -> str:
    if gpu.total_bytes is None:
        return "memory n/a"
    return f"{gib(gpu.used_bytes, unit=False)}/{gib(gpu.total_bytes)}"


def _full(world: World, gpu: Gpu, width: int, old: bool) -> list[Row]:
    """Three lines: who and how hot; memory now and before; what is free against the reserve."""
    key = key_of(gpu)
    role = left(role_of(world, gpu), _ROLE, "strong")
    first = spread([role, *owner(world, gpu)], _heat(gpu) if gpu.state == "ok" else [], width, key)
    if gpu.state != "ok":
        return [first, spread([Cell("  "), Cell(_trouble(gpu, width - 2), "bad")], [], width, key), row(key=key)]
    curve = max(8, width // 4)
    room = max(6, width - 2 - 15 - 7 - 2 - curve)
    numbers = [right(_amount(gpu), 15), right(_percent(gpu), 7, "dim"), Cell("  ")]
    second = row(Cell("  "), *_bar(gpu, room, old), *numbers, Cell(history(world, gpu, curve), "spark"), key=key)
    third = spread([Cell("  "), *joined([_free(gpu), reserve(world, gpu), throttled(gpu)], "  ")], [], width, key)
    return [first, second, third]


def history(world: World, gpu: Gpu, width: int) -> str:
    """Used memory over the last readings, against the whole card; a reading that failed is a gap."""
    top = (gpu.total_bytes or 0) // MIB
    return spark(world.gpu_history.get(key_of(gpu), ()), width, top) if top else ""


def _trouble(gpu: Gpu, width: int) -> str:
    word = "LOST" if gpu.state == "lost" else "ERROR"
    return clip(f"{word} {literal(gpu.reason)}".rstrip(), width)


def _percent(gpu: Gpu) -> str:
    if gpu.used_bytes is None or not gpu.total_bytes:
        return NA
    return f"{100 * gpu.used_bytes / gpu.total_bytes:.0f} %"


def _free(gpu: Gpu) -> list[Cell]:
    return [Cell("free ", "dim"), Cell(mib(gpu.free_bytes), "text")]


def _heat(gpu: Gpu) -> list[Cell]:
    load = NA if gpu.utilization_pct is None else f"{gpu.utilization_pct} %"
    heat = NA if gpu.temperature_c is None else f"{gpu.temperature_c} °C"
    limit = "" if gpu.power_limit_w is None else f"/{gpu.power_limit_w:.0f}"
    watts = NA if gpu.power_w is None else f"{gpu.power_w:.0f}{limit} W"
    return [Cell("load ", "dim"), right(load, 5), right(heat, 7), right(watts, 11, "dim")]


def throttled(gpu: Gpu) -> list[Cell]:
    """Why it is slowed down. Clocks that rest because nothing runs are no throttling."""
    why = [t for t in gpu.throttle or () if "idle" not in t and t != "none"]
    return [Cell(f"throttled: {literal(', '.join(why), 40)}", "warn")] if why else []


def reserve(world: World, gpu: Gpu) -> list[Cell]:
    """The reserve that counts here, and in words when free memory is below it."""
    owners = owners_of(world, gpu)
    serve = owners[0] if owners else None
    recipe = serve.recipe if serve else None
    box_mib = world.workspace.policies.reserve_mib
    asked = recipe.reserve.needed_mib(box_mib) if recipe else box_mib
    grant = serve.container.gpus.uuids if serve else ()
    waiver = in_force(recipe, grant, world.waivers, world.now_utc.date(), box_mib) if recipe else None
    waived = f", waived {waiver.at[5:10]}" if waiver else ""
    cells = [Cell("reserve ", "dim"), Cell(f"{asked:,}", "text")]
    if gpu.free_bytes is not None and gpu.free_bytes < asked * MIB:
        return [*cells, Cell(f" SHORT {asked - gpu.free_bytes // MIB:,}{waived}", "warn" if waived else "bad")]
    return [*cells, Cell(waived, "dim")]


def owners_of(world: World, gpu: Gpu) -> list[Serve]:
    """Running serves that were given this GPU, by UUID or by `all`."""
    return [
        s
        for s in world.serves
        if s.container.running
        and (s.container.gpus.effective == "all" or (gpu.uuid is not None and gpu.uuid in s.container.gpus.uuids))
    ]


def owner(world: World, gpu: Gpu) -> list[Cell]:
    """Who holds it, or was given it: our serves plain, strangers and bare processes as warnings. `?` = it may."""
    claims = [o for o in world.owners if gpu.uuid and o.gpu == gpu.uuid]
    bare = [o for o in claims if o.kind == "process"]
    if claims:
        named = [o for o in claims if o.kind != "process"]
        names = [[Cell(_claim(o), "text" if o.kind == "ours" and o.certain else "warn")] for o in named + bare[:1]]
        more = [Cell(f" +{len(bare) - 1}", "warn")] if len(bare) > 1 else []
        head = [Cell(f"SHARED by {len(claims)}: ", "warn")] if named and len(claims) > 1 else []
        return [*head, *joined(names, ", "), *more]
    if gpu.processes:
        return [Cell(f"foreign pid {gpu.processes[0].pid}", "warn")]
    if gpu.state != "ok":
        return [Cell("owner n/a", "dim")]
    if not world.containers.ok:
        return [Cell("owner n/a: containers cannot be read", "dim")]
    if gpu.processes is None and gpu.used_bytes != 0:
        return [Cell("owner n/a: processes cannot be listed here", "dim")]
    return [Cell("no owner", "faint")]


def _claim(owner: Owner) -> str:
    name = f"pid {owner.id} {owner.name}".rstrip() if owner.kind == "process" else owner.name
    return literal(f"{'' if owner.kind == 'ours' else 'foreign '}{name}{'' if owner.certain else '?'}", 80)


def _short(world: World, gpu: Gpu, width: int, old: bool) -> Row:
    """One line: role, bar, memory, free, temperature, power, owner. The bar and the owner give way."""
    key = key_of(gpu)
    role = left(role_of(world, gpu), _ROLE, "strong")
    if gpu.state != "ok":
        return spread([role, Cell(_trouble(gpu, width - _ROLE), "bad")], [], width, key)
    heat = NA if gpu.temperature_c is None else f"{gpu.temperature_c}°"
    watts = NA if gpu.power_w is None else f"{gpu.power_w:.0f} W"
    fixed = [
        right(_amount(gpu), 15),
        Cell(" free ", "dim"),
        right(number(_free_mib(gpu)), 7),
        right(heat, 5, "dim"),
    ]
    if width >= 72:
        fixed.append(right(watts, 7, "dim"))
    rest = width - _ROLE - sum(len(c.text) for c in fixed)
    bar_width = max(4, min(24, rest // 2))
    who = owner(world, gpu)
    warns = any(c.tone == "warn" for c in who)
    name = "" if all(c.tone in ("faint", "dim") for c in who) else "".join(c.text for c in who)
    tail = left(name, max(0, rest - bar_width - 2), "warn" if warns else "text")
    return row(role, *_bar(gpu, bar_width, old), *fixed, Cell("  "), tail, key=key)


def _free_mib(gpu: Gpu) -> int | None:
    return None if gpu.free_bytes is None else gpu.free_bytes // MIB
