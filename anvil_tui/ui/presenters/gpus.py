"""GPUs: memory, reserve, temperature, power, history with its gaps, and who owns each."""

from __future__ import annotations

from anvil_tui.core.box import MIB, Gpu
from anvil_tui.core.world import Serve, World
from anvil_tui.ui.presenters.cells import Cell, Panel, Row, Tone, View, joined, left, right, row, sentence, spread
from anvil_tui.ui.presenters.freshness import gpu_limit_s, state_note
from anvil_tui.ui.text import NA, bar, clip, gib, literal, mib, number, short_id, spark

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
    return [Cell(filled, "dim" if old else _memory_tone(gpu)), Cell(rest, "faint")]


def _amount(gpu: Gpu) -> str:
    if gpu.total_bytes is None:
        return "memory n/a"
    return f"{gib(gpu.used_bytes, unit=False)}/{gib(gpu.total_bytes)}"


def _full(world: World, gpu: Gpu, width: int, old: bool) -> list[Row]:
    key = key_of(gpu)
    name = literal(gpu.name or "name n/a", 60).removeprefix("NVIDIA ")
    amount = [right(_amount(gpu), 15, "text"), right(_percent(gpu), 6, "dim")]
    name_width = min(24, max(8, width // 3 - 6))
    space = max(6, width - _ROLE - name_width - 2 - 21)
    head = [left(role_of(world, gpu), _ROLE, "strong"), left(name, name_width, "dim"), Cell(" ")]
    first = row(*head, *_bar(gpu, space, old), *amount, key=key)
    if gpu.state != "ok":
        return [
            row(*head, Cell(_trouble(gpu, width - _ROLE - name_width - 1), "bad"), key=key),
            *_owner_rows(world, gpu, width),
        ]
    second = spread([Cell(" " * _ROLE), *joined([_free(gpu), reserve(world, gpu)], "   ")], _heat(gpu), width, key)
    history = world.gpu_history.get(key, ())
    curve = max(8, min(name_width, width // 3))
    third = spread(
        [Cell(" " * _ROLE), Cell(spark(history, curve), "spark"), Cell(f" {_util(gpu):>5}", "dim"), Cell("   "),
         *owner(world, gpu)], [], width, key,
    )  # fmt: skip
    return [first, second, third]


def _owner_rows(world: World, gpu: Gpu, width: int) -> list[Row]:
    key = key_of(gpu)
    return [spread([Cell(" " * _ROLE), *owner(world, gpu)], [], width, key), row("", key=key)]


def _trouble(gpu: Gpu, width: int) -> str:
    word = "LOST" if gpu.state == "lost" else "ERROR"
    return clip(f"{word} {literal(gpu.reason)}".rstrip(), width)


def _percent(gpu: Gpu) -> str:
    if gpu.used_bytes is None or not gpu.total_bytes:
        return NA
    return f"{100 * gpu.used_bytes / gpu.total_bytes:.0f} %"


def _util(gpu: Gpu) -> str:
    return NA if gpu.utilization_pct is None else f"{gpu.utilization_pct} %"


def _free(gpu: Gpu) -> list[Cell]:
    return [Cell("free ", "dim"), Cell(mib(gpu.free_bytes), "text")]


def _heat(gpu: Gpu) -> list[Cell]:
    heat = NA if gpu.temperature_c is None else f"{gpu.temperature_c} °C"
    limit = "" if gpu.power_limit_w is None else f"/{gpu.power_limit_w:.0f}"
    watts = NA if gpu.power_w is None else f"{gpu.power_w:.0f}{limit} W"
    cells = [Cell(heat, "text"), right(watts, 11, "dim")]
    if gpu.throttle:
        cells.insert(0, Cell(f"throttled: {literal(', '.join(gpu.throttle), 30)}  ", "warn"))
    return cells


def reserve(world: World, gpu: Gpu) -> list[Cell]:
    """The reserve that counts here, and in words when free memory is below it."""
    owners = owners_of(world, gpu)
    rule = owners[0].recipe.reserve if owners and owners[0].recipe else None
    asked = rule.mib_per_gpu if rule else world.workspace.policies.reserve_mib
    waived = f" (waived {rule.waived_on:%m-%d})" if rule and rule.waived_on else ""
    cells = [Cell("reserve ", "dim"), Cell(f"{asked:,}{waived}", "dim")]
    if gpu.free_bytes is not None and gpu.free_bytes < asked * MIB:
        cells.append(Cell(f" SHORT by {asked - gpu.free_bytes // MIB:,} MiB", "warn" if waived else "bad"))
    return cells


def owners_of(world: World, gpu: Gpu) -> list[Serve]:
    """Running serves that were given this GPU, by UUID or by `all`."""
    return [
        s
        for s in world.serves
        if s.container.running
        and (s.container.gpus.effective == "all" or (gpu.uuid is not None and gpu.uuid in s.container.gpus.uuids))
    ]


def owner(world: World, gpu: Gpu) -> list[Cell]:
    owners = owners_of(world, gpu)
    if owners:
        names = [
            [Cell(literal(s.name, 80), _owner_tone(s)), Cell(f" {short_id(s.container.id)}", "faint")]
            for s in owners
        ]
        head = [
            Cell(
                "owner " if len(owners) == 1 else f"SHARED by {len(owners)}: ",
                "dim" if len(owners) == 1 else "warn",
            )
        ]
        return [*head, *joined(names, ", ")]
    if gpu.processes:
        first = gpu.processes[0]
        more = f" +{len(gpu.processes) - 1}" if len(gpu.processes) > 1 else ""
        return [Cell(f"foreign pid {first.pid} {literal(first.name or '', 40)}{more}".rstrip(), "warn")]
    if gpu.processes is None and gpu.used_bytes:
        return [Cell("owner n/a: processes cannot be listed here", "dim")]
    return [Cell("no owner", "faint")]


def _owner_tone(serve: Serve) -> Tone:
    return "warn" if serve.record is None else "text"


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
    who = owners_of(world, gpu)
    name = literal(who[0].name, 80) if who else ("foreign" if gpu.processes else "")
    tail = left(name, max(0, rest - bar_width - 2), "text" if who else "warn")
    return row(role, *_bar(gpu, bar_width, old), *fixed, Cell("  "), tail, key=key)


def _free_mib(gpu: Gpu) -> int | None:
    return None if gpu.free_bytes is None else gpu.free_bytes // MIB
