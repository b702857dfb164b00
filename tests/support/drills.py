"""A box in memory that has something to drill, and drills in which something happens on the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from anvil_tui.core.journal import OperationView
from anvil_tui.core.standing import DrillRecord
from anvil_tui.service.operation import operate, prepare
from tests.support.membox import World, recipe


def drilled(folder: Path, *, exclusive: bool, **more: Any) -> World:
    """`b` serves, and `a`, which served before, is kept as its way back."""
    folder.mkdir(exist_ok=True)
    world = World(folder, *(recipe(name, exclusive=exclusive, **more) for name in ("a", "b")))
    assert world.do("promote", recipe="a") == "done"
    assert world.do("promote", recipe="b") == "done"
    world.docker.started.clear()
    world.gate.history.clear()
    return world


def ids(world: World) -> dict[str, str]:
    return {s.recipe_id: s.container_id for s in world.box.store.read().serves.values()}


def view(world: World) -> OperationView:
    return next(v for v in world.box.operations.views() if v.id == world.last)


def newest(world: World) -> DrillRecord:
    return world.box.store.drills()[-1]


def home(world: World) -> None:
    """`b` serves alone, as before the drill."""
    assert (world.serving(), world.incumbent(), len(world.docker.running())) == ("b", "b", 1)
    assert world.gate.file == world.gate.live


def at(world: World, point: str, do: Callable[[], None]) -> str:
    """Run a drill in which something happens at a point."""
    world.last = prepare(world.box, world.plan("drill", role="primary"))
    return operate(
        world.box, world.controls, world.last, "start", pid=1, interrupted=lambda: None,
        checkpoint=lambda here: do() if here == point else None,
    )  # fmt: skip
