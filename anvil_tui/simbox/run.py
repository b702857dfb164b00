"""`simbox run`: from an empty folder to a box that serves, and back to nothing on SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from anvil_tui.core.recipe import Recipe
from anvil_tui.core.world import ServeRecord
from anvil_tui.simbox import traffic, workspace
from anvil_tui.simbox.box import SimBox
from anvil_tui.simbox.daemon import Image, SimContainer
from anvil_tui.simbox.gpus import RELEASE_S

SOCKET_PATH_MAX = 90  # a Unix socket path ends at 108 bytes
QUICK = {"slow_load": {"factor": "0.002"}}  # what served before we came was loaded long ago
READY_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Options:
    """`source` holds recipes/ and gates/ to copy; `sheet` makes the box like another one instead; `scale` is how
    many times faster than a real box."""

    directory: Path
    source: Path
    scale: float = 40.0
    seed: int = 1
    traffic: bool = False
    sheet: Path | None = None


async def run(options: Options) -> None:
    """Until SIGTERM or SIGINT. Prints READY when the incumbent serves."""
    options.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    with _sockets(options.directory) as sockets, tempfile.TemporaryDirectory(prefix="simbox-volumes-") as volumes:
        box = SimBox(sockets, options.scale, options.seed)
        box.daemon.volumes = volumes
        try:
            await (_like(box, options.directory, options.sheet) if options.sheet else furnish(box, options))
            print("READY", flush=True)  # noqa: T201 - the one line that a parent waits for
            if options.traffic:
                box.background(traffic.run(box, options.directory))
            await stop.wait()
        finally:
            await box.close()


@contextlib.contextmanager
def _sockets(directory: Path) -> Iterator[Path]:
    """The workspace itself, or a short temporary folder when its path is too long for a socket."""
    if len(str(directory.resolve() / "control.sock")) <= SOCKET_PATH_MAX:
        yield directory.resolve()
        return
    short = Path(tempfile.mkdtemp(prefix="simbox-"))
    try:
        yield short
    finally:
        shutil.rmtree(short)


async def _like(box: SimBox, directory: Path, sheet: Path) -> None:
    from anvil_tui.simbox import likeness

    await likeness.furnish(box, directory, sheet)


async def furnish(box: SimBox, options: Options) -> None:
    """Workspace, images, the rollback container (stopped), the incumbent (serving), the record."""
    uuids = [card.uuid for card in box.board.cards]
    ports, directory = workspace.free_ports(), options.directory
    workspace.write_workspace(directory, options.source, (box.docker_path, box.control_path), uuids, ports)
    recipes = workspace.read_recipes(directory)
    _stock(box, recipes)
    workspace.stock_volumes(Path(box.daemon.volumes), recipes.values())
    await box.open()
    roles = dict(zip(workspace.GPU_ROLES, uuids, strict=True))
    old, now = recipes[workspace.ROLLBACK], recipes[workspace.INCUMBENT]
    kept = box.daemon.create(f"anvil-{old.id}", workspace.create_body(old, ports.slot_b, roles))
    await ready(box, kept)
    await box.daemon.stop(kept, old.launch.stop_grace_s)
    await box.pace.sleep(RELEASE_S)
    serving = box.daemon.create(
        f"anvil-{now.id}", workspace.create_body(now, ports.slot_a, roles), workspace.INCUMBENT_ID
    )
    await ready(box, serving)
    records = [_record(now, serving, "slot-a", ports.slot_a), _record(old, kept, "slot-b", ports.slot_b)]
    workspace.write_record(directory, records, [now, old])


def _stock(box: SimBox, recipes: dict[str, Recipe]) -> None:
    """Every recipe's image can be pulled; those of the incumbent, its rollback and the candidate are here."""
    for recipe in (r for r in recipes.values() if r.image.ref):
        image = Image(recipe.image.ref, recipe.launch.entrypoint)
        box.daemon.catalogue.setdefault(image.ref, image)
    for name in (workspace.INCUMBENT, workspace.ROLLBACK, workspace.CANDIDATE):
        ref = recipes[name].image.ref
        box.daemon.images[ref] = box.daemon.catalogue[ref]


async def ready(box: SimBox, container: SimContainer) -> None:
    box.daemon.next_engine = dict(QUICK)
    box.daemon.start(container)
    waited = 0.0
    while container.engine is None or container.engine.phase != "ready":
        if not container.running or waited > READY_WITHIN_S:
            last = "\n".join(container.logs.lines()[-5:])
            raise workspace.NoWorkspace(f"{container.name} did not become ready:\n{last}")
        await asyncio.sleep(0.01)
        waited += 0.01
    container.engine.faults.pop("slow_load", None)


def _record(recipe: Recipe, container: SimContainer, slot: str, port: int) -> ServeRecord:
    return ServeRecord(
        container_id=container.id,
        recipe_id=recipe.id,
        recipe_digest=recipe.digest(),
        image_id=container.image.id,
        role=workspace.ROLE,
        slot=slot,
        port=port,
        served_name=recipe.served_name,
        made_by=workspace.OPERATION,
        exclusive=recipe.exclusive,
        qualified_by=workspace.OPERATION,
        qualified_at=workspace.QUALIFIED_AT,
        qualified_suite="promotion",
        shape=workspace.shape(container),
    )
