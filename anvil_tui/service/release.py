"""The proof that a stopped serve gave its GPUs back. Nothing is killed: what is left is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anvil_tui.core.ownership import Sight, gpu_pids, sight, unreleased
from anvil_tui.core.plan import Step
from anvil_tui.core.vram import free_basis
from anvil_tui.service.run import Run


def sight_now(run: Run) -> Sight:
    """What the owners of the GPUs follow from, read now."""
    box, gpus = run.box, run.box.gpus.read()
    kept, pids = box.store.kept_recipes(), box.host.containers_of(gpu_pids(gpus))
    return sight(
        gpus, box.containers.list(), box.store.read(), pids, box.workspace.gpus,
        lambda s: kept.get(s.recipe_digest), box.store.loads(),
    )  # fmt: skip


def released(run: Run, step: Step) -> dict[str, Any] | None:
    if left_over(run, step):
        return None
    snapshot = run.box.gpus.read().value
    return {"basis": free_basis(snapshot, step.args["gpus"])} if snapshot else None


def left_over(run: Run, step: Step) -> str | None:
    """What of its memory is not back, with the pid, name and MiB of every process that holds it."""
    args = step.args
    why = unreleased(
        sight_now(run), args["container"], args["gpus"], args["need_free_mib"], args["digest"], args["others"]
    )
    return f"vram_not_released: {'; '.join(why)}" if why else None


def wait_released(run: Run, step: Step) -> None:
    steadily(run, step, left_over)


def steadily(run: Run, step: Step, missing: Callable[[Run, Step], str | None]) -> None:
    """Wait until nothing is missing three times in a row: memory comes back late and in parts."""
    streak = 0

    def ask() -> str | None:
        nonlocal streak
        why = missing(run, step)
        streak = 0 if why else streak + 1
        return why or (None if streak >= 3 else "free; reading again")

    run.wait(step, ask, pause_s=run.box.workspace.gpus.interval_s)
